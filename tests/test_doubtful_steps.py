"""What is said where a machine, or waits for cores, may have made what steps differ by."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from scalescope.records.steps.worker_times import WorkerTime
from scalescope.report.steadiness import _in_steps, uneven_sentence, unlike_sentence
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.answer_steps import StepTimes
from scalescope.scaling.as_run import of_job
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.figures import BESIDES
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.add import _off_ms
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.verdicts.step_rows.doubt import (
    differ_by_workers,
    have_workers_the_cores,
    is_doubtful,
    judge_steadiness,
    was_unsteady,
)
from scalescope.scaling.verdicts.step_rows.uneven import _beyond, _stretch
from tests.report_samples import run_answer
from tests.test_core_waits import BY_ITSELF, SLOWER, STALL, rows, told


def test_a_job_whose_steps_are_of_two_lengths_says_so_and_what_ranks_waited_in_either() -> None:
    """Steps of 152 to 159 ms at first and of 104 later were *108.6 ms (83.0 to 134.2)*, and no word why."""
    run = told(rows([[60.0, 45.0] if at < 15 else [4.0, 9.0] for at in range(60)]), [STALL])
    assert run.step_times is not None and run.step_times.uneven is not None
    sentence = uneven_sentence(run)
    assert sentence.startswith("The job did not run evenly: a step took 169.2 ms in steps 0 to 8 and ")
    assert "of which ranks waited 60.0 ms and 9.0 ms for a core that other processes" in sentence
    assert sentence in run_verdict(run).sentences
    run.cores_full, run.worker_times = True, [WorkerTime(rank=rank, processes=1, cores=0.5) for rank in (0, 1)]
    own = uneven_sentence(run)
    assert own.endswith("for a core, of which the job's own loader workers use 1.00.") and "did not run evenly" in own
    even = told(rows(BY_ITSELF), [STALL])
    assert uneven_sentence(even) == ""
    slower = [
        msgspec.structs.replace(row, step_ms=[2 * ms if row.step < 15 else ms for ms in row.step_ms])
        for row in rows(BY_ITSELF)
    ]
    assert "core" not in uneven_sentence(told(slower, [])) != ""  # it is not the waits that make them longer


def test_the_steps_that_are_named_are_those_that_were_long_and_no_recorded_one_lies_among_them() -> None:
    """*337.5 ms in steps 19 to 38* was told where 20 to 32 were recorded, and 33 to 37 were long."""
    long = {13: 170.0, 14: 240.0, 15: 250.0, 16: 260.0, 17: 245.0, 18: 230.0}
    uneven = [
        msgspec.structs.replace(row, step_ms=[long.get(row.step, (100.0, 150.0)[row.step // 12 % 2])] * 2)
        for row in rows([[0.0, 0.0]] * 57)
    ]
    for at in (9, 19, 20):  # recorded ones lie between the first of these and the long ones, of whose stretch they are
        uneven[at].step_ms[:] = [90.0, 90.0]
    assert "a step took 242.5 ms in steps 13 to 18 and " in uneven_sentence(told(uneven, [STALL]))
    alone = [msgspec.structs.replace(row, step_ms=[(300.0 if row.step in (14, 16) else 100.0)] * 2) for row in uneven]
    assert _in_steps(_stretch(_beyond(alone[13:16], lambda row: row.length_ms > 100.0))) == "in step 14"


@pytest.mark.parametrize(("longer", "is_told"), [(1.6, True), (1.15, False), (1.0, False)])
def test_a_job_of_few_steps_that_another_slowed_halfway_says_so(longer: float, is_told: bool) -> None:
    """Steps of 114 to 167 ms before the window and of 181 to 258 after it were *134.1 ms (85.5 to 182.8)* without a
    word."""
    few = [msgspec.structs.replace(row, step_ms=[(longer if at >= 8 else 1.0) * ms for ms in row.step_ms])
           for at, row in enumerate(rows(BY_ITSELF)[:18])]  # fmt: skip
    assert uneven_sentence(told(few, [STALL])).startswith("The job did not run evenly: ") is is_told


def unsteady(finding: Finding, told_ms: float, waits: list[list[float]] = BY_ITSELF) -> RunAnalysis:
    """Return a run of such a finding whose profiled steps, without recording, are none of the job's own."""
    run = told(rows(waits), [finding])
    measured = run.step_times.measured_step_ms if run.step_times is not None else None
    assert measured is not None
    run.as_run = AsRun(step_ms=told_ms, source="steps", ranks=list(run.ranks), steps=3, recording_ms=Interval(1, 1, 1),
                       untraced_ms=Interval(measured, measured - 1, measured + 1), untraced_by="steps",
                       low_ms=told_ms - 1, high_ms=told_ms + 1)  # fmt: skip
    return run


