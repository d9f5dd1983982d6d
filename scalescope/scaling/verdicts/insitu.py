"""In-situ efficiency: what a collective takes alone, as a sweep measured it, over its transfer time in training.

The sweep must be of the same device, operation, dtype and group size, and bracket the size; between two sizes the time
is interpolated log-log. Of an operation that reduces nothing, as many bytes of another dtype do as well. What a kind of
collective loses is told apart as far as the data allow, in µs a call:

    what a rank sees = ideal + size + contention + rest + skew

ideal        at the best rate that the sweep reached for the group
size         what it takes alone, beyond that: it is too small for the best rate
contention   of what it takes beyond that, as much as compute beside explains: the share of the transfer under
             compute × (the slowdown the sweep measured beside matrix products − 1), at most all of it
rest         what is left, by subtraction (negative where training is faster than the sweep)
skew         the wait for the last member, of the mean member: no part of the transfer

Contention is null where no sweep measured it.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from scalescope.records.operations import bus_factor
from scalescope.records.rows import SweepRow
from scalescope.scaling.answer import Collective, InSitu, RunAnalysis
from scalescope.scaling.costs.points import Launch, is_plain
from scalescope.scaling.rank.exchanges import RankExchanges
from scalescope.scaling.sweeps.names import REDUCING

#: Smaller collectives are latency, which the sweep and the profiler see too differently to compare.
SMALLEST_BYTES = 1 << 20

_Kind = tuple[str, int, str | None, int | None]
_Key = tuple[str, str, int]  # operation, dtype, group size
_Curve = dict[int, float]


def add_in_situ(run: RunAnalysis, exchanges: Mapping[int, RankExchanges], launches: Sequence[Launch]) -> None:
    """Fill in the run's `in_situ` and its collectives' `in_situ_efficiency`; what cannot be told has its reason."""
    if run.world_size < 2 or not run.collectives:
        return
    refusal = _refusal(run, launches)
    usable = [] if refusal else [row for launch in launches for row in launch.rows]
    alone, contended = _curves(usable)
    covered = _covered(exchanges)
    kinds: dict[_Kind, list[Collective]] = {}
    for one in run.collectives:
        if one.bytes is not None and one.bytes >= SMALLEST_BYTES and one.step is not None:
            kinds.setdefault((one.operation, one.bytes, one.dtype, one.group_size), []).append(one)
    for (operation, size, dtype, group_size), calls in sorted(kinds.items(), key=lambda item: str(item[0])):
        key = (operation, dtype or "", group_size or 0)
        curve = _like(alone, key)
        reason = refusal or _missing(run, operation, dtype, group_size, size, curve, calls)
        row = InSitu(operation=operation, bytes=size, dtype=dtype, group_size=group_size, calls=len(calls))
        run.in_situ.append(row)
        if reason:
            row.reason = reason
            continue
        time_us = _interpolate(curve, size)
        assert time_us is not None
        for one in calls:
            if one.transfer_us:
                one.in_situ_efficiency = time_us / one.transfer_us
        slowdown = _interpolate(_like(contended, key), size)
        _explain(row, calls, time_us, curve, slowdown, covered)


def _explain(
    row: InSitu,
    calls: Sequence[Collective],
    alone_us: float,
    curve: _Curve,
    slowdown: float | None,
    covered: Mapping[int, float],
) -> None:
    timed = [one for one in calls if one.transfer_us]
    row.alone_us = alone_us
    row.transfer_us = statistics.median(one.transfer_us or 0.0 for one in timed)
    row.efficiency = alone_us / row.transfer_us
    row.skew_us = statistics.median(statistics.fmean(one.wait_us.values()) for one in timed if one.wait_us)
    shares = [covered[one.index] for one in timed if one.index in covered]
    row.under_compute = statistics.median(shares) if shares else None
    if row.group_size is not None and bus_factor(row.operation, row.group_size) is not None:
        row.ideal_us = min(row.bytes * time / size for size, time in curve.items() if size > 0)
        row.ideal_us = min(row.ideal_us, alone_us)
        row.size_us = alone_us - row.ideal_us
    beyond = row.transfer_us - alone_us
    if slowdown is not None and row.under_compute is not None:
        row.contention_us = max(0.0, min(beyond, alone_us * (slowdown - 1) * row.under_compute))
    row.rest_us = beyond - (row.contention_us or 0.0)


def _refusal(run: RunAnalysis, launches: Sequence[Launch]) -> str | None:
    """Return why no sweep at hand can be laid beside a run's collectives; None where one can."""
    if not any(launch.rows for launch in launches):
        return "there is no sweep; measure one on these devices (scalescope sweep), or give one with --sweep"
    devices = sorted({launch.device for launch in launches if launch.device is not None})
    if run.device is not None and devices and devices != [run.device]:
        return f"the sweep is of {', '.join(devices)}, and this ran on {run.device}"
    return None


