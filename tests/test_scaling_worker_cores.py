"""Ranks on CPUs whose loaders' workers take their cores: no trace has these processes, and so they are suspects."""

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from scalescope.report.text.cures.words import cure_text
from scalescope.report.text.findings import because
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.order import own_ms
from scalescope.scaling.findings.hosts.worker_cores import with_worker_cores
from scalescope.scaling.run import explain_run
from tests.gloo_traces import GlooJob, analysed

STEPS, OPERATORS, EACH_MS = 6, 40, 0.5
FROM_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def job(folder: Path, loader: str, slices: tuple[int, ...], load_ms: float = 0.3) -> tuple[RunAnalysis, float]:
    """Run steps in which each rank loses its core so many times for 8 ms; return the answer, and what that costs."""
    chance, made, cost = random.Random(7), GlooJob(), 0.0
    for number in range(STEPS):
        made.step(number + 3)
        longest = 0.0
        for rank in (0, 1):
            begin = made.now[rank]
            made.sleep(rank, load_ms)
            made._event(rank, "user_annotation", loader, begin, made.now[rank])
            lost = chance.sample(range(OPERATORS), slices[number % len(slices)])
            for at in range(OPERATORS):
                made.compute(EACH_MS + 8.0 * (at in lost), f"aten::op{at}", rank)
            longest = max(longest, 8.0 * len(lost))
        cost += longest / STEPS
        made.all_reduce(1.0)
    return analysed(made.write(folder)), cost


def test_cores_that_workers_take_are_told_with_the_workers_as_suspects(tmp_path: Path) -> None:
    answer, cost = job(tmp_path, FROM_WORKERS, (2, 3))
    one = answer.findings[0]
    assert (one.code, one.rank) == ("host_starved", None)
    assert one.ms == pytest.approx(cost, rel=0.25)
    assert "perhaps those of their own loaders' worker processes" in because(one)
    assert one.remedy is not None and "loaders' workers" in cure_text(one.remedy)
    assert all(found.code != "data_loading" for found in answer.findings)


def test_batches_that_are_waited_for_meanwhile_are_what_is_sure_of_it(tmp_path: Path) -> None:
    """*Starved hosts cost 33.1 ms (3.6 to 44.8)* came before 18.8 of recomputing that were sure, and 173.2 of two cores
    before one rank's slow loader: the traces of a run folder, by themselves.
    """
    answer, cost = job(tmp_path, FROM_WORKERS, (2, 3), load_ms=4.0)
    one = answer.findings[0]
    assert (one.code, one.rank) == ("data_loading", None)
    assert one.low_ms == pytest.approx(4.0, rel=0.3) and one.high_ms == pytest.approx(4.0 + cost, rel=0.3)
    assert own_ms(one) == pytest.approx(4.0, rel=0.3), "more than that does not come before what is sure"
    assert "other threads have their cores, and how much of that are the loader's workers no trace tells" in because(
        one
    )


def test_without_worker_processes_none_is_a_suspect(tmp_path: Path) -> None:
    answer, _ = job(tmp_path, ALONE, (2, 3))
    assert all("worker" not in because(one) for one in answer.findings)


def test_workers_on_quiet_cores_are_no_cause(tmp_path: Path) -> None:
    answer, _ = job(tmp_path, FROM_WORKERS, (0,))
    assert all(one.code != "host_starved" for one in answer.findings)


def test_workers_that_are_started_with_each_epoch_take_the_cores_of_few_steps(tmp_path: Path) -> None:
    answer, _ = job(tmp_path, FROM_WORKERS, (6, 0, 0))
    assert all(one.remedy is None or one.remedy.cure != "cheaper_workers" for one in answer.findings)


@pytest.mark.parametrize(("of_the_cause", "told"), [(1.0, True), (0.02, False)])
def test_without_a_replay_workers_are_told_where_much_of_a_step_is_interrupted(
    of_the_cause: float, told: bool, tmp_path: Path
) -> None:
    job(tmp_path, FROM_WORKERS, (2, 3))
    known = explain_run(tmp_path, jobs=1, for_replay=True)
    host = [replace(one, ns=tuple(round(ns * of_the_cause) for ns in one.ns)) for one in known.host]
    found = with_worker_cores(known.analysis, known.records, host, [])
    assert [one.code for one in found] == ["host_starved"] * told
    for one in found:
        assert one.low_ms is not None and one.ms is not None and one.high_ms is not None and one.fraction is not None
        assert 0 < one.low_ms <= one.ms <= one.high_ms and one.fraction <= 1
    assert with_worker_cores(known.analysis, {}, host, []) == [], "no loader with workers"
    assert with_worker_cores(known.analysis, known.records, [], []) == []
