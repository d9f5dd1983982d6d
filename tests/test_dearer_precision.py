"""A rank that computes in a dearer precision than the others, or all in double: told with its cost and its cure.

tests/data/precisions: a small network on two ranks, by tests/precision_job.py.
"""

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from scalescope import RunAnalysis
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze_alone
from scalescope.scaling.compare.answer import Comparison, CountedWork, PartChange
from scalescope.scaling.compare.compare import compare_paths, has_other_kernels
from scalescope.scaling.compare.measurement import Measurement
from scalescope.scaling.finding.figures import DOUBLE_PRECISION
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.computing.wider_numbers import (
    CONVOLVED,
    CONVOLVED_HIGH,
    CONVOLVED_LOW,
    GIVEN_BACK,
    GIVEN_BACK_HIGH,
    GIVEN_BACK_LOW,
)
from scalescope.scaling.trace.communication_args import precision_of
from scalescope.scaling.trace.kernel_kinds import CONVOLUTION
from scalescope.scaling.trace.kernel_names import precision_of_product
from tests.gloo_traces import GlooJob, analysed
from tests.test_known_windows import first

RECORDED = Path(__file__).parent / "data" / "precisions"


def _of(answer: RunAnalysis) -> list[Finding]:
    return [one for one in answer.findings if one.remedy is not None and one.remedy.cure == "same_precision"]


@pytest.mark.parametrize(
    ("case", "own", "theirs"),
    [("double", "double precision (float64)", "float32"), ("narrow", "float32", "bfloat16")],
)
def test_a_rank_that_computes_dearer_is_told_as_that_with_its_conversions(case: str, own: str, theirs: str) -> None:
    """A layer in double precision, of 17 to 34 ms a step, was told as `aten::to` of 9.4 ms, which others do not run."""
    answer = analysed(RECORDED / case)
    (one,) = _of(answer)
    assert answer.findings[0] is one and (one.code, one.rank) == ("slower_compute", 1)
    assert f"it computes in {own} what the others do in {theirs}" in run_verdict(answer).headline.replace("It", "it")
    assert ("and conversions" in because(one)) == (case == "double") and "AddmmBackward0" in because(one)
    assert all((other.code, other.rank) != ("own_work", 1) for other in answer.findings)
    assert one.remedy is not None and "precision that the others do" in cure_text(one.remedy)
    assert "no .double()" in cure_elsewhere(one.remedy)


def test_conversions_of_a_network_name_another_precision_where_no_types_are_recorded(tmp_path: Path) -> None:
    """They were told as any work of a rank's own: *logging, checks or validation under `if rank == …`*."""
    for trace in (RECORDED / "double").iterdir():
        told = gzip.decompress(trace.read_bytes()).replace(b'"Input type"', b'"Unread"')
        (tmp_path / trace.name).write_bytes(gzip.compress(told))
    one = next(one for one in analysed(tmp_path).findings if one.code == "own_work")
    assert one.rank == 1 and "converts a part of the network to another precision" in because(one)
    assert one.remedy is not None and one.remedy.cure == "same_precision"


@pytest.mark.parametrize("case", ["alike", "all_double", "checked"])
def test_ranks_that_compute_alike_or_have_figures_of_their_own_are_not_told(case: str) -> None:
    assert not _of(analysed(RECORDED / case))


def test_what_a_rank_alone_computes_in_double_is_work_of_its_own() -> None:
    answer = analysed(RECORDED / "checked")
    assert any((one.code, one.rank) == ("own_work", 0) for one in answer.findings)


def test_all_ranks_in_double_precision_lead_with_what_float32_gives_back() -> None:
    """Of a step of 128.9 ms, of which float32 gave 25 back, *14.4 ms are transfer and waits of ranks for each other,
    and no single cause of it is found* came first, no cause listed it, and of traces alone no word said it.
    """
    answer = analysed(RECORDED / "all_double")
    one = answer.findings[0]
    assert (one.code, one.rank, one.at_most, one.backed) == ("double_precision", None, False, "replay")
    row = next(row for row in one.evidence if row.name == DOUBLE_PRECISION)
    assert row.ms is not None and one.ms is not None and one.low_ms is not None and one.high_ms is not None
    assert 0 < one.low_ms < one.ms < min(row.ms, one.high_ms)
    assert one.ms == pytest.approx(GIVEN_BACK * row.ms, rel=0.2)
    assert "double precision costs" in run_verdict(answer).headline
    assert "all ranks compute in double precision (float64)" in because(one) and "AddmmBackward0" in because(one)
    assert one.remedy is not None and one.remedy.cure == "narrower_numbers" and "fp32" in cure_text(one.remedy)
    assert all(other.code != "nothing" for other in answer.findings)


@pytest.mark.parametrize("case", ["alike", "double", "narrow", "checked"])
def test_what_is_of_one_rank_is_no_double_precision_of_all(case: str) -> None:
    assert all(one.code != "double_precision" for one in analysed(RECORDED / case).findings)


