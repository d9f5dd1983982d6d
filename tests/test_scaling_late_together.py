"""Several ranks that are late in one step: it waits for the latest, whose cost hides what the others cost."""

from pathlib import Path

import msgspec
import pytest

from scalescope.report.markdown import for_an_issue
from scalescope.report.panels.advice import findings_table
from scalescope.report.text.findings import line, todo
from scalescope.report.text.late.rank import late_rank
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.predict import open_as_run
from scalescope.scaling.finding.finding import AlsoLate, Finding, Order
from scalescope.scaling.findings.bounds.beside_untold import without_untold
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.find import find
from scalescope.scaling.found import as_whatif
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.load import Target, open_replayer
from scalescope.scaling.replay.simulate import mean_step_ns, simulate_steps
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.sources import find_sources
from tests import data_parallel
from tests.data_parallel import MS, Disturbance
from tests.report_samples import run_answer
from tests.test_scaling_findings import analysed, found

DATA = Path(__file__).parent / "data"


def measured(folder: Path) -> list[Finding]:
    """Return what waits alone tell, without a replay."""
    return explain_traces(find_sources(folder), folder.name, 1).analysis.findings


def both(folder: Path, world_size: int = 4) -> RunAnalysis:
    return analysed(data_parallel.run(folder, Disturbance(spin={0: 4 * MS, 2: 4 * MS}), world_size, ahead=True))


def test_ranks_late_by_the_same_kernel_are_one_finding_of_what_mending_all_of_them_brings(tmp_path: Path) -> None:
    run = both(tmp_path)
    (one,) = run.findings
    assert (one.code, one.rank, one.ranks) == ("own_work", 0, (0, 2))
    assert one.ms == pytest.approx(4.0, rel=0.05) and one.one_ms == pytest.approx(0.0, abs=0.05)
    assert one.evidence[0].name == "spin_kernel" and one.evidence[0].ms == pytest.approx(4.0, rel=0.01)


def test_whatever_shows_a_cause_of_two_ranks_names_both_and_says_that_one_alone_brings_nothing(tmp_path: Path) -> None:
    run = both(tmp_path)
    verdict = run_verdict(run)
    assert "ranks 0 and 2 cost 4.0 ms" in verdict.headline and "which the others do not run" in verdict.headline
    assert "find what launches that on ranks 0 and 2 alone" in verdict.advice
    assert "on one of them alone it brings next to nothing" in verdict.advice and verdict.begins_on is None
    assert not any("ank 2" in note for note in verdict.notes)
    assert [(one.rank, one.ranks) for one in run.stragglers] == [(0, [0, 2]), (2, [0, 2])]
    assert all(one.lost_ms == run.findings[0].ms for one in run.stragglers)
    assert (run.advice[0].rank, run.advice[0].ranks) == (0, [0, 2])
    assert [one.what for one in as_whatif("x", run).predictions] == ["without own_work of ranks 0, 2"]
    assert findings_table(run).rows[0][:2] == ["work of their own", "0, 2"]
    assert "ranks 0 and 2" in for_an_issue([run])
    drawn = late_rank(run)
    assert drawn is not None and drawn.ranks == (0, 2) and drawn.ms == pytest.approx(4.0, rel=0.05)


def test_the_latest_of_unlike_ranks_costs_what_it_brings_alone_and_the_other_what_is_left(tmp_path: Path) -> None:
    run = analysed(data_parallel.run(tmp_path, Disturbance(spin={1: 10 * MS, 3: 4 * MS}), ahead=True))
    first, second = run.findings
    assert (first.rank, second.rank) == (1, 3) and not first.ranks
    assert first.ms == pytest.approx(6.0, rel=0.05) and second.ms == pytest.approx(4.0, rel=0.05)
    assert first.also_late is not None and second.also_late is not None
    assert (first.also_late.order, first.also_late.ranks) == ("first", (3,))
    assert (second.also_late.order, second.also_late.ranks) == ("after", (1,))
    assert first.also_late.together_ms == pytest.approx(10.0, rel=0.05)
    told = run_verdict(run).headline
    assert "rank 1 costs 6.0 ms" in told and "the others, but for rank 3, do not run" in told
    assert "then rank 3 is the latest, and mending both brings 10.0 ms" in told
    assert "once rank 1 is mended" in line(second, run)


