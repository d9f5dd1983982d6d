"""What holds up the hosts: found on the rank where it is, by its own name, and nowhere in undisturbed jobs."""

from pathlib import Path

import msgspec
import pytest
from host_traces import (
    KERNEL_US,
    STEPS,
    HostTrace,
    Step,
    backward,
    causes_of,
    evidence_of,
    forward,
    optimise,
    plain_step,
    undisturbed,
)

from scalescope.report.text.cures.words import cure_elsewhere
from scalescope.report.text.findings import because
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.evidence.compare import busy_beyond_others, compare_hosts
from scalescope.scaling.finding.figures import BESIDE
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("name", ["gpt_ddp_compile_n4", "resnet50_ddp_n4", "cpu_tiny_buckets_n2", "gpt_ddp_n2"])
def test_of_undisturbed_jobs_no_rank_is_told_apart(name: str) -> None:
    """The real ones, in which hosts differ by up to a third."""
    assert [one for one in compare_hosts(evidence_of(DATA / name)) if one.rank is not None] == []


def test_the_parts_of_a_hosts_step_add_up_to_it() -> None:
    for name in ("gpt_ddp_compile_n4", "cpu_ddp_n2"):
        for one in evidence_of(DATA / name).values():
            parts = (one.busy_ns, one.waiting_ns, one.loading_ns, one.gap_ns, one.recording_ns)
            assert tuple(map(sum, zip(*parts, strict=True))) == one.step_ns
            assert min(map(min, parts)) >= 0 < min(one.busy_ns)


def test_a_sleep_before_the_forward_pass_is_a_stall_of_that_rank_in_a_real_job() -> None:
    """Rank 1 of both slept for 10 ms a step, after its batch had come."""
    for name in ("cpu_ddp_n2", "cpu_fsdp2_n2"):
        (stall,) = (one for one in compare_hosts(evidence_of(DATA / name)) if one.rank is not None)
        assert (stall.code, stall.rank, stall.otherwise) == ("host_stall", 1, None)
        assert stall.place is not None and stall.place.phase == "before_first"
        assert stall.typical_ns == pytest.approx(10e6, rel=0.05)


def test_a_stall_at_a_steps_end_is_in_one_place_though_the_loop_keeps_its_loss_after_the_last_step(
    tmp_path: Path,
) -> None:
    """Between two steps a loop may run an operator; after the last of a window there is none, or it comes later."""

    def write(rank: int, stalled_us: float) -> None:
        trace = HostTrace(rank, 2)
        for number in range(STEPS):
            with trace.inside("user_annotation", f"ProfilerStep#{number + 3}"):
                plain_step(trace, KERNEL_US)
                trace.idle(stalled_us)
            if number < STEPS - 1:
                with trace.inside("cpu_op", "aten::detach"):
                    trace.python()
            trace.idle(15.0)
        trace.write(tmp_path)

    write(0, 0.0)
    write(1, 3_000.0)
    (stall,) = (one for one in compare_hosts(evidence_of(tmp_path)) if one.rank is not None)
    assert stall.code == "host_stall" and stall.place is not None and stall.place.phase == "after_last"
    assert stall.typical_ns == pytest.approx(3e6, rel=0.05)


def test_a_slow_host_has_no_stalls(tmp_path: Path) -> None:
    """All that it does takes half as long again, a long stretch of Python too; that is busy time, and more of it."""

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        trace.python(700.0)
        backward(trace, KERNEL_US)

    found = causes_of(tmp_path, step, step, slow=(1.0, 1.5))
    assert [(one.code, one.rank) for one in found] == [("host_stall", None)]
    assert found[0].typical_ns == pytest.approx(700e3, rel=0.1)
    busier = busy_beyond_others(evidence_of(tmp_path))
    assert min(busier[1]) > 0.3 * evidence_of(tmp_path)[0].busy_ns[0]
    assert max(busier[0]) == 0


