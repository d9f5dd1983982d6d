"""What reading values off a device costs: the waits, the copies, and what computes values that are read in a row.

The jobs are made up, so the expected figure is a job's step that reads nothing.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from scalescope import RunAnalysis, analyze
from scalescope.report.text.findings import because
from scalescope.scaling.as_run.calibrate import ON_DEVICES
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.load import read_records
from scalescope.scaling.replay.removal import Removal, What
from scalescope.scaling.replay.whatif.replayer import Replayer
from tests.host_traces import HostTrace, backward, forward, optimise

KERNEL_US, NORM_US = 60.0, 8.0
READS = 40


def _replayer(folder: Path, between: Callable[[HostTrace], None] | None) -> Replayer:
    """Return the replay of a job that reads a value so many times after its backward pass, with this before each."""

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        backward(trace, KERNEL_US)
        for _ in range(READS if between is not None else 0):
            assert between is not None
            between(trace)
            trace.item()
            trace.python(10.0)
        optimise(trace)

    HostTrace().steps(6, step).write(folder)
    return Replayer(read_records(folder))


def _norm(trace: HostTrace) -> None:
    trace.kernel("aten::linalg_vector_norm", NORM_US, "reduce_kernel<512, 1, NormTwoOps>")


def _product(trace: HostTrace) -> None:
    trace.kernel("aten::mm", NORM_US, "nvjet_128x256_TNT")


def _without(replayer: Replayer, what: What) -> float:
    step_ms = replayer.predict(Change(without=(Removal(what),))).step_ms
    assert step_ms is not None
    return step_ms


def test_norms_that_are_read_one_after_another_go_with_all_that_is_for_them(tmp_path: Path) -> None:
    """Each costs its wait, its copy, its kernel and the launches: without, the step is that of a job without norms."""
    replayer, plain = _replayer(tmp_path / "reads", _norm), _replayer(tmp_path / "plain", None)
    assert replayer.base_ns > plain.base_ns + READS * 20_000
    assert _without(replayer, "reads") == pytest.approx(plain.base_ns / 1e6, rel=0.01)
    # what is sure: the kernels may be there for another reason
    kept = READS * NORM_US / 1e3
    assert _without(replayer, "waits") - _without(replayer, "reads") == pytest.approx(kept, rel=0.25)


def test_what_a_model_computes_between_two_reads_is_not_for_the_reads(tmp_path: Path) -> None:
    replayer = _replayer(tmp_path, _product)
    assert _without(replayer, "reads") == pytest.approx(_without(replayer, "waits"), rel=1e-3)


def test_a_rank_that_reads_norms_alone_has_no_work_of_its_own_beside(tmp_path: Path) -> None:
    """Its kernels are for the reads: they are one cause, not two of half the size; its least is without the kernels."""

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        backward(trace, KERNEL_US)
        for _ in range(READS if trace.rank == 1 else 0):
            _norm(trace)
            trace.item()
        optimise(trace)

    for rank in range(2):
        HostTrace(rank, 2).steps(6, step).write(tmp_path)
    analysis = analyze(tmp_path)
    assert isinstance(analysis, RunAnalysis)
    (found,) = (one for one in analysis.findings if one.rank == 1)
    assert found.code == "synchronising" and "0.32 ms of kernels compute what is read" in because(found)


def test_what_waits_cost_a_step_that_is_told_may_be_more_by_what_recording_slows_devices(tmp_path: Path) -> None:
    """Devices take up to 2.5% longer while recorded: of the told step that much is idle, not computed."""

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        trace.synchronise("DeviceSynchronize")
        for _ in range(40):
            with trace.inside("cpu_op", "aten::view"):
                trace.python(4.0)
        backward(trace, KERNEL_US)
        optimise(trace)

    HostTrace().steps(6, step).write(tmp_path)
    traced_ms = Replayer(read_records(tmp_path)).base_ns / 1e6
    analysis = analyze(tmp_path, step_ms=0.98 * traced_ms)
    assert isinstance(analysis, RunAnalysis) and analysis.as_run is not None and analysis.as_run.source == "given"
    (found,) = (one for one in analysis.findings if one.code == "synchronising")
    assert found.ms is not None and found.high_ms is not None
    assert found.high_ms - found.ms >= ON_DEVICES * (0.98 * traced_ms - found.ms)


def _read_in_one_call(trace: HostTrace) -> None:
    """Read a figure as pageable memory is copied to: the call itself returns once the copy is through."""
    with trace.inside("cpu_op", "aten::copy_"):
        trace.correlation += 1
        start, number = trace.clock, trace.correlation
        begin = max(start + 3.0, trace.device_free)
        trace.device_free = begin + 1.0
        trace.event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", begin, begin + 1.0, 7, trace.rank,
                    correlation=number, stream=7, device=trace.rank)  # fmt: skip
        trace.clock = begin + 8.0
        trace.event("cuda_runtime", "cudaMemcpyAsync", start, trace.clock, trace.thread, correlation=number)


def test_a_figure_that_is_read_costs_its_wait_and_no_copy(tmp_path: Path) -> None:
    """*Exposed copies cost at most 1.6 ms* was told of a bit that DDP reads each step, before the gradient that did."""

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        _read_in_one_call(trace)
        for _ in range(40):
            with trace.inside("cpu_op", "aten::view"):
                trace.python(4.0)
        backward(trace, KERNEL_US)
        optimise(trace)

    HostTrace().steps(6, step).write(tmp_path)
    replayer = Replayer(read_records(tmp_path))
    whole = replayer.base_ns / 1e6
    by_waits, by_copies = whole - _without(replayer, "waits"), whole - _without(replayer, "copies")
    assert by_waits > 0.1 and by_copies < 0.1 * by_waits
