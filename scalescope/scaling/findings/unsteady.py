"""Steps that differ from each other by more than what was found explains.

What that costs is the mean step less a steady one. The shortest of a few steps is not that: each rank has something
that takes longer, now more, now less, and it is the step in which the worst of them was least. So a steady step is the
replayed one in which each launch that varies takes what it takes at its shortest, on any rank in any step. And the mean
of a few steps is not that of the run, which its untraced steps tell.

Where the step as run is only known as a range, steps differ that do so at both of its ends: recording costs about as
much for each thing that it records, so what steps differ by beyond what they have recorded is not its doing.
"""

import statistics
from collections.abc import Collection, Sequence

import msgspec

from scalescope.records.errors import RunError
from scalescope.scaling.answer_rows import StepSplit
from scalescope.scaling.evidence.pace.slowed import times_slowed
from scalescope.scaling.finding.figures import HOST_SLOWED, LAUNCHES_DIFFER
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.order import weight
from scalescope.scaling.findings.candidate import WORTH_A_LOOK, Scene
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.replay.uneven import uneven_launches
from scalescope.scaling.trace.kernel_names import short_name

#: The steps' standard deviation over their mean, from which on they are uneven.
_UNEVEN = 0.06
#: Findings that cost so much of it explain it.
_EXPLAINED = 0.5
#: With a few steps, what they cost more than the shortest one is known within this.
_KNOWN_WITHIN = 0.5
_MOST_EVIDENCE = 2
#: Steps of one kind launch as many kernels, but for a few.
_SAME_WORK = 0.9
#: Two steps tell no spread; one that takes 1.7 times as long as the other is no usual one.
_FAR_APART = 0.25


def unsteady(scene: Scene, found: Sequence[Finding]) -> list[Finding]:
    """Return a finding where steps differ: by how much the mean step is longer than a steady one."""
    steps = _mean_steps_ms(scene.replayer.base.values())
    lost = _lost_ms(scene, steps, found)
    if lost is None:
        return []
    mean = statistics.fmean(steps)
    spread = statistics.pstdev(steps) / mean
    longer = _longer_untraced(scene)
    unlike = _of_other_work(scene)
    slowed = hosts_slowed(scene.analysis.steps)
    slowed_row = [] if slowed is None else [EvidenceRow(kind="figure", name=HOST_SLOWED, value=slowed)]
    steady = lost if unlike else max(lost, _uneven_ms(scene))
    ms = steady + longer
    return [
        Finding(
            code="unsteady",
            ms=ms,
            low_ms=(1 - _KNOWN_WITHIN) * lost,
            high_ms=max((1 + _KNOWN_WITHIN) * lost, (1 + _KNOWN_WITHIN / 2) * ms),
            fraction=ms / scene.step_ms,
            evidence=(
                EvidenceRow(kind="figure", name="step_spread", share=spread),
                *(unlike or slowed_row or _uneven(scene)),
            ),
            remedy=Remedy(cure="measure_again"),
            backed="measured",
            at_most=bool(unlike),
        )
    ]


def unsteady_in_range(scene: Scene, found: Sequence[Finding]) -> list[Finding]:
    """Return a finding where steps differ whatever recording costs, with what that costs at both ends of its range."""
    try:
        ends = [_mean_steps_ms(base.values()) for base in scene.replayer.bases_at_bounds()]
    except RunError:
        return []
    lost = [ms for one in ends if (ms := _lost_ms(scene, one, found)) is not None]
    if not ends or len(lost) < len(ends):
        return []
    low, high = (1 - _KNOWN_WITHIN) * min(lost), (1 + _KNOWN_WITHIN) * max(lost)
    return [
        msgspec.structs.replace(one, low_ms=min(low, one.low_ms or 0.0), high_ms=max(high, one.high_ms or 0.0))
        for one in unsteady(scene, found)
    ]


def _mean_steps_ms(by_rank: Collection[Sequence[float]]) -> list[float]:
    """Return the length of each step that all ranks have, ms, in the mean of the ranks, whose steps are ns."""
    return [statistics.fmean(of_ranks) / 1e6 for of_ranks in zip(*by_rank, strict=False)]


def _lost_ms(scene: Scene, steps: Sequence[float], found: Sequence[Finding]) -> float | None:
    """Return by how much the mean of these steps is longer than the shortest; None where they are even, or explained.

    Ranks that share cores never run evenly.
    """
    if len(steps) < 2 or scene.replayer.on_cpu or not (mean := statistics.fmean(steps)):
        return None
    lost = mean - min(steps)
    even = statistics.pstdev(steps) / mean < (_UNEVEN if len(steps) > 2 else _FAR_APART)
    # what launching may cost at most is that much because of steps in which hosts are slowed
    explains = [one for one in found if not one.at_most] if hosts_slowed(scene.analysis.steps) else found
    return None if even or any(weight(one) >= _EXPLAINED * lost for one in explains) else lost


def hosts_slowed(steps: Sequence[StepSplit]) -> float | None:
    """Return how many times as long each rank's host takes for its operators in its slowest step as in its quickest.

    Of the rank on which that is least; None where it is little, or not known of all.
    """
    by_rank: dict[int, list[float]] = {}
    for one in steps:
        by_rank.setdefault(one.rank, []).append(one.host_pace or 0.0)
    return times_slowed(list(by_rank.values()))


def _of_other_work(scene: Scene) -> list[EvidenceRow]:
    """Return how many kernels steps launch where they do not do the same; nothing where they do.

    A step that accumulates gradients, or the one that validates, is no unsteady one: what it takes longer it may need.
    """
    side, activities = scene.side, scene.replayer.graph.activities
    counts = [
        statistics.fmean(
            sum(activities[one].kind == COMPUTE for one in side.launches[rank, step].activity) for rank in side.ranks
        )
        for step in side.steps
    ]
    if len(counts) < 2 or min(counts) >= _SAME_WORK * max(counts):
        return []
    return [EvidenceRow(kind="figure", name=LAUNCHES_DIFFER, calls=max(counts), value=min(counts))]


def _longer_untraced(scene: Scene) -> float:
    """Return by how much the run's untraced steps are longer in the mean than the few of the window, ms."""
    as_run = scene.analysis.as_run
    if as_run is None or as_run.reason != "untraced_longer" or as_run.untraced_ms is None or as_run.step_ms is None:
        return 0.0
    return as_run.untraced_ms.value - as_run.step_ms


def _uneven_ms(scene: Scene) -> float:
    """Return by how much the step would be shorter if each launch that varies took its shortest time, ms."""
    told = scene.replayer.predict(Change(without=(Removal("uneven", ns=_least_ns(scene)),)), quick=True, near=True)
    return max(0.0, -(told.change_ms or 0.0))


def _uneven(scene: Scene) -> list[EvidenceRow]:
    """Return the launches that vary most."""
    times = uneven_launches(scene.replayer.graph, scene.side, _least_ns(scene))
    most = sorted(times, key=lambda name: -times[name])[:_MOST_EVIDENCE]
    return [EvidenceRow(kind="activity", name=short_name(name), ms=times[name] / 1e6) for name in most]


def _least_ns(scene: Scene) -> int:
    return round(WORTH_A_LOOK * scene.step_ms * 1e6)
