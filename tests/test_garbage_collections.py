"""Python's garbage collector, which no profiler records, is named where our own measuring saw it at work."""

import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from host_traces import KERNEL_US, HostTrace, causes_of, plain_step
from msgspec.structs import replace

from scalescope.records.folder import RunFolder
from scalescope.records.steps.garbage import SHORTEST_NS
from scalescope.report.text.findings import because, todo, todo_elsewhere
from scalescope.report.text.recurring import recurring_advice, recurring_clause
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.finding.figures import EVERY, GARBAGE, IN_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.candidate import Candidate
from scalescope.scaling.findings.containment import _is_recorded
from scalescope.scaling.findings.of_rows.recurring import without_recurring
from scalescope.scaling.trace.reader import read_trace
from scalescope.train.measure.tracing.garbage import GarbageWatch
from tests.worlds import run_world

JOB = Path(__file__).resolve().parent / "garbage_script_job.py"


@pytest.mark.job
def test_a_rank_that_collects_garbage_in_each_step_is_told_so_and_what_to_do(tmp_path: Path) -> None:
    """*Does nothing that is recorded (sleep, I/O, Python, a lock)* was said of `gc.collect()` in each step."""
    done = run_world(2, [str(JOB), str(tmp_path)])
    assert done.returncode == 0, done.stderr
    folder = RunFolder(tmp_path / "garbage")
    traces = {rank: read_trace(paths[0], None) for rank, paths in folder.find_traces().items()}
    collected = traces[1].header.own.collections
    steps = sum(name.startswith("ProfilerStep#") for name in traces[1].names)
    assert len(collected) >= steps and {one.generation for one in collected} == {2}
    (answer,) = analyze([folder.path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    findings = list(answer.findings)
    if findings[0].code == "host_starved":  # a machine that has others' work to do: so it is
        findings.pop(0)
    first = findings[0]
    assert (first.code, first.rank) == ("host_stall", 1)
    took_ms = sum(one.end_ns - one.start_ns for one in collected) / len(collected) / 1e6
    (row,) = (one for one in first.evidence if one.name == GARBAGE)
    assert row.ms == pytest.approx(took_ms, rel=0.1)
    assert because(first).startswith("its host runs Python's garbage collector (gc) for "), because(first)
    assert todo(first, None).startswith("let Python collect its garbage less often: ")
    assert todo_elsewhere(first).startswith("gc.freeze() before the loop, gc.disable() in it")


def test_short_collections_and_those_outside_of_a_window_are_not_kept() -> None:
    watch = GarbageWatch()
    heap = [[number] for number in range(400_000)]
    gc.collect()
    watch.start()
    gc.collect(0)
    since_ns = time.time_ns()
    gc.collect()
    until_ns = time.time_ns()
    found = watch.stop()
    assert not watch.stop() and all(getattr(one, "__self__", None) is not watch for one in gc.callbacks)
    (one,) = (one for one in found if one.generation == 2)
    assert since_ns <= one.start_ns < one.end_ns - SHORTEST_NS and one.end_ns <= until_ns
    assert one.thread == threading.get_native_id() and len(heap) == 400_000


def test_a_collection_is_one_place_wherever_something_was_allocated(tmp_path: Path) -> None:
    """By itself Python collects now behind this operator and now behind that one: told as a host without its cores."""
    kinds = ["gelu", "dropout", "layer_norm", "embedding", "softmax", "add"]

    def step(trace: HostTrace, number: int, late: bool) -> None:
        for at, kind in enumerate(kinds):
            trace.kernel(f"aten::{kind}", KERNEL_US)
            if late and at == number % len(kinds):
                trace.collects(8e3)
        plain_step(trace, KERNEL_US)

    (found,) = causes_of(tmp_path, lambda t, n: step(t, n, False), lambda t, n: step(t, n, True))
    assert (found.code, found.rank) == ("host_stall", 1)
    assert found.place is not None and found.place.is_collector
    assert np.mean(found.ns) == pytest.approx(8e6, rel=0.05)


def test_what_every_fourth_step_collects_is_to_be_collected_less_often() -> None:
    """*See what every 4th step does beside training (validation, …)* was advised where the collector is known."""
    row = EvidenceRow(kind="figure", name=GARBAGE, ms=150.0)
    some = EvidenceRow(kind="figure", name=IN_STEPS, ms=150.0, calls=3.0, value=10.0)
    every = EvidenceRow(kind="figure", name=EVERY, ms=150.0, value=4.0)
    doing = Finding(code="host_stall", ms=37.0, low_ms=30.0, high_ms=40.0, backed="replay",
                    evidence=(row, some, every), remedy=Remedy(cure="collect_less"))  # fmt: skip
    found = RecurringSteps(
        every=4, phase=3, phases=[3], rank=None, longer_ms=150.0, usual_ms=65.0, mean_ms=37.5, doing=doing
    )
    collects = "the hosts run Python's garbage collector (gc) for 150.0 ms each in 3 of 10 steps, every 4th one"
    assert because(doing) == collects
    by_whom = "every 4th step takes 150.0 ms longer than the others' 65.0 ms, for Python's garbage collector"
    assert recurring_clause(found) == f"{by_whom}: 37.5 ms a step in the mean"
    assert recurring_advice(found) == "let Python collect its garbage less often: at most 37.5 ms a step"


def _recurs(path: Path, own_ms: float) -> RunAnalysis:
    """Return a job on GPUs whose rank 0 takes 60 ms longer every 4th step, of which a window met one as its last."""

    def step(trace: HostTrace, number: int) -> None:
        plain_step(trace, KERNEL_US)
        if number == 2:
            trace.collects(60e3)

    HostTrace().steps(3, step).write(path)
    (run,) = analyze([path], jobs=1)
    assert isinstance(run, RunAnalysis)
    last = max(one.step for one in run.steps)
    run.recurring = RecurringSteps(
        every=4, phase=last % 4, phases=[last % 4], rank=0, longer_ms=60.0, usual_ms=own_ms, mean_ms=15.0
    )
    return run


def test_a_collection_in_a_window_s_last_step_is_what_steps_that_recur_do(tmp_path: Path) -> None:
    """*For what rank 0 does before the others go on* was told of `gc.collect()` each 4th step on GPUs, whose window met
    one in its last of three steps: 236 ms of the collector, which stood in the trace's header.
    """
    run = _recurs(tmp_path, 18.0)
    assert run.steps[-1].open_ended and run.steps[-1].stood is not None and run.steps[-1].stood.collects
    assert not without_recurring([], run)
    assert run.recurring is not None and run.recurring.doing is not None
    assert ", for Python's garbage collector on rank 0: " in recurring_clause(run.recurring)
    collects = "its host runs Python's garbage collector (gc) for 60.0 ms in 1 of 3 steps (the 3rd)"
    assert because(run.recurring.doing) == collects
    assert recurring_advice(run.recurring).startswith("let Python collect its garbage less often")


@pytest.mark.parametrize(("own_ms", "kept"), [(18.6, 0), (22.0, 1)])
def test_a_host_that_lost_its_lead_to_them_is_not_starved_in_the_job_s_own_steps(
    own_ms: float, kept: int, tmp_path: Path
) -> None:
    """*Rank 0 costs 4.4 ms of the 22.4 ms step: other threads have its cores* stood beside the job's own steps of 18.6
    ms, which have room for none of that: the collector had taken its lead, and recording kept it from a new one.
    """
    run = _recurs(tmp_path, own_ms)
    run.as_run = AsRun(step_ms=22.4, low_ms=0.0, high_ms=95.0, source="steps")
    starved = Finding(code="host_starved", rank=0, ms=4.4, low_ms=0.2, high_ms=5.4, fraction=0.2, backed="replay")
    assert len(without_recurring([starved], run)) == kept
    assert without_recurring([replace(starved, rank=1)], run), "whose steps do not recur"


def test_collections_that_were_recorded_are_no_interruptions_of_their_host() -> None:
    """On a machine of many jobs a rank that collects garbage in each step was told as one that lacks its core alone."""
    row = EvidenceRow(kind="figure", name=GARBAGE, ms=12.0)
    collects = Candidate(code="host_stall", rank=1, evidence=(row,))
    stalls = Candidate(code="host_stall", rank=1)
    for rank, told in ((1, True), (0, False)):
        starved = Candidate(code="host_starved", rank=rank)
        assert _is_recorded(collects, starved) is told and not _is_recorded(stalls, starved)
