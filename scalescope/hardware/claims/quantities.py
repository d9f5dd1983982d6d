"""What can be claimed, one row a quantity: its unit, how figures of it are held against each other, and its limit.

A quantity is read as a rate, of which more is better; a limit is what physics allows of that rate. Formulas:
all-reduce busbw = S ÷ t × 2(n − 1)/n, as nccl-tests; decoding one sequence reads all weights and the cache for a token,
so that tokens/s ≤ memory bandwidth ÷ their bytes (llama.cpp's bound), and b sequences at once share the pass over the
weights, each with a cache of its own, as far as the matrix units allow; training images/s ≤ peak ÷ FLOPs an image.
"""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

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
    of_collective: bool = False  # its reading needs the bytes and the devices of a collective
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
    told = claim.conditions.memory_gb
    one_gb = told or peak.memory_gb
    if needed is None or one_gb is None:
        return None
    held = claim.conditions.devices * one_gb
    count = f"{claim.conditions.devices} × " if claim.conditions.devices > 1 else ""
    teller = ", as its driver counts it" if told else ""
    return Bound(held, f"the memory of {count}{peak.device}{teller}") if needed > held else None


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
    """Return the lower of two bounds: of the memory, whose pass over the weights a batch shares, and of the peak.

    Without a batch the memory bounds nothing: with enough sequences the pass costs each of them little.
    """
    weights, model = weights_gb(claim.conditions), model_of(claim.conditions)
    if weights is None or model is None:
        return None
    n, batch = claim.conditions.devices, claim.conditions.batch
    tflops, units = _units_for(claim.conditions.bits_per_weight or 16, peak)
    flops = 2 * model.parameters
    by_units = Bound(
        n * tflops * 1e12 / flops, f"{shown(n * tflops)} TFLOP/s ({units}) ÷ {shown(flops / 1e9)} GFLOP a token"
    )
    if batch is None:
        return by_units
    cache = batch * model.cache_bytes_per_token * (claim.conditions.context or 0) / 1e9
    read = f"{shown(weights)} GB of weights" + (f" and {shown(cache)} GB of cache" if cache else "")
    at_once = f"{batch} × " if batch > 1 else ""
    by_memory = Bound(batch * n * peak.memory_tb_s * 1e3 / (weights + cache),
                      f"{at_once}{shown(n * peak.memory_tb_s)} TB/s ÷ {read}")  # fmt: skip
    return min(by_memory, by_units, key=lambda one: one.value)


def _units_for(bits_per_weight: float, peak: Peak) -> tuple[float, str]:
    """Return the most that matrix units do with weights of so many bits, TFLOP/s, and in which numbers.

    Data sheets list no integers here: INT8 runs at most at twice fp16's rate (A100: 624 of 312), 4 bits at four times.
    """
    fp16 = peak.tflops("fp16") or 0.0
    if bits_per_weight > 8:
        return fp16, "fp16"
    if bits_per_weight <= 4:
        return 4 * fp16, "4 bit: at most 4 × fp16"
    return (peak.fp8_tflops, "fp8") if peak.fp8_tflops is not None else (2 * fp16, "INT8: at most 2 × fp16")


def _decode_formula(claim: Claim, peak: Peak | None) -> Bound | None:
    if peak is None:
        return None
    alone = replace(claim, conditions=replace(claim.conditions, batch=claim.conditions.batch or 1))
    return _decode_limit(alone, peak)


def _weights(claim: Claim, peak: Peak | None) -> Bound | None:
    needed, model, bits = weights_gb(claim.conditions), model_of(claim.conditions), claim.conditions.bits_per_weight
    if needed is None or model is None or bits is None:
        return None
    return Bound(needed, f"{shown(model.parameters / 1e9)}·10⁹ weights × {shown(bits)} bit")


def _cache(claim: Claim, peak: Peak | None) -> Bound | None:
    model, context = model_of(claim.conditions), claim.conditions.context
    if model is None or context is None:
        return None
    gb = model.cache_bytes_per_token * context * (claim.conditions.batch or 1) / 1e9
    heads = f"2 × {model.layers} layers × {model.key_value_heads} heads × {model.head_width} × 2 B"
    return Bound(gb, f"{heads} × {context:,} tokens")


QUANTITIES = {
    "peak": Quantity("TFLOP/s", "a data sheet's matrix rate", _peak),
    "matmul": Quantity("TFLOP/s", "a matrix product, 2·m·n·k FLOPs", _peak),
    "attention": Quantity("TFLOP/s", "scaled dot-product attention", _peak),
    "memory_bandwidth": Quantity("TB/s", "bytes read and written in device memory", _memory_bandwidth),
    "host_copy": Quantity("GB/s", "a copy between host and device"),
    "launch_latency": Quantity("µs", "from one tiny kernel's launch to the next one's"),
    "all_reduce_busbw": Quantity("GB/s", "an all-reduce's bus bandwidth", _bus_limit),
    "all_reduce_time": Quantity("ms", "its time", _bus_limit, read=_bus_of_time, held_as="all_reduce_busbw",
                                of_collective=True),
    "all_reduce_latency": Quantity("µs", "the time of an all-reduce of a few bytes"),
    "training_samples": Quantity("images/s", "images trained on a device", _samples, by_device=True),
    "training_tokens": Quantity("tokens/s", "tokens trained on a device", _samples, by_device=True),
    "training_sequences": Quantity("sequences/s", "sequences trained on a device", _samples, by_device=True),
    "device_throughput": Quantity("samples/s", "samples of any kind trained on a device", _samples, by_device=True),
    "system_throughput": Quantity("samples/s", "samples trained on a whole system"),
    "time_to_target": Quantity("min", "from the first step to a quality"),
    "training_flops": Quantity("TFLOP/s", "a model's FLOPs in training, a device", _peak, by_device=True),
    "energy": Quantity("J", "energy a sample or token"),
    "decode": Quantity("tokens/s", "tokens decoded, all sequences together", _decode_limit, memory=True),
    "decode_bound": Quantity("tokens/s", "the bound of decoding one sequence", formula=_decode_formula),
    "weights": Quantity("GB", "a model's weights, in these devices' memory", formula=_weights, memory=True),
    "kv_cache": Quantity("GB", "a context's keys and values", formula=_cache),
    "ratio": Quantity("×", "one figure of a source over another"),
}  # fmt: skip
