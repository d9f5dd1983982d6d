"""Activation checkpointing as a finding: what the backward pass runs of the forward pass again, and what that costs.

tests/data/recomputed: a small convolutional network on CPUs, by tests/recomputed_job.py.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scalescope import RunAnalysis
from scalescope.records.folder import RunFolder
from scalescope.records.rows import TrainFacts
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.order import ranked
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.findings.prices.pricing import no_more_than_idle
from scalescope.scaling.findings.profiler_cost import without_trades
from tests.gloo_traces import analysed
from tests.synthetic import BASE_NS, write

RECORDED = Path(__file__).parent / "data" / "recomputed"
Json = dict[str, Any]


def _of(answer: RunAnalysis, code: str = "recomputation") -> list[Finding]:
    return [one for one in answer.findings if one.code == code]


@pytest.mark.parametrize(
    ("case", "least", "most"), [("unpacked", 3.3, 5.0), ("reentrant", 2.8, 4.0), ("one", 4.2, 6.0)]
)
def test_what_the_backward_pass_runs_of_the_forward_pass_again_is_told(case: str, least: float, most: float) -> None:
    """4.2 ms of 18.2, on two ranks and on one alone: nothing of the answer said that anything was computed twice."""
    (one,) = _of(analysed(RECORDED / case))
    assert (one.rank, one.ranks, one.at_most, one.backed) == (None, (), False, "replay")
    assert one.ms is not None and least < one.ms < most
    assert one.low_ms is not None and one.low_ms > 0.8 * one.ms
    assert "the backward pass runs 32 operators of the forward pass again" in because(one)
    assert "most of it aten::conv2d" in because(one) and "the memory it saves" in because(one)
    assert one.remedy is not None and "as far as memory allows" in cure_text(one.remedy)
    assert "torch.utils.checkpoint around fewer blocks" in cure_elsewhere(one.remedy)


def test_it_leads_where_nothing_costs_more() -> None:
    assert "activation checkpointing costs 4." in run_verdict(analysed(RECORDED / "unpacked")).headline


def test_a_job_of_ours_is_told_the_key_for_it(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", "train", "what: job\n")
    info = run.read_info()
    info.status, info.world_size = "done", 2
    run.write_info(info)
    run.write_facts(TrainFacts("net", "ddp", "fp32", 1, 0.0, "", 1, origin="job"))
    run.traces.mkdir(exist_ok=True)
    for file in (RECORDED / "unpacked").iterdir():
        (run.traces / file.name).write_bytes(file.read_bytes())
    (answer,) = analyze([run.path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    (one,) = _of(answer)
    assert one.remedy is not None and one.remedy.overrides == ("recompute=false",)


def _finding(code: Any, ms: float, rank: int | None = None) -> Finding:
    return Finding(code=code, rank=rank, ms=ms, low_ms=0.8 * ms, high_ms=1.2 * ms, fraction=ms / 100, backed="replay",
                   remedy=Remedy(cure="recompute_less"))  # fmt: skip


def test_a_fault_goes_before_what_was_chosen_for_memory_unless_it_is_far_below() -> None:
    again = _finding("recomputation", 12.0)
    for fault, first in (
        (_finding("host_stall", 4.0, 1), "host_stall"),
        (_finding("synchronising", 10.0), "synchronising"),
        (_finding("host_stall", 2.0, 1), "recomputation"),
        (_finding("copies", 6.0), "recomputation"),
    ):
        assert ranked([again, fault])[0].code == first


def test_what_bounds_the_step_is_asked_before_less_that_was_chosen_for_memory() -> None:
    """*GPU-bound or host-bound: cannot be told* goes before 7 ms of checkpointing, and not before 20."""
    rows = (("recording_low", 10.0), ("recording_high", 25.0))
    unknown = Finding(code="profiler_cost", ms=None, low_ms=None, high_ms=None, backed="none",
                      evidence=tuple(EvidenceRow(kind="figure", name=name, ms=ms) for name, ms in rows))  # fmt: skip
    assert not without_trades([_finding("recomputation", 7.0)], unknown)
    assert without_trades([_finding("recomputation", 20.0), _finding("copies", 1.0)], unknown)[0].ms == 20.0


LAYERS = ("aten::linear", "aten::gelu", "aten::linear", "aten::layer_norm")
_HOST_NS, _KERNEL_NS, _LOOP, _BACKWARD = 20_000, 300_000, 101, 102


def _device_traces(folder: Path, kernel_ns: int = _KERNEL_NS) -> Path:
    """Write traces of two ranks whose devices run two blocks forward, and each again before its own backward pass."""
    return write({rank: _device_trace(rank, kernel_ns) for rank in (0, 1)}, folder)


def _device_trace(rank: int, kernel_ns: int) -> Json:
    events: list[Json] = []
    now, free, launched = 1_000_000, 0, 0

    def event(category: str, name: str, start: int, end: int, thread: int, args: Json | None = None) -> None:
        events.append({"ph": "X", "cat": category, "name": name, "pid": 1000 if category != "kernel" else rank,
                       "tid": thread, "ts": start / 1e3, "dur": (end - start) / 1e3, "args": args or {}})  # fmt: skip

    def operator(name: str, thread: int) -> None:
        nonlocal now, free, launched
        launched += 1
        event("cuda_runtime", "cudaLaunchKernel", now + 5_000, now + 9_000, thread, {"correlation": launched})
        event("cpu_op", name, now, now + _HOST_NS, thread)
        free = max(free, now + 12_000) + kernel_ns
        args = {"correlation": launched, "device": rank, "stream": 7}
        event("kernel", "nvjet_gemm" if "linear" in name else "elementwise_kernel", free - kernel_ns, free, 7, args)
        now += _HOST_NS + 2_000

    def node(name: str, inside: tuple[str, ...]) -> None:
        nonlocal now
        begin = now
        now += 4_000
        for one in inside:
            operator(one, _BACKWARD)
        event("cpu_op", name, begin + 1_000, now, _BACKWARD)
        event("cpu_op", f"autograd::engine::evaluate_function: {name}", begin, now + 1_000, _BACKWARD)
        now += 3_000

    for step in range(5):
        begun = now
        for name in 2 * LAYERS:
            operator(name, _LOOP)
        for _ in range(2):
            node("NativeLayerNormBackward0", (*LAYERS, "aten::native_layer_norm_backward"))
            node("AddmmBackward0", ("aten::mm", "aten::mm"))
        operator("aten::_foreach_add_", _LOOP)
        event("cuda_runtime", "cudaDeviceSynchronize", now, free + 10_000, _LOOP)
        now = free + 12_000
        event("user_annotation", f"ProfilerStep#{step + 3}", begun, now, _LOOP)
        now += 50_000
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": rank, "name": "NVIDIA H200"}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": events,
    }


def test_on_devices_the_kernels_that_are_launched_from_there_count(tmp_path: Path) -> None:
    answer = analysed(_device_traces(tmp_path), step_ms=7.0)
    (one,) = _of(answer)
    assert one.ms == pytest.approx(8 * _KERNEL_NS / 1e6, rel=0.1)
    assert "8 kernels of the forward pass again" in because(one) and "most of it matmul" in because(one)


def test_where_hosts_bind_what_they_do_beside_the_operators_counts_as_well(tmp_path: Path) -> None:
    """*3.6 ms (3.2 ms to 4.0 ms)* was told of 15.1, of a U-Net on two devices that waited for launches: hooks for each
    tensor that is saved, and states of random numbers, are no operators that run again.
    """
    (one,) = _of(analysed(_device_traces(tmp_path, 5_000)))
    assert one.at_least and one.low_ms == one.ms
    (bound,) = _of(analysed(_device_traces(tmp_path / "devices")))
    assert not bound.at_least


def test_launching_costs_no_more_than_the_step_has_beside_compute() -> None:
    """*Launching costs at most 21.4 ms of the 19.2 ms step*: single steps as run did not come to the known mean."""
    replayer = SimpleNamespace(on_cpu=False, contention=SimpleNamespace(inflation_high=0.25))
    as_run = SimpleNamespace(high_ms=21.7)
    scene = cast(Scene, SimpleNamespace(replayer=replayer, step_ms=19.2, share_ms=lambda _: 1.5,
                                        analysis=SimpleNamespace(as_run=as_run)))  # fmt: skip
    launching = Gain(
        Candidate(code="host_bound", evidence=(), remedy=Remedy(cure="compile"), at_most=True), 21.4, 0, 30
    )
    told = no_more_than_idle(scene, launching)
    assert (told.ms, told.low_ms, told.high_ms) == pytest.approx((18.0, 0, 20.5))
