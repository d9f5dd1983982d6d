"""A host that stands still in some steps only: it is a stall of that host, with its place and how often, and what a
shared core does by turns is none."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from host_traces import HostTrace, backward, forward, optimise

from scalescope.records.statistics import share_95
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.evidence.compare import compare_hosts
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.candidate import Seen
from scalescope.scaling.ranks.read import read_ranks
from scalescope.scaling.trace.sources import find_sources

DATA = Path(__file__).parent / "data"
KERNEL_US = 40.0


def causes(
    folder: Path,
    *pauses_ms: dict[int, float],
    steps: int = 6,
    before: Callable[[HostTrace, int], None] = lambda *_: None,
) -> list[HostCause]:
    """Return what is found where each rank pauses for so many ms in some steps, before its backward pass."""
    for rank, of_rank in enumerate(pauses_ms):
        trace, numbers = HostTrace(rank, len(pauses_ms)), count()

        def step(trace: HostTrace, number: int, own: dict[int, float] = of_rank, at: Iterator[int] = numbers) -> None:
            before(trace, number)
            forward(trace, KERNEL_US)
            trace.idle(1e3 * own.get(next(at), 0.0))
            backward(trace, KERNEL_US)
            optimise(trace)

        trace.steps(steps, step).write(folder)
    return _now_and_then(folder)


def _now_and_then(folder: Path) -> list[HostCause]:
    summaries = read_ranks(find_sources(folder)).summaries
    hosts = {rank: one.host_evidence for rank, one in summaries.items() if one.host_evidence is not None}
    return [one for one in compare_hosts(hosts) if one.now_and_then]


def test_a_pause_in_every_third_step_is_a_stall_of_that_rank(tmp_path: Path) -> None:
    (found,) = causes(tmp_path, {}, {1: 6.0, 4: 6.1})
    assert (found.code, found.rank) == ("host_stall", 1)
    assert [ns > 0 for ns in found.ns] == [False, True, False, False, True, False]
    assert found.typical_ns == pytest.approx(12.1e6 / 6, rel=0.05)
    assert found.evidence[0].share == pytest.approx(1 / 3)


def _first_finding(folder: Path) -> Finding:
    (answer,) = analyze([folder], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer.findings[0]


@pytest.mark.parametrize(("at", "period"), [((1, 5, 9), 4), ((1, 5, 10), None), ((1, 5), None), ((5, 7, 9), None)])
def test_pauses_that_come_back_have_a_period_where_none_is_missing(
    at: tuple[int, ...], period: int | None, tmp_path: Path
) -> None:
    pauses_ms = dict.fromkeys(at, 20.0)  # which no device's queue hides
    (found,) = causes(tmp_path, pauses_ms, pauses_ms, steps=12)
    assert found.period == period
    first = _first_finding(tmp_path)
    assert first.code == "host_stall"
    assert ("every 4th one" in because(first)) == (period == 4)
    seen = Seen(3, 12, period=found.period, error=0.15)  # how often is known of a period alone
    low, high = seen.bounds(1.5)
    assert (high - low < 0.5) == (period is not None)


def test_ranks_that_pause_in_the_same_steps_do_so_together(tmp_path: Path) -> None:
    (found,) = causes(tmp_path, {1: 6.0, 4: 6.0}, {1: 6.0, 4: 6.0})
    assert found.rank is None


@pytest.mark.parametrize("pauses_ms", [{1: 4.0, 4: 15.0}, {2: 8.0}, {2: 0.5, 5: 0.5}])
def test_unlike_ones_short_ones_and_a_single_one_that_may_be_a_turn_are_none(
    pauses_ms: dict[int, float], tmp_path: Path
) -> None:
    assert causes(tmp_path, {}, pauses_ms) == []


@pytest.mark.parametrize(("stops", "told"), [(2, 1), (4, 0)])
def test_two_alike_among_more_as_long_at_other_places_are_turns(stops: int, told: int, tmp_path: Path) -> None:
    """A thread that holds the interpreter's lock stops a host anywhere: two of 55 stops were told, as 12 ms."""

    def also_elsewhere(trace: HostTrace, number: int) -> None:
        for place in range(stops):
            trace.kernel(f"aten::op{place}", KERNEL_US)
            trace.idle(5e3 if trace.rank == 1 and number == place % 3 else 0.0)

    found = causes(tmp_path, {}, {1: 6.0, 4: 6.1}, before=also_elsewhere)
    assert [one.rank for one in found] == [1] * told


