"""Two sweeps side by side: the ratio of each point, with what its uncertainty allows to say.

The first sweep is the baseline. A ratio is bandwidth against bandwidth (time against time, turned over), so below 1
means slower than the baseline. Its interval combines the two 95% intervals of the means in quadrature; a side that
knows none (an imported log) adds nothing to it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.records.rows import SweepRow

_Key = tuple[object, ...]


@dataclass(frozen=True)
class Pair:
    """One point that both sweeps planned."""

    baseline: SweepRow
    other: SweepRow
    ratio: float | None  # bandwidth of `other` over the baseline's; None where one has no time
    uncertainty: float | None  # half of the ratio's 95% interval; None where neither side knows its own

    def fails(self, under: float) -> bool:
        """Return whether the point is worse than so much of the baseline, beyond its uncertainty."""
        return self.ratio is None or self.ratio + (self.uncertainty or 0.0) < under


@dataclass(frozen=True)
class SweepPairs:
    """All points of two sweeps."""

    pairs: list[Pair]
    only_baseline: list[SweepRow]
    only_other: list[SweepRow]


def compare(baseline: Sequence[SweepRow], other: Sequence[SweepRow]) -> SweepPairs:
    """Pair the points of two sweeps.

    Points are the same if all their axes are. Where the two sweeps share no transport (ours through torch.distributed,
    a log of the library's own), each transport is laid beside the other's.
    """
    measured = [row for row in baseline if row.time_us]  # a log may say 0.00
    shared = {row.transport for row in measured} & {row.transport for row in other}
    theirs: dict[_Key, list[SweepRow]] = {}
    for row in other:
        theirs.setdefault(point_key(row, with_transport=bool(shared)), []).append(row)
    pairs: list[Pair] = []
    only_baseline: list[SweepRow] = []
    used: set[_Key] = set()
    for row in measured:
        key = point_key(row, with_transport=bool(shared))
        used.add(key)
        partners = theirs.get(key, [])
        pairs += [_pair(row, partner) for partner in partners]
        only_baseline += [] if partners else [row]
    only_other = [row for key, rows in theirs.items() if key not in used for row in rows if row.time_us]
    return SweepPairs(pairs, only_baseline, only_other)


def describe_row(row: SweepRow) -> str:
    """Return a row's point in words."""
    return f"{row.operation} {row.bytes} B {row.dtype} n={row.group_size} {row.mode} {row.execution} {row.transport}"


def describe(pair: Pair) -> str:
    """Return a pair as one line."""
    row, other = pair.baseline, pair.other
    point = f"{row.operation} {row.bytes} B {row.dtype} n={row.group_size} {row.mode} {row.execution}"
    transport = row.transport if row.transport == other.transport else f"{row.transport} → {other.transport}"
    if pair.ratio is None or other.time_us is None or row.time_us is None:
        return f"{point} {transport}: {other.status} ({other.reason or 'without a time'})"
    known = f" ± {pair.uncertainty:.3f}" if pair.uncertainty is not None else ""
    return f"{point} {transport}: {row.time_us:.2f} → {other.time_us:.2f} µs, ratio {pair.ratio:.3f}{known}"


def _pair(row: SweepRow, other: SweepRow) -> Pair:
    if not row.time_us or not other.time_us:
        return Pair(row, other, None, None)
    ratio = row.time_us / other.time_us
    halves = [half for half in (_relative_half(row), _relative_half(other)) if half is not None]
    uncertainty = ratio * math.sqrt(sum(half * half for half in halves)) if halves else None
    return Pair(row, other, ratio, uncertainty)


def _relative_half(row: SweepRow) -> float | None:
    if row.interval_us is None or not row.time_us:
        return None
    return (row.interval_us[1] - row.interval_us[0]) / 2 / row.time_us


def point_key(row: SweepRow, *, with_transport: bool = True) -> _Key:
    """Return what two rows have in common that are of one point."""
    return (
        row.operation, row.bytes, row.dtype, row.group_size, row.reduction, row.mode, row.execution, row.root,
        row.algorithm, row.protocol, row.channels, row.cta_policy, row.contention, row.placement,
        row.transport if with_transport else None, tuple(row.ranks) if row.placement == "pairs" else None,
    )  # fmt: skip
