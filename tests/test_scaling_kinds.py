"""Kernel kinds: every library's names are told apart, and the step's compute and its growth add up over them."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from scalescope.report.panels.kinds import inflation_sentence
from scalescope.scaling.answer_rows import KindRow
from scalescope.scaling.compare.windows import _without_recording
from scalescope.scaling.rank.kernels import KernelTable, placed, placed_in_all
from scalescope.scaling.study_answer import KindGrowth, Waterfall
from scalescope.scaling.trace.families import FAMILIES as COMMUNICATION_FAMILIES
from scalescope.scaling.trace.families import is_communication_kernel
from scalescope.scaling.trace.kernel_kinds import (
    ATTENTION,
    COMMUNICATION,
    CONVOLUTION,
    COPIES,
    ELEMENTWISE,
    EMBEDDING,
    FAMILIES,
    KINDS,
    LOSS,
    MATMUL,
    NORMALISATION,
    OPTIMISER,
    OTHER,
    RECURRENT,
    SORTING,
    TRANSFORMS,
    kind_of,
)
from scalescope.scaling.verdicts.inflation import growth_by_kind
from scalescope.scaling.verdicts.waterfall import compute_split, mean_step, waterfall
from tests.recorded import explained_of

DATA = Path(__file__).parent / "data"

NAMES: Mapping[str, tuple[str, ...]] = {
    MATMUL: (
        "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_schedP2x1_sm100",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_swiGlu_dynBatch_sm100",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_32x128x256_swiglu",
        "fused_moe_kernel",
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn",
        "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_128x128_64x3_nt_align8>(Params)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>(cublasLt::cublasSplitKParams)",
        "void gemvNSP_kernel<float, float, float, float, 1, 32, 4, 1024>(cublasGemvParamsEx)",
        "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB0_AFC1",
        "Cijk_Alik_Bljk_HB_MT128x128x32_SE_APM1_AF0EM8",
        "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<ck::tensor_layout>>(Argument)",
        "triton_tem_fused_addmm_3",
        "triton_tem_fused_mm_0",
        "aten::addmm",
        "AddmmBackward0",
        "aten::mkldnn_linear_backward",
        "aten::einsum",
        "aten::_cdist_forward",
        "aten::_sparse_mm",
        "aten::_weight_int4pack_mm_for_cpu",
        "quantized::linear_relu_dynamic",
        "onednn::qlinear_pointwise",
        "autograd::engine::evaluate_function: BmmBackward0",
        "void cusparse::csrmm_alg2_kernel<cusparse::CsrMMPolicy<int>>(int)",
        "void marlin::Marlin<half, 256, 1, 8, 8, 4, 8>(int4 const*)",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<7168u, 2048u>(x)",
        "aiter::fmoe_fp8_blockscale_g1u1_novs_silu_1tg_ps_32x256",
    ),
    ATTENTION: (
        "kernel_unified_attention_2d",
        "kernel_unified_attention_3d",
        "reduce_segments",
        "sage_fwd",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<0>(x)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0",
        "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*, void const*)",
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 64, 4, false>>(Params)",
        "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>(Flash_bwd_params)",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
        "attn_fwd",
        "bwd_kernel_dk_dv",
        "triton_tem_fused_flex_attention_0",
        "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVSAsync>>(Kargs)",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "ScaledDotProductFlashAttentionForCpuBackward0",
        "aten::_transformer_encoder_layer_fwd",
        "flash_attn::_flash_attn_forward",
        "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensor",
        "void flashinfer::SinglePrefillWithKVCacheKernel<0>(x)",
        "void deep_gemm::sm90_fp8_paged_mqa_logits<1u>(x)",
        "void aiter::mla_a16w16_qh16_m16x4_n16x1_coex0_mask1(x)",
    ),
    CONVOLUTION: (
        "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1",
        "cudnn_train_volta_scudnn_128x128_stridedB_splitK_medium_nn_v1",
        "SubTensorOpWithScalar1d",
        "transpose_CNHW2NCHW_V2_2D_WG_off64",
        "void fft2d_r2c_32x32<float, false, 5u, true>(float2*, float const*, int)",
        "void cask_cudnn::computeOffsetsKernel<false, false>(cask_cudnn::ComputeOffsetsParams)",
        "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_execute_kernel__5x_cudnn",
        "sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64__5x_cudnn",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(P)",
        "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemm",
        "void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true, (cudnnKernelDataType_t)0>(int)",
        "miopenSp3AsmConv_v30_3_1_gfx90a_fp16_dot2_edc_f2x3_stride1",
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x128x32_wt32x32x8_ws1x1_wr2x2",
        "MIOpenIm2d2Col.kd",
        "void ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<ck::GridwiseGemmMultipleABD_xdl_cshuffle>(A)",
        "batched_transpose_32x32_half",
        "aten::convolution",
        "aten::mkldnn_convolution",
        "aten::conv_transpose2d",
        "SlowConv2DBackward0",
        "quantized::conv2d_relu",
        "torchvision::deform_conv2d",
        "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4, true>>(x)",
        "triton_tem_fused_convolution_1",
    ),
    RECURRENT: (
        "aten::lstm",
        "aten::mkldnn_rnn_layer",
        "MkldnnRnnLayerBackward0",
        "aten::gru",
        "aten::rnn_tanh",
        "aten::_thnn_fused_gru_cell",
        "quantized::quantized_lstm_cell_dynamic",
        "void RNN_blockPersist_fp_LSTM<__half, __half, __half, 512>(RNNParams)",
        "void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(int, int)",
        "void GRU_elementWise_bp1<float, float, float>(int)",
        "selective_scan_fwd_kernel",
        "_chunk_scan_fwd_kernel",
    ),
    TRANSFORMS: (
        "aten::_fft_r2c",
        "FftC2RBackward0",
        "aten::stft",
        "aten::linalg_svd",
        "aten::_linalg_solve_ex",
        "LinalgCholeskyExBackward0",
        "void regular_fft<256u, (padding_t)0, (twiddle_t)0>(kernel_arguments_t)",
        "fft_rtc_fwd_len1024_factors_4_4_8_8_wgs_256",
        "void getrf_pivot<float>(x)",
    ),
    NORMALISATION: (
        "aten::instance_norm",
        "NativeGroupNormBackward0",
        "aten::_weight_norm_interface",
        "void transformer_engine::normalization::ln_fwd_tuned_kernel<x>(x)",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float)",
        "void at::native::batch_norm_collect_statistics_channels_last_kernel<at::native::Var, c10::BFloat16>(int)",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 32u>(long)",
        "triton_per_fused_add_native_layer_norm_view_9",
        "triton_red_fused_add_rms_norm_4",
        "MIOpenBatchNormFwdTrainSpatial.kd",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct)",
    ),
    LOSS: (
        "void at::native::vectorized_elementwise_kernel<4, at::native::mse_kernel_cuda(at::TensorIteratorBase&)>(int)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, c10::BFloat16, float>(c10::BFloat16*)",
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)",
        "triton_red_fused__log_softmax_nll_loss_forward_11",
        "liger_cross_entropy_kernel",
    ),
    EMBEDDING: (
        "aten::_embedding_bag",
        "EmbeddingDenseBackward0",
        "aten::scatter_add_",
        "IndexBackward0",
        "torch_scatter::segment_sum_coo",
        "void cub::CUB_200_NS::DeviceMergeSortBlockSortKernel<x>(x)",
        "void at::native::bitonicSortKVInPlace<-2, -1, 16, 16, long>(x)",
        "_fwd_kernel_ep_scatter_1",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int, int)",
        "void bounds_check_indices_kernel<long, false>(at::GenericPackedTensorAccessor<long, 1ul>)",
        "void moe::dev::routing::routingIndicesHistogramKernel<moe::dev::routing::KernelParams<__nv_bfloat16, 128>>(x)",
        "_combined_routing_compute",
        "_sum_bitmatrix_rows",
        "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, float, long>(long const*)",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2>(x)",
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long)",
        "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub>(int)",
        "void rocprim::detail::onesweep_iteration_kernel<rocprim::default_config>(x)",
    ),
    SORTING: (
        "aten::sort",
        "SortBackward0",
        "aten::argsort",
        "aten::msort",
        "aten::topk",
        "TopkBackward0",
        "aten::kthvalue",
        "aten::_unique2",
        "aten::searchsorted",
        "aten::bucketize",
        "aten::isin",
    ),
    OPTIMISER: (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float>>(x)",
        "aten::_fused_adamw_",
    ),
    COPIES: (
        "aten::view",
        "aten::detach",
        "TBackward0",
        "UnsafeViewBackward0",
        "torch::autograd::CopySlices",
        "aten::quantize_per_tensor",
        "aten::_pack_padded_sequence",
        "aten::to_sparse",
        "void transformer_engine::dispatch::mxfp8::quantize_mxfp8_kernel<x>(x)",
        "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0>(x)",
        "void tensorrt_llm::kernels::quantize_with_block_size<(tensorrt_llm::BlockScaleQuantizationType)2, true>(x)",
        "__amd_rocclr_fillBufferAligned.kd",
        "aten::item",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(x)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(x)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int>(x)",
        "triton_poi_fused__to_copy_view_1",
        "triton_poi_fused__to_copy_6",
        "aten::copy_",
    ),
    ELEMENTWISE: (
        "aten::_foreach_addcdiv_",
        "aten::_foreach_lerp_",
        "triton_red_fused__to_copy_add_addmm_div_empty_like_mean_mul_neg_pow_rsqrt_stack_sub_transpose_view_3",
        "triton__0d1d2d3d4d5d6d",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
        "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>>(int)",
        "void at::native::vectorized_elementwise_kernel<8, at::native::launch_clamp_scalar>(int)",
        "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::MeanOps<float>>>(x)",
        "void at::native::(anonymous namespace)::max_pool_backward_nhwc<c10::BFloat16, float>(c10::BFloat16 const*)",
        "triton_poi_fused_gelu_view_8",
        "triton_red_fused_sum_2",
        "aten::gelu_backward",
        "aten::copysign",
        "aten::linalg_vector_norm",
        "aten::cumsum",
        "aten::isnan",
        "aten::upsample_bilinear2d",
        "aten::grid_sampler_2d",
        "torchvision::roi_align",
        "quantized::add_relu",
        "torch::autograd::AccumulateGrad",
        "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent<x>>(x)",
    ),
    # what a function of one's own does when its backward pass runs, its name alone tells, if anything
    OTHER: (
        "spin_kernel(long)",
        "my_kernel",
        "",
        "CheckpointFunctionBackward",
        "my_library::do_it",
        "c10d::allreduce_",
    ),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names])
def test_each_librarys_names_are_known(kind: str, name: str) -> None:
    assert kind_of(name) == kind


def test_a_names_case_tells_no_kind_and_patterns_are_in_lower_case() -> None:
    assert kind_of("AT::NATIVE::LAYER_NORM") == NORMALISATION
    assert is_communication_kernel("MSCCLKERNEL_SUM") and is_communication_kernel("mscclKernel_Sum")
    for family in (*FAMILIES, *COMMUNICATION_FAMILIES):
        plain = re.sub(r"\\.", "", family.pattern)
        assert plain == plain.lower(), family


@pytest.mark.parametrize("name", ["gpt_ddp_n2", "resnet50_ddp_n4", "gpt_ddp_compile_n4", "cpu_ddp_n2"])
def test_the_kinds_add_up_to_the_compute_and_hardly_any_kernel_is_unknown(name: str) -> None:
    analysis = explained_of(name).analysis
    compute = sum(rank.compute_ms / rank.steps for rank in analysis.ranks) / len(analysis.ranks)
    rows = [row for row in analysis.kinds if row.kind != COMMUNICATION]
    assert sum(row.ms for row in rows) == pytest.approx(compute, rel=1e-9)
    assert sum(row.share_of_compute or 0 for row in rows) == pytest.approx(1)
    unknown = sum(row.share_of_compute or 0 for row in rows if row.kind == OTHER)
    assert unknown < 0.02
    (moving,) = [row for row in analysis.kinds if row.kind == COMMUNICATION]
    mean = sum(rank.communication_ms / rank.steps for rank in analysis.ranks) / len(analysis.ranks)
    assert moving.ms == pytest.approx(mean)
    if name == "resnet50_ddp_n4":
        assert next(row.ms for row in rows if row.kind == CONVOLUTION) > 4
    elif name != "cpu_ddp_n2":
        assert max(rows, key=lambda row: row.ms).kind == MATMUL


def test_what_runs_beside_is_the_overlap_that_a_slow_account_finds() -> None:
    """Per rank, all kernels' time beside collectives is the time that both compute and communication run."""
    found = explained_of("gpt_ddp_n2")
    for rank, table in found.kernels.items():
        split = next(split for split in found.analysis.ranks if split.rank == rank)
        assert split.overlap_fraction is not None
        hidden = split.communication_ms * split.overlap_fraction
        assert table.overlap.sum() / 1e6 == pytest.approx(hidden, rel=1e-6)
        assert table.labels == ("all_reduce float32",)
        assert (table.overlap <= table.time[:, None]).all()


