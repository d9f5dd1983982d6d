"""In-situ efficiency: what a collective takes alone, as the sweep measured it, over its transfer time in training."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from records.rows import SweepRow
from scaling.answer import Collective

#: Smaller collectives are latency, which the sweep and the profiler see too differently to compare.
SMALLEST_BYTES = 1 << 20


def add_in_situ_efficiency(collectives: Iterable[Collective], sweep: Sequence[SweepRow]) -> None:
    """Fill in `in_situ_efficiency` where the sweep has the operation, dtype and group size, and brackets the size."""
    curves: dict[tuple[str, str, int], dict[int, float]] = {}
    for row in sweep:
        if row.status != "measured" or row.time_us is None or row.execution != "eager":
            continue
        curve = curves.setdefault((row.operation, row.dtype, row.group_size), {})
        curve[row.bytes] = min(row.time_us, curve.get(row.bytes, math.inf))
    for one in collectives:
        if one.bytes is None or one.bytes < SMALLEST_BYTES or one.dtype is None or not one.transfer_us:
            continue
        curve = curves.get((one.operation, one.dtype, one.group_size or 0), {})
        alone = _interpolate(curve, one.bytes)
        if alone is not None:
            one.in_situ_efficiency = alone / one.transfer_us


def _interpolate(curve: dict[int, float], size: int) -> float | None:
    """Return the time at a size by log-log interpolation; None beyond what was measured."""
    sizes = sorted(curve)
    at = bisect_left(sizes, size)
    if at < len(sizes) and sizes[at] == size:
        return curve[size]
    if at == 0 or at == len(sizes):
        return None
    low, high = sizes[at - 1], sizes[at]
    share = math.log(size / low) / math.log(high / low)
    return math.exp(math.log(curve[low]) * (1 - share) + math.log(curve[high]) * share)
