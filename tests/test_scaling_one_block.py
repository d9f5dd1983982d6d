"""What one rank of a job on CPUs does beyond the others is one cause, with its host's time around its operators."""

from pathlib import Path

import pytest

from scalescope.report.text.findings import because
from scalescope.scaling.finding.finding import Finding
from tests.gloo_traces import GlooJob, analysed


def findings(
    folder: Path, *, own: int = 0, more: int = 0, pause_ms: float = 0.0, last_ms: float = 0.0
) -> list[Finding]:
    """A job whose rank 1 runs so many operators of its own, and of the others', and pauses after each, or at last."""
    job = GlooJob()
    for step in range(6):
        job.step(3 + step)
        job.compute(20.0, calls=10)
        for _ in range(more):
            job.compute(0.5, rank=1)
            job.sleep(1, pause_ms)
        for _ in range(own):
            job.compute(0.1, "aten::median", rank=1)
            job.sleep(1, pause_ms)
        job.sleep(1, last_ms)
        if last_ms:
            job.compute(0.1, "aten::std", rank=1)
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
