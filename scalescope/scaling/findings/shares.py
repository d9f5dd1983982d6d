"""Parts of the step, over the steps that a next one bounds: the last one of a window ends where it happens to."""

import statistics
from collections.abc import Container, Sequence

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import PARTS, Split, StepSplit


def bounded_steps(analysis: RunAnalysis) -> list[StepSplit]:
    """Return the steps that a next one bounds; of a rank that has none, its only one."""
    held = {step.rank for step in analysis.steps if not step.open_ended}
    return [step for step in analysis.steps if not step.open_ended or step.rank not in held]


def bounded_means(analysis: RunAnalysis) -> list[Split]:
    """Return each rank's mean step, as profiled; the means over the window of an answer that holds no steps."""
    steps = bounded_steps(analysis)
    ranks = sorted({step.rank for step in steps})
    if not ranks:
        return [_a_step(rank, [rank], max(1, rank.steps)) for rank in analysis.ranks]
    of_rank = {rank: [step for step in steps if step.rank == rank] for rank in ranks}
    return [_a_step(own[0], own, len(own)) for own in of_rank.values()]


def _a_step(of: Split, splits: Sequence[Split], steps: int) -> Split:
    parts = {f"{part}_ms": sum(one.part_ms(part) for one in splits) / steps for part in PARTS}
    return Split(rank=of.rank, window_ms=sum(one.window_ms for one in splits) / steps, **parts)


def mean_step_ms(analysis: RunAnalysis, part: str, of: Container[int] | None = None) -> float:
    """Return a part (of answer.PARTS, or `window`) of the mean rank's mean step, ms; `of`: of these steps alone."""
    steps = [step for step in bounded_steps(analysis) if of is None or step.step in of]
    if not steps:
        return 0.0
    ranks = sorted({step.rank for step in steps})
    return statistics.fmean(_mean([step for step in steps if step.rank == rank], part) for rank in ranks)


def _mean(steps: Sequence[StepSplit], part: str) -> float:
    return statistics.fmean(step.window_ms if part == "window" else step.part_ms(part) for step in steps)
