"""Steps that differ, where what recording costs is known as a range alone: what holds in all of it is told."""

from pathlib import Path

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.host_traces import STEPS, HostTrace, backward, forward, optimise

#: Kernels that a host launches as fast as they run, or slower, by what recording costs it.
KERNEL_US = 14.0


def analysed(folder: Path, *, validates: bool) -> RunAnalysis:
    def step(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        backward(trace, KERNEL_US)
        if validates and number in (1, 4):
            for _ in range(2):
                forward(trace, KERNEL_US)
        elif not validates:
            trace.python(300.0)  # a host that is late in each step, by about what recording costs
        optimise(trace)

    HostTrace(0, 1).steps(STEPS, step).write(folder)
    (found,) = analyze([folder], jobs=1)
    assert isinstance(found, RunAnalysis)
    return found


def test_steps_that_differ_at_both_ends_of_the_range_are_told_before_what_it_leaves_open(tmp_path: Path) -> None:
    """*GPU-bound or host-bound: cannot be told* was all, of steps of 33, 64, 36 and 34 ms of which one validates."""
    run = analysed(tmp_path, validates=True)
    assert run.as_run is not None and run.as_run.source == "range"
    assert [one.code for one in run.findings] == ["unsteady", "profiler_cost"]
    first = run.findings[0]
    assert first.low_ms is not None and first.high_ms is not None and 0 < first.low_ms < first.high_ms
    assert "unsteady steps" in run_verdict(run).headline and "in what they do" in run_verdict(run).headline


def test_steps_that_are_alike_are_not_unsteady_for_what_recording_may_cost(tmp_path: Path) -> None:
    assert all(one.code != "unsteady" for one in analysed(tmp_path, validates=False).findings)