def test_ranks_late_alike_for_unlike_causes_cost_together_what_neither_brings_alone(tmp_path: Path) -> None:
    slower = 0.2 * (data_parallel.FORWARD + data_parallel.BUCKETS * data_parallel.BUCKET + data_parallel.OPTIMIZER)
    disturbance = Disturbance(spin={1: round(slower)}, slower={3: 1.2})
    run = analysed(data_parallel.run(tmp_path, disturbance, ahead=True))
    first, second = run.findings
    assert {first.rank, second.rank} == {1, 3} and {first.code, second.code} == {"own_work", "slower_compute"}
    assert (first.ms or 0.0) + (second.ms or 0.0) == pytest.approx(slower / MS, rel=0.05)
    told = run_verdict(run).headline
    assert "ranks 1 and 3 cost 5.2 ms" in told and "together" in told
    assert "spin_kernel" in told and "1.20×" in told
    assert "mended by itself it brings next to nothing" in todo(first, run)


def test_no_first_sentence_promises_to_one_of_two_late_ranks_what_both_bring(
    tmp_path: Path,
) -> None:
    run = analysed(data_parallel.run(tmp_path, Disturbance(spin={1: 10 * MS, 3: 7 * MS}), ahead=True))
    assert "ranks 1 and 3 cost 10.0 ms" in run_verdict(run).headline
    assert "mended by itself it brings no more than 3.0 ms" in run_verdict(run).advice


def test_a_node_of_late_ranks_is_told_from_its_first_to_its_last(tmp_path: Path) -> None:
    held_up = Disturbance(spin=dict.fromkeys(range(8), 4 * MS))
    (one,) = (run := analysed(data_parallel.run(tmp_path, held_up, world_size=16, ahead=True))).findings
    assert one.ranks == tuple(range(8)) and one.ms == pytest.approx(4.0, rel=0.15)
    assert "ranks 0 to 7 cost" in run_verdict(run).headline


def test_most_of_the_ranks_are_late_where_the_rest_wait_for_them(tmp_path: Path) -> None:
    """Beside three late ranks the middle one of any rank's others is late as well."""
    run = analysed(data_parallel.run(tmp_path, Disturbance(spin=dict.fromkeys(range(3), 5 * MS)), ahead=True))
    (one,) = run.findings
    assert one.ranks == (0, 1, 2) and one.at_least and 4.0 < (one.ms or 0.0) <= 5.0
    assert "ranks 0 to 2 cost at least" in run_verdict(run).headline


def test_a_late_rank_that_nobody_waits_for_is_named_without_a_replay(tmp_path: Path) -> None:
    """Collectives wait for the one that comes last by a hair: of two that are late alike the other one is as late."""
    (one,) = measured(data_parallel.run(tmp_path, Disturbance(spin={0: 4 * MS + 200, 2: 4 * MS}), ahead=True))
    assert one.ranks == (0, 2) and one.evidence[0].name == "spin_kernel"
    assert one.evidence[0].ms == pytest.approx(4.0, rel=0.01), "held against the ranks that are not late"


def test_unlike_late_ranks_cost_without_a_replay_what_each_is_later_by(tmp_path: Path) -> None:
    first, second = measured(data_parallel.run(tmp_path, Disturbance(spin={1: 8 * MS, 3: 3 * MS}), ahead=True))
    assert (first.rank, second.rank) == (1, 3)
    assert first.at_least and 4.0 < (first.ms or 0.0) <= 5.0 and 0.0 < (second.ms or 0.0) <= 3.0


def test_one_late_rank_is_told_as_ever(tmp_path: Path) -> None:
    (one,) = found(data_parallel.run(tmp_path, Disturbance(spin={2: 4 * MS}), ahead=True))
    assert (one.rank, one.ranks, one.one_ms, one.also_late) == (2, (), None, None)
    (alone,) = measured(tmp_path)
    assert (alone.rank, alone.ranks, alone.also_late) == (2, (), None)


