"""Steps that became longer while the job ran, in words: what is said of them, and of those before."""

from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.text import findings as finding_text
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import LongerSteps


def longer_sentence(longer: LongerSteps) -> str:
    """Return since when steps take longer; what follows is of those."""
    taken, usual = milliseconds(longer.step_ms), milliseconds(longer.level_ms)
    return f"since step {longer.since} steps take {taken} where {usual} were usual. Of these:"


def usual_sentences(run: RunAnalysis) -> list[str]:
    """Return what the windows before show, in a sentence; none where there are none."""
    longer = run.longer
    if longer is None or not longer.usual or longer.usual_step_ms is None:
        return []
    before = finding_text.headline(longer.usual[0], longer.usual_step_ms, run.world_size)
    return [f"Before: {before}"]
