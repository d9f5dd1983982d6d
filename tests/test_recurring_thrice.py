"""Steps of a short job: three longer ones may be a pattern, and those behind a window be of batches in stock."""

from collections.abc import Callable

import msgspec
import pytest

from scalescope.records.rows import StepRow
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.verdicts.step_rows.recurring import recurring_steps
from scalescope.scaling.verdicts.step_rows.steady import measured_steps


def rows(times: Callable[[int], list[float]], steps: range) -> list[StepRow]:
    return [StepRow(step=step, phase="steady", step_ms=times(step), samples_per_s=1.0) for step in steps]


def validated_thrice(longer_ms: dict[int, float], until: int = 65) -> RecurringSteps | None:
    """Return what is told of steps of 88 ms, 13 of them profiled, of which some are longer by so much."""
    made = rows(lambda step: [88.0 + 2 * (step % 5) + longer_ms.get(step, 0.0)] * 2, range(5, until))
    profiled = [msgspec.structs.replace(row, phase="profile") for row in made if 20 <= row.step < 33]
    return recurring_steps([row for row in made if not 20 <= row.step < 33], profiled)


def test_three_longer_steps_as_far_apart_and_as_long_are_a_pattern() -> None:
    """A job of 65 steps that validated behind three of them, 185 ms each, was told that no fault is found."""
    found = validated_thrice({19: 183.0, 39: 180.0, 59: 195.0})
    assert found is not None and (found.every, found.phase) == (20, 19)
    assert found.mean_ms == pytest.approx(9.3, abs=0.5)


def test_two_outside_of_the_window_tell_how_long_they_are_where_two_in_it_tell_that_they_come_back() -> None:
    """Samples that rank 0 drew in each 10th step of 45, two of them while the window stood open, were *unsteady steps:
    20.5 ms (0.00 to 64.7)* behind 7.2 ms of an optimizer."""
    found = validated_thrice({at: 290.0 + at / 10 for at in (10, 20, 30, 40)}, 45)
    assert found is not None and (found.every, found.phase) == (10, 0)
    assert found.mean_ms == pytest.approx(29.2, abs=1.0)
    assert validated_thrice(dict.fromkeys((10, 20, 40), 290.0), 45) is None, "three in all: the fourth is missed"


def test_one_that_is_far_longer_than_the_others_that_recur_hides_none_of_them() -> None:
    """An evaluation in each 12th step of 50, the recorded one 291 ms and the others 130 to 150 ms longer, was *one step
    of 10 … which tells nothing of the others*, and once *step 23 took 386.6 ms longer than the job's 41 others*.
    """
    found = validated_thrice({11: 150.0, 23: 291.0, 35: 145.0, 47: 131.0}, 50)
    assert found is not None and (found.every, found.phase) == (12, 11)
    assert found.mean_ms == pytest.approx(142.0 / 12, abs=1.0)
    assert validated_thrice({11: 150.0, 23: 291.0, 36: 145.0, 47: 131.0}, 50) is None


def test_three_longer_steps_that_lie_anywhere_or_are_of_any_length_are_none() -> None:
    assert validated_thrice({16: 183.0, 39: 180.0, 59: 195.0}) is None
    assert validated_thrice({19: 183.0, 39: 90.0, 59: 40.0}) is None


def test_steps_right_behind_a_window_that_live_on_batches_in_stock_are_none_of_the_steady_ones() -> None:
    """While traces were written a slow worker made batches ahead: with the three steps that used them up, a loader that
    costs 143 ms a step was told to cost 126 (102 to 151).
    """
    lengths = {33: 98.0, 34: 129.0, 35: 190.0}
    made = [
        StepRow(step=step, phase="profile" if 20 <= step < 33 else "steady", samples_per_s=1.0,
                step_ms=[lengths.get(step, 230.0 + step % 4)] * 2)
        for step in range(5, 50)
    ]  # fmt: skip
    assert [row.step for row in measured_steps(made).steady] == [*range(5, 20), *range(36, 50)]
    few_others = [row for row in made if row.step >= 15]
    assert len(measured_steps(few_others[:15]).steady) == len([row for row in few_others[:15] if row.phase == "steady"])
    usual = [msgspec.structs.replace(row, step_ms=[230.0 - row.step % 4] * 2) for row in made]
    assert len(measured_steps(usual).steady) == 32
