"""What a job's own loop does between two steps (a checkpoint, a validation) is told with the step that it holds up."""

import pytest

from scalescope.records.rows import StepRow
from scalescope.report.text.recurring import pace, recurring_advice, recurring_clause
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.verdicts.step_rows.recurring import recurring_steps


def held_up(saving_ms: float = 0.0, validating_ms: float = 0.0, longer_ms: float = 0.0) -> RecurringSteps:
    """Steps of 110 ms on two ranks, before every 20th of which the loop is held up; that one may take longer, too."""
    made = []
    for step in range(5, 105):
        often = step % 20 == 0
        ms = 110.0 + step % 3 + (longer_ms if often else 0.0)
        saved, validated = ([one, one] if often and one else [] for one in (saving_ms, validating_ms))
        made.append(StepRow(step=step, phase="steady", step_ms=[ms, ms], samples_per_s=1.0,
                            saving_ms=saved, validating_ms=validated))  # fmt: skip
    found = recurring_steps(made)
    assert found is not None and (found.every, found.phase, found.rank) == (20, 0, None)
    return found


def test_a_loop_that_saves_for_longer_than_its_steps_take_is_no_job_with_nothing_wrong() -> None:
    """Six checkpoints of 2.56 s beside 105 steps of 111 ms, and *nothing around the compute is wrong* was told."""
    found = held_up(saving_ms=2_560.0)
    assert found.longer_ms == pytest.approx(2_560.0, abs=2.0) and found.saving_ms == pytest.approx(2_560.0)
    told = "longer than the others' 111.0 ms, for saving a checkpoint before it: 128.0 ms a step in the mean"
    assert recurring_clause(found).endswith(told)
    assert "checkpoint_every" in recurring_advice(found) and "validate_every" not in recurring_advice(found)
    assert pace(found) == pytest.approx(111 / (111 + 128), abs=0.01)


def test_a_save_in_the_background_that_makes_the_step_behind_it_longer_costs_both() -> None:
    found = held_up(saving_ms=740.0, longer_ms=260.0)
    assert found.longer_ms == pytest.approx(1_000.0, abs=2.0)
    assert "740.0 ms of it for saving a checkpoint before it" in recurring_clause(found)


def test_a_validation_is_named_as_one_and_what_little_of_it_saves_is_not_named() -> None:
    found = held_up(saving_ms=5.0, validating_ms=400.0)
    assert "for validation before it" in recurring_clause(found) and "checkpoint" not in recurring_clause(found)
    assert recurring_advice(found).startswith("validate less often (validate_every)")


def test_a_step_that_is_longer_by_itself_is_not_laid_to_the_loop() -> None:
    """A job whose save is nothing beside what its every 20th step does says that step, and no checkpoint."""
    found = held_up(saving_ms=5.0, longer_ms=400.0)
    assert "before it" not in recurring_clause(found) and "see what every 20th step does" in recurring_advice(found)


def test_a_save_of_one_rank_that_the_others_wait_for_is_as_long_as_that_ranks() -> None:
    """With eight ranks the mean of them was an eighth of it, and the checkpoint was not named."""
    made = []
    for step in range(5, 105):
        often = step % 20 == 0
        times = [110.0 + step % 3] + [110.0 + step % 3 + (500.0 if often else 0.0)] * 7
        saved = [500.0] + [1.0] * 7 if often else []
        made.append(StepRow(step=step, phase="steady", step_ms=times, samples_per_s=1.0, saving_ms=saved))
    found = recurring_steps(made)
    assert found is not None and found.saving_ms == pytest.approx(500.0)
    assert "for saving a checkpoint before it" in recurring_clause(found)
