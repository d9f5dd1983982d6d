"""The matrix product's measured ceiling: what this device reaches on random data, beside what its data sheet says."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from scalescope.hardware.fp8 import fp8_dtype, fp8_product
from scalescope.hardware.peaks import find_peak
from scalescope.records.rows import Ceilings

_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def measure_matmul(device: torch.device, precision: str) -> tuple[float, str]:
    """Return the TFLOP/s of a square matrix product (2n³ FLOPs, best of nine) and what was measured.

    The best, since it is a ceiling: whatever else the machine does can only lower it.
    """
    size = 8192 if device.type == "cuda" else 1024
    used = precision if device.type == "cuda" else "fp32"
    with prepared_product(device, used, (size, size, size)) as (product, name):
        for _ in range(3):
            product()
        times_s = [time_once(product, device) for _ in range(9)]
    return 2 * size**3 / min(times_s) / 1e12, f"{size}³ {name}"


@contextmanager
def prepared_product(
    device: torch.device, precision: str, shape: tuple[int, int, int]
) -> Iterator[tuple[Callable[[], torch.Tensor], str]]:
    """Yield a product (m, k) × (k, n) of random matrices, ready to be called, and what it multiplies in.

    `shape` is m, n, k. Random data: zeros run some 13% faster on an H200, since they toggle no bits and draw less
    power.
    """
    m, n, k = shape
    fp8 = precision == "fp8"
    dtype = _DTYPES.get(precision, torch.bfloat16)
    generator = torch.Generator(device=device).manual_seed(0)
    left = torch.randn(m, k, device=device, generator=generator).to(dtype)
    right = torch.randn(n, k, device=device, generator=generator).to(dtype).t()
    if fp8:  # columns that lie one after another: the layout that its matrix units read
        left, right = left.to(fp8_dtype()), right.t().to(fp8_dtype()).t()
    else:
        right = right.contiguous()
    product = fp8_product if fp8 else torch.matmul
    was_tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    name = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "fp8" if fp8 else _NAMES[dtype]
    try:
        yield lambda: product(left, right), name
    finally:
        torch.backends.cuda.matmul.allow_tf32 = was_tf32


def multiplied_in(precision: str) -> str:
    """Return what a device multiplies in where a job asks for a precision: torch may refuse tf32.

    A ROCm torch refuses it unless HIPBLASLT_ALLOW_TF32=1 (before 2.10), and products are then in fp32.
    """
    if precision != "tf32":
        return precision
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "fp32"
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def ceilings(device: torch.device, device_name: str, precision: str) -> Ceilings:
    """Return the data sheet's and the measured ceiling of one device for a precision."""
    measured, shape = measure_matmul(device, precision)
    peak = find_peak(device_name) if device.type == "cuda" else None
    if peak is None:
        return Ceilings(matmul_tflops=measured, matmul_shape=shape)
    used = multiplied_in(precision)
    return Ceilings(
        peak_tflops=peak.tflops(used),
        peak_dtype=used,
        peak_source=peak.source,
        matmul_tflops=measured,
        matmul_shape=shape,
        memory_tb_s=peak.memory_tb_s,
        link_gb_s=peak.link_gb_s,
        link_topology=peak.topology,
        achievable_tflops=peak.achievable.tflops(used) if peak.achievable is not None else None,
        achievable_source=peak.achievable.source if peak.achievable is not None else None,
    )


def time_once(work: Callable[[], object], device: torch.device) -> float:
    """Return the seconds that a call takes: on a GPU between two events on its stream, else by the host's clock."""
    if device.type != "cuda":
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3
