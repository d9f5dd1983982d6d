"""What a cause costs: in full swing, shared out among causes that hold each other, with the interval due to few steps.

The jobs are undisturbed but for what is injected, so every expected figure is arithmetic.
"""

import math
import shutil
import statistics
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import numpy as np
import pytest

from scalescope import analyze
from scalescope.records.statistics import half_of_mean
from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.as_run.recording import recording_cost, terms_for
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.figures import BESIDES, GOES_WITH_IT
from scalescope.scaling.finding.finding import EvidenceRow
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.containment import first_and_last, without_contained
from scalescope.scaling.findings.prices import pricing
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.rank.recorded import FRAME_EDGES, OPERATOR_EDGES, Recorded
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.graph import HostCall
from scalescope.scaling.replay.load import read_records
from scalescope.scaling.replay.ranks.side_by_side import lay_side_by_side
from scalescope.scaling.replay.removal import Removal, remove
from scalescope.scaling.replay.whatif.replayer import Replayer
from tests import data_parallel
from tests.data_parallel import MS, Disturbance
from tests.host_traces import HostTrace, plain_step
from tests.recorded import records_of
from tests.report_samples import run_answer
from tests.test_scaling_findings import found

DATA = Path(__file__).parent / "data"


def test_what_one_rank_has_beyond_all_is_taken_out_before_what_all_have() -> None:
    """Freeing all ranks of loading frees the one that loads longest, too: 6 ms there and 2 elsewhere are 4 and 2."""
    everywhere = Candidate(code="data_loading", removals=(Removal("data"),))
    there = Candidate(code="data_loading", rank=1, removals=(Removal("data", 1),))
    both = Change(without=(Removal("data"), Removal("data", 1)))
    alone, nothing = Change(without=(Removal("data", 1),)), Change()
    assert first_and_last([everywhere, there], there) == ((nothing, alone), (nothing, alone))
    assert first_and_last([everywhere, there], everywhere) == ((alone, both), (alone, both))


def _left_of(code: Code, ms: float, in_gaps_ms: float) -> list[Code]:
    """Return which candidates are left of a cause of rank 1, which takes so long, and of all gaps of its host."""
    recorded = Candidate(code=code, rank=1, removals=(Removal("pause", 1, round(ms * MS)),))
    starved = Candidate(code="host_starved", rank=1, removals=(Removal("gaps", 1),))

    def predict(change: Change, **_: object) -> SimpleNamespace:
        return SimpleNamespace(change_ms=-(in_gaps_ms if starved.removals[0] in change.without else ms))

    replayer = SimpleNamespace(predict=predict, work_out=lambda *_, **__: None)
    scene = cast(Scene, SimpleNamespace(replayer=replayer, step_ms=100.0))
    return [one.code for one in without_contained(scene, [recorded, starved])]


def test_what_a_host_compiles_is_no_interruption_of_it() -> None:
    """All gaps of a host hold what it compiles, too: interrupted for a moment it had all of that as well."""
    assert _left_of("recompilation", 60.0, 62.0) == ["recompilation"]
    assert _left_of("host_stall", 60.0, 62.0) == ["host_starved"], "a stall may be an interruption"
    assert "host_starved" in _left_of("recompilation", 5.0, 62.0), "most of it is something else"


def test_of_causes_that_do_not_hold_each_other_either_may_go_first() -> None:
    one, other = (Candidate(code="own_work", rank=rank, removals=(Removal("own", rank),)) for rank in (1, 3))
    (first, second), (third, fourth) = first_and_last([one, other], one)
    assert (first, second) == (Change(), Change(without=one.removals))
    assert (third, fourth) == (Change(without=other.removals), Change(without=one.removals + other.removals))


def test_what_holds_a_host_up_before_the_last_begin_belongs_to_the_step_that_it_ends() -> None:
    graph = Replayer(records_of("gpt8_ddp_none_n2")).traced
    side = lay_side_by_side(graph)
    assert side.edge == len(side.steps)
    for rank in side.ranks:
        own = side.launches[rank, side.edge]
        assert own.activity[-1] == graph.steps[rank][-1] and len(own.activity) < len(side.launches[rank, 0].activity)