def test_the_growth_of_the_kinds_adds_up_to_the_growth_of_the_compute() -> None:
    small, large = explained_of("gpt_ddp_n1"), explained_of("gpt_ddp_n2")
    kernels = list(small.kernels.values()), list(large.kernels.values())
    fall = waterfall(
        "gpt",
        (1, mean_step(list(small.partitions.values())), kernels[0]),
        (2, mean_step(list(large.partitions.values())), kernels[1]),
    )
    split = compute_split(*kernels)
    assert split is not None and fall.kinds
    assert sum(kind.inflation_ms for kind in fall.kinds) == pytest.approx(float(split[0]) / 1e6, abs=1e-9)
    assert sum(kind.more_work_ms for kind in fall.kinds) == pytest.approx(float(split[1]) / 1e6, abs=1e-9)
    compute = next(part.ms for part in fall.parts if part.part == "compute")
    assert sum(kind.to_ms - kind.from_ms for kind in fall.kinds) == pytest.approx(compute, abs=1e-6)
    matmul = next(kind for kind in fall.kinds if kind.kind == MATMUL)
    assert matmul.beside_ms.keys() == {"all_reduce float32"}
    optimiser = next(kind for kind in fall.kinds if kind.kind == OPTIMISER)
    assert not optimiser.beside_ms, "nothing is reduced while the optimiser steps"


