"""Collectives on copy engines are communication, though a trace holds copies where others hold kernels.

The data are real: 4 all-gathers of 64 MiB a rank beside matrix products on 2 GPUs, by NCCL with its zero-CTA policy on
symmetric buffers (`gather_ce`), and the same job on multiprocessors (`gather_sm`).
"""

import gzip
import json
from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest

from scalescope.report.panels.insitu import in_situ_sentence
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import InSitu
from scalescope.scaling.costs.points import read_launches
from scalescope.scaling.finding.figures import UNTOLD_WAITS
from scalescope.scaling.projection.outlook import Outlook
from scalescope.scaling.rank.copy_engines import join_copies
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.verdicts.insitu import add_in_situ
from tests.host_traces import HostTrace
from tests.trace_json import unpacked

DATA = Path(__file__).parent / "data"


def analysed(path: Path) -> RunAnalysis:
    (answer,) = analyze([path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer


@pytest.fixture(scope="module")
def on_copy_engines() -> RunAnalysis:
    return analysed(DATA / "gather_ce_n2")


@pytest.fixture(scope="module")
def on_multiprocessors() -> RunAnalysis:
    return analysed(DATA / "gather_sm_n2")


def annotated_us(rank: int) -> list[float]:
    """Return how long NCCL's own annotation spans each all-gather on the device."""
    trace = unpacked(DATA / "gather_ce_n2" / f"rank{rank}.json.gz")
    spans = [one for one in trace["traceEvents"] if one.get("cat") == "gpu_user_annotation"]
    return [one["dur"] for one in sorted(spans, key=lambda one: one["ts"]) if one["name"] == "nccl:_all_gather_base"]


def test_copies_are_the_collectives_that_launched_them(on_copy_engines: RunAnalysis) -> None:
    for step in (2, 3, 4):
        own = [one for one in on_copy_engines.collectives if one.step == step]
        assert [(one.operation, one.bytes, one.dtype) for one in own] == [("all_gather", 2 * 64 << 20, "float32")] * 4
        assert all(one.on_copy_engines and one.group_size == 2 for one in own)
        for one in own:
            assert one.bus_gb_s is not None and 250 < one.bus_gb_s < 300  # over two ranks, half of all bytes
    found = [one.transfer_us for one in on_copy_engines.collectives if one.step is not None]
    spans = [annotated_us(0), annotated_us(1)]
    for transfer, *whole in zip(found, *spans, strict=True):
        assert any(transfer == pytest.approx(one, rel=0.03) for one in whole)


def test_what_copies_waited_for_is_not_told(on_copy_engines: RunAnalysis) -> None:
    assert all(one.wait_us == {} and one.last_rank is None for one in on_copy_engines.collectives)
    assert any("ran on copy engines" in reason for reason in on_copy_engines.quality.reasons)


def test_they_are_no_exposed_copies(on_copy_engines: RunAnalysis) -> None:
    for rank in on_copy_engines.ranks:
        assert rank.exposed_memory_ms / rank.steps < 0.02  # fills of 4 bytes before matrix products
        assert rank.communication_ms / rank.steps == pytest.approx(4 * 0.245, rel=0.03)
        assert rank.overlap_fraction is not None and rank.overlap_fraction > 0.85
    assert not any(one.code in ("copies", "contention") for one in on_copy_engines.findings)


def test_kernels_on_multiprocessors_stay_what_they_are(on_multiprocessors: RunAnalysis) -> None:
    own = [one for one in on_multiprocessors.collectives if one.step is not None and one.transfer_us is not None]
    assert own and not any(one.on_copy_engines for one in own)
    assert all(one.last_rank is not None and one.wait_us for one in own)
    trace = read_trace(DATA / "gather_sm_n2" / "rank0.json.gz")
    assert join_copies(trace) is trace


def collective(trace: HostTrace, group_size: int, kernel: bool, **more: Any) -> None:
    """An all-gather whose record launches a copy, and perhaps a kernel too."""
    start = trace.clock
    external = 9_000 + trace.correlation
    for category in ["kernel", "gpu_memcpy"] if kernel else ["gpu_memcpy", "gpu_memcpy"]:
        number = trace.call("MemcpyAsync" if category == "gpu_memcpy" else "LaunchKernel")
        begin = max(trace.clock, trace.device_free)
        name = "ncclDevKernel_AllGather_RING_LL(x)" if category == "kernel" else "Memcpy DtoD (Device -> Device)"
        args: dict[str, Any] = {"correlation": number, "External id": external, "stream": 20, "device": 0}
        trace.event(category, name, begin, begin + 100.0, 20, 0, **args)
        trace.device_free = begin + 110.0
    told: dict[str, Any] = {
        "Collective name": "_allgather_base", "In msg nelems": 1024, "Out msg nelems": 2048, "dtype": "Float",
        "Group size": group_size, "Process Group Name": "0", "External id": external, **more,
    }  # fmt: skip
    trace.event("cpu_op", "record_param_comms", start, trace.clock, trace.thread, **told)


@pytest.mark.parametrize(("group_size", "kernel"), [(1, False), (2, True)])
def test_other_copies_stay_copies(group_size: int, kernel: bool, tmp_path: Path) -> None:
    """Of a group of one rank, and beside a kernel that does the work."""
    made = HostTrace().steps(2, lambda trace, _: collective(trace, group_size, kernel))
    trace = read_trace(made.write(tmp_path))
    assert join_copies(trace) is trace


def test_copies_of_one_call_are_one_activity(tmp_path: Path) -> None:
    """It begins with the first copy, or where that is all that the device has to do, as soon as it is enqueued."""
    made = HostTrace().steps(2, lambda trace, _: collective(trace, 2, False))
    activities = join_copies(read_trace(made.write(tmp_path))).activities
    assert (activities.end - activities.start).tolist() == [210_000, 220_000]


def standing(ranks: int, late: tuple[int, ...], folder: Path, write: tuple[int, ...] = ()) -> RunAnalysis:
    """Jobs of 6 steps of 2 ms: late ranks run 3 ms of their own, for which the others stand before the first copy."""

    def step(trace: HostTrace, _: int) -> None:
        for number in range(10):
            trace.kernel("aten::mm", 200.0, f"gemm_{number}")
        if trace.rank in late:
            trace.kernel("aten::sort", 3_000.0, "sort")
        else:
            trace.device_free += 3_000.0 + 0.5 * trace.rank
        collective(trace, ranks, False, **{"Process Group Ranks": str([*range(ranks)])})
        trace.idle(4_500.0)

    for rank in write or range(ranks):
        HostTrace(rank, ranks).steps(6, step).write(folder)
    return analysed(folder)


def test_a_device_that_has_nothing_but_the_copies_to_do_waits_for_its_partners(tmp_path: Path) -> None:
    """Idle time was told of it, and that fewer kernels would help."""
    told = standing(2, (1,), tmp_path)
    first, second = told.ranks
    assert first.exposed_wait_ms / first.steps == pytest.approx(3.0, abs=0.1)
    assert first.idle_queued_ms / first.steps < 0.1 and second.exposed_wait_ms / second.steps < 0.1
    assert [one.rank for one in told.stragglers] == [1]


def test_of_several_that_come_with_their_first_copies_none_is_called_late(tmp_path: Path) -> None:
    told = standing(3, (1, 2), tmp_path)
    assert told.ranks[0].exposed_wait_ms / told.ranks[0].steps == pytest.approx(3.0, abs=0.1)
    assert not told.stragglers


def test_what_one_rank_alone_stands_for_is_not_split(tmp_path: Path) -> None:
    (first,) = standing(2, (1,), tmp_path, write=(0,)).ranks
    assert first.exposed_unsplit_ms / first.steps > 3.0 and first.idle_queued_ms / first.steps < 0.1


RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "2026-11-22_2xH200_D"


def swept(tmp_path: Path, policies: Container[str | None]) -> Outlook:
    """The real sweep of all_gather under NCCL's CTA policies on two H200s; those of its rows with such a policy."""
    lines = gzip.decompress((RESULTS / "cta_policies.sweep.jsonl.gz").read_bytes()).splitlines()
    kept = [line for line in lines if json.loads(line)["cta_policy"] in policies]
    path = tmp_path / "sweep.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in kept))
    return Outlook(sweeps=tuple(read_launches(path)))


def held_against(traces: str, outlook: Outlook) -> InSitu:
    (run,) = analyze([DATA / traces], jobs=1, outlook=outlook)
    assert isinstance(run, RunAnalysis)
    (row,) = run.in_situ
    large = [one for one in run.collectives if one.step is not None and (one.bytes or 0) >= 1 << 20]
    assert large and all((one.in_situ_efficiency is None) == (row.efficiency is None) for one in large)
    return row


def test_each_is_held_against_the_sweeps_rows_of_its_own_policy(tmp_path: Path) -> None:
    """128 MiB lie between the sweep's 64 and 256 MiB: on a line through both, the root of their times' product.

    Beside matrix products copy engines keep their speed, and kernels on the products' multiprocessors do not.
    """
    every = swept(tmp_path, ("default", "efficiency", "zero"))
    for traces, ran_on, alone_us, efficiency in (
        ("gather_ce_n2", "copy_engines", (130.31 * 434.99) ** 0.5, 0.97),
        ("gather_sm_n2", "symmetric_kernels", (153.41 * 584.10) ** 0.5, 0.84),
    ):
        row = held_against(traces, every)
        assert (row.operation, row.bytes, row.ran_on, row.reason) == ("all_gather", 2 * 64 << 20, ran_on, None)
        assert row.alone_us == pytest.approx(alone_us, rel=1e-3)
        assert row.efficiency == pytest.approx(efficiency, abs=0.01)


def test_what_is_compared_on_copy_engines_is_said(tmp_path: Path) -> None:
    outlook = swept(tmp_path, ("default", "zero"))
    for traces, said in (("gather_ce_n2", True), ("gather_sm_n2", False)):
        (run,) = analyze([DATA / traces], jobs=1, outlook=outlook)
        assert isinstance(run, RunAnalysis)
        assert ("the hand-shake before them" in in_situ_sentence(run)) == said


@pytest.mark.parametrize(
    ("traces", "policies", "why"),
    [
        ("gather_ce_n2", ("default", "efficiency"), "it ran on copy engines, and the sweep's all_gather in kernels "
         "over symmetric windows; measure its like: scalescope sweep transport=direct operations=[all_gather] "
         "cta_policy=zero"),
        ("gather_sm_n2", ("zero",), "it ran in kernels over symmetric windows, and the sweep's all_gather on copy "
         "engines; measure its like: scalescope sweep transport=direct operations=[all_gather] cta_policy=default"),
    ],
)  # fmt: skip
def test_a_sweep_of_another_policy_is_not_taken_and_that_is_said(
    traces: str, policies: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    row = held_against(traces, swept(tmp_path, policies))
    assert (row.efficiency, row.alone_us, row.reason) == (None, None, why)


def test_plain_kernels_are_held_against_no_row_with_a_policy(tmp_path: Path) -> None:
    """The real collectives, as if a library without symmetric memory had run them."""
    outlook = swept(tmp_path, ("default", "efficiency", "zero"))
    run = analysed(DATA / "gather_sm_n2")
    for one in run.collectives:
        one.over_windows = False
    add_in_situ(run, {}, outlook.sweeps)
    (row,) = run.in_situ
    assert row.efficiency is None and row.reason is not None
    assert row.reason.startswith("it ran in kernels, on buffers that are no symmetric windows, and the sweep's "
                                 "all_gather in kernels over symmetric windows and on copy engines")  # fmt: skip
    assert row.reason.endswith("scalescope sweep operations=[all_gather]")


def test_what_may_be_waits_before_copy_engines_is_said_where_nothing_else_is_found() -> None:
    """*Nothing between the ranks is wrong* was told of a step of which a tenth may be waits that no trace tells."""
    answer = analysed(DATA / "gather_ce_n2")
    assert [one.code for one in answer.findings] == ["nothing"]
    told = next(row.ms for row in answer.findings[0].evidence if row.name == UNTOLD_WAITS)
    assert told == pytest.approx(0.17, abs=0.02)
    headline = run_verdict(answer).headline
    assert "nothing between the ranks is wrong" not in headline and "up to 0.17 ms of the 1.7 ms step" in headline