def test_steps_that_differ_are_held_against_a_step_in_which_nothing_takes_longer(tmp_path: Path) -> None:
    """Each rank is slow by turns: even the shortest step waits for one that is."""
    turns = tuple(ms * MS for ms in (3, 2, 1, 2, 1, 1, 2, 1, 9, 8, 7, 9, 2, 1, 1, 0, 4, 4, 3, 5, 1, 1, 2, 3))
    one = found(data_parallel.run(tmp_path, Disturbance(uneven=turns), steps=6, ahead=True))[0]
    longest = [max(turns[step * 4 : step * 4 + 4]) / MS for step in range(5)]
    assert one.code == "unsteady" and one.ms == pytest.approx(statistics.fmean(longest), rel=0.05)
    assert one.evidence[1].name == "spin_kernel" and "spin_kernel" in because(one)


def test_a_longer_mean_of_uneven_steps_contradicts_no_trace_and_is_what_unsteadiness_costs(tmp_path: Path) -> None:
    turns = tuple(ms * MS for ms in (3, 2, 1, 2, 1, 1, 2, 1, 9, 8, 7, 9, 2, 1, 1, 0, 4, 4, 3, 5, 1, 1, 2, 3))
    folder = data_parallel.run(tmp_path, Disturbance(uneven=turns), steps=6, ahead=True)
    alone = analyze(folder)
    assert alone.replay is not None and alone.as_run is not None and alone.as_run.high_ms is not None
    assert alone.as_run.high_ms > alone.replay.replayed_ms + 1.5  # so few do not know it any better
    told = analyze(folder, step_ms=alone.replay.replayed_ms + 1.5)
    assert told.as_run is not None and told.as_run.contradicts is None
    one, shorter = told.findings[0], alone.findings[0]
    assert one.code == shorter.code == "unsteady" and one.ms == pytest.approx((shorter.ms or 0.0) + 1.5, rel=0.05)
    far = analyze(folder, step_ms=2 * alone.replay.replayed_ms)
    assert far.as_run is not None and far.as_run.contradicts == "too_long"


def test_gradients_in_one_piece_are_late_though_no_shapes_tell_them(tmp_path: Path) -> None:
    """200 MiB in 0.5 ms that nothing hides: in eight pieces the last alone, and the others slow what hides them."""
    (late,) = found(data_parallel.run(tmp_path / "whole", Disturbance(one_piece=50 << 20), ahead=True))
    bare = data_parallel.TRANSFER / MS * 7 / 8
    assert (late.code, late.rank) == ("late_bucket", None) and late.high_ms == pytest.approx(bare, rel=0.01)
    assert late.ms is not None and late.low_ms is not None and 0 < late.low_ms < late.ms < bare
    assert "begin too late to hide" in because(late)
    (fine,) = found(data_parallel.run(tmp_path / "little", Disturbance(one_piece=5 << 20), ahead=True))
    assert fine.code == "nothing"  # DDP itself would cut 20 MiB into no more


def test_a_host_that_waits_for_all_of_its_device_waits_for_a_collective_too() -> None:
    graph = Replayer(records_of("gpt_ddp_n2")).traced.copy()
    side = lay_side_by_side(graph)
    collective = graph.transfers[0].members[0]
    graph.calls[0] = [*graph.calls[0], HostCall(0.0, 0.0, 0.0, awaits=collective)]
    on_cpu = graph.copy()
    remove(graph, side, Removal("waits", 0))
    assert all(call.awaits != collective for call in graph.calls[0])
    remove(on_cpu, side, Removal("waits", 0), on_cpu=True)  # there it needs what the collective brings
    assert on_cpu.calls[0][-1].awaits == collective


