"""A traced step can be replayed: what waits for what is told well enough to give the step back, and to change it."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scalescope.records.errors import RunError, UserError
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE, COPY
from scalescope.scaling.replay.buckets import cut_by, find_buckets
from scalescope.scaling.replay.build import build_graph
from scalescope.scaling.replay.change import Change, no_overlap
from scalescope.scaling.replay.contention import measure_contention
from scalescope.scaling.replay.engine import compiled, events
from scalescope.scaling.replay.engine.timing import Timing
from scalescope.scaling.replay.graph import Activity, Contention, Graph, HostCall, Transfer
from scalescope.scaling.replay.host_cost import on_slower_devices
from scalescope.scaling.replay.load import find_targets, open_replayer
from scalescope.scaling.replay.node_columns import NodeColumns
from scalescope.scaling.replay.ranks.rounds import merge_rounds
from scalescope.scaling.replay.simulate import bounded, mean_step_ns, simulate, simulate_begins, simulate_steps
from scalescope.scaling.replay.whatif.replayer import Replayer
from tests.recorded import records_of
from tests.replay_oracle import settle, tick, walk

DATA = Path(__file__).parent / "data"
SETS = ("gpt_ddp_n1", "gpt_ddp_n2", "gpt_ddp_compile_n4", "resnet50_ddp_n4", "cpu_ddp_n2", "cpu_fsdp2_n2")
MIB = 1 << 20


@pytest.fixture(scope="module")
def gpt() -> Replayer:
    return Replayer(records_of("gpt_ddp_n2"))


@pytest.mark.parametrize("name", SETS)
def test_an_unchanged_replay_gives_the_traced_step_back(name: str) -> None:
    replay = open_replayer(find_targets(DATA / name)[0]).replay
    assert replay.faithful
    assert abs(replay.error) < 0.001, replay
    assert replay.unexplained_ms < 0.01 * replay.traced_ms


@pytest.mark.parametrize("name", ["cpu_ddp_n2", "cpu_threads_n2"])
def test_operators_on_cpus_begin_as_they_are_called(name: str) -> None:
    """A call since 1970 in ns was taken as a float, and those are 256 ns apart: each operator began up to so much late.

    15,000 small operators made a step of 134 ms 2.1 ms longer: too far off to take the cost of recording out.
    """
    graph = build_graph(records_of(name))
    assert {one.dispatch_ns for one in graph.activities if one.kind == COMPUTE} == {0.0}
    assert set(graph.latency.values()) == {0.0}


@pytest.mark.parametrize("name", ["gpt_ddp_n2", "resnet50_ddp_n4"])
def test_the_replay_is_what_an_oracle_without_events_settles_at(name: str) -> None:
    graph = build_graph(records_of(name))
    timing = simulate(graph)
    begin, end = settle(graph)
    assert max(abs(timing.begin[at] - begin[at]) for at in begin) < 1.0  # ns
    assert max(abs(timing.end[at] - end[at]) for at in end) < 1.0


@pytest.mark.parametrize("name", ["gpt_ddp_n2", "gpt_ddp_compile_n4", "resnet50_ddp_n4"])
def test_the_structure_alone_gives_the_step_back(name: str) -> None:
    """What each activity took to be dispatched could hide a dependency that is missing; its stream's mean cannot."""
    graph = build_graph(records_of(name))
    own = mean_step_ns(simulate(graph).step_ns(graph))
    for streams in graph.order.values():
        for stream in streams:
            mean = fmean(graph.activities[at].dispatch_ns for at in stream)
            for at in stream:
                graph.activities[at] = replace(graph.activities[at], dispatch_ns=mean)
    assert mean_step_ns(simulate(graph).step_ns(graph)) == pytest.approx(own, rel=0.01)


