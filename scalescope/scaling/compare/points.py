"""Two sweeps: the ratio of each point, with what its spread allows to say of all points at once.

Where a side has several launches, a point's time is their mean and its spread that between launches. Of one launch it
is that of the row itself (see sweeps/comparison.py), and what launches of one sweep are known to differ by besides:
buffers and channels lie otherwise in each. Points are tested at once by Holm's procedure: the p-th
smallest of m p-values has to lie below 5% / (m − p + 1).
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

import msgspec

from scalescope.records.rows import SweepRow
from scalescope.records.statistics import NORMAL_95, student_95
from scalescope.scaling.compare.answer import PointChange
from scalescope.scaling.costs.points import Launch
from scalescope.scaling.sweeps.comparison import Pair, SweepPairs, compare, point_key

_LEVEL = 0.05
#: By how much a point is taken to differ between launches, as a share: two sweeps of H200s with NCCL and some on two
#: cores with gloo lay within it. `sweep launches=3` measures it instead.
_BETWEEN_LAUNCHES = {"gloo": 0.25, "mpi": 0.25}
_BETWEEN_LAUNCHES_OF_GPUS = 0.02


def merged(launches: Sequence[Launch]) -> list[SweepRow]:
    """Return the rows of several launches of one sweep, a point once: its mean time, its spread between launches."""
    if len(launches) == 1:
        return [_widened(row) for row in launches[0].rows]
    by_point: dict[tuple[object, ...], list[SweepRow]] = {}
    for launch in launches:
        for row in launch.rows:
            by_point.setdefault(point_key(row), []).append(row)
    return [_merged(rows) for rows in by_point.values()]


def _widened(row: SweepRow) -> SweepRow:
    """Return a row of a single launch with the interval that another launch's would lie in."""
    if row.interval_us is None or row.time_us is None:
        return row
    share = _BETWEEN_LAUNCHES.get(row.backend or "", _BETWEEN_LAUNCHES_OF_GPUS)
    half = math.hypot((row.interval_us[1] - row.interval_us[0]) / 2, NORMAL_95 * share * row.time_us)
    return msgspec.structs.replace(row, interval_us=(row.time_us - half, row.time_us + half))


def _merged(rows: Sequence[SweepRow]) -> SweepRow:
    timed = [row for row in rows if row.time_us is not None]
    times = [row.time_us for row in timed if row.time_us is not None]
    if len(times) < 2:
        return timed[0] if timed else rows[0]
    mean = fmean(times)
    half = student_95(len(times) - 1) * stdev(times) / math.sqrt(len(times))
    factor = times[0] / mean  # bandwidths go with the time
    first = timed[0]
    return msgspec.structs.replace(
        first,
        time_us=mean,
        interval_us=(mean - half, mean + half),
        alg_gb_s=first.alg_gb_s * factor if first.alg_gb_s is not None else None,
        bus_gb_s=first.bus_gb_s * factor if first.bus_gb_s is not None else None,
    )


def compare_points(baseline: Sequence[Launch], other: Sequence[Launch]) -> tuple[list[PointChange], SweepPairs]:
    """Return every point that both sweeps planned, and the comparison that it is made of."""
    found = compare(merged(baseline), merged(other))
    differs = holm([_p_value(pair) for pair in found.pairs])
    return [_point(pair, told) for pair, told in zip(found.pairs, differs, strict=True)], found


def holm(p_values: Sequence[float | None]) -> list[bool]:
    """Tell which of several tests reject, so that all of them are right in 95 of 100 cases; None is no test."""
    ranked = sorted((value, at) for at, value in enumerate(p_values) if value is not None)
    rejected = [False] * len(p_values)
    for done, (value, at) in enumerate(ranked):
        if value > _LEVEL / (len(ranked) - done):
            break
        rejected[at] = True
    return rejected


def _p_value(pair: Pair) -> float | None:
    """Return how likely a ratio is so far from 1 by chance; None where nothing of its spread is known."""
    if pair.ratio is None or not pair.uncertainty:
        return None
    return 2 * (1 - NormalDist().cdf(abs(pair.ratio - 1) / (pair.uncertainty / NORMAL_95)))


def _point(pair: Pair, differs: bool) -> PointChange:
    row, other = pair.baseline, pair.other
    half = pair.uncertainty
    transport = row.transport if row.transport == other.transport else f"{row.transport} → {other.transport}"
    told = (row.mode, row.execution, transport, row.algorithm, row.protocol, row.contention)
    return PointChange(
        operation=row.operation,
        bytes=row.bytes,
        dtype=row.dtype,
        group_size=row.group_size,
        variant=" ".join(word for word in told if word),
        baseline_us=row.time_us,
        other_us=other.time_us,
        baseline_bus_gb_s=row.bus_gb_s,
        other_bus_gb_s=other.bus_gb_s,
        ratio=pair.ratio,
        low=pair.ratio - half if pair.ratio is not None and half is not None else None,
        high=pair.ratio + half if pair.ratio is not None and half is not None else None,
        differs=differs,
    )
