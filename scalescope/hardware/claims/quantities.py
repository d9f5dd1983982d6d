"""What can be claimed, one row a quantity: its unit, how figures of it are held against each other, and its limit.

A quantity is read as a rate, of which more is better; a limit is what physics allows of that rate. Formulas:
all-reduce busbw = S ÷ t × 2(n − 1)/n, as nccl-tests; decoding one sequence reads all weights and the cache for a token,
so that tokens/s ≤ memory bandwidth ÷ their bytes (llama.cpp's bound); training images/s ≤ peak ÷ FLOPs an image.
"""

from collections.abc import Callable
from dataclasses import dataclass

from scalescope.hardware.claims.claim import Claim
from scalescope.hardware.claims.language_models import LANGUAGE_MODELS, LanguageModel
from scalescope.hardware.link_ceiling import in_switch_ceiling_gb_s, link_ceiling_gb_s
from scalescope.hardware.peaks import Peak
from scalescope.records.operations import OPERATION_FACTS
from scalescope.records.scorecard.row import Conditions


@dataclass(frozen=True)
class Reading:
    """A figure as it is held against others, and the arithmetic that made it (empty: it is the figure itself)."""

    value: float
    unit: str
    how: str = ""


@dataclass(frozen=True)
class Bound:
    """A limit, or what a formula gives, in the reading's unit, and what it assumes."""

    value: float
    assumes: str


def shown(value: float) -> str:
    """Return a figure with four digits, or all those before its point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


LimitOf = Callable[[Claim, Peak], Bound | None]


@dataclass(frozen=True)
class Quantity:
    """One thing that can be claimed."""

    unit: str
    says: str
    limit: LimitOf = lambda claim, peak: None
    formula: Callable[[Claim, Peak | None], Bound | None] = lambda claim, peak: None
    read: Callable[[Claim], Reading] | None = None
    held_as: str = ""  # the quantity whose published figures it is held against; empty: itself
    memory: bool = False  # it takes the model's weights to lie in the devices' memory
    by_device: bool = False  # of one device, whatever the number of devices that work together

    def reading(self, claim: Claim) -> Reading:
        return self.read(claim) if self.read is not None else Reading(claim.highest, self.unit)


def model_of(conditions: Conditions) -> LanguageModel | None:
    """Return the language model that a figure is of, where its size is known."""
    return LANGUAGE_MODELS.get(conditions.model or "")


def weights_gb(conditions: Conditions) -> float | None:
    """Return the bytes of a model's weights, in GB; None where model or bits are not told."""
    model = model_of(conditions)
    if model is None or conditions.bits_per_weight is None:
        return None
    return model.weights_gb(conditions.bits_per_weight)


def memory_obstacle(claim: Claim, peak: Peak) -> Bound | None:
    """Return the memory that does not hold a model's weights; None where it does, or nothing is known of it."""
    needed = weights_gb(claim.conditions)
    if needed is None or peak.memory_gb is None:
        return None
    held = claim.conditions.devices * peak.memory_gb
    count = f"{claim.conditions.devices} × " if claim.conditions.devices > 1 else ""
    return Bound(held, f"the memory of {count}{peak.device}") if needed > held else None


def _peak(claim: Claim, peak: Peak) -> Bound | None:
    precision = claim.conditions.precision or "bf16"
    tflops = peak.tflops(precision)
    if tflops is None:
        return None
    assumes = f"{peak.device}'s dense {precision} peak, {shown(tflops)} TFLOP/s"
    units = claim.conditions.compute_units
    return Bound(tflops, assumes) if units is None else Bound(tflops / units, f"{assumes} ÷ {units} units")


def _samples(claim: Claim, peak: Peak) -> Bound | None:
    flops, dense = claim.conditions.flops_per_sample, _peak(claim, peak)
    if flops is None or dense is None:
        return None
    return Bound(dense.value * 1e12 / flops, f"{dense.assumes} ÷ {flops / 1e9:.3g} GFLOP each")


def _memory_bandwidth(claim: Claim, peak: Peak) -> Bound | None:
    return Bound(peak.memory_tb_s, f"{peak.device}'s data sheet")


def _bus_limit(claim: Claim, peak: Peak) -> Bound | None:
    """Return the most that the links allow, by a ring, or where the claim does not rule it out inside the switch."""
    size = claim.conditions.devices
    if size < 2:
        return None
    ring = link_ceiling_gb_s(peak, size)
    in_switch = None if claim.conditions.in_switch is False else in_switch_ceiling_gb_s(peak, size)
    known = [Bound(*one) for one in (ring, in_switch) if one is not None]
    return max(known, key=lambda one: one.value, default=None)


