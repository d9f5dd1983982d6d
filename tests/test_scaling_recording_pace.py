"""Without an untraced step: what recording costs hosts as fast as these, where the device alone is recorded, and what
the few steps of a window know of all others.
"""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.recording import OF_DEVICE_ALONE, WITH_DEVICE, terms_for
from scalescope.scaling.as_run.step import spread_ms, take_recording_out
from scalescope.scaling.as_run.untraced import given_steps
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.findings.profiler_cost import are_less_than_is_unknown
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Activity, Contention, Graph, HostCall
from scalescope.scaling.replay.host_cost import CallCost, HostCost, without_recording
from scalescope.scaling.replay.load import read_records
from scalescope.scaling.replay.whatif.replayer import Replayer
from tests.host_traces import HostTrace
from tests.recorded import records_of

DATA = Path(__file__).parent / "data"
#: One job on one machine, minutes apart: its host was slow in the second window. The device alone was recorded.
FAST, SLOW = DATA / "cuda_only_n1", DATA / "cuda_only_slow_host_n1"


def untraced(folder: Path) -> list[float]:
    steps: list[float] = json.loads((folder / "truth.json").read_text())["step_ms_unprofiled"]
    return steps


def analysed(folder: Path, step_ms: float | None = None) -> RunAnalysis:
    given = given_steps([step_ms] if step_ms is not None else [], [folder])
    (analysis,) = analyze([folder], 1, untraced=given, write=False)
    assert isinstance(analysis, RunAnalysis)
    return analysis


def launching(records: dict[int, RankRecord], launch_ns: float | None) -> dict[int, RankRecord]:
    """Make the records those of hosts that a launch takes so long."""
    for record in records.values():
        assert record.recorded is not None
        record.recorded = replace(record.recorded, launch_ns=launch_ns)
    return records


def test_a_slow_host_is_told_by_what_launches_take_and_is_charged_more() -> None:
    fast, slow = (terms_for(read_records(folder)) for folder in (FAST, SLOW))
    assert slow.call_ns > 1.5 * fast.call_ns
    assert (slow.low, slow.high) == (OF_DEVICE_ALONE.low, OF_DEVICE_ALONE.high)  # of calls alone nothing more is known


def test_terms_follow_the_hosts_pace_within_bounds_and_are_known_better_there() -> None:
    records = records_of("gpt_ddp_n1")
    assert terms_for(launching(records, None)) == WITH_DEVICE
    usual, slow, absurd = (terms_for(launching(records, ns)) for ns in (4_900.0, 9_800.0, 1e9))
    assert usual.operator_ns == pytest.approx(WITH_DEVICE.operator_ns)
    assert slow.operator_ns == pytest.approx(2**1.5 * usual.operator_ns)
    assert slow.call_ns / slow.operator_ns == pytest.approx(usual.call_ns / usual.operator_ns)
    assert absurd == WITH_DEVICE  # another driver's
    assert WITH_DEVICE.low < usual.low and usual.high < WITH_DEVICE.high


