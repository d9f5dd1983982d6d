"""How long a job's step is where a rank is late at its end: once in the rows, not once for each rank."""

import math
from pathlib import Path

import msgspec
import pytest

from scalescope.records.files import RowWriter
from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.records.steps.job_steps import JobSteps, with_job_steps
from scalescope.scaling.verdicts.step_rows.long_steps import long_steps
from scalescope.scaling.verdicts.step_rows.recurring import recurring_steps


def collecting(steps: int, every: int, held_ms: float = 180.0) -> list[StepRow]:
    """Rows of two ranks, of which rank 1 collects garbage at the end of every so many steps; rank 0 waits next."""
    rows = []
    for step in range(steps):
        times = [62.0 + held_ms * (step % every == 1), 62.0 + held_ms * (step % every == 0)]
        times[0] -= held_ms * (step == 0)  # it had nothing to wait for before the first one
        rows.append(StepRow(step, "steady", [max(ms, 62.0) for ms in times], 128e3 / max(times), own_ms=[40.0, 40.0]))
    return rows


def test_what_a_rank_does_last_in_its_step_is_in_one_step_of_the_job() -> None:
    """Of every third step's 180 ms two rows had 242, so the job's usual step was told as 218 ms and not as 62."""
    rows = with_job_steps(collecting(48, 3))
    assert [row.length_ms for row in rows[:6]] == pytest.approx([242, 62, 62, 242, 62, 62])
    found = recurring_steps(rows)
    assert found is not None
    assert found.every == 3 and found.usual_ms == pytest.approx(62.0) and found.longer_ms == pytest.approx(180.0)


def test_steps_add_up_to_what_the_job_took_and_rates_follow_them() -> None:
    """By the slowest ranks' times it did 2,778 samples a second; it did twice as many."""
    rows = with_job_steps(collecting(49, 3))
    took = max(sum(row.step_ms[rank] for row in rows) for rank in range(2))
    assert sum(row.length_ms for row in rows) == pytest.approx(took, rel=1e-9)
    assert all(row.samples_per_s == pytest.approx(128e3 / row.length_ms) for row in rows)


def test_one_checkpoint_at_a_steps_end_is_one_long_step_of_its_own_length() -> None:
    """It was in rank 0's step 30 and in rank 1's step 31, and the mean step 81.9 ms where both ranks' was 72."""
    rows = [StepRow(step, "steady", [62.0, 62.0], 1.0, own_ms=[30.0] * 2, run_delay_ms=[0.1] * 2) for step in range(40)]
    rows[30] = msgspec.structs.replace(rows[30], step_ms=[312.0, 62.0])
    rows[31] = msgspec.structs.replace(rows[31], step_ms=[62.0, 312.0])
    found = long_steps(with_job_steps(rows))
    assert found is not None and found.at == [30]
    assert found.each_ms == pytest.approx(250.0) and found.mean_step_ms == pytest.approx(62.0 + 250.0 / 40)


def test_a_step_that_follows_none_begins_for_all_ranks_at_once() -> None:
    steps = JobSteps()
    assert steps.take(3, [10.0, 50.0]) == 50.0
    assert steps.take(4, [50.0, 10.0]) == 10.0
    assert steps.take(7, [50.0, 10.0]) == 50.0  # steps between were not recorded
    assert steps.take(8, [20.0]) == 20.0  # and here a rank is gone
    assert math.isnan(steps.take(9, [math.nan]))
    assert steps.take(10, [12.0, 10.0], synchronised=False) == pytest.approx(120 / 11)  # nobody waits for anybody
    with pytest.raises(ValueError, match=r"max\(\)|empty"):
        steps.take(11, [])


def test_rows_that_tell_are_read_as_they_were_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    rows = with_job_steps(collecting(6, 3))
    with RowWriter(folder.steps) as writer:
        for row in rows:
            writer.append(row)
    assert folder.read_steps() == rows
