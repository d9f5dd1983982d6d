"""What is communication: the tables of kernel-name families, operation names and element sizes.

A kernel is communication by the profiler's own metadata first, by the CPU operation that launched it second, and by its
name last; only the last needs the families below. Extending one is a line.
"""

import re
from typing import NamedTuple


class Family(NamedTuple):
    """Kernels of one library: `pattern` is searched in the kernel's name, without regard to case."""

    library: str
    pattern: str


#: Names by which communication kernels of each library are known. Specific before general.
FAMILIES = (
    Family("NCCL/RCCL", r"nccl(dev)?kernel|ncclsymk?(dev)?|^nccl|rccl"),
    Family("MSCCL++", r"mscclpp|mscclKernel|msccl_"),
    Family("DeepEP", r"deep_ep::|internode::(dispatch|combine|notify|cached|get_dispatch)|internode_ll::"
                     r"|intranode::(dispatch|combine|notify|cached|barrier)"),
    Family("NVSHMEM", r"nvshmem|rocshmem"),
    Family("vLLM/SGLang custom all-reduce", r"cross_device_reduce_(1|2)stage|(^|\W)allreduce_prototype_twoshot"),
    Family("TensorRT-LLM/FlashInfer", r"allreduce_fusion_kernel|(one|two)shotallreduce|lamport_?style|moe_?alltoall"
                                      r"|allreduce_?(one|two)shot"),
    Family("AITER", r"aiter::.*(allreduce|reduce_scatter|all_?gather|cross_device_reduce)|quickreduce"
                    r"|quick_all_reduce"),
    Family("torch symmetric memory", r"(one|two)_shot_all_reduce|multimem_(one_shot_)?(all_reduce|all_gather)"
                                     r"|symm_mem|all_to_all_vdev"),
    Family("Intel oneCCL", r"oneccl|ccl_kernel"),
)  # fmt: skip

_NAME = re.compile("|".join(f"(?:{family.pattern})" for family in FAMILIES), re.IGNORECASE)

#: CPU operations that hand a collective over or wait for one: no compute on the thread that runs them.
HANDOVER_OPS = ("c10d::", "_c10d_functional::", "c10d_functional::", "_dtensor::", "record_param_comms")

#: Frames that the autograd engine puts around a node and its hooks: no operators themselves. FSDP gathers and reduces
#: in such hooks, blocking, and what they block is no compute.
ENGINE_FRAMES = ("autograd::engine::evaluate_function", "RegisterPostBackwardFunctionBackward")

#: `record_param_comms` rows that move no data.
NO_COLLECTIVE = frozenset({"wait", "startcoalescing", "endcoalescing", "init", "allgather_coalesced_wait"})

#: Canonical operation names, by the squashed spelling (lower case, letters only) of whatever a trace calls it.
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allreducecoalesced": "all_reduce",
    "allreducesparse": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherinto": "all_gather",
    "allgatherintotensor": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "allgathercoalesced": "all_gather",
    "allgathersingle": "all_gather",
    "allgatherv": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "reducescattercoalesced": "reduce_scatter",
    "reducescattersingle": "reduce_scatter",
    "reducescatterv": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallbase": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallsingle": "all_to_all",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "reduceoop": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "send_recv",
    "recv": "send_recv",
    "recvanysource": "send_recv",
    "sendrecv": "send_recv",
}

#: Element sizes in bytes, by the names that c10 and Kineto use.
_DTYPE_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "c10::half": 2, "c10::bfloat16": 2,
    "byte": 1, "char": 1, "bool": 1, "short": 2, "int": 4, "long": 8, "long int": 8, "unsigned char": 1,
    "signed char": 1, "uint16": 2, "uint32": 4, "uint64": 8, "complexfloat": 8, "complexdouble": 16,
    "c10::complex<float>": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "c10::float8_e4m3fn": 1,
    "c10::float8_e5m2": 1,
}  # fmt: skip

#: One name a dtype in the answer, whoever named it.
_DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "c10::half": "float16", "bfloat16": "bfloat16",
    "c10::bfloat16": "bfloat16", "byte": "uint8", "unsigned char": "uint8", "char": "int8", "signed char": "int8",
    "short": "int16", "int": "int32", "long": "int64", "long int": "int64", "bool": "bool",
    "c10::float8_e4m3fn": "float8_e4m3fn", "c10::float8_e5m2": "float8_e5m2",
}  # fmt: skip

_KERNEL_OPERATION = re.compile(
    r"(all_?reduce|all_?gather(?:v)?|reduce_?scatter|all_?to_?all(?:v)?|broadcast|send_?recv|cross_device_reduce)",
    re.IGNORECASE,
)
_KERNEL_DTYPE = re.compile(r"_(bf16|f16|f32|f64|i8|u8|i32|u32|i64|u64|f8e4m3|f8e5m2)_")
_KERNEL_DTYPES = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "i8": "int8", "u8": "uint8",
    "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}  # fmt: skip

#: Where all members send and all receive: none ends before the last has started.
SYMMETRIC = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
FROM_ROOT = frozenset({"broadcast", "scatter"})
TO_ROOT = frozenset({"reduce", "gather"})


def is_communication_kernel(name: str) -> bool:
    """Tell by its name alone whether a kernel belongs to a communication library."""
    return _NAME.search(name) is not None


def operation_of(name: str) -> str:
    """Return the canonical operation for a `Collective name` or an annotation such as `gloo:all_reduce`."""
    bare = name.rsplit(":", 1)[-1]
    squashed = re.sub(r"[^a-z]", "", bare.lower())
    return _OPERATIONS.get(squashed, bare)


def operation_of_kernel(name: str) -> str | None:
    """Return the operation a kernel's name tells, or None (RCCL's generic kernels tell none)."""
    match = _KERNEL_OPERATION.search(name)
    if match is None:
        return None
    return "all_reduce" if match[1].lower() == "cross_device_reduce" else operation_of(match[1])


def dtype_of_kernel(name: str) -> str | None:
    """Return the dtype an NCCL kernel's name tells, or None."""
    match = _KERNEL_DTYPE.search(name)
    return _KERNEL_DTYPES[match[1]] if match else None


def dtype_of(name: str) -> str:
    """Return the one name for a dtype as c10 or Kineto spells it."""
    return _DTYPES.get(name.lower(), name.lower())


def element_bytes(name: str) -> int | None:
    """Return the size of one element, or None for a dtype that is not in the table."""
    return _DTYPE_BYTES.get(name.lower())


def bus_factor(operation: str, group_size: int) -> float | None:
    """Return busbw / algbw as nccl-tests defines it, or None for an operation without one."""
    n = group_size
    if operation == "all_reduce":
        return 2 * (n - 1) / n
    if operation in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (n - 1) / n
    return 1.0 if operation in ("broadcast", "reduce", "send_recv") else None
