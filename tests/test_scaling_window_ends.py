"""Where a window begins and ends, recording itself makes steps unlike the others: that is no cause of the job's."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from scalescope.report.text.findings import because
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import AsRun, Quality, RunAnalysis
from scalescope.scaling.answer_rows import PARTS, StepSplit
from scalescope.scaling.as_run.untraced import given_steps
from scalescope.scaling.evidence.compare import compare_hosts
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.ranks.read import read_ranks
from scalescope.scaling.trace.sources import find_sources
from scalescope.scaling.verdicts.now_and_then import with_now_and_then
from tests.host_traces import HostTrace, backward, forward, optimise, plain_step


def split(rank: int, step: int, *, open_ended: bool = False, **parts: float) -> StepSplit:
    taken = {f"{part}_ms": parts.get(part, 0.0) for part in PARTS}
    return StepSplit(rank=rank, step=step, window_ms=sum(parts.values()), open_ended=open_ended, **taken)  # type: ignore[arg-type]


@pytest.mark.parametrize(("last", "told"), [(4.8, []), (0.0, ["host_stall"])])
def test_a_queue_that_has_run_dry_is_no_stall_of_some_steps(last: float, told: list[str]) -> None:
    """A rank of which recording makes the host slower than the device: it waits in all steps once its lead is used up.

    *Its host stands still in 2 of 4 steps* was told first, of a rank with work of its own. What ends again is a stall.
    """
    run = RunAnalysis(
        name="x", world_size=2, activity="gpu", quality=Quality(verdict="good"), steps_by="profiler"
    )  # fmt: skip
    for step, idle in enumerate((0.0, 0.0, 5.2, 8.4, last)):
        run.steps.append(split(0, step, open_ended=step == 4, compute=3.3, exposed_wait=8.7 + idle))
        run.steps.append(split(1, step, open_ended=step == 4, compute=12.0, idle_launch=idle))
    assert [one.code for one in with_now_and_then([], run)] == told


@pytest.mark.parametrize(("pace", "code"), [(1.0, "host_stall"), (1.8, "unsteady"), (None, "host_stall")])
def test_a_host_that_takes_longer_for_everything_in_some_steps_is_slowed_and_does_not_stall(
    pace: float | None, code: str
) -> None:
    """Four undisturbed H100s, whose hosts were slowed for 60 ms: *rank 3's host keeps nothing running*, it said."""
    run = RunAnalysis(name="x", world_size=2, activity="gpu", quality=Quality(verdict="good"), steps_by="profiler")
    for step in range(6):
        late = 40.0 if step in (2, 5) else 0.0
        run.steps.append(split(0, step, compute=26.0, exposed_wait=1.0 + late))
        run.steps.append(split(1, step, compute=26.0, idle_launch=1.0 + late))
        run.steps[-1].host_pace = pace if late else pace and 1.0
    (found,) = with_now_and_then([], run)
    assert found.code == code and found.rank == (None if code == "unsteady" else 1)
    assert found.ms == pytest.approx(40.0 / 3)
    if code == "unsteady":
        said = because(found)
        assert said.startswith("in 2 of 6 profiled steps rank 1's host takes 1.8 times as long for everything")
        assert found.remedy is not None and found.remedy.cure == "measure_again"


@pytest.mark.parametrize(("step_ms", "told"), [(27.0, []), (60.0, ["unsteady"])])
def test_hosts_that_other_work_slowed_while_recorded_cost_a_given_step_nothing_that_its_devices_fill(
    step_ms: float, told: list[str]
) -> None:
    """*Unsteady steps cost 19.2 ms* was said first of a healthy job whose step of 24.6 ms is 94.9% compute."""
    run = RunAnalysis(name="x", world_size=2, activity="gpu", quality=Quality(verdict="good"), steps_by="profiler")
    for step in range(6):
        late = 40.0 if step in (2, 5) else 0.0
        run.steps.append(split(0, step, compute=26.0, exposed_wait=1.0 + late))
        run.steps.append(split(1, step, compute=26.0, idle_launch=1.0 + late, exposed_wait=0.0))
        run.steps[-1].host_pace = 1.8 if late else 1.0
    told_of = with_now_and_then([], run, room_ms=step_ms - 26.0)
    assert [one.code for one in told_of] == told


