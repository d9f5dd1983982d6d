"""Hosts that stand still many times a step: for other processes, the interpreter's lock, hooks, slow operators."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, cast

import pytest
from host_traces import (
    KERNEL_US,
    HostTrace,
    backward,
    causes_of,
    evidence_of,
    forward,
    optimise,
    plain_step,
    undisturbed,
)

from scalescope.report.text.cures.words import cure_text
from scalescope.report.text.findings import because
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.evidence.causes.common_steps import CommonSteps
from scalescope.scaling.evidence.causes.stalls import of_objects
from scalescope.scaling.evidence.compare import not_starved
from scalescope.scaling.evidence.host_cause import HostCause, HostCode, HostFigure
from scalescope.scaling.finding.figures import EACH_PASS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy


def _first_finding(folder: Path) -> Finding:
    (answer,) = analyze([folder], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer.findings[0]


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


def test_what_a_loop_does_for_each_parameter_behind_its_optimizer_is_a_stall_though_each_time_is_short(
    tmp_path: Path,
) -> None:
    """A log of 75 parameters, 0.07 ms each between Python's 0.04 elsewhere: 12.6 of 150 ms were told as launching."""

    def logs(trace: HostTrace, number: int) -> None:
        for _ in range(30):
            trace.kernel("aten::linear", KERNEL_US)
            trace.idle(40.0)
        with trace.backward():
            trace.kernel("aten::mm", KERNEL_US)
        optimise(trace)
        for at in range(75):
            trace.idle(65.0 + (at + number) % 3 * 5.0)
            with trace.inside("cpu_op", "aten::detach"):
                trace.idle(2.0)

    (stall,) = [one for one in causes_of(tmp_path, logs, logs) if one.code == "host_stall"]
    assert stall.rank is None and stall.evidence[0].count == pytest.approx(75, abs=1)
    assert stall.place is not None and stall.place.after == "aten::detach"


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


def test_what_stands_still_many_times_between_the_passes_may_be_io_as_well() -> None:
    """*Python there, such as a log or a metric: do less in Python* was told of a log that is synced 40 times a step."""
    passes = EvidenceRow(kind="figure", name=f"{EACH_PASS} aten::item", ms=0.17, calls=39.0)
    gaps = EvidenceRow(kind="figure", name="gap_before aten::item", ms=7.9, place="optimizer_to_forward")
    stall = Finding(code="host_stall", rank=0, ms=6.5, low_ms=4.4, high_ms=7.7, evidence=(gaps, passes),
                    remedy=Remedy(cure="less_python"), backed="replay")  # fmt: skip
    told = because(stall)
    assert "the 39 times that it comes between aten::item and aten::item, after the optimizer's step" in told
    assert "Python or I/O there, such as a metric, a log or what it writes to a file" in told
    assert (
        stall.remedy is not None
        and cure_text(stall.remedy) == "do less in Python, or read and write less, at that place"
    )


def test_what_all_hosts_do_behind_a_wait_for_their_devices_comes_before_the_wait(tmp_path: Path) -> None:
    """An environment on the CPU that takes 12 ms for the actions it was sent: *synchronising* was told, of as much."""

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, 3_000.0)
        trace.item()
        trace.idle(12_000.0)
        backward(trace, 3_000.0)
        optimise(trace)

    causes_of(tmp_path, step)
    first = _first_finding(tmp_path)
    assert (first.code, first.rank) == ("host_stall", None) and first.ms == pytest.approx(12.0, rel=0.1)
    assert "which nothing hides, as the host waits for its device in each step" in because(first)


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
                trace.on_device("gemm", "kernel", max(trace.clock, trace.device_free), KERNEL_US, number)
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


def _gathers(trace: HostTrace, pickles_us: float, unpickles_us: float) -> None:
    """An all_gather_object behind a plain step, as torch records it."""
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

    def rank_0(trace: HostTrace, number: int) -> None:
        _gathers(trace, 0.0, 0.0)

    def rank_1(trace: HostTrace, number: int) -> None:
        _gathers(trace, *rank_1_us)

    stall = next(one for one in causes_of(tmp_path, rank_0, rank_1) if one.code == "host_stall")
    assert stall.rank == 1 and stall.typical_ns == pytest.approx(3e6, rel=0.05)
    first = _first_finding(tmp_path)
    assert where in because(first)
    assert first.remedy is not None and first.remedy.cure == "tensors_not_objects"


def test_what_all_ranks_pickle_and_unpickle_is_one_stall_however_little_each_place_takes(tmp_path: Path) -> None:
    """Of a 20 ms step no place takes the twentieth that makes a stall of all ranks: *launching* was told."""

    def step(trace: HostTrace, number: int) -> None:
        trace.kernel("aten::mm", 19_000.0)
        trace.item()
        _gathers(trace, 300.0, 300.0)

    causes = [one for one in causes_of(tmp_path, step, step) if one.code == "host_stall"]
    assert {one.rank for one in causes} == {None}
    assert sum(one.typical_ns for one in causes) == pytest.approx(0.6e6, rel=0.2)
    assert {of_objects(one.place) for one in causes if one.place is not None} == {"all_gather_object"}