def test_few_steps_know_their_spread_badly() -> None:
    assert half_of_mean([1.0, 2.0, 3.0]) == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert half_of_mean([1.0, 3.0]) == 2.0 and half_of_mean([1.0]) == 0.0
    assert half_of_mean([0.0, 2.0] * 50) == pytest.approx(0.196, rel=0.01)


def test_a_host_whose_core_is_shared_is_interrupted_while_it_records_too() -> None:
    """Half of its time is others': of what recording takes, as much again, where it stood still."""
    records = records_of("gpt8_ddp_none_n2")
    alone = recording_cost(records, terms_for(records)).calls
    shared = recording_cost(records, terms_for(records), {1: 0.5}).calls
    assert np.array_equal(shared[0].before, alone[0].before)
    more = shared[1].before - alone[1].before
    assert more.sum() == pytest.approx(alone[1].before.sum() + alone[1].during.sum())
    calls = records[1].calls
    waited = np.array([0, *(after.start - before.end for before, after in pairwise(calls))])
    assert waited[more > 0].min() > 300_000


def test_without_the_late_ranks_trace_nobody_else_is_blamed_for_it(tmp_path: Path) -> None:
    """Rank 1 is 4 ms late; in rank 0's trace alone that is communication, and compute that is slower beside it."""
    (trace,) = (DATA / "gpt8_ddp_delay4ms_rank1_n2").glob("rank0.*")
    shutil.copy(trace, tmp_path)
    analysis = analyze(tmp_path)
    assert analysis.findings == [] and analysis.unpriced is not None and analysis.unpriced.code == "unsplit"
    verdict = run_verdict(analysis)
    assert "nothing" not in verdict.headline and "contention" not in verdict.headline
    assert verdict.advice.startswith("profile every rank")


def test_a_step_that_cannot_be_this_jobs_is_said_to_be_another_ones() -> None:
    """The traced step is bound by its devices and takes 80.7 ms: no recording's cost leads there from 40."""
    verdict = run_verdict(analyze(DATA / "gpt8_ddp_delay4ms_rank1_n2", step_ms=40.0))
    assert "--step-ms 40.0 ms contradicts the traces" in verdict.headline and "another job's" in verdict.headline


def test_where_the_device_alone_is_recorded_a_call_costs_more() -> None:
    """Without operators the terms would come to 0.4 ms of a step that recording made 3.4 ms longer."""
    full = records_of("gpt8_ddp_none_n2")
    alone = {rank: replace(one, recorded=_of_calls_alone(one)) for rank, one in full.items()}
    assert terms_for(full).call_ns < 1_000 < 5 * 1_000 < terms_for(alone).call_ns
    assert 0.2 < _cost_ns(alone) / _cost_ns(full) < 1.0


def _of_calls_alone(record: RankRecord) -> Recorded:
    assert record.recorded is not None
    columns = [OPERATOR_EDGES, FRAME_EDGES]
    before, during = record.recorded.before.copy(), record.recorded.during.copy()
    before[:, columns] = during[:, columns] = 0
    return replace(record.recorded, before=before, during=during)


def _cost_ns(records: dict[int, RankRecord]) -> float:
    calls = recording_cost(records, terms_for(records)).calls
    return sum(float(one.before.sum() + one.during.sum()) for one in calls.values())


def test_recording_costs_more_where_launches_take_longer_and_no_more_of_it_in_all(tmp_path: Path) -> None:
    """A backward pass that formats stacks was told to cost 18.9 ms of 10.5: what recorded it was half of that."""

    def step(trace: HostTrace, slow: float) -> None:
        plain_step(trace, 5.0)
        trace.slow = slow
        plain_step(trace, 5.0)
        trace.slow = 1.0

    halves = []
    for slow in (1.0, 1.6):
        made = HostTrace().steps(4, lambda trace, _: step(trace, slow))  # noqa: B023
        folder = made.write(tmp_path / str(slow)).parent
        records = read_records(folder)
        cost = recording_cost(records, terms_for(records)).calls[0]
        of_calls = cost.before + cost.during
        per_step = len(of_calls) // 4
        middle = per_step // 2
        halves.append((of_calls[:middle].sum(), of_calls[middle:per_step].sum()))
    (plain_first, plain_second), (first, second) = halves
    assert plain_second == pytest.approx(plain_first, rel=0.15)
    assert second / first == pytest.approx(1.6**1.5, rel=0.3)


