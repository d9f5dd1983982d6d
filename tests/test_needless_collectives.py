"""Barriers and collectives of Python objects in each step are told, with what of their cost is no wait for others."""

from collections.abc import Callable
from pathlib import Path

import pytest

from scalescope.report.text.findings import because
from scalescope.scaling.finding.finding import Finding
from tests.gloo_traces import GlooJob, analysed, in_steps


def _step(job: GlooJob, behind: Callable[[GlooJob], None]) -> None:
    job.compute(40.0)
    job.fill_bucket(4096)
    job.all_reduce(1.0)
    job.compute(5.0)
    behind(job)


def _told(folder: Path, behind: Callable[[GlooJob], None]) -> list[Finding]:
    """Return what is told of a job that has something behind each of its steps."""
    return list(analysed(in_steps(folder, range(1, 7), lambda job: _step(job, behind))).findings)


def _barrier_and_metrics(job: GlooJob) -> None:
    job.meet("barrier", 0.2)
    job.gather_objects(0.3, 0.4)


def test_a_barrier_and_gathered_objects_in_each_step_are_told_with_what_they_cost(tmp_path: Path) -> None:
    """A barrier and an `all_gather_object` of metrics cost 9.6 ms (3 to 16) of 135: nothing was told of either."""
    one = _told(tmp_path, _barrier_and_metrics)[0]
    assert (one.code, one.rank, one.at_most) == ("needless_collectives", None, False)
    # 0.2 and twice 0.4 ms, 0.11 each to be handed over and woken, 0.3 of pickling and 20 operators of 4 µs
    assert one.ms == pytest.approx(0.2 + 0.8 + 0.33 + 0.3 + 0.08, abs=0.1)
    assert one.remedy is not None and one.remedy.cure == "exchange_rarely"
    assert "a barrier and an all_gather_object (which pickles and unpickles)" in because(one)


def test_objects_that_are_gathered_are_no_figures_that_could_travel_together(tmp_path: Path) -> None:
    """Their counts and their bytes are one collective: to merge those was advised where there were several."""

    def three(job: GlooJob) -> None:
        for _ in range(3):
            job.gather_objects(0.1, 0.4)

    (one, *_) = found = _told(tmp_path, three)
    assert one.code == "needless_collectives" and "small_collectives" not in {other.code for other in found}
    assert one.remedy is not None and one.remedy.cure == "tensors_not_objects"
    assert "3 times all_gather_object" in because(one)


def test_buffers_that_ddp_broadcasts_behind_a_worker_s_batch_are_no_objects(tmp_path: Path) -> None:
    """A batch in shared memory is laid over bytes as an object is: *each step has a broadcast_object_list* was told of
    two broadcasts of buffers, with 8.5 ms (7.7 to 9.3) of 156.
    """

    def hands_over(job: GlooJob) -> None:
        for name in ("empty", "set_", "to", "view"):
            job.compute(0.002, f"aten::{name}")
        for _ in range(2):
            job.compute(0.01, "aten::flatten_dense_tensors")
            job.meet("broadcast", 3.0)

    assert "needless_collectives" not in {one.code for one in _told(tmp_path, hands_over)}


@pytest.mark.parametrize(("by_turns", "high_ms"), [(False, 0.61), (True, 6.6)])
def test_what_ranks_wait_in_a_barrier_they_would_wait_at_the_next_collective(
    by_turns: bool, high_ms: float, tmp_path: Path
) -> None:
    """Of a rank that is 6 ms late the barrier's own 0.6 ms are lost to it; where each is by turns, the waits may be."""
    job = GlooJob()
    for number in range(1, 8):
        job.step(number)
        _step(job, lambda _: None)
        job.compute(6.0, rank=number % 2 if by_turns else 1)
        job.meet("barrier", 0.5)
    found = analysed(job.write(tmp_path)).findings
    one = next(one for one in found if one.code == "needless_collectives")
    assert one.high_ms is not None and one.ms is not None
    assert one.ms == pytest.approx(0.61, abs=0.1) and one.high_ms == pytest.approx(high_ms, abs=0.3)
    assert one.remedy is not None and one.remedy.cure == "drop_barriers"
    assert "3.0 ms of it waiting for a later one" in because(one)


def test_a_barrier_in_some_of_the_steps_is_not_told(tmp_path: Path) -> None:
    """One before a checkpoint is needed there."""
    job = GlooJob()
    for number in range(1, 7):
        job.step(number)
        _step(job, lambda _: None)
        if number % 3 == 0:
            job.meet("barrier", 2.0)
    assert "needless_collectives" not in {one.code for one in analysed(job.write(tmp_path)).findings}
