"""What holds one host up and what all hosts do alike: which of the two is the cause, and what the step is without it.

The jobs are made up, two ranks in lockstep, so every expected figure is arithmetic.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from scalescope import RunAnalysis, analyze
from scalescope.report.text.findings import because
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.hosts.by_chance import may_be_chance
from tests.host_traces import HostTrace, forward

KERNEL_US, TRANSFER_US = 60.0, 200.0
Step = Callable[[HostTrace, int], None]
REPORTED = {"Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float",
            "Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}  # fmt: skip


def in_lockstep(folder: Path, before: Step, after: Step, steps: int = 6) -> list[HostTrace]:
    """Write the traces of two ranks that reduce their gradients in each step, between what they do before and after."""
    ranks = [HostTrace(rank, 2) for rank in range(2)]
    for number in range(steps):
        begun, arrived = [], []
        for trace in ranks:
            begun.append(trace.clock)
            before(trace, number)
            with trace.inside("cpu_op", "nccl:all_reduce"):
                arrived.append((max(trace.clock + 3.0, trace.device_free), trace.call("LaunchKernel")))
        end = max(begin for begin, _ in arrived) + TRANSFER_US
        for trace, start, (begin, launch) in zip(ranks, begun, arrived, strict=True):
            trace.event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", begin, end, 7, trace.rank,
                        correlation=launch, stream=7, device=trace.rank, **REPORTED)  # fmt: skip
            trace.device_free = end
            trace.kernel("aten::_foreach_add_", KERNEL_US)
            after(trace, number)
            trace.event("user_annotation", f"ProfilerStep#{number + 3}", start, trace.clock, trace.thread)
            trace.idle(15.0)
    for trace in ranks:
        trace.write(folder)
    return ranks


def analysed(folder: Path, step_ms: float | None = None) -> RunAnalysis:
    analysis = analyze(folder, step_ms=step_ms)
    assert isinstance(analysis, RunAnalysis)
    return analysis


def read(trace: HostTrace, _: int) -> None:
    trace.item()


@pytest.mark.parametrize("often", ["each step", "some steps"])
def test_a_stall_of_one_host_comes_before_the_reads_of_all_by_which_it_shows(tmp_path: Path, often: str) -> None:
    """Without the reads the hosts would run ahead and hide the sleep; without the sleep the reads cost next to nothing.
    What one rank has and the others do not is the cause.
    """

    def work(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        trace.item()
        if trace.rank == 1 and (often == "each step" or number % 3 == 1):
            trace.idle(2_500.0)
        forward(trace, KERNEL_US)

    in_lockstep(tmp_path, work, read, steps=9)
    first, *others = analysed(tmp_path).findings
    assert (first.code, first.rank) == ("host_stall", 1)
    assert first.ms == pytest.approx(2.4 if often == "each step" else 0.8, rel=0.15)
    assert "wait for their devices 2 times a step" in because(first)
    assert sum(one.ms or 0.0 for one in others if one.code == "synchronising") < 0.5 * (first.ms or 0.0)


def test_a_shorter_step_than_the_traced_ones_is_no_contradiction_where_those_differ(tmp_path: Path) -> None:
    """Two of five steps have a stall that one in three has: the mean of so few is off by what they differ by."""

    def work(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        trace.item()
        trace.idle(2_500.0 if trace.rank == 1 and number % 3 == 1 else 0.0)

    in_lockstep(tmp_path, work, read)
    plain = analysed(tmp_path)
    assert plain.as_run is not None and plain.as_run.low_ms is not None
    told = analysed(tmp_path, 1.02 * plain.as_run.low_ms)  # its range has what they differ by in it
    assert told.as_run is not None and told.as_run.contradicts is None
    assert (told.findings[0].code, told.findings[0].rank) == ("host_stall", 1)
    far = analysed(tmp_path, 0.1 * plain.as_run.low_ms)
    assert far.as_run is not None and far.as_run.contradicts == "too_short"


def test_where_no_operators_were_recorded_quiet_is_no_stall(tmp_path: Path) -> None:
    """Hosts whose calls alone are recorded do what was not recorded between two of them; a gap that one alone has is
    told, by what it launches late.
    """

    def work(trace: HostTrace, number: int) -> None:
        trace.item()
        trace.idle(3_000.0)  # what all do, unrecorded
        for layer in range(20):
            trace.kernel("aten::addmm", KERNEL_US, f"gemm_{layer}")
            trace.idle(2_000.0 if trace.rank == stalled and layer == 10 else 0.0)

    for stalled in (None, 1):
        ranks = in_lockstep(folder := tmp_path / str(stalled), work, read)
        for trace in ranks:
            trace.events = [one for one in trace.events if one["cat"] not in ("cpu_op", "user_annotation")]
            trace.write(folder)
        analysis = analysed(folder)
        stalls = [one for one in analysis.findings if one.code in ("host_stall", "host_starved")]
        assert [one.rank for one in stalls] == ([] if stalled is None else [1])
        assert any("no operators in the traces of ranks 0, 1" in reason for reason in analysis.quality.reasons)


def keep(trace: HostTrace, us: float) -> None:
    """Copy a tensor into pageable memory, as `.cpu()` does: the call returns when the copy is through."""
    with trace.inside("cpu_op", "aten::to"), trace.inside("cpu_op", "aten::copy_"):
        trace.python(15.0)
        start = trace.clock
        begin = max(start + 3.0, trace.device_free)
        trace.device_free = begin + us
        trace.clock = trace.device_free + 10.0
        trace.correlation += 1
        trace.event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", begin, trace.device_free, 7, trace.rank,
                    correlation=trace.correlation, stream=7, device=trace.rank)  # fmt: skip
        trace.event("cuda_runtime", "cudaMemcpyAsync", start, trace.clock, trace.thread, correlation=trace.correlation)
        trace.synchronise()
    trace.python()


def test_what_one_rank_copies_to_its_host_costs_the_copies_their_operators_and_the_lead_of_its_host(
    tmp_path: Path,
) -> None:
    """A checkpoint of 60 tensors on rank 0 in each step: without, the step is that of a job that keeps nothing."""

    def work(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)

    def keeps(trace: HostTrace, number: int) -> None:
        for _ in range(60 if trace.rank == 0 else 0):
            keep(trace, 15.0)

    in_lockstep(tmp_path / "keeps", work, keeps)
    in_lockstep(tmp_path / "plain", work, lambda trace, number: None)
    analysis, plain = analysed(tmp_path / "keeps"), analysed(tmp_path / "plain")
    with_them, without = (next(one.window_ms for one in each.steps if one.rank == 0) for each in (analysis, plain))
    first, *others = analysed(tmp_path / "keeps", with_them).findings
    assert (first.code, first.rank) == ("copies", 0)
    assert first.ms == pytest.approx(with_them - without, rel=0.03)
    assert not [one for one in others if one.rank == 0]


PACE_US = 4_000.0
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@pytest.mark.parametrize("reads", [False, True])
def test_a_batch_of_a_worker_process_comes_no_sooner_for_what_recording_took_of_the_host(
    tmp_path: Path, reads: bool
) -> None:
    """One worker takes longer for a batch than the step: as run the host, which recording held up, waits for longer."""

    def loads(trace: HostTrace, number: int) -> None:
        start = trace.clock
        trace.clock = max(start + 20.0, PACE_US * (number + 1))
        trace.event("user_annotation", NEXT, start, trace.clock, trace.thread)
        work(trace, number)

    def work(trace: HostTrace, number: int) -> None:
        forward(trace, 4.0, layers=40)
        if reads:
            trace.item()

    in_lockstep(tmp_path / "loads", loads, lambda trace, number: None)
    in_lockstep(tmp_path / "plain", work, lambda trace, number: None)
    analysis, plain = analysed(tmp_path / "loads"), analysed(tmp_path / "plain")
    assert plain.as_run is not None and plain.as_run.step_ms is not None and plain.as_run.recording_ms is not None
    assert plain.as_run.recording_ms.value > 0.2  # which a host takes out of its step where nothing paces it
    assert analysis.as_run is not None and analysis.as_run.step_ms == pytest.approx(PACE_US / 1e3, rel=0.01)
    (loading,) = (one for one in analysis.findings if one.code == "data_loading")
    assert loading is analysis.findings[0]
    assert loading.ms == pytest.approx(PACE_US / 1e3 - plain.as_run.step_ms, rel=0.05)


def test_a_stall_costs_what_it_takes_and_not_what_its_host_takes_longer_elsewhere(tmp_path: Path) -> None:
    """Of FSDP2's hosts, which do much between launches, 18.6 ms were told of a stall of 15, and 11.9 of one of 9."""
    stall_us, places, views = 6_000.0, 12, 40

    def work(trace: HostTrace, _: int) -> None:
        if trace.rank == 1:
            trace.idle(stall_us)
        for _place in range(places):
            forward(trace, 5.0, layers=4)
            for _view in range(views):
                with trace.inside("cpu_op", "aten::view"):
                    trace.python(12.0 if trace.rank == 1 else 6.0)

    in_lockstep(tmp_path, work, read, steps=9)
    stall = next(one for one in analysed(tmp_path).findings if one.code == "host_stall")
    assert stall.rank == 1 and stall.ms == pytest.approx(stall_us / 1e3, rel=0.1)


