"""What a kernel does, by its name: the table of the libraries' families.

The first family that is found in a name, without regard to case, gives the kind; specific ones stand before general
ones (a convolution is made of a gemm, a fused layer norm also adds). Extending one is a line. Operators, which are what
computes on a CPU, have a table of their own. An operator's name is a word behind its library's
(`aten::mkldnn_rnn_layer`), or that of its node in the backward pass (`MkldnnRnnLayerBackward0`). Both are one stem
here, without case and underscores (`mkldnnrnnlayer`), and the first pattern that all of it is made of gives the kind.
Of torch's own operators what stands in no row computes element by element, or reduces; of others' nothing is known.
"""

import re
from functools import cache, lru_cache
from typing import NamedTuple

MATMUL = "matmul"
ATTENTION = "attention"
CONVOLUTION = "convolution"
RECURRENT = "recurrent layers"
NORMALISATION = "normalisation"
LOSS = "loss and softmax"
EMBEDDING = "embedding and indexing"
SORTING = "sorting and searching"
OPTIMISER = "optimiser"
COPIES = "copies and casts"
ELEMENTWISE = "elementwise and reductions"
TRANSFORMS = "FFTs and factorisations"
OTHER = "other"
COMMUNICATION = "communication"

#: Kinds whose work is multiplications, which a model's FLOPs count.
MULTIPLYING = (MATMUL, ATTENTION, CONVOLUTION, RECURRENT)

#: Kinds of which are kernels, too, whose names do not tell it, but whose places do.
OF_PLACES = (NORMALISATION, OPTIMISER)

#: In the order in which they are shown.
KINDS = (MATMUL, ATTENTION, CONVOLUTION, RECURRENT, NORMALISATION, LOSS, EMBEDDING, SORTING, ELEMENTWISE, TRANSFORMS,
         COPIES, OPTIMISER, OTHER)  # fmt: skip


class Family(NamedTuple):
    """Kernels of one kind and library: `pattern`, in lower case, is searched in the kernel's name in lower case."""

    kind: str
    library: str
    pattern: str


