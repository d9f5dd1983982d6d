"""What loading costs is told by all steps of a loop, whose rows tell how long its hosts were in torch's loaders."""

import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepPhase, StepRow
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import CoreWaits, LateInSteps
from scalescope.scaling.finding.figures import (
    LATE,
    LOADED,
    LOADER_WORKERS,
    MAY_BE_OTHERS,
    MAY_BE_OTHERS_UP_TO,
    WORKERS_CORES,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.finding.order import are_little_at_most
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.of_rows.timed_loading import with_timed_loading, within_timed_loading
from tests.test_compare_alone import loading

TESTS = Path(__file__).resolve().parent
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def trained(tmp_path: Path, batch_ms: float, workers: int, active: int, *more: float) -> RunAnalysis:
    """Return what is told of a loop on two ranks whose loader has so many workers, each `batch_ms` for a batch.

    `more`: the steps of its epochs, and what each takes at least.
    """
    argv = [str(Path(sys.executable).parent / "torchrun"), "--standalone", "--nproc-per-node", "2"]
    figures = map(str, (batch_ms, workers, active, *more))
    argv += [str(TESTS / "slow_loader_script_job.py"), str(tmp_path), "slow", *figures]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS.parent)}
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert more or re.search("loading data (takes|for) ", done.stderr), "said live as well"
    (analysis,) = analyze([tmp_path / "slow"], jobs=1)
    assert isinstance(analysis, RunAnalysis)
    return analysis


@pytest.mark.job
def test_long_steps_of_an_own_loop_that_wait_for_batches_are_loadings(tmp_path: Path) -> None:
    """*Every 2nd step takes 174.5 ms longer than the others' 35.8 ms* was told of two workers that make one batch for
    two steps each, and on GPUs *unsteady steps cost 18.8 ms, and no window shows why*.
    """
    analysis = trained(tmp_path, 300.0, 2, 3)
    first = analysis.findings[0]
    assert first.code == "data_loading" and first.rank is None and (first.ms or 0.0) > 60
    assert "loading data costs" in run_verdict(analysis).text.lower()


@pytest.mark.job
def test_what_hosts_load_in_every_step_is_told_though_the_window_begins_with_batches_in_stock(tmp_path: Path) -> None:
    """*Rank 0 costs 8.7 ms … whether it is so in others, one step does not tell* was told of hosts that were in their
    loaders for 53 ms of each step of 106 ms.
    """
    analysis = trained(tmp_path, 220.0, 1, 1)
    times = analysis.step_times
    assert times is not None and times.loading is not None and times.loading.shortest_ms > 60
    first = analysis.findings[0]
    assert first.code == "data_loading" and first.rank is None and (first.ms or 0.0) > 60


@pytest.mark.quiet  # beside another job its workers are at work by what they use
@pytest.mark.job
def test_workers_that_are_started_anew_in_each_epoch_are_why_its_first_step_is_long(tmp_path: Path) -> None:
    """*Every 15th step takes 181.0 ms longer* told of workers that each epoch started anew neither that the hosts were
    in their loaders for 72 ms of it, nor what to do; and where that was most of it, *its loader makes it too slowly*.
    """
    analysis = trained(tmp_path, 40.0, 2, 3, 8, 40.0)
    found = analysis.recurring
    assert found is not None and (found.every, found.phase) == (8, 0)
    assert found.loader_entered and found.workers_started == 2
    assert found.loading_ms > 30 and found.longer_ms > 30
    verdict = run_verdict(analysis)
    assert " of it in the loader, which starts its workers anew there: " in verdict.headline
    assert verdict.advice.startswith("keep the loader's workers from one epoch to the next")
    rows = RunFolder(tmp_path / "slow").read_steps()
    assert [row.step for row in rows if row.workers_started] == [8, 16, 24, 32, 40]


