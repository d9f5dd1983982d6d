"""What is tried in this process, on its first device: events, graphs, our kernels, fp8, and the energy counter."""

import math
import time

import torch
from torch import Tensor
from torch.nn import functional as F

from scalescope.hardware.detect import describe
from scalescope.hardware.energy import EnergyCounter, energy_counter_of
from scalescope.hardware.fp8 import fp8_dtype, fp8_obstacle, fp8_product
from scalescope.selftest.item import CannotError, DiffersError, Figure
from scalescope.train.kernels.cross_entropy import can_fuse, linear_cross_entropy
from scalescope.train.kernels.devices import triton_takes
from scalescope.train.kernels.max_pool import max_pool

_CLOCKS_AGREE = 0.1
_FP8_ERROR = 0.05  # of the product's norm: four bits of mantissa, rounded once
_POWERS_AGREE = 0.25  # the counter's mean against readings now and then, some of which lag
_BUSY_S = 2.0

Outcome = tuple[str, dict[str, Figure]]


def check_events(device: torch.device) -> Outcome:
    """Device events measure what the host's clock does, over work that fills both."""
    _needs_gpu(device)
    matrix = torch.randn(4096, 4096, device=device)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    _multiply(matrix, 5)
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    start.record()
    _multiply(matrix, 200)
    end.record()
    end.synchronize()
    host_ms, device_ms = (time.perf_counter() - began) * 1e3, float(start.elapsed_time(end))
    figures: dict[str, Figure] = {"host_ms": host_ms, "device_ms": device_ms}
    if abs(device_ms - host_ms) > _CLOCKS_AGREE * host_ms:
        raise DiffersError(f"events say {device_ms:.1f} ms, the host's clock {host_ms:.1f} ms", figures)
    return f"events say {device_ms:.1f} ms, the host's clock {host_ms:.1f} ms", figures


def check_graphs(device: torch.device) -> Outcome:
    """A captured graph gives what the same calls give, also with other numbers in the same memory."""
    _needs_gpu(device)
    source = torch.randn(1024, 1024, device=device)
    weights = torch.randn(1024, 1024, device=device)

    def work() -> Tensor:
        return torch.tanh(source @ weights) @ weights

    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    worst = 0.0
    for seed in range(3):
        torch.manual_seed(seed)
        source.copy_(torch.randn_like(source))
        graph.replay()
        worst = max(worst, float((result - work()).abs().max()))
    figures: dict[str, Figure] = {"largest_difference": worst}
    if worst > 1e-3:
        raise DiffersError(f"a replayed graph is off by {worst:g}", figures)
    return "a replayed graph gives what its calls give", figures


def check_kernels(device: torch.device) -> Outcome:
    """Our Triton kernels give what torch's own operations give, with the same gradients."""
    if not triton_takes(device, torch.float32):
        raise CannotError("our kernels are Triton's, which builds none for this device")
    torch.manual_seed(0)
    worst: dict[str, Figure] = {}
    images = torch.randn(4, 64, 56, 56, device=device).relu().to(memory_format=torch.channels_last)
    worst["max_pool"] = _apart(max_pool, lambda x: F.max_pool2d(x, 3, stride=2, padding=1), images)
    if can_fuse(device, torch.bfloat16):
        rows = torch.randn(512, 256, device=device, dtype=torch.bfloat16)
        weight = torch.randn(4096, 256, device=device, dtype=torch.bfloat16) / 16
        targets = torch.randint(0, 4096, (512,), device=device)
        worst["cross_entropy"] = _apart(
            lambda x: linear_cross_entropy(x, weight, targets), lambda x: F.cross_entropy(F.linear(x, weight), targets),
            rows,
        )  # fmt: skip
    off = [name for name, apart in worst.items() if isinstance(apart, float) and not apart < 0.02]
    if off:
        raise DiffersError(f"{' and '.join(off)} give other numbers than torch's own", worst)
    return f"{' and '.join(worst)} give what torch's own give", worst


def check_fp8(device: torch.device) -> Outcome:
    """A product of fp8 matrices is the product of the same numbers, in the layout that the device has."""
    if device.type == "cuda" and (obstacle := fp8_obstacle()):
        raise CannotError(obstacle)
    kind = fp8_dtype() if device.type == "cuda" else torch.float8_e4m3fn
    torch.manual_seed(0)
    left, right = (torch.randn(512, 512, device=device) for _ in range(2))
    left, right = left.to(kind), right.t().contiguous().to(kind).t()
    expected = left.float() @ right.float()
    error = float((fp8_product(left, right).float() - expected).norm() / expected.norm())
    figures: dict[str, Figure] = {"relative_error": error, "layout": str(kind).removeprefix("torch.")}
    if not error < _FP8_ERROR:
        raise DiffersError(f"a product in fp8 ({figures['layout']}) is off by {error:.1%}", figures)
    return f"a product in {figures['layout']} is within {error:.2%}", figures


def check_energy(device: torch.device) -> Outcome:
    """The energy counter's mean power over two busy seconds is what the power sensor reads meanwhile."""
    described = describe(0, device)
    counter = energy_counter_of(described)
    if device.type != "cuda" or counter is None:
        raise CannotError("the device tells no energy")
    counted, read = _powers(device, counter, described.partitions or 1)
    figures: dict[str, Figure] = {"counted_w": counted, "read_w": None if math.isnan(read) else read}
    if not counted > 0:
        raise DiffersError("the energy counter stands still, or goes back", figures)
    if not math.isnan(read) and abs(counted - read) > _POWERS_AGREE * read:
        raise DiffersError(f"the energy counter says {counted:.0f} W, the power sensor {read:.0f} W", figures)
    return f"the energy counter says {counted:.0f} W, the power sensor {read:.0f} W", figures


def _powers(device: torch.device, counter: EnergyCounter, partitions: int) -> tuple[float, float]:
    """Return the mean power by the counter and by readings, in watts of the whole chip; NaN where one does not tell."""
    matrix = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    _multiply(matrix, 50)  # clocks and averages settle
    torch.cuda.synchronize(device)
    began, before, readings = time.perf_counter(), counter.joules(), []
    while time.perf_counter() - began < _BUSY_S:
        _multiply(matrix, 20)
        torch.cuda.synchronize(device)
        if (power := describe(0, device).power_w) is not None:
            readings.append(power)
    passed, after = time.perf_counter() - began, counter.joules()
    counted = math.nan if before is None or after is None else partitions * (after - before) / passed
    return counted, sum(readings) / len(readings) if readings else math.nan


def _apart(ours: object, theirs: object, x: Tensor) -> float:
    """Return by how much two functions of x and their gradients differ, relative to the larger."""
    results = []
    for function in (ours, theirs):
        assert callable(function)
        leaf = x.detach().clone().requires_grad_()
        result = function(leaf)
        result.float().square().sum().backward()
        assert leaf.grad is not None
        results.append((result.detach().float(), leaf.grad.float()))
    pairs = zip(*results, strict=True)
    return max(float((one - other).norm() / other.norm().clamp_min(1e-12)) for one, other in pairs)


def _multiply(matrix: Tensor, times: int) -> None:
    for _ in range(times):
        torch.matmul(matrix, matrix)


def _needs_gpu(device: torch.device) -> None:
    if device.type != "cuda":
        raise CannotError("there is no GPU here")