def _bus_of_time(claim: Claim) -> Reading:
    size, n = claim.conditions.bytes or 0, claim.conditions.devices
    factor = OPERATION_FACTS["all_reduce"].bus_factor(n) or 0.0
    bus = size / (claim.value / 1e3) / 1e9 * factor
    how = f"{shown(size / 1e9)} GB ÷ {shown(claim.value)} ms × 2 × {n - 1} ÷ {n} = {shown(bus)} GB/s"
    return Reading(bus, "GB/s", how)


def _decode_limit(claim: Claim, peak: Peak) -> Bound | None:
    """Return the bound of the memory for one sequence; for many, which share a pass over the weights, of the peak."""
    weights, model = weights_gb(claim.conditions), model_of(claim.conditions)
    if weights is None or model is None:
        return None
    n = claim.conditions.devices
    if claim.conditions.batch == 1:
        cache = model.cache_bytes_per_token * (claim.conditions.context or 0) / 1e9
        read = f"{shown(weights)} GB of weights" + (f" and {shown(cache)} GB of cache" if cache else "")
        return Bound(n * peak.memory_tb_s * 1e3 / (weights + cache), f"{shown(n * peak.memory_tb_s)} TB/s ÷ {read}")
    precision = "fp8" if (claim.conditions.bits_per_weight or 16) <= 8 and peak.fp8_tflops else "fp16"
    tflops = n * (peak.tflops(precision) or 0.0)
    flops = 2 * model.parameters
    return Bound(tflops * 1e12 / flops, f"{shown(tflops)} TFLOP/s ({precision}) ÷ {shown(flops / 1e9)} GFLOP a token")


def _decode_formula(claim: Claim, peak: Peak | None) -> Bound | None:
    return _decode_limit(claim, peak) if peak is not None else None


def _cache(claim: Claim, peak: Peak | None) -> Bound | None:
    model, context = model_of(claim.conditions), claim.conditions.context
    if model is None or context is None:
        return None
    gb = model.cache_bytes_per_token * context * (claim.conditions.batch or 1) / 1e9
    heads = f"2 × {model.layers} layers × {model.key_value_heads} heads × {model.head_width} × 2 B"
    return Bound(gb, f"{heads} × {context:,} tokens = {shown(gb)} GB")


QUANTITIES = {
    "peak": Quantity("TFLOP/s", "a data sheet's matrix rate", _peak),
    "matmul": Quantity("TFLOP/s", "a matrix product, 2·m·n·k FLOPs", _peak),
    "attention": Quantity("TFLOP/s", "scaled dot-product attention", _peak),
    "memory_bandwidth": Quantity("TB/s", "bytes read and written in device memory", _memory_bandwidth),
    "host_copy": Quantity("GB/s", "a copy between host and device"),
    "launch_latency": Quantity("µs", "from one tiny kernel's launch to the next one's"),
    "all_reduce_busbw": Quantity("GB/s", "an all-reduce's bus bandwidth", _bus_limit),
    "all_reduce_time": Quantity("ms", "its time", _bus_limit, read=_bus_of_time, held_as="all_reduce_busbw"),
    "all_reduce_latency": Quantity("µs", "the time of an all-reduce of a few bytes"),
    "training_samples": Quantity("images/s", "images trained on a device", _samples, by_device=True),
    "training_tokens": Quantity("tokens/s", "tokens trained on a device", _samples, by_device=True),
    "training_sequences": Quantity("sequences/s", "sequences trained on a device", _samples, by_device=True),
    "system_throughput": Quantity("samples/s", "samples trained on a whole system"),
    "time_to_target": Quantity("min", "from the first step to a quality"),
    "training_flops": Quantity("TFLOP/s", "a model's FLOPs in training, a device", _peak, by_device=True),
    "energy": Quantity("J", "energy a sample or token"),
    "decode": Quantity("tokens/s", "tokens decoded, all sequences together", _decode_limit, memory=True),
    "decode_bound": Quantity("tokens/s", "the bound of decoding one sequence", formula=_decode_formula, memory=True),
    "weights": Quantity("GB", "a model's weights, in these devices' memory", memory=True),
    "kv_cache": Quantity("GB", "a context's keys and values", formula=_cache),
    "ratio": Quantity("×", "one figure of a source over another"),
}  # fmt: skip
