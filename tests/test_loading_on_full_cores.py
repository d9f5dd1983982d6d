"""Loading in processes of their own needs cores: what that may bring beside threads that compute on all of them."""

import shutil
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from scalescope.records.rows import Device, Origin
from scalescope.records.steps.worker_times import WorkerTime
from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.text.cures.words import cure_text
from scalescope.report.text.findings import todo, todo_elsewhere
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.figures import LOADER_WORKERS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.derived import keep
from tests.report_samples import run_answer
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
    assert full.advice[0].gain_ms == full.advice[0].high_ms == first.high_ms, (
        "at most is no less than its interval's end"
    )
    told = todo(first, full)
    assert f": at most {milliseconds(first.high_ms or 0.0)} a step" in told and told in run_verdict(full).text
    assert told.startswith("make batches cheaper, or once") and "num_workers=2" not in todo_elsewhere(first)
    roomy = run_of(tmp_path / "roomy", "0-7")
    assert not roomy.advice[0].at_most and "at most" not in todo(roomy.findings[0], roomy)
    assert todo(roomy.findings[0], roomy).startswith("load batches ahead, in processes of their own")
    assert (roomy.findings[0].ms, roomy.findings[0].low_ms) == (first.ms, first.low_ms), "what it costs is the same"


@pytest.mark.parametrize(
    ("used", "waiting", "shared", "lacks"),
    [
        (0.3, 0.2, False, True),  # they compute, or would
        (0.1, 0.1, True, False),  # they wait for something else: more of them would help
        (None, None, True, True),  # nobody noted it, and they take turns with the ranks' threads
        (None, None, False, False),
    ],
)
def test_more_workers_are_not_advised_where_those_there_compete_for_full_cores(
    used: float | None, waiting: float | None, shared: bool, lacks: bool
) -> None:
    run = run_answer("r", 2)
    run.activity, run.cores_full, run.experts, run.pipelines, run.step_times = "cpu", True, [], [], None
    if used is not None:
        run.worker_times = [WorkerTime(rank=rank, processes=1, cores=used, waiting=waiting) for rank in (0, 1)]
    rows = (EvidenceRow(kind="figure", name=LOADER_WORKERS, ms=10.0),) if shared else ()
    slow = Finding(code="data_loading", ms=14.0, low_ms=9.0, high_ms=18.0, fraction=0.2, backed="replay", evidence=rows,
                   remedy=Remedy(cure="load_faster"))  # fmt: skip
    keep(run, [slow])
    (found,) = run.findings
    assert run.advice[0].at_most == lacks and run.advice[0].gain_ms == (18.0 if lacks else 14.0)
    told = todo(found, run)
    assert told.startswith("make batches cheaper") == (": at most 18.0 ms a step" in told) == lacks
    assert ("num_workers" in todo_elsewhere(found)) != lacks


def test_hiding_transfer_on_full_cores_is_advised_as_far_as_its_threads_find_one() -> None:
    run = run_answer("r", 2)
    run.activity, run.cores_full, run.experts, run.pipelines, run.step_times = "cpu", True, [], [], None
    late = Finding(code="late_bucket", ms=6.0, low_ms=3.0, high_ms=10.0, fraction=0.1, backed="replay",
                   remedy=Remedy(cure="smaller_buckets", overrides=("strategy.bucket_mib=1",)))  # fmt: skip
    keep(run, [late])
    told = todo(run.findings[0], run)
    assert ": at most 10.0 ms a step" in told and "as far as the threads that move the data find a core" in told
    assert run.advice[0].overrides == ["strategy.bucket_mib=1"]


@pytest.mark.parametrize("cure", ["load_ahead", "load_faster", "name_loading", "prepare_ahead"])
@pytest.mark.parametrize(("jax", "origin"), [(True, None), (False, "script"), (False, None)])
def test_no_words_of_any_framework_advise_workers_first_where_they_find_no_core(
    cure: Cure, jax: bool, origin: Origin | None
) -> None:
    told = cure_text(Remedy(cure=cure, on_cpu=True, lacks_cores=True, jax=jax, origin=origin))
    assert told.startswith(("make batches cheaper", "prepare batches more cheaply")) and "all cores" in told
    assert cure_text(Remedy(cure=cure, on_cpu=True, jax=jax, origin=origin)) != told
