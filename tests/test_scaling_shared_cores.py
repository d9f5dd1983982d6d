"""Cores that others have by turns: a few operators take many times as long, now here and now there."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scalescope.report.text.findings import because
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.findings.hosts.shared_cores import with_shared_cores
from scalescope.scaling.replay.change import Change
from tests.gloo_traces import GlooJob, analysed
from tests.test_scaling_loads import scene_of

#: By rank and step, for how long others have its core, in one of its operators, ms.
BY_TURNS = [[0, 8, 12, 0, 4, 20, 0, 8], [12, 0, 0, 16, 8, 0, 12, 0]]
ONE_ALONE = [[0] * 8, BY_TURNS[0]]
NOBODY = [[0] * 8, [0] * 8]


def findings(folder: Path, turns: list[list[int]], load: float = 1.0, sleep_ms: float = 0.0) -> list[Finding]:
    """A job of ten products a step, all of them so many times as long on both ranks in every other step."""
    job = GlooJob()
    for step in range(8):
        job.step(3 + step)
        for rank, own in enumerate(turns):
            for at in range(10):
                held_up = own[step] if at == (3 * step + 5 * rank) % 10 else 0.0
                job.compute((load if step % 2 else 1.0) + held_up, rank=rank)
        job.sleep(1, sleep_ms)
        job.all_reduce(3.0)
    return analysed(job.write(folder)).findings


def test_cores_that_others_have_by_turns_are_the_finding_where_nothing_else_is(tmp_path: Path) -> None:
    """Before, `communication that nothing hides, and no single cause of it is found`; faster operators were advised."""
    first, *others = findings(tmp_path, BY_TURNS)
    assert (first.code, first.rank, first.at_least) == ("host_starved", None, True)
    assert first.remedy is not None and first.remedy.cure == "free_cores"
    # of two ranks that exchange data no trace tells whose threads they are
    whose = "other threads have their cores, of other processes or the job's own (gloo's, a loader's)"
    assert f"at their shortest, and the rest as long as ever: {whose}" in because(first)
    # a step is as long as its later rank: without turns 10 ms of products on either
    lost = sum(max(pair) for pair in zip(*BY_TURNS, strict=True)) / 8
    assert first.ms == pytest.approx(lost, rel=0.25)
    assert "exposed_transfer" not in {one.code for one in others}


def test_loads_that_differ_and_undisturbed_ranks_are_no_shared_cores(tmp_path: Path) -> None:
    for name, made in (("none", NOBODY), ("own", ONE_ALONE)):
        told = [one for one in findings(tmp_path / name, made) if one.code == "host_starved"]
        assert all(one.rank == 1 for one in told) and (made is ONE_ALONE or not told)
    assert not [one for one in findings(tmp_path / "load", NOBODY, load=4.0) if one.code == "host_starved"]


def test_the_same_operators_that_are_longer_in_most_steps_are_nobody_s_turns(tmp_path: Path) -> None:
    """*Starved hosts cost at least 48.3 ms* of 142 was told of a job of 58 ms, which laid what it computed into fresh
    pages while it was recorded: the operators that write much took longer in all steps but the first ones.
    """
    job = GlooJob()
    for step in range(8):
        job.step(3 + step)
        for rank in range(2):
            for at in range(10):
                job.compute(13.0 if at in (2, 7) and step > 1 else 1.0, rank=rank)
        job.all_reduce(3.0)
    assert not [one for one in analysed(job.write(tmp_path)).findings if one.code == "host_starved"]


def test_what_the_job_itself_does_for_sure_is_told_alone(tmp_path: Path) -> None:
    (first, *others) = findings(tmp_path, BY_TURNS, sleep_ms=30.0)
    assert (first.code, first.rank) == ("host_stall", 1) and not [one for one in others if one.at_least]


def test_a_rank_that_sleeps_at_its_place_takes_no_turns_with_what_others_on_the_cores_hold_up(tmp_path: Path) -> None:
    """Before, with ZeroRedundancyOptimizer, `ranks 0 and 1 are late by turns`, at half of what the sleep cost."""
    job = GlooJob()
    for step, late in enumerate((30, 40, 0, 28, 36, 0, 28, 30)):
        job.step(3 + step)
        job.compute(20.0, calls=10)
        job.sleep(1, late if step % 3 else 0.0)
        job.sleep(0, 0.0 if step % 3 else late)
        job.compute(5.0, "aten::gelu")
        job.sleep(0, 13.0)
        job.compute(5.0, "aten::add_", calls=5)
        job.all_reduce(3.0)
    found = analysed(job.write(tmp_path)).findings
    assert (found[0].code, found[0].rank) == ("host_stall", 0)
    assert "alternating_load" not in {one.code for one in found}


def test_a_hook_of_one_layer_is_a_stall_though_the_host_is_interrupted_too(tmp_path: Path) -> None:
    """Before, a starved host, or under FSDP2 nothing: the host comes to the place of the hook six times a step."""
    job = GlooJob()
    held_up = (0, 6, 4, 0, 5, 7, 0, 4)
    for step, ms in enumerate(held_up):
        job.step(3 + step)
        for layer in range(6):
            job.compute(3.0, "aten::linear")
            job.sleep(0, 0.15)
            job.sleep(1, 8.0 if layer == 3 else 0.15)
            job.compute(0.5, "aten::relu")
            job.sleep(1, ms if layer == step % 6 else 0.0)
        for at in range(4):
            job.compute(1.0, f"aten::op{at}")
            job.sleep(1, ms if at == step % 4 else 0.0)
        job.all_reduce(3.0)
    found = analysed(job.write(tmp_path)).findings
    assert (found[0].code, found[0].rank) == ("host_stall", 1) and "before aten::relu" in because(found[0])


def scene(held_up_ms: tuple[float, float], each_ns: float = 1e6, count: int = 6, steps: int = 6) -> Any:
    """Operators of 1 ms on two ranks, the first of 4, of which others have a rank's core in one of each step's."""
    made = scene_of([[1.0] * steps] * 2, count, each_ns=each_ns)
    for rank, ms in enumerate(held_up_ms):
        for step in range(steps):
            made.side.launches[rank, step].work_ns[(step + rank) % count] += ms * each_ns
    made.host, made.replayer.on_cpu = (), True
    made.replayer.predict = lambda change, **_: SimpleNamespace(change_ms=-3.0)
    return made


def finding(
    code: Code, ms: float, *, rank: int | None = None, calls: float | None = None, low_ms: float = 0.1
) -> Finding:
    rows = () if calls is None else (EvidenceRow(kind="activity", name="all_reduce", calls=calls),)
    return Finding(code=code, rank=rank, ms=ms, low_ms=low_ms, high_ms=2 * ms, evidence=rows, backed="replay")


def test_whose_cores_others_have_is_told_with_how_often_and_for_how_long() -> None:
    (alone,) = with_shared_cores(scene((0.0, 12.0)), [])
    assert (alone.code, alone.rank, alone.high_ms) == ("host_starved", 1, 20.0)
    assert alone.ms == alone.low_ms == pytest.approx(2.55), "of 3.0: undisturbed ones take 1.1 times their shortest"
    (row,) = alone.evidence
    assert (row.calls, row.ms, row.value, alone.fraction) == pytest.approx((1.0, 12.0, 21.0 / 9.0, 0.1275))
    (both,) = with_shared_cores(scene((8.0, 12.0)), [])
    assert both.rank is None


@pytest.mark.parametrize(
    "alike",
    [scene((0.0, 0.0)), scene((0.0, 12.0), each_ns=2e4), scene((0.0, 12.0), count=3), scene((0.0, 30.0), steps=2)],
    ids=["nobody", "launches", "too few operators", "too few steps"],
)
def test_of_few_or_short_operators_nothing_is_told(alike: Any) -> None:
    assert with_shared_cores(alike, []) == []


def test_what_is_sure_and_of_the_jobs_own_is_told_in_its_place_and_few_messages_are_not() -> None:
    made = scene((8.0, 12.0))
    for kept in (finding("host_stall", 1.0, rank=1), finding("small_buckets", 5.0, calls=30.0)):
        assert with_shared_cores(made, [kept]) == [kept]
    trifle, unsure = finding("host_stall", 0.5, rank=1), finding("data_loading", 2.0, rank=1, low_ms=0.0)
    for beside in (trifle, unsure):
        first, other = with_shared_cores(made, [beside])
        assert (first.code, other) == ("host_starved", beside)
    for gone in (finding("small_buckets", 5.0, calls=2.0), finding("host_starved", 2.0)):
        (only,) = with_shared_cores(made, [gone])
        assert only.at_least
    for starved in (finding("host_starved", 4.0), finding("host_starved", 4.0, rank=0)):
        assert with_shared_cores(made, [starved]) == [starved], "hosts tell as much of it"
    assert len(with_shared_cores(made, [finding("host_starved", 2.0, rank=0)])) == 2


@pytest.mark.parametrize(("rank", "hosts"), [(None, True), (1, False)])
def test_hosts_are_priced_with_operators_where_all_of_them_are_interrupted(rank: int | None, hosts: bool) -> None:
    made, asked = scene((8.0, 12.0)), []

    def predict(change: Change, **_: bool) -> SimpleNamespace:
        asked.append({one.what for one in change.without})
        return SimpleNamespace(change_ms=-0.1)

    made.host = [SimpleNamespace(code="host_stall", rank=None), SimpleNamespace(code="host_starved", rank=rank)]
    made.replayer.predict = predict
    assert with_shared_cores(made, []) == [], "which is less than is worth saying"
    assert asked == [{"uneven", "host"} if hosts else {"uneven"}]
