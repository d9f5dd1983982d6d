"""Projects the step of a series to another number of ranks.

    step(N) = step(b) + Δ compute + Δ exposed transfer + Δ exposed wait

with b the largest count measured; step(b) is measured outside the profiler's window, the changes are of the mean rank.
Every collective over all ranks takes what it took in the trace, times what the cost model says that N ranks take over
b: so what training loses in situ is carried. How much of that stays hidden is replayed (hiding.py). Wait and slower
compute follow stated laws (laws.py). Copies and idle time stay as they are. In strong scaling compute shrinks with the
rank's share of the batch, but for the part that does not, which two counts tell.

Each part has an interval. Assumptions may fail together, so theirs add up; what one more run would differ by is drawn
by itself, and goes in by squares.
"""

import math
from collections.abc import Sequence

from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.costs.model import CostModel, NotKnown
from scalescope.scaling.projected import Projected, ProjectedPart
from scalescope.scaling.projection.basis import Basis, MeasuredRun, check
from scalescope.scaling.projection.hiding import Hidden, replay
from scalescope.scaling.projection.laws import INFLATION, WAIT, inflation_growth, wait_growth
from scalescope.scaling.rank.exchanges import Exchange

#: Collectives that no sweep measured may make up so much of the transfers, and are carried as they are.
_NEGLIGIBLE = 0.02

_UNSIZED = "the traces do not hold the collectives' sizes, so the cost model cannot tell their times"


_Kind = tuple[str | None, int | None, str | None, int | None]


def project(basis: Basis, costs: CostModel, ranks: int) -> Projected:
    """Return the step on so many ranks. Raises NotKnown, with why, where the measurements cannot tell."""
    check(basis)
    largest = basis.largest
    if ranks <= largest.world_size:
        raise NotKnown(f"{ranks} ranks are no more than the {largest.world_size} that were measured")
    if costs.device is not None and largest.device is not None and costs.device != largest.device:
        raise NotKnown(f"the sweep is of {costs.device}, and {largest.name} ran on {largest.device}; sweep there")
    stretches, assumed = _stretches(largest, costs, ranks)
    if largest.on_cpus:
        assumed.append("every CPU rank has as many cores and as much of the memory's bandwidth as it had")
    shrunk = _compute_factor(basis, ranks) if basis.scaling == "strong" else Interval(1.0, 1.0, 1.0)
    here = _replayed(largest, {}, 1.0, "value")
    there = _replayed(largest, stretches, shrunk.value, "value")
    low = _replayed(largest, stretches, shrunk.high, "low")  # more compute hides more
    high = _replayed(largest, stretches, shrunk.low, "high")
    means = dict(zip(PARTS, (float(part) / 1e6 for part in largest.mean.parts), strict=True))
    transfer = Interval(*sorted_around(there.exposed, low.exposed, high.exposed, here.exposed))
    wait_ms, slowing_ms = _plausible(basis, means)
    waits = wait_growth(largest.world_size, ranks)
    under = [max(0.0, one.transfer - one.exposed) for one in (here, there)]
    longer = under[1] / under[0] if under[0] > 0 else 1.0
    slowing = inflation_growth(largest.world_size, ranks, longer, basis.smallest.world_size)
    compute = means["compute"]
    parts = [
        ProjectedPart("compute", compute, Interval(
            compute * (shrunk.value - 1) + slowing_ms * (slowing.value - 1),
            compute * (shrunk.low - 1) + slowing_ms * (slowing.low - 1),
            compute * (shrunk.high - 1) + slowing_ms * (slowing.high - 1),
        ), INFLATION),
        ProjectedPart("exposed_transfer", means["exposed_transfer"], transfer,
                      "each collective takes what it took, times the cost model's ratio, and hides as in the trace"),
        ProjectedPart("exposed_wait", means["exposed_wait"],
                      Interval(*(wait_ms * (factor - 1) for factor in (waits.value, waits.low, waits.high))), WAIT),
        ProjectedPart("rest", sum(means[part] for part in PARTS if part not in _CHANGING), Interval(0.0, 0.0, 0.0),
                      "copies and idle time stay as in the largest measured run"),
    ]  # fmt: skip
    step = _sum(largest, parts)
    first = basis.smallest
    # a rank's batch is fixed in weak scaling, and the whole one in strong
    batch = largest.samples_per_rank_step * (ranks if basis.scaling == "weak" else largest.world_size)
    speedup = batch / (first.samples_per_rank_step * first.world_size) * first.step_ms
    share = first.world_size / ranks
    return Projected(
        series=basis.series,
        scaling="weak" if basis.scaling == "weak" else "strong",
        world_size=ranks,
        from_world_sizes=[run.world_size for run in basis.runs],
        step_ms=step,
        efficiency=Interval(*(speedup / ms * share for ms in (step.value, step.high, step.low))),
        samples_per_s=Interval(*(batch / ms * 1e3 for ms in (step.value, step.high, step.low))),
        parts=parts,
        assumed=assumed,
    )


