"""What recording makes of a few steps' devices is no part of the step as run, nor what a guess makes of what waits."""

from pathlib import Path
from typing import Any

import pytest

from scalescope.scaling.as_run.calibrate import calibrate
from scalescope.scaling.as_run.recording import recording_cost, terms_for
from scalescope.scaling.as_run.untraced_step import Untraced
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE
from scalescope.scaling.replay.build import build_graph
from scalescope.scaling.replay.engine.side_streams import Ends
from scalescope.scaling.replay.graph import Activity, Contention, Graph
from scalescope.scaling.replay.host_cost import without_recording
from scalescope.scaling.replay.load import read_records
from scalescope.scaling.replay.simulate import longest_host_ns
from scalescope.scaling.replay.whatif.replayer import Replayer
from tests.recorded import records_of
from tests.synthetic import OPERATIONS, Job, trace_of, write
from tests.synthetic import Activity as Traced

MS = 1_000_000
STEPS, STEP, KERNELS, KERNEL, APART = 4, 10 * MS, 30, 100_000, 1_000  # ns
BESIDE, ALWAYS = 20, 25  # the kernel beside which the collective is in one step of rank 0, and in all others'
WITHOUT_DISTURBANCE, WAITED_BESIDE, TRANSFERRED_BESIDE = KERNEL, 150_000, 130_000


def rank_with_a_collective_beside(rank: int, *, varying: bool = False) -> dict[str, Any]:
    """Return a rank's trace whose all-reduce is beside one kernel in each step, which takes longer in every other one,
    and in the second step of rank 0 waits beside another kernel before, too. `varying`: no kernel takes the same time
    twice.
    """
    record: dict[str, Any] = {
        "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float",
        "Group size": 2, "Process Group Name": "g0", "Process Group Ranks": "[0, 1]", "Rank": rank,
    }  # fmt: skip
    member = {key: value for key, value in record.items() if key != "Rank"}
    activities = []
    for step in range(STEPS):
        at, launch = 4 * MS + step * STEP, MS + step * STEP
        waits = rank == 0 and step == 1
        begins: dict[int, int] = {}
        for number in range(KERNELS):
            length = KERNEL + (step * 20_000 if varying else 0)
            if waits and number == BESIDE:
                length = WAITED_BESIDE
            elif number == ALWAYS:
                length = TRANSFERRED_BESIDE if (rank + step) % 2 else KERNEL
            begins[number] = at
            activities.append(
                Traced(f"kernel_{number}", "kernel", at, at + length, 7, launch + number * 5_000, 101, {})
            )
            at += length + APART
        begin, end = begins[BESIDE if waits else ALWAYS], begins[ALWAYS] + KERNEL
        if waits:
            end = begins[ALWAYS + 1] - APART
        launch += BESIDE * 5_000 - 2_000
        name = OPERATIONS["allreduce"]
        activities.append(Traced(name, "kernel", begin, end, 20, launch, 102, member, record))
    return trace_of(rank, Job(2, [(0, 1)], STEPS, 1, 0, 0), activities, STEP)


def _kernels(replayer: Replayer, number: int) -> dict[tuple[int, int], int]:
    """The activities of one kernel by rank and step."""
    return {(one.rank, one.step): at for at, one in enumerate(replayer.traced.activities)
            if one.name == f"kernel_{number}" and one.step >= 0}  # fmt: skip


@pytest.fixture
def replayer(tmp_path: Path) -> Replayer:
    return Replayer(read_records(write({rank: rank_with_a_collective_beside(rank) for rank in (0, 1)}, tmp_path)))