@pytest.mark.parametrize("job", ["pageable_copies_n2", "cpu_fsdp2_n2"])
def test_a_bound_is_no_more_than_the_times_that_are_named_as_its_cause(job: str) -> None:
    """Waits that go with a copy are in the bound, and are named beside it."""
    answer = analyze(DATA / job, jobs=1)
    bounds = [one for one in answer.findings if one.at_most]
    assert bounds
    for one in bounds:
        named = [row.ms for row in one.evidence if row.ms is not None]
        assert one.ms is not None and one.ms <= sum(named) + 0.01, because(one)
        beyond = [row.ms for row in one.evidence if row.name == GOES_WITH_IT]
        assert all(f"and {milliseconds(ms)} more " in because(one) for ms in beyond if ms is not None)
    if answer.activity == "cpu":  # its bound is the idle time of the host that comes latest, less its stalls
        (launching,) = bounds
        stalled = {one.rank: one.evidence[0].ms or 0.0 for one in answer.findings if one.code == "host_stall"}
        longest = max(row.idle_launch_ms / row.steps - stalled.get(row.rank, 0.0) for row in answer.ranks)
        assert launching.evidence[0].ms == pytest.approx(longest, rel=0.25)


def test_an_effect_that_follows_the_steps_is_known_at_their_mean() -> None:
    """Of ranks with longer texts by turns, steps of 14.6 to 23.8 ms gained 1.7 to 4.1: 2.6 in the mean, give or take
    1.2, though each lay within 0.1 of the line through them, and the mean step was known.
    """
    steps = [14.65, 14.62, 18.93, 17.12, 23.8]
    gained = [-1.86, -1.74, -2.93, -2.45, -4.11]
    known = Interval(17.8, 17.6, 18.0)

    def half(deltas: list[float], known: Interval | None = known, on_cpu: bool = False) -> float:
        replayer = SimpleNamespace(_assumed=lambda _: SimpleNamespace(base={0: steps}), known_ns=known, on_cpu=on_cpu,
                                   base_ns=statistics.fmean(steps))  # fmt: skip
        return Replayer._half_by_length(cast(Replayer, replayer), deltas)

    assert half_of_mean(gained) > 1.1 > 0.25 > half(gained)
    assert half([-1.9, -4.1, -1.7, -2.9, -2.4]) > half_of_mean(gained), "these do not follow the steps"
    assert math.isinf(half(gained, known=None)) and math.isinf(half(gained, on_cpu=True))
    assert math.isinf(half(gained[:4]))


def _with_pauses(folder: Path, us: float, copies: int = 0, copy_us: float = 0.0) -> Path:
    """Write a job of one rank whose host stands still for so long in each step; or behind each of several copies."""

    def step(trace: HostTrace, _: int) -> None:
        plain_step(trace, 20.0)
        for _ in range(copies):
            trace.kernel("aten::empty", 2.0, "fill")
            with trace.inside("cpu_op", "aten::copy_"):
                number = trace.call("MemcpyAsync")
                trace.on_device("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", max(trace.clock, trace.device_free),
                                 copy_us, number)  # fmt: skip
                trace.synchronise()
            trace.idle(us)
        if not copies:
            trace.idle(us)

    HostTrace().steps(6, step).write(folder)
    return folder


