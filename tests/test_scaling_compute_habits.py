"""What a step's compute does the long way, by its kernels' names, told where nothing around the compute is wrong."""

from pathlib import Path

import msgspec
import pytest

from scalescope import analyze
from scalescope.hardware.peaks import find_peak
from scalescope.report.advice.first import best_advice
from scalescope.report.text.findings import because, first_sentence
from scalescope.scaling.finding.figures import (
    BESIDES,
    DOUBLE_PRECISION,
    FULL_PRECISION,
    LAYOUT_CONVERSIONS,
    SORTED_SCATTERS,
    UNALIGNED_PRODUCTS,
    UNFUSED,
    UNFUSED_OPTIMISER,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.order import are_little_at_most
from scalescope.scaling.findings.computing.habits import given_back_ms, habits
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.shares import mean_step_ms
from tests.host_traces import HostTrace, backward, forward
from tests.report_samples import run_answer

SIMT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(cutlass_80_simt_sgemm_128x256_8x4_nt_align1)"
FFMA = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel"
    "__5x_cublas"
)
TF32 = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x256_16x3_nt_align4>(cutlass_80_tensorop_s1688gemm)"
BF16 = "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"
UNALIGNED = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)"
DGEMM = "sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16_cublas"
NHWC = "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true>(params)"
FUSED_ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4>, double>"
)
FOREACH = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "TensorListMetadata<3>, at::native::(anonymous namespace)::PointwiseOpScalarListFunctor<float, 3, 3, 0>>"
)
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>"
ADD_DOUBLE = (
    "void at::native::vectorized_elementwise_kernel<2, at::native::CUDAFunctor_add<double>, std::array<char*, 3ul>>"
)
SCATTER = (
    "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_internal_kernel"
    "<true, float, long>>"
)
GRADIENTS = "void at::native::(anonymous namespace)::compute_grad_weight<float, long>(long const*, float const*)"


def told(**ms: float) -> dict[str, float]:
    """The habits of kernels by their names above, each with so many ms a step: the figure and its share."""
    ns = {globals()[name]: 1e6 * value for name, value in ms.items()}
    return {row.name: row.share or 0.0 for row in habits(ns, dict.fromkeys(ns, 1.0))}


def test_products_in_fp32_that_no_matrix_unit_runs_are_told_by_their_names() -> None:
    assert told(SIMT=30, FFMA=40, ADD=30) == {FULL_PRECISION: 0.7}
    assert told(TF32=70, ADD=30) == {} and told(BF16=70, ADD=30) == {}
    assert told(SIMT=10, BF16=60, ADD=30) == {}  # a few of them are a small layer's


def test_what_else_names_tell() -> None:
    assert told(BF16=90, NHWC=10) == {LAYOUT_CONVERSIONS: 0.1}
    assert told(BF16=70, UNALIGNED=30) == {UNALIGNED_PRODUCTS: 0.3}
    assert told(BF16=80, FOREACH=20) == {UNFUSED_OPTIMISER: 0.2}
    assert told(BF16=80, GRADIENTS=20) == {SORTED_SCATTERS: 0.2}
    assert told(BF16=80, DGEMM=20) == {DOUBLE_PRECISION: 0.2}
    assert told(BF16=80, ADD_DOUBLE=20) == {DOUBLE_PRECISION: 0.2}
    assert told(BF16=50, ADD=50) == {UNFUSED: 0.5}


def test_what_is_no_habit() -> None:
    assert told(FUSED_ADAM=90, BF16=10) == {}  # its scalars are doubles, and it is one kernel
    assert told(SCATTER=60, BF16=40) == {}  # nothing fuses with what goes by positions
    compiled = {"triton_poi_fused_add_0": 1e6, ADD: 9e6}
    assert not list(habits(compiled, dict.fromkeys(compiled, 1.0)))