def _job(
    folder: Path, name: str, *, loads: bool = False, uneven: float = 1.0, steps: tuple[int, ...] = ()
) -> RunAnalysis:
    """Return what is told of steps of which 20 ms are in double precision, rank 1's times `uneven`; `loads`: and 30
    in the loader; `steps`: in these alone.
    """

    job = GlooJob()
    for number in range(8):
        job.step(number)
        if loads:
            begun = dict(job.now)
            job.compute(30.0, name, elements=1024, dtype="double")
            for rank in job.now:
                what = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
                job.annotate(rank, what, begun[rank] - 1_000, job.now[rank] - 1_000)
        dtype = "double" if not steps or number in steps else "float"
        for rank, times in ((0, 1.0), (1, uneven)):
            job.compute(20.0 * times, name, rank=rank, elements=1024, dtype=dtype)
        job.compute(60.0, elements=1024)
        job.all_reduce(1.0)
    return analysed(job.write(folder))


def _all_double(answer: RunAnalysis) -> list[Finding]:
    return [one for one in answer.findings if one.code == "double_precision"]


@pytest.mark.parametrize(
    ("name", "low", "middle", "high"),
    [
        ("aten::addmm", GIVEN_BACK_LOW, GIVEN_BACK, GIVEN_BACK_HIGH),
        ("aten::conv2d", CONVOLVED_LOW, CONVOLVED, CONVOLVED_HIGH),
    ],
)
def test_of_double_precision_what_float32_gave_back_elsewhere_is_told(
    tmp_path: Path, name: str, low: float, middle: float, high: float
) -> None:
    """Of convolutions 0.8 was told to come back, in one figure: of some shapes it was 0.14, and of others 0.92."""
    (one,) = _all_double(_job(tmp_path, name))
    assert (one.ms, one.low_ms, one.high_ms) == pytest.approx((20 * middle, 20 * low, 20 * high), rel=0.1)


def test_what_few_steps_or_a_rank_alone_compute_in_double_is_not_of_all(tmp_path: Path) -> None:
    assert not _all_double(_job(tmp_path / "some", "aten::addmm", steps=(1, 4)))
    assert not _all_double(_job(tmp_path / "uneven", "aten::addmm", uneven=3.0))


def test_what_a_loader_computes_in_double_is_loading(tmp_path: Path) -> None:
    """50 ms were told to take double precision, of which 30 are loading that is told by itself."""
    answer = _job(tmp_path, "aten::addmm", loads=True)
    (one,) = _all_double(answer)
    assert answer.findings[0].code == "data_loading" and one.evidence[0].ms == pytest.approx(20.0, rel=0.05)
    assert one.ms == pytest.approx(20 * GIVEN_BACK, rel=0.1)


def test_double_precision_is_named_where_one_side_of_a_comparison_alone_has_it() -> None:
    """*Convolution +15.2 ms* of 26 was all that a comparison said, as many kernels of which were longer."""
    told = compare_paths([RECORDED / "alike"], [RECORDED / "all_double"], analysis_of=analyze_alone)
    assert [(one.side, one.finding.code) for one in told.alone] == [("other", "double_precision")]


@pytest.mark.parametrize(("activity", "calls", "asked"), [("cpu", 4, True), ("gpu", 4, False), ("gpu", 5, True)])
def test_as_many_kernels_that_are_longer_are_asked_why_where_hosts_compute(
    activity: str, calls: int, asked: bool
) -> None:
    """Devices' traces are large, and tell this cause by the kernels' names."""
    work = CountedWork(baseline_calls=4, other_calls=calls)
    part = PartChange(
        name=CONVOLUTION, change_ms=15.2, low_ms=4.3, high_ms=24.3, baseline_ms=12.0, other_ms=27.2, work=work
    )
    answer = Comparison(baseline="a", other="b", kind="run", verdict="slower", parts=[part])
    side = SimpleNamespace(first=SimpleNamespace(identity=SimpleNamespace(activity=activity)))
    assert has_other_kernels(answer, cast(Measurement, side)) is asked


def test_scalars_have_no_precision_and_the_dearest_tensor_counts() -> None:
    """Python's numbers are in double precision, whatever an operator's tensors are in."""
    assert precision_of(b"[[16], [], [16]]", b'["float", "double", "float"]') == 3
    assert precision_of(b"[[16], [16]]", b'["double", "float"]') == 4
    assert precision_of(b"[[], []]", b'["double", "Scalar"]') == precision_of(b"[[2]]", b'["long int"]') == 0
    assert precision_of(b"[[2]]", b"[") == 0


def test_kernels_that_multiply_name_their_precision() -> None:
    assert precision_of_product("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128") == "bfloat16"
    assert precision_of_product("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc") == "float32"
    assert precision_of_product("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1") == "float64"
    assert precision_of_product("ampere_fp16_s16816gemm_fp16_128x64") == "float16"
    assert precision_of_product("gemm_kernel") is None


def test_other_kernels_of_another_precision_are_told_as_that() -> None:
    """A layer in fp32 beside bf16 ran *other kernels, as in another precision or layout*."""
    answer, sentence = first("fp32_layer_gan_rank1_n2", 23.68)
    assert _of(answer) == answer.findings[:1]
    assert "for the same operators, in float32 where theirs are in bfloat16" in sentence
