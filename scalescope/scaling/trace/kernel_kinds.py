"""What a kernel does, by its name: the table of the libraries' families.

The first family that is found in a name, without regard to case, gives the kind; specific ones stand before general
ones (a convolution is made of a gemm, a fused layer norm also adds). Extending one is a line. On a CPU the names are
operators'.
"""

import re
from functools import lru_cache
from typing import NamedTuple

MATMUL = "matmul"
ATTENTION = "attention"
CONVOLUTION = "convolution"
NORMALISATION = "normalisation"
LOSS = "loss and softmax"
EMBEDDING = "embedding and indexing"
OPTIMISER = "optimiser"
COPIES = "copies and casts"
ELEMENTWISE = "elementwise and reductions"
OTHER = "other"
COMMUNICATION = "communication"

#: Kinds whose work is multiplications, which a model's FLOPs count.
MULTIPLYING = (MATMUL, ATTENTION, CONVOLUTION)

#: In the order in which they are shown.
KINDS = (MATMUL, ATTENTION, CONVOLUTION, NORMALISATION, LOSS, EMBEDDING, ELEMENTWISE, COPIES, OPTIMISER, OTHER)


class Family(NamedTuple):
    """Kernels of one kind and library: `pattern`, in lower case, is searched in the kernel's name in lower case."""

    kind: str
    library: str
    pattern: str


_FUSED = r"^triton_(poi|per|red)_fused"

