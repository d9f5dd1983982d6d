"""Gradients that devices exchange in each of several backward passes of a step, hidden by compute: what they cost.

The window is of two H200s (torch 2.11, NCCL 2.28.9): four micro-batches a step whose gradients are exchanged in each of
the four backward passes. With `no_sync()` in the first three, turns without recording took 7.14 ms (6.18 to 8.21) less
of 69.94.
"""

from pathlib import Path

import pytest

from scalescope import RunAnalysis, analyze
from scalescope.report.text.findings import headline
from scalescope.scaling.finding.figures import PASSES
from scalescope.scaling.rank.records.backward_passes import accumulates, backward_passes, exchanged_in_each
from scalescope.scaling.rank.records.record import LAUNCH, RankRecord
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE
from scalescope.scaling.replay.graph import Activity, Contention, Graph, HostCall, Transfer
from scalescope.scaling.replay.ranks.exchanges import free_bucket_copies, free_exchanges
from scalescope.scaling.replay.simulate import simulate
from tests.recorded import records_of

NAME = "exchanged_in_each_pass_n2"


@pytest.mark.parametrize("step_ms", [69.94, None])
def test_exchanges_that_compute_hides_cost_what_it_is_slower_for_them_too(step_ms: float | None) -> None:
    """*Contention costs at most 5.3 ms* was all that was told, with fewer channels as the advice."""
    analysis = analyze(Path(__file__).parent / "data" / NAME, step_ms=step_ms)
    assert isinstance(analysis, RunAnalysis)
    (found,) = analysis.findings
    assert found.code == "exposed_transfer" and found.remedy is not None and found.remedy.cure == "exchange_once"
    assert found.ms == pytest.approx(7.14, rel=0.15)
    assert found.low_ms is not None and found.high_ms is not None and 0 < found.low_ms < 7.14 < found.high_ms
    assert not (found.at_most or found.at_least)
    assert next(row.calls for row in found.evidence if row.name == PASSES) == 4
    told = headline(found, 69.94, 2)
    assert "gradients are exchanged in each of the step's 4 backward passes, where the last exchange would do" in told
    assert "; compute beside the others is slower, by 5.4 ms" in told


def test_a_devices_passes_are_told_by_when_its_host_hands_over() -> None:
    """By when their kernels ran, behind the next pass's launches, no passes were told."""
    passes = exchanged_in_each(records_of(NAME))
    assert not accumulates(records_of(NAME))
    assert passes is not None and passes.number == 4 and len(passes.sizes) == 14


def hand_over_last(record: RankRecord) -> None:
    """Let the last pass of each step alone hand over, as with `no_sync()` around the others."""
    forwards = [begun for begun, _, name in record.phases if name == "DistributedDataParallel.forward"]
    updates = [begun for begun, _, name in record.phases if name.startswith("Optimizer.step#")]
    last = [max((one for one in forwards if one < update), default=0) for update in updates]
    record.calls = [
        call for call in record.calls
        if call.kind != LAUNCH or record.collective[call.activity] < 0
        or any(begin <= call.start < end for begin, end in zip(last, updates, strict=True))
    ]  # fmt: skip


def test_what_the_last_pass_alone_exchanges_is_not_needless() -> None:
    records = records_of(NAME)
    for record in records.values():
        hand_over_last(record)
    assert exchanged_in_each(records) is None and backward_passes(records) == 1
    assert accumulates(records)  # and is not told to


def test_gradients_that_each_pass_makes_anew_on_a_device_are_of_several_models() -> None:
    """Four models that one optimizer steps exchange what each of them needs."""
    records = records_of(NAME)
    assert all(record.new_gradients for record in records.values())
    for record in records.values():
        forwards = [begun for begun, _, name in record.phases if name == "DistributedDataParallel.forward"]
        record.new_gradients = sorted(begun + 1 for begun in forwards for _ in range(50))
    assert exchanged_in_each(records) is None


#: The thread that computes gradients, and the one that does all else.
BACKWARD, LOOP = 1, 0


def two_passes() -> Graph:
    """Two ranks, whose hosts are ahead of their devices. Each of two passes computes for 100 ns, scales two gradients
    in 10 ns each, and hands them over: an exchange of 200 ns, beside which the next pass computes, slower by half.
    """
    graph = Graph([0, 1], [], [], {}, {}, {}, {}, [], {}, {}, {}, {}, [0], Contention(inflation=0.5))
    members: list[dict[int, int]] = [{}, {}]
    for rank in graph.ranks:
        main: list[int] = []
        moved: list[int] = []
        calls: list[HostCall] = []
        for index in range(2):
            for name, thread, takes in (
                ("forward", LOOP, 60.0), ("backward", BACKWARD, 40.0), ("scale", BACKWARD, 10.0),
                ("scale", BACKWARD, 10.0), ("all_reduce", BACKWARD, 0.0),
            ):  # fmt: skip
                moves = name == "all_reduce"
                node = Activity(rank, 9 if moves else 7, COMMUNICATION if moves else COMPUTE, 0.0, 0, name,
                                collective=index if moves else -1)  # fmt: skip
                at = graph.add(node, takes, [main[-1]] if moves else ())
                (moved if moves else main).append(at)
                calls.append(HostCall(0.0, 0.0, 0.0, launches=at, thread=thread, hands_over=at if moves else -1))
            members[index][rank] = moved[-1]
        update = graph.add(Activity(rank, 7, COMPUTE, 0.0, 0, "scale"), 50.0, [moved[-1]])
        main.append(update)
        calls.append(HostCall(0.0, 0.0, 0.0, launches=update, thread=LOOP))
        graph.order[rank], graph.calls[rank] = [main, moved], calls
        graph.begins[rank], graph.latency[rank], graph.gradients[rank] = 0.0, 0.0, []
        graph.steps[rank], graph.edges[rank] = [main[0]], [0, 1]
    graph.transfers = [Transfer(one, 200.0, "all_reduce", 4, "float32", 2, 0, 200.0, 0.0) for one in members]
    return graph


def test_an_exchange_taken_out_slows_no_compute_and_leaves_nothing_bare() -> None:
    graph = two_passes()
    # 120 until the first exchange, beside which 180 would be computed; its 200 move behind 120 that take 180
    assert max(simulate(graph).end) == pytest.approx(120 + 200 + 200 + 50)
    free_exchanges(graph, [[0]])
    assert max(simulate(graph).end) == pytest.approx(120 + 120 + 200 + 50)


def test_what_brings_gradients_into_a_bucket_goes_with_it_and_nothing_of_its_name_elsewhere() -> None:
    graph = two_passes()
    free_bucket_copies(graph, [[0]])
    left = [graph.work_ns[at] for at, one in enumerate(graph.activities) if one.name == "scale" and one.rank == 1]
    assert left == [0.0, 0.0, 10.0, 10.0, 50.0]


def test_what_brings_gradients_back_goes_as_well_but_not_what_comes_behind_that() -> None:
    graph = two_passes()
    for rank in graph.ranks:
        back = [graph.add(Activity(rank, 7, COMPUTE, 0.0, 0, name), 7.0) for name in ("back", "back", "other")]
        graph.calls[rank][5:5] = [HostCall(0.0, 0.0, 0.0, launches=at, thread=BACKWARD) for at in back]
        graph.order[rank][0][4:4] = back
    free_bucket_copies(graph, [[0]])
    left = [graph.work_ns[at] for at, one in enumerate(graph.activities) if one.name in ("back", "other")]
    assert left == [0.0, 0.0, 7.0] * 2
