"""The matrix product's measured ceiling: what this device reaches on random data, beside what its data sheet says."""

import time
from collections.abc import Callable

import torch

from scalescope.hardware.fp8 import fp8_dtype, fp8_product
from scalescope.hardware.peaks import find_peak
from scalescope.records.rows import Ceilings

_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def measure_matmul(device: torch.device, precision: str) -> tuple[float, str]:
    """Return the TFLOP/s of a square matrix product (2n³ FLOPs, best of nine) and what was measured.

    The best, since it is a ceiling: whatever else the machine does can only lower it.

    Random data: zeros run some 13% faster on an H200, since they toggle no bits and draw less power.
    """
    size = 8192 if device.type == "cuda" else 1024
    fp8 = precision == "fp8" and device.type == "cuda"
    dtype = _DTYPES.get(precision, torch.bfloat16) if device.type == "cuda" else torch.float32
    generator = torch.Generator(device=device).manual_seed(0)
    left = torch.randn(size, size, device=device, generator=generator).to(dtype)
    right = torch.randn(size, size, device=device, generator=generator).to(dtype)
    if fp8:
        left, right = left.to(fp8_dtype()), right.to(fp8_dtype()).t()  # the layout that its matrix units read
    product = fp8_product if fp8 else torch.matmul
    was_tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        for _ in range(3):
            product(left, right)
        times_s = [_time_once(product, left, right, device) for _ in range(9)]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = was_tf32
    name = precision if precision in ("tf32", "fp8") else _NAMES[dtype]
    return 2 * size**3 / min(times_s) / 1e12, f"{size}³ {name if device.type == 'cuda' else 'fp32'}"


def ceilings(device: torch.device, device_name: str, precision: str) -> Ceilings:
    """Return the data sheet's and the measured ceiling of one device for a precision."""
    measured, shape = measure_matmul(device, precision)
    peak = find_peak(device_name) if device.type == "cuda" else None
    if peak is None:
        return Ceilings(matmul_tflops=measured, matmul_shape=shape)
    return Ceilings(
        peak_tflops=peak.tflops(precision),
        peak_dtype=precision,
        peak_source=peak.source,
        matmul_tflops=measured,
        matmul_shape=shape,
        memory_tb_s=peak.memory_tb_s,
        link_gb_s=peak.link_gb_s,
        link_topology=peak.topology,
    )


def _time_once(product: Product, left: torch.Tensor, right: torch.Tensor, device: torch.device) -> float:
    if device.type != "cuda":
        started = time.perf_counter()
        product(left, right)
        return time.perf_counter() - started
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    product(left, right)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3