def test_each_activity_replays_where_the_trace_has_it() -> None:
    """Steps that come out right by errors that cancel would not stand up to a change."""
    graph = build_graph(records_of("gpt_ddp_n2"))
    timing = simulate(graph)
    off = sorted(abs(timing.begin[at] - graph.activities[at].traced_start) for at in graph.living())
    assert off[len(off) // 2] < 20_000 and off[-1] < 500_000  # ns


def _two_streams(work: list[float], moves: float, inflation: float, rate: float) -> Graph:
    """Two ranks: kernels one after another, and an all-reduce that begins with the first one."""
    nothing: dict[int, list[Any]] = {0: [], 1: []}
    graph = Graph([0, 1], [], [], {}, {}, nothing, {0: 0.0, 1: 0.0}, [], {0: [0], 1: [len(work) + 1]},
                  {0: [0, 1], 1: [0, 1]}, {0: 0.0, 1: 0.0}, {0: [], 1: []}, [0],
                  Contention(inflation, inflation, inflation, rate))  # fmt: skip
    members = {}
    for rank in (0, 1):
        kernels = [graph.add(Activity(rank, 7, COMPUTE, 0.0, 0, "k"), length * (1 + rank / 2)) for length in work]
        collective = Activity(rank, 9, COMMUNICATION, 0.0, 0, "all_reduce", collective=0)
        members[rank] = graph.add(collective, 0.0, [kernels[0]])
        graph.order[rank] = [kernels, [members[rank]]]
    graph.transfers.append(Transfer(members, moves, "all_reduce", MIB, "float32", 2, 0, moves, 0.0))
    return graph


def test_side_by_side_compute_and_transfers_slow_each_other() -> None:
    # alone: the kernel takes 100, the transfer begins at 100 (rank 1: 150) and moves for 80
    graph = _two_streams([100.0, 200.0], 80.0, 0.25, 0.5)
    timing = simulate(graph)
    # both ranks compute on while data moves from 150 at half the rate: 160 ns
    assert timing.end[graph.transfers[0].members[0]] == pytest.approx(310.0)
    # rank 0's second kernel: from 100 to 310 beside the collective, which does 210 / 1.25 of its 200, then the rest
    assert timing.end[1] == pytest.approx(310 + 200 - 210 / 1.25)


def test_rounds_that_are_made_one_take_their_hosts_one_and_move_the_same_data() -> None:
    """Eight all-reduces, which a host takes 50 µs each to hand over and links 5 to move, the first one twice that."""
    ranks = [0, 1]
    graph = Graph(ranks, [], [], {}, {}, {}, {}, [], {}, {}, {}, {}, [0], Contention())
    members: list[dict[int, int]] = [{} for _ in range(8)]
    for rank in ranks:
        own = []
        graph.calls[rank], graph.begins[rank], graph.latency[rank], graph.gradients[rank] = [], 0.0, 0.0, []
        for index in range(8):
            at = graph.add(Activity(rank, 9, COMMUNICATION, 0.0, 0, "all_reduce", collective=index), 0.0)
            members[index][rank] = at
            own.append(at)
            graph.calls[rank].append(HostCall(40_000.0, 0.0, 10_000.0, launches=at, hands_over=at))
        graph.order[rank], graph.steps[rank], graph.edges[rank] = [own], [own[0]], [0, 1]
    for index, one in enumerate(members):
        moves = 10_000.0 if index == 0 else 5_000.0
        size = int(moves) // 5_000 * MIB
        graph.transfers.append(Transfer(one, moves, "all_reduce", size, "float32", 2, 0, moves, 0.0))
    assert max(simulate(graph).end) == pytest.approx(8 * 50_000 - 10_000 + 5_000)
    merged = graph.copy()
    merge_rounds(merged, [range(8)])
    assert max(simulate(merged).end) == pytest.approx(50_000 - 10_000 + 9 * 5_000)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.floats(20, 200), min_size=2, max_size=4), st.floats(20, 300), st.floats(0, 1), st.floats(0.3, 1)
)  # fmt: skip
def test_the_replay_is_what_small_steps_of_time_come_to(
    work: list[float], moves: float, inflation: float, rate: float
) -> None:
    graph = _two_streams(work, moves, inflation, rate)
    timing = simulate(graph)
    ends = tick(graph, 0.25)
    for at, end in ends.items():
        assert timing.end[at] == pytest.approx(end, abs=4.0)


