"""An operator that one rank calls more often than the others, without larger inputs: work of its own, such as a log."""

from pathlib import Path

import pytest

from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from tests.gloo_traces import GlooJob, analysed


def _logs_norms(more_in_one_step: int) -> GlooJob:
    """Return a job whose rank 0 logs 200 norms a step, of which all compute ten; and in one step some more."""
    job = GlooJob()
    for step in range(3, 11):
        job.step(step)
        for at in range(16):
            job.compute(4.0, ("aten::linear", "aten::gelu", "aten::mul", "aten::add")[at % 4])
        job.compute(0.2, "aten::linalg_vector_norm", calls=10)
        count = 200 + (more_in_one_step if step == 5 else 0)
        job.compute(0.03 * count, "aten::linalg_vector_norm", rank=0, calls=count)
        job.all_reduce(1.0)
    return job


@pytest.mark.parametrize("more_in_one_step", [0, 6])
def test_an_operator_that_one_rank_calls_more_often_is_work_of_its_own(tmp_path: Path, more_in_one_step: int) -> None:
    """`aten::linalg_vector_norm …, which it runs more often` was *more work* in one run, to be evened out by batches of
    equal size, and work of its own in the next, whose steps all made as many calls.
    """
    answer = analysed(_logs_norms(more_in_one_step).write(tmp_path))
    first = answer.findings[0]
    assert (first.code, first.rank) == ("own_work", 0) and first.remedy is not None
    assert "in 200 launches a step that the others do not make" in because(first)
    assert first.remedy.cure == "look_at_rank" and "even out" not in run_verdict(answer).advice


def test_of_launches_of_several_operators_the_one_that_takes_most_leads_them(tmp_path: Path) -> None:
    """*aten::conv2d, 9.7 ms a step, in 10 launches a step that the others do not make* read as ten convolutions, of
    three, two of batch norms, and others.
    """
    job = GlooJob()
    for step in range(8):
        job.step(3 + step)
        job.compute(20.0, "aten::mm")
        for name in ("aten::conv2d", "aten::batch_norm", "aten::relu"):
            job.compute(4.0, name)
        job.compute(10.0, "aten::mm")
        for name, ms, calls in (("aten::conv2d", 6.0, 3), ("aten::batch_norm", 2.0, 2), ("aten::relu", 1.0, 2)):
            job.compute(ms, name, rank=1, calls=calls)
        job.all_reduce(1.0)
    first = analysed(job.write(tmp_path)).findings[0]
    assert (first.code, first.rank) == ("own_work", 1)
    assert because(first) == "7 launches a step that the others do not make, led by aten::conv2d (3 of them, 6.0 ms)"
