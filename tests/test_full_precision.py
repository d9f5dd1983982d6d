"""Products in fp32 beside the matrix units: told as what costs the step, where peaks tell what may come back.

Of the names and times see tests/test_scaling_compute_habits.py.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scalescope import RunAnalysis, analyze
from scalescope.hardware.peaks import Peak, find_peak
from scalescope.report.text.cures.words import cure_text
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.finding.figures import FULL_PRECISION
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.candidate import Candidate
from scalescope.scaling.findings.computing.wider_numbers import full_precision
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.replay.build import build_graph
from scalescope.scaling.replay.ranks.side_by_side import lay_side_by_side
from scalescope.scaling.replay.removal import Removal, remove
from tests.host_traces import HostTrace
from tests.recorded import records_of
from tests.test_scaling_compute_habits import ADD, BF16, FFMA, SIMT, TF32

H200 = "NVIDIA H200"


def run_of(folder: Path, device: str, *kernels: tuple[str, float]) -> RunAnalysis:
    """Return the analysis of a job whose step runs each of these ten times, µs, behind a device that is never idle."""

    def step(trace: HostTrace, _: int) -> None:
        for name, us in kernels:
            for _ in range(10):
                trace.kernel("aten::mm", us, name)

    trace = HostTrace()
    trace.device = device
    trace.steps(5, step).write(folder)
    return analyze(folder, jobs=1)


def told(answer: RunAnalysis) -> Finding | None:
    return next((one for one in answer.findings if one.code == "full_precision"), None)


def test_a_step_of_float32_products_is_told_as_that_with_what_tf32_and_bf16_bring(tmp_path: Path) -> None:
    """*Nothing around the compute is wrong* stood before 193 ms of 225 that bf16 gave back."""
    answer = run_of(tmp_path, H200, (SIMT, 2000.0), (FFMA, 1500.0), (ADD, 500.0))
    one = told(answer)
    assert one is answer.findings[0] and (one.rank, one.at_most) == (None, False)
    assert "multiplying in plain float32 costs" in run_verdict(answer).headline
    assert "without the matrix units (tensor cores): 20 kernels take 35.0 ms" in because(one)
    assert "88% of its compute; tf32 brings about the least" in because(one)
    assert one.remedy is not None and "torch.set_float32_matmul_precision('high')" in cure_text(one.remedy)
    # what came of such a job in tf32 was 0.83 of its products, and in bf16 0.99, with what became of the rest
    assert one.low_ms is not None and one.high_ms is not None and one.ms is not None
    assert 0.7 * 35 < one.low_ms <= 0.83 * 35 <= one.ms < 0.99 * 35 <= one.high_ms < 40


@pytest.mark.parametrize(("device", "tf32"), [("NVIDIA GeForce RTX 4090", False), ("NVIDIA A100-SXM4-80GB", True)])
def test_tf32_is_advised_only_where_the_devices_peaks_tell_what_it_brings(
    device: str, tf32: bool, tmp_path: Path
) -> None:
    """*In bf16 or tf32*, and *at least* what bf16 brings, of a device whose peak in tf32 is that in fp32."""
    answer = run_of(tmp_path, device, (SIMT, 2000.0), (FFMA, 1500.0), (ADD, 500.0))
    one = told(answer)
    assert one is not None and one.remedy is not None
    assert ("tf32" in because(one), "set_float32_matmul_precision" in cure_text(one.remedy)) == (tf32, tf32)
    assert ("in bf16 (torch.autocast)" + " or tf32" * tf32) in run_verdict(answer).text


def test_nor_is_it_of_products_that_are_too_few_for_a_finding_and_a_line_of_what_the_compute_is(tmp_path: Path) -> None:
    answer = run_of(tmp_path, "NVIDIA GeForce RTX 4090", (SIMT, 90.0), (ADD, 250.0))
    (one,) = (one for one in answer.findings if one.code == "nothing")
    assert any(row.name == FULL_PRECISION for row in one.evidence)
    assert one.remedy is not None and one.remedy.cure == "matrix_units_in_bf16"


def test_tf32_that_is_no_faster_is_no_cure() -> None:
    known = find_peak("NVIDIA GeForce RTX 4090")
    assert known is not None
    as_fast = replace(known, tf32_tflops=known.fp32_tflops)
    ((one,), (other,)) = (_proposed({0: _multiplying()}, peak) for peak in (known, as_fast))
    assert one == other and one.remedy is not None and one.remedy.cure == "matrix_units_in_bf16"


@pytest.mark.parametrize(
    ("device", "kernels"),
    [
        (H200, ((TF32, 2000.0), (ADD, 500.0))),
        (H200, ((SIMT, 100.0), (BF16, 2000.0))),  # a small layer's, or a loss's
        ("Made-up device", ((SIMT, 2000.0),)),  # what its matrix units bring nobody knows
        ("AMD Instinct MI300X", (("Cijk_Ailk_Bljk_SB_MT64x64x16_MI16x16x4x1", 2000.0),)),  # they take fp32 as it is
    ],
)
def test_what_is_no_float32_beside_the_matrix_units_or_little_is_not(
    tmp_path: Path, device: str, kernels: tuple[tuple[str, float], ...]
) -> None:
    assert told(run_of(tmp_path, device, *kernels)) is None


def _multiplying(name: str = SIMT) -> RankRecord:
    """Return a rank's record in which each kernel of a normalisation is a product."""
    (record,) = records_of("long_way/normalised").values()
    own = {at for one in record.long_way.chains for at in one.activities}
    record.name = [name if at in own else "elementwise" for at in range(len(record.name))]
    return record