def test_a_launch_beside_a_collective_takes_what_it_does_alone_in_other_steps(replayer: Replayer) -> None:
    """Of the mean slowing 0.1 ms of half a step was left on one rank, as much as another one's small cause costs."""
    undisturbed = replayer.undisturbed(Contention(0.1, 0.1, 0.1))
    own = _kernels(replayer, BESIDE)
    disturbed = next(at for (rank, _), at in own.items() if rank == 0 and replayer.traced.activities[at].overlap_ns)
    assert replayer.traced.under(Contention(0.1, 0.1, 0.1)).work_ns[disturbed] > 1.3 * WITHOUT_DISTURBANCE
    assert undisturbed.work_ns[disturbed] == WITHOUT_DISTURBANCE


def test_ranks_that_take_the_same_time_alone_do_so_for_what_no_rank_runs_alone(replayer: Replayer) -> None:
    undisturbed = replayer.undisturbed(replayer.contention)
    bounded = {undisturbed.work_ns[at] for at in _kernels(replayer, ALWAYS).values() if at in replayer._undisturbed_ns}
    assert len(bounded) == 1 and KERNEL / 2 < bounded.pop() <= TRANSFERRED_BESIDE


def _beside_one_rank_alone(rank: int, taken: dict[int, int]) -> dict[str, Any]:
    """Return a rank's trace whose all-reduce waits beside a kernel on rank 0, and on rank 1 comes behind it.

    `taken`: by how much rank 1's kernels take longer in each step, ns, as where another process has its device.
    """
    member = {
        "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float",
        "Group size": 2, "Process Group Name": "g0", "Process Group Ranks": "[0, 1]",
    }  # fmt: skip
    activities = []
    for step in range(STEPS):
        at, launch, ends = 4 * MS + step * STEP, MS + step * STEP, {}
        for number in range(KERNELS):
            length = KERNEL + (taken.get(number, 0) if rank else TRANSFERRED_BESIDE - KERNEL if number == ALWAYS else 0)
            activities.append(
                Traced(f"kernel_{number}", "kernel", at, at + length, 7, launch + number * 5_000, 101, {})
            )
            ends[number] = at + length
            at += length + APART
        begin = ends[ALWAYS] if rank else ends[ALWAYS - 1]
        end = 4 * MS + step * STEP + (ALWAYS + 2) * (KERNEL + APART) + sum(taken.values()) if rank else ends[ALWAYS]
        name, launched = OPERATIONS["allreduce"], launch + ALWAYS * 5_000 - 2_000
        activities.append(Traced(name, "kernel", begin, end, 20, launched, 102, member, {**member, "Rank": rank}))
    return trace_of(rank, Job(2, [(0, 1)], STEPS, 1, 0, 0), activities, STEP)


@pytest.mark.parametrize("taken", [{}, {5: 4 * KERNEL, ALWAYS: 4 * KERNEL}])
def test_what_holds_up_the_same_launches_in_each_step_of_one_rank_is_not_what_others_take(
    tmp_path: Path, taken: dict[int, int]
) -> None:
    """Another process had a device in slices, at the pace of the steps: what it held up was taken for what the other
    rank's launches take undisturbed, and half of what it cost was missing.
    """
    traces = {rank: _beside_one_rank_alone(rank, taken) for rank in (0, 1)}
    replayer = Replayer(read_records(write(traces, tmp_path)))
    undisturbed = replayer.undisturbed(Contention())
    bounded = replayer.traced.step_numbers[:-1]
    beside = [at for (rank, step), at in _kernels(replayer, ALWAYS).items() if rank == 0 and step in bounded]
    assert len(beside) == STEPS - 1 and all(replayer.traced.activities[at].overlap_ns for at in beside)
    assert {undisturbed.work_ns[at] for at in beside} == {KERNEL if not taken else TRANSFERRED_BESIDE}


def test_launches_that_take_another_time_each_time_stay_as_they_are(tmp_path: Path) -> None:
    traces = {rank: rank_with_a_collective_beside(rank, varying=True) for rank in (0, 1)}
    replayer = Replayer(read_records(write(traces, tmp_path)))
    assert list(replayer.undisturbed(replayer.contention).work_ns) == list(replayer.graph.work_ns)