def test_evening_out_all_late_ranks_at_once_takes_off_what_evening_out_one_does_not(tmp_path: Path) -> None:
    both(tmp_path)
    replayer = open_as_run(Target(tmp_path, "x"), None)
    one, all_of_them = (
        replayer.predict(change, quick=True).change_ms
        for change in (Change(no_straggler=0), Change(no_stragglers=(0, 2)))
    )
    assert one == pytest.approx(0.0, abs=0.1) and all_of_them == pytest.approx(-4.0, rel=0.05)
    assert "no others" in (replayer.predict(Change(no_stragglers=(0, 1, 2, 3))).reason or "")


@pytest.mark.parametrize(("second_ns", "alone_ms"), [(8e6, 0.0), (3e6, 5.0)])
def test_two_of_four_real_gpus_held_up_cost_what_both_are_held_up(second_ns: float, alone_ms: float) -> None:
    """Of what is taken off their compute, devices at their power limit give back 0.92."""
    folder = DATA / "gpt_ddp_compile_n4"
    explained = explain_traces(find_sources(folder), folder.name, 1, for_replay=True)
    replayer = open_replayer(Target(folder, folder.name), explained.analysis, [], explained.records, 1)
    before_ms = replayer.base_ns / 1e6
    for graph in (replayer.traced, replayer.graph):
        for rank, ns in ((0, 8e6), (2, second_ns)):
            for begins in graph.steps[rank]:
                graph.work_ns[begins] += ns
    replayer.base = simulate_steps(replayer.graph)
    replayer.base_ns = mean_step_ns(replayer.base)
    step_ms = replayer.base_ns / 1e6
    told = [one for one in find(Scene(explained.analysis, replayer, None, None, step_ms)) if one.rank is not None]
    assert sum(one.ms or 0.0 for one in told) == pytest.approx(0.92 * (step_ms - before_ms), rel=0.05)
    if not alone_ms:
        assert [one.ranks for one in told] == [(0, 2)]
    else:
        assert [one.rank for one in told] == [0, 2] and told[0].ms == pytest.approx(0.92 * alone_ms, rel=0.05)


def test_answers_of_before_are_read_as_they_were() -> None:
    raw = {"code": "own_work", "rank": 1, "ms": 1.0, "low_ms": 0.5, "high_ms": 1.5, "backed": "replay"}
    old = msgspec.convert(raw, Finding)
    assert (old.ranks, old.also_late) == ((), None)


@pytest.mark.parametrize(("order", "alone_ms"), [("together", 24.1), ("after", 24.1), ("first", 0.0)])
def test_no_rank_is_to_be_mended_too_of_which_nothing_is_told(order: Order, alone_ms: float) -> None:
    """*46.9 ms, 10.7% if rank 1 is mended, too* stood where waits for cores of both ranks were all that was told."""
    also = AlsoLate(ranks=(1,), order=order, alone_ms=alone_ms, together_ms=80.8)
    work = Finding(code="own_work", rank=0, ms=46.9, low_ms=40.5, high_ms=92.1, fraction=0.107, also_late=also,
                   backed="replay", remedy=None)  # fmt: skip
    starved = Finding(code="host_starved", ms=250.2, low_ms=163.1, high_ms=266.8, fraction=0.554, backed="measured",
                      remedy=None)  # fmt: skip
    _, alone = without_untold([starved, work])
    assert alone.also_late is None and "rank 1" not in line(alone)
    if order == "first":
        assert alone.ms == 46.9, "the latest costs what it does, whatever is late behind it"
    else:
        assert (alone.ms, alone.low_ms, alone.high_ms) == pytest.approx((24.1, 20.8, 47.3), abs=0.05)
        assert alone.fraction == pytest.approx(0.107 * 24.1 / 46.9)
    named = [starved, work, msgspec.structs.replace(starved, code="host_stall", rank=1, ms=30.0)]
    assert without_untold(named) == named
    nothing = msgspec.structs.replace(also, order="together", alone_ms=0.0)
    _, hidden = without_untold([starved, msgspec.structs.replace(work, also_late=nothing)])
    words = line(hidden)
    assert "mended, too" not in words and "if rank 1, of whose lateness nothing tells the cause, is in time" in words
    assert run_verdict_of(hidden).count("rank 1") == 1


def run_verdict_of(one: Finding) -> str:
    run = run_answer("r", 2)
    run.findings = [one]
    return run_verdict(run).headline