def test_a_host_on_which_everything_takes_three_times_as_long_is_starved(tmp_path: Path) -> None:
    """Though it may be a slow one: hosts that differ by less are nobody's fault."""
    (found,) = causes_of(tmp_path, undisturbed, undisturbed, slow=(1.0, 3.0))
    assert (found.code, found.rank) == ("host_starved", 1)
    assert found.confidence < 1
    ns = [one.step_ns[0] for one in evidence_of(tmp_path).values()]
    assert found.typical_ns == pytest.approx(ns[1] - ns[0], rel=0.1)


@pytest.mark.parametrize(
    ("interrupted", "kept"),
    [([3.2, 1.5, 0, 0, -4.5, 3.6, 14.2, -2.5, -12.3, 21.6, 2.8, 13.0], 2), ([4.0, 4.5, 3.8, 4.1, 4.4, 3.9] * 2, 0)],
    ids=["now this host and now that", "this host in each step"],
)
def test_stalls_step_after_step_are_no_chance_of_a_host_that_is_interrupted_by_chance(
    interrupted: list[float], kept: int
) -> None:
    """A log that a rank writes and syncs, for 3 ms and for 3 ms more, on cores that others use: it was left out."""

    def cause(code: HostCode, ms: Sequence[float], kind: Literal["gap", "interruptions"]) -> HostCause:
        beyond = tuple(round(1e6 * one) for one in ms)
        ns = tuple(max(0, one) for one in beyond)
        figure = HostFigure(kind=kind, ns=sum(ns) / len(ns), count=1.0)
        return HostCause(code=code, rank=0, steps=tuple(range(12)), ns=ns, beyond_ns=beyond, evidence=(figure,))

    stalls = [
        cause("host_stall", [0.4, 1.8, 2.1, 5.0, 1.3, 3.9, 1.8, 3.4, 1.6, 4.0, 4.6, 2.9], "gap"),
        cause("host_stall", [1.4, 2.0, 1.6, 1.1, 0.5, 6.9, 6.9, 3.9, 1.8, 8.9, 2.7, 0.5], "gap"),
    ]
    common = cast("CommonSteps", SimpleNamespace(on_cpu=True, ranks=[0, 1], by_rank={}))
    assert len(not_starved(common, stalls, [cause("host_starved", interrupted, "interruptions")])) == kept


@pytest.mark.parametrize(("pause_us", "found"), [(550.0, 2), (250.0, 0)])
def test_a_place_in_several_passes_is_one_where_gradients_are_accumulated(
    pause_us: float, found: int, tmp_path: Path
) -> None:
    """Python for 4% of a step in each of two forward passes, the second behind a backward pass: launching was told."""
    layers = 120

    def step(trace: HostTrace, _number: int) -> None:
        for _ in range(2):
            trace.kernel("aten::embedding", 10.0)
            trace.idle(pause_us)
            forward(trace, 10.0, layers)
            backward(trace, 10.0, layers)
        optimise(trace)

    causes = causes_of(tmp_path, step)
    assert [(one.code, one.rank) for one in causes if one.code != "host_bound"] == [("host_stall", None)] * found
    assert {one.place.phase for one in causes if one.place} == ({"forward", "backward"} if found else set())
    first = _first_finding(tmp_path)
    assert not found or (
        because(first).count("before the forward pass of DistributedDataParallel") == 1
        and "1.1 ms a step" in because(first)
    )


@pytest.mark.parametrize("steps", [range(5), (1, 3)])  # in all of them, or in some
@pytest.mark.parametrize("inside", [False, True])
def test_a_stall_before_a_call_of_the_loop_is_named_by_that_and_not_by_its_first_operator(
    inside: bool, steps: Sequence[int], tmp_path: Path
) -> None:
    """*Before aten::flatten_dense_tensors* was told, which no loop calls: it is how DDP's forward pass begins."""

    def step(trace: HostTrace, late: bool) -> None:
        if late and not inside:
            trace.idle(8e3)
        with trace.inside("user_annotation", "DistributedDataParallel.forward"):
            if late and inside:
                trace.idle(8e3)
            trace.kernel("aten::flatten_dense_tensors", 10.0)
            for _ in range(20):
                trace.kernel("aten::addmm", KERNEL_US)
        backward(trace, KERNEL_US)
        optimise(trace)

    (found,) = causes_of(tmp_path, lambda trace, _: step(trace, False), lambda trace, at: step(trace, at in steps))
    assert (found.code, found.rank) == ("host_stall", 1)
    assert found.evidence[0].opens == ("" if inside else "DistributedDataParallel.forward")
    told = because(_first_finding(tmp_path))
    operator = "in the forward pass (before aten::flatten_dense_tensors)"
    place = operator if inside else "before the forward pass of DistributedDataParallel"
    assert told.endswith(place)
