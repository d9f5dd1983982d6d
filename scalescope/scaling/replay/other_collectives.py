"""What collectives of other sizes, or on other links, would take in a job: their times alone, as its trace has them."""

import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.buckets import Cut, StepBuckets, cut_by, first_bucket_cap, recut
from scalescope.scaling.replay.bursts import Bursts
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.graph import Graph, Transfer
from scalescope.scaling.replay.times import CollectiveTimes

#: A compiled backward pass that is cut at bucket edges computes so much longer than in one piece (copies and casts at
#: the edges), from, to: of one H200's steps 1.1% (GPT-2 124M, 117.85 to 119.17 ms) and 1.0% (ResNet-50).
_PIECES, _PIECES_LOW, _PIECES_HIGH = 0.011, 0.005, 0.016
#: What Inductor names its kernels.
_COMPILED = "triton_"


class OtherCollectives:
    """Changes a graph's collectives. `ratios`: bytes of the job's transfers, and their work over their time alone."""

    def __init__(self, transfers: Sequence[Transfer], times: CollectiveTimes) -> None:
        self._times = times
        self.ratios = self._measure(transfers)

    def recut(
        self, graph: Graph, steps: list[StepBuckets], change: Change, place: float, bursts: Callable[[], Bursts]
    ) -> str | None:
        """Cut a graph's gradients into other buckets; return in words why that cannot be done.

        `place`: 0.5 for the most likely time of a collective, lower for faster ones, higher for slower ones. `bursts`:
        how the graph's gradients come.
        """
        bucketed = {step.step for step in steps}
        graph.left_out = {at for at, number in enumerate(graph.step_numbers) if number not in bucketed}
        if len(graph.left_out) == len(graph.step_numbers) - 1 and len(graph.step_numbers) - 1 not in graph.left_out:
            return "the all-reduces add up to the gradients in the last step alone, which nothing bounds"
        first_rank = graph.ranks[0]
        scale = steps[0].scale
        if change.gradients is not None:
            width = steps[0].gradients[first_rank][0].element_bytes
            scale = min(1.0, (2 if change.gradients == "bf16" else 4) / width)
        cuts = [step.cut for step in steps]
        if change.bucket_mib is not None:
            cap = round(change.bucket_mib * (1 << 20))
            first = first_bucket_cap(graph, steps)
            cuts = [
                cut_by([one.bytes for one in step.gradients[first_rank]], cap, min(first, cap) if first else None)
                for step in steps
            ]
        model = graph.transfers[steps[0].transfers[0]]
        work: dict[int, float] = {}
        for size in {round(held * scale) for cut in cuts for _, held in cut}:
            alone = self._times.time_us(model.operation, size, model.dtype, model.group_size)
            if alone is None:
                return (
                    f"what an {model.operation} of {size / (1 << 20):.3g} MiB takes on {model.group_size} ranks is not "
                    "known; a study's sweep tells"
                )
            bound = alone.value if place == 0.5 else alone.low if place < 0.5 else alone.high
            work[size] = bound * self._ratio(size, place)
        # a model compiled around DDP is cut at bucket edges: with smaller buckets, its gradients come in smaller bursts
        if change.spread and bursts().come is None:
            return "gradients are handed over one by one already"
        if change.spread or (change.bucket_mib is not None and bursts().come == "a bucket"):
            bursts().spread(graph)
        if change.spread:
            _cut_compiled(graph, place)
        times = [
            [
                min(work[round(held * scale)], most)
                for (_, held), most in zip(cut, _no_longer_than(graph, step, cut, scale), strict=True)
            ]
            for step, cut in zip(steps, cuts, strict=True)
        ]
        recut(graph, steps, cuts, scale, times)
        return None

    def speed_up(self, graph: Graph, factor: float) -> None:
        """Divide what of each of a graph's transfers is not latency."""
        for index, one in enumerate(graph.transfers):
            latency = self._times.time_us(one.operation, 8, one.dtype, one.group_size)
            fixed = min(one.work_ns, latency.value * 1e3 if latency is not None else 0.0)
            graph.transfers[index] = replace(one, work_ns=fixed + (one.work_ns - fixed) / factor)

    def _measure(self, transfers: Sequence[Transfer]) -> list[tuple[int, float]]:
        """Bytes of the transfers, and their work over their time alone; of those from 1 MiB up, where there are."""
        sized = [one for one in transfers if one.bytes]
        found = []
        for one in [one for one in sized if (one.bytes or 0) >= 1 << 20] or sized:
            if one.bytes is None:
                continue
            alone = self._times.time_us(one.operation, one.bytes, one.dtype, one.group_size)
            if alone is not None and alone.value > 0:
                found.append((one.bytes, one.work_ns / 1e3 / alone.value))
        return found

    def _ratio(self, size: int, place: float) -> float:
        """Return what transfers of about a size take in training over what they take alone, at a place among them."""
        if not self.ratios:
            return 1.0
        near = sorted(self.ratios, key=lambda one: abs(math.log(one[0] / size)))[: max(6, len(self.ratios) // 3)]
        ratios = sorted(ratio for _, ratio in near)
        return ratios[round(place * (len(ratios) - 1))]


def _no_longer_than(graph: Graph, step: StepBuckets, cut: Cut, scale: float) -> list[float]:
    """Return what each bucket of a step's new cut takes at most, µs; infinite where it is not made of whole ones.

    What travels together takes no longer than one after another: the rounds of messages are one's, and the rate of
    links falls with no size. So no bucket takes longer than those together did that carried the same gradients.
    """
    ends = [last for last, _ in step.cut]
    traced = [graph.transfers[index].work_ns / 1e3 for index in step.transfers]
    limits = []
    first = 0
    for last, _ in cut:
        whole = first in (0, *(end + 1 for end in ends)) and last in ends and scale <= step.scale
        limits.append(
            sum(us for end, us in zip(ends, traced, strict=True) if first <= end <= last) if whole else math.inf
        )
        first = last + 1
    return limits


def _cut_compiled(graph: Graph, place: float) -> None:
    """Let the compute of a compiled step take what cutting its graph at bucket edges costs, in place."""
    computing = [at for at in graph.living() if graph.activities[at].kind == COMPUTE]
    if not any(graph.activities[at].name.startswith(_COMPILED) for at in computing):
        return
    longer = _PIECES if place == 0.5 else _PIECES_LOW if place < 0.5 else _PIECES_HIGH
    for at in computing:
        graph.work_ns[at] *= 1 + longer