_FUSED = r"^triton_(poi|per|red|spl|unk)_fused"

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
    Family(CONVOLUTION, "Inductor", r"^triton_tem_fused\w*_?convolution"),
    Family(NORMALISATION, "Inductor", rf"{_FUSED}\w*(layer_norm|batch_norm|group_norm|rms_norm)"),
    Family(LOSS, "Inductor", rf"{_FUSED}\w*(softmax|nll_loss|cross_entropy|logsumexp|_loss)"),
    Family(EMBEDDING, "Inductor", rf"{_FUSED}\w*(embedding|index_put|index_select|gather|scatter|sort|topk)"),
    Family(COPIES, "Inductor", rf"{_FUSED}(_+(to_copy|clone|copy|cat|view|unsafe_view|t|permute|transpose"
                               r"|expand|unsqueeze|slice|select|constant_pad_nd|split|stack|unbind))+_\d+$"),
    Family(ELEMENTWISE, "Inductor", rf"{_FUSED}|^triton__\d"),
    Family(COPIES, "FBGEMM", r"fbgemm_gpu::.*(quantize|rowwise_to_float|hfp8|qparam)"),
    # tables of embeddings, and the sorting and counting around them; its own name holds "gemm"
    Family(EMBEDDING, "FBGEMM", r"fbgemm(_gpu)?::|split_embedding|linearize_index|bounds_check_indices|recat_copy"
                                r"|devicereducebykey|to_dense_representation|permute_pooled_embs|permute_\dd_|^fb::"),
    Family(EMBEDDING, "routing to experts", r"moe::(dev::)?routing|combined_routing|bitmatrix|topk_?gating"
                                            r"|moe_align|moe_?(permute|unpermute|sort)|expert_?(count|offset|map)"
                                            r"|topk_?softmax"
                                            r"|_ep_(scatter|gather)|sort_expert|(shuffle|expand)inputrows"
                                            r"|finalizemoe"),
    Family(ELEMENTWISE, "rotary positions", r"rotary|rope_kernel|_rope_|\bkn_entry_\w*(sbhd|bshd|thd)"),
    Family(RECURRENT, "cuDNN, MIOpen, torch", r"lstm|\bgru_|gru_cell|rnncell|persistrnn|\brnn_|_rnn_|miopenrnn"
                                              r"|cudnn.*rnn"),
    # states that are handed from step to step, however many steps at once
    Family(RECURRENT, "Mamba, FLA, RWKV", r"selective_scan|_chunk_(scan|state)|state_passing|gated_delta"
                                          r"|fused_recurrent"
                                          r"|\brwkv|\bwkv\d|ssd_combined"),
    Family(ATTENTION, "cuDNN", r"sdpa|cudnn::fusion::(compute_dot_do_o|convert_dq)|fused_?attention"
                               r"|mha_?(graph|engine)"),
    Family(ATTENTION, "FlashAttention", r"flash_?(fwd|bwd|attn|attention)|flash::|pytorch_flash"),
    Family(ATTENTION, "xFormers, CUTLASS", r"fmha|attentionkernel|attentionbackwardkernel|memeffattention"
                                           r"|efficient_attention"),
    Family(ATTENTION, "AOTriton, Triton", r"^attn_(fwd|bwd)|^bwd_(kernel_)?(dk_?dv|dq|preprocess)"
                                          r"|^_?(attn|fwd|bwd)_(fwd|inner|kernel|preprocess)|flex_attention"
                                          r"|flex_decoding|paged_attention"),
    Family(ATTENTION, "vLLM, SGLang, FlashInfer", r"unified_attention|^reduce_segments|decode_attention|merge_attn"
                                                  r"|(batch|single)(prefill|decode)with"
                                                  r"|^_fwd_(grouped_)?kernel_stage|flashmla"
                                                  r"|mqa_logits|(?<![a-z])mla_|merge_?states?_?kernel"),
    Family(ATTENTION, "SageAttention, AITER", r"^_?sage_(attn_)?fwd|sageattn|qk_int8_sv|mha_batch_prefill|\bpa_fwd"),
    Family(ATTENTION, "Composable Kernel", r"fmha(fwd|bwd)|ck_tile::.*fmha|batchedgemmsoftmaxgemm"),
    Family(ATTENTION, "torch on a CPU", r"scaled_?dot_?product|multi_?head_?attention"),
    # before the matrix products that it is made of
    Family(CONVOLUTION, "cuDNN, CUTLASS", r"fprop|dgrad|wgrad|implicit_?gemm|implicitgemm|cutlass__\w+_cudnn"
                                          r"|cudnn_(infer|train|[a-z]+)_\w*[sh]cudnn|_[sh]cudnn_"
                                          r"|\bfft[12]d_[cr]2[cr]_"
                                          r"|computeb?offsetskernel|scalepackedtensor|cudnn::cnn|cudnn.*winograd"
                                          r"|conv2d|conv3d|convolve|nhwcaddpadding"
                                          r"|nchwtonhwc|nhwctonchw"),
    Family(CONVOLUTION, "MIOpen", r"miopen\w*conv|sp3asmconv|igemm_(fwd|bwd|wrw)|naive_conv|gcnasmconv|winograd"
                                  r"|im2d?2?col|col2im|batched_transpose_\d+x|subtensoropwith"
                                    r"|transpose_[cn]{2}hw2[cn]{2}hw"),
    Family(CONVOLUTION, "Composable Kernel", r"grouped_?conv|deviceconv|convfwd|convbwd|kernel_grouped_conv"
                                             r"|convtogemm"),
    Family(CONVOLUTION, "torch, Mamba", r"conv_depthwise|convolution|causal_conv\dd|\bconv1d"),
    # their own products and sorts, too; cuDNN's convolutions by frequencies stand above
    Family(TRANSFORMS, "cuFFT, rocFFT", r"(regular|vector|composite|bluestein)_?\w*fft|cufft|rocfft|\bfft_(fwd|back"
                                        r"|rtc)"
                                        r"|fft_(r2c|c2r|c2c|conjugate)|real_complex_|complex_real_"),
    Family(TRANSFORMS, "cuSOLVER, MAGMA, rocSOLVER", r"cusolver|rocsolver|hipsolver|magma(?!\w*gemm)"
                                                     r"|(?<![a-z])[sdcz]?(getr[fs]|potr[fs]"
                                                     r"|trsm|trsv|trtri|syev|gesvd|geqr|orm(qr|tr)|larf[tbg]|laswp"
                                                     r"|sytrd)"),
    Family(NORMALISATION, "torch", r"layer_?norm|batch_?norm|group_?norm|rms_?norm|gammabeta|rowwisemoments"
                                   r"|computefusedparams|(?<![a-z])ln_(fwd|bwd)"),
    Family(NORMALISATION, "cuDNN, apex, MIOpen", r"bn_(fw|bw)|cuapplylayernorm|cucomputegradinput"
                                                 r"|miopen\w*(bn|norm)"),
    Family(LOSS, "torch, Triton", r"softmax|nll_?loss|cross_?entropy|logsumexp|mse_?loss|kl_div|binary_cross"
                                  r"|_loss|\bmse_(kernel|backward)"),
    Family(EMBEDDING, "torch", r"embedding|index_?select|indexing_backward|gather_kernel|scatter_kernel"
                               r"|sum_and_scatter|compute_grad_weight|krn_partial|partial_segments"
                               r"|index_(put|elementwise)|topk|bincount"
                               r"|\bcompute_cuda_kernel"),  # of repeat_interleave
    Family(EMBEDDING, "CUB, rocPRIM", r"radix_?sort|devicescan|devicecompact|scan_kernel|unique_by_key"
                                      r"|lookback_scan|onesweep|block_sort|merge_?sort|segmented_?sort|device(select"
                                      r"|partition|histogram)"
                                      r"|runlengthencode|partition_kernel|bitonicsort|radixfindkth|sortkeyvalue"),
    Family(EMBEDDING, "samplers of tokens", r"(topk|topp|minp)\w*(sampling|renorm)|samplingfromprob"),
    Family(MATMUL, "cuBLAS, cuBLASLt", r"nvjet|cublas|splitkreduce|gemv|\w?gemm|dot_kernel"),
    Family(MATMUL, "TensorRT-LLM, vLLM, AITER", r"^bmm_|fused_moe_kernel|moe::dev::gemm|marlin|machete|\bfmoe"
                                                r"|flatmm"),
    Family(MATMUL, "cuSPARSE, rocSPARSE", r"cusparse|rocsparse|spmm|sddmm|csrmm|csrmv|spmv"),
    Family(MATMUL, "rocBLAS, hipBLASLt (Tensile)", r"cijk_|rocblas|hipblaslt|tensile"),
    Family(MATMUL, "CUTLASS, Composable Kernel", r"cutlass|gridwisegemm|devicegemm|ck::.*gemm|wvsplitk"),
    Family(MATMUL, "Triton", r"matmul|^triton_b?mm\b"),
    # what moves or changes type, and computes nothing
    Family(COPIES, "torch", r"direct_copy|copy_kernel|catarray|fillfunctor|fill_kernel|transpose|memcpy|memset"
                            r"|chunk_cat|split_with_sizes|pad(ding)?_kernel"),
    Family(COPIES, "AMD's runtime", r"__amd_rocclr_(fill|copy)"),
    Family(COPIES, "servers' caches", r"reshape_and_cache|store_kvcache|copy_page_indices|create_\w*kv_indices"),
    Family(COPIES, "quantisation", r"quantize_with_block|scaled_fp8_quant|per_token_(group_)?quant|sage_quant"
                                   r"|scaled_quant"
                                    r"|cast_(transpose|fp8|mxfp8|gated)|(de)?quantize_|dequant"),
    Family(COPIES, "DDP on a CPU", r"reducer::copy_"),
    # the rest of what is known
    Family(ELEMENTWISE, "torch", r"elementwise|reduce_kernel|reduce_\w+_kernel|pool|dropout|distribution|philox"
                                 r"|upsample|clamp|gelu|relu|silu|swiglu|sigmoid|tanh"),
    Family(ELEMENTWISE, "DDP, autograd on a CPU", r"accumulategrad|reducer::mul_out"),
    Family(ELEMENTWISE, "torch, Transformer Engine, CUB", r"at::native|at::cuda|transformer_engine::|thrust::"
                                                          r"|\bcub::"),
)  # fmt: skip

