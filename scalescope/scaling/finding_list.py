"""Which of a run's findings are listed, in the order in which they are told."""

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.order import is_no_news, without_little_launching
from scalescope.scaling.findings.of_rows.recurring import lead_before_launching
from scalescope.scaling.findings.shares import mean_step_ms


def told_of(run: RunAnalysis) -> list[Finding]:
    """Return a run's findings as they are listed, wherever they are: without launching that is as little as any eager
    step of CPUs has, where what comes first is a cause that is sure, or steps that recur. `analysis.json` has it.
    """
    if lead_before_launching(run) and is_no_news(run.findings[0], mean_step_ms(run, "window")):
        return run.findings[1:]
    if run.activity != "cpu":
        return list(run.findings)
    mended = [one for one in run.findings if one.ms is not None and one.remedy is not None]
    kept = without_little_launching(mended, mean_step_ms(run, "window"))
    return [one for one in run.findings if one in kept or one not in mended]
