"""What longer sequences of one rank cost at least and at most, where cores that others use, too, hide how much.

Its loops' further rounds are counted, and cost what they cost without anything else that is longer on that rank. And
they, with all that is longer for them, take no more of its compute than the share that its data have beyond theirs.
"""

from msgspec.structs import replace

from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.finding.figures import INPUTS, ROUNDS
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.in_range import is_range
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.findings.shares import bounded_means
from scalescope.scaling.replay.change import Change


def of_longer_sequences(scene: Scene, gain: Gain) -> Gain:
    """Return what longer sequences bring with an interval of what is counted to what they may be the reason for.

    Profiled steps in which others hold the other ranks up for as long hide what this one has beyond them; and where it
    is this one that they hold up, that is none of its data. Steps of one window are all alike in that.
    """
    one = gain.candidate
    times = _times_as_much(gain)
    if not scene.replayer.on_cpu or times is None:
        return gain
    rounds = Change(without=tuple(removal for removal in one.removals if removal.what == "more"))
    scene.replayer.work_out([rounds], near=True)
    counted = scene.replayer.predict(rounds, near=True)
    most_ms = (1 - 1 / times) * _computes_ms(scene, one.rank)
    ms = min(gain.ms, most_ms)
    least_ms = max(0.0, -(counted.high_ms or 0.0))
    rows = scene.analysis.step_times
    known = rows is not None and any(own.rank == one.rank for own in rows.ranks)
    low_ms = max(gain.low_ms, least_ms) if known else least_ms
    return replace(gain, ms=ms, low_ms=min(low_ms, ms), high_ms=most_ms)


def _computes_ms(scene: Scene, rank: int | None) -> float:
    """Return for how long a rank computes in a step as run, at most where of that only a range is known."""
    _, ranks = step_as_run(scene.analysis)
    as_run = [own.part_ms("compute") for own in ranks if own.rank == rank]
    profiled = [own.compute_ms for own in bounded_means(scene.analysis) if own.rank == rank] if is_range(scene) else []
    return max((*as_run, *profiled), default=0.0)


def _times_as_much(gain: Gain) -> float | None:
    """Return how many times the others' data a rank has, or its loops go round; None where nothing tells of loops."""
    figures = {row.name: row for row in gain.candidate.evidence if row.kind == "figure"}
    rounds, inputs = figures.get(ROUNDS), figures.get(INPUTS)
    if rounds is None or not rounds.calls or not rounds.value:
        return None
    return inputs.value if inputs is not None and inputs.value else rounds.calls / rounds.value
