"""The same kernels, more often than on the other ranks: more samples, more passes, an uneven split.

Where hosts compute, what an operator calls in its midst is no launch of its own: a backward pass that computes
activations again is as many operators as one that does not, each of them longer. What a rank multiplies tells them
apart, wherever it is called, as far as shapes were recorded.
"""

import statistics
from collections.abc import Iterator

from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import WORTH_A_LOOK, Candidate, Scene
from scalescope.scaling.findings.computing.extra_launches import extra_launches
from scalescope.scaling.findings.detectors.longer_loops import rounds_of
from scalescope.scaling.replay.ranks.extra import BEYOND, extra_rows
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

#: Calls others of those that multiply, which would count twice.
_CALLS_OTHERS = "aten::linear"


def more_work(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank that runs the common kernels more often, step after step."""
    for rank in scene.side.ranks if len(scene.side.ranks) > 1 else ():
        extra = extra_launches(scene, rank, ("more",))
        if (
            extra.in_most_steps(WORTH_A_LOOK * scene.step_ms)
            and (extra.is_of_the_program or not extra.counted)  # else it is something else
            and rounds_of(scene, rank) is None
        ):
            yield Candidate(
                code="more_work",
                rank=rank,
                removals=(Removal("more", rank),),
                evidence=(*extra.evidence, *extra.counted),
                remedy=Remedy(cure="even_out"),
            )


def multiplied_within(scene: Scene, rank: int) -> tuple[float, EvidenceRow] | None:
    """Return how many times as much as the median other rank one multiplies in the same launches, with its calls.

    None where it calls none of what multiplies more often in each step, or has launches of its own that may do so.
    """
    side, records = scene.side, scene.replayer.records
    steps = {len(records[one].steps) for one in side.ranks}
    by_rank = {one: records[one].multiplied for one in side.ranks}
    names = set.union(*map(set, by_rank.values()))
    names = names - {_CALLS_OTHERS} or names
    if len(steps) != 1 or 0 in steps or not names or any(not set(own) >= names for own in by_rank.values()):
        return None
    activities = scene.replayer.graph.activities
    if any(
        kind_of(activities[side.launches[rank, step].activity[row]].name) in MULTIPLYING
        for step in side.steps
        for what in BEYOND
        for row in extra_rows(scene.replayer.graph, side, rank, step, what)
    ):
        return None
    (count,) = steps
    others = [own for one, own in by_rank.items() if one != rank]
    theirs = {name: statistics.median_high(own[name][0] for own in others) for name in names}
    more = {name: by_rank[rank][name][0] - theirs[name] for name in sorted(names)}
    most = max(more, key=lambda name: more[name])
    if min(more.values()) < 0 or any(calls % count for calls in more.values()) or not more[most]:
        return None
    whole = statistics.median_high(sum(own[name][1] for name in names) for own in others)
    ratio = sum(by_rank[rank][name][1] for name in names) / whole
    return ratio, EvidenceRow(
        kind="operator", name=most, calls=by_rank[rank][most][0] / count, value=theirs[most] / count
    )
