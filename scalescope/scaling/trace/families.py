"""Which kernels are communication: the table of the libraries' kernel-name families.

A kernel is communication by the profiler's own metadata first, by the CPU operation that launched it second, and by its
name last; only the last needs the families below. Extending one is a line.
"""

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from scalescope.records.operations import canonical_operation


class CommunicationFamily(NamedTuple):
    """Kernels of one library: `pattern`, in lower case, is searched in the kernel's name in lower case.

    `operations`: which operation a part of its kernels' names stands for, beyond operations' own names; in lower case.
    """

    library: str
    pattern: str
    operations: Mapping[str, str] = MappingProxyType({})


#: Names by which communication kernels of each library are known. Specific before general.
FAMILIES = (
    CommunicationFamily("NCCL/RCCL", r"nccl(dev)?kernel|ncclsymk?(dev)?|^nccl|rccl"),
    CommunicationFamily("MSCCL++", r"mscclpp|mscclkernel|msccl_"),
    CommunicationFamily("DeepEP", r"deep_ep::|internode::(dispatch|combine|notify|cached|get_dispatch)|internode_ll::"
                                  r"|intranode::(dispatch|combine|notify|cached|barrier)"),
    CommunicationFamily("NVSHMEM", r"nvshmem|rocshmem"),
    CommunicationFamily("vLLM/SGLang custom all-reduce",
                        r"cross_device_reduce_(1|2)stage|(^|\W)allreduce_prototype_twoshot",
                        {"cross_device_reduce": "all_reduce"}),
    CommunicationFamily("TensorRT-LLM/FlashInfer",
                        r"allreduce_fusion_kernel|(one|two)shotallreduce|lamport_?style|moe_?alltoall"
                        r"|allreduce_?(one|two)shot"),
    CommunicationFamily("AITER", r"aiter::.*(allreduce|reduce_scatter|all_?gather|cross_device_reduce)|quickreduce"
                                 r"|quick_all_reduce"),
    CommunicationFamily("torch symmetric memory",
                        r"(one|two)_shot_all_reduce|multimem_(one_shot_)?(all_reduce|all_gather)"
                        r"|symm_mem|all_to_all_vdev"),
    CommunicationFamily("Transformer Engine's user buffers", r"userbuffers_|\bub_(all|reduce)"),
    CommunicationFamily("Intel oneCCL", r"oneccl|ccl_kernel"),
)  # fmt: skip

_NAME = re.compile("|".join(f"(?:{family.pattern})" for family in FAMILIES))

#: NCCL's kernels over buffers that are symmetric windows (2.27 has them without the k).
_SYMMETRIC_KERNEL = re.compile(r"ncclSymk?DevKernel")

#: Operators that torch has for devices alone, by what they are called or begin with: where nothing of a device was
#: recorded they tell that one worked. A compiled region's kernels and collectives are called so on the host, too.
_ON_DEVICES = frozenset(
    f"aten::{name}"
    for name in (
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention", "_flash_attention_forward",
        "_efficient_attention_forward", "_flash_attention_backward", "_efficient_attention_backward",
        "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "_fused_dropout",
    )
)  # fmt: skip
_BEGIN_ON_DEVICES = ("aten::cudnn_", "aten::_cudnn_", "aten::miopen_", "nccl:", "rccl:", "triton_")
#: What torch asks on CPUs, too: an LSTM or GRU of any device asks first whether cuDNN would take its input.
_ASKS_OF_DEVICES = "aten::cudnn_is_acceptable"

#: CPU operations that hand a collective over or wait for one: no compute on the thread that runs them.
HANDOVER_OPS = ("c10d::", "_c10d_functional::", "c10d_functional::", "_dtensor::", "record_param_comms")

#: Frames that the autograd engine puts around a node and its hooks: no operators themselves. FSDP gathers and reduces
#: in such hooks, blocking, and what they block is no compute.
ENGINE_FRAMES = ("autograd::engine::evaluate_function", "RegisterPostBackwardFunctionBackward")

#: What stands around compilation alone, as Dynamo and Inductor annotate it, whichever torch since 2.1 wrote it.
COMPILING = re.compile(
    r".*\(dynamo_timed\)$|(dynamo|entire_(frame|backward)_compile|backend_compile|inductor_(compile|code_gen))$"
    r"|(compile_attempt_\d+|aot_autograd|_recursive_(pre|joint|post)_grad_passes|async_compile\.wait)$"
    r"|.*CachingAutotuner\.(benchmark|coordinate)"
)

#: `record_param_comms` rows that move no data.
NO_COLLECTIVE = frozenset({"wait", "startcoalescing", "endcoalescing", "init", "allgather_coalesced_wait"})

_OPERATIONS = {part: operation for family in FAMILIES for part, operation in family.operations.items()}
_KERNEL_OPERATION = re.compile(
    "|".join([r"all_?reduce", r"all_?gather(?:v)?", r"reduce_?scatter", r"all_?to_?all(?:v)?", r"broadcast",
              r"send_?recv", *map(re.escape, _OPERATIONS)]),
    re.IGNORECASE,
)  # fmt: skip
_KERNEL_DTYPE = re.compile(r"_(bf16|f16|f32|f64|i8|u8|i32|u32|i64|u64|f8e4m3|f8e5m2)_")
_KERNEL_DTYPES = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "i8": "int8", "u8": "uint8",
    "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}  # fmt: skip


@functools.lru_cache(maxsize=4096)  # every rank has the same names, and each step of reading asks; names are capped
def is_communication_kernel(name: str) -> bool:
    """Tell by its name alone whether a kernel belongs to a communication library."""
    return _NAME.search(name.lower()) is not None


def is_symmetric_kernel(name: str) -> bool:
    """Tell by its name whether a kernel is one that NCCL has for symmetric windows alone."""
    return _SYMMETRIC_KERNEL.match(name) is not None


def operation_of_kernel(name: str) -> str | None:
    """Return the operation a kernel's name tells, or None (RCCL's generic kernels tell none)."""
    match = _KERNEL_OPERATION.search(name)
    if match is None:
        return None
    return _OPERATIONS.get(match[0].lower()) or canonical_operation(match[0])


def dtype_of_kernel(name: str) -> str | None:
    """Return the dtype an NCCL kernel's name tells, or None."""
    match = _KERNEL_DTYPE.search(name)
    return _KERNEL_DTYPES[match[1]] if match else None


def runs_on_a_device(operator: str) -> bool:
    """Tell whether torch has an operator for devices alone."""
    return operator in _ON_DEVICES or (operator.startswith(_BEGIN_ON_DEVICES) and operator != _ASKS_OF_DEVICES)
