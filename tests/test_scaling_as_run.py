"""The step as run: recording's cost is counted, calibrated and taken out, and the step is the untraced one then."""

import gzip
import json
import math
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from scalescope.cli import front_door
from scalescope.records.rows import StepPhase, StepRow
from scalescope.report.steadiness import unlike_sentence
from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.answer_steps import StepTimes
from scalescope.scaling.as_run.calibrate import calibrate
from scalescope.scaling.as_run.partition import partition_replayed
from scalescope.scaling.as_run.recording import WITH_DEVICE, host_paces, terms_for
from scalescope.scaling.as_run.replays import Replays
from scalescope.scaling.as_run.step import take_recording_out
from scalescope.scaling.as_run.untraced import untraced_near
from scalescope.scaling.as_run.untraced_step import Untraced
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.rank.recorded import OPERATOR_EDGES, RUNTIME_CALLS
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.engine.timing import Timing
from scalescope.scaling.replay.graph import Activity, Contention, Graph, HostCall
from scalescope.scaling.replay.host_cost import CallCost, HostCost, settled_steps, started, starts_of
from scalescope.scaling.replay.load import read_records
from scalescope.scaling.replay.simulate import mean_step_ns, simulate, simulate_begins, simulate_steps
from scalescope.scaling.replay.whatif.replayer import Replayer
from scalescope.scaling.run import explain_run
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.verdicts.step_rows.steady import add_steps
from scalescope.train.measure.schedule import Schedule, Window
from scalescope.train.measure.summary import summarise
from tests.recorded import records_of

DATA = Path(__file__).parent / "data"
#: 2×H200 on a slow host: bound by the devices, and by the host of rank 1 while it was recorded.
SLOW_HOST = DATA / "gpt_slow_host_n2"
UNTRACED_MS = max(json.loads((SLOW_HOST / "truth.json").read_text())["step_ms_unprofiled"])


def _given(step_ms: float, spread: float = 0.01) -> Untraced:
    return Untraced(Interval(step_ms, step_ms * (1 - spread), step_ms * (1 + spread)), "given")


@cache
def _as_run(name: str, step_ms: float | None = None) -> tuple[Replayer, AsRun]:
    replayer = Replayer(records_of(name))
    found = take_recording_out(replayer, _given(step_ms) if step_ms is not None else None)
    assert found is not None
    return replayer, found


def test_a_step_that_only_recording_made_host_bound_is_its_devices_as_run() -> None:
    replayer, found = _as_run("gpt_slow_host_n2", UNTRACED_MS)
    assert replayer.replay.traced_ms > 1.9 * UNTRACED_MS
    assert found.source == "given" and found.reason is None
    assert found.step_ms == pytest.approx(UNTRACED_MS, rel=0.015)
    for one in found.ranks:
        assert one.idle_launch_ms <= 0.02 * one.window_ms
        assert one.exposed_wait_ms <= 0.04 * one.window_ms
        assert sum(one.part_ms(part) for part in PARTS) == pytest.approx(one.window_ms, abs=1e-6)


def test_what_recording_can_cost_at_most_is_known_without_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    replayer = Replayer(read_records(SLOW_HOST))
    told = replayer.replay.traced_ms - UNTRACED_MS
    monkeypatch.setattr(Replayer, "is_good_for", lambda *_, **__: False)
    found = take_recording_out(replayer, _given(UNTRACED_MS))
    assert found is not None and (found.reason, found.recording_ms) == ("not_replayed", None)
    assert found.recording_at_most_ms is not None and told < found.recording_at_most_ms < 20 * told


def test_as_run_nobody_gains_from_a_rank_that_only_recording_made_late() -> None:
    replayer, _ = _as_run("gpt_slow_host_n2", UNTRACED_MS)
    late = replayer.predict(Change(no_straggler=1))
    launches = replayer.predict(Change(host_free=True))
    assert late.change_ms is not None and late.change_ms > -0.03 * UNTRACED_MS
    assert launches.change_ms is not None and launches.change_ms > -0.02 * UNTRACED_MS
    traced = Replayer(replayer.records).predict(Change(no_straggler=1))
    assert traced.change_ms is not None and traced.change_ms < -0.3 * UNTRACED_MS