def _missing(
    run: RunAnalysis,
    operation: str,
    dtype: str | None,
    group_size: int | None,
    size: int,
    curve: _Curve,
    calls: Sequence[Collective],
) -> str | None:
    if not any(one.transfer_us for one in calls):
        alone = len(run.ranks) < run.world_size
        return (
            "not all ranks' traces are here, so waiting and moving cannot be told apart"
            if alone
            else "it could not be matched across the ranks"
        )
    if any(one.on_copy_engines for one in calls):
        return "it ran on copy engines, and the sweep on multiprocessors"
    if group_size is None or dtype is None:
        return f"the trace does not hold its {'data type' if dtype is None else 'process group'}"
    if not curve:
        return f"the sweep has no {operation} {dtype} on {group_size} ranks"
    if _interpolate(curve, size) is None:
        return f"its size lies outside the sweep's sizes, {min(curve):,} to {max(curve):,} B"
    return None


def _like(curves: Mapping[_Key, _Curve], key: _Key) -> _Curve:
    """Return the curve of a kind; of an operation that reduces nothing, of whichever dtype there is. Empty: none."""
    operation, _, group_size = key
    if key in curves or operation in REDUCING:
        return curves.get(key, {})
    return next((curve for other, curve in curves.items() if (other[0], other[2]) == (operation, group_size)), {})


def _curves(rows: Iterable[SweepRow]) -> tuple[dict[_Key, _Curve], dict[_Key, _Curve]]:
    """Return the time alone, and the slowdown beside compute, by size, of each (operation, dtype, group size)."""
    alone: dict[_Key, dict[int, tuple[bool, float]]] = {}
    slowdown: dict[_Key, _Curve] = {}
    for row in rows:
        key = (row.operation, row.dtype, row.group_size)
        if is_plain(row) and row.time_us is not None:
            # through torch.distributed, as training calls it, before the library by itself; of several the fastest
            ranked = (row.transport != "c10d", row.time_us)
            curve = alone.setdefault(key, {})
            curve[row.bytes] = min(ranked, curve.get(row.bytes, ranked))
        elif row.contention is not None and row.slowdown is not None and row.execution == "eager":
            slowdown.setdefault(key, {})[row.bytes] = max(1.0, row.slowdown)
    return {key: {size: time for size, (_, time) in curve.items()} for key, curve in alone.items()}, slowdown


def _covered(exchanges: Mapping[int, RankExchanges]) -> dict[int, float]:
    """Return by collective the share of its transfer that ran under compute, of the mean member."""
    shares: dict[int, list[float]] = {}
    for rank in exchanges.values():
        for one in rank.exchanges:
            if one.match is not None and one.transfer > 0:
                shares.setdefault(one.match, []).append(1 - one.exposed / one.transfer)
    return {match: statistics.fmean(values) for match, values in shares.items()}


def _interpolate(curve: _Curve, size: int) -> float | None:
    """Return the value at a size by log-log interpolation; None beyond what was measured."""
    sizes = sorted(curve)
    at = bisect_left(sizes, size)
    if at < len(sizes) and sizes[at] == size:
        return curve[size]
    if at == 0 or at == len(sizes):
        return None
    low, high = sizes[at - 1], sizes[at]
    share = math.log(size / low) / math.log(high / low)
    return math.exp(math.log(curve[low]) * (1 - share) + math.log(curve[high]) * share)