@pytest.mark.parametrize(("step_ms", "told"), [(22.5, []), (60.0, ["host_stall"])])
def test_steps_that_may_be_long_by_chance_cost_a_given_step_nothing_that_its_devices_fill(
    step_ms: float, told: list[str]
) -> None:
    """*Rank 0 may cost 6.0 ms, or nothing* was said before what rank 1 alone runs, of a step of 22.5 ms of which 21.6
    are compute: recorded hosts had been late in two of its four steps.
    """
    run = RunAnalysis(name="x", world_size=2, activity="gpu", quality=Quality(verdict="good"), steps_by="profiler")
    for step, late in enumerate((0.0, 0.0, 11.0, 13.0)):
        run.steps.append(split(0, step, compute=21.6, idle_launch=1.0 + late))
        run.steps.append(split(1, step, compute=21.6, exposed_wait=1.0 + late))
    (found,) = with_now_and_then([], run)
    assert found.low_ms == 0.0 and found.ms == 6.0
    assert [one.code for one in with_now_and_then([], run, room_ms=step_ms - 21.6)] == told


@pytest.mark.parametrize(
    ("activity", "pace", "code"),
    [("cpu", 1.6, "unsteady"), ("cpu", 1.0, "more_work"), ("cpu", 1.3, "more_work"), ("gpu", 1.6, "more_work")],
)
def test_a_host_that_computes_for_longer_by_as_much_as_each_of_its_operators_has_no_more_to_do(
    activity: Literal["cpu", "gpu"], pace: float, code: str
) -> None:
    """Two ranks on two quiet cores, of which one was slowed in two steps of eight: *more work* of it was told, 78.8 ms.

    Who validates runs more operators, as quick as ever; where devices compute, hosts' operators say nothing of that.
    """
    run = RunAnalysis(name="x", world_size=2, activity=activity, quality=Quality(verdict="good"), steps_by="profiler")
    for step in range(8):
        more = 80.0 if step in (5, 6) else 0.0
        run.steps.append(split(0, step, compute=130.0, exposed_wait=10.0 + more))
        run.steps.append(split(1, step, compute=130.0 + more, exposed_wait=10.0))
        run.steps[-1].host_pace = pace if more else 1.0
    (found,) = with_now_and_then([], run)
    assert found.code == code and found.rank == (None if code == "unsteady" else 1)
    assert ("rank 1's host takes 1.6 times as long for everything" in because(found)) == (code == "unsteady")