def run_of(folder: Path, steady_ms: list[float], traced_ms: float = 20.0) -> RunAnalysis:
    """Return what is told of two ranks whose traces show so much loading a step, and their rows of other steps that."""
    run = RunFolder.create(folder, "train", "what: job\n")
    info = run.read_info()
    info.status, info.world_size = "done", 2
    run.write_info(info)
    writer = run.step_writer()
    for step in range(40):
        phase: StepPhase = "profile" if 2 <= step < 8 else "steady"
        own = [traced_ms, traced_ms] if phase == "profile" else [ms + 0.1 * (step % 3) for ms in steady_ms]
        length = 65.0 + max(own)
        writer.append(StepRow(step, phase, [length, length], 100.0, loading_ms=own))
    writer.close()
    made = loading(folder.parent / f"{folder.name}-traces", traced_ms)
    shutil.copytree(made, run.traces, dirs_exist_ok=True)
    (analysis,) = analyze([folder], jobs=1)
    assert isinstance(analysis, RunAnalysis)
    return analysis


def test_loading_costs_no_more_than_hosts_are_in_their_loaders_in_all_steps(tmp_path: Path) -> None:
    """Of hosts that recording has load for 20 ms a step, and that take 8 ms in all others, 20 ms were told."""
    analysis = run_of(tmp_path / "run", [8.0, 7.0])
    (first,) = (one for one in analysis.findings if one.code == "data_loading")
    assert first.ms == pytest.approx(8.1, abs=0.2) and (first.high_ms or 0.0) < 9
    assert "7.6 ms in the mean of 34 that are not recorded" in because(first)


def finding(ms: float, others_ms: float, name: str = LOADER) -> Finding:
    """Return loading of workers that share two cores with two ranks: `others_ms` more may be others'."""
    figures = {"ranks": 2.0, "threads": 2.0, "cores": 2.0}
    return Finding(
        code="data_loading",
        ms=ms + others_ms / 2,
        low_ms=0.7 * ms,
        high_ms=1.1 * ms + others_ms,
        fraction=(ms + others_ms / 2) / 130,
        backed="replay",
        remedy=None,
        evidence=(
            EvidenceRow(kind="annotation", name=name, ms=ms),
            EvidenceRow(kind="figure", name=LOADER_WORKERS, ms=ms),
            *(EvidenceRow(kind="figure", name=one, value=value) for one, value in figures.items()),
            EvidenceRow(kind="figure", name=MAY_BE_OTHERS, ms=others_ms / 2),
            EvidenceRow(kind="figure", name=MAY_BE_OTHERS_UP_TO, ms=others_ms),
        ),
    )


def test_what_workers_may_take_of_cores_is_no_more_than_loops_wait_for_these(tmp_path: Path) -> None:
    """*Loading data costs 13.9 ms (3.2 ms to 22.8 ms)* was told of a healthy loop that waits 4 ms for its batches and
    9 ms for cores, whoever has them.
    """
    analysis = run_of(tmp_path / "run", [4.0, 4.0])
    assert analysis.step_times is not None
    analysis.step_times.core_waits = CoreWaits(ms=9.0, low_ms=6.0, high_ms=9.0, mean_step_ms=130.0, steps=34)
    (told,) = within_timed_loading([finding(5.0, 14.0)], analysis)
    assert told.ms == pytest.approx(4.1 + 4.5, abs=0.1) and told.high_ms == pytest.approx(4.1 + 9.0, abs=0.2)
    assert within_timed_loading([told], analysis) == [told], "once"
    row = next(row for row in told.evidence if row.name == LOADED)
    assert row.ms == pytest.approx(4.1, abs=0.05) and row.value == 34
    many = finding(5.0, 14.0)
    threads = tuple(replace(row, value=4.0) if row.name == "threads" else row for row in many.evidence)
    (more,) = within_timed_loading([replace(many, evidence=threads)], analysis)
    assert (more.high_ms or 0.0) > 18, "of threads beside a loop its own waits tell nothing"


def test_what_a_script_names_loading_is_bounded_by_no_rows_of_torchs_loader(tmp_path: Path) -> None:
    analysis = run_of(tmp_path / "run", [4.0, 4.0])
    own = finding(15.0, 0.0, "load_batch")
    assert within_timed_loading([own], analysis) == [own]


