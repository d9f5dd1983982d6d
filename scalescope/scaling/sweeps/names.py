"""nccl-tests' and rccl-tests' names for what our rows name otherwise."""

OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all_v",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send_recv",
    "hypercube": "hypercube",
}
REDUCING = ("all_reduce", "reduce_scatter", "reduce")  # sendrecv_perf prints a reduction too, and has none
DTYPES = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}


def operation_of(name: str) -> str | None:
    """Return our name of a program or a collective: `all_reduce_perf`, `AllReduce`, `alltoall`; None for others."""
    plain = name.lower().removesuffix("_perf").replace("_", "")
    return next((ours for theirs, ours in OPERATIONS.items() if theirs.replace("_", "") == plain), None)


def dtype_of(name: str) -> str:
    """Return torch's name of an element type."""
    return DTYPES.get(name, name)
