"""How much compute and communication slow each other side by side, measured where the traces allow, else assumed.

Inflation: the same kernel (by name and ordinal in the step) in a run of one rank takes d₀, here d, o of it beside a
collective. With c what kernels without anything beside them grew by (another clock, another temperature),

    s = Σ (d - d₀ (1 + c)) / Σ o      over the kernels beside which a collective ran at all,

and inflation = s / (1 - s): o is of the time that is slowed already, inflation of that which is not.

Without such a run, kernels of one name are compared among themselves, where those that ran alone agree to a few per
cent. Its interval is over (rank, step) pairs, as a bootstrap would draw them.
"""

import random
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE
from scalescope.scaling.replay.graph import Contention, Graph, median
from scalescope.scaling.replay.times import CollectiveTimes
from scalescope.scaling.trace.intervals import Intervals, covered_before, union

#: Where nothing tells: 13% for GPT and 34% for ResNet-50 were measured on 4×H200.
_ASSUMED = Contention(0.15, 0.0, 0.35, 0.8, "assumed: 0.15 ms slower compute a ms of overlap (0 to 0.35)")
#: Cores are shared in other ways than multiprocessors are, which nothing here measures.
_ON_CPUS = Contention(0.0, 0.0, 0.35, 1.0, "not measured on CPUs: taken as none (0 to 0.35)")
#: Copy engines take no multiprocessors; what they take of the memory's bandwidth slowed matrix products by 0.3%.
_ON_COPY_ENGINES = Contention(0.0, 0.0, 0.15, 1.0, "on copy engines: taken as none (0 to 0.15)")
#: Kernels of one name that ran alone may differ by so much (standard deviation over mean) to stand for one another.
_ALIKE = 0.03
_LEAST_OVERLAP_NS = 200_000
_DRAWS = 200

#: No more of a kernel's time than this counts as slowing.
_MOST_OF_IT = 0.8

#: Of so few steps there is no bootstrap: from step to step and from host to host it differed by less than this.
_ENOUGH_CELLS, _OF_FEW = 4, 0.3

_Cell = tuple[float, float]  # ns by which compute grew, ns of overlap


def measure_contention(records: Mapping[int, RankRecord], alone: RankRecord | None) -> Contention:
    """Return how much compute is slowed beside collectives; `alone` is the same job on one rank.

    The rate of transfers beside compute is left to `measure_transfer_rate`, which needs their times alone.
    """
    if not any(record.collectives for record in records.values()):
        return Contention(basis="there is no communication")
    if all(record.activity == "cpu" for record in records.values()):
        return _ON_CPUS
    if all(one.by_copies for record in records.values() for one in record.collectives):
        return _ON_COPY_ENGINES
    reference = _by_ordinal(alone) if alone is not None else {}
    cells = [cell for record in records.values() for cell in _cells(record, reference)] if reference else []
    basis = "measured against the run on one rank"
    if sum(overlap for _, overlap in cells) < _LEAST_OVERLAP_NS:
        cells = _cells_between(records)
        basis = "measured between ranks, where a kernel runs beside collectives on one and alone on another"
    if sum(overlap for _, overlap in cells) < _LEAST_OVERLAP_NS:
        cells = [cell for record in records.values() for cell in _cells_by_name(record)]
        basis = "measured between kernels of one name, beside collectives and alone"
    if sum(overlap for _, overlap in cells) < _LEAST_OVERLAP_NS:
        return _ASSUMED
    low, middle, high = _interval(cells)
    return Contention(
        inflation=inflation_of(middle),
        inflation_low=inflation_of(low),
        inflation_high=inflation_of(high),
        transfer_rate=_ASSUMED.transfer_rate,
        basis=f"{basis}: {max(middle, 0.0):.2f} ms slower compute a ms of overlap "
        f"({max(low, 0.0):.2f} to {max(high, 0.0):.2f})",
    )


def measured_between_ranks(own: Contention, cells: Sequence[_Cell]) -> Contention:
    """Return a contention whose inflation is that between ranks, where one is late enough to tell; else its own."""
    if sum(overlap for _, overlap in cells) < _LEAST_OVERLAP_NS:
        return own
    low, middle, high = (max(bound, 0.0) for bound in _interval(cells))
    if len(cells) < _ENOUGH_CELLS:
        low, high = (1 - _OF_FEW) * middle, (1 + _OF_FEW) * middle
    basis = f"measured between ranks, collectives beside and not: {middle:.2f} ms slower compute a ms of overlap"
    return replace(own, inflation=inflation_of(middle), inflation_low=inflation_of(low),
                   inflation_high=inflation_of(high), basis=f"{basis} ({low:.2f} to {high:.2f})")  # fmt: skip


def inflation_of(slope: float) -> float:
    """Return the inflation of compute that is longer by a share of the time that a collective is beside it."""
    share = min(max(slope, 0.0), _MOST_OF_IT)
    return share / (1 - share)


def measure_transfer_rate(graph: Graph, times: CollectiveTimes) -> float | None:
    """Return how fast transfers are under compute, against those laid bare; None where too few are hidden to tell.

    The graph must be one without a rate (1), so that its transfers' work is their traced time.
    """
    hidden: list[float] = []
    bare: list[float] = []
    for one in graph.transfers:
        if one.bytes is None or one.bytes < 1 << 20:
            continue
        alone = times.time_us(one.operation, one.bytes, one.dtype, one.group_size)
        if alone is None:
            continue
        (hidden if one.hidden > 0.9 else bare if one.hidden < 0.3 else []).append(alone.value * 1e3 / one.traced_ns)
    if not hidden:
        return None
    return float(min(1.0, max(0.4, median(hidden) / median(bare, 1.0))))