def test_a_checkpoint_of_many_tensors_is_one_pause_with_all_of_its_gaps(tmp_path: Path) -> None:
    """Pickling, then a tensor after another: *unsteady* was said, and a third of it told as two stalls."""

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, 4.0)  # no queue hides any of it
        backward(trace, 4.0)
        optimise(trace)
        if number % 3 == 1:
            trace.idle(18_000.0)
            for _ in range(60):
                with trace.inside("cpu_op", "aten::copy_"):
                    trace.item()
                trace.idle(600.0)
            with trace.inside("cpu_op", "aten::empty"):
                trace.python()
            trace.idle(5_000.0)

    path = HostTrace(0, 1).steps(5, step).write(tmp_path)
    (told,) = analyze([path], jobs=1)
    assert isinstance(told, RunAnalysis)
    first = told.findings[0]
    assert first.code == "host_stall", "not the steps' differing"
    assert first.ms == pytest.approx(2 / 5 * (18 + 60 * 0.6 + 5), rel=0.15)
    assert [one.code for one in told.findings].count("host_stall") == 1
    assert "in 2 of 5 steps" in because(first)


def test_a_host_that_launches_more_slowly_in_some_steps_does_not_stand_still_in_them(tmp_path: Path) -> None:
    """45 gaps of 70 µs at one place, few of which are counted, are of 120 in three steps, where all are: 5.4 ms."""

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, 4.0)
        backward(trace, 4.0)
        optimise(trace)
        for at in range(60):
            with trace.inside("cpu_op", "aten::copy_"):
                trace.item()
            trace.idle(70.0 if at < 3 else 120.0 if number % 3 == 1 else 12.0)

    HostTrace(0, 1).steps(5, step).write(tmp_path)
    assert _now_and_then(tmp_path) == []


def test_a_single_long_one_is_told_and_may_cost_nothing_in_other_steps(tmp_path: Path) -> None:
    (found,) = causes(tmp_path, {2: 45.0}, {})
    assert found.rank == 0 and sum(ns > 0 for ns in found.ns) == 1


def test_the_verdict_names_the_rank_that_sleeps_in_every_third_step_of_a_real_job() -> None:
    """Two ranks on two cores under gloo; rank 1 slept for 60 ms in two of the six recorded steps, 20 ms a step.

    *In 2 of 6 steps* was all that was said of which.
    """
    (analysis,) = analyze([DATA / "cpu_now_and_then_n2"], jobs=1)
    assert isinstance(analysis, RunAnalysis)
    found = analysis.findings[0]
    assert (found.code, found.rank) == ("host_stall", 1)
    assert found.ms == pytest.approx(20.0, rel=0.2)
    assert found.low_ms is not None and found.high_ms is not None and 0 < found.low_ms < 20 < found.high_ms
    headline = run_verdict(analysis).headline
    assert found.fraction is not None and found.fraction < 0.9, "of a step with its share of them"
    assert (
        "rank 1 costs 20.1 ms (5.8 ms to 42.3 ms) a step in the mean. Its host" in headline
        and "for 60." in headline
        and "in 2 of 6 steps (the 3rd and 6th, 3 steps apart)" in headline
    )


def test_how_often_a_few_steps_tell() -> None:
    low, high = share_95(2, 6)
    assert 0.09 < low < 0.11 and 0.69 < high < 0.71
    assert share_95(0, 5)[0] == 0.0 and share_95(5, 5)[1] == 1.0


def test_what_the_one_rank_of_a_job_does_in_some_steps_is_told_once(tmp_path: Path) -> None:
    """*A stalled host may cost as much* stood in the first sentence beside the same stall of *rank 0*."""

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, 10.0)
        backward(trace, 10.0)
        optimise(trace)
        if number % 4 == 3:  # it saves
            trace.synchronise()
            trace.idle(20_000.0)

    path = HostTrace(0, 1).steps(14, step).write(tmp_path)
    (told,) = analyze([path], jobs=1)
    assert isinstance(told, RunAnalysis)
    assert [one.code for one in told.findings].count("host_stall") == 1
    assert told.findings[0].code == "host_stall" and told.findings[0].ms == pytest.approx(5.0, rel=0.01)
    assert "may cost as much" not in run_verdict(told).headline


def test_a_pause_that_may_be_the_jobs_own_is_said_to_be_taken_for_recordings_begin(tmp_path: Path) -> None:
    """One window cannot tell them apart: the step without it was told as if it could."""

    def step(trace: HostTrace, number: int) -> None:
        for at in range(30):
            trace.kernel("aten::mm", 200.0)
            if number == 0 and at == 3:
                trace.idle(80_000.0)

    HostTrace(0, 1).steps(4, step).write(tmp_path)
    (run,) = analyze([tmp_path], jobs=1)
    assert isinstance(run, RunAnalysis)
    assert any("stands still once, for 80 ms" in reason and "later have it, too" in reason
               for reason in run.quality.reasons)  # fmt: skip