def stall(seen_ms: float, ms: float, low_ms: float) -> Finding:
    seen = EvidenceRow(kind="figure", name="gap_before aten::add_", ms=seen_ms, others_ms=0.0)
    return msgspec.structs.replace(STALL, ms=ms, low_ms=low_ms, high_ms=2 * ms - low_ms, evidence=(seen,))


OWN_WORK = Finding(
    code="own_work", rank=0, ms=11.2, low_ms=9.3, high_ms=12.7, fraction=0.07, backed="replay",
    evidence=(EvidenceRow(kind="activity", name="aten::matmul", ms=24.0),), remedy=Remedy(cure="look_at_rank"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("finding", "first"),
    [
        (stall(79.4, 79.2, 75.3), True),  # far beyond what its rank waits
        (stall(19.0, 12.0, 0.5), True),  # what it costs is hardly known, and that it is there is
        (OWN_WORK, True),  # launches are no machine's doing
        (stall(15.5, 9.0, 4.0), False),  # its rank waits for 9 ms of a step
        (msgspec.structs.replace(STALL, low_ms=0.0), False),
        (msgspec.structs.replace(SLOWER, low_ms=15.0), False),  # slower for what the machine does
        (
            msgspec.structs.replace(
                SLOWER, low_ms=15.0, evidence=(EvidenceRow(kind="figure", name=BESIDES, calls=3.0, value=3.0),)
            ),
            True,
        ),
    ],
)
def test_measuring_again_comes_first_only_where_the_machine_may_have_made_what_was_found(
    finding: Finding, first: bool
) -> None:
    """*Measure again on a quiet machine* was the first advice of a host that stands still for 79.2 ms of each step."""
    run = unsteady(finding, told_ms=160.0)
    assert was_unsteady(run) and is_doubtful(run) == (not first)
    judge_steadiness(run)
    assert run.quality.unsteady
    verdict = run_verdict(run)
    assert ("the machine was unsteady. Of the profiled steps alone: " in verdict.headline) == (not first)
    assert verdict.advice.startswith("measure again on a quiet machine") == (not first)
    assert any(one.startswith("The machine was unsteady, which does not make this") for one in verdict.sentences) == (
        first
    )
    assert any("the machine was unsteady" in one for one in verdict.notes)


def test_where_nothing_tells_waits_what_a_host_does_at_a_place_may_be_the_machines_and_launches_are_not() -> None:
    for finding, first in ((stall(79.4, 79.2, 75.3), False), (OWN_WORK, True)):
        run = unsteady(finding, told_ms=160.0)
        assert run.step_times is not None
        run.step_times = msgspec.structs.replace(run.step_times, core_waits=None)
        assert was_unsteady(run) and is_doubtful(run) == (not first)


def test_steps_that_lie_as_far_apart_by_themselves_contradict_no_traces() -> None:
    """Profiled steps 8.7% longer than 112.9 ms, of steps of which any three in a row lie 11% off, were *unsteady*."""
    run = run_answer("r", 2)
    run.step_times = StepTimes(measured_step_ms=112.9, measured_step_p95_ms=130.0, measured_steps=49,
                               window_step_ms=123.3, profiling_overhead_ms=8.0, profiling_overhead_fraction=0.07,
                               placebo_ms=12.8)  # fmt: skip
    replayer = cast("Any", SimpleNamespace(base={rank: [121e6, 125e6, 122e6] for rank in (0, 1)}))
    run.as_run = AsRun(step_ms=122.6, source="steps", untraced_by="steps")
    assert _off_ms(run, replayer) == 12.8
    run.as_run.untraced_by = "given"  # a step of another run knows nothing of this one's
    assert _off_ms(run, replayer) < 6.0


STARVED = Finding(
    code="host_starved", ms=3.9, low_ms=3.2, high_ms=4.7, fraction=0.03, backed="replay",
    evidence=(EvidenceRow(kind="figure", name="interruptions", ms=5.9, calls=8.0, share=0.2),),
    remedy=Remedy(cure="free_cores"),
)  # fmt: skip


def test_whose_threads_have_a_starved_hosts_cores_is_told_no_surer_than_it_is_known() -> None:
    """Two ranks alone on two cores heard `others use their cores`, and nobody else was there."""
    own = [[6.0, 7.0]] * 20  # no more than the job's own threads make them wait
    (full,) = (because(one) for one in told(rows(own), [STARVED]).findings if one.code == "host_starved")
    assert "2 threads compute on 2 cores, where the job's other threads" in full and "other processes may" in full
    (room,) = (because(one) for one in told(rows(own), [STARVED], (2, 8)).findings if one.code == "host_starved")
    (trace,) = (because(one) for one in told(rows([]), [STARVED]).findings if one.code == "host_starved")
    for text in (room, trace):
        assert "other threads have their cores, of other processes or the job's own" in text
    assert not any("others use" in text for text in (full, room, trace))


@pytest.mark.parametrize(("known", "of_own"), [(0.04, True), (0.001, False)])
def test_shares_are_of_the_step_that_is_named_on_an_unsteady_machine_too(
    known: float, of_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain,) = analyze([Path(__file__).parent / "data" / "cpu_ddp_n2"], jobs=1)
    assert isinstance(plain, RunAnalysis) and plain.as_run is not None and plain.as_run.step_ms is not None
    parts_ms = plain.as_run.step_ms
    own = Interval(1.025 * parts_ms, (1.025 - known) * parts_ms, (1.025 + known) * parts_ms)
    monkeypatch.setattr(of_job, "measured_step", lambda _: own)
    monkeypatch.setattr(of_job, "is_doubtful", lambda _: True)
    plain.findings, plain.advice = [msgspec.structs.replace(OWN_WORK, ms=0.1 * parts_ms, fraction=0.1)], []
    plain.as_run.low_ms = plain.as_run.high_ms = parts_ms
    of_job.tell_step_of_job(plain)
    assert plain.findings[0].fraction == pytest.approx(0.1 / 1.025 if of_own else 0.1)


TURNS = np.random.default_rng(3).uniform(4.0, 26.0, (60, 2)).tolist()


def _beside_workers(
    cores: float, waits: list[list[float]] = TURNS, *, full: bool = True, ranks: tuple[int, ...] = (0, 1)
) -> RunAnalysis:
    run = unsteady(stall(15.5, 9.0, 4.0), 230.0, waits)
    run.cores_full = full
    run.worker_times = [WorkerTime(rank=rank, processes=2, cores=cores, waiting=0.3) for rank in ranks]
    keep(run, list(run.findings))
    judge_steadiness(run)
    return run


def test_the_jobs_own_workers_on_the_ranks_cores_make_no_machine_unsteady() -> None:
    """*The machine was unsteady: ranks waited for cores*, *other processes, or its own other threads, had it*, and
    *measure again on a quiet machine* were told of a job alone on its machine, whose workers had the cores.
    """
    run = _beside_workers(0.45)
    assert not (was_unsteady(run) or is_doubtful(run) or run.quality.unsteady) and differ_by_workers(run)
    verdict = run_verdict(run)
    told = " ".join([verdict.text, *verdict.notes, unlike_sentence(run, "2 CPU ranks")])
    assert "unsteady" not in told and "quiet machine, or" not in told
    assert uneven_sentence(run) in verdict.text and uneven_sentence(run).startswith("Steps differ as")
    assert "of which they use 0.90: no quiet machine" in verdict.text
    assert unlike_sentence(run, "2 CPU ranks").startswith("On 2 CPU ranks the job's own loader workers have the ranks'")


@pytest.mark.parametrize("cores", [0.2, 0.08])
def test_workers_that_use_most_of_what_ranks_wait_for_have_the_cores_however_little_it_is(cores: float) -> None:
    """Ranks wait for 0.25 of a core each, of which 0.2 are most."""
    run = _beside_workers(cores, [[2 * ms for ms in both] for both in TURNS])
    assert have_workers_the_cores(run) == (cores == 0.2)


def _waiting_for_more(run: RunAnalysis) -> RunAnalysis:
    waits = run.step_times.core_waits if run.step_times is not None else None
    assert run.step_times is not None and waits is not None
    run.step_times.core_waits = msgspec.structs.replace(waits, ms=0.95 * waits.mean_step_ms)
    return run


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda: _beside_workers(0.2), "they rest"),
        (lambda: _beside_workers(0.45, full=False), "there are cores for them"),
        (lambda: _beside_workers(0.45, ranks=(0,)), "one rank's alone are few"),
        (lambda: _beside_workers(0.45, [[10.0 + at % 2, 9.0] for at in range(60)]), "steps differ for something else"),
        (lambda: _waiting_for_more(_beside_workers(0.45)), "ranks wait for far more than they use"),
    ],
)
def test_workers_that_are_not_why_steps_differ_leave_the_machine_unsteady(
    run: Callable[[], RunAnalysis], why: str
) -> None:
    told = run()
    assert was_unsteady(told) and not differ_by_workers(told), why
    assert "the machine was unsteady" in " ".join([run_verdict(told).text, *run_verdict(told).notes])
