"""Longer steps and ranks that compute longer: recorded shapes tell larger inputs from slower operators."""

from pathlib import Path

import pytest

from scalescope.report.text.cures.words import cure_text
from scalescope.report.text.findings import because, line, todo
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import LateInSteps, StepTimes
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.derived import advice_of, keep
from tests.gloo_traces import GlooJob, analysed

STEPS, LONG = range(22, 32), (23, 25, 26, 27, 30)
#: How late rank 0 comes by the job's own rows of 18 steps, ms.
LATE = LateInSteps(rank=0, ms=29.8, low_ms=14.6, high_ms=45.1, mean_step_ms=184.9, steps=18, delays_known=True,
                   saved_ms=15.9, saved_low_ms=0.6, saved_high_ms=31.2)  # fmt: skip


def uneven(
    folder: Path,
    times: float | None,
    longer_ms: float = 87.0,
    ranks: tuple[int, ...] = (0,),
    steps: tuple[int, ...] = LONG,
) -> RunAnalysis:
    """Return what is told of ten steps, in five of which rank 0's products take longer, or all of `ranks`; `times`: on
    so many times the elements; None: shapes are not recorded.
    """
    job = GlooJob()
    for number in STEPS:
        job.step(number)
        job.compute(30.0, "aten::convolution", calls=3, elements=0 if times is None else 460_000)
        for rank in (0, 1):
            long = rank in ranks and number in steps
            elements = 0 if times is None else round(70_000 * (times if long else 1.0))
            job.compute(30.0 + long * longer_ms, "aten::addmm", rank, calls=10, elements=elements)
        job.all_reduce(3.0)
        job.compute(5.0, "aten::lerp_", calls=5)
    return analysed(job.write(folder))


def of_rank_0(answer: RunAnalysis) -> Finding:
    (found,) = (one for one in answer.findings if "5 of 10 profiled steps" in because(one))
    return found


def by_all_steps(answer: RunAnalysis) -> RunAnalysis:
    """Return the answer with what the job's own rows say of the late rank."""
    answer.step_times = StepTimes(
        measured_step_ms=152.1, measured_step_p95_ms=260.0, measured_mean_ms=LATE.mean_step_ms, measured_steps=18,
        window_step_ms=None, profiling_overhead_ms=None, profiling_overhead_fraction=None, late=LATE,
    )  # fmt: skip
    keep(answer, answer.findings)
    return answer


def test_longer_steps_of_larger_inputs_are_more_work_with_the_lengths_to_even_out(tmp_path: Path) -> None:
    """Of captions padded to the batch's longest *rank 0 computes for 87.4 ms longer, by as many operators in 5 of 10
    steps: slower ones, or on more data* was told, though shapes tell 4.8 times the elements, and that more windows be
    profiled.
    """
    found = of_rank_0(uneven(tmp_path, 4.8))
    assert (found.code, found.rank) == ("more_work", 0)
    assert because(found).endswith(
        "it computes for 87.0 ms longer, on larger inputs: 4.80× the elements in aten::addmm"
    )
    assert found.remedy is not None and found.remedy.cure == "even_out_lengths"


def test_larger_inputs_of_all_ranks_in_the_same_steps_are_no_load_to_even_out(tmp_path: Path) -> None:
    """Ranks whose batches are larger together wait for nobody: that may be padding, or what the job needs."""
    answer = uneven(tmp_path, 4.8, ranks=(0, 1), steps=LONG[:4])
    (found,) = (one for one in answer.findings if one.code == "more_work")
    assert (found.rank, found.at_most) == (None, True)
    assert "the ranks compute for 87.0 ms longer, on larger inputs: 4.80× the elements in" in because(found)
    assert found.remedy is not None and found.remedy.cure == "pad_less"


@pytest.mark.parametrize(
    ("times", "told"),
    [(None, "slower ones, or on more data"), (1.0, "on inputs of the same size: they are slower")],
)
def test_longer_steps_of_no_larger_inputs_are_slower_ones_where_shapes_tell(
    times: float | None, told: str, tmp_path: Path
) -> None:
    found = of_rank_0(uneven(tmp_path, times))
    assert found.code == "unsteady" and because(found).endswith(told), because(found)
    assert found.remedy is not None and found.remedy.cure == "look_at_device"


def test_inputs_that_are_hardly_larger_do_not_explain_steps_of_twice_the_compute(tmp_path: Path) -> None:
    found = of_rank_0(uneven(tmp_path, 1.1))
    assert found.code == "unsteady" and because(found).endswith("slower ones, or on more data")


