"""Devices that wait for launches, on all ranks: a bound, since launching less is not launching for nothing."""

from collections.abc import Iterator, Sequence

from scalescope.scaling.finding import BESIDE, HIDDEN, ON_THE_DEVICE, EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.replay.change import Change


def host_bound(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where devices stand idle because nothing was launched."""
    idle = scene.share_ms("idle_launch") - _stalled_ms(scene)
    if scene.worth_a_look(idle):
        yield _candidate(scene, (EvidenceRow(kind="figure", name="idle_launch", ms=idle, share=idle / scene.step_ms),))


def host_bound_behind(scene: Scene, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidate where no device stands idle, but may without what others of the candidates have it do.

    While a device does what it need not, its host gets ahead: that it could not keep up shows in no idle time.
    """
    hiding = any(one.code in ON_THE_DEVICE and one.removals for one in candidates)
    if not hiding or any(one.code == "host_bound" for one in candidates):
        return []
    return [_candidate(scene, (EvidenceRow(kind="figure", name=HIDDEN),))]


def _stalled_ms(scene: Scene) -> float:
    """Return for how long the mean rank's host stands still at one place, step after step, where hosts compute.

    That is no launching, however much there is of either. A device may do other things meanwhile.
    """
    if not scene.replayer.on_cpu:
        return 0.0
    stalls = [one for one in scene.host or () if one.code == "host_stall" and not one.now_and_then]
    ns = sum(sum(own for _, own in one.own_ns) if one.rank is None else one.typical_ns for one in stalls)
    return ns / len(scene.side.ranks) / 1e6


def _candidate(scene: Scene, idle: tuple[EvidenceRow, ...]) -> Candidate:
    beside = max(
        (one.count or 0.0 for cause in scene.host or () if cause.code == "host_bound" for one in cause.evidence
         if one.name == BESIDE), default=0.0,
    )  # fmt: skip
    launches = sum(len(scene.side.launches[rank, 0].activity) for rank in scene.side.ranks) / len(scene.side.ranks)
    return Candidate(
        code="host_bound",
        change=Change(host_free=True),
        evidence=(
            *idle,
            EvidenceRow(kind="figure", name="launches", calls=launches),
            *([EvidenceRow(kind="figure", name=BESIDE, calls=beside)] if beside else []),
        ),
        remedy=Remedy(cure="launch_apart")
        if beside
        else Remedy(cure="compile", overrides=() if scene.replayer.on_cpu else scene.overrides("compile=true")),
        at_most=True,
    )
