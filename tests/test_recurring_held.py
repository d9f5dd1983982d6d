"""A loop that saves or validates between steps at no one period (before each, seldom, at two) is told as well."""

import pytest

from scalescope.records.rows import StepRow
from scalescope.report.text.recurring import recurring_advice, recurring_clause
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.verdicts.step_rows.recurring import recurring_steps
from scalescope.scaling.verdicts.step_rows.steady import measured_steps


def rows(saves: dict[int, float], validates: dict[int, float] | None = None) -> list[StepRow]:
    """Steps of 110 ms on two ranks; before some of them the loop saves, and validates, for so many ms."""
    held = [{step: [ms, ms] for step, ms in kind.items()} for kind in (saves, validates or {})]
    return [
        StepRow(step=step, phase="steady", step_ms=[110.0 + step % 3] * 2, samples_per_s=1.0,
                saving_ms=held[0].get(step, []), validating_ms=held[1].get(step, []))
        for step in range(5, 105)
    ]  # fmt: skip


def told(made: list[StepRow]) -> RecurringSteps:
    found = recurring_steps(made)
    assert found is not None and found.is_worth_a_word
    return found


def test_a_save_before_each_step_is_told_and_leaves_the_steps_themselves_alone() -> None:
    """A job that saved for 250 ms before each step of 110 was told that nothing around the compute is wrong."""
    made = rows({step: 250.0 + step % 2 for step in range(5, 105)})
    found = told(made)
    assert (found.held, found.of) == (100, 100) and found.mean_ms == pytest.approx(250.5)
    assert recurring_clause(found).startswith("before each step of 111.0 ms the loop is held up for 250.5 ms")
    assert recurring_clause(found).endswith(", for saving a checkpoint: 250.5 ms a step in the mean")
    assert "checkpoint_every" in recurring_advice(found)
    assert len(measured_steps(made).steady) == 100


def test_two_saves_tell_what_they_cost_and_one_tells_no_rate() -> None:
    found = told(rows({30: 2_000.0, 80: 3_000.0}))
    assert "before 2 of 100 steps of 111.0 ms" in recurring_clause(found) and found.mean_ms == pytest.approx(50.0)
    assert recurring_steps(rows({30: 2_000.0})) is None


def test_two_schedules_are_told_together_where_one_period_would_leave_most_of_it_out() -> None:
    found = told(rows({25: 2_500.0, 50: 2_400.0, 75: 2_600.0, 100: 2_500.0}, dict.fromkeys(range(10, 105, 10), 900.0)))
    assert found.every == 1 and found.mean_ms == pytest.approx(190.0)
    assert "for saving a checkpoint and validation" in recurring_clause(found)


def test_saves_of_one_period_are_told_with_it_as_before() -> None:
    found = told(rows(dict.fromkeys(range(20, 105, 20), 2_500.0)))
    assert found.every == 20 and found.mean_ms == pytest.approx(125.0, abs=1.0)
