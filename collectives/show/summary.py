"""What a sweep comes to, a line a series: latency, peak, half of the peak, and whether that is normal. Torch-free."""

import math
from collections.abc import Iterator, Mapping, Sequence

from scalescope.collectives.show.published import published_for
from scalescope.collectives.sizes import format_size
from scalescope.records.rows import WIDE, Device, SweepRow
from scalescope.records.statistics import decimals

_JUDGED_FROM = 256 * 1024**2  # below it no link is full, and a bandwidth says nothing about the device
_NORMAL = 0.92  # of the figure on record: clocks, drivers and library versions are worth a few percent

_SLOW = 0.5  # of what the faster pairs of its kind have
_LEAST_PAIRS = 3
_REASONS = 3

_Series = tuple[object, ...]


def summarise(rows: Sequence[SweepRow], devices: Sequence[Device]) -> list[str]:
    """Return the sweep's summary, a line each: series, torch.distributed's overhead, the matrix of pairs."""
    series: dict[_Series, list[SweepRow]] = {}
    for row in rows:
        if row.time_us is not None:
            series.setdefault(_series(row), []).append(row)
    plain = [own for own in series.values() if own[0].placement != "pairs"]
    lines = [_line(own, devices) for own in plain]
    lines += _dispatch(plain)
    lines += _dispatch_of_programs(plain)
    pairs = [row for own in series.values() for row in own if row.placement == "pairs"]
    lines += matrix(pairs)
    lines += slow_pairs(pairs, devices)
    if any(row.transport == "direct" and row.issued_by == "python" for row in rows):
        lines.append("transport=direct was issued from Python, for want of the C helper on every rank (scalescope "
                     "doctor): the figures of small eager operations are the host's")  # fmt: skip
    if wide := [row for row in rows if row.is_wide]:
        known = f"{len(wide)} {'is' if len(wide) == 1 else 'are'} known no better than to {WIDE:.0%}"
        lines.append(f"wide: of {len(rows)} points, {known} (95% interval); "
                     "a quieter machine or a larger budget_s tells more")  # fmt: skip
    wrong = [row for row in rows if row.wrong]
    lines += [f"WRONG: {row.wrong} elements of {row.operation} {row.bytes} B {row.dtype}" for row in wrong]
    missing = [row for row in rows if row.time_us is None]
    if missing:
        kinds = {status: sum(row.status == status for row in missing) for status in sorted({r.status for r in missing})}
        lines.append(f"not measured: {', '.join(f'{count} {status}' for status, count in kinds.items())}")
    return lines


def why_nothing(rows: Sequence[SweepRow]) -> str | None:
    """Return why a sweep has measured no point, in a line; None where it has measured one."""
    if any(row.time_us is not None for row in rows):
        return None
    reasons = list(dict.fromkeys(row.reason or row.status for row in rows))
    more = f"; and {len(reasons) - _REASONS} reasons more" if len(reasons) > _REASONS else ""
    return f"no point of the sweep could be measured: {'; '.join(reasons[:_REASONS])}{more}"


def verdict(row: SweepRow, devices: Sequence[Device]) -> str:
    """Return whether a bandwidth is normal for its device, low, or above what the link can carry; or why not told."""
    if row.bus_gb_s is None or row.bytes < _JUDGED_FROM:
        return f"not judged below {format_size(_JUDGED_FROM)}"
    members = [device for device in devices if device.rank in row.ranks]
    if row.ceiling_gb_s is not None and row.bus_gb_s > row.ceiling_gb_s:
        in_switch = "" if any(device.kind == "rocm" for device in members) else "reduced inside the switch (NVLS), or "
        return f"above what the link can carry if {row.ceiling_assumes}: {in_switch}not right"
    names = {device.name for device in members if device.partitions is None}  # what is on record is of whole devices
    known = published_for(next(iter(names)), row.operation, row.group_size) if len(names) == 1 else None
    if known is not None:
        share = row.bus_gb_s / known.bus_gb_s
        word = "normal" if share >= _NORMAL else "low"
        return f"{word}: {share:.1%} of the {known.bus_gb_s:g} GB/s on record ({known.source})"
    return "nothing on record to compare with"


