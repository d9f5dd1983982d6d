"""Modes for debugging that are left on: told with what they cost, on devices against a host that runs without them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from scalescope.report.text.cures.words import cure_elsewhere
from scalescope.report.text.findings import because, first_sentence
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.evidence.causes.debugging import ANOMALY, BLOCKING
from scalescope.scaling.evidence.host_cause import HostCause, HostFigure
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.candidate import Candidate
from scalescope.scaling.findings.hosts.debug_modes import unpriced_modes, without_their_symptoms
from scalescope.scaling.ranks.summary import read_rank
from tests.host_traces import HostTrace, optimise, plain_step

STEPS, KERNEL_US = 5, 60.0


class Blocking(HostTrace):
    """A host whose launches return when their kernels are through."""

    def on_device(self, name: str, category: str, begin: float, us: float, number: int) -> None:
        super().on_device(name, category, begin, us, number)
        if category == "kernel":
            launch = next(one for one in reversed(self.events) if one["args"].get("correlation") == number
                          and one["cat"] == "cuda_runtime")  # fmt: skip
            self.clock = max(self.clock, self.device_free + 2.0)
            launch["dur"] = round(self.clock - launch["ts"], 3)


def looking(trace: HostTrace, _number: int, each: int = 1, us: float = KERNEL_US) -> None:
    """A step under anomaly detection; `each`: it looks behind every so many nodes, 0: it is switched off."""
    for _ in range(20):
        with trace.inside("cpu_op", "aten::view"):
            trace.python(100.0 if each else 1.0)  # what Python takes to format where it was called
        trace.python()
        trace.kernel("aten::addmm", us)
        trace.kernel("aten::relu", us / 4)
    with trace.backward():
        for layer in range(20):
            with trace.inside("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0"):
                with trace.inside("cpu_op", "AddmmBackward0"):
                    trace.kernel("aten::mm", 2 * us)
                if each and layer % each == 0:
                    trace.kernel("aten::isnan", 3.0, "ne")
                    trace.kernel("aten::any", 3.0, "any")
                    trace.item()
    optimise(trace)


def plain(trace: HostTrace, _number: int) -> None:
    plain_step(trace, KERNEL_US)


def written(folder: Path, *ranks: tuple[type[HostTrace], Callable[[HostTrace, int], None]]) -> float:
    """Write what each rank runs; return the last one's mean step, ms."""
    for rank, (kind, step) in enumerate(ranks):
        trace = kind(rank, len(ranks)).steps(STEPS, step)
        trace.write(folder)
    steps = [one["ts"] for one in trace.events if one["name"].startswith("ProfilerStep#")]
    return float(steps[-1] - steps[0]) / (len(steps) - 1) / 1e3


