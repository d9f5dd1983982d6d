"""Pipelines: waiting between stages is a bubble, told beside the schedule's own, with the stage that is slow."""

from pathlib import Path
from typing import Any

import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.run import explain_jobs
from tests.host_traces import HostTrace

STAGES, MICRO_BATCHES = 2, 4
STEP_US = 40_000.0


def transfer(trace: HostTrace, source: int, destination: int, begin: float, end: float, launch: float) -> None:
    """A send or a receive, whose kernel waits for its partner from `begin` on and moves data up to `end`, µs."""
    trace.clock = launch
    number = trace.call("LaunchKernel")
    name = "send" if trace.rank == source else "recv"
    told: dict[str, Any] = {"Collective name": name, "In msg nelems": 1 << 20,
            "Out msg nelems": 1 << 20, "dtype": "Float",
            "Group size": 2, "Process Group Name": "4", "Process Group Ranks": "[0, 1]", "Src Rank": source,
            "Dst Rank": destination, "Process Group Description": "mesh_pp", "correlation": number,
            "stream": 30 + source, "device": trace.rank}  # fmt: skip
    trace.event("kernel", "ncclDevKernel_SendRecv(x)", begin, end, 30 + source, trace.rank, **told)


def hand_over(trace: HostTrace, ways: list[tuple[int, int]], begin: float, end: float) -> None:
    """Sends and receives that are called one by one, and launched together afterwards: the kernel says nothing."""
    for source, destination in ways:
        told: dict[str, Any] = {"Collective name": "send" if trace.rank == source else "recv",
                "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float", "Group size": 2,
                "Process Group Name": "4", "Process Group Ranks": "[0, 1]", "Src Rank": source, "Dst Rank": destination,
                "Process Group Description": "mesh_pp"}  # fmt: skip
        start, trace.clock = trace.clock, trace.clock + 3
        trace.event("cpu_op", "record_param_comms", start, trace.clock, trace.thread, **told)
        trace.python()
    number = trace.call("LaunchKernelExC")
    trace.event("kernel", "ncclDevKernel_SendRecv(x)", begin, end, 31, trace.rank, correlation=number, stream=31,
                device=trace.rank)  # fmt: skip


def coalesced_step(trace: HostTrace, number: int) -> None:
    """Stage 0 sends two activations, gets a gradient beside the second, and one after: 1F1B's kernels."""
    zero = 1_000.0 + number * 10_000.0
    trace.clock = zero
    compute(trace, "gemm", zero, 1_000.0, zero)
    for at, ways in enumerate(([(0, 1)], [(0, 1), (1, 0)], [(1, 0)])):
        trace.clock = zero + 50.0 + 100.0 * at
        hand_over(trace, ways, zero + 1_500.0 + 2_000.0 * at, zero + 1_510.0 + 2_000.0 * at)
    compute(trace, "gemm", zero + 8_000.0, 1_000.0, trace.clock + 5)


def compute(trace: HostTrace, name: str, begin: float, us: float, launch: float) -> None:
    trace.clock = launch
    number = trace.call("LaunchKernel")
    trace.event("kernel", name, begin, begin + us, 7, trace.rank, correlation=number, stream=7, device=trace.rank)


def gpipe_step(trace: HostTrace, number: int, forward: tuple[float, float]) -> None:
    """All forward passes, then all backward ones of twice the length; stage 1 is the last. Sends take 10 µs."""
    zero = 1_000.0 + number * STEP_US
    launch = zero
    clocks = [zero, zero]
    for step_name, order in (("forward", (0, 1)), ("backward", (1, 0))):
        first, second = order
        us = [part * (1 if step_name == "forward" else 2) for part in forward]
        sent = []
        for _ in range(MICRO_BATCHES):
            clocks[first] += us[first]
            sent.append(clocks[first])
            if trace.rank == first:
                compute(trace, f"gemm_{step_name}", clocks[first] - us[first], us[first], launch)
                transfer(trace, first, second, clocks[first], clocks[first] + 10, launch)
        if step_name == "backward":
            clocks[second] = max(clocks[second], zero)
        for ready in sent:
            begin = max(clocks[second], ready + 10)
            if trace.rank == second:
                transfer(trace, first, second, min(clocks[second], ready), ready + 10, launch)
                compute(trace, f"gemm_{step_name}", begin, us[second], launch)
            clocks[second] = begin + us[second]
        if step_name == "forward":
            clocks[first] = max(clocks[first], clocks[second] - 0.0) if first == 1 else clocks[first]
    trace.clock = zero + 200


def analysed(folder: Path, forward: tuple[float, float]) -> RunAnalysis:
    for rank in range(STAGES):
        made = HostTrace(rank, STAGES).steps(4, lambda trace, number: gpipe_step(trace, number, forward))
        made.write(folder)
    return explain_jobs(folder, 1)[0].analysis


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> RunAnalysis:
    return analysed(tmp_path_factory.mktemp("slow"), (1_000.0, 1_500.0))


def test_micro_batches_are_counted_and_the_schedules_bubble_follows(slow: RunAnalysis) -> None:
    (row,) = slow.pipelines
    assert row.stages == [0, 1] and row.micro_batches == MICRO_BATCHES
    assert row.schedule_bubble == pytest.approx(1 / 5)