def matrix(rows: Sequence[SweepRow]) -> list[str]:
    """Return the matrices of pairs: bandwidth at the largest size, time at the smallest, rank by rank."""
    if not rows:
        return []
    ranks = sorted({rank for row in rows for rank in row.ranks})
    lines = []
    for name in dict.fromkeys((row.operation, row.transport) for row in rows):
        own = [row for row in rows if (row.operation, row.transport) == name]
        largest, smallest = max(row.bytes for row in own), min(row.bytes for row in own)
        bandwidth = {tuple(row.ranks): row.bus_gb_s for row in own if row.bytes == largest}
        latency = {tuple(row.ranks): row.time_us for row in own if row.bytes == smallest}
        for size, unit, cells in ((largest, "GB/s", bandwidth), (smallest, "µs", latency)):
            lines.append(f"every pair, {name[0]} ({name[1]}), {format_size(size)}, {unit}:")
            lines.append("      " + "".join(f"{rank:>8}" for rank in ranks))
            for one in ranks:
                values = [cells.get((min(one, other), max(one, other))) for other in ranks]
                shown = ["–" if value is None else f"{value:.2f}" for value in values]
                lines.append(f"{one:>6}" + "".join(f"{value:>8}" for value in shown))
    return lines


def slow_pairs(rows: Sequence[SweepRow], devices: Sequence[Device]) -> list[str]:
    """Return a line a slow host or pair: less than half of what the faster ones of its kind have at the largest size,
    by the end of its interval as well.

    Pairs within a host and pairs across hosts are two kinds; a kind needs three pairs, else there is no telling.
    """
    host = {device.rank: device.host for device in devices}
    lines = []
    for name in dict.fromkeys((row.operation, row.transport, row.dtype) for row in rows):
        own = [row for row in rows if (row.operation, row.transport, row.dtype) == name and row.bus_gb_s]
        largest = max((row.bytes for row in own), default=0)
        for across in (False, True):
            speeds = {
                (row.ranks[0], row.ranks[1]): row.bus_gb_s or 0.0
                for row in own
                if row.bytes == largest and (host.get(row.ranks[0]) != host.get(row.ranks[1])) is across
            }
            if len(speeds) < _LEAST_PAIRS:
                continue
            usual = sorted(speeds.values())[math.ceil(0.75 * len(speeds)) - 1]  # a slow host spoils many pairs
            at_best = {(row.ranks[0], row.ranks[1]): _at_best(row) for row in own if row.bytes == largest}
            slow = {pair: speed for pair, speed in speeds.items() if at_best[pair] < _SLOW * usual}
            kind = "pairs across hosts have" if across else "pairs within a host have"
            for who, pairs in _culprits(slow, speeds, host):
                worst = min(slow[pair] for pair in pairs)
                lines.append(f"SLOW: {who}: {_speed(worst)} GB/s at {format_size(largest)}, where other {kind} "
                             f"{_speed(usual)}")  # fmt: skip
    return lines


def _at_best(row: SweepRow) -> float:
    """Return a row's bus bandwidth at the faster end of its 95% interval, GB/s."""
    speed = row.bus_gb_s or 0.0
    if row.interval_us is None or row.time_us is None or row.interval_us[0] <= 0:
        return speed
    return speed * max(1.0, row.time_us / row.interval_us[0])


_Pair = tuple[int, int]


def _culprits(
    slow: Mapping[_Pair, float], speeds: Mapping[_Pair, float], host: Mapping[int, str]
) -> Iterator[tuple[str, list[_Pair]]]:
    """Yield who is slow, with its pairs: a rank all of whose pairs are, and alike, else each pair that is left.

    Of a rank one of whose pairs is much slower than the others, it is that pair.
    """
    left = dict(slow)
    for rank in sorted({rank for pair in slow for rank in pair}):
        of_rank = [pair for pair in speeds if rank in pair]
        alike = min(speeds[pair] for pair in of_rank) >= _SLOW * max(speeds[pair] for pair in of_rank)
        if len(of_rank) > 1 and alike and all(pair in left for pair in of_rank):
            yield f"rank {rank} ({host.get(rank, '?')}), with every other", of_rank
            for pair in of_rank:
                del left[pair]
    for one, other in left:
        yield f"the pair of rank {one} ({host.get(one, '?')}) and rank {other} ({host.get(other, '?')})", [(one, other)]


