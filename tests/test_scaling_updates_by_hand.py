"""Updates of parameters that a loop of the user's own runs one at a time, on CPUs: which are such, and what they cost.

tests/data/normalised/others: a small network's loop clips gradients, and keeps averages of weights, by hand.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from scalescope import RunAnalysis
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.finding.finding import Finding, Remedy
from scalescope.scaling.findings.computing.unfused_optimizer import (
    CLIPPED,
    GIVEN_BACK,
    ROOTS_ANEW,
    ROOTS_IN_PLACE,
    RULES_ANEW,
    GivenBack,
)
from scalescope.scaling.rank.records.own_code.by_hand import updated_by_hand
from scalescope.scaling.trace.kernel_kinds import OPTIMISER
from scalescope.scaling.verdicts.reference import beside_reference, is_not_in_reference
from tests.gloo_traces import GlooJob, analysed
from tests.recorded import DATA, records_of

PARAMETERS = 20
#: Adam, as formulae have it; as torch's own loop writes it; momentum; averages of weights.
ADAM = ("mul", "mul", "add", "mul", "mul", "add", "div", "div", "sqrt", "add", "div", "sub", "copy_")
ADAM_IN_PLACE = ("mul_", "mul_", "add_", "mul_", "addcmul_", "sqrt", "add_", "addcdiv_")
MOMENTUM = ("mul", "add", "mul", "sub", "copy_")
AVERAGES_IN_PLACE = ("mul_", "add_")
CLIPPING = ("linalg_vector_norm", "item")


def _of(answer: RunAnalysis) -> list[Finding]:
    return [one for one in answer.findings if one.code == "updates_by_hand"]


def _job(
    folder: Path,
    operators: Sequence[str] = ADAM,
    *,
    ms: float = 20.0,
    times: int = PARAMETERS,
    ranks: Sequence[int] = (0, 1),
    where: str = "behind",
    between: str = "",
    adam_ms: float = 0.0,
) -> RunAnalysis:
    """Of two ranks that compute for 40 ms loops of such operators take so long, behind the backward pass or elsewhere.

    `between`: an operator, or a collective, behind each parameter's.
    """
    job = GlooJob(view_ns=None)
    for step in range(8):
        job.step(3 + step)
        if where == "begin":
            job.compute(0.1, "aten::randint")
            _loop(job, operators, ms, times, ranks, between)
        job.compute(20.0, "aten::linear", calls=10)
        if where == "forward":
            _loop(job, operators, ms, times, ranks, between)
        job.compute(19.0, "AddmmBackward0", calls=10)
        job.compute(1.0, "torch::autograd::AccumulateGrad", calls=PARAMETERS)
        job.all_reduce(2.0)
        if where == "batch":
            job.annotate(0, "enumerate(DataLoader)#__next__", job.now[0], job.now[0] + 50_000)
            job.annotate(1, "enumerate(DataLoader)#__next__", job.now[1], job.now[1] + 50_000)
            for rank in ranks:
                job.sleep(rank, 0.06)
        if where in ("behind", "batch"):
            _loop(job, operators, ms, times, ranks, between)
        begun = dict(job.now)
        if where == "step":
            _loop(job, operators, ms, times, ranks, between)
        if adam_ms:
            job.compute(adam_ms, "aten::addcdiv_", calls=2 * PARAMETERS)
        for rank, begin in begun.items():
            if where == "step" or adam_ms:
                name = "Optimizer.step#Adam.step" if adam_ms else "Optimizer.step#Shampoo.step"
                job.annotate(rank, name, begin - 1_000, job.now[rank] + 1_000)
        job.compute(2.0, "aten::argmax")
    return analysed(job.write(folder))


def _loop(job: GlooJob, operators: Sequence[str], ms: float, times: int, ranks: Sequence[int], between: str) -> None:
    for _ in range(times):
        for rank in ranks:
            for name in operators:
                job.compute(ms / times / len(operators), f"aten::{name}", rank)
        if between == "all_reduce":
            job.all_reduce(0.01)
        elif between:
            job.compute(0.01, between)


@pytest.mark.parametrize(
    ("operators", "share"), [(ADAM, ROOTS_ANEW), (ADAM_IN_PLACE, ROOTS_IN_PLACE), (MOMENTUM, RULES_ANEW)]
)
def test_an_update_by_hand_is_told_with_what_one_operator_gives_back(
    tmp_path: Path, operators: Sequence[str], share: GivenBack
) -> None:
    """Of 181.7 ms 30.4 went there, and *loading data costs 8.9 ms* was the first sentence."""
    answer = _job(tmp_path, operators)
    (first,) = _of(answer)
    assert answer.findings[0] is first and (first.rank, first.at_most, first.backed) == (None, False, "replay")
    calls = PARAMETERS * len(operators)
    whole = 20.0 + calls * 0.002
    assert first.ms == pytest.approx(share.middle * whole, rel=0.02)
    assert first.low_ms == pytest.approx(share.low * whole, rel=0.1)
    assert first.high_ms == pytest.approx(share.high * whole, rel=0.1)
    assert f"the job updates 20 parameters one at a time in {calls} operators" in because(first)
    assert "by no optimizer of torch's: 20.0 ms of a profiled step, most of it" in because(first)
    assert first.remedy is not None and "update all parameters at once" in cure_text(first.remedy)
    assert "fused=True" in cure_elsewhere(first.remedy) and "torch._foreach_mul_" in cure_elsewhere(first.remedy)
    assert "updating by hand costs" in run_verdict(answer).headline


@pytest.mark.parametrize(
    ("operators", "other"),
    [
        (AVERAGES_IN_PLACE, {}),  # the same on lists gave back little, and of momentum in place nothing
        (CLIPPING, {}),
        (("add_",), {}),
        (("mul", "add"), {"ms": 0.3}),  # 0.2 ms of 46
        (ADAM, {"ranks": (1,)}),  # work that one rank alone has
        (ADAM, {"times": 6}),  # for what is no parameter: figures, samples of a batch
        (MOMENTUM, {"times": 90}),
        (("mul", "div"), {"where": "batch"}),  # what makes a batch
        (("mul", "div"), {"where": "forward"}),
        (ADAM, {"where": "step"}),  # an optimizer of somebody's own, that says so
        (("mul", "div"), {"between": "aten::matmul"}),
        (("mul", "div"), {"between": "all_reduce"}),
    ],
)
def test_what_gives_little_back_or_updates_no_parameters_is_not_told(
    tmp_path: Path, operators: Sequence[str], other: dict[str, object]
) -> None:
    assert not _of(_job(tmp_path, operators, **other))  # type: ignore[arg-type]


def test_images_that_a_step_begins_with_are_no_parameters(tmp_path: Path) -> None:
    """Twelve images, each brightened, were *6.6 ms more optimiser*, and parameters that were updated one by one."""
    answer = _job(tmp_path, ("mul", "add", "clamp"), where="begin")
    assert not _of(answer) and all(row.kind != OPTIMISER for row in answer.kinds)
    behind = _job(tmp_path / "behind", ("mul", "add", "clamp"))
    (kind,) = (row for row in behind.kinds if row.kind == OPTIMISER)
    assert kind.calls == 3 * PARAMETERS


def test_a_loop_beside_torchs_own_optimizer_is_told_apart_from_it(tmp_path: Path) -> None:
    """*An unfused optimizer costs 31.2 ms*, with `fused=True` as its cure, was told of averages by a loop as well: that
    mends none of these, and brought 20.8 ms.
    """
    answer = _job(tmp_path, ("mul", "mul", "add", "copy_"), ms=10.0, adam_ms=12.0)
    (loop,), (adam,) = (_of(answer), [one for one in answer.findings if one.code == "unfused_optimizer"])
    assert adam.ms == pytest.approx(GIVEN_BACK * (12.0 + 40 * 0.002), rel=0.02)
    assert loop.ms == pytest.approx(RULES_ANEW.middle * (10.0 + 80 * 0.002), rel=0.02)
    assert because(adam).startswith("Adam takes 12.0 ms of a profiled step in 40 operators, most of it aten::")
    assert because(loop).startswith("the job updates 20 parameters one at a time in 80 operators")
    assert adam.remedy is not None and "let the optimizer be one operator" in cure_text(adam.remedy)
    assert loop.remedy is not None and loop.remedy.cure == "update_at_once"


def test_averages_beside_a_larger_optimizer_are_told_down_to_a_hundredth(tmp_path: Path) -> None:
    """Of a 303 ms step averages of 78 weights took 15 ms, of which two thirds came back, and were told beside nothing:
    they were less than 3% of it, as what is any job's default has to be.
    """
    answer = _job(tmp_path, ("mul", "mul", "add", "copy_"), ms=1.6, adam_ms=12.0)
    (loop,) = _of(answer)
    assert loop.fraction is not None and 0.01 < loop.fraction < 0.03
    assert answer.findings[0].code == "unfused_optimizer"
    assert not [one for one in _job(tmp_path / "little", (), adam_ms=1.2).findings if one.code == "unfused_optimizer"]


def test_gradients_that_a_loop_sets_to_zero_behind_the_batch_are_none_of_its_preparation(tmp_path: Path) -> None:
    """Of 83 ms 20 went there: *batch preparation costs at least 13.9 ms* was told beside the loop."""
    job = GlooJob(view_ns=None)
    for step in range(8):
        job.step(3 + step)
        for rank in (0, 1):
            begun = job.now[rank]
            job.sleep(rank, 0.1)
            job.annotate(rank, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begun, job.now[rank])
        _loop(job, ("zeros_like",), 20.0, PARAMETERS, (0, 1), "")
        begins = dict(job.now)
        job.compute(20.0, "aten::linear", calls=10)
        for rank, begin in begins.items():
            job.annotate(rank, "DistributedDataParallel.forward", begin - 1_000, job.now[rank])
        job.compute(19.0, "AddmmBackward0", calls=10)
        job.compute(1.0, "torch::autograd::AccumulateGrad", calls=PARAMETERS)
        job.all_reduce(2.0)
        _loop(job, ADAM, 20.0, PARAMETERS, (0, 1), "")
    codes = [one.code for one in analysed(job.write(tmp_path)).findings]
    assert codes[0] == "updates_by_hand" and "batch_preparation" not in codes


@pytest.mark.parametrize(
    "job", ["cpu_ddp_n2", "cpu_fsdp2_n2", "cpu_tiny_buckets_n2", "normalised/again", "recomputed/reentrant"]
)
def test_recorded_jobs_that_update_by_optimizers_of_torchs_have_no_such_loop(job: str) -> None:
    assert not any(updated_by_hand(record) for record in records_of(job).values())


def test_loops_of_a_recorded_job_are_found_where_they_make_tensors() -> None:
    assert (DATA / "normalised" / "others").is_dir()
    for record in records_of("normalised/others").values():
        found = updated_by_hand(record)
        assert found and {one.step for one in found} == set(record.steps)
        assert {(one.parameters, one.roots, one.anew) for one in found} == {(16, False, True)}


@pytest.mark.parametrize(("fraction", "untold"), [(0.033, True), (0.09, False)])
def test_what_a_reference_may_have_untold_is_not_said_to_be_none_of_it(fraction: float, untold: bool) -> None:
    """*There is no such cause in both* was told of a loop that the reference had as well: there it was 2.9%, and here
    3.3% of the step.
    """
    loop = Finding(
        code="updates_by_hand", ms=9.5, low_ms=6.6, high_ms=12.3, fraction=fraction, backed="replay",
        remedy=Remedy(cure="update_at_once"),
    )  # fmt: skip
    nothing = Finding(code="nothing", ms=None, low_ms=None, high_ms=None, fraction=None, backed="none")
    (beside,) = beside_reference([loop], [[nothing]])
    assert is_not_in_reference(beside) != untold and (beside.reference_ms is None) == untold
    (had,) = beside_reference([loop], [[replace(loop, ms=9.0)]])
    assert had.reference_ms == 9.0


def _clipped(folder: Path, *, squares: int, scales: int, more: Sequence[str] = ()) -> list[Finding]:
    """Of two ranks that compute for 40 ms gradients of 5 parameters are squared, summed up, and then scaled."""
    job = GlooJob(view_ns=None)
    for step in range(8):
        job.step(3 + step)
        job.compute(20.0, "aten::linear", calls=10)
        job.compute(20.0, "AddmmBackward0", calls=10)
        job.compute(1.0, "torch::autograd::AccumulateGrad", calls=5)
        job.all_reduce(2.0)
        for _ in range(squares):
            job.compute(1.0, "aten::pow")
            job.compute(0.4, "aten::sum")
            job.compute(0.002, "aten::item")
        for name in more:
            job.compute(0.5, name)
        job.compute(1.0 * scales, "aten::mul_", calls=scales)
        begun = dict(job.now)
        job.compute(1.0, "aten::_foreach_add_")
        for rank, begin in begun.items():
            job.annotate(rank, "Optimizer.step#SGD.step", begin - 1_000, job.now[rank] + 1_000)
    return _of(analysed(job.write(folder)))


def test_gradients_that_few_parameters_have_are_clipped_by_hand(tmp_path: Path) -> None:
    """Of seven parameters, 10 ms a step of 200, it was not named: a loop was told from eight on.

    A log of norms before what scales accumulated gradients runs the same: it was told as *clips the gradients*.
    """
    (one,) = _clipped(tmp_path, squares=5, scales=5)
    does = "the job squares, sums up and scales the gradients of 5 parameters one at a time in 10 operators"
    assert because(one).startswith(f"{does}, as clipping does: 10.0 ms")
    assert one.remedy is not None
    assert cure_text(one.remedy) == "let torch clip the gradients, if that is clipping"
    assert cure_elsewhere(one.remedy).startswith("where that is clipping, torch.nn.utils.clip_grad_norm_")
    assert one.ms == pytest.approx(CLIPPED.middle * 10.0, rel=0.15)
    assert one.low_ms is not None and 0 < one.low_ms <= 1.2 * CLIPPED.low * 10.0


@pytest.mark.parametrize(
    ("squares", "scales", "more"), [(5, 0, ()), (0, 5, ()), (4, 5, ()), (5, 10, ()), (5, 5, ("aten::sub",) * 5)]
)
def test_what_does_not_square_and_scale_each_gradient_once_is_no_clipping(
    squares: int, scales: int, more: Sequence[str], tmp_path: Path
) -> None:
    assert not _clipped(tmp_path, squares=squares, scales=scales, more=more)