def _by_ordinal(record: RankRecord) -> dict[tuple[str, int], float]:
    """Return the mean duration of each kernel, ns, by name and ordinal in the step."""
    found: dict[tuple[str, int], list[int]] = {}
    for _, key, duration, _ in _kernels(record):
        found.setdefault(key, []).append(duration)
    return {key: statistics.fmean(durations) for key, durations in found.items()}


def _kernels(record: RankRecord) -> list[tuple[int, tuple[str, int], int, int]]:
    """Return (step, key, duration, overlap with collectives) of a rank's kernels that belong to a step."""
    rows = [at for at, kind in enumerate(record.kind) if kind == COMPUTE and record.step[at] >= 0]
    starts = np.array([record.start[at] for at in rows], np.int64)
    ends = np.array([record.end[at] for at in rows], np.int64)
    communication = _communication(record)
    overlap = (covered_before(communication, ends) - covered_before(communication, starts)).tolist()
    ordinals: dict[tuple[int, str], int] = {}
    found = []
    for at, overlap_ns in zip(rows, overlap, strict=True):
        step, name = record.step[at], record.name[at]
        ordinal = ordinals[step, name] = ordinals.get((step, name), -1) + 1
        found.append((step, (name, ordinal), record.end[at] - record.start[at], overlap_ns))
    return found


def _communication(record: RankRecord) -> Intervals:
    chosen = [at for at, kind in enumerate(record.kind) if kind == COMMUNICATION]
    return union(
        Intervals(
            np.array([record.start[at] for at in chosen], np.int64),
            np.array([record.end[at] for at in chosen], np.int64),
        )
    )


def _cells(record: RankRecord, reference: Mapping[tuple[str, int], float]) -> list[_Cell]:
    """Return a cell a step, against another run's kernels."""
    kernels = [one for one in _kernels(record) if one[1] in reference]
    quiet = [(duration, reference[key]) for _, key, duration, overlap in kernels if overlap == 0]
    if not quiet or not kernels:
        return []
    drift = sum(duration for duration, _ in quiet) / sum(before for _, before in quiet)
    cells: dict[int, _Cell] = {}
    for step, key, duration, overlap in kernels:
        if overlap > 0:
            grown, overlapped = cells.get(step, (0.0, 0.0))
            cells[step] = grown + duration - reference[key] * drift, overlapped + overlap
    return list(cells.values())


def _cells_between(records: Mapping[int, RankRecord]) -> list[_Cell]:
    """Return a cell a rank and step, against the same kernel of the step on ranks where no collective ran beside it.

    Ranks differ in speed, too: by how much is told by the kernels that ran alone on both.
    """
    kernels: dict[int, list[tuple[int, tuple[int, str, int], int, int]]] = {}  # (step, key, duration, overlap) by rank
    alone: dict[tuple[int, str, int], dict[int, int]] = {}
    for rank, record in records.items():
        place = {number: at for at, number in enumerate(record.steps)}
        kernels[rank] = [
            (place[step], (place[step], *key), duration, overlap)
            for step, key, duration, overlap in _kernels(record)
            if step in place
        ]
        for _, key, duration, overlap in kernels[rank]:
            if overlap == 0:
                alone.setdefault(key, {})[rank] = duration
    cells: list[_Cell] = []
    for rank, own in kernels.items():
        quiet = elsewhere = 0.0
        overlapped: dict[int, list[tuple[int, float, int]]] = {}
        for step, key, duration, overlap in own:
            others = [one for other, one in alone.get(key, {}).items() if other != rank]
            if others and overlap == 0:
                quiet, elsewhere = quiet + duration, elsewhere + sum(others) / len(others)
            elif others:
                overlapped.setdefault(step, []).append((duration, sum(others) / len(others), overlap))
        drift = quiet / elsewhere if elsewhere else 1.0
        cells += [
            (sum(one - drift * other for one, other, _ in found), float(sum(overlap for _, _, overlap in found)))
            for found in overlapped.values()
        ]
    return cells


def _cells_by_name(record: RankRecord) -> list[_Cell]:
    """Return a cell a step, against the kernels of the same name that ran alone, where those are alike."""
    alone: dict[str, list[int]] = {}
    kernels = _kernels(record)
    for _, (name, _), duration, overlap in kernels:
        if overlap == 0:
            alone.setdefault(name, []).append(duration)
    alike = {
        name: statistics.fmean(durations)
        for name, durations in alone.items()
        if len(durations) >= 3 and statistics.pstdev(durations) <= _ALIKE * statistics.fmean(durations)
    }
    cells: dict[int, _Cell] = {}
    for step, (name, _), duration, overlap in kernels:
        # of a kernel of one name that is far off, the shape is another one
        if overlap > 0 and name in alike and alike[name] / 2 < duration < 2 * alike[name]:
            grown, overlapped = cells.get(step, (0.0, 0.0))
            cells[step] = grown + duration - alike[name], overlapped + overlap
    return list(cells.values())


def _interval(cells: Sequence[_Cell]) -> tuple[float, float, float]:
    """Return the 2.5th percentile, the estimate and the 97.5th percentile of the slope."""
    middle = _slope(cells)
    if len(cells) < 3:
        return 0.0, middle, 2 * middle
    draw = random.Random(0)
    slopes = sorted(_slope(draw.choices(cells, k=len(cells))) for _ in range(_DRAWS))
    return slopes[int(0.025 * _DRAWS)], middle, slopes[int(0.975 * _DRAWS)]


def _slope(cells: Sequence[_Cell]) -> float:
    overlapped = sum(overlap for _, overlap in cells)
    return sum(grown for grown, _ in cells) / overlapped if overlapped else 0.0
