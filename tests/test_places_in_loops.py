"""Where a host stands still is told as the loop has it: after the optimizer's step, in the backward pass, and so on."""

from collections.abc import Callable
from pathlib import Path

import pytest
from host_traces import KERNEL_US, HostTrace, backward, causes_of, forward, optimise

from scalescope.report.text.findings import because
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.finding import Finding, LoopPlace

DATA = Path(__file__).parent / "data"
SLEEP_US = 8e3


def first_finding(folder: Path) -> Finding:
    (answer,) = analyze([folder], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer.findings[0]


def told(folder: Path, step: Callable[[HostTrace, Callable[[str], None]], None], where: str) -> tuple[Finding, str]:
    """Return the first finding and its clause where rank 1 sleeps at one of the places that a step names."""

    def of_rank(late: bool) -> Callable[[HostTrace, int], None]:
        def run(trace: HostTrace, _number: int) -> None:
            step(trace, lambda name: trace.idle(SLEEP_US) if late and name == where else None)

        return run

    causes_of(folder, of_rank(False), of_rank(True))
    found = first_finding(folder)
    assert (found.code, found.rank) == ("host_stall", 1)
    return found, because(found)


def loop(trace: HostTrace, at: Callable[[str], None]) -> None:
    """A loop that reads its loss after the optimizer's step and keeps it; zero_grad comes first."""
    at("begin")
    with trace.inside("user_annotation", "Optimizer.zero_grad#AdamW.zero_grad"):
        trace.kernel("aten::zero_", 5.0)
    at("zeroed")
    with trace.inside("user_annotation", "DistributedDataParallel.forward"):
        for layer in range(20):
            trace.kernel("aten::addmm", KERNEL_US)
            if layer == 10:
                at("forward")
            trace.kernel("aten::relu", KERNEL_US / 4)
    at("forwarded")
    trace.kernel("aten::nll_loss", KERNEL_US)
    backward(trace, KERNEL_US, at_middle=lambda: at("backward"))
    at("gradients")
    trace.kernel("aten::linalg_vector_norm", 10.0)
    at("clipped")
    with trace.inside("user_annotation", "Optimizer.step#AdamW.step"):
        trace.kernel("aten::_fused_adamw_", 20.0)
        at("step")
        trace.kernel("aten::_fused_adamw_", 20.0)
    at("stepped")
    trace.kernel("aten::detach", 5.0)


@pytest.mark.parametrize(
    ("where", "place", "words"),
    [
        ("zeroed", "before_forward", "before the forward pass of DistributedDataParallel"),
        ("forward", "in_forward", "in the forward pass (before aten::relu)"),
        ("forwarded", "after_forward", "after the forward pass and before the backward pass (before aten::nll_loss)"),
        (
            "gradients",
            "after_backward",
            "after the backward pass and before the optimizer's step (before aten::linalg_vector_norm)",
        ),
        ("clipped", "after_backward", "after the backward pass and before the optimizer's step"),
        ("step", "in_optimizer", "in the optimizer's step (before aten::_fused_adamw_)"),
        (
            "stepped",
            "optimizer_to_forward",
            "after the optimizer's step and before the next forward pass (before aten::detach)",
        ),
    ],
)
def test_the_place_in_the_loop_is_told_beside_the_operator(
    where: str, place: LoopPlace, words: str, tmp_path: Path
) -> None:
    """*Before aten::detach* was told of 39.5 ms that a save took after the optimizer's step: no loop calls that."""
    found, clause = told(tmp_path, loop, where)
    assert found.evidence[0].place == place
    assert clause.endswith(f" ms a step {words}"), clause


def test_what_a_hook_sleeps_is_in_the_backward_pass(tmp_path: Path) -> None:
    found, clause = told(tmp_path, loop, "backward")
    assert found.evidence[0].place == "in_backward" and "in the backward pass" in clause


def test_what_lies_behind_the_call_of_a_backward_pass_is_in_it(tmp_path: Path) -> None:
    def step(trace: HostTrace, at: Callable[[str], None]) -> None:
        forward(trace, KERNEL_US)
        with trace.inside("cpu_op", "aten::ones_like"):
            trace.kernel("aten::fill_", 10.0)
        at("called")
        backward(trace, KERNEL_US)
        optimise(trace)

    found, clause = told(tmp_path, step, "called")
    assert found.evidence[0].place == "in_backward" and " ms a step in the backward pass (before " in clause


def test_without_annotations_of_forward_passes_no_place_needs_them(tmp_path: Path) -> None:
    """A step that stands still before its loss may be in the forward pass, or behind it."""

    def bare(trace: HostTrace, at: Callable[[str], None]) -> None:
        trace.kernel("aten::embedding", KERNEL_US)
        at("somewhere")
        for _ in range(20):
            trace.kernel("aten::addmm", KERNEL_US)
        backward(trace, KERNEL_US)
        optimise(trace)
        at("stepped")
        trace.kernel("aten::detach", 5.0)

    found, clause = told(tmp_path / "in", bare, "somewhere")
    assert found.evidence[0].place is None and clause.endswith("ms a step before aten::addmm")
    found, clause = told(tmp_path / "after", bare, "stepped")
    assert found.evidence[0].place == "after_optimizer"
    assert clause.endswith("after the optimizer's step (before aten::detach)")


@pytest.mark.parametrize("follows", [False, True])
def test_a_value_that_is_read_beside_a_stall_is_told(follows: bool, tmp_path: Path) -> None:
    """A loop of Python over what `.item()` had read was told as 20.6 ms *before aten::detach*."""

    def reads(trace: HostTrace) -> None:
        with trace.inside("cpu_op", "aten::item"), trace.inside("cpu_op", "aten::_local_scalar_dense"):
            trace.item()

    def step(trace: HostTrace, at: Callable[[str], None]) -> None:
        forward(trace, KERNEL_US)
        backward(trace, KERNEL_US)
        optimise(trace)
        if not follows:
            reads(trace)
        at("beside")
        if follows:
            reads(trace)
        trace.kernel("aten::detach", 5.0)

    found, clause = told(tmp_path, step, "beside")
    assert found.evidence[0].read == ("after" if follows else "before")
    after = "after the optimizer's step and before the next forward pass"
    waits = ".item() reads a value, for which it waits for the device"
    assert f"{after} (" in clause and f"{'before' if follows else 'right after'} {waits}" in clause


def test_of_a_real_job_that_sleeps_before_its_backward_pass_the_loop_has_the_same() -> None:
    found = first_finding(DATA / "cpu_now_and_then_n2")
    assert found.evidence[0].place == "after_forward"
    assert because(found).endswith("before the backward pass (aten::ones_like)")


def test_of_traces_without_annotations_nothing_is_told_of_a_loop() -> None:
    found = first_finding(DATA / "cuda_only_stalled_host_n2")
    assert found.code == "host_stall" and not [row for row in found.evidence if row.place is not None]


@pytest.mark.parametrize(("other", "both"), [("gradients", True), ("forwarded", False), ("stepped", False)])
def test_what_all_hosts_do_at_a_stalls_place_in_the_loop_belongs_to_it(other: str, both: bool, tmp_path: Path) -> None:
    """Of a metric in Python, 17.8 ms a step (15.2 to 20.8), *13.4 ms (12.7 to 14.1)* was told: its longest gap alone,
    without the 2.0 ms in which `.tolist()` makes the first of its two lists. Elsewhere in the loop it is no part.
    """

    def step(trace: HostTrace, _number: int) -> None:
        loop(trace, lambda name: trace.idle({"clipped": SLEEP_US, other: SLEEP_US / 20}.get(name, 0.0)))

    found = [cause for cause in causes_of(tmp_path, step, step) if cause.code == "host_stall" and cause.rank is None]
    ms = sorted(cause.typical_ns / 1e6 for cause in found)
    assert ms == pytest.approx([SLEEP_US / 20e3, SLEEP_US / 1e3] if both else [SLEEP_US / 1e3], rel=0.1)
    words = because(first_finding(tmp_path))
    assert words.endswith(" there before aten::linalg_vector_norm") is both is ("and also" in words), words