def test_without_an_untraced_step_the_range_covers_it_and_says_that_it_is_one() -> None:
    replayer, found = _as_run("gpt_slow_host_n2")
    assert found.source == "range" and found.low_ms is not None and found.high_ms is not None
    assert found.low_ms <= UNTRACED_MS <= found.high_ms < replayer.replay.traced_ms
    wide = replayer.predict(Change(host_free=True))
    assert wide.low_ms is not None and wide.high_ms is not None
    assert wide.low_ms < -0.3 * UNTRACED_MS and wide.high_ms > -0.05 * UNTRACED_MS, "what holds at every scale, no more"


@pytest.mark.parametrize("name", ["gpt_ddp_n1", "gpt_ddp_n2", "resnet50_ddp_n4"])
def test_a_step_that_its_devices_bound_does_not_move_at_any_scale(name: str) -> None:
    replayer, found = _as_run(name)
    assert found.source == "not_needed" and found.step_ms is not None
    assert found.step_ms == pytest.approx(replayer.replay.replayed_ms, rel=0.005)


def test_how_well_the_replay_does_is_judged_on_the_step_as_traced() -> None:
    replayer, _ = _as_run("gpt_slow_host_n2", UNTRACED_MS)
    assert replayer.replay.replayed_ms == pytest.approx(replayer.replay.traced_ms, rel=0.01)
    assert replayer.base_ns / 1e6 == pytest.approx(UNTRACED_MS, rel=0.015)


@pytest.mark.parametrize("name", ["gpt_slow_host_n2", "gpt_ddp_n2", "gpt_ddp_n1", "cpu_ddp_n2", "cpu_fsdp2_n2"])
def test_the_partition_of_an_unchanged_replay_is_that_of_the_trace(name: str) -> None:
    replayer = Replayer(records_of(name))
    graph = replayer.graph
    replayed = partition_replayed(graph, simulate(graph), on_cpu=replayer.on_cpu)
    profiled = explain_run(DATA / name).partitions
    for rank, part in replayed.items():
        assert sum(part.parts) == part.window
        bounded = profiled[rank][:-1]
        for at, name_of_part in enumerate(PARTS):
            traced = sum(step.parts[at] for step in bounded)
            assert part.parts[at] == pytest.approx(traced, abs=0.012 * part.window), name_of_part


def test_everything_that_was_recorded_is_charged_once() -> None:
    (record,) = records_of("gpt_ddp_n1").values()
    recorded = record.recorded
    assert recorded is not None and recorded.shapes
    trace = read_trace(next((DATA / "gpt_ddp_n1").glob("*.json.gz")))
    base = trace.header.base_ns
    first, last = record.calls[0].start - base, max(call.end for call in record.calls) - base
    threads = {call.thread for call in record.calls if call.activity >= 0}
    edges = [
        instant
        for spans in (trace.operators, trace.annotations)
        for thread, *times in zip(spans.thread.tolist(), spans.start.tolist(), spans.end.tolist(), strict=True)
        for instant in times
        if thread in threads and first < instant <= last
    ]
    calls = [
        end
        for thread, end in zip(trace.runtime.thread.tolist(), trace.runtime.end.tolist(), strict=True)
        if thread in threads and first < end <= last
    ]
    counted = recorded.before.sum(0) + recorded.during.sum(0)
    assert counted[OPERATOR_EDGES] == len(edges) and counted[RUNTIME_CALLS] == len(calls)


def test_what_cupti_stopped_the_host_for_is_charged_and_what_it_did_beside_it_is_not() -> None:
    records = read_records(SLOW_HOST)
    known = {rank: one.recorded for rank, one in records.items()}
    assert known[0] is not None and known[1] is not None
    stopped = known[0].during[:, 3].sum() / 1e6
    # all but the one buffer of 2.19 ms that CUPTI asked for while the host went on
    assert stopped == pytest.approx(26.28, abs=0.01) and not known[0].before[:, 3].any()
    assert not known[1].during[:, 3].any()


def test_a_host_that_takes_longer_for_the_same_launches_is_charged_more() -> None:
    paces = host_paces(read_records(SLOW_HOST))
    assert paces[1] > 1.2 * paces[0] and sum(paces.values()) == pytest.approx(2)
    assert host_paces(records_of("gpt_ddp_n1")) == {0: 1.0}


KERNELS, STEPS = 40, 4