def _speed(gb_s: float) -> str:
    return f"{gb_s:.3g}"


def _line(rows: Sequence[SweepRow], devices: Sequence[Device]) -> str:
    least, peak = rows[0], max(rows, key=lambda row: row.bus_gb_s or 0.0)
    size = f" at {format_size(least.bytes)}" if least.bytes else ""
    parts = [f"{_name(least)}: {_figure(least.time_us or 0.0, least)} µs{size}"]
    if peak.bus_gb_s:
        share = f" ({peak.bus_gb_s / peak.ceiling_gb_s:.1%} of {peak.ceiling_assumes})" if peak.ceiling_gb_s else ""
        parts.append(f"peak busbw {_figure(peak.bus_gb_s, peak)} GB/s at {format_size(peak.bytes)}{share}")
        half = next(row for row in rows if (row.bus_gb_s or 0.0) >= peak.bus_gb_s / 2)
        parts.append(f"the smallest message that gets half of that is {format_size(half.bytes)}")
        if devices and devices[0].kind != "cpu":
            parts.append(verdict(peak, devices))
    slowed = [row for row in rows if row.slowdown is not None and row.compute_slowdown is not None]
    if slowed:
        worst = slowed[-1]
        parts.append(
            f"{worst.slowdown:.2f} times as long as alone, the matrix product {worst.compute_slowdown:.2f} times"
        )
    return "; ".join(parts)


def _figure(value: float, row: SweepRow) -> str:
    return f"{value:.{decimals(value, row.relative_half)}f}"


def _dispatch(series: Sequence[Sequence[SweepRow]]) -> Iterator[str]:
    """Yield what torch.distributed adds to the library's own time, at the smallest size of each pair of series."""
    direct = {_series(rows[0])[1:]: rows[0] for rows in series if rows[0].transport == "direct"}
    for rows in series:
        other = direct.get(_series(rows[0])[1:])
        own = next((row for row in rows if other is not None and row.bytes == other.bytes), None)
        if rows[0].transport == "c10d" and own is not None and other is not None:
            if own.time_us is None or other.time_us is None:
                continue
            yield (f"{own.operation} over {own.group_size} ranks, {own.execution}: torch.distributed adds "
                   f"{own.time_us - other.time_us:.2f} µs to the library's {other.time_us:.2f} µs "
                   f"at {format_size(own.bytes)}")  # fmt: skip


def _dispatch_of_programs(series: Sequence[Sequence[SweepRow]]) -> Iterator[str]:
    """Yield what a program of its own adds to an operation, at the smallest size of each compiled series."""
    for own in (rows[0] for rows in series):
        if own.dispatch_us is not None and own.time_us is not None and not own.is_wide:
            yield (f"{own.operation} over {own.group_size} ranks, {own.transport}: dispatched in a program of its own, "
                   f"it takes {own.dispatch_us:.2f} µs more than {own.time_us:.2f} µs in a long one "
                   f"at {format_size(own.bytes)}")  # fmt: skip


def _series(row: SweepRow) -> _Series:
    return (
        row.transport, row.operation, row.dtype, row.group_size, row.reduction, row.mode, row.execution, row.placement,
        row.algorithm, row.protocol, row.channels, row.cta_policy, row.contention, tuple(row.ranks),
    )  # fmt: skip


def ways(row: SweepRow) -> str:
    """Return how a row was measured, in words: path, execution, and what differs from the plain case."""
    channels = f"{row.channels} channels" if row.channels is not None else None
    contention = f"beside {row.contention}" if row.contention is not None else None
    policy = f"CTA policy {row.cta_policy}" if row.cta_policy is not None else None
    settings = (row.transport, row.execution, row.placement, row.algorithm, row.protocol, channels, policy, contention)
    return ", ".join(filter(None, settings))


def _name(row: SweepRow) -> str:
    kind = ", ".join(filter(None, (row.dtype, row.reduction, row.mode)))
    return f"{row.operation} over {row.group_size} ranks ({kind}, {ways(row)})"
