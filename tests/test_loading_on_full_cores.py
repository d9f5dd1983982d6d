"""Loading in processes of their own needs cores: what that may bring beside threads that compute on all of them."""

import shutil
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from scalescope.records.rows import Device
from scalescope.report.text.findings import todo
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.test_compare_alone import loading


def run_of(folder: Path, cores: str) -> RunAnalysis:
    """Return what is told of two ranks of a thread each that load for 20 ms in each step, on these cores."""
    run = RunFolder.create(folder, "train", "what: job\n")
    info = run.read_info()
    info.status, info.world_size = "done", 2
    info.devices = [Device(rank, "a", "cpu", "EPYC", threads=1, cores=cores) for rank in range(2)]
    run.write_info(info)
    shutil.copytree(loading(folder.parent / f"{folder.name}-traces", 20.0), run.traces)
    (analysis,) = analyze([folder], jobs=1)
    assert isinstance(analysis, RunAnalysis)
    return analysis


def test_beside_threads_on_all_cores_loading_ahead_brings_at_most_what_loading_costs(tmp_path: Path) -> None:
    """*Load batches ahead: 19.8 ms (18.9 to 20.8)* was said of batches parsed on 2 cores by 2 ranks, where two workers
    a rank gained nothing: they compute on the same cores.
    """
    full = run_of(tmp_path / "full", "0-1")
    first = full.findings[0]
    assert first.code == "data_loading" and not first.at_most and first.low_ms is not None and first.low_ms > 15
    assert full.advice[0].at_most and full.advice[0].low_ms == 0.0
    assert full.advice[0].gain_ms == pytest.approx(20.0, abs=1.0)
    told = todo(first, full)
    assert ": at most " in told and told.endswith(
        ", as far as loading waits (for files, a network) or finds a core: the ranks compute on all of them"
    )
    assert told in run_verdict(full).text
    roomy = run_of(tmp_path / "roomy", "0-7")
    assert not roomy.advice[0].at_most and "at most" not in todo(roomy.findings[0], roomy)
    assert (roomy.findings[0].ms, roomy.findings[0].low_ms) == (first.ms, first.low_ms), "what it costs is the same"