def test_gradients_add_up_to_the_buckets_that_travel(gpt: Replayer) -> None:
    steps = find_buckets(gpt.graph)
    assert not isinstance(steps, str) and len(steps) == 3
    for step in steps:
        travelled = [gpt.graph.transfers[index].bytes for index in step.transfers]
        assert [held for _, held in step.cut] == travelled
        assert sum(held for _, held in step.cut) == 497_903_616  # GPT-2 124M with a filled-up vocabulary, float32


def test_buckets_are_cut_as_ddp_cuts_them(gpt: Replayer) -> None:
    """The trace was made with torch's default: a first bucket of 1 MiB, then 25 MiB; cut so, its own sizes come out."""
    steps = find_buckets(gpt.graph)
    assert not isinstance(steps, str)
    sizes = [one.bytes for one in steps[0].gradients[0]]
    assert cut_by(sizes, 25 * MIB, MIB) == steps[0].cut
    assert cut_by([3, 3, 3, 10], 5) == [(1, 6), (3, 13)]
    assert cut_by([30, 1], 5) == [(0, 30), (1, 1)]


def test_cutting_buckets_as_they_are_changes_next_to_nothing(gpt: Replayer) -> None:
    same = gpt.predict(Change(bucket_mib=25))
    assert same.change_ms is not None and abs(same.change_ms) < 0.004 * gpt.replay.replayed_ms
    assert same.low_ms is not None and same.high_ms is not None and same.low_ms < 0 < same.high_ms