@pytest.mark.parametrize("stalled_us", [150.0, 3_000.0])
def test_a_stall_in_the_backward_pass_is_found_where_it_is(tmp_path: Path, stalled_us: float) -> None:
    """In a custom function's backward, so inside an operator."""

    def pausing(us: float) -> Step:
        def step(trace: HostTrace, number: int) -> None:
            def pause() -> None:
                frame = trace.inside("cpu_op", "autograd::engine::evaluate_function: PauseBackward")
                with frame, trace.inside("cpu_op", "PauseBackward"):
                    trace.idle(us)

            forward(trace, KERNEL_US)
            backward(trace, KERNEL_US, at_middle=pause)
            optimise(trace)

        return step

    (stall,) = causes_of(tmp_path, pausing(3.0), pausing(3.0), pausing(stalled_us), slow=(1.0, 1.2, 1.1))
    assert (stall.code, stall.rank) == ("host_stall", 2)
    assert stall.place is not None and (stall.place.phase, stall.place.inside) == ("backward", "PauseBackward")
    assert stall.typical_ns == pytest.approx(stalled_us * 1e3, rel=0.2)


def test_a_gap_before_the_first_operator_is_loading_where_a_batch_comes_after_it(tmp_path: Path) -> None:
    def bare(us: float) -> Step:
        def step(trace: HostTrace, number: int) -> None:
            trace.idle(us)
            trace.kernel("aten::to", 10.0, "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy")
            plain_step(trace, KERNEL_US)

        return step

    (loads,) = causes_of(tmp_path, bare(30.0), bare(2e3))
    assert (loads.code, loads.rank, loads.otherwise) == ("data_loading", 1, "host_stall")
    assert loads.confidence < 1
    assert loads.typical_ns == pytest.approx(2e6, rel=0.05)

    def stalls(trace: HostTrace, number: int) -> None:
        trace.idle(2e3)
        plain_step(trace, KERNEL_US)

    (stall,) = causes_of(tmp_path, undisturbed, stalls)
    assert (stall.code, stall.rank, stall.otherwise) == ("host_stall", 1, "data_loading")


@pytest.mark.parametrize(
    "annotation",
    ["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "fetch_batch", "[pl]train_dataloader_next",
     "next", "step_one"],
)  # fmt: skip
def test_an_annotation_around_the_fetch_is_loading_whatever_it_is_called(tmp_path: Path, annotation: str) -> None:
    def loads(us: float) -> Step:
        def step(trace: HostTrace, number: int) -> None:
            with trace.inside("user_annotation", annotation):
                trace.idle(us)
            trace.kernel("aten::to", 10.0, "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy")
            plain_step(trace, KERNEL_US)

        return step

    (slow,) = causes_of(tmp_path, loads(2.0), loads(2e3), loads(2.0))
    assert (slow.code, slow.rank, slow.confidence) == ("data_loading", 1, 1.0)
    assert slow.evidence[0].name == annotation
    assert slow.typical_ns == pytest.approx(2e6, rel=0.02)
    both = causes_of(tmp_path, *[loads(2e3)] * 3)
    assert [(one.code, one.rank) for one in both] == [("data_loading", None)]
    assert both[0].typical_ns == pytest.approx(2e6, rel=0.02)


def test_what_holds_a_steps_work_is_no_loading(tmp_path: Path) -> None:
    """Neither an annotation around the step that has `batch` in its name, nor one in the middle."""

    def step(trace: HostTrace, number: int) -> None:
        with trace.inside("user_annotation", "train_batch"):
            forward(trace, KERNEL_US)
            with trace.inside("user_annotation", "load_balancing_loss"):
                trace.idle(3e3)
            backward(trace, KERNEL_US)

    HostTrace().steps(STEPS, step).write(tmp_path)
    assert set(evidence_of(tmp_path)[0].loading_ns) == {0}