def findings(folder: Path) -> list[Finding]:
    (answer,) = analyze([folder], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer.findings


def first(folder: Path) -> Finding:
    return findings(folder)[0]


def test_anomaly_detection_on_all_devices_is_told_and_not_the_waits_that_it_makes(tmp_path: Path) -> None:
    """*At least 18.9 ms* were told of 10.5: devices bound what is left, so it is no less than the whole of it."""
    took = written(tmp_path / "looks", *[(HostTrace, looking)] * 2)
    kernels = 20 * (1.25 + 2) * KERNEL_US / 1e3 + 4 * 0.02
    one = first(tmp_path / "looks")
    assert (one.code, one.rank, one.at_least) == ("debug_mode", None, False)
    assert one.low_ms is not None and one.high_ms is not None and one.low_ms < took - kernels < 1.05 * one.high_ms
    assert "all ranks look for NaN" in because(one) and "20 times a step" in because(one)
    assert one.remedy is not None and one.remedy.cure == "no_anomaly_detection"
    assert all(found.code != "synchronising" for found in findings(tmp_path / "looks"))


@pytest.mark.parametrize("ranks", [1, 2])
def test_of_a_host_that_is_no_faster_than_its_device_the_stacks_are_told_as_well(ranks: int, tmp_path: Path) -> None:
    """A third of what the mode took was told, of a host that formats stacks while its device has nothing to do."""
    took = written(tmp_path / "on", *[(HostTrace, partial(looking, us=4.0))] * ranks)
    without = written(tmp_path / "off", *[(HostTrace, partial(looking, us=4.0, each=0))] * ranks)
    one = first(tmp_path / "on")
    assert one.code == "debug_mode" and one.ms is not None and one.at_least
    assert 0.6 * (took - without) <= one.ms <= 1.05 * (took - without)
    assert ("all ranks look" if ranks > 1 else "it looks") in because(one)


def test_a_look_at_few_tensors_is_no_anomaly_detection(tmp_path: Path) -> None:
    written(tmp_path, *[(HostTrace, lambda trace, number: looking(trace, number, each=4))] * 2)
    assert all(one.code != "debug_mode" for one in findings(tmp_path))


def test_launches_that_wait_for_their_kernels_are_told_with_the_variable(tmp_path: Path) -> None:
    took = written(tmp_path / "blocking", *[(Blocking, plain)] * 2)
    hosts = written(tmp_path / "plain", *[(HostTrace, plain)] * 2)
    kernels = 20 * (1.25 + 2) * KERNEL_US / 1e3 + 4 * 0.02
    without = max(hosts, kernels)
    one = first(tmp_path / "blocking")
    assert (one.code, one.rank, one.at_most) == ("debug_mode", None, True)
    assert one.ms == pytest.approx(took - without, rel=0.25)
    assert "CUDA_LAUNCH_BLOCKING=1" in first_sentence([one], took, 2)
    assert one.remedy is not None and "CUDA_LAUNCH_BLOCKING" in cure_elsewhere(one.remedy)
    assert all(found.code != "debug_mode" for found in findings(tmp_path / "plain"))


@pytest.mark.parametrize("mode", [ANOMALY, BLOCKING])
def test_a_mode_takes_no_more_than_the_step_as_run(mode: str) -> None:
    """What a recorded step takes for it may be longer than the step without a profiler."""
    figure = HostFigure(kind="mode", name=mode, ns=8e6, count=20.0)
    cause = HostCause(code="debug_mode", rank=None, steps=(1, 2, 3), ns=(8_000_000,) * 3, evidence=(figure,))
    (found,) = unpriced_modes([cause], 5.0, on_cpu=True)
    assert found.low_ms is not None and found.ms is not None and found.high_ms is not None
    assert found.low_ms <= found.ms <= found.high_ms <= 5.0 and found.fraction == 1.0
    assert (found.low_ms > 0) is (mode == ANOMALY)
    assert unpriced_modes([cause], 0.0, on_cpu=True) == []
    assert unpriced_modes([cause], 1_100.0, on_cpu=True) == [], "too little to be worth a word"
    assert len(unpriced_modes([cause], 900.0, on_cpu=True)) == 1


@pytest.mark.parametrize(("views", "stacks_us"), [(5, 99.0), (4, 0.0)])
def test_where_an_operator_was_called_is_kept_for_each_node_of_the_forward_pass(
    views: int, stacks_us: float, tmp_path: Path
) -> None:
    """What a view takes beyond microseconds tells what that costs; of nodes that accumulate gradients none is kept."""
    left = [views]

    def step(trace: HostTrace, _number: int) -> None:
        for _ in range(20):
            if left[0]:
                left[0] -= 1
                with trace.inside("cpu_op", "aten::view"):
                    trace.python(100.0)
            trace.kernel("aten::addmm", KERNEL_US)
        with trace.backward():
            for _ in range(20):
                with trace.inside("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0"):
                    trace.kernel("aten::mm", 2 * KERNEL_US)
                    trace.kernel("aten::isnan", 3.0, "ne")
                    trace.kernel("aten::any", 3.0, "any")
                with trace.inside("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                    trace.python()
        optimise(trace)

    HostTrace(0, 1).steps(STEPS, step).write(tmp_path)
    (path,) = tmp_path.glob("*.json*")
    evidence = read_rank(path).summary.host_evidence
    assert evidence is not None and evidence.debugging is not None
    assert evidence.debugging.looks == (20,) * STEPS
    assert evidence.debugging.stacks_ns == pytest.approx([20 * stacks_us * 1e3] * STEPS, rel=0.01)


@pytest.mark.parametrize(
    ("mode_on", "left"),
    [
        (None, [("debug_mode", None), ("slower_compute", 0)]),
        (1, [("debug_mode", 1), ("synchronising", 0), ("host_bound", 0), ("slower_compute", 0)]),
    ],
)
def test_a_mode_makes_waits_and_launching_itself_on_the_ranks_that_are_in_it(
    mode_on: int | None, left: list[tuple[str, int | None]]
) -> None:
    others = [
        Candidate(code="synchronising", rank=0, removals=()),
        Candidate(code="synchronising", rank=1, removals=()),
        Candidate(code="host_bound", rank=0, removals=()),
        Candidate(code="slower_compute", rank=0, removals=()),
    ]
    candidates = [Candidate(code="debug_mode", rank=mode_on, removals=()), *others]
    assert [(one.code, one.rank) for one in without_their_symptoms(candidates)] == left
    assert without_their_symptoms(others) == others, "no mode, no symptom of one"