@pytest.mark.parametrize("folder", [FAST, SLOW])
def test_where_the_device_alone_is_recorded_the_range_holds_the_untraced_step(folder: Path) -> None:
    """Of the slow host 18.1 to 22.6 ms were told, of steps that took 12.3 to 15.2."""
    as_run = analysed(folder).as_run
    assert as_run is not None and as_run.source == "range" and as_run.low_ms is not None and as_run.high_ms is not None
    steps = untraced(folder)
    assert as_run.low_ms <= sorted(steps)[len(steps) // 2] <= as_run.high_ms


def test_a_true_step_of_a_slow_host_does_not_contradict_its_traces() -> None:
    """It was said to be shorter than recording can make it."""
    steps = untraced(SLOW)
    analysis = analysed(SLOW, sum(steps) / len(steps))
    assert analysis.as_run is not None and analysis.as_run.contradicts is None
    assert "contradicts" not in run_verdict(analysis).headline


def test_what_a_call_has_no_room_for_is_taken_off_the_way_to_the_next() -> None:
    """Of 8.5 µs a launch that took 5 no more than those 5 were taken out."""
    graph = Graph([0], [], [], {}, {0: [[]]}, {0: []}, {0: 0.0}, [], {0: []}, {0: [0]}, {0: 0.0}, {0: []}, [0],
                  Contention())  # fmt: skip
    for at in range(3):
        graph.add(Activity(0, 7, COMPUTE, 0.0, 0, "kernel"), 1_000.0)
        graph.order[0][0].append(at)
        graph.calls[0].append(HostCall(20_000.0, 0.0, 5_000.0, launches=at))
    before, during, none = np.full(3, 1_000.0), np.full(3, 8_500.0), np.zeros(3)
    cost = HostCost({0: CallCost(before, during, none, none)})
    lighter = without_recording(graph, cost, 1.0).calls[0]
    assert [one.duration_ns for one in lighter] == [0.0] * 3
    assert [one.think_ns for one in lighter] == [19_000.0, 15_500.0, 15_500.0]


def test_a_few_steps_that_differ_know_the_mean_of_all_no_better_than_by_that() -> None:
    replayer = Replayer(records_of("cpu_tiny_buckets_n2"))
    differ = spread_ms(replayer)
    as_run = take_recording_out(replayer)
    assert as_run is not None and as_run.source == "range"
    assert as_run.step_ms is not None and as_run.low_ms is not None and as_run.high_ms is not None
    assert differ > 0.1 * as_run.step_ms
    assert as_run.high_ms - as_run.step_ms >= differ and as_run.step_ms / as_run.low_ms >= 1 + differ / as_run.step_ms


UNKNOWN = Finding(
    code="profiler_cost", ms=None, low_ms=None, high_ms=None, backed="none",
    evidence=(
        EvidenceRow(kind="figure", name="recording_low", ms=0.4),
        EvidenceRow(kind="figure", name="recording_high", ms=6.3),
        EvidenceRow(kind="figure", name="idle_launch", ms=6.3),
    ),
)  # fmt: skip
COPIES = Finding(code="copies", ms=1.1, low_ms=0.0, high_ms=1.1, backed="replay", at_most=True)


def test_what_nobody_alone_does_and_may_cost_nothing_is_not_named_before_a_larger_unknown() -> None:
    """Of convolutions that bound their device the first sentence was that copies cost at most 1.1 ms."""
    assert are_less_than_is_unknown([COPIES], UNKNOWN)
    assert not are_less_than_is_unknown([], UNKNOWN)
    for known in (
        msgspec.structs.replace(COPIES, rank=1),  # one rank's own is news
        msgspec.structs.replace(COPIES, low_ms=0.3),
        msgspec.structs.replace(COPIES, ms=7.0, high_ms=7.0),
        msgspec.structs.replace(COPIES, at_most=False),
    ):
        assert not are_less_than_is_unknown([known], UNKNOWN)
        assert not are_less_than_is_unknown([COPIES, known], UNKNOWN)


def test_a_device_that_writes_down_many_short_kernels_may_be_quicker_without(tmp_path: Path) -> None:
    """31.4 to 33.0 ms were told of a step of 31.25 in one graph: writing down each kernel takes its device time."""

    def low_of(kernels: int, us: float) -> float:
        trace = HostTrace(0, 1)

        def step(trace: HostTrace, _number: int) -> None:
            for _ in range(kernels):
                trace.kernel("aten::mm", us)

        trace.steps(4, step).write(tmp_path / str(kernels))
        as_run = analysed(tmp_path / str(kernels)).as_run
        assert as_run is not None and as_run.source == "not_needed" and as_run.low_ms is not None
        assert as_run.step_ms is not None
        return as_run.low_ms / as_run.step_ms

    few, many = low_of(50, 800.0), low_of(1_000, 40.0)
    assert few == pytest.approx(1 - 0.025, abs=1e-3), "what clocks drift by"
    assert many == pytest.approx(1 - (0.025**2 + (0.7 / 40) ** 2) ** 0.5, abs=1e-3)
