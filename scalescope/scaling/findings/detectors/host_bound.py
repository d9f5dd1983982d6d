"""Devices that wait for launches, on all ranks: a bound, since launching less is not launching for nothing."""

from collections.abc import Iterator

from scalescope.scaling.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.replay.change import Change


def host_bound(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where devices stand idle because nothing was launched."""
    idle = scene.share_ms("idle_launch")
    if not scene.worth_a_look(idle):
        return
    launches = sum(len(scene.side.launches[rank, 0].activity) for rank in scene.side.ranks) / len(scene.side.ranks)
    yield Candidate(
        code="host_bound",
        change=Change(host_free=True),
        evidence=(
            EvidenceRow(kind="figure", name="idle_launch", ms=idle, share=idle / scene.step_ms),
            EvidenceRow(kind="figure", name="launches", calls=launches),
        ),
        remedy=Remedy(cure="compile", overrides=() if scene.replayer.on_cpu else scene.overrides("compile=true")),
        at_most=True,
    )