def test_the_step_as_traced_is_replayed_with_what_was_traced(replayer: Replayer) -> None:
    """How well a replay gives the trace back is told of the trace."""
    assert list(replayer.graph.work_ns) == list(replayer.traced.under(replayer.contention).work_ns)


def _launched_in(call_ns: int) -> dict[str, Any]:
    """Return a trace with a kernel, in the second step, that begins 10 µs before its launch returns."""
    activities = []
    for step in range(STEPS):
        begin = 2 * MS + step * STEP
        later = call_ns - 10_000 if step == 1 else 8_000
        activities.append(Traced("late", "kernel", begin + later, begin + later + KERNEL, 7, begin, 101, {}))
    trace = trace_of(0, Job(1, [], STEPS, 0, 0, 0), activities, STEP)
    calls = [one for one in trace["traceEvents"] if one["cat"] == "cuda_runtime"]
    calls[1]["dur"] = call_ns / 1e3
    return trace


def test_a_launch_in_which_its_host_was_held_up_is_no_absence_of_a_device(tmp_path: Path) -> None:
    """A host lost its core in a launch for 0.2 ms: its device was called away, and the step as run had that."""
    graph = build_graph(read_records(write({0: _launched_in(200_000)}, tmp_path)))
    (late,) = [one for one in graph.activities if one.step == graph.step_numbers[1]]
    assert late.beyond_ns == 0 and graph.unexplained_ns[0] == 0
    assert late.late_ns + late.dispatch_ns == pytest.approx(182_000, abs=1_000), "beyond the rank's latency of 8 µs"
    assert late.dispatch_ns < 10_000, "the rest is its launch's, and not taken where the queue is full"


def _two_steps(*, second_runs_on: bool) -> Graph:
    """A collective that begins as its rank's third kernel ends, and in the second step before that or behind it."""
    nothing: dict[int, list[Any]] = {0: []}
    graph = Graph([0], [], [], {}, {}, nothing, {0: 0.0}, [], {0: []}, {0: []}, {0: 0.0}, {0: []}, [0, 1], Contention())
    kernels, collectives = [], []
    for step in (0, 1):
        for number in range(3):
            begin = step * STEP + number * MS
            node = Activity(0, 7, COMPUTE, 0.0, step, "kernel", traced_start=begin, traced_end=begin + MS)
            kernels.append(graph.add(node, 1.0))
        begin = step * STEP + (MS if step and second_runs_on else 3 * MS)
        node = Activity(0, 20, COMMUNICATION, 0.0, step, "reduce", traced_start=begin, traced_end=begin + MS)
        collectives.append(graph.add(node, 1.0))
    graph.order[0] = [kernels, collectives]
    return graph


@pytest.mark.parametrize("second_runs_on", [False, True])
def test_what_seems_to_wait_for_a_kernel_does_not_where_it_began_before_that_in_another_step(
    second_runs_on: bool,
) -> None:
    """A collective found no room on a busy device until some kernel ended: on a host that was ahead it was another."""
    graph = _two_steps(second_runs_on=second_runs_on)
    first = graph.order[0][1][0]
    third = graph.order[0][0][2]
    assert Ends(graph, 0).right_before(first, -1, 0.0, 30_000) == (-1 if second_runs_on else third)


def test_no_host_takes_longer_for_its_calls_than_the_untraced_step_whatever_its_devices_do() -> None:
    """Devices that are slower while recorded explain a longer replayed step, but no host that is longer than the known
    one.
    """
    replayer = Replayer(records_of("gpt8_ddp_none_n2"))
    terms = terms_for(replayer.records)
    cost = recording_cost(replayer.records, terms)
    known = Interval(23.73, 23.60, 23.85)
    told = calibrate(replayer.graph, replayer.base_ns, cost, terms, Untraced(known, "given"))
    assert not told.recording.fitted, "its devices bound it"
    slowest = longest_host_ns(without_recording(replayer.graph, cost, told.recording.scale.low))
    assert slowest <= known.high * MS