def _proposed(records: dict[int, RankRecord], peak: Peak | None, us: float = 1500.0) -> list[Candidate]:
    graph = build_graph(records)
    for node in graph.activities:
        node.traced_end = node.traced_start + round(1e3 * us)
    gains = SimpleNamespace(predict=lambda *_, **__: SimpleNamespace(change_ms=-5.0))
    replayer = SimpleNamespace(on_cpu=False, records=records, graph=graph, predict=gains.predict)
    scene: Any = SimpleNamespace(replayer=replayer, side=lay_side_by_side(graph), step_ms=50.0, peak=peak)
    return list(full_precision(scene))


def _shares(us: float, device: str) -> tuple[float, float]:
    """Return which share comes back in the middle, and the lower end as a share of that."""
    ((one,),) = [_proposed({0: _multiplying()}, find_peak(device), us)]
    (removal,), within = one.removals, one.known_within
    assert within is not None
    return removal.share, within[0]


def test_shorter_products_and_devices_with_less_beside_give_less_back() -> None:
    long, medium, short = (_shares(us, H200) for us in (1500.0, 300.0, 20.0))
    assert long[0] == pytest.approx(0.95 * (1 - 67 / 2 * (1 / 494.7 + 1 / 989)))
    assert long[0] > medium[0] > short[0] and long[1] > medium[1] > short[1] == 0
    assert _shares(1500.0, "NVIDIA GeForce RTX 4090")[0] == pytest.approx(0.95 * 0.5, rel=0.01)


def test_what_one_of_two_ranks_alone_multiplies_so_is_no_habit_of_all() -> None:
    peak = find_peak(H200)
    one, same, other = _multiplying(), _multiplying(), _multiplying(BF16)
    same.rank = other.rank = 1
    assert _proposed({0: one, 1: same}, peak) and not _proposed({0: one, 1: other}, peak)


def test_products_on_matrix_units_are_shorter_and_launched_as_before() -> None:
    graph = build_graph({0: _multiplying()})
    work, calls = list(graph.work_ns), list(graph.calls[0])
    own = [at for at, node in enumerate(graph.activities) if node.name == SIMT]
    remove(graph, lay_side_by_side(graph), Removal("full", share=0.8))
    assert own and all(graph.work_ns[at] == pytest.approx(0.2 * work[at]) for at in own)
    assert graph.calls[0] == calls
    assert all(graph.work_ns[at] == work[at] for at in range(len(work)) if at not in set(own))