def test_hosts_that_load_next_to_nothing_or_are_known_to_load_are_told_of_once(tmp_path: Path) -> None:
    analysis = run_of(tmp_path / "run", [20.0, 20.0])
    kept = with_timed_loading(analysis.findings, analysis)
    assert kept == analysis.findings and sum(one.code == "data_loading" for one in kept) == 1
    (found,) = (one for one in with_timed_loading([], analysis) if one.code == "data_loading")
    assert found.ms == pytest.approx(20.1, abs=0.1) and found.rank is None
    assert because(found) == "in the mean of 34 steps the hosts are in their loaders for 20.1 ms"
    little = run_of(tmp_path / "little", [1.0, 1.0], 1.0)
    assert with_timed_loading([], little) == []


def test_batches_that_are_ready_are_no_fault_by_all_steps_either(tmp_path: Path) -> None:
    """Of workers that are known to rest *loading data costs 4.1 ms* led by all steps alone, of 69."""
    analysis = run_of(tmp_path / "run", [4.0, 4.0], 1.0)
    nothing = Finding(code="nothing", ms=None, low_ms=None, high_ms=None, fraction=None, backed="none")
    figures = {"ranks": 2.0, WORKERS_CORES: 0.1}
    rests = tuple(EvidenceRow(kind="figure", name=name, value=value) for name, value in figures.items())
    known = Finding(
        code="data_loading", ms=1.0, low_ms=0.8, high_ms=1.2, fraction=0.01, backed="replay", evidence=rests
    )
    first, found = with_timed_loading([nothing, known], analysis)
    assert first == nothing and found.ms == pytest.approx(4.1, abs=0.1)
    assert are_little_at_most([first, found], 69.0, on_cpus=True)
    (found,) = with_timed_loading([nothing, replace(known, evidence=())], analysis)
    assert found.ms == pytest.approx(4.1, abs=0.1) and not are_little_at_most([found], 69.0, on_cpus=True)


def test_a_late_rank_that_loads_longer_in_all_steps_does_so_though_no_window_shows_it(tmp_path: Path) -> None:
    """*Unsteady* was told of it: the window had batches in stock."""
    analysis = run_of(tmp_path / "run", [1.0, 31.0], 1.0)
    times = analysis.step_times
    assert times is not None and times.loading is not None
    assert times.loading.by_rank_ms == pytest.approx([1.1, 31.1], abs=0.05)
    times.long_steps = None
    times.late = LateInSteps(rank=1, ms=30.0, low_ms=29.0, high_ms=31.0, mean_step_ms=96.0, steps=34, delays_known=True)
    keep(analysis, [])
    first = analysis.findings[0]
    assert (first.code, first.rank, first.ms) == ("data_loading", 1, 30.0)
    assert statistics.fmean(times.loading.by_rank_ms) < 31 and "31.1 ms" in because(first)


def test_of_hosts_that_all_load_longer_than_one_is_late_by_all_are_told(tmp_path: Path) -> None:
    """*Rank 0 costs 86.8 ms … its host loads data* was told of loaders that took 201 ms of rank 0's mean step and
    114 ms of rank 1's, of 216 ms: the only step in the window had batches in stock on rank 1.
    """
    analysis = run_of(tmp_path / "run", [90.0, 60.0], 1.0)
    late = Finding(
        code="data_loading",
        rank=0,
        ms=30.0,
        low_ms=29.0,
        high_ms=31.0,
        fraction=0.2,
        backed="measured",
        evidence=(EvidenceRow(kind="figure", name=LATE, ms=30.0, value=34.0),),
    )
    (found,) = with_timed_loading([late], analysis)
    assert found.rank is None and found.ms == pytest.approx(75.1, abs=0.1)
    by_most = replace(late, ms=70.0, low_ms=69.0, high_ms=71.0)
    assert with_timed_loading([by_most], analysis) == [by_most], "what one is late by is then most of it"
