"""Loaders' workers on the cores that the ranks compute on: waits for batches and lost turns are one cause, told so."""

import random
from pathlib import Path
from typing import Any

import pytest

from scalescope.records.steps.worker_times import WorkerTime
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.codes import Code, Cure
from scalescope.scaling.finding.figures import MAY_BE_OTHERS, WORKERS_CORES
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.order import are_little_at_most, as_costly, own_ms, ranked, reordered
from scalescope.scaling.findings import add
from scalescope.scaling.findings.cores import CoreShare
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.prices.may_go import without_others
from scalescope.scaling.findings.shares import mean_step_ms
from tests.gloo_traces import GlooJob, analysed

STEPS, OPERATORS, EACH_MS, TURN_MS = 7, 40, 0.8, 1.5
FROM_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def job(
    folder: Path, turns: tuple[int, ...], waits_ms: tuple[float, float] = (2.0, 2.0), sends_ms: float = 3.0
) -> RunAnalysis:
    """Run steps in which ranks wait for batches, and lose their cores so many times, in whichever operators."""
    chance, made = random.Random(3), GlooJob()
    for number in range(STEPS):
        made.step(number + 3)
        for rank in (0, 1):
            begin = made.now[rank]
            made.sleep(rank, waits_ms[rank] + chance.uniform(-0.3, 0.3))
            made.annotate(rank, FROM_WORKERS, begin, made.now[rank])
            lost = chance.sample(range(OPERATORS), turns[number % len(turns)])
            for at in range(OPERATORS):
                made.compute(EACH_MS + TURN_MS * (at in lost), f"aten::op{at}", rank)
        made.all_reduce(sends_ms)
    return analysed(made.write(folder))


def only(answer: RunAnalysis) -> Finding:
    (found,) = (one for one in answer.findings if one.code in ("data_loading", "host_starved"))
    return found


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add, "_cores", lambda _: CoreShare(ranks=2, threads=2, cores=2))


@pytest.mark.usefixtures("crowded")
def test_waits_for_batches_and_turns_that_operators_lose_are_one_cause_with_one_remedy(tmp_path: Path) -> None:
    """*Starved hosts cost 8.7 ms (7.9 to 9.5)* in one run, *loading data 2.1 ms (1.5 to 4.6)* in the next, of 5.1."""
    for at, turns in enumerate([(3, 2), (1, 0)]):
        found = only(job(tmp_path / str(at), turns))
        assert (found.code, found.rank) == ("data_loading", None)
        assert found.ms is not None and found.low_ms is not None and found.high_ms is not None
        lost_ms = TURN_MS * sum(turns) / len(turns)
        assert found.low_ms <= 2.0 and found.high_ms >= 2.0 + lost_ms, "whose turns those are no trace tells"
        assert 2.0 < found.ms < 3.0 + 2 * lost_ms
        assert own_ms(found) == pytest.approx(2.1, abs=0.4), "what counts beside other causes is what is sure"
        assert "2 ranks and the loader's workers share 2 cores" in because(found)
        assert found.remedy is not None
        assert "by more loader workers as far as these wait (for files, a network) or find cores" in cure_text(
            found.remedy
        ), "six workers that each slept 250 ms brought back 183 of 190 ms, and no more of them were advised"
        assert "more cores for the ranks" in cure_elsewhere(found.remedy, False)


@pytest.mark.usefixtures("crowded")
def test_workers_that_take_turns_make_no_rank_late_and_a_slow_one_does(tmp_path: Path) -> None:
    assert only(job(tmp_path / "turns", (1, 2), (1.5, 3.2))).rank is None
    slow = job(tmp_path / "slow", (1, 2), (1.5, 20.0)).findings[0]
    assert (slow.code, slow.rank) == ("data_loading", 1)


