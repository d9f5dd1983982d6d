"""Advice that was followed: what the replay expected beside what the steady steps of both runs say."""

import math
import statistics
from collections.abc import Mapping, Sequence

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import TriedRow
from scalescope.scaling.projection.noise import repeat_half_ms
from scalescope.scaling.study_answer import TriedAdvice


def compare_tried(study: RunFolder) -> list[TriedAdvice]:
    """Return what came of the advice that a study followed, in the order in which it did."""
    runs = {child.path.name: child for child in study.read_children()}
    return [_compare(row, runs) for row in study.read_tried()]


def _compare(row: TriedRow, runs: Mapping[str, RunFolder]) -> TriedAdvice:
    before, after = _steady_ms(runs.get(row.base)), _steady_ms(runs.get(row.run))
    answer = TriedAdvice(
        base=row.base,
        run=row.run,
        what=row.what,
        overrides=row.overrides,
        expected_ms=row.expected_ms,
        expected_low_ms=row.expected_low_ms,
        expected_high_ms=row.expected_high_ms,
        at_most=row.at_most,
        at_least=row.at_least,
        measured_ms=None,
    )
    if before and after:
        answer.base_step_ms, answer.run_step_ms = statistics.median(before), statistics.median(after)
        answer.measured_ms = answer.base_step_ms - answer.run_step_ms
        half = gain_half_ms(before, after)
        if math.isfinite(half):
            answer.measured_low_ms, answer.measured_high_ms = answer.measured_ms - half, answer.measured_ms + half
    return answer


def gain_half_ms(before: Sequence[float], after: Sequence[float]) -> float:
    """Return half of the 95% interval of what two runs' steps differ by; NaN where one has too few of them."""
    # each is the half for the difference of two runs alike: squared, twice a run's own
    return math.hypot(repeat_half_ms(before), repeat_half_ms(after)) / math.sqrt(2)


def _steady_ms(run: RunFolder | None) -> list[float]:
    """Return how long each steady step was; none of a run that is not there or did not end well."""
    if run is None:
        return []
    try:
        if run.read_info().status != "done":
            return []
    except UserError:
        return []
    return [row.length_ms for row in run.read_steps() if row.phase == "steady" and row.step_ms]
