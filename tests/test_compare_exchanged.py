"""A loop of operators in place of one for all tensors is told as that, and not as less of what the one was."""

from pathlib import Path

import msgspec

from scalescope.report.compare.exchanged import exchanged
from scalescope.report.compare.sentences import verdict_sentences
from scalescope.report.compare.sure import sure_sentences
from scalescope.scaling.compare.answer import Comparison, CountedWork, KernelChange, PartChange
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.trace.kernel_kinds import COPIES, ELEMENTWISE, NORMALISATION, OPTIMISER
from tests.gloo_traces import GlooJob, in_steps


def _at_once(job: GlooJob) -> None:
    job.compute(60.0)
    job.compute(1.5, "aten::_foreach_lerp_")
    job.all_reduce(1.0)


def _one_by_one(job: GlooJob) -> None:
    job.compute(60.0)
    job.compute(3.0, "aten::mul", calls=40)
    job.compute(1.0, "aten::add", calls=20)
    job.all_reduce(1.0)


def test_a_loop_in_place_of_one_operator_for_all_tensors_is_told_as_that(tmp_path: Path) -> None:
    """Weights averaged by a loop of 270 operators were told as *a step has 1.46 ms less optimiser*, and nothing else:
    as a gain, and the average as an optimizer.
    """
    once = in_steps(tmp_path / "once", range(1, 6), _at_once)
    loop = in_steps(tmp_path / "loop", range(1, 6), _one_by_one)
    for sides, more in (((once, loop), "59 more"), ((loop, once), "59 fewer")):
        told = " ".join(verdict_sentences(compare_paths([sides[0]], [sides[1]])))
        assert "optimiser" not in told
        assert f"a step runs {more} operators than in “{sides[0].name}”: " in told, told
    assert "aten::mul (40) and aten::add (20) in place of aten::_foreach_lerp_ (1)" in " ".join(
        verdict_sentences(compare_paths([once], [loop]))
    )


def _kernel(name: str, kind: str, before: float, after: float) -> KernelChange:
    return KernelChange(
        operator=name, kind=kind, matched_by="only_other" if not before else "only_baseline",
        baseline_name=name if before else None, other_name=name if after else None,
        baseline_calls=before, other_calls=after, baseline_us=1_460.0 if before else 0.0,
        other_us=4_200.0 if after else 0.0, ratio=None, share=None,
    )  # fmt: skip


def _part(name: str, change: float, off: float, calls: tuple[int, int]) -> PartChange:
    work = CountedWork(baseline_calls=calls[0], other_calls=calls[1])
    return PartChange(name=name, change_ms=change, low_ms=change - off, high_ms=change + off, baseline_ms=20.0,
                      other_ms=20.0 + change, work=work)  # fmt: skip


def test_a_kind_of_which_a_step_has_less_is_no_gain_where_another_one_does_its_work() -> None:
    """One kind's change was beyond noise and told, and the other's, which noise hid, was not."""
    kernels = [
        _kernel("multi_tensor_apply_kernel", OPTIMISER, 1.0, 0.0),
        _kernel("vectorized_elementwise_kernel", ELEMENTWISE, 0.0, 270.0),
    ]
    parts = [_part(OPTIMISER, -1.46, 0.9, (1, 0)), _part(ELEMENTWISE, 0.3, 10.0, (1135, 1405))]
    answer = Comparison(baseline="good", other="loop", verdict="same", change_ms=-2.0, low_ms=-30.0, high_ms=30.0,
                        baseline_ms=132.0, other_ms=130.0, parts=parts, kernels=kernels)  # fmt: skip
    found = exchanged(answer)
    assert found is not None and found.calls == 269 and found.kinds == {OPTIMISER}
    (told,) = sure_sentences(answer, "good", "loop")
    assert told == (
        "In loop a step runs 269 more kernels than in good: vectorized_elementwise_kernel (270) in place of "
        "multi_tensor_apply_kernel (1)"
    )
    back = [
        _kernel("multi_tensor_apply_kernel", OPTIMISER, 0.0, 1.0),
        _kernel("vectorized_elementwise_kernel", ELEMENTWISE, 270.0, 0.0),
    ]
    parts_back = [_part(OPTIMISER, 1.46, 0.9, (0, 1)), _part(ELEMENTWISE, -0.3, 10.0, (1405, 1135))]
    reverse = msgspec.structs.replace(answer, change_ms=2.0, parts=parts_back, kernels=back)
    (told,) = sure_sentences(reverse, "loop", "good")
    assert "269 fewer kernels" in told and "more optimiser" not in told, "it is not told of the reverse either"
    alone = Comparison(baseline="good", other="less", verdict="same", change_ms=-2.0, low_ms=-30.0, high_ms=30.0,
                       baseline_ms=132.0, other_ms=130.0, parts=parts[:1], kernels=kernels[:1])  # fmt: skip
    assert exchanged(alone) is None and "1.46 ms less optimiser" in sure_sentences(alone, "good", "less")[0]


def test_more_kernels_beside_a_library_s_other_choice_are_in_place_of_nothing() -> None:
    """100 kernels of a moving average came *in place of* two of a batch norm, which cuDNN chose anew, and of a fill."""
    added = _kernel("vectorized_elementwise_kernel", ELEMENTWISE, 0.0, 100.0)
    chosen = [_kernel("elemt_kernel", NORMALISATION, 2.0, 0.0), _kernel("reduce_kernel", NORMALISATION, 0.0, 2.0)]
    filled = msgspec.structs.replace(_kernel("FillFunctor", COPIES, 1.0, 0.0), baseline_us=2.0)
    parts = [_part(ELEMENTWISE, 0.3, 10.0, (200, 300)), _part(NORMALISATION, 0.1, 1.0, (12, 12)),
             _part(COPIES, 0.0, 1.0, (5, 4))]  # fmt: skip
    answer = Comparison(baseline="good", other="ema", verdict="same", change_ms=1.0, low_ms=-30.0, high_ms=30.0,
                        baseline_ms=12.4, other_ms=13.4, parts=parts, kernels=[added, *chosen, filled])  # fmt: skip
    assert exchanged(answer) is None