def test_the_slow_stage_is_named(slow: RunAnalysis) -> None:
    (row,) = slow.pipelines
    assert row.slow_rank == 1
    assert "rank 1's stage computes 1.50× as long as the others'" in run_verdict(slow).text


def test_a_slow_stage_is_to_be_evened_out_before_more_micro_batches(tmp_path: Path) -> None:
    """*More micro-batches* was the advice, for all of the bubble: they leave the slow stage as long as it computes, and
    mend no more of the bubble than is the schedule's own, at the slow stage's pace.
    """
    run = analysed(tmp_path, (1_000.0, 1_900.0))
    (row,) = run.pipelines
    even, batches = [one for one in run.findings if one.code == "pipeline_bubble"]
    assert even.remedy is not None and even.remedy.cure == "even_stages"
    assert even.ms == pytest.approx((row.compute_ms[1] - row.compute_ms[0]) / 2) and even.at_most
    assert batches.remedy is not None and batches.remedy.cure == "more_micro_batches"
    assert row.micro_batches == 4 and batches.ms == pytest.approx(row.compute_ms[1] / 4)
    assert (batches.ms or 0.0) < row.bubble_ms / row.bubble - row.compute_ms[1]
    verdict = run_verdict(run)
    assert "even the pipeline's stages out" in verdict.advice and "1.90× as long" in verdict.headline


def test_the_bubble_is_what_stages_stand_idle(slow: RunAnalysis) -> None:
    (row,) = slow.pipelines
    steps = sum(rank.steps for rank in slow.ranks)
    busy = sum(rank.compute_ms + rank.exposed_transfer_ms + rank.exposed_memory_ms for rank in slow.ranks)
    window = sum(rank.window_ms for rank in slow.ranks)
    assert row.bubble == pytest.approx(1 - busy / window, abs=0.01)
    assert row.bubble_ms == pytest.approx((window - busy) / steps, rel=0.02)


def test_even_stages_have_no_slow_one(tmp_path: Path) -> None:
    (row,) = analysed(tmp_path, (1_000.0, 1_000.0)).pipelines
    assert row.slow_rank is None


def test_kernels_of_sends_handed_over_together_are_what_was_called_before(tmp_path: Path) -> None:
    for rank in range(STAGES):
        HostTrace(rank, STAGES).steps(4, coalesced_step).write(tmp_path)
    found = explain_jobs(tmp_path, 1)[0].analysis
    (row,) = found.pipelines
    assert row.stages == [0, 1] and row.micro_batches == 2
    assert {one.operation for one in found.collectives} == {"send_recv"}
    assert all(one.group == "4" and one.bytes == 4 << 20 for one in found.collectives)
    assert [group.role for group in found.groups] == ["pp"]


def test_a_server_of_parameters_is_no_stage(tmp_path: Path) -> None:
    """It has no backward pass, and others do: *use more micro-batches* was what to do about a slow one."""

    def step(trace: HostTrace, number: int, backward: bool) -> None:
        coalesced_step(trace, number)
        if backward:
            with trace.backward():
                trace.node("AddmmBackward0", 500.0)

    def worker(trace: HostTrace, number: int) -> None:
        step(trace, number, True)

    def other(trace: HostTrace, number: int) -> None:
        step(trace, number, False)

    for first, stages in ((worker, 1), (other, 0)):
        for rank, does in enumerate((first, worker)):
            HostTrace(rank, STAGES).steps(4, does).write(tmp_path)
        found = explain_jobs(tmp_path, 1)[0].analysis
        assert len(found.pipelines) == stages


def interleaved_step(trace: HostTrace, number: int) -> None:
    """What two ranks of two stages each exchange for two micro-batches: activations three times, gradients as often."""
    zero = 1_000.0 + number * 20_000.0
    trace.clock = zero
    compute(trace, "gemm", zero, 1_000.0, zero)
    for at in range(6):
        for way in ((0, 1), (1, 0)):
            begin = zero + 1_500.0 + 2_000.0 * at + 100.0 * way[0]
            trace.clock = zero + 50.0 + 100.0 * at + 20.0 * way[0]
            transfer(trace, *way, begin, begin + 10, trace.clock)
    compute(trace, "gemm", zero + 16_000.0, 1_000.0, trace.clock + 5)


@pytest.mark.parametrize("annotated", [True, False])
def test_an_interleaved_schedule_of_two_ranks_is_told_by_its_annotations_alone(annotated: bool, tmp_path: Path) -> None:
    for rank in range(STAGES):
        trace = HostTrace(rank, STAGES).steps(4, interleaved_step)
        for stage in (rank, rank + STAGES) if annotated else ():
            for action in ("F0", "F1", "B0", "SEND_F1"):
                trace.event("user_annotation", f"PP:{stage}{action}", 1_000.0, 1_001.0, trace.thread)
        trace.write(tmp_path)
    (row,) = explain_jobs(tmp_path, 1)[0].analysis.pipelines
    if annotated:
        assert (row.stages_per_rank, row.micro_batches) == (2, 2)
        assert row.schedule_bubble == pytest.approx(1 / (2 * 2 + 1))
    else:  # as a plain schedule of so many
        assert (row.stages_per_rank, row.micro_batches) == (1, 6)
