"""Which recorded step is drawn: one that shows what comes first of the findings, where not every step does."""

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.findings.of_rows.recurring import leads, steps_of
from scalescope.scaling.step_timeline import Shown


def shown_step(analysis: RunAnalysis) -> Shown | None:
    """Return the steps that show what comes first: those that recur, or the few that have it; None where any may.

    What one rank does at the end of a step that recurs the others wait for in their next: it is the rank's that counts.
    """
    often = analysis.recurring
    if often is not None and often.every > 1 and leads(analysis):
        steps = frozenset(one.step for one in analysis.steps if often.begins_in(one.step))
        return Shown("recurring", steps, often.every, often.rank)
    if not analysis.findings or not (some := steps_of(analysis.findings[0], analysis)):
        return None
    return Shown("some_steps", frozenset(some), rank=analysis.findings[0].rank)