def test_changes_have_the_sign_that_physics_gives_them(gpt: Replayer) -> None:
    change = {
        name: gpt.predict(change, quick=True).change_ms or 0.0
        for name, change in {
            "slow": Change(link=0.5), "fast": Change(link=2), "faster": Change(link=8), "none": Change(overlap="none"),
            "perfect": Change(overlap="perfect"), "whole": Change(bucket_mib=10_000), "calm": Change(no_inflation=True),
        }.items()
    }  # fmt: skip
    assert change["faster"] < change["fast"] < 0 < change["slow"]
    assert change["perfect"] < 0 < change["none"]
    assert change["whole"] > 0  # one bucket travels after all of the backward pass
    assert change["calm"] <= 0


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Two or three ranks: kernels, copies and collectives on three streams, launched by hosts that wait at times."""
    ns = st.integers(0, 400).map(float)
    ranks = list(range(draw(st.integers(2, 3))))
    inflation, rate = draw(st.sampled_from([(0.0, 1.0), (0.3, 1.0), (0.0, 0.5), (0.4, 0.6)]))
    graph = Graph(ranks, [], [], {}, {}, {}, {}, [], {}, {}, {}, {}, [0],
                  Contention(inflation, inflation, inflation, rate))  # fmt: skip
    plan = draw(st.lists(st.sampled_from("kkkkxct"), min_size=4, max_size=9))  # what each rank runs, in order
    members: list[dict[int, int]] = [{} for what in plan if what == "t"]
    for rank in ranks:
        streams: dict[int, list[int]] = {7: [], 9: [], 11: []}
        calls: list[HostCall] = []
        transfers = 0
        for what in plan:
            stream = {"k": 7, "x": 11, "c": 11, "t": 9}[what]
            collective = transfers if what == "t" else -1
            kind = COMPUTE if what in "kx" else COPY if what == "c" else COMMUNICATION
            node = Activity(rank, stream, kind, draw(ns) / 10, 0, what, collective, skew_ns=draw(ns) / 20)
            known = [at for other, own in streams.items() for at in own if other != stream]
            after = draw(st.lists(st.sampled_from(known), max_size=1)) if known else []
            at = graph.add(node, draw(ns) + 1, after)
            if what == "t":
                members[transfers][rank] = at
                transfers += 1
            streams[stream].append(at)
            calls.append(HostCall(draw(ns) / 4, 0.0, draw(ns) / 8, launches=at))
            if draw(st.integers(0, 3)) == 0:  # the host waits for what was launched by now
                awaited = draw(st.sampled_from([call.launches for call in calls if call.launches >= 0]))
                calls.append(HostCall(1.0, 0.0, 0.0, awaits=awaited, room=draw(st.booleans()), until_ns=draw(ns) / 20))
        graph.order[rank] = [own for own in streams.values() if own]
        graph.calls[rank], graph.begins[rank], graph.latency[rank] = calls, draw(ns), draw(ns) / 10
        graph.steps[rank], graph.edges[rank], graph.gradients[rank] = [streams[7][0] if streams[7] else at], [0, 1], []
    for own in members:
        graph.transfers.append(Transfer(own, draw(ns) + 1, "all_reduce", MIB, "float32", len(own), 0, 1.0, 0.0))
    return graph


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_the_replay_is_what_looking_at_everything_at_each_instant_gives(graph: Graph) -> None:
    timing, _ = events.run(graph, frozenset())
    begin, end = walk(graph)
    for at in graph.living():
        assert timing.begin[at] == pytest.approx(begin[at], abs=1e-3)
        assert timing.end[at] == pytest.approx(end[at], abs=1e-3)


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_without_overlap_every_graph_that_ran_still_runs_to_its_end(graph: Graph) -> None:
    """A collective waits for compute, and none of that for it, whichever thread's calls the graph lists first."""
    timing = simulate(graph)
    for at, node in enumerate(graph.activities):
        # in ps: what ends with an activity and what begins with that end are two instants
        graph.activities[at] = replace(
            node, traced_start=round(1e3 * timing.begin[at]), traced_end=round(1e3 * timing.end[at])
        )
    for rank in graph.ranks:
        graph.calls[rank] = sorted(graph.calls[rank], key=lambda call: call.launches % 2)  # as of two threads
    no_overlap(graph)
    assert not _stands_in_a_circle(graph)


def _stands_in_a_circle(graph: Graph) -> bool:
    """Tell whether an activity waits for itself, by its stream and what it comes after."""
    open_ = {at: {*graph.after.get(at, ())} for at in graph.living()}
    for streams in graph.order.values():
        for stream in streams:
            for one, other in pairwise(stream):
                open_[other].add(one)
    while ready := [at for at, others in open_.items() if not others & open_.keys()]:
        for at in ready:
            del open_[at]
    return bool(open_)


def _require_compiled() -> None:
    if compiled.check_library().level != "fine":
        pytest.skip("the C replay is not built here: scalescope was not installed, or without a C compiler")


@settings(max_examples=150, deadline=None)
@given(graphs(), st.booleans())
def test_c_and_python_replay_to_the_same_bits(graph: Graph, to_the_end: bool) -> None:
    _require_compiled()
    until = frozenset() if to_the_end else frozenset(at for steps in graph.steps.values() for at in steps)
    assert compiled.run(graph, until) == events.run(graph, until)


@pytest.mark.parametrize("name", SETS)
def test_c_and_python_replay_real_traces_to_the_same_bits(name: str) -> None:
    _require_compiled()
    records = records_of(name)
    graph = build_graph(records, measure_contention(records, None))
    until = frozenset(at for steps in graph.steps.values() for at in steps)
    for one in (graph, on_slower_devices(graph, 1.1), graph.under(Contention(0.3, 0.3, 0.3, 0.7))):
        assert compiled.run(one, until) == events.run(one, until)
        assert compiled.run(one, frozenset()) == events.run(one, frozenset())


