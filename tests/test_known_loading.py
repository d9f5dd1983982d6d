"""Loading that comes in some steps alone is sized by the step that is known, not by how many of those a window met."""

from pathlib import Path

import pytest

from scalescope import RunAnalysis, analyze
from scalescope.report.verdict.run import run_verdict

#: A U-Net on two H200s whose loaders' two workers are slower than the job: each second step waits for a batch. Steps of
#: 83.4 ms untraced, 61.2 without that.
JOB = Path(__file__).parent / "data" / "slow_workers_gpu_n2"


def test_a_window_with_more_of_the_waiting_steps_than_come_to_it_does_not_make_loading_dearer() -> None:
    """Of three replayed steps two wait, and *loading data costs 34.1 ms (20.8 to 47.4) of the 95.6 ms step* was told of
    22.3 (21.4 to 23.5), where the step was given as 83.4 ms, of which nothing was said.
    """
    run = analyze(JOB, step_ms=83.4)
    assert isinstance(run, RunAnalysis)
    first = run.findings[0]
    assert (first.code, first.rank) == ("data_loading", None)
    assert first.ms == pytest.approx(22.3, rel=0.06)
    assert first.low_ms is not None and first.high_ms is not None and first.low_ms < 22.3 < first.high_ms
    assert "--step-ms 83.4 ms is the mean of steps that differ: the 3 that can be replayed" in run_verdict(run).text


def test_a_step_that_is_as_long_as_the_replayed_ones_tells_nothing_more() -> None:
    run = analyze(JOB, step_ms=99.0)
    assert isinstance(run, RunAnalysis) and run.findings[0].ms == pytest.approx(38.0, abs=1.5)
    assert "steps that differ" not in run_verdict(run).text