@pytest.mark.parametrize("hip", [False, True])
def test_a_scalar_that_is_read_names_its_call_and_costs_what_the_device_idles(tmp_path: Path, hip: bool) -> None:
    """The wait itself is long and costs nothing; what follows does."""

    def reads(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        with trace.inside("user_annotation", "check the loss"):
            trace.item()
        trace.idle(40.0)
        backward(trace, KERNEL_US)
        optimise(trace)

    library = "hip" if hip else "cuda"
    (found,) = causes_of(tmp_path, reads, reads, hip=hip)
    assert (found.code, found.rank) == ("synchronising", None)
    assert found.evidence[0].name == f"{library}StreamSynchronize"
    assert found.evidence[0].inside == "aten::item"
    (sync, *_) = evidence_of(tmp_path)[0].synchronising
    assert sync.annotation == "check the loss" and sync.calls == (1,) * STEPS
    assert min(sync.wait_ns) > 200_000
    assert all(40_000 < idle < 90_000 for idle in sync.idle_ns)
    (alone,) = causes_of(tmp_path, undisturbed, reads, hip=hip)
    assert (alone.code, alone.rank) == ("synchronising", 1)


def test_the_profilers_own_synchronisation_after_the_last_step_is_nobodys(tmp_path: Path) -> None:
    trace = HostTrace().steps(STEPS, undisturbed)
    trace.synchronise("DeviceSynchronize")
    trace.write(tmp_path)
    assert evidence_of(tmp_path)[0].synchronising == ()


@pytest.mark.parametrize("hip", [False, True])
def test_memory_that_is_taken_and_given_back_in_a_step_is_told_with_its_calls(tmp_path: Path, hip: bool) -> None:
    def step(trace: HostTrace, number: int) -> None:
        with trace.inside("cpu_op", "aten::empty"):
            trace.call("Malloc", 300.0)
        plain_step(trace, KERNEL_US)
        trace.synchronise("Free")

    (found,) = causes_of(tmp_path, step, step, hip=hip)
    library = "hip" if hip else "cuda"
    assert (found.code, found.rank) == ("allocation", None)
    assert {(one.name, one.inside, one.count) for one in found.evidence} == {
        (f"{library}Malloc", "aten::empty", 1.0),
        (f"{library}Free", "", 1.0),
    }


def test_compiling_is_told_by_what_torch_writes_around_it_and_its_gaps_are_no_stalls(tmp_path: Path) -> None:
    def step(trace: HostTrace, number: int) -> None:
        with trace.inside("cpu_op", "TorchDynamo Cache Lookup"):
            trace.python()
        if trace.rank == 1:
            with trace.inside("cpu_op", "dynamo"), trace.inside("cpu_op", "_compile.compile_inner (dynamo_timed)"):
                trace.idle(5e3)
        with trace.inside("cpu_op", f"Torch-Compiled Region: 4/{number}"):
            trace.kernel("triton_poi_fused_add_0", KERNEL_US)
        plain_step(trace, KERNEL_US)

    (found,) = causes_of(tmp_path, step, step)
    assert (found.code, found.rank) == ("recompilation", 1)
    assert found.typical_ns == pytest.approx(5e6, rel=0.01)
    assert (found.evidence[0].name, found.evidence[0].count) == ("Torch-Compiled Region: 4", 1.0)


def test_a_job_that_launches_slower_than_its_devices_run_is_host_bound_and_nobodys_fault(tmp_path: Path) -> None:
    def small(trace: HostTrace, number: int) -> None:
        plain_step(trace, 2.0)

    (found,) = causes_of(tmp_path, small, small, slow=(1.0, 1.3))
    assert (found.code, found.rank) == ("host_bound", None)
    launches, kernels, operator, *_ = found.evidence
    assert launches.count == kernels.count == 64
    assert kernels.ns < 4_000 < 10_000 < launches.ns
    assert operator.name in ("aten::addmm", "aten::relu", "aten::mm", "AddmmBackward0")


def test_waiting_for_room_in_the_devices_queue_is_waiting_and_a_buffer_for_the_profiler_is_its_own(
    tmp_path: Path,
) -> None:
    def step(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        trace.queue_full(4e3)
        trace.recorded(1e3)
        backward(trace, KERNEL_US)

    assert [one for one in causes_of(tmp_path, step, undisturbed) if one.rank is not None] == []
    one = evidence_of(tmp_path)[0]
    assert min(one.waiting_ns) == pytest.approx(4e6, rel=0.01)
    assert min(one.recording_ns) == pytest.approx(1e6, rel=0.03)
    assert max(one.gap_ns) == 0


def test_what_a_rank_keeps_of_its_host_is_small() -> None:
    """A thousand ranks fit beside each other: sums and a few names, not events."""
    for one in evidence_of(DATA / "gpt_ddp_compile_n4").values():
        assert len(msgspec.msgpack.encode(one)) < 10_400


@pytest.mark.parametrize("copies", [40, 8])
def test_what_another_thread_of_the_process_launches_beside_training_is_told_where_it_is_much(
    copies: int, tmp_path: Path
) -> None:
    """A decoder's thread runs no operators, and each of its calls takes the driver's lock; a watchdog only asks."""

    def decoding(trace: HostTrace, number: int) -> None:
        start = trace.clock
        plain_step(trace, 2.0)
        for at in range(copies):
            trace.correlation += 1
            begin, number = start + 10 * at, trace.correlation
            trace.event("cuda_runtime", "cudaMemcpyAsync", begin, begin + 4, 999, correlation=number)
            trace.event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", begin + 5, begin + 6, 20, trace.rank,
                        correlation=number, stream=20, device=trace.rank)  # fmt: skip
        for at in range(90):
            trace.event("cuda_runtime", "cudaEventQuery", start + 5 * at, start + 5 * at + 1, 998, correlation=0)

    (found,) = causes_of(tmp_path, decoding, decoding)
    assert found.code == "host_bound"
    beside = [one.count for one in found.evidence if one.name == BESIDE]
    assert beside == ([40.0] if copies == 40 else [])
    (answer,) = analyze([tmp_path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    (launching,) = [one for one in answer.findings if one.code == "host_bound"]
    assert launching.remedy is not None and launching.remedy.cure == ("launch_apart" if copies == 40 else "compile")
    told = "another thread of the process, which runs no operators, launches 40: they take turns"
    assert (told in because(launching)) == (copies == 40)


def _reading_its_loss(copy_us: float, at: tuple[int, ...], others: float = 4.0) -> Step:
    """Return a step that copies six small tensors on the device, some of them by a call that takes longer, and reads
    its loss, after which the host takes a while."""

    def step(trace: HostTrace, _: int) -> None:
        for copy in range(6):
            number = trace.call("MemcpyAsync", copy_us if copy in at else others)
            begin = max(trace.clock - 2.0, trace.device_free)
            trace.on_device("Memcpy DtoD (Device -> Device)", "gpu_memcpy", begin, 1.0, number)
            trace.python(200.0)
        plain_step(trace, KERNEL_US)
        trace.item()
        trace.idle(150.0)

    return step


def test_copies_that_an_idle_device_has_done_within_a_call_are_no_waits_of_a_rank(tmp_path: Path) -> None:
    """Of two ranks that read their loss alike the healthy one was named: *rank 0 costs 4.0 ms of the 52.7 ms step: the
    host waits for the device*, since two of its copies to an idle device took a call of 34 µs.
    """
    found = causes_of(tmp_path, _reading_its_loss(34.0, (0, 3), 22.0), _reading_its_loss(34.0, (), 22.0))
    assert [one.rank for one in found if one.code == "synchronising"] == [None]


def test_a_wait_for_a_batch_that_is_not_pinned_is_told_as_that() -> None:
    """A loop that copied its batches out of pageable memory was to *take the synchronisation out of the step: no
    .item(), .cpu()*, of which it had none.
    """
    row = EvidenceRow(kind="operator", name="cudaStreamSynchronize in aten::to", ms=5.0, calls=1.0)
    found = Finding(code="synchronising", ms=5.0, low_ms=4.0, high_ms=6.0, evidence=(row,), backed="replay",
                    remedy=Remedy(cure="pin_memory"))  # fmt: skip
    assert "once a step, to copy out of memory that is not pinned, and the device" in because(found)
    assert found.remedy is not None and "pin_memory=True" in cure_elsewhere(found.remedy)


@pytest.mark.parametrize(("name", "waits"), [("Memcpy HtoD (Pageable -> Device)", True), ("Memcpy DtoH", False)])
def test_a_wait_right_behind_a_copy_knows_whether_that_came_from_the_host(
    name: str, waits: bool, tmp_path: Path
) -> None:
    def step(trace: HostTrace, _: int) -> None:
        with trace.inside("cpu_op", "aten::to"):
            number = trace.call("MemcpyAsync")
            trace.on_device(name, "gpu_memcpy", max(trace.clock, trace.device_free), 900.0, number)
            trace.synchronise()
        trace.python(200.0)
        plain_step(trace, KERNEL_US)

    (found,) = (one for one in causes_of(tmp_path, step, step) if one.code == "synchronising")
    assert [one.from_host for one in found.evidence if one.kind == "call"] == [waits]