@pytest.mark.parametrize("annotation", ["Optimizer.step#AdamW.step", "Optimizer.step#Shampoo.step"])
def test_an_optimizer_of_single_operations_is_told_by_when_they_are_launched(tmp_path: Path, annotation: str) -> None:
    """Their kernels' names are any network's, where lists have few tensors. One parameter after another is a cause of
    its own (tests/test_scaling_device_long_way.py). Whether another optimizer has a fused form nobody knows.
    """

    def step(trace: HostTrace, _: int) -> None:
        forward(trace, 60.0)
        backward(trace, 60.0)
        trace.idle(300.0)
        with trace.inside("user_annotation", annotation):
            for _ in range(80):
                trace.kernel("aten::_foreach_mul_", 20.0, ADD)

    HostTrace().steps(5, step).write(tmp_path)
    answer = analyze(tmp_path, jobs=1)
    (told,) = (one for one in answer.findings if one.code == "nothing")
    rows = {row.name: row for row in told.evidence}
    if "Adam" not in annotation:
        assert UNFUSED_OPTIMISER not in rows
        return
    row = rows[UNFUSED_OPTIMISER]
    assert row.ms == pytest.approx(1.6, rel=0.01) and row.calls == pytest.approx(80)
    assert row.value == pytest.approx(0.8, rel=0.01) and UNFUSED not in rows
    assert "its optimizer is a kernel an operation (fused=True is one)" in because(told)


def test_what_a_fused_optimizer_gives_back_stands_before_bounds_that_weigh_less() -> None:
    row = EvidenceRow(kind="figure", name=UNFUSED_OPTIMISER, ms=10.0, share=0.2, value=5.0)
    unknown = EvidenceRow(kind="figure", name=UNFUSED_OPTIMISER, ms=10.0, share=0.2)
    assert are_little_at_most([compute(row), at_most(4.9)], 100.0)
    assert not are_little_at_most([compute(row), at_most(5.1)], 100.0)
    assert not are_little_at_most([compute(unknown), at_most(4.9)], 100.0)


def compute(*rows: EvidenceRow) -> Finding:
    kinds = EvidenceRow(kind="activity", name="convolution", ms=20.0, share=0.9)
    return Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="replay", evidence=(kinds, *rows),
                   remedy=Remedy(cure="channels_last"))  # fmt: skip


def at_most(ms: float) -> Finding:
    return Finding(code="copies", ms=ms, low_ms=ms, high_ms=ms, at_most=True, fraction=ms / 100, backed="replay",
                   remedy=Remedy(cure="copy_ahead"))  # fmt: skip


def test_the_costliest_habits_are_said_and_what_any_job_has_that_is_not_compiled_last() -> None:
    layouts = EvidenceRow(kind="figure", name=LAYOUT_CONVERSIONS, ms=4.8, share=0.1)
    unfused = EvidenceRow(kind="figure", name=UNFUSED, ms=20.0, share=0.5)
    text = because(compute(unfused, layouts))
    assert text.index("4.8 ms a step it converts layouts") < text.index("20.0 ms a step it runs element by element")