def _job(think_ns: float, work_ns: float) -> Graph:
    """Return one rank's steps of kernels, each launched `think_ns` after the one before."""
    graph = Graph([0], [], [], {}, {0: [[]]}, {0: []}, {0: 0.0}, [], {0: []}, {0: []}, {0: 0.0}, {0: []},
                  list(range(STEPS)), Contention())  # fmt: skip
    for at in range(KERNELS * STEPS):
        graph.add(Activity(0, 7, COMPUTE, 0.0, at // KERNELS, "kernel"), work_ns)
        graph.order[0][0].append(at)
        graph.calls[0].append(HostCall(think_ns, 0.0, 0.0, launches=at))
        if at % KERNELS == 0:
            graph.steps[0].append(at)
    return graph


def _cost(ns_a_call: float) -> HostCost:
    each, none = np.full(KERNELS * STEPS, ns_a_call), np.zeros(KERNELS * STEPS)
    return HostCost({0: CallCost(each, none, none, none)})


def test_where_hosts_wait_in_mid_step_the_least_scale_is_found_along_the_curve() -> None:
    """A host that launches once its device is done: 2 ms and 8 ms, down to 8 at a scale of 2 and beyond."""
    graph = _job(think_ns=2e6 / KERNELS, work_ns=8e6 / KERNELS)
    graph.calls[0] = [one for call in graph.calls[0] for one in (call, HostCall(0.0, 0.0, 0.0, awaits=call.launches))]
    each, none = np.tile([1e6 / KERNELS, 0.0], KERNELS * STEPS), np.zeros(2 * KERNELS * STEPS)
    traced = mean_step_ns(simulate_steps(graph))
    assert traced == pytest.approx(10e6, rel=1e-3)
    found = calibrate(graph, traced, HostCost({0: CallCost(each, none, none, none)}), WITH_DEVICE, _given(8.15, 0.001))
    assert found.reason is None and not found.recording.fitted  # devices alone may differ by so much
    assert found.recording.scale.low == pytest.approx(1.84, rel=0.05)


def test_the_scale_is_the_one_at_which_the_replay_is_the_untraced_step() -> None:
    graph = _job(think_ns=30_000.0, work_ns=5_000.0)  # 1.2 ms a step, the host's
    traced = mean_step_ns(simulate_steps(graph))
    found = calibrate(graph, traced, _cost(10_000.0), WITH_DEVICE, _given(KERNELS * 0.018, 0.02))
    assert found.reason is None and found.source == "given"
    assert found.recording.scale.value == pytest.approx(1.2, rel=0.02)  # (30 - 18) / 10
    assert found.recording.scale.low == pytest.approx(1.164, rel=0.02)
    assert found.recording.scale.high == pytest.approx(1.236, rel=0.02)


def test_between_host_and_device_bound_the_device_stops_the_step_from_shrinking() -> None:
    graph = _job(think_ns=30_000.0, work_ns=20_000.0)
    traced = mean_step_ns(simulate_steps(graph))
    reached = calibrate(graph, traced, _cost(10_000.0), WITH_DEVICE, _given(KERNELS * 0.0201))
    assert reached.reason is None and reached.step_ns.value == pytest.approx(KERNELS * 20_000, rel=0.01)
    scale = reached.recording.scale
    assert 0.97 <= scale.low < 1.1 * scale.low < scale.value < scale.high, "that hosts are just in time is no default"
    short = calibrate(graph, traced, _cost(10_000.0), WITH_DEVICE, _given(KERNELS * 0.015))
    assert short.reason == "not_reached" and short.step_ns.low == pytest.approx(KERNELS * 15_000, rel=0.02)
    longer = calibrate(graph, traced, _cost(10_000.0), WITH_DEVICE, _given(KERNELS * 0.040))
    assert longer.reason == "untraced_longer" and longer.recording.scale.value == 0


def test_what_one_calibration_replayed_another_does_not_replay_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that contradicts its traces is calibrated against where they end on both sides, and without it."""
    graph, cost = _job(think_ns=30_000.0, work_ns=5_000.0), _cost(10_000.0)
    traced = mean_step_ns(simulate_steps(graph))
    replayed = []

    def begins(graph: Graph) -> Timing:
        replayed.append(graph)
        return simulate_begins(graph)

    monkeypatch.setattr("scalescope.scaling.as_run.replays.simulate_begins", begins)
    steps = [None, _given(1e-3), _given(KERNELS * 0.018, 0.02)]
    alone = [calibrate(graph, traced, cost, WITH_DEVICE, one) for one in steps]
    each = len(replayed)
    known = Replays(graph, cost)
    assert [calibrate(graph, traced, cost, WITH_DEVICE, one, known) for one in steps] == alone
    assert len(replayed) - each < each
    each = len(replayed)
    assert [calibrate(graph, traced, cost, WITH_DEVICE, one, known) for one in steps[:1]] == alone[:1]
    assert len(replayed) == each


def test_an_untraced_step_that_is_hardly_known_is_still_likeliest_its_median() -> None:
    """Steps of an uneven host, 0.72 to 1.12 ms: the devices' 0.8 may be all of it, but 1.12 is unlikely."""
    graph = _job(think_ns=30_000.0, work_ns=20_000.0)
    traced = mean_step_ns(simulate_steps(graph))
    found = calibrate(graph, traced, _cost(3_000.0), WITH_DEVICE, _given(KERNELS * 0.023, 0.22))
    assert found.step_ns.value == pytest.approx(KERNELS * 23_000, rel=0.02)
    assert found.step_ns.low == pytest.approx(KERNELS * 17_940, rel=0.01)
    assert found.recording.scale.low < found.recording.scale.value


@pytest.mark.parametrize("times", [0.85, 1.0, 1.15])
def test_what_steps_on_shared_cores_differ_by_is_not_charged_to_recording(times: float) -> None:
    """Untraced steps that happened to be the shorter ones gave 323.7 ms as run, where 343.4 were measured."""
    replayer = Replayer(records_of("cpu_ddp_n2"))
    traced = replayer.replay.traced_ms
    untraced = Interval(times * traced, (times - 0.3) * traced, (times + 0.3) * traced)
    found = take_recording_out(replayer, Untraced(untraced, "steps"))
    assert found is not None and found.step_ms is not None and found.scale is not None
    assert found.scale.value == terms_for(replayer.records).likely
    assert 0.97 * traced < found.step_ms <= traced
    assert found.low_ms == pytest.approx(untraced.low) and found.high_ms == pytest.approx(max(untraced.high, traced))


@pytest.mark.parametrize("times", [0.8, 0.9, 1.2])
def test_a_window_on_shared_cores_that_all_steps_beside_it_lie_off_is_no_dearer_to_record(times: float) -> None:
    """Steps of 59.8 ms (50.5 to 69.1) beside a traced one of 73.2: recording was charged 4.6 times what it costs, so
    that as run the step had the length of that interval's end. Measured on and off by turns, recording cost 1.2 ms.
    """
    replayer = Replayer(records_of("cpu_ddp_n2"))
    traced = replayer.replay.traced_ms
    untraced = Interval(times * traced, (times - 0.08) * traced, (times + 0.08) * traced)
    found = take_recording_out(replayer, Untraced(untraced, "steps"))
    terms = terms_for(replayer.records)
    assert found is not None and found.step_ms is not None and found.scale is not None
    assert found.scale == Interval(terms.likely, terms.low, terms.high)
    spent = found.recording_ms
    assert spent is not None and 0 < spent.low < spent.value < spent.high < 0.06 * traced
    assert found.profiled_ms is not None and 0.97 * traced < found.profiled_ms.value <= traced
    # what its operators took longer, for fresh pages or a slower minute, is told apart, and by a fifth at most
    slower = found.profiled_ms.value - times * traced if 0.8 < times < 1 else 0.0
    assert found.slowed_ms == pytest.approx(slower, abs=0.004 * traced)
    known = Interval(0.985 * traced, 0.984 * traced, 0.986 * traced)  # of a quiet machine, better than the terms do
    quiet = take_recording_out(Replayer(records_of("cpu_ddp_n2")), Untraced(known, "steps"))
    assert quiet is not None and quiet.step_ms == pytest.approx(known.value, rel=0.006)


def _stalled_job(stall_ns: float) -> Graph:
    """Return such a job whose host sleeps before each step's first launch."""
    graph = _job(think_ns=12_000.0, work_ns=10_000.0)
    for at in graph.steps[0]:
        graph.calls[0][at] = replace(graph.calls[0][at], think_ns=graph.calls[0][at].think_ns + stall_ns)
    return graph


@pytest.mark.parametrize("beyond_device", [1.03, 1.1, 1.3, 1.6, 1.9])
def test_the_scale_is_found_wherever_the_untraced_step_lies_between_hosts_and_devices(beyond_device: float) -> None:
    graph = _stalled_job(300_000.0)
    traced = mean_step_ns(simulate_steps(graph))
    found = calibrate(graph, traced, _cost(3_000.0), WITH_DEVICE, _given(KERNELS * 0.01 * beyond_device, 0.001))
    assert found.reason is None and found.step_ns.value == pytest.approx(KERNELS * 10_000 * beyond_device, rel=0.005)


def test_without_an_untraced_step_devices_may_have_been_slower_or_faster() -> None:
    graph = _job(think_ns=5_000.0, work_ns=20_000.0)
    traced = mean_step_ns(simulate_steps(graph))
    found = calibrate(graph, traced, _cost(1_000.0), WITH_DEVICE, None)
    assert found.source == "not_needed" and found.step_ns.low < 0.98 * traced < 1.02 * traced < found.step_ns.high


def test_of_a_least_scale_the_rest_is_as_likely_as_it_ever_was() -> None:
    nothing, much = WITH_DEVICE.scale_from(0.0), WITH_DEVICE.scale_from(2.0)
    assert nothing.value == pytest.approx(WITH_DEVICE.likely, rel=0.01) and nothing.high < WITH_DEVICE.high
    assert 2.0 <= much.low < much.value < much.high


def test_the_efficiency_that_is_shown_is_that_of_the_step_as_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door.main(["analyze", str(SLOW_HOST), "--step-ms", "24.7"]) == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if "Parallel efficiency" in line]
    assert line.startswith("Parallel efficiency as run 91"), "as profiled it is 51%, which nobody's step ever was"
    assert "profile again" not in said
    assert front_door.main(["analyze", str(SLOW_HOST)]) == 0
    assert "Parallel efficiency as profiled, what recording costs included" in capsys.readouterr().out


def test_a_host_does_not_live_on_the_lead_that_it_was_given() -> None:
    """Of kernels of 20 µs launched every 19 µs the device bounds the step; made twice as fast, the host does."""
    graph = _job(think_ns=30_000.0, work_ns=20_000.0)
    found = calibrate(graph, mean_step_ns(simulate_steps(graph)), _cost(11_000.0), WITH_DEVICE, _given(KERNELS * 0.02))
    as_run = found.recording.taken_out(graph, 1.0)
    assert as_run.led == {0}
    faster = as_run.copy()
    faster.work_ns = [10_000.0] * len(faster.work_ns)
    assert mean_step_ns(simulate_steps(faster)) == pytest.approx(KERNELS * 19_000, rel=0.01)


def test_a_host_that_no_longer_sleeps_before_the_first_step_either_gains_no_more_in_it_than_in_the_others() -> None:
    """Its device begins the window when it did: a host that came earlier would have its first step all but done."""
    graph = _job(think_ns=12_000.0, work_ns=2_000.0)
    for at in graph.steps[0]:
        graph.calls[0][at] = replace(graph.calls[0][at], think_ns=312_000.0)
    graph = started(graph, starts_of(graph, simulate_begins(graph)))
    changed = graph.copy()
    changed.calls[0] = [replace(call, think_ns=12_000.0) for call in graph.calls[0]]
    assert settled_steps(changed)[0] == pytest.approx([KERNELS * 12_000.0] * (STEPS - 1), rel=0.01)


def test_where_hosts_wait_in_mid_step_the_bounds_of_the_scale_are_found_along_the_curve() -> None:
    """10 ms of the host's own and 1 of waiting: that its own calls take 9.5 says nothing of a step that does."""
    graph = _job(think_ns=10e6 / KERNELS, work_ns=10_000.0)
    middle = [at + KERNELS // 2 for at in graph.steps[0]]
    for at in middle:
        graph.work_ns[at] = 1e6
    graph.calls[0] = [
        one
        for call in graph.calls[0]
        for one in (call, *([HostCall(0.0, 0.0, 0.0, awaits=call.launches)] if call.launches in middle else ()))
    ]
    each, none = (np.array([ns if one.launches >= 0 else 0.0 for one in graph.calls[0]]) for ns in (1e6 / KERNELS, 0.0))
    traced = mean_step_ns(simulate_steps(graph))
    assert traced == pytest.approx(11e6, rel=0.01)
    found = calibrate(graph, traced, HostCost({0: CallCost(each, none, none, none)}), WITH_DEVICE, _given(9.5, 0.02))
    scale = found.recording.scale
    assert (scale.low, scale.value, scale.high) == pytest.approx((1.31, 1.5, 1.69), abs=0.05)


def test_untraced_steps_count_near_the_window_and_after_it_only_where_nothing_lingers() -> None:
    def rows(after: float) -> list[StepRow]:
        def row(step: int, phase: StepPhase, ms: float) -> StepRow:
            return StepRow(step=step, phase=phase, step_ms=[ms, ms - 1], samples_per_s=1.0)

        return [
            *(row(step, "warmup", 90.0) for step in range(3)),
            *(row(step, "steady", 24.0 + 0.1 * (step % 5)) for step in range(3, 40)),
            *(row(step, "profile", 48.0) for step in range(40, 45)),
            *(row(step, "steady", after + 0.1 * (step % 5)) for step in range(45, 60)),
        ]

    slower = untraced_near(rows(30.0), range(40, 45))
    assert slower is not None and slower.source == "steps" and slower.step_ms.value == pytest.approx(24.2, abs=0.05)
    same = untraced_near(rows(24.0), range(40, 45))
    assert same is not None and same != slower and 24.2 in same.step_ms, "steps after it that are alike count, too"
    only_after = untraced_near([row for row in rows(30.0) if row.phase == "profile" or row.step > 44], range(40, 45))
    assert only_after is not None and only_after.step_ms.value == pytest.approx(30.2, abs=0.05)
    assert untraced_near([row for row in rows(30.0) if row.phase == "profile"], range(40, 45)) is None


def test_a_trace_may_tell_the_steps_before_it_in_its_header(tmp_path: Path) -> None:
    for rank in (0, 1):
        text = gzip.decompress((SLOW_HOST / f"rank{rank}.json.gz").read_bytes())
        reported = b'{"scalescope": {"untraced_step_ms": [24.6, 24.7, 24.8, 24.7, 24.6]},'
        (tmp_path / f"rank{rank}.json").write_bytes(text.replace(b"{", reported, 1))
    found = take_recording_out(Replayer(read_records(tmp_path)))
    assert found is not None and found.source == "metadata"
    assert found.step_ms == pytest.approx(24.7, rel=0.015)


def test_what_profiling_costs_is_told_apart_from_a_machine_that_is_unsteady() -> None:
    def explained(steady_ms: list[float]) -> RunAnalysis:
        analysis = explain_run(DATA / "gpt_ddp_n1").analysis  # 49.7 ms a step
        add_steps(analysis, [
            StepRow(step=step, phase="steady", step_ms=[ms], samples_per_s=1.0) for step, ms in enumerate(steady_ms)
        ])  # fmt: skip
        return analysis

    def reported(steady_ms: list[float]) -> StepTimes:
        times = explained(steady_ms).step_times
        assert times is not None
        return times

    dear = reported([45.0, 45.2] * 12)
    assert not dear.unsteady and dear.profiling_overhead_ms == pytest.approx(4.64, abs=0.1)
    drifting = reported([44.0 + abs(12.0 - step) for step in range(24)])
    assert drifting.unsteady and drifting.placebo_ms is not None and drifting.placebo_ms > 4
    assert reported([45.0] * 4).placebo_ms is None, "too few to tell"
    shorter = explained([90.0, 90.2] * 12)
    assert (
        shorter.step_times is not None
        and shorter.step_times.unsteady
        and "which no profiling makes" in unlike_sentence(shorter, "1 GPU")
    )
    assert unlike_sentence(shorter, "1 GPU").startswith("On 1 GPU the machine was unsteady")


def test_a_jobs_last_words_and_its_analysis_agree_on_what_profiling_costs() -> None:
    """Steps that drift between 900 and 1,400 ms, the last three of them profiled."""
    schedule = Schedule(43, 0, (Window(38, 40, 43),))
    rows = [
        StepRow(step=step, phase=schedule.phase(step), step_ms=[1150.0 + 250 * math.sin(step / 4)], samples_per_s=1.0)
        for step in range(43)
    ]
    said = summarise("gpt", rows, schedule)[-1]
    assert "the machine was unsteady" in said and "recording" not in said
    quiet = [msgspec.structs.replace(row, step_ms=[900.0 + (90 if row.step >= 40 else row.step % 2)]) for row in rows]
    assert summarise("gpt", quiet, schedule)[-1].endswith(
        "+9.9% against 900.50 outside; what of that recording takes, the analysis tells"
    )
    slow = [msgspec.structs.replace(row, step_ms=[900.0 - (90 if row.step >= 40 else row.step % 2)]) for row in rows]
    assert "no profiling makes it" in summarise("gpt", slow, schedule)[-1]
    alike = [msgspec.structs.replace(row, step_ms=[900.0 + 45 * math.sin(row.step / 4)]) for row in rows]
    within = summarise("gpt", alike, schedule)[-1]
    assert "which is no other than outside: steady steps differ by ±" in within
    assert "cannot be told" not in within and within.count(" ms a step") == 1, "the traces tell what recording takes"
