"""What one rank of a job on CPUs does beyond the others is one cause, with its host's time around its operators."""

from pathlib import Path

import pytest

from scalescope.report.text.cures.words import cure_text
from scalescope.report.text.findings import because
from scalescope.scaling.finding.finding import Finding
from tests.gloo_traces import GlooJob, analysed


def findings(
    folder: Path,
    *,
    own: int = 0,
    more: int = 0,
    pause_ms: float = 0.0,
    last_ms: float = 0.0,
    behind_ms: float = 0.0,
    elsewhere_ms: float = 0.0,
) -> list[Finding]:
    """A job whose rank 1 runs so many operators of its own, and of the others', and pauses after each, or at last."""
    job = GlooJob()
    for step in range(6):
        job.step(3 + step)
        job.compute(20.0, calls=10)
        if elsewhere_ms:
            job.sleep(1, elsewhere_ms)
            job.compute(5.0, "aten::relu", calls=5)
        for _ in range(more):
            job.compute(0.5, rank=1)
            job.sleep(1, pause_ms)
        for _ in range(own):
            job.compute(0.1, "aten::median", rank=1)
            job.sleep(1, pause_ms)
        job.sleep(1, last_ms)
        if last_ms:
            job.compute(0.1, "aten::std", rank=1)
        if behind_ms:
            job.sleep(1, behind_ms)
            job.compute(2.0, "aten::relu", calls=2)
        job.all_reduce(2.0)
    return [one for one in analysed(job.write(folder)).findings if one.rank is not None]


def test_python_between_a_ranks_own_operators_is_told_with_them(tmp_path: Path) -> None:
    """Before, a stalled host and work of its own, each at half of what they cost together."""
    (found,) = findings(tmp_path, own=16, pause_ms=0.5)
    assert (found.code, found.rank) == ("own_work", 1)
    assert found.ms == pytest.approx(16 * 0.6, rel=0.1)
    told = "aten::median and what its host does around that, 9.1 ms a step, which the other does not run"
    assert because(found).replace("the others do", "the other does") == told


def test_operators_of_its_own_amid_the_others_launched_once_more_are_one_block(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, own=4, more=10)
    assert (found.code, found.rank) == ("more_work", 1)
    assert found.ms == pytest.approx(10 * 0.5 + 4 * 0.1, rel=0.1)


def test_a_rank_that_sleeps_before_an_operator_of_its_own_is_stalled(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, last_ms=10.0)
    assert (found.code, found.rank) == ("host_stall", 1)
    assert found.ms == pytest.approx(10.0, rel=0.05)
    assert found.remedy is not None and cure_text(found.remedy) == "find what holds that host up"


def test_what_a_rank_runs_and_its_stall_right_behind_that_are_one_cause(tmp_path: Path) -> None:
    """A save: an operator or two, and then a wait for the file. One edit takes out both."""
    (found,) = findings(tmp_path, more=6, behind_ms=10.0)
    assert (found.code, found.rank) == ("host_stall", 1)
    assert found.ms == pytest.approx(6 * 0.5 + 10.0, rel=0.1)
    assert found.high_ms is not None and found.high_ms >= 12.5
    assert "there it also runs what the others do not, 3.0 ms a step, led by" in because(found)
    assert found.remedy is not None
    assert cure_text(found.remedy) == "find what holds that host up, and what runs aten::mm there, on that rank alone"


def test_a_stall_shorter_than_what_the_rank_runs_there_is_told_with_that(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, more=20, behind_ms=3.0)
    assert (found.code, found.rank) == ("more_work", 1)
    assert found.ms == pytest.approx(20 * 0.5 + 3.0, rel=0.1)
    assert "with 3.0 ms of its host's time around that" in because(found)


def test_a_stall_at_another_place_of_the_step_is_another_cause(tmp_path: Path) -> None:
    found = findings(tmp_path, more=6, elsewhere_ms=10.0)
    assert sorted(one.code for one in found) == ["host_stall", "more_work"]


def _with_stacks(folder: Path, runs: str, sleeps: str, *, apart: bool) -> list[Finding]:
    """Rank 1 runs operators of its own for 4 ms in one function, and sleeps for 6 ms in one: there, or elsewhere."""
    job = GlooJob()
    for step in range(6):
        job.step(3 + step)
        begun = job.now[1]
        job.compute(4.0, "aten::median", 1, calls=4)
        job.stack(1, runs, begun - 100, job.now[1] - 100)
        if apart:
            job.compute(20.0, calls=10)
        begun = job.now[1]
        job.sleep(1, 6.0)
        job.stack(1, sleeps, begun + 200, job.now[1] - 100)
        job.compute(20.0, "aten::relu", calls=10)
        job.all_reduce(2.0)
    return [one for one in analysed(job.write(folder)).findings if one.rank is not None]


@pytest.mark.parametrize("apart", [False, True])
def test_what_lies_in_one_function_is_one_cause_wherever_that_is_called(apart: bool, tmp_path: Path) -> None:
    (found,) = _with_stacks(tmp_path, "job.py(5): save", "job.py(5): save", apart=apart)
    assert found.remedy is not None and found.remedy.line == "job.py(5): save"
    assert found.ms == pytest.approx(10.0, rel=0.1)


@pytest.mark.parametrize("apart", [False, True])
def test_two_functions_are_two_causes_where_ever_they_lie(apart: bool, tmp_path: Path) -> None:
    found = _with_stacks(tmp_path, "job.py(5): audit", "job.py(9): save", apart=apart)
    assert sorted(one.code for one in found) == ["host_stall", "own_work"]