def test_where_the_other_kernels_became_faster_no_share_stands_above_all() -> None:
    def grown(kind: str, inflation: float, overlap: float) -> KindGrowth:
        return KindGrowth(kind=kind, from_ms=5.0, to_ms=5.0 + inflation, inflation_ms=inflation, more_work_ms=0.0,
                          inflation_beside_ms=overlap, beside_ms={"all_reduce float32": 0.2})  # fmt: skip

    fall = Waterfall(series="s", from_world_size=1, to_world_size=4, from_step_ms=50.0, to_step_ms=50.1, growth_ms=0.1,
                     parts=[], kinds=[grown(MATMUL, 0.12, 0.12), grown(CONVOLUTION, -0.01, 0.09)])  # fmt: skip
    assert inflation_sentence(fall) == (
        "The same kernels take 0.11 ms a step longer: 0.12 ms matmul. Those that run beside all_reduce float32 take "
        "0.21 ms longer, the others 0.10 ms less."
    )
    fall.kinds = [grown(MATMUL, 0.12, 0.03)]
    assert "25% of that are kernels that run beside all_reduce float32; the rest" in inflation_sentence(fall)


def _table(names: str, placed: dict[tuple[str, int], str] | None, ms: float = 1.0) -> KernelTable:
    """Return a step of kernels that take so long each, a letter each."""
    words, seen = tuple(dict.fromkeys(names)), [names[:at].count(name) for at, name in enumerate(names)]
    return KernelTable(
        steps=1, names=tuple(f"aten::{word}" for word in words), labels=(), placed=placed,
        name=np.array([words.index(name) for name in names], np.int32), ordinal=np.array(seen, np.int32),
        ran=np.ones(len(names), np.int32), time=np.full(len(names), round(ms * 1e6)),
        overlap=np.zeros((len(names), 0), np.int64),
    )  # fmt: skip


