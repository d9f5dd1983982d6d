"""A rank that computes in a dearer precision than the others: told as that, with all that it costs, and its cure.

tests/data/precisions: a small network on two ranks, by tests/precision_job.py.
"""

import gzip
from pathlib import Path

import pytest

from scalescope import RunAnalysis
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.trace.communication_args import precision_of
from scalescope.scaling.trace.kernel_names import precision_of_product
from tests.gloo_traces import analysed
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


def test_all_ranks_in_double_precision_are_told_what_their_compute_is() -> None:
    answer = analysed(RECORDED / "all_double")
    told = next(one for one in answer.findings if one.code == "nothing")
    assert "it computes in double precision" in because(told) and "in float32 about" in because(told)
    assert told.remedy is not None and told.remedy.cure == "narrower_numbers"
    assert "it computes in double precision (in float32 about" in run_verdict(answer).headline


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