@pytest.mark.parametrize(("times", "code"), [(4.8, "more_work"), (None, "unsteady")])
def test_all_steps_size_what_the_window_shows_and_take_its_reason_from_nobody(
    times: float | None, code: str, tmp_path: Path
) -> None:
    """*By all 18 steps it comes so much later than the others, and no window shows why* was told, of 29.8 ms (14.6 to
    45.1), though the traces alone told why and 43.7 ms (20.7 to 66.7); runs without it were 50 ms a step shorter.
    """
    alone = of_rank_0(uneven(tmp_path, times))
    assert alone.low_ms is not None and alone.high_ms is not None
    answer = by_all_steps(uneven(tmp_path, times))
    found = of_rank_0(answer)
    assert (found.code, found.rank, found.ms) == (code, 0, LATE.ms)
    assert (found.low_ms, found.high_ms) == (min(LATE.low_ms, alone.low_ms), max(LATE.high_ms, alone.high_ms))
    text = run_verdict(answer).text
    assert "no window shows why" not in text and "more windows" not in text, text
    assert because(found).endswith("and all 18 steps tell what it costs"), because(found)
    assert "16.1% of the 184.9 ms mean step" in line(found, answer)
    keep(answer, answer.findings)
    assert of_rank_0(answer) == found, "told again it is the same"


def test_what_only_tells_more_saves_nothing(tmp_path: Path) -> None:
    """*Profile in more windows, of which one may show why: 29.8 ms a step* was what may help most."""
    answer = by_all_steps(uneven(tmp_path, 1.0, longer_ms=0.0))
    found = next(one for one in answer.findings if one.rank == 0)
    assert found.remedy is not None and found.remedy.cure == "profile_longer" and found.ms == LATE.ms
    assert todo(found, answer) == cure_text(found.remedy)
    assert [(one.gain_ms, one.high_ms) for one in advice_of([found])] == [(0.0, 0.0)]


def towers(folder: Path, images: float, slower: float = 1.0) -> RunAnalysis:
    """Return what is told of an image tower beside a text tower, of which rank 1 has images of so many times the
    pixels, or a core on which everything takes so many times as long.
    """
    job = GlooJob()
    for number in range(22, 30):
        job.step(number)
        for rank in (0, 1):
            larger, core = (images, slower) if rank == 1 else (1.0, 1.0)
            for name, ms in (("aten::convolution", 12.0), ("aten::gelu", 6.0), ("ConvolutionBackward0", 24.0)):
                if name.endswith("0"):
                    begun = job.now[rank]
                    job.compute(
                        ms * larger * core, "aten::convolution_backward", rank, elements=round(500_000 * larger)
                    )
                    job.operator(name, rank, begun)
                else:
                    elements = round(480_000 * larger) if name.endswith("convolution") else 0
                    job.compute(ms * larger * core, name, rank, elements=elements)
            job.compute(30.0 * core, "aten::addmm", rank, calls=10, elements=170_000)
            job.compute(10.0 * core, "aten::layer_norm", rank, calls=5)
        job.all_reduce(3.0)
        job.compute(4.0, "aten::lerp_", calls=5)
    return analysed(job.write(folder))


def test_larger_images_of_one_rank_are_more_work_though_its_captions_are_as_long(tmp_path: Path) -> None:
    """Of 1.56 times the pixels on rank 1 *the same operators take 1.20× what they take on the others, whatever their
    kind* was told, with top and taskset for advice.
    """
    answer = towers(tmp_path, 1.56)
    found = answer.findings[0]
    assert (found.code, found.rank) == ("more_work", 1)
    told = "it works on larger inputs, in the same operators: 1.56× the elements in ConvolutionBackward0 and "
    assert because(found) == f"{told}aten::convolution"
    assert found.remedy is not None and found.remedy.cure == "even_out"


def test_a_slower_core_is_none_of_larger_inputs(tmp_path: Path) -> None:
    answer = towers(tmp_path, 1.0, 1.3)
    found = answer.findings[0]
    assert (found.code, found.rank) == ("slower_compute", 1)
    assert because(found).startswith("the same operators take 1.30× what they take on the others")


def test_inputs_that_are_hardly_larger_explain_no_core_that_is_slower_for_everything(tmp_path: Path) -> None:
    found = towers(tmp_path, 1.05, 1.4).findings[0]
    assert (found.code, found.rank) == ("slower_compute", 1)
