"""What holds up the hosts: found on the rank where it is, by its own name, and nowhere in undisturbed jobs."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from host_traces import HostTrace, backward, forward, optimise, plain_step

from scalescope.report.text.findings import because
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.evidence.compare import busy_beyond_others, compare_hosts
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.evidence.host_evidence import HostEvidence
from scalescope.scaling.finding import BESIDE, Finding
from scalescope.scaling.ranks.read import read_ranks
from scalescope.scaling.trace.sources import find_sources

DATA = Path(__file__).parent / "data"
STEPS = 5
KERNEL_US = 40.0

Step = Callable[[HostTrace, int], None]


def undisturbed(trace: HostTrace, number: int) -> None:
    plain_step(trace, KERNEL_US)


def evidence_of(folder: Path) -> dict[int, HostEvidence]:
    summaries = read_ranks(find_sources(folder)).summaries
    return {rank: one.host_evidence for rank, one in summaries.items() if one.host_evidence is not None}


def causes_of(folder: Path, *steps: Step, slow: tuple[float, ...] = (), hip: bool = False) -> list[HostCause]:
    """Return what is found where each rank runs its own kind of step."""
    for rank, step in enumerate(steps):
        HostTrace(rank, len(steps), slow[rank] if slow else 1.0, hip).steps(STEPS, step).write(folder)
    return compare_hosts(evidence_of(folder))


def _first_finding(folder: Path) -> Finding:
    (answer,) = analyze([folder], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer.findings[0]


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


def test_a_host_that_is_interrupted_now_here_now_there_is_starved(tmp_path: Path) -> None:
    """For 2 ms three times a step, never at the same place: between operators, and inside of them."""
    kinds = ["gelu", "dropout", "layer_norm", "embedding", "softmax", "add", "cat", "mul", "sum"]

    def step(trace: HostTrace, number: int, interrupted: bool) -> None:
        for at, kind in enumerate(kinds * 3):
            with trace.inside("cpu_op", f"aten::{kind}"):
                trace.kernel(f"aten::{kind}_out", KERNEL_US)
                if interrupted and at in (number, number + 9):
                    trace.idle(2e3)
            if interrupted and at == number + 14:
                trace.idle(2e3)
        plain_step(trace, KERNEL_US)

    def starved(trace: HostTrace, number: int) -> None:
        step(trace, number, True)

    def not_starved(trace: HostTrace, number: int) -> None:
        step(trace, number, False)

    (found,) = causes_of(tmp_path, not_starved, starved, not_starved)
    assert (found.code, found.rank) == ("host_starved", 1)
    assert found.typical_ns == pytest.approx(6e6, rel=0.02)
    assert found.evidence[0].count == 3
    assert found.evidence[0].share == pytest.approx(1 / 3)


def test_a_loop_that_stands_still_at_each_pass_is_a_stall_of_a_starved_host_too(tmp_path: Path) -> None:
    """An environment steps for 2 ms twelve times a step; the host is interrupted besides, which alone was told."""
    kinds = ["gelu", "dropout", "layer_norm", "embedding", "softmax", "add", "cat", "mul", "sum"]

    def step(trace: HostTrace, number: int, rank: int) -> None:
        for _ in range(12):
            trace.kernel("aten::linear", KERNEL_US)
            trace.idle(2e3 if rank else 50)
        for at, kind in enumerate(kinds):
            trace.kernel(f"aten::{kind}", KERNEL_US)
            if rank and at in (number, number + 3):
                trace.idle(1.5e3)
        plain_step(trace, KERNEL_US)

    def quick(trace: HostTrace, number: int) -> None:
        step(trace, number, 0)

    def slow(trace: HostTrace, number: int) -> None:
        step(trace, number, 1)

    stall, starved = causes_of(tmp_path, quick, slow)
    assert (stall.code, stall.rank, starved.code, starved.rank) == ("host_stall", 1, "host_starved", 1)
    assert stall.typical_ns == pytest.approx(11 * 1.95e6, rel=0.05) and starved.typical_ns < 4e6


@pytest.mark.parametrize("alone", [True, False])
def test_a_hook_on_each_gradient_is_a_stall_at_its_place_however_other_processes_stretch_it(
    alone: bool, tmp_path: Path
) -> None:
    """Of unlike lengths, some of them as long as turns on a core: one rank was told as starved, all as launching."""
    lengths = [150.0, 700.0, 250.0, 400.0, 5_000.0, 300.0, 180.0, 520.0]

    def with_hooks(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        with trace.backward():
            for layer in range(20):
                trace.kernel(("aten::mm", "aten::mul", "aten::sum", "aten::neg")[layer % 4], KERNEL_US)
                with trace.inside("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                    trace.idle(lengths[(3 * layer + number) % 8] if layer % 7 else 60.0)
                    trace.kernel("torch::autograd::AccumulateGrad", KERNEL_US / 4)
                if layer == number * 3:
                    trace.idle(2e3)
        optimise(trace)

    def without(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        with trace.backward():
            for layer in range(20):
                trace.kernel(("aten::mm", "aten::mul", "aten::sum", "aten::neg")[layer % 4], KERNEL_US)
                with trace.inside("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                    trace.kernel("torch::autograd::AccumulateGrad", KERNEL_US / 4)
        optimise(trace)

    found = causes_of(tmp_path, without if alone else with_hooks, with_hooks)
    stall = next(one for one in found if one.code == "host_stall")
    assert stall.rank == (1 if alone else None)
    assert stall.each_pass_ns == pytest.approx(350e3, rel=0.2)
    assert stall.place is not None and stall.place.after == "torch::autograd::AccumulateGrad"
    assert stall.evidence[0].count == pytest.approx(20, abs=1)
    first = _first_finding(tmp_path)
    told = because(first)
    comes = "it comes" if alone else "they come"
    assert f"of the 20 times that {comes} before torch::autograd::AccumulateGrad: Python there" in told
    assert first.remedy is not None and first.remedy.cure == "less_python"


@pytest.mark.parametrize("inner", [None, "aten::detach"])
def test_an_operator_that_takes_long_on_all_hosts_is_no_python(inner: str | None, tmp_path: Path) -> None:
    """cuBLASLt chooses an algorithm in each `aten::addmm`, 0.2 ms of a slow host; where it calls others, Python may."""

    def step(trace: HostTrace, number: int) -> None:
        for layer in range(24):
            trace.kernel(("aten::gelu", "aten::mul", "aten::sum")[layer % 3], KERNEL_US)
            with trace.inside("cpu_op", "aten::addmm"):
                trace.idle(230.0 + 10 * (layer % 3))
                if inner is not None:
                    with trace.inside("cpu_op", inner):
                        pass
                number = trace.call("LaunchKernel")
                trace._on_device("gemm", "kernel", max(trace.clock, trace.device_free), KERNEL_US, number)
        backward(trace, KERNEL_US)
        optimise(trace)

    found = [one.code for one in causes_of(tmp_path, step) if one.rank is None]
    assert ("host_stall" in found) == (inner is not None)


@pytest.mark.parametrize(("us", "told"), [((5_050.0, 5_200.0, 5_120.0), True), ((4_020.0, 5_100.0, 6_050.0), False)])
def test_stretches_as_long_as_the_switch_interval_are_waits_for_the_interpreters_lock(
    us: tuple[float, ...], told: bool, tmp_path: Path
) -> None:
    kinds = ["gelu", "dropout", "layer_norm", "embedding", "softmax", "add", "cat", "mul", "sum"]

    def step(trace: HostTrace, number: int, waits: bool) -> None:
        for at, kind in enumerate(kinds):
            trace.kernel(f"aten::{kind}", KERNEL_US)
            if waits and at % 3 == number % 3:
                trace.idle(us[at // 3])
        plain_step(trace, KERNEL_US)

    def beside_a_thread(trace: HostTrace, number: int) -> None:
        step(trace, number, True)

    def alone(trace: HostTrace, number: int) -> None:
        step(trace, number, False)

    (found,) = causes_of(tmp_path, alone, beside_a_thread)
    assert (found.code, found.rank) == ("host_starved", 1)
    assert (found.evidence[0].kind == "lock_waits") == told
    first = _first_finding(tmp_path)
    assert ("another thread of this process holds the interpreter's lock" in because(first)) == told
    assert first.remedy is not None and first.remedy.cure == ("free_interpreter" if told else "free_cores")


def test_a_sleep_of_5_ms_at_one_place_is_no_wait_for_the_lock(tmp_path: Path) -> None:
    def sleeps(trace: HostTrace, number: int) -> None:
        for _ in range(4):
            trace.kernel("aten::linear", KERNEL_US)
            trace.idle(5_080.0)
        plain_step(trace, KERNEL_US)

    found = causes_of(tmp_path, undisturbed, sleeps)
    assert {(one.code, one.rank, one.evidence[0].kind) for one in found} == {("host_stall", 1, "gap")}


@pytest.mark.parametrize(
    ("rank_1_us", "where"),
    [
        ((3e3, 0.0), "before all_gather_object, which pickles"),
        ((0.0, 3e3), "in all_gather_object, which pickles and unpickles"),
    ],
)
def test_pickling_for_a_collective_of_objects_names_it(
    rank_1_us: tuple[float, float], where: str, tmp_path: Path
) -> None:
    """Two exchanges, of counts and of bytes, are all that was recorded: a stall before `aten::empty` was told."""

    def gathers(trace: HostTrace, pickles_us: float, unpickles_us: float) -> None:
        plain_step(trace, KERNEL_US)
        trace.idle(pickles_us)
        for name in ("empty", "set_", "to", "empty", "to", "lift_fresh", "to", "zeros", "select", "unsqueeze"):
            with trace.inside("cpu_op", f"aten::{name}"):
                pass
        for read in (("gt", "is_nonzero", "item", "resize_", "empty", "slice"), ("to", "detach", "resolve_conj")):
            for name in ("c10d::allgather_", *read):
                with trace.inside("cpu_op", name if "::" in name else f"aten::{name}"):
                    pass
        trace.idle(unpickles_us)
        trace.kernel("aten::add", KERNEL_US)

    def rank_0(trace: HostTrace, number: int) -> None:
        gathers(trace, 0.0, 0.0)

    def rank_1(trace: HostTrace, number: int) -> None:
        gathers(trace, *rank_1_us)

    stall = next(one for one in causes_of(tmp_path, rank_0, rank_1) if one.code == "host_stall")
    assert stall.rank == 1 and stall.typical_ns == pytest.approx(3e6, rel=0.05)
    first = _first_finding(tmp_path)
    assert where in because(first)
    assert first.remedy is not None and first.remedy.cure == "tensors_not_objects"


def test_a_host_on_which_everything_takes_three_times_as_long_is_starved(tmp_path: Path) -> None:
    """Though it may be a slow one: hosts that differ by less are nobody's fault."""
    (found,) = causes_of(tmp_path, undisturbed, undisturbed, slow=(1.0, 3.0))
    assert (found.code, found.rank) == ("host_starved", 1)
    assert found.confidence < 1
    ns = [one.step_ns[0] for one in evidence_of(tmp_path).values()]
    assert found.typical_ns == pytest.approx(ns[1] - ns[0], rel=0.1)


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
        assert len(msgspec.msgpack.encode(one)) < 10_000


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
