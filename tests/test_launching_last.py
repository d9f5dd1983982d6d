"""The rank that launches last, of hosts that bound a step, is late by all that launching takes: no fault of its own."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from scalescope import RunAnalysis, analyze
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.findings.of_rows.late_rank import with_late_rank

DATA = Path(__file__).parent / "data" / "launching_last_n2"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunAnalysis:
    """A healthy recommendation model of two H100s in a loop of its own, eager: 8 ms a step, 3 ms of them compute."""
    folder = tmp_path_factory.mktemp("runs") / "recommender"
    shutil.copytree(DATA, folder)
    found = analyze(folder)
    assert isinstance(found, RunAnalysis)
    return found


def test_a_healthy_job_that_its_hosts_bound_names_no_rank_for_the_lead_of_the_other_one(run: RunAnalysis) -> None:
    """*Rank 1 costs 4.6 ms (2.7 to 6.4) a step in the mean, 47.3% of it* was told; in the next run it was rank 0."""
    assert run.step_times is not None and run.step_times.late is not None  # by its rows rank 1 is late
    assert run.findings[0].code == "host_bound" and all(one.rank is None for one in run.findings)
    assert not run.stragglers
    assert "launching costs at most" in run_verdict(run).headline


def test_a_rank_is_named_as_late_where_its_device_waits_for_no_launches(run: RunAnalysis) -> None:
    assert run.as_run is not None
    busy = [
        replace(one, idle_launch_ms=0.0, compute_ms=one.compute_ms + one.idle_launch_ms) for one in run.as_run.ranks
    ]
    found = with_late_rank(run.findings, replace(run, as_run=replace(run.as_run, ranks=busy)))
    assert run.step_times is not None and run.step_times.late is not None
    assert any(one.rank == run.step_times.late.rank for one in found)
