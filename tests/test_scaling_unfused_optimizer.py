"""Optimizers of ranks on CPUs that run one operator after another: what one operator would give back, and of whom."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from scalescope import RunAnalysis
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.computing.unfused_optimizer import GIVEN_BACK, GIVEN_BACK_HIGH, GIVEN_BACK_LOW
from scalescope.scaling.trace.kernel_kinds import OPTIMISER
from tests.gloo_traces import GlooJob, analysed

ADAM, SINGLE = "Optimizer.step#Adam.step", ("aten::lerp_", "aten::mul_", "aten::sqrt", "aten::addcdiv_")
FUSED = ("aten::_fused_adam_",)


def _of(answer: RunAnalysis, code: str) -> list[Finding]:
    return [one for one in answer.findings if one.code == code]


def _job(
    folder: Path,
    operators: Sequence[str] = SINGLE,
    *,
    ms: float = 20.0,
    annotation: str = ADAM,
    transfer_ms: float = 2.0,
    stands_ms: float = 0.0,
    closure: bool = False,
) -> RunAnalysis:
    """Of two ranks that compute for 40 ms the optimizers take so long; rank 1 stands still within, where that is told.

    `closure`: the optimizer's step runs the forward and backward passes, as Lightning has it.
    """
    job = GlooJob(view_ns=None)
    for step in range(8):
        job.step(3 + step)
        if not closure:
            job.compute(40.0, calls=20)
            job.all_reduce(transfer_ms)
        begun = dict(job.now)
        if closure:
            for _ in range(10):
                job.compute(2.0)
                job.compute(2.0, "aten::mul")
            job.compute(1.0, "AddmmBackward0")
            job.all_reduce(transfer_ms)
        for _ in range(16):
            for name in operators:
                job.compute(ms / 16 / len(operators), name)
        job.sleep(1, stands_ms)
        job.compute(0.1, operators[-1])
        for rank, begin in begun.items():
            job.annotate(rank, annotation, begin - 1_000, job.now[rank] + 1_000)
        job.compute(2.0, "aten::sum")
    return analysed(job.write(folder))


def test_it_takes_no_less_than_it_may_give_back_where_ranks_take_turns_in_being_slow(tmp_path: Path) -> None:
    """*Costs 14.5 ms: Adam takes 12.9 ms*, the mean of ranks of which now one took 20 ms, and now the other."""
    job = GlooJob(view_ns=None)
    for step in range(8):
        job.step(3 + step)
        job.compute(40.0, calls=20)
        job.all_reduce(2.0)
        begun = dict(job.now)
        for rank in (0, 1):
            for _ in range(16):
                for name in SINGLE:
                    job.compute((20.0 if step % 2 == rank else 10.0) / 16 / len(SINGLE), name, rank)
            job.annotate(rank, ADAM, begun[rank] - 1_000, job.now[rank] + 1_000)
        job.compute(2.0, "aten::sum")
    (one,) = _of(analysed(job.write(tmp_path)), "unfused_optimizer")
    takes = next(row.ms for row in one.evidence if row.kind == "annotation")
    assert (
        takes is not None and takes == pytest.approx(20.1, rel=0.02) and one.high_ms is not None and one.high_ms < takes
    )


def test_an_optimizer_of_many_operators_is_told_with_what_one_gives_back(tmp_path: Path) -> None:
    """Of 66 ms Adam took 20.3 in 65 operators, and the answer was that nothing is wrong, or about launching."""
    answer = _job(tmp_path)
    first = answer.findings[0]
    assert (first.code, first.rank, first.at_most, first.backed) == ("unfused_optimizer", None, False, "replay")
    whole = 20.1 + 65 * 0.002
    assert first.ms == pytest.approx(GIVEN_BACK * whole, rel=0.02)
    assert first.low_ms is not None and first.low_ms == pytest.approx(GIVEN_BACK_LOW * whole, rel=0.1)
    assert first.high_ms is not None and first.high_ms == pytest.approx(GIVEN_BACK_HIGH * whole, rel=0.1)
    assert "Adam takes 20.1 ms of a profiled step in 65 operators" in because(first)
    assert first.remedy is not None and "one operator (fused=True)" in cure_text(first.remedy)
    assert "fused=True" in cure_elsewhere(first.remedy)
    assert "an unfused optimizer costs 15." in run_verdict(answer).headline
    (kind,) = (row for row in answer.kinds if row.kind == OPTIMISER)
    assert kind.ms == pytest.approx(20.1, rel=0.02) and kind.calls == len(SINGLE) * 16 + 1
    assert {row.name for row in answer.kernels if row.kind == OPTIMISER} >= set(SINGLE)


@pytest.mark.parametrize(
    ("operators", "ms", "annotation"),
    [
        (FUSED, 20.0, ADAM),
        (SINGLE, 1.2, ADAM),  # 1.1 ms of 46
        (SINGLE, 20.0, "Optimizer.step#SGD.step"),  # a fused one gave back next to nothing of large tables
        (SINGLE, 20.0, "Optimizer.step#Shampoo.step"),  # which has no fused form
        (("CompiledFxGraph",), 20.0, ADAM),
        (("aten::coalesce", *4 * SINGLE), 20.0, "Optimizer.step#Adagrad.step"),  # sparse gradients: not fused either
    ],
)
def test_what_is_fused_or_small_or_has_no_fused_form_is_not_told(
    tmp_path: Path, operators: Sequence[str], ms: float, annotation: str
) -> None:
    assert not _of(_job(tmp_path, operators, ms=ms, annotation=annotation), "unfused_optimizer")


def test_what_a_closure_computes_within_the_step_is_not_the_optimizers(tmp_path: Path) -> None:
    """All 61 ms of such a step lie within the optimizer's; 20 of them are its own."""
    (one,) = _of(_job(tmp_path, closure=True), "unfused_optimizer")
    assert one.ms == pytest.approx(GIVEN_BACK * (20.1 + 65 * 0.002), rel=0.02)


def test_a_rank_that_stands_still_within_its_optimizer_comes_first_and_fusing_gives_nothing_of_it_back(
    tmp_path: Path,
) -> None:
    """A fault of one rank is told before what all ranks do alike, though that costs twice as much."""
    answer = _job(tmp_path, stands_ms=8.0)
    first, second = answer.findings[:2]
    assert (first.code, first.rank) == ("host_stall", 1) and first.ms == pytest.approx(8.0, rel=0.1)
    assert second.code == "unfused_optimizer"
    assert second.ms == pytest.approx(GIVEN_BACK * (20.1 + 65 * 0.002), rel=0.05)


def test_what_travels_is_told_beside_the_optimizer(tmp_path: Path) -> None:
    """What all ranks compute is none of what a step loses: it covered 31.1 ms of transfer that nothing hides."""
    codes = [one.code for one in _job(tmp_path, transfer_ms=25.0).findings]
    assert codes[:2] == ["unfused_optimizer", "exposed_transfer"]


def test_an_optimizer_that_is_not_told_takes_nothing_from_other_causes(tmp_path: Path) -> None:
    """What it gives back by itself, between 0.8% and 3% of a step, was dealt out, and then not told."""
    little, fused = (_job(tmp_path / one[0], one, ms=1.2, stands_ms=8.0).findings for one in (SINGLE, FUSED))
    assert little[0].code == fused[0].code == "host_stall" and len(little) == len(fused)
    assert little[0].ms == pytest.approx(fused[0].ms, rel=0.001)