def test_of_a_pause_only_what_is_left_of_it_without_recording_is_taken_out(tmp_path: Path) -> None:
    """A tokenizer of 11.6 ms, most of them for recording its frames, was priced 11.4: what the step as run had no more
    of there, other launches had to give.
    """
    replayer = Replayer(read_records(_with_pauses(tmp_path, 8_000.0)))
    graph = replayer.graph.copy()
    left = 3.0 * MS  # of each pause
    graph.calls[0] = [msgspec.structs.replace(one, think_ns=min(one.think_ns, left)) for one in graph.calls[0]]
    side = lay_side_by_side(graph)
    changed = graph.copy()
    remove(changed, side, Removal("pause", 0, 8 * MS, launches=1))
    gone = [one.think_ns - other.think_ns for one, other in zip(graph.calls[0], changed.calls[0], strict=True)]
    # before the first step there is none, and before what ends the last one there is
    assert [one for one in gone if one > MS] == [left] * len(side.steps) and sum(gone) < (len(side.steps) + 0.1) * left


def test_a_pause_of_some_steps_is_taken_out_of_those_alone(tmp_path: Path) -> None:
    """*Rank 0 costs 20.2 ms* was told of 63.1 ms in 2 of 9 steps, 14.0 in the mean: in a third one its host waited half
    as long elsewhere, and that was taken out, too.
    """
    replayer = Replayer(read_records(_with_pauses(tmp_path, 8_000.0)))
    graph = replayer.graph
    side = lay_side_by_side(graph)
    third = graph.step_numbers[2]
    for pause in (
        Removal("pause", 0, 8 * MS, in_steps=(third,)),  # before its first launch
        Removal("pause", 0, 8 * MS, in_steps=(graph.step_numbers[1],), at_end=True),  # behind the last one before it
    ):
        changed = graph.copy()
        remove(changed, side, pause)
        gone = [
            (graph.activities[one.launches].step, round((one.think_ns - other.think_ns) / MS, 1))
            for one, other in zip(graph.calls[0], changed.calls[0], strict=True)
            if one.think_ns - other.think_ns > MS
        ]
        assert gone == [(third, 8.0)]
    changed = graph.copy()
    remove(changed, side, Removal("pause", 0, 8 * MS, in_steps=(third + 100,)))
    assert changed.calls[0] == graph.calls[0], "it is in none of these steps"


def test_the_copies_of_a_loop_cost_with_what_its_host_stands_still_for(tmp_path: Path) -> None:
    """Of a checkpoint in each step, 189 of 231 ms were told: each tensor is copied to the host, and then written."""
    first = found(_with_pauses(tmp_path, 1_500.0, copies=30, copy_us=800.0))[0]
    assert (first.code, first.rank) == ("host_stall", None)
    assert first.ms == pytest.approx(30 * (1.5 + 0.8), rel=0.1)


def test_a_cause_that_the_replayed_steps_have_too_often_takes_no_more_than_the_step() -> None:
    """*243.0 ms, 107.7%* was told of one stall of 800 ms in three steps, two of which were replayed."""
    once = Candidate(code="host_stall")
    scene = cast(
        Scene,
        SimpleNamespace(step_ms=347.0, analysis=run_answer("r", 2), replayer=SimpleNamespace(known_ns=None)),
    )
    gain = Gain(once, 243.0, 0.0, 577.0, beside_ms=-121.0)
    assert pricing._finding(scene, gain).fraction == pytest.approx(243 / 347)


def test_a_kernel_that_one_rank_alone_runs_is_told_though_noise_hides_what_it_costs() -> None:
    """Each step has it, counted: "nothing is wrong" would be no answer. One that is late by chance is not told so."""
    scene = cast(Scene, SimpleNamespace(step_ms=16.0, replayer=SimpleNamespace(on_cpu=False)))
    counted = EvidenceRow(kind="figure", name=BESIDES, calls=1.0)
    own = Candidate(code="own_work", rank=1, evidence=(counted,), least_share=0.001)
    assert pricing.is_worth_it(scene, Gain(own, 0.1, -0.01, 0.2))
    assert not pricing.is_worth_it(scene, Gain(own, 0.01, -0.01, 0.2))
    assert not pricing.is_worth_it(scene, Gain(msgspec.structs.replace(own, evidence=()), 0.1, -0.01, 0.2))
