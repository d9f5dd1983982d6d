"""DDP's gradients: in buckets too small or too late, or wider than they need be.

Each is tried on the replay with what collectives of other sizes take.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from scalescope.records.operations import OPERATION_FACTS
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import WORTH_SAYING, Candidate, Scene
from scalescope.scaling.findings.detectors.small_collectives import small_rounds
from scalescope.scaling.replay.buckets import Cut, StepBuckets, cut_by
from scalescope.scaling.replay.bursts import comes_in_bursts
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.graph import Transfer, median

_BUCKETS_MIB = (5.0, 10.0, 25.0, 50.0, 100.0, 200.0)
#: What torch makes of gradients, where nothing is said.
_USUAL_MIB = 25.0
_MIB = 1 << 20
#: DDP's own cap of a bucket, MiB. So many of them in one piece are no choice of anybody's who knows of it.
_DDP_MIB, _IN_ONE_PIECE = 25.0, 100.0
#: Some gradient comes last in every job, and a language model's is its table's: less than so much of the step is usual.
_USUALLY_BARE = 0.03
#: What narrower gradients would halve.
_WIDE = "float32"
#: Of what a step reduces, the one piece is so much; and so much of it at most is hidden.
_MOST_OF_THEM, _BARE = 0.8, 0.1


def gradients(scene: Scene) -> Iterator[Candidate]:
    """Yield candidates for how gradients are cut, handed over, and in which width they travel."""
    if scene.may_wait_unseen:
        return  # no setting shortens the wait for a rank whose trace is not there
    replayer = scene.replayer
    steps = replayer.buckets
    if isinstance(steps, str):
        yield from _in_one_piece(scene)
        return
    if not replayer.graph.transfers or _cost_of_communication(scene) < WORTH_SAYING:
        return
    if comes_in_bursts(replayer.graph, steps) == "all at once":
        yield Candidate(
            code="late_bucket",
            change=Change(spread=True),
            evidence=_now(steps),
            remedy=Remedy(cure="hand_over_early", overrides=scene.overrides("strategy.compile_by_bucket=true")),
        )
    yield from _other_cut(scene, steps)
    if steps[0].scale == 1.0 and not replayer.on_cpu:
        yield Candidate(
            code="exposed_transfer",
            change=Change(gradients="bf16"),
            evidence=_now(steps),
            remedy=Remedy(cure="narrow_gradients", overrides=scene.overrides("strategy.gradient_dtype=bf16")),
        )


def _other_cut(scene: Scene, steps: list[StepBuckets]) -> Iterator[Candidate]:
    replayer = scene.replayer
    rounds = small_rounds(scene, (at for one in steps for at in one.transfers))
    if rounds is not None and rounds[0] >= WORTH_SAYING * scene.step_ms:
        # all but one of many tiny ones are lost as measured: what a larger one takes, their sizes do not tell
        yield Candidate(
            code="small_buckets",
            gain_ms=rounds,
            evidence=_now(steps),
            remedy=Remedy(
                cure="larger_buckets", overrides=scene.overrides(f"strategy.bucket_mib={_USUAL_MIB:g}"), size=_USUAL_MIB
            ),
        )
        return
    sizes = [one.bytes for one in steps[0].gradients[replayer.graph.ranks[0]]]
    now = steps[0].cut
    cuts = other_cuts(sizes, now)
    replayer.work_out([Change(bucket_mib=cap) for cap in cuts], quick=True)
    tried = {cap: replayer.predict(Change(bucket_mib=cap), quick=True).change_ms for cap in cuts}
    known = {cap: change_ms for cap, change_ms in tried.items() if change_ms is not None}
    if not known or min(known.values()) >= 0:
        return
    cap = min(known, key=lambda cap: known[cap])
    larger = len(cuts[cap]) < len(now)
    yield Candidate(
        code="small_buckets" if larger else "late_bucket",
        change=Change(bucket_mib=cap),
        evidence=_now(steps),
        remedy=Remedy(
            cure="larger_buckets" if larger else "smaller_buckets",
            overrides=scene.overrides(f"strategy.bucket_mib={cap:g}"),
            size=cap,
        ),
        most_ms=_rounds_ms(scene, steps, len(now) - len(cuts[cap])) if larger and replayer.on_cpu else None,
    )


def other_cuts(sizes: Sequence[int], now: Cut) -> dict[float, Cut]:
    """Return by cap, MiB, how else gradients can be cut than `now`, one cap for each number of buckets.

    In torch's own cut the first bucket is smaller. Any cap that is given makes it as large as the others, and so fewer
    of them: of such caps none counts that is less than the one in force.
    """
    cuts: dict[float, Cut] = {}
    by_default = now == cut_by(sizes, round(_USUAL_MIB * _MIB), _MIB)
    for cap in _BUCKETS_MIB:
        cut = cut_by(sizes, round(cap * _MIB))
        smaller = by_default and cap < _USUAL_MIB and len(cut) < len(now)
        if cut != now and not smaller and len(cut) not in map(len, cuts.values()):
            cuts[cap] = cut
    return cuts


def _rounds_ms(scene: Scene, steps: list[StepBuckets], saved: int) -> float:
    """Return what so many all-reduces less save at most, where hosts compute: all that the quickest of them take.

    What they carry travels all the same, by the same cores. From a trace's few sizes the replay cannot tell a round of
    messages from what a loaded machine adds to a transfer of any size.
    """
    graph = scene.replayer.graph
    alike = [one for one in steps if len(one.transfers) == len(steps[0].transfers)]
    took = [
        [graph.transfers[at].traced_ns for at in of_one]
        for of_one in zip(*(one.transfers for one in alike), strict=True)
    ]
    quickest = sorted(statistics.median(of_one) for of_one in took)[:saved]
    handing_over = _handing_over_share(scene) * scene.replayer.base_ns / len(steps[0].cut)
    return float(sum(quickest) + saved * handing_over) / 1e6


def _in_one_piece(scene: Scene) -> Iterator[Candidate]:
    """Yield the candidate of gradients that travel in one piece, once the backward pass is over.

    Traces without shapes tell no gradients, and so no other cut is replayed. But one large all-reduce a step that
    nothing hides is all of them; in DDP's own buckets only the last would be left bare, and the others would slow the
    compute that hides them.
    """
    graph = scene.replayer.graph
    by_step: dict[int, list[Transfer]] = {}
    for one in graph.transfers:
        facts = OPERATION_FACTS.get(one.operation)
        if facts is not None and facts.gives_all_the_whole and one.bytes and one.step in graph.step_numbers:
            by_step.setdefault(one.step, []).append(one)
    largest = [max(some, key=lambda one: one.bytes or 0) for some in by_step.values()]
    if not scene.analysis.trains or len(largest) < len(graph.step_numbers) or not all(
        (one.bytes or 0) >= _IN_ONE_PIECE * _MIB and one.hidden <= _BARE for one in largest
    ):  # fmt: skip
        return
    if not all(
        (one.bytes or 0) >= _MOST_OF_THEM * sum(other.bytes or 0 for other in some)
        for one, some in zip(largest, by_step.values(), strict=True)
    ):
        yield from _that_comes_last(scene, by_step, largest)
        return
    carried = median([float(one.bytes or 0) for one in largest]) / _MIB
    bare = median([one.work_ns for one in largest]) / 1e6 * (1 - 1 / math.ceil(carried / _DDP_MIB))
    own = graph.contention
    gain, low, high = (
        bare * (1 - inflation / (1 + inflation) / own.transfer_rate)
        for inflation in (own.inflation, own.inflation_high, own.inflation_low)
    )
    yield Candidate(
        code="late_bucket",
        gain_ms=(gain, low, high),
        evidence=(
            EvidenceRow(kind="figure", name="all_reduces", calls=1.0),
            EvidenceRow(kind="figure", name="median_bucket_mib", value=carried),
            EvidenceRow(kind="figure", name="gradients_mib", value=carried),
        ),
        remedy=Remedy(
            cure="smaller_buckets", overrides=scene.overrides(f"strategy.bucket_mib={_DDP_MIB:g}"), size=_DDP_MIB
        ),
    )


def _that_comes_last(
    scene: Scene, by_step: Mapping[int, Sequence[Transfer]], largest: Sequence[Transfer]
) -> Iterator[Candidate]:
    """Yield the candidate of a piece larger than any bucket that comes once the backward pass is over.

    Beside others that are smaller it is one parameter's gradient, which no cap cuts: of a table of embeddings, the
    first that the forward pass needs and the last that the backward pass makes. How much of it can be hidden, or need
    not travel, its size does not tell; in half the width it takes half as long.
    """
    for one, some in zip(largest, by_step.values(), strict=True):
        others = (other for other in some if other is not one and (other.bytes or 0) >= _MIB)
        begun = _begun(scene, one)
        if any(_begun(scene, other) > begun for other in others):
            return
    if any(one.dtype != _WIDE for one in largest):
        return
    bare = sum(one.work_ns * (1 - one.hidden) for one in largest) / len(largest) / 1e6
    carried = median([sum(float(one.bytes or 0) for one in some) for some in by_step.values()]) / _MIB
    yield Candidate(
        code="late_bucket",
        gain_ms=(bare, bare / 2, bare),
        evidence=(
            EvidenceRow(
                kind="figure", name="all_reduces", calls=median([float(len(some)) for some in by_step.values()])
            ),
            EvidenceRow(
                kind="figure", name="last_bucket_mib", value=median([(one.bytes or 0) / _MIB for one in largest])
            ),
            EvidenceRow(kind="figure", name="gradients_mib", value=carried),
        ),
        remedy=Remedy(cure="narrow_gradients", overrides=scene.overrides("strategy.gradient_dtype=bf16")),
        at_most=True,
        least_share=_USUALLY_BARE,
    )


def _begun(scene: Scene, one: Transfer) -> int:
    return max(scene.replayer.graph.activities[at].traced_start for at in one.members.values())


def _now(steps: list[StepBuckets]) -> tuple[EvidenceRow, ...]:
    held = [size for _, size in steps[0].cut]
    return (
        EvidenceRow(kind="figure", name="all_reduces", calls=len(held)),
        EvidenceRow(kind="figure", name="median_bucket_mib", value=median(held) / _MIB),
        EvidenceRow(kind="figure", name="gradients_mib", value=sum(held) / _MIB),
    )


def _cost_of_communication(scene: Scene) -> float:
    """Return the share of the step that collectives cost at most: waited for, slowing compute, or handed over."""
    best = scene.replayer.predict(Change(overlap="perfect", no_inflation=True), quick=True)
    return max(_handing_over_share(scene), -(best.fraction or 0.0))


def _handing_over_share(scene: Scene) -> float:
    """Return the share of the step that the host spends on handing collectives over, on the rank with most."""
    graph = scene.replayer.graph
    steps = max(1, len(graph.step_numbers))
    spent = [
        sum(call.duration_ns + call.think_ns for call in calls if call.hands_over >= 0) / steps
        for calls in graph.calls.values()
    ]
    base = scene.replayer.base_ns
    return max(spent, default=0.0) / base if base else 0.0