_CHANGING = ("compute", "exposed_transfer", "exposed_wait")


def sorted_around(value: float, low: float, high: float, base: float) -> tuple[float, float, float]:
    """Return the changes against `base` in ms of (value, low, high) in ns, with the bounds on their sides."""
    changes = [(each - base) / 1e6 for each in (value, low, high)]
    return changes[0], min(changes), max(changes)


def _sum(largest: MeasuredRun, parts: Sequence[ProjectedPart]) -> Interval:
    value = largest.step_ms + sum(part.change_ms.value for part in parts)
    below = sum(part.change_ms.value - part.change_ms.low for part in parts)
    above = sum(part.change_ms.high - part.change_ms.value for part in parts)
    again = largest.repeat_half_ms if math.isfinite(largest.repeat_half_ms) else 0.0
    return Interval(value, value - math.hypot(below, again), value + math.hypot(above, again))


def _replayed(run: MeasuredRun, stretches: dict[_Kind, Interval], compute: float, end: str) -> Hidden:
    """Return the mean rank's transfers with each stretched by one end of its interval."""

    def stretch(one: Exchange) -> float:
        known = stretches.get(_kind(one))
        return 1.0 if known is None else float(getattr(known, end))

    found = [replay(rank, stretch, compute) for rank in run.replayed()]
    return Hidden(
        sum(one.transfer for one in found) / len(found),
        sum(one.exposed for one in found) / len(found),
    )


def _stretches(run: MeasuredRun, costs: CostModel, ranks: int) -> tuple[dict[_Kind, Interval], list[str]]:
    """Return by kind of collective how many times longer it takes on `ranks`, and what that assumes.

    Raises NotKnown where the sweep lacks what makes up more than a fiftieth of the transfers.
    """
    times: dict[_Kind, float] = {}
    for rank in run.replayed():
        for one in rank.exchanges:
            times[_kind(one)] = times.get(_kind(one), 0.0) + one.transfer
    found: dict[_Kind, Interval] = {}
    assumed: dict[str, None] = {}
    missing: dict[str, float] = {}
    for kind, time in times.items():
        operation, size, dtype, group_size = kind
        if operation is None or size is None or dtype is None:
            missing[_UNSIZED] = missing.get(_UNSIZED, 0.0) + time
            continue
        if group_size != run.world_size:
            assumed[f"groups of {group_size} stay as large as they are"] = None
            continue
        try:
            here = costs.cost(operation, size, dtype, run.world_size)
            there = costs.cost(operation, size, dtype, ranks)
        except NotKnown as reason:
            missing[str(reason)] = missing.get(str(reason), 0.0) + time
            continue
        if here.time_us.value <= 0:
            continue
        ratios = (there.time_us.value, there.time_us.low, there.time_us.high)
        found[kind] = Interval(*(each / here.time_us.value for each in ratios))
        assumed.update(dict.fromkeys(there.assumed))
    whole = sum(times.values())
    if sum(missing.values()) > _NEGLIGIBLE * whole:
        raise NotKnown(max(missing, key=lambda reason: missing[reason]))
    if missing:
        assumed["collectives that no sweep measured, under 2% of the transfers, take as long as they did"] = None
    return found, list(assumed)


def _kind(one: Exchange) -> _Kind:
    return (one.operation, one.bytes, one.dtype, one.group_size)


def _plausible(basis: Basis, means: dict[str, float]) -> tuple[float, float]:
    """Return the exposed wait and the slowing of compute of the largest run, ms a step, as far as its steps bear it.

    Where the profiled steps were disturbed and are longer than the measured ones, waiting or slowed compute in them is
    more than there is outside the window: neither may be more than the measured step has room for.
    """
    largest, smallest = basis.largest, basis.smallest
    busy = means["compute"] + means["exposed_transfer"] + means["exposed_unsplit"] + means["exposed_memory"]
    wait = min(means["exposed_wait"], max(0.0, largest.step_ms - busy))
    if basis.scaling != "weak":
        return wait, 0.0
    before = float(smallest.mean.parts[PARTS.index("compute")]) / 1e6
    growth = largest.step_ms - smallest.step_ms
    return wait, max(0.0, min(means["compute"] - before, growth))


def _compute_factor(basis: Basis, ranks: int) -> Interval:
    """Return compute on `ranks` over that on the largest count, for a fixed whole batch.

    compute(n) = fixed + shared / n, from the smallest and the largest count (optimiser and launch-bound kernels do not
    shrink); one bound is that all of it is shared, the other lies as far on the other side.
    """
    small, large = basis.smallest, basis.largest
    first, last = (float(run.mean.parts[PARTS.index("compute")]) for run in (small, large))
    shared = max(0.0, (first - last) / (1 / small.world_size - 1 / large.world_size))
    fixed = max(0.0, last - shared / large.world_size)
    value = (fixed + min(shared / large.world_size, last) * large.world_size / ranks) / last
    perfect = large.world_size / ranks
    return Interval(value, min(perfect, value), min(1.0, max(value, 2 * value - perfect)))
