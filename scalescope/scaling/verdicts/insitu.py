"""In-situ efficiency: what a collective takes alone, as a sweep measured it, over its transfer time in training.

The sweep must be of the same device, operation, dtype and group size, and bracket the size; between two sizes the time
is interpolated log-log. Of an operation that reduces nothing, as many bytes of another dtype do as well. What ran on
copy engines is held against rows of the zero-CTA policy, what ran in kernels for symmetric windows against rows of the
others, and all else against rows that were told no policy. What a kind of collective loses is told apart as far as the
data allow, in µs a call:

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

from scalescope.records.operations import bus_factor, runs_on_copy_engines
from scalescope.records.rows import SweepRow
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import Collective, InSitu, RanOn
from scalescope.scaling.costs.points import Launch, is_alone
from scalescope.scaling.rank.exchanges import RankExchanges
from scalescope.scaling.sweeps.names import REDUCING

#: Smaller collectives are latency, which the sweep and the profiler see too differently to compare.
SMALLEST_BYTES = 1 << 20

_Kind = tuple[str, int, str | None, int | None, RanOn]
_Key = tuple[str, str, int, RanOn]  # operation, dtype, group size
_Curve = dict[int, float]
_Curves = Mapping[_Key, _Curve]

_RAN_ON: Mapping[RanOn, str] = {
    "kernels": "in kernels, on buffers that are no symmetric windows",
    "symmetric_kernels": "in kernels over symmetric windows",
    "copy_engines": "on copy engines",
}
#: What a sweep is told to measure the same.
_SWEEP_OF: Mapping[RanOn, str] = {
    "kernels": "scalescope sweep operations=[{}]",
    "symmetric_kernels": "scalescope sweep transport=direct operations=[{}] cta_policy=default",
    "copy_engines": "scalescope sweep transport=direct operations=[{}] cta_policy=zero",
}


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
            kinds.setdefault((one.operation, one.bytes, one.dtype, one.group_size, one.ran_on), []).append(one)
    for (operation, size, dtype, group_size, ran_on), calls in sorted(kinds.items(), key=lambda item: str(item[0])):
        key = (operation, dtype or "", group_size or 0, ran_on)
        curve = _like(alone, key)
        row = InSitu(
            operation=operation, bytes=size, dtype=dtype, group_size=group_size, calls=len(calls), ran_on=ran_on
        )
        reason = refusal or _missing(run, row, alone, curve, calls)
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
    waits = [statistics.fmean(one.wait_us.values()) for one in timed if one.wait_us]
    row.skew_us = statistics.median(waits) if waits else None  # of copies nobody knows
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


def _missing(run: RunAnalysis, row: InSitu, alone: _Curves, curve: _Curve, calls: Sequence[Collective]) -> str | None:
    if not any(one.transfer_us for one in calls):
        alone_here = len(run.ranks) < run.world_size
        return (
            "not all ranks' traces are here, so waiting and moving cannot be told apart"
            if alone_here
            else "it could not be matched across the ranks"
        )
    if row.group_size is None or row.dtype is None:
        return f"the trace does not hold its {'data type' if row.dtype is None else 'process group'}"
    if not curve:
        return _no_curve(row, row.dtype, row.group_size, alone)
    if _interpolate(curve, row.bytes) is None:
        return f"its size lies outside the sweep's sizes, {min(curve):,} to {max(curve):,} B"
    return None


def _no_curve(row: InSitu, dtype: str, group_size: int, alone: _Curves) -> str:
    """Return why a sweep has nothing to lay beside a kind: it has none of it, or none that ran by the same means."""
    others = [means for means in _RAN_ON if _like(alone, (row.operation, dtype, group_size, means))]
    if not others:
        return f"the sweep has no {row.operation} {dtype} on {group_size} ranks"
    elsewhere = " and ".join(_RAN_ON[means] for means in others)
    return (f"it ran {_RAN_ON[row.ran_on]}, and the sweep's {row.operation} {elsewhere}; measure its like: "
            f"{_SWEEP_OF[row.ran_on].format(row.operation)}")  # fmt: skip


def _like(curves: _Curves, key: _Key) -> _Curve:
    """Return the curve of a kind; of an operation that reduces nothing, of whichever dtype there is. Empty: none."""
    operation, _, *rest = key
    if key in curves or operation in REDUCING:
        return curves.get(key, {})
    return next((curve for other, curve in curves.items() if (other[0], *other[2:]) == (operation, *rest)), {})


def _ran_on(row: SweepRow) -> RanOn:
    """Return by what a sweep's collective moved its data: a row with a policy is over symmetric windows."""
    if row.cta_policy is None:
        return "kernels"
    return "copy_engines" if runs_on_copy_engines(row.operation, row.cta_policy) else "symmetric_kernels"


def _curves(rows: Iterable[SweepRow]) -> tuple[dict[_Key, _Curve], dict[_Key, _Curve]]:
    """Return the time alone, and the slowdown beside compute, by size, of each kind that a sweep tells apart."""
    alone: dict[_Key, dict[int, tuple[bool, float]]] = {}
    slowdown: dict[_Key, _Curve] = {}
    for row in rows:
        key = (row.operation, row.dtype, row.group_size, _ran_on(row))
        if is_alone(row) and row.time_us is not None:
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