FAMILIES = (
    Family(OTHER, "the trace", r"^\(kernels of the step before\)"),
    # the optimiser, before what it is made of
    Family(OPTIMISER, "torch", r"multi_tensor_apply|fused_?(adamw?|sgd|adagrad|lamb|lion)|lpnorm_cleanup"
                               r"|_foreach_|_amp_|\bamp_|optimizer\.step"),
    Family(OPTIMISER, "apex, DeepSpeed", r"\b(adam|lamb|lion|sgd|adagrad)_?(kernel|update|functor)|multi_tensor_"),
    Family(OPTIMISER, "Inductor", r"^triton_\w*_foreach|^triton_for_"),
    # Inductor's fused kernels are named after the operators in them: no matrix product, no copy of one tensor alone
    Family(MATMUL, "Inductor", r"^triton_tem_fused\w*_?(mm|addmm|bmm|baddbmm)"),
    Family(ATTENTION, "Inductor", r"^triton_tem_fused_flex"),
    Family(NORMALISATION, "Inductor", rf"{_FUSED}\w*(layer_norm|batch_norm|group_norm|rms_norm)"),
    Family(LOSS, "Inductor", rf"{_FUSED}\w*(softmax|nll_loss|cross_entropy|logsumexp|_loss)"),
    Family(EMBEDDING, "Inductor", rf"{_FUSED}\w*(embedding|index_put|index_select|gather|scatter)"),
    Family(COPIES, "Inductor", rf"{_FUSED}(_+(to_copy|clone|copy|cat|view|unsafe_view|t|permute|transpose"
                               r"|expand|unsqueeze|slice|select|constant_pad_nd|split|stack|unbind))+_\d+$"),
    Family(ELEMENTWISE, "Inductor", rf"{_FUSED}|^triton__\d"),
    Family(COPIES, "FBGEMM", r"fbgemm_gpu::.*(quantize|rowwise_to_float|hfp8|qparam)"),
    # tables of embeddings, and the sorting and counting around them; its own name holds "gemm"
    Family(EMBEDDING, "FBGEMM", r"fbgemm(_gpu)?::|split_embedding|linearize_index|bounds_check_indices|recat_copy"
                                r"|devicereducebykey|to_dense_representation|permute_pooled_embs|permute_\dd_|^fb::"),
    Family(EMBEDDING, "routing to experts", r"moe::(dev::)?routing|combined_routing|bitmatrix|topk_?gating"
                                            r"|moe_align|moe_?(permute|sort)|expert_?(count|offset|map)"),
    Family(ELEMENTWISE, "rotary positions", r"rotary|rope_kernel|_rope_"),
    Family(ATTENTION, "cuDNN", r"sdpa|cudnn::fusion::(compute_dot_do_o|convert_dq)|fused_?attention"
                               r"|mha_?(graph|engine)"),
    Family(ATTENTION, "FlashAttention", r"flash_?(fwd|bwd|attn|attention)|flash::|pytorch_flash"),
    Family(ATTENTION, "xFormers, CUTLASS", r"fmha|attentionkernel|attentionbackwardkernel|memeffattention"
                                           r"|efficient_attention"),
    Family(ATTENTION, "AOTriton, Triton", r"^attn_(fwd|bwd)|^bwd_(kernel_)?(dk_?dv|dq|preprocess)"
                                          r"|^_?(attn|fwd|bwd)_(fwd|inner|kernel|preprocess)|flex_attention"
                                          r"|flex_decoding|paged_attention"),
    Family(ATTENTION, "vLLM, SGLang, FlashInfer", r"unified_attention|^reduce_segments|decode_attention|merge_attn"
                                                  r"|batch(prefill|decode)with|^_fwd_(grouped_)?kernel_stage|flashmla"),
    Family(ATTENTION, "SageAttention, AITER", r"^_?sage_(attn_)?fwd|sageattn|qk_int8_sv|mha_batch_prefill|\bpa_fwd"),
    Family(ATTENTION, "Composable Kernel", r"fmha(fwd|bwd)|ck_tile::.*fmha|batchedgemmsoftmaxgemm"),
    Family(ATTENTION, "torch on a CPU", r"scaled_?dot_?product|multi_?head_?attention"),
    # before the matrix products that it is made of
    Family(CONVOLUTION, "cuDNN, CUTLASS", r"fprop|dgrad|wgrad|implicit_?gemm|implicitgemm|cutlass__\w+_cudnn"
                                          r"|cudnn_(infer|train|[a-z]+)_\w*[sh]cudnn|_[sh]cudnn_|\bfft[12]d_[cr]2[cr]_"
                                          r"|computeb?offsetskernel|scalepackedtensor|cudnn::cnn|cudnn.*winograd|conv2d|conv3d|convolve|nhwcaddpadding"
                                          r"|nchwtonhwc|nhwctonchw"),
    Family(CONVOLUTION, "MIOpen", r"miopen\w*conv|sp3asmconv|igemm_(fwd|bwd|wrw)|naive_conv|gcnasmconv|winograd"
                                  r"|im2d?2?col|col2im|batched_transpose_\d+x|subtensoropwith"
                                    r"|transpose_[cn]{2}hw2[cn]{2}hw"),
    Family(CONVOLUTION, "Composable Kernel", r"grouped_?conv|deviceconv|convfwd|convbwd|kernel_grouped_conv"
                                             r"|convtogemm"),
    Family(CONVOLUTION, "torch", r"conv_depthwise|convolution"),
    Family(NORMALISATION, "torch", r"layer_?norm|batch_?norm|group_?norm|rms_?norm|gammabeta|rowwisemoments"
                                   r"|computefusedparams"),
    Family(NORMALISATION, "cuDNN, apex, MIOpen", r"bn_(fw|bw)|cuapplylayernorm|cucomputegradinput"
                                                 r"|miopen\w*(bn|norm)"),
    Family(LOSS, "torch, Triton", r"softmax|nll_?loss|cross_?entropy|logsumexp|mse_?loss|kl_div|binary_cross"
                                  r"|_loss|\bmse_(kernel|backward)"),
    Family(EMBEDDING, "torch", r"embedding|index_?select|indexing_backward|gather_kernel|scatter_kernel"
                               r"|sum_and_scatter|compute_grad_weight|krn_partial|partial_segments"
                               r"|index_(put|elementwise)|topk|bincount|\bcompute_cuda_kernel"),  # of repeat_interleave
    Family(EMBEDDING, "CUB, rocPRIM", r"radix_?sort|devicescan|devicecompact|scan_kernel|unique_by_key"
                                      r"|lookback_scan|onesweep|block_sort"),
    Family(MATMUL, "cuBLAS, cuBLASLt", r"nvjet|cublas|splitkreduce|gemv|\w?gemm|dot_kernel"),
    Family(MATMUL, "TensorRT-LLM, vLLM", r"^bmm_|fused_moe_kernel|moe::dev::gemm"),
    Family(MATMUL, "rocBLAS, hipBLASLt (Tensile)", r"cijk_|rocblas|hipblaslt|tensile"),
    Family(MATMUL, "CUTLASS, Composable Kernel", r"cutlass|gridwisegemm|devicegemm|ck::.*gemm|wvsplitk"),
    Family(MATMUL, "Triton", r"matmul"),
    Family(MATMUL, "torch on a CPU", r"aten::(mm|addmm|bmm|baddbmm|linear|matmul|mkldnn_linear|addmv|dot)\b"
                                     r"|\b(mm|addmm|bmm|linear)backward"),
    # what moves or changes type, and computes nothing
    Family(COPIES, "torch", r"direct_copy|copy_kernel|catarray|fillfunctor|fill_kernel|transpose|memcpy|memset"
                            r"|chunk_cat|split_with_sizes|pad(ding)?_kernel"),
    Family(COPIES, "AMD's runtime", r"__amd_rocclr_(fill|copy)"),
    Family(COPIES, "servers' caches", r"reshape_and_cache|store_kvcache|copy_page_indices|create_\w*kv_indices"),
    Family(COPIES, "quantisation", r"quantize_with_block|scaled_fp8_quant|per_token_(group_)?quant|sage_quant"),
    Family(COPIES, "torch on a CPU", r"aten::(copy_|_?to(_copy)?|contiguous|clone|cat|stack|fill_|zero_|zeros|empty)\b"
                                     r"|aten::(item|_local_scalar_dense)\b|reducer::copy_|tocopybackward|\bcopy_?backward|copyslices"),
    # the rest of what is known
    Family(ELEMENTWISE, "torch", r"elementwise|reduce_kernel|reduce_\w+_kernel|pool|dropout|distribution|philox"
                                 r"|upsample|clamp|gelu|relu|silu|swiglu|sigmoid|tanh"),
    Family(ELEMENTWISE, "torch on a CPU", r"aten::(?!_local_scalar|item|detach|set_)\w+|(?<=\w)backward\d*$"
                                          r"|accumulategrad|reducer::mul_out"),
    Family(ELEMENTWISE, "torch", r"at::native|at::cuda"),
)  # fmt: skip

#: In lower case on both sides, the search is three times as fast as one that disregards case.
_COMPILED = tuple((family.kind, re.compile(family.pattern)) for family in FAMILIES)


@lru_cache(maxsize=65536)
def kind_of(name: str) -> str:
    """Return the kind of a compute kernel or an operator by its name; OTHER where no family is found in it."""
    lower = name.lower()
    return next((kind for kind, pattern in _COMPILED if pattern.search(lower)), OTHER)