def test_where_cores_are_left_for_the_workers_their_batches_are_late_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add, "_cores", lambda _: CoreShare(ranks=2, threads=2, cores=8))
    found = only(job(tmp_path, (1, 0)))
    assert found.remedy is not None and found.remedy.cure == "load_faster"
    assert "share" not in because(found)


@pytest.mark.usefixtures("crowded")
def test_beside_waits_for_cores_that_all_steps_tell_lost_turns_are_not_told_again(tmp_path: Path) -> None:
    found = only(job(tmp_path, (3, 2)))
    alone = without_others(found)
    assert alone.ms == pytest.approx(own_ms(found)) and "share" not in because(alone)
    assert alone.low_ms is not None and alone.ms is not None and alone.high_ms is not None
    assert alone.low_ms <= alone.ms <= alone.high_ms


@pytest.mark.usefixtures("crowded")
def test_workers_make_ranks_wait_for_cores_no_longer_than_they_use_them(tmp_path: Path) -> None:
    """*Loading data costs 18.1 ms (4.3 to 31.8)* led a job whose workers used 0.05 of a core each, 7 ms a step."""
    answer = job(tmp_path, (6, 5))
    before = only(answer)
    answer.worker_times = [WorkerTime(rank=rank, processes=1, cores=0.02) for rank in (0, 1)]
    keep(answer, answer.findings)
    found = only(answer)
    assert before.ms is not None and before.high_ms is not None and found.ms is not None and found.high_ms is not None
    # *loading data costs 6.1 ms (1.9 ms to 9.2 ms)* was told of hosts that idled for their batches for 3.5
    assert found.ms == pytest.approx(2.1, abs=0.4) and before.ms > 2 * found.ms
    assert found.ms <= found.high_ms == pytest.approx(2.1, abs=1.0)
    assert because(found).endswith("; the loader's workers rest: they use 0.04 of 2 cores")
    # *more loader workers* was advised of such a job, whose step of 121 ms two more a rank made 9 to 14 ms longer
    assert found.remedy is not None and found.remedy.cure == "hand_over_less"
    assert before.remedy is not None and before.remedy.cure == "load_faster"
    keep(answer, answer.findings)
    assert only(answer) == found
    sure = without_others(found)  # *at most 0.00 ms, 0.0%: the hosts load data for 4.5 ms a step* was listed
    apart = without_others(before)
    assert (sure.ms, sure.low_ms, sure.high_ms) == pytest.approx((apart.ms, apart.low_ms, apart.high_ms))
    assert sure.ms == pytest.approx(2.1, abs=0.4) and not any("may_be" in row.name for row in sure.evidence)
    answer.worker_times = answer.worker_times[:1]  # of one rank's nothing follows for all
    keep(answer, [before])
    assert only(answer).ms == before.ms


@pytest.mark.usefixtures("crowded")
def test_workers_that_compute_cost_no_more_than_they_use_of_the_cores(tmp_path: Path) -> None:
    answer = job(tmp_path, (22, 20))
    before, step_ms = only(answer), mean_step_ms(answer, "window")
    answer.worker_times = [WorkerTime(rank=rank, processes=1, cores=used) for rank, used in enumerate((0.34, 0.34))]
    keep(answer, answer.findings)
    found = only(answer)
    assert before.high_ms is not None and found.ms is not None and found.high_ms is not None
    assert found.high_ms == pytest.approx(min(before.high_ms, 2.1 + 0.68 * step_ms), abs=0.5)
    assert own_ms(found) == pytest.approx(2.1, abs=0.4) and found.ms < found.high_ms
    assert "share 2 cores, of which the workers use 0.68, which may be " in because(found)


