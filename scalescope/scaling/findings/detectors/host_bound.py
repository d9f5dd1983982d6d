"""Devices that wait for launches, on all ranks: a bound, since launching less is not launching for nothing."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from scalescope.scaling.finding.codes import ON_THE_DEVICE
from scalescope.scaling.finding.figures import BESIDE, HIDDEN
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene, is_a_longer_one
from scalescope.scaling.findings.hosts.filling_loops import fills_elements
from scalescope.scaling.findings.hosts.python_loops import python_loop
from scalescope.scaling.replay.change import Change

#: A step that has by so much more of all idle time than any other has another cause of it.
_ONE_STEPS = 0.5


def host_bound(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where devices stand idle because nothing was launched."""
    whole = scene.share_ms("idle_launch")
    of_any, without = _share_of_any_step(scene)
    idle = whole * of_any
    if scene.worth_a_look(idle):
        if scene.replayer.on_cpu:  # where it costs no more than the host that comes latest does besides
            idle = min(of_any * scene.longest_between_ms, scene.longest_between_usual_ms)
            if without:  # what one rank has in one step is no part of any other's
                idle = min(idle, scene.longest_between_without_ms(without))
        row = EvidenceRow(kind="figure", name="idle_launch", ms=idle, share=idle / scene.step_ms)
        yield replace(_candidate(scene, (row,)), most_ms=idle if of_any < 1 else None)


def _share_of_any_step(scene: Scene) -> tuple[float, set[int]]:
    """Return how much of the idle time is there without the steps that have another cause of theirs, and which these
    are.

    Launching takes as long in each step. What one step alone has (a checkpoint, a stall), or those have that all of the
    job's rows tell to be longer every so often, is no matter of launches.
    """
    by_step: dict[int, float] = {}
    for one in scene.analysis.steps:
        if not one.open_ended:
            by_step[one.step] = by_step.get(one.step, 0.0) + one.idle_launch_ms
    total = sum(by_step.values())
    longer = {step for step in by_step if is_a_longer_one(scene.analysis, step)}
    if not longer:
        *others, most = sorted(by_step, key=lambda step: by_step[step]) or (0,)
        if not others or by_step[most] - by_step[others[-1]] <= _ONE_STEPS * total:
            return 1.0, set()
        longer = {most}
    usual = [ms for step, ms in by_step.items() if step not in longer]
    if not usual or not total:
        return 1.0, set()
    return min(1.0, sum(usual) / len(usual) / (total / len(by_step))), longer


def host_bound_behind(scene: Scene, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidate where no device stands idle, but may without what others of the candidates have it do.

    While a device does what it need not, its host gets ahead: that it could not keep up shows in no idle time.
    """
    hiding = any(one.code in ON_THE_DEVICE and one.removals for one in candidates)
    if not hiding or any(one.code == "host_bound" for one in candidates):
        return []
    return [_candidate(scene, (EvidenceRow(kind="figure", name=HIDDEN),))]


def _candidate(scene: Scene, idle: tuple[EvidenceRow, ...]) -> Candidate:
    beside = max(
        (one.count or 0.0 for cause in scene.host or () if cause.code == "host_bound" for one in cause.evidence
         if one.name == BESIDE), default=0.0,
    )  # fmt: skip
    ranks = scene.side.ranks
    read = 0.0
    if scene.replayer.on_cpu:  # what reads element by element in each step is launched for another reason
        loops = [one for one in scene.element_loops.values() if one.in_each_step]
        read = sum(sum(one.calls.values()) for one in loops)
    launches = max(0.0, sum(len(scene.side.launches[rank, 0].activity) for rank in ranks) - read) / len(ranks)
    loop = python_loop(scene)
    return Candidate(
        code="host_bound",
        change=Change(host_free=True),
        evidence=(
            *idle,
            EvidenceRow(kind="figure", name="launches", calls=launches),
            *loop,
            *([EvidenceRow(kind="figure", name=BESIDE, calls=beside)] if beside else []),
        ),
        remedy=Remedy(cure="launch_apart")
        if beside
        else Remedy(cure="fill_at_once" if _fills(loop) else "whole_tensors", line=loop[0].line)
        if loop
        else Remedy(cure="compile", overrides=() if scene.replayer.on_cpu else scene.overrides("compile=true")),
        at_most=True,
    )


def _fills(loop: Sequence[EvidenceRow]) -> bool:
    return fills_elements({row.name: row.calls or 0.0 for row in loop if row.kind == "operator"})