def test_kernels_are_placed_as_in_most_steps_and_one_step_in_another_order_moves_none() -> None:
    usual, odd = "mmmm", "mm" + "mmmm"  # of an odd step two more come first
    kernels, kinds, begin = [], {}, 0
    for step in range(5):
        for at, _ in enumerate(odd if step == 2 else usual):
            if at >= (5 if step == 2 else 3):
                kinds[begin] = NORMALISATION
            kernels.append((begin, float(begin), "aten::m"))
            begin += 1
    edges = [0.0, 4.0, 8.0, 14.0, 18.0, 22.0]
    assert placed(kernels, edges, kinds) == {("aten::m", 3): NORMALISATION, ("aten::m", 5): NORMALISATION}


def test_what_is_for_another_thing_on_either_side_is_no_counterpart() -> None:
    """114.8 ms of normalisation were told of a run that had 53.3, as the other one's kernels of those numbers were."""
    hand, built = _table("mmmm", {("aten::m", at): NORMALISATION for at in (0, 1)}), _table("mm", {})
    growth = {one.kind: (one.from_ms, one.to_ms, one.inflation_ms) for one in growth_by_kind([hand], [built])}
    assert growth == {NORMALISATION: (2.0, 0.0, 0.0), ELEMENTWISE: (2.0, 2.0, 0.0)}
    unknown = _table("mm", None)
    growth = {one.kind: (one.from_ms, one.to_ms, one.inflation_ms) for one in growth_by_kind([hand], [unknown])}
    assert growth == {ELEMENTWISE: (4.0, 2.0, 0.0)}, "what one side's places tell is no difference from the other's"
    assert placed_in_all([hand, _table("mmmm", {("aten::m", 0): NORMALISATION})]) == {("aten::m", 0): NORMALISATION}


def test_kinds_without_recording_are_each_ranks_own_where_one_computes_for_longer() -> None:
    """Of 77 ms of convolutions 51 were left on a rank that counts histograms for 215 ms, and these took 256."""
    at = {kind: number for number, kind in enumerate(KINDS)}
    slow, other = ([0.0] * len(KINDS) for _ in range(2))
    slow[at[CONVOLUTION]], slow[at[ELEMENTWISE]] = 80 / 300, 220 / 300
    other[at[CONVOLUTION]], other[at[ELEMENTWISE]] = 80 / 85, 5 / 85
    told = [KindRow(kind=kind, calls=1.0, ms=0.9 * ms, share_of_compute=0.5, beside_communication_ms=None)
            for kind, ms in ((CONVOLUTION, 80.0), (ELEMENTWISE, 112.5))]  # fmt: skip
    left = _without_recording({0: tuple(slow), 1: tuple(other)}, told, {0: 300.0, 1: 85.0})
    assert left[0] == pytest.approx(slow) and left[1] == pytest.approx(other), "recording costs both kinds alike"
