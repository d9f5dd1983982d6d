"""Ranks that take turns in having more to do: none is late step after step, and yet every step waits for one."""

import statistics
from collections.abc import Iterator

from scalescope.scaling.finding.figures import LATE_RANK
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import WORTH_A_LOOK, Candidate, Scene
from scalescope.scaling.findings.computing.extra_launches import Extra, extra_launches
from scalescope.scaling.replay.removal import Removal, What, host_excess
from scalescope.scaling.trace.kernel_names import short_name

#: Loads that alternate are alike; where they differ by more (standard deviation over mean), they come at random.
_ALIKE = 0.35
#: Launches in common differ by less than this share of the step without anybody's doing.
_NATURAL = 0.03
#: Where hosts compute, they stand still for less than this share of the step without anybody's doing.
_STANDS_STILL = 0.1


def alternating_load(scene: Scene) -> Iterator[Candidate]:
    """Yield one candidate where most steps have a rank with more to do, and no rank has it in most steps."""
    least_share: dict[What, float] = {"own": WORTH_A_LOOK, "more": WORTH_A_LOOK}
    if scene.replayer.on_cpu:  # a device's host may stand still at no cost
        least_share["gaps"] = _STANDS_STILL
    else:  # of ranks that share cores now one takes longer and now another: loads are told by the quickest products
        least_share["slow"] = _NATURAL
    for what, share in least_share.items() if len(scene.side.ranks) > 1 else ():
        # one that stands still at a place of its own, step after step, takes no turns in it with what holds others up
        ranks = [rank for rank in scene.side.ranks if what != "gaps" or rank not in _stalled(scene)]
        if len(ranks) < 2:
            continue
        extras = [_beyond(scene, rank, what) for rank in ranks]
        least = share * scene.step_ms
        if what == "gaps":  # beside the long ones, other processes make shorter ones
            least = max(least, max(max(one.ms, default=0.0) for one in extras) / 2)
        late = [one for one in extras if max(one.ms, default=0.0) >= least]
        if len(late) < 2 or any(one.in_most_steps(least) for one in extras):
            continue
        if sum(max(step) >= least for step in zip(*(one.ms for one in extras), strict=True)) < len(late[0].ms) / 2:
            continue  # now and then
        yield _candidate(scene, what, extras, late)


def _stalled(scene: Scene) -> set[int | None]:
    """Return the ranks whose hosts stand still at one place in all steps, by their records."""
    return {
        one.rank
        for one in scene.host or ()
        if one.code == "host_stall" and not one.now_and_then and scene.worth_a_look(one.typical_ns / 1e6)
    }


def _beyond(scene: Scene, rank: int, what: What) -> Extra:
    """Return what a rank runs beyond the others, by how much the launches in common take it longer, or for how long its
    host stands still before them, ms a step.
    """
    if what == "gaps":
        return _standing_still(scene, rank)
    if what != "slow":
        return extra_launches(scene, rank, ("own",) if what == "own" else ("more",))
    side, graph = scene.side, scene.replayer.graph
    per_step: list[float] = []
    most: dict[str, float] = {}
    for step in side.steps:
        longer = side.excess(rank, step, "work_ns") / 1e6
        per_step.append(max(0.0, float(longer.sum())))
        if longer.size:
            row = int(longer.argmax())
            name = short_name(graph.activities[side.launches[rank, step].activity[row]].name)
            most[name] = most.get(name, 0.0) + float(longer[row]) / len(side.steps)
    name = max(most, key=lambda name: most[name], default="")
    return Extra(rank, per_step, (EvidenceRow(kind="activity", name=name, ms=most[name]),) if name else ())


def _standing_still(scene: Scene, rank: int) -> Extra:
    """Return for how long a rank's host stands still beyond the others', ms a step, and before what most of all."""
    side, graph = scene.side, scene.replayer.graph
    per_step: list[float] = []
    longest, before = 0.0, ""
    for step in side.steps:
        gaps = host_excess(side, rank, step, gaps_only=True)
        per_step.append(sum(ns for _, ns in gaps) / 1e6)
        row, ns = max(gaps, key=lambda gap: gap[1], default=(0, 0.0))
        if ns > longest:
            longest, before = ns, short_name(graph.activities[side.launches[rank, step].activity[row]].name)
    row_of = EvidenceRow(kind="figure", name=f"gap_before {before}", ms=statistics.fmean(per_step or [0.0]))
    return Extra(rank, per_step, (row_of,) if before else ())


def _candidate(scene: Scene, what: What, extras: list[Extra], late: list[Extra]) -> Candidate:
    most = [max(step) for step in zip(*(one.ms for one in extras), strict=True)]
    mean = statistics.fmean(most)
    regular = mean > 0 and statistics.pstdev(most) <= _ALIKE * mean
    ranks = [
        EvidenceRow(kind="figure", name=LATE_RANK, value=one.rank, ms=one.mean_ms,
                    share=sum(ms > 0 for ms in one.ms) / len(one.ms))
        for one in late
    ]  # fmt: skip
    return Candidate(
        code="alternating_load" if regular else "unsteady",
        removals=tuple(Removal("turns" if what == "slow" else what, one.rank) for one in late),
        evidence=(*(one.evidence[0] for one in late[:1] if one.evidence), *ranks),
        remedy=Remedy(cure="look_at_host" if what == "gaps" else "even_out"),
    )
