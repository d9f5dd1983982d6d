"""A stranger's own script with one cause planted in it: the first sentence names the rank, the cause and its cost."""

import statistics
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze_run
from scalescope.scaling.finding.finding import Finding
from tests.first_hour_job import SETTLED
from tests.worlds import run_world

JOB = Path(__file__).with_name("first_hour_job.py")


def first_found(cause: str, runs: Path) -> tuple[Finding, str, float]:
    """Run the script; return its first finding, its headline, and by how many ms its steps became longer."""
    done = run_world(2, [str(JOB), cause, str(runs)])
    assert done.returncode == 0, done.stderr
    folder = RunFolder(runs / cause)
    lengths = {row.step: row.length_ms for row in folder.read_steps() if row.phase == "steady"}
    before = statistics.median(ms for step, ms in lengths.items() if step < SETTLED)
    longer = statistics.median(ms for step, ms in lengths.items() if step > SETTLED)
    analysis = analyze_run(folder.path)
    return analysis.findings[0], run_verdict(analysis).headline, longer - before


@pytest.mark.job
@pytest.mark.quiet
@pytest.mark.parametrize("cause", ["loads", "collects", "logs", "computes"])
def test_a_rank_that_stands_still_is_named_with_what_that_costs_and_whether_it_sleeps(
    cause: str, tmp_path: Path
) -> None:
    """Wherever in the step it does: before the batch is used, at the end, and before an operator of its own.

    *Does nothing that is recorded (sleep, I/O, Python, a lock)* was told of a sleep of three times the step, and of as
    long a loop of Python.
    """
    found, headline, lost_ms = first_found(cause, tmp_path)
    assert (found.code, found.rank) == ("host_stall", 1), headline
    assert "rank 1 costs" in headline and found.remedy is not None
    assert found.ms == pytest.approx(lost_ms, rel=0.35)
    if not Path("/proc/thread-self/schedstat").exists():
        assert "its host does nothing that is recorded" in headline
    elif cause == "computes":
        known = "ts host computes in Python, or a library, that no operator tells, for " in headline
        # where others have its core for most of that, it may as well be who wakes again and again
        assert known == (found.remedy.cure == "find_python") and (known or "for a core" in headline)
        assert "sleeps" not in headline
    else:
        assert "ts host sleeps, or waits for I/O or a lock, for " in headline
        assert found.remedy.cure == "find_wait"


@pytest.mark.job
@pytest.mark.quiet
def test_a_rank_with_more_to_compute_is_no_rank_with_lower_clocks(tmp_path: Path) -> None:
    found, headline, _ = first_found("uneven", tmp_path)
    assert (found.code, found.rank) == ("more_work", 1), headline
    assert found.remedy is not None and "clocks" not in headline