@pytest.mark.parametrize("run", [simulate, simulate_begins])
def test_what_waits_for_what_never_comes_is_named(run: Callable[[Graph], Timing], monkeypatch: Any) -> None:
    graph = _two_streams([100.0, 200.0], 80.0, 0.25, 0.5)
    first = graph.transfers[0].members[0]
    graph.after[first] = [first]  # on itself
    graph.steps[0] = [first]
    said = []
    for loop in (compiled.run, lambda *_: None):
        monkeypatch.setattr(compiled, "run", loop)
        with pytest.raises(RunError, match="the replay stops at all_reduce on rank 0") as refused:
            run(graph)
        said.append(str(refused.value))
    assert said[0] == said[1]


def test_a_graph_that_names_what_it_does_not_hold_is_not_given_to_c() -> None:
    strange = Activity(7, 7, COMPUTE, 0.0, 0, "of a rank that is not there")
    spoils: list[Callable[[Graph], object]] = [
        lambda graph: graph.order[0].append([99]),
        lambda graph: graph.after.update({0: [99]}),
        lambda graph: graph.calls[1].append(HostCall(1.0, 0.0, 1.0, launches=99)),
        lambda graph: graph.calls[1].append(HostCall(1.0, 0.0, 1.0, awaits=-2)),
        lambda graph: graph.transfers[0].members.update({7: 1}),
        lambda graph: graph.add(strange, 1.0),
        lambda graph: graph.work_ns.pop(),
        lambda graph: [graph.add(graph.activities[graph.transfers[0].members[0]], 1.0) for _ in range(40)],
        lambda graph: graph.transfers[0].members.clear(),
    ]
    for spoil in spoils:
        graph = _two_streams([100.0, 200.0], 80.0, 0.25, 0.5)
        spoil(graph)
        assert compiled.run(graph, frozenset()) is None


def test_columns_of_a_changed_copy_are_those_of_its_own_nodes() -> None:
    columns: NodeColumns[HostCall] = NodeColumns(think_ns=np.float64, launches=np.int32)
    calls = [HostCall(float(at), 0.0, 0.0, launches=at) for at in range(40)]
    new = HostCall(0.5, 0.0, 0.0, launches=99)
    for changed in (
        [], calls, [*calls, new], [new, *calls], calls[5:], [*calls[:7], new, *calls[8:]], [new], [], calls[::-1],
        [HostCall(one.think_ns, 0.0, 0.0) for one in calls], calls,
    ):  # fmt: skip
        found = columns.of(changed)
        assert found["think_ns"].tolist() == [one.think_ns for one in changed]
        assert found["launches"].tolist() == [one.launches for one in changed]


def test_columns_that_objects_were_made_of_are_kept_until_others_are_asked_for() -> None:
    columns: NodeColumns[HostCall] = NodeColumns(think_ns=np.float64, launches=np.int32)
    calls = [HostCall(float(at), 0.0, 0.0, launches=at) for at in range(600)]
    columns.of(calls)
    lighter = [HostCall(one.think_ns / 2, 0.0, 0.0, launches=one.launches) for one in calls]
    columns.keep(lighter, {"think_ns": np.arange(600) / 2, "launches": np.arange(600, dtype=np.int32)})
    new = HostCall(0.25, 0.0, 0.0, launches=700)
    for asked in (
        lighter,
        [*lighter[:300], new, *lighter[301:]],
        [*lighter[:9], new, *lighter[9:]],
        calls,
        lighter[::2],
    ):
        found = columns.of(asked)
        assert found["think_ns"].tolist() == [one.think_ns for one in asked]
        assert found["launches"].tolist() == [one.launches for one in asked]


@pytest.mark.parametrize("name", SETS)
def test_steps_that_a_next_one_bounds_need_no_more_than_its_begin(name: str) -> None:
    records = records_of(name)
    graph = build_graph(records, measure_contention(records, None))
    assert simulate_steps(graph) == bounded(simulate(graph).step_ns(graph))