@pytest.mark.parametrize(
    ("beyond_ms", "chance"),
    [
        ((0.40, 2.72, 0.0, 0.32, 0.0), True),  # an undisturbed host's
        ((6.3, 2.9, 3.5, 4.4, 2.7), False),  # one beside a thread that holds the interpreter's lock
        ((60.0, 0.0, 0.9, 0.0, 0.8), False),  # one whose core others have now and then
        ((2.0,), False),  # of a single step nothing tells
    ],
)
def test_a_host_that_is_interrupted_for_long_in_one_step_alone_may_be_so_by_chance(
    beyond_ms: tuple[float, ...], chance: bool
) -> None:
    """*Rank 0, a starved host: 1.8 ms (0.61 to 3.0)* was told beside the stall of another rank."""
    scene = cast("Scene", SimpleNamespace(replayer=SimpleNamespace(on_cpu=False), step_ms=26.0))
    starved = Candidate(code="host_starved", rank=0, beyond_ms=beyond_ms)
    assert may_be_chance(scene, starved) == chance
    assert not may_be_chance(scene, msgspec.structs.replace(starved, code="host_stall"))


@pytest.mark.parametrize(("longer_us", "alike"), [(8.0, True), (16.0, False)])
def test_a_stall_costs_what_it_takes_where_the_other_host_is_as_slow_by_chance(
    tmp_path: Path, longer_us: float, alike: bool
) -> None:
    """Of a stall of 7.3 ms *3.4* was told, and of loading of 7.5 ms *2.4 (2.0 to 4.7)*: the other rank's host
    took a third longer for the same launches in that window, and in no other step."""
    stall_us, operators = 2_000.0, 100

    def work(trace: HostTrace, _: int) -> None:
        if trace.rank == 1:
            trace.idle(stall_us)
        for _operator in range(operators):
            trace.kernel("aten::mm", 2.0)
            trace.python(10.0 + (longer_us if trace.rank == 0 else 0.0))

    in_lockstep(tmp_path, work, read, steps=9)
    stall = next(one for one in analysed(tmp_path).findings if one.code == "host_stall")
    left_ms = max(0.0, stall_us - operators * longer_us) / 1e3
    assert stall.rank == 1 and stall.low_ms is not None and stall.low_ms <= left_ms + 0.1
    assert stall.ms == pytest.approx(stall_us / 1e3 if alike else left_ms, abs=0.15)


def test_two_hosts_that_stall_alike_cost_together_what_one_takes(tmp_path: Path) -> None:
    """Each of two stalls of 2.0 ms was told to cost all of it, since the other host was as slow *by chance*."""
    stall_us = 2_000.0

    def work(trace: HostTrace, _: int) -> None:
        for at in range(500):
            if at == (0 if trace.rank == 1 else 250):
                trace.idle(stall_us)
            trace.kernel("aten::mm", 2.0)
            trace.python(10.0)

    in_lockstep(tmp_path, work, read, steps=9)
    stalls = [one for one in analysed(tmp_path).findings if one.code == "host_stall"]
    assert {one.rank for one in stalls} == {0, 1}
    assert sum(one.ms or 0.0 for one in stalls) == pytest.approx(stall_us / 1e3, rel=0.1)