def test_a_bound_of_a_hundredth_or_two_stands_behind_what_the_compute_is() -> None:
    """ResNet-50 in NCHW, 44 ms a step, was told *exposed copies cost at most 1.1 ms* first."""
    assert are_little_at_most([at_most(2.6)], 100.0) and are_little_at_most([], 100.0)
    assert not are_little_at_most([at_most(3.5)], 100.0)
    assert not are_little_at_most([msgspec.structs.replace(at_most(2.6), at_most=False)], 100.0)
    assert not are_little_at_most([msgspec.structs.replace(at_most(2.6), rank=1)], 100.0)
    run = run_answer("r", 1)
    between = msgspec.structs.replace(at_most(6.0), code="host_bound")
    noise = msgspec.structs.replace(at_most(6.0), code="slower_compute", rank=1, low_ms=0.0, at_most=False)
    for found in ([between], [between, noise]):  # of a clean step on CPUs *launching costs at most 5.2 ms* came first
        assert are_little_at_most(found, 100.0, on_cpus=True) and not are_little_at_most(found, 100.0)
    assert not are_little_at_most([msgspec.structs.replace(between, ms=9.0, low_ms=9.0)], 100.0, on_cpus=True)
    for more in (msgspec.structs.replace(noise, low_ms=4.0), msgspec.structs.replace(noise, ms=12.0)):
        assert not are_little_at_most([more], 100.0, on_cpus=True), "nothing is wrong, would be said above it"
    keep(run, [compute(), at_most(0.02 * mean_step_ms(run, "window"))])
    assert [one.code for one in run.findings] == ["nothing", "copies"]
    assert first_sentence(run.findings, 100.0, 1).startswith("nothing around the compute is wrong")
    advice = best_advice(run, "").text
    assert advice.startswith("compute in the layout") and "beyond that, take copies out of the step" in advice


def test_what_costs_more_stands_alone() -> None:
    run = run_answer("r", 1)
    keep(run, [compute(), at_most(0.5 * mean_step_ms(run, "window"))])
    assert [one.code for one in run.findings] == ["copies"]


def test_what_computes_in_double_precision_comes_before_bounds_that_weigh_less() -> None:
    """Of 10.1 ms of kernels in fp64 in a step of 13.9, copies of at most 0.51 ms were told, and fp64 was not."""
    double = EvidenceRow(kind="figure", name=DOUBLE_PRECISION, ms=80.0, value=74.6, share=0.85)
    assert are_little_at_most([compute(double), at_most(9.0)], 100.0)
    assert not are_little_at_most([compute(double), at_most(11.0)], 100.0), "a tenth of the step is to be looked at"
    assert not are_little_at_most([compute(msgspec.structs.replace(double, ms=7.0)), at_most(3.6)], 100.0)
    layouts = msgspec.structs.replace(double, name=LAYOUT_CONVERSIONS, value=None)
    assert not are_little_at_most([compute(layouts), at_most(3.6)], 100.0)
    said = because(compute(double))
    assert "for 80.0 ms a step it computes in double precision (such kernels in bf16: at most 74.6 ms less" in said
    run = run_answer("r", 1)
    keep(run, [compute(double), at_most(0.05 * mean_step_ms(run, "window"))])
    assert [one.code for one in run.findings] == ["nothing", "copies"]


def test_what_narrower_numbers_give_back_is_bounded_by_the_devices_peaks() -> None:
    """On an H200, fp64 products reach 67 TFLOP/s and those of bf16 989; what moves data moves a quarter of it."""
    times = {DGEMM: 10e6, ADD_DOUBLE: 4e6, BF16: 5e6}
    assert given_back_ms(times, find_peak("NVIDIA H200")) == pytest.approx(10 * (1 - 67 / 989) + 3)
    assert given_back_ms(times, find_peak("NVIDIA GeForce RTX 4090")) is None
    assert given_back_ms(times, None) is None


def test_a_hundredth_of_one_host_on_shared_cores_is_no_headline_unless_it_is_counted() -> None:
    """*Rank 0 costs 0.94 ms of the 75.1 ms step: its host does nothing for 0.79 ms before aten::add_* led a healthy job
    of two CPU ranks, by three steps of 3,461 operators.
    """
    stall = msgspec.structs.replace(at_most(1.3), code="host_stall", rank=0, at_most=False)
    assert are_little_at_most([stall], 100.0, on_cpus=True) and not are_little_at_most([stall], 100.0)
    assert not are_little_at_most([msgspec.structs.replace(stall, ms=2.3)], 100.0, on_cpus=True)
    counted = msgspec.structs.replace(stall, evidence=(EvidenceRow(kind="figure", name=BESIDES, calls=3.0),))
    assert not are_little_at_most([counted], 100.0, on_cpus=True)