#: Of one stem each: `\w*` on both sides finds a word in it.
OPERATORS = (
    (OPTIMISER, r"fused(adam|adamw|sgd|adagrad|lamb|lion)\w*|amp(foreach|update)\w*"),
    # of many tensors at once: an optimizer's, a norm's, or a moving average's of the weights; no name tells whose
    (COPIES, r"foreach(copy|zero)\w*"),
    (ELEMENTWISE, r"foreach\w*"),
    (ELEMENTWISE, r"upsample\w*|interpolate\w*|gridsample\w*|cudnngridsample\w*|\w*affinegrid\w*|\w*roi(align"
                  r"|pool)\w*"),
    # packing lays sequences out anew; steps of recurrent networks are products, sigmoids and tanhs in one
    (COPIES, r"(pack|pad)padded\w*|packpaddedsequence|padsequence|padpackedsequence"),
    (RECURRENT, r"\w*(lstm|gru|rnn)\w*"),
    (ATTENTION, r"\w*(scaleddotproduct|multiheadattention|attention|attnforward|flashattn|transformerencoderlayer)\w*"
                r"|\w*(sdpa|fmha)\w*|transformbiasrescaleqkv|tritonscaleddotattention|fusedsdpchoice"),
    (CONVOLUTION, r"(?!conv(ert|oy))\w*?(?<!in)conv(olution|tbc|transpose|depthwise|dilated|\dd|prepack|unpack|mode)?"
                  r"\w*|col2im|im2col"),
    (NORMALISATION, r"\w*(layer|batch|group|instance|rms|weight|localresponse)norm\w*|normexceptdim"),
    (LOSS, r"\w*(softmax|loss|crossentropy|logsumexp|kldiv)\w*"),
    (ELEMENTWISE, r"hist(c|ogram\w*)|bincount"),  # counted, as sums are
    (SORTING, r"topk|(arg|m)?sort|lexsort|kthvalue|unique\w*|searchsorted|bucketize|isin"),
    (EMBEDDING, r"\w*embedding\w*|(unsafe|unsafemasked)?index(?!er)\w*|gather\w*|scatter\w*|take\w*|put(?!s)\w*"
                r"|segmentreduce|masked(select|scatter)\w*|nonzero\w*"
                r"|repeatinterleave|onehot|coalesced?"
                r"|segment\w*(coo|csr)|gather(coo|csr)|moepermute\w*"),
    (MATMUL, r"(add|badd|addb|b|mkl|sparse\w*|grouped|scaled|scaledgrouped|int|hs|s|ssp)?add?mm\w*|b?mm|baddbmm"
             r"|addbmm"
             r"|\w*(matmul|mmplusmm)\w*|(int|hsp?|s|sparse|sparsesampledadd|grouped|scaled|scaledgrouped"
             r"|cslt?sparse)mm\w*"
             r"|sparsemm\w*|sspaddmm|weightint\dpackmm\w*|int4mm\w*|semistructuredmm|sparsesemistructured\w*mm"
             r"|(?!upsample)\w*linear\w*|mv|addmv|v?dot|inner|outer|ger|addr|einsum|tensordot|chainmatmul|kron"
             r"|linalg(matmul|multidot|vecdot)|tri?linear|cdist\w*|euclideandist|fused(moe|experts)\w*|asyncinputmm"),
    # of many operations each, whether by frequencies or by factors
    (ELEMENTWISE, r"linalg(vectornorm|norm|matrixnorm|cross|powsum)|linspace|logspace"),
    (COPIES, r"linalgdiagonal"),
    (TRANSFORMS, r"c?u?fft\w*|i?stft|linalg\w*|\w*cholesky\w*|lu(solve|unpack|withinfo)?|qr|svd|geqrf|or[gm]qr"
                 r"|inverse|pinverse"
                 r"|(s?log)?det|triangularsolve|spsolve|matrix(exp|power)"),
    # what moves or changes type or shape, and computes nothing
    (COPIES, r"\w*copy(?!sign)\w*|copies|copyslices|to|to(sparse|dense|mkldnn|cpu|padded|half|float)\w*|reducercopy"
             r"|contiguous|clone|lazyclone"
             r"|(un)?safeview|cat|concat\w*|[hvd]?stack|(row|column)stack|fill\w*|zeros?\w*|ones\w*|full\w*|empty\w*"
             r"|new\w*"
             r"|efficientzerotensor|pad|padenum|padcircular|constantpadnd|(reflection|replication|circular)pad\w*"
             r"|repeat|tile|roll|flip\w*|rot90|expand\w*|unsafeview|view\w*|reshape\w*|mkldnnreshape|mkldnntranspose"
             r"|permute|transpose|t|mt|mh|numpyt|adjoint|select\w*|slice\w*|\w*split\w*|chunk\w*|unsafechunk|unbind"
             r"|narrow|squeeze"
             r"|unsqueeze|(un)?flatten\w*|ravel|detach|alias|asstrided\w*|move(axis|dim)|swap(axes|dims)|item"
             r"|localscalardense|pinmemory|resize\w*|set|setdata|lift\w*|diag\w*|unfold\w*|pixel(un)?shuffle"
             r"|channelshuffle|nativechannelshuffle|typeas|\w*quantize|quantizeper\w*|chooseqparams\w*|cast\w*"
             r"|viewas(real|complex)|resolve(conj|neg)|sparsemask|meshgrid|broadcast(to|tensors)|blockdiag"
             r"|sparse(coo|csr|csc|bsr|bsc|compressed)?tensor\w*|values|indices|chunkcat|jaggedtopadded\w*"
             r"|paddeddenseto\w*"
             r"|nested(to|from|view|tensor|get)\w*"),
)  # fmt: skip

