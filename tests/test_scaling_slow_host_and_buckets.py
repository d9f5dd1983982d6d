"""A rank whose host is slow, and gradients that it hands over late for that: one cause."""

from pathlib import Path

import pytest

from scalescope import RunAnalysis, analyze
from tests.gloo_traces import GlooJob, analysed

MIB_ELEMENTS = 1 << 18


def _job(waits: list[int], *, wait_ms: float = 5.1) -> GlooJob:
    """Return steps in which rank 0 waits so often, now here and now there, between its two buckets."""
    job = GlooJob(view_ns=None)
    for number, count in enumerate(waits):
        job.step(3 + number)
        job.compute(20.0, "aten::linear", calls=10)
        job.fill_bucket(MIB_ELEMENTS)
        job.all_reduce_beside(2.0)
        for at in range(20):
            if (at + number) % 20 < count:
                job.sleep(0, wait_ms)
            job.compute(2.0, ("aten::gelu", "aten::mul", "aten::sum", "aten::add")[at % 4])
        job.fill_bucket(MIB_ELEMENTS)
        job.all_reduce(2.0)
        job.compute(4.0, "aten::lerp_", calls=2)
    return job


def test_a_bucket_that_was_through_long_ago_holds_nobody_up_once_the_slow_host_is_mended(tmp_path: Path) -> None:
    """The first bucket is there 50 ms before the host turns to it: those are the host's own, and go with its cause."""
    (first, *others) = analysed(_job([10] * 8).write(tmp_path)).findings
    assert (first.code, first.rank) == ("host_starved", 0)
    assert first.ms == pytest.approx(51.0, rel=0.05)
    assert not [one for one in others if one.code == "late_bucket"]


def test_waits_for_the_lock_are_bounded_by_the_step_with_fewest_and_by_what_is_left_without(tmp_path: Path) -> None:
    """A few steps with 6 to 18 waits tell their mean badly, but each has six, and is as long as the others without."""
    (first, *_) = analysed(_job([6, 6, 6, 7, 18, 18, 6]).write(tmp_path)).findings
    assert (first.code, first.rank) == ("host_starved", 0)
    assert first.low_ms is not None and first.ms is not None
    assert first.low_ms == pytest.approx(6 * 5.1, rel=0.05)
    answer = analysed(tmp_path)
    assert answer.as_run is not None and answer.as_run.step_ms is not None and first.high_ms is not None
    assert first.low_ms < first.ms <= first.high_ms
    assert first.high_ms < answer.as_run.step_ms - 62.0, "without the waits a step takes 70 ms"


def test_steps_of_the_job_that_are_longer_than_the_profiled_ones_may_have_more_of_it(tmp_path: Path) -> None:
    """A thread that cost 518 ms a step was told as 439 (351 to 461) of 575, beside the job's own 700 ms a step."""
    folder = _job([6, 6, 6, 7, 18, 18, 6]).write(tmp_path)
    (first, *_) = analysed(folder).findings
    longer = analyze(folder, step_ms=200.0)
    assert isinstance(longer, RunAnalysis) and first.high_ms is not None
    found = longer.findings[0]
    assert (found.code, found.rank) == (first.code, first.rank) and found.high_ms is not None
    assert first.high_ms + 50.0 < found.high_ms <= 200.0 - 70.0, "without the waits a step takes 70 ms"