@pytest.mark.parametrize(("compute", "code"), [(30.0, "more_work"), (10.0, "host_stall")])
def test_steps_that_launch_more_have_more_work_and_their_hosts_do_not_stand_still(compute: float, code: str) -> None:
    """Validation in every third step, of a model bound by its launches, which recording makes longer like the others.

    Its launches are no part of what launching may cost in the other steps.
    """
    run = RunAnalysis(
        name="x", world_size=1, activity="gpu", quality=Quality(verdict="good"), steps_by="profiler",
        as_run=AsRun(step_ms=60.0, low_ms=50.0, high_ms=70.0, source="given"),
    )  # fmt: skip
    for step in range(6):
        long = step in (1, 4)
        idle = 30.0 + (120.0 + 10.0 + (20.0 - (compute - 10.0)) if long else 0.0)
        run.steps.append(split(0, step, compute=compute if long else 10.0, idle_launch=idle))
    run.steps.append(split(0, 6, open_ended=True, compute=10.0, idle_launch=30.0))
    launching = Finding(
        code="host_bound", ms=50.0, low_ms=45.0, high_ms=55.0, fraction=0.8, backed="replay", at_most=True
    )
    others = [
        msgspec.structs.replace(launching, rank=0, ms=9.0),
        msgspec.structs.replace(launching, code="copies", ms=8.0),
    ]
    first, *rest = with_now_and_then([launching, *others], run)
    assert first.code == code and rest[1:] == others
    if code == "more_work":
        mean = (6 * 40.0 + 2 * 150.0) / 6
        assert first.ms == pytest.approx(2 * 150.0 / 6 * 60.0 / mean)
        for ms, was in zip((rest[0].ms, rest[0].low_ms, rest[0].high_ms), (50.0, 45.0, 55.0), strict=True):
            assert ms == pytest.approx(was - 2 * 130.0 / 6 * 60.0 / mean)
        assert rest[0].ms is not None and rest[0].fraction == pytest.approx(0.8 * rest[0].ms / 50.0)
        assert first.ms is not None and first.fraction == pytest.approx(first.ms / 60.0)
        run.as_run = None
        (recorded, *_) = with_now_and_then([], run)
        shares = ((first.low_ms, recorded.low_ms, 50.0), (first.high_ms, recorded.high_ms, 70.0))
        for end, as_recorded, share in ((first.ms, recorded.ms, 60.0), *shares):
            assert end is not None and as_recorded is not None and end == pytest.approx(as_recorded * share / mean)
        assert "compute 3.00× as long as in the others, and launch more, as in validation" in because(first)
    else:
        assert first.ms == pytest.approx(2 * 150.0 / 6), "what stands still is not launched, and not recorded"
        assert rest[0] == launching


def run_of(folder: Path, pauses_ms: dict[int, float]) -> RunAnalysis:
    """Return the analysis of a job bound by its host, which stands still for so many ms in the middle of some steps."""
    numbers = count()

    def step(trace: HostTrace, _: int) -> None:
        forward(trace, 10.0)
        trace.idle(1e3 * pauses_ms.get(next(numbers), 0.0))
        backward(trace, 10.0)
        optimise(trace)

    HostTrace().steps(6, step).write(folder)
    (found,) = analyze([folder], jobs=1)
    assert isinstance(found, RunAnalysis)
    return found


def test_a_single_pause_where_recording_begins_is_no_stall_and_no_part_of_the_step_as_run(tmp_path: Path) -> None:
    """43 ms in the first of four steps was *may cost 9.6 ms, or nothing*, first, of a step of 23 ms that was told."""
    plain, opened, later = (
        run_of(tmp_path / name, pauses) for name, pauses in (("plain", {}), ("opened", {0: 45.0}), ("later", {2: 45.0}))
    )
    assert "host_stall" not in {one.code for one in opened.findings}
    assert "host_stall" in {one.code for one in later.findings}
    assert plain.as_run is not None and opened.as_run is not None
    assert opened.as_run.step_ms == pytest.approx(plain.as_run.step_ms, rel=0.02)
    assert opened.as_run.high_ms == pytest.approx(plain.as_run.high_ms, rel=0.05)


def ahead(trace: HostTrace) -> None:
    forward(trace, 10.0)


def back(trace: HostTrace) -> None:
    backward(trace, 10.0)


def test_a_pause_is_no_interruption_of_a_starved_host_besides(tmp_path: Path) -> None:
    """With two short interruptions it made three, which is what a host without a core of its own has at least."""
    for rank in (0, 1):
        stands_still = {(0, "middle"): 45.0, (1, "before"): 0.5, (3, "after"): 0.9} if rank else {}
        numbers = count()

        def step(trace: HostTrace, _: int, own: dict[tuple[int, str], float] = stands_still) -> None:
            at = next(numbers)  # noqa: B023 - one rank after another
            for place, work in (("before", ahead), ("middle", back), ("after", optimise)):
                trace.kernel(f"aten::{place}", 5.0)
                trace.idle(1e3 * own.get((at, place), 0.0))
                work(trace)

        HostTrace(rank, 2).steps(4, step).write(tmp_path)
    summaries = read_ranks(find_sources(tmp_path)).summaries
    hosts = {rank: one.host_evidence for rank, one in summaries.items() if one.host_evidence is not None}
    assert "host_starved" not in {one.code for one in compare_hosts(hosts)}