#: An operator: a library's name and its own. Kernels' names have templates or arguments.
_OPERATOR = re.compile(r"(\w+)::(\w+)")
#: A node of the backward pass, as torch or a user's own function names it: torch counts its own from 0.
_NODE = re.compile(r"(?:(?:torch::)?autograd::(?:engine::evaluate_function: )?)?(?:torch::autograd::)?"
                   r"(\w+?)Backward(s|\d+)?")  # fmt: skip
_COPY_SLICES = re.compile(r"(?:.*::)?CopySlices")
#: What an operator of the backward pass is called behind the forward one's name.
_BACKWARD = re.compile(r"(double)?backward(data|input|weights|overrideable|impl|elemt|reduce)?$")
#: Libraries whose operators are torch's own: what is in no row computes element by element.
_TORCHS = frozenset({"aten", "prims", "quantized", "_quantized", "onednn", "mkldnn", "torchvision"})
#: Libraries whose operators hand collectives over.
_COMMUNICATES = re.compile("c10d|symm_mem|_dtensor")


@cache
def _families() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the kernels' table, compiled: what shows an answer needs its words alone.

    In lower case on both sides, the search is three times as fast as one that disregards case.
    """
    return tuple((family.kind, re.compile(family.pattern)) for family in FAMILIES)


@cache
def _operators() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the operators' table, compiled: that takes some ms, and kernels' names need none of it."""
    return tuple((kind, re.compile(pattern)) for kind, pattern in OPERATORS)


@lru_cache(maxsize=65536)
def kind_of(name: str) -> str:
    """Return the kind of a compute kernel or an operator by its name; OTHER where no family is found in it."""
    kind = _kind_of_operator(name)
    if kind is not None:
        return kind
    lower = name.lower()
    return next((kind for kind, pattern in _families() if pattern.search(lower)), OTHER)


def _kind_of_operator(name: str) -> str | None:
    """Return the kind of an operator by its name; None where the name is no operator's, or tells nothing."""
    node, operator = _NODE.fullmatch(name), _OPERATOR.fullmatch(name)
    if _COPY_SLICES.fullmatch(name):
        return COPIES
    if node is not None:
        stem, torchs = node[1], bool(node[2])
    elif operator is not None and not _COMMUNICATES.search(operator[1]):
        stem, torchs = operator[2], operator[1] in _TORCHS
    else:
        return None
    stem = _BACKWARD.sub("", stem.replace("_", "").lower())
    known = next((kind for kind, pattern in _operators() if pattern.fullmatch(stem)), None)
    return known if known is not None or not torchs else ELEMENTWISE
