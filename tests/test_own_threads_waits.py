"""Waits for cores that the job's own other threads make are told as what may be nothing, and behind what is sure."""

from pathlib import Path

import msgspec
import pytest

from scalescope.records.rows import StepRow
from scalescope.report.text.findings import because, cost
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.verdicts.step_rows.doubt import is_doubtful, was_unsteady
from tests.test_core_waits import BESIDE_OTHERS, rows, told

BUCKETS = Finding(
    code="small_collectives", ms=3.6, low_ms=3.1, high_ms=4.1, fraction=0.056, backed="replay",
    remedy=Remedy(cure="larger_buckets"),
)  # fmt: skip
STARVED = Finding(
    code="host_starved", ms=1.7, low_ms=0.31, high_ms=3.0, fraction=0.024, backed="replay",
    evidence=(EvidenceRow(kind="figure", name="interruptions", ms=2.9, calls=8.0, share=0.2),),
    remedy=Remedy(cure="free_cores"),
)  # fmt: skip


def recorded(name: str) -> list[StepRow]:
    """Return the steps of a recommender on two CPU ranks with two cores, as its run folder has them."""
    with (Path(__file__).parent / "data" / name).open("rb") as lines:
        return [msgspec.json.decode(line, type=StepRow) for line in lines]


@pytest.mark.parametrize(
    ("name", "waits_ms"), [("small_buckets_steps.jsonl", 11.7), ("small_buckets_disturbed_steps.jsonl", 16.4)]
)
def test_what_own_threads_alone_may_make_ranks_wait_is_a_bound_behind_the_cause_that_is_sure(
    name: str, waits_ms: float
) -> None:
    """*Waits for cores cost 11.7 ms (6.7 to 13.3)*, *16.4 (6.2 to 21.7)* where steps were disturbed, led two runs with
    ten all-reduces a step on two ranks' two cores. A core for each rank brought nothing back; larger buckets 1.9 (1.7
    to 5.4), and undisturbed runs of the job wait for 4.1 to 5.1 ms.
    """
    run = told(recorded(name), [BUCKETS, STARVED])
    for _ in range(2):
        assert [one.code for one in run.findings] == ["small_collectives", "host_starved"]
        waits = run.findings[1]
        assert (waits.at_most, waits.low_ms, cost(waits)) == (True, 0.0, f"at most {waits_ms} ms")
        assert because(waits) == (
            "the hosts could run, and wait for a core, which the job's own other threads alone may have: then no quiet "
            "machine helps, only more cores may (2 threads compute on 2 cores)"
        )
        assert run_verdict(run).advice.startswith("use larger gradient buckets")
        run = msgspec.json.decode(msgspec.json.encode(run), type=RunAnalysis)
        keep(run, run.findings)
    (alone,) = told(recorded(name), []).findings
    assert "at most" in run_verdict(told(recorded(name), [])).headline and alone.at_most


@pytest.mark.parametrize(("cores", "may_be_own"), [((2, 2), True), (None, True), ((2, 4), False), ((4, 2), False)])
def test_own_threads_make_ranks_wait_only_where_these_have_all_the_cores(
    cores: tuple[int, int] | None, may_be_own: bool
) -> None:
    """Where cores are left for them, others have those that are waited for; too many threads are a cause of its own."""
    waits = told(recorded("small_buckets_steps.jsonl"), [], cores=cores).findings[0]
    assert waits.at_most == may_be_own and ((waits.low_ms or 0.0) > 0) != may_be_own


def test_beyond_what_own_threads_may_make_it_is_sure_and_of_one_rank_alone_all_of_it() -> None:
    """Of 62.5 ms beside another process up to 23 may be the job's own threads'; a busy process on one rank's core
    brought back 61.7 ms (58.6 to 65.2) of the half of these steps that it ran in, and is that rank's.
    """
    beside = told(rows(BESIDE_OTHERS), [BUCKETS]).findings[0]
    assert beside.code == "host_starved" and not beside.at_most
    assert beside.ms == pytest.approx(62.5, abs=0.2) and 22.0 < (beside.low_ms or 0.0) < 32.0
    busy = told(recorded("busy_core_steps.jsonl"), [BUCKETS]).findings[0]
    assert (busy.code, busy.rank, busy.at_most) == ("host_starved", 1, False)
    assert busy.ms == pytest.approx(25.6, abs=0.1) and busy.low_ms == pytest.approx(21.0, abs=0.1)


@pytest.mark.parametrize(("cores", "known"), [((8, 2), True), ((2, 2), False)])
def test_threads_that_take_turns_come_before_the_unsteadiness_that_they_make(
    cores: tuple[int, int], known: bool
) -> None:
    """*The machine was unsteady. Of the profiled steps alone: starved hosts cost about 19 ms* was told of 8 threads on
    2 cores: of the one cause that was sure, which makes steps differ, and is priced by all of them.
    """
    turns = Finding(code="host_starved", ms=10.3, low_ms=10.3, high_ms=15.4, fraction=0.1, backed="replay",
                    at_least=True, remedy=Remedy(cure="fewer_threads", size=1.0))  # fmt: skip
    run = told(rows([[42.0, 46.0] if at % 2 else [45.0, 41.0] for at in range(60)], 72.0), [turns], cores=cores)
    measured = run.step_times.measured_step_ms if run.step_times is not None else None
    assert measured is not None
    around = Interval(measured, measured - 1, measured + 1)
    longer = Interval(1.14 * measured, 1.14 * measured - 1, 1.14 * measured + 1)
    run.as_run = AsRun(step_ms=longer.value, source="steps", ranks=list(run.ranks), steps=3, untraced_ms=around,
                       untraced_by="steps", low_ms=longer.low, high_ms=longer.high,
                       recording_ms=Interval(1, 1, 1))  # fmt: skip
    assert was_unsteady(run) and is_doubtful(run) != known
    verdict = run_verdict(run)
    assert ("the machine was unsteady" in verdict.headline) != known
    assert any("as they do where threads take turns" in one for one in verdict.sentences) == known
    assert ("measure again" in verdict.advice) != known