def calls_alone(trace: HostTrace) -> None:
    for at in range(30):
        trace.idle(8.0)
        number = trace.call("LaunchKernel")
        begin = max(trace.clock, trace.device_free)
        trace.on_device(f"kernel_{at}" if at in (0, 29) else "gemm", "kernel", begin, 60.0, number)
    number = trace.call("MemcpyAsync")
    begin = max(trace.clock, trace.device_free)
    trace.on_device("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", begin, 1.0, number)
    trace.synchronise()


def with_operators(trace: HostTrace) -> None:
    for _ in range(2):
        trace.kernel("aten::to", 5.0, "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy")
    for at in range(30):
        trace.kernel("aten::addmm", 60.0, f"kernel_{at}" if at in (0, 29) else "gemm")
    trace.item()


@pytest.mark.parametrize("steps", [3, 5])
@pytest.mark.parametrize("work", [calls_alone, with_operators])
def test_what_follows_the_last_launch_of_a_window_is_not_taken_for_a_step_without_it(
    work: Callable[[HostTrace], None], steps: int, tmp_path: Path
) -> None:
    """Where kernels' sequence tells the steps, the last one's sleep comes after all that it launches.

    Of 15.7 ms in each step, 11.8 were told; of three steps, 6 ms in two of them.
    """
    trace = HostTrace()
    for _ in range(steps):
        work(trace)
        trace.idle(6_000.0)
    trace.write(tmp_path)
    (found,) = analyze([tmp_path])
    assert isinstance(found, RunAnalysis) and found.steps_by == "period"
    first = found.findings[0]
    assert first.code == "host_stall" and first.ms == pytest.approx(6.0, rel=0.03)


def test_what_comes_before_a_graph_that_begins_a_step_is_before_the_last_step_too(tmp_path: Path) -> None:
    """No call of its own launches a graph's first kernel. Of 12.2 ms in each of four steps, 9.2 were told."""

    def step(trace: HostTrace, _: int) -> None:
        trace.kernel("aten::to", 5.0, "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy")
        begin = max(trace.clock, trace.device_free)
        number = trace.call("GraphLaunch")
        for _ in range(40):
            trace.on_device("gemm", "kernel", max(begin + 5.0, trace.device_free), 50.0, number)
        trace.item()
        trace.idle(6_000.0)

    HostTrace().steps(5, step).write(tmp_path)
    (found,) = analyze([tmp_path])
    assert isinstance(found, RunAnalysis)
    first = found.findings[0]
    assert first.code == "host_stall" and first.ms == pytest.approx(6.0, rel=0.03)


@pytest.mark.parametrize("long", [{2}, {1, 4}])
def test_what_some_steps_have_costs_what_a_known_mean_step_has_beyond_the_others(
    long: set[int], tmp_path: Path
) -> None:
    """40 ms in one or two of six steps of 4: nobody knows how often, but 14 ms in the mean of all steps are 10 of it.

    Of a checkpoint in every fourth step, one of three recorded, 0 to 90 ms were told where it was 26.
    """

    def step(trace: HostTrace, number: int) -> None:
        plain_step(trace, 60.0)
        trace.item()
        if number in long:
            trace.idle(40_000.0)

    HostTrace().steps(7, step).write(tmp_path)
    told, untold = (
        analyze([tmp_path], untraced=given_steps([ms], [tmp_path]) if ms else None)[0] for ms in (14.0, None)
    )
    assert isinstance(told, RunAnalysis) and isinstance(untold, RunAnalysis)
    first, without = told.findings[0], untold.findings[0]
    assert first.code == without.code == "host_stall"
    assert first.ms == pytest.approx(10.0, rel=0.03)
    assert first.low_ms == pytest.approx(9.5, abs=0.1) and first.high_ms == pytest.approx(10.5, abs=0.1)
    assert without.low_ms is not None and without.high_ms is not None and without.high_ms > 20.0 > without.low_ms