def test_without_overlap_all_that_was_hidden_is_laid_bare(gpt: Replayer) -> None:
    graph = gpt.graph.copy()
    hidden = sum(one.hidden * one.traced_ns for one in graph.transfers if one.step == graph.step_numbers[0])
    cost = gpt.predict(Change(overlap="none"), quick=True).change_ms
    # what was hidden now stands alone, at full rate; compute beside it gets back what it was slowed by
    assert cost is not None and 0.5 * hidden < cost * 1e6 < 1.2 * hidden


def test_a_rank_held_up_on_purpose_costs_what_it_was_held_up(gpt: Replayer) -> None:
    """8 ms more in one kernel of one rank lengthen every step by 8 ms; evening that rank out takes them off."""
    records = records_of("gpt_ddp_n2")
    graph = build_graph(records)
    plain = mean_step_ns(bounded(simulate(graph).step_ns(graph)))
    for begins in graph.steps[1]:
        graph.work_ns[begins] += 8e6
    held = mean_step_ns(bounded(simulate(graph).step_ns(graph)))
    assert held - plain == pytest.approx(8e6, rel=0.05)
    slowed = Replayer(records)
    slowed.graph = graph
    slowed.base = bounded(simulate(graph).step_ns(graph))
    slowed.base_ns = held
    slowed.replay.faithful = True
    found = slowed.predict(Change(no_straggler=1), quick=True)
    assert found.change_ms == pytest.approx(-8.0, rel=0.05)
    innocent = slowed.predict(Change(no_straggler=0), quick=True)
    assert innocent.change_ms is not None and innocent.change_ms > -1.0


def test_inflation_is_measured_against_the_run_on_one_rank() -> None:
    alone = records_of("gpt_ddp_n1")[0]
    found = measure_contention(records_of("gpt_ddp_n2"), alone)
    assert 0.1 < found.inflation_low <= found.inflation <= found.inflation_high < 0.5
    assert "against the run on one rank" in found.basis


def test_a_replay_that_is_off_predicts_nothing() -> None:
    records = records_of("gpt_ddp_n2")
    for one in records.values():  # the device stands still 30 times a trace, for no reason that a trace could show
        late = [200_000 * (at // (len(one.start) // 30)) for at in range(len(one.start))]
        edges = [one.start.index(edge) for edge in one.edges[:-1]]
        one.edges = [one.edges[at] + late[row] for at, row in enumerate(edges)] + [one.edges[-1] + late[-1]]
        for column in (one.start, one.end):
            column[:] = [instant + shift for instant, shift in zip(column, late, strict=True)]
        for row, index in enumerate(one.collective):
            if index >= 0:
                one.collectives[index].start, one.collectives[index].end = one.start[row], one.end[row]
    replayer = Replayer(records)
    assert not replayer.replay.faithful
    found = replayer.predict(Change(link=2))
    assert found.step_ms is None and found.reason is not None and "off the trace" in found.reason


def test_what_the_traces_cannot_tell_has_its_reason() -> None:
    sharded = Replayer(records_of("cpu_fsdp2_n2"))
    found = sharded.predict(Change(bucket_mib=5))
    assert found.step_ms is None and "no gradients of DDP" in (found.reason or "")
    alone = Replayer(records_of("gpt_ddp_n1"))
    assert "one rank" in (alone.predict(Change(no_straggler=0)).reason or "")


@pytest.mark.parametrize("wrong", [{"bucket_mib": 0.0}, {"link": -1.0}, {"gradients": "fp4"}, {"overlap": "some"}])
def test_a_senseless_change_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError):
        Change(**wrong)  # type: ignore[arg-type]


def test_a_steps_edges_are_the_traces_own() -> None:
    graph = build_graph(records_of("gpt_ddp_n2"))
    for rank in graph.ranks:
        begins = [graph.activities[at].traced_start for at in graph.steps[rank]]
        assert begins == graph.edges[rank][:-1]
        assert all(right > left for left, right in pairwise(graph.edges[rank]))
