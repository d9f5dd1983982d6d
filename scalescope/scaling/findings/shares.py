"""Parts of the step, over the steps that a next one bounds: the last one of a window ends where it happens to."""

import statistics
from collections.abc import Sequence

from scalescope.scaling.answer import RunAnalysis, StepSplit


def bounded_steps(analysis: RunAnalysis) -> list[StepSplit]:
    """Return the steps that a next one bounds; of a rank that has none, its only one."""
    held = {step.rank for step in analysis.steps if not step.open_ended}
    return [step for step in analysis.steps if not step.open_ended or step.rank not in held]


def mean_step_ms(analysis: RunAnalysis, part: str) -> float:
    """Return a part (of answer.PARTS, or `window`) of the mean rank's mean step, ms."""
    steps = bounded_steps(analysis)
    if not steps:
        return 0.0
    ranks = sorted({step.rank for step in steps})
    return statistics.fmean(_mean([step for step in steps if step.rank == rank], part) for rank in ranks)


def _mean(steps: Sequence[StepSplit], part: str) -> float:
    return statistics.fmean(step.window_ms if part == "window" else step.part_ms(part) for step in steps)
