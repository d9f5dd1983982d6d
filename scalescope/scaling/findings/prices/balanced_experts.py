"""What balanced experts would bring, of the step as run.

That the others wait for the fullest rank is measured in the step as profiled. Where hosts bind the step as run, or did
so only while they were recorded, that wait is for a host as well, and experts that compute less bring little: no more
than the replay brings without what the fullest rank computes beyond the others, of which these then take over a part.
"""

from msgspec.structs import replace

from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal


def bound_experts(scene: Scene) -> None:
    """Bound what each row of uneven experts says that balanced ones bring, in place."""
    rows = scene.analysis.experts
    for at, row in enumerate(rows):
        if row.rank not in scene.replayer.graph.ranks:
            continue  # what it computes beyond the others no replay takes out: what is measured is all that is told
        without = tuple(Removal(what, row.rank) for what in ("own", "more", "slow"))
        told = scene.replayer.predict(Change(without=without), near=True)
        if told.reason is not None or told.change_ms is None:
            continue
        kept = 1 - 1 / len(row.bytes_by_rank)  # of n ranks' excess each takes over an n-th
        ms, low, high = (
            kept * max(0.0, -(one if one is not None else told.change_ms))
            for one in (told.change_ms, told.high_ms, told.low_ms)
        )
        gain = min(row.gain_ms, ms)
        rows[at] = replace(
            row,
            gain_ms=gain,
            gain_low_ms=min(row.gain_low_ms, low, gain),
            gain_high_ms=max(gain, min(row.gain_high_ms, high)),
        )