@pytest.mark.parametrize(
    ("ms", "cores", "little"), [(3.6, 0.04, True), (8.0, 0.04, False), (3.6, 0.9, False)],
    ids=["ready", "not ready", "busy"],
)  # fmt: skip
def test_taking_ready_batches_over_is_no_headline_of_a_healthy_step(ms: float, cores: float, little: bool) -> None:
    """*Loading data costs 6.1 ms of the 111.9 ms step* was the first sentence of a healthy loop, before *nothing around
    the compute is wrong*; and beside another rank's 4.2 ms *loading data may cost as much*.
    """
    loading = Finding(
        code="data_loading", ms=ms, low_ms=1.9, high_ms=ms + 1, fraction=ms / 112, backed="replay",
        evidence=(
            EvidenceRow(kind="figure", name="ranks", value=2.0),
            EvidenceRow(kind="figure", name=WORKERS_CORES, value=2 * cores),
        ),
    )  # fmt: skip
    nothing = Finding(code="nothing", ms=None, low_ms=None, high_ms=None, fraction=None, backed="none")
    assert are_little_at_most([nothing, loading], 112.0, on_cpus=True) is little
    assert reordered([loading, nothing]) == [nothing, loading]
    late = Finding(code="host_stall", rank=0, ms=ms, low_ms=1.4, high_ms=2 * ms, fraction=ms / 112, backed="replay")
    assert (as_costly([late, loading]) is None) is (cores < 0.3)


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("cores", [0.02, 0.9])
def test_a_healthy_loop_with_workers_that_rest_is_told_to_be_compute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: float
) -> None:
    """Whether its workers rest is noted beside the traces."""
    used = [WorkerTime(rank=rank, processes=1, cores=cores) for rank in (0, 1)]
    find_as_it_is = add.find_in

    def find_in(replayer: Any, analysis: RunAnalysis, *rest: Any) -> list[Finding] | None:
        analysis.worker_times = used
        return find_as_it_is(replayer, analysis, *rest)

    monkeypatch.setattr(add, "find_in", find_in)
    answer = job(tmp_path, (1, 0), (1.0, 1.0), 0.3)
    assert [one.code for one in answer.findings if one.code in ("nothing", "data_loading")] == (
        ["nothing", "data_loading"] if cores < 0.3 else ["data_loading"]
    )


@pytest.mark.parametrize(("cores", "first"), [(0.04, "unfused_optimizer"), (0.9, "data_loading")])
def test_batches_that_workers_have_ready_are_no_more_of_a_fault_than_what_all_ranks_compute(
    cores: float, first: str
) -> None:
    """*Loading data costs 12.8 ms* led healthy jobs, of which 5.4 were waits, before an optimizer's 7.8."""
    loading = Finding(
        code="data_loading", ms=12.8, low_ms=4.3, high_ms=20.6, fraction=0.09, backed="replay",
        evidence=(
            EvidenceRow(kind="figure", name="ranks", value=2.0),
            EvidenceRow(kind="figure", name=MAY_BE_OTHERS, ms=6.4),
            EvidenceRow(kind="figure", name=WORKERS_CORES, value=2 * cores),
        ),
    )  # fmt: skip
    unfused = Finding(code="unfused_optimizer", ms=7.8, low_ms=4.3, high_ms=10.4, fraction=0.05, backed="replay")
    assert next(one.code for one in ranked([loading, unfused])) == first


@pytest.mark.parametrize(("code", "first"), [("host_starved", "unfused_optimizer"), ("host_stall", "host_stall")])
def test_a_rank_whose_cores_others_have_does_not_lead_what_all_ranks_compute(code: Code, first: str) -> None:
    """*Rank 1 costs 1.6 ms of the 102.3 ms step: its host stands still, now here and now there* led a healthy job."""
    unfused = Finding(code="unfused_optimizer", ms=3.4, low_ms=1.8, high_ms=4.6, fraction=0.03, backed="replay")
    cure: Cure = "free_cores" if code == "host_starved" else "look_at_host"
    late = Finding(code=code, rank=1, ms=1.6, low_ms=1.1, high_ms=2.1, fraction=0.016, backed="replay",
                   remedy=Remedy(cure=cure))  # fmt: skip
    assert next(one.code for one in ranked([unfused, late])) == first
