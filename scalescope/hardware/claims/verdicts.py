"""What a figure is worth, with one line of arithmetic.

The first that applies: a ratio is held against the figures that it is of; what is counted otherwise is not comparable;
what the memory does not hold, or the limit does not allow, is impossible; a formula's result is held against the
formula; at last the best that is published of the same quantity on the same device tells implausible and far below.
"""

from collections.abc import Iterator

from scalescope.hardware.claims.catalog import Catalog
from scalescope.hardware.claims.claim import Claim, ClaimVerdict, JudgedClaim
from scalescope.hardware.claims.quantities import (
    QUANTITIES,
    Bound,
    Reading,
    memory_obstacle,
    model_of,
    shown,
    weights_gb,
)
from scalescope.hardware.peaks import Peak, find_peak

ABOVE_BEST = 1.1
FAR_BELOW = 0.5
USABLE = 0.95  # of a device's memory, beside what the runtime and the allocator keep of it
_ROUNDED = 0.01  # of a ratio: two figures of two digits each

_Found = tuple[ClaimVerdict | None, str]


def judge(claim: Claim, catalog: Catalog) -> JudgedClaim:
    """Return a claim's verdict. Raises UserError where nobody gives the figure."""
    source = catalog.source_of(claim)
    quantity = QUANTITIES[claim.quantity]
    peak = find_peak(claim.device) if claim.device is not None else None
    reading = quantity.reading(claim)
    limit = quantity.limit(claim, peak) if peak is not None else None
    best = _best(claim, catalog, peak)
    verdict, arithmetic = _judge(claim, catalog, peak, reading, limit, best)
    return JudgedClaim(
        id=claim.id,
        device=peak.device if peak is not None else claim.device,
        quantity=claim.quantity,
        value=claim.value,
        up_to=claim.up_to,
        unit=quantity.unit,
        conditions=claim.conditions,
        limit=limit.value if limit is not None else None,
        limit_assumes=limit.assumes if limit is not None else None,
        best=best[0] if best is not None else None,
        best_source=catalog.source_of(best[1]).title if best is not None else None,
        unit_held=reading.unit,
        verdict=verdict,
        arithmetic=arithmetic,
        source=source.title,
        source_kind=source.kind,
        link=source.link,
    )


def _judge(
    claim: Claim, catalog: Catalog, peak: Peak | None, reading: Reading, limit: Bound | None,
    best: tuple[float, Claim] | None,
) -> _Found:  # fmt: skip
    if claim.of is not None and claim.over is not None:
        return _ratio(claim, catalog.claims[claim.of], catalog.claims[claim.over])
    if (otherwise := _otherwise(claim, catalog, peak)) is not None:
        return "not_comparable", otherwise
    quantity = QUANTITIES[claim.quantity]
    if quantity.memory and peak is not None and (held := memory_obstacle(claim, peak)) is not None:
        return "impossible", _does_not_fit(claim, held)
    here = reading.how or f"{shown(reading.value)} {reading.unit}"
    if limit is not None and reading.value > limit.value:
        return "impossible", f"{here}, above {shown(limit.value)} ({limit.assumes})"
    if (formula := quantity.formula(claim, peak)) is not None:
        verdict, says = _by_formula(here, reading, formula)
        return verdict, f"{says}{_in_memory(claim, peak)}"
    of_limit = _of_limit(here, reading, limit)
    if best is not None:
        return _by_record(of_limit, reading, best, catalog, peak)
    if limit is None:
        return None, f"{here}; no limit and no published figure to hold it against"
    return "plausible", f"{of_limit}{_sharing(claim, reading, peak)}"


def _ratio(claim: Claim, of: Claim, over: Claim) -> _Found:
    """Hold a ratio against the two figures that it is of, each read as a rate."""
    upper, lower = (QUANTITIES[one.quantity].reading(one) for one in (of, over))
    ratio = upper.value / lower.value
    says = f"{shown(upper.value)} ÷ {shown(lower.value)} {lower.unit} = {ratio:.0%}"
    told = f"{claim.value:.0%}" if claim.up_to is None else f"{claim.value:.0%} to {claim.up_to:.0%}"
    if claim.value - _ROUNDED <= ratio <= claim.highest + _ROUNDED:
        return "plausible", f"{says} by the same source, which says {told}"
    return "self_contradictory", f"{says} by the same source, which says {told}"


def _otherwise(claim: Claim, catalog: Catalog, peak: Peak | None) -> str | None:
    """Return in what a figure is counted otherwise than what stands beside it; None where in nothing."""
    other = catalog.claims[claim.beside] if claim.beside is not None else None
    if claim.conditions.sparse:
        dense = claim.highest / 2
        says = f"{shown(claim.highest)} with sparsity is {shown(dense)} dense"
        if other is None or other.conditions.sparse:
            return says
        more = f"{other.highest / dense:.2f} × as much there"
        return f"{says}; beside {other.device}'s {shown(other.highest)} dense: {more}"
    if other is None:
        return None
    for name in ("precision", "batch", "model"):
        mine, theirs = getattr(claim.conditions, name), getattr(other.conditions, name)
        if mine is not None and theirs is not None and mine != theirs:
            return f"{name} {mine} here, {theirs} beside it"
    return None


def _does_not_fit(claim: Claim, held: Bound) -> str:
    model, bits = model_of(claim.conditions), claim.conditions.bits_per_weight
    needed = weights_gb(claim.conditions)
    assert model is not None and bits is not None and needed is not None
    product = f"{shown(model.parameters / 1e9)}·10⁹ weights × {shown(bits)} bit = {shown(needed)} GB"
    return f"{product}, above {shown(held.value)} GB ({held.assumes})"


def _in_memory(claim: Claim, peak: Peak | None) -> str:
    """Return that weights do not fit the devices of a figure that is arithmetic alone, and takes no run of them."""
    if peak is None or (held := memory_obstacle(claim, peak)) is None:
        return ""
    cards = "one card" if claim.conditions.devices == 1 else f"{claim.conditions.devices} cards"
    return f"; but the weights do not fit {cards}: {_does_not_fit(claim, held)}"


def _by_formula(here: str, reading: Reading, formula: Bound) -> _Found:
    share = reading.value / formula.value
    says = f"{here}; {formula.assumes} gives {shown(formula.value)} {reading.unit}"
    if share > ABOVE_BEST:
        return "implausible", f"{says}: {share:.2f} × too high"
    if share < FAR_BELOW:
        return "far_below", f"{says}: {share:.0%} of it"
    if share < 1 / ABOVE_BEST:
        return "implausible", f"{says}: {share:.0%} of it"
    return "plausible", f"{says}: the arithmetic is right"


def _of_limit(here: str, reading: Reading, limit: Bound | None) -> str:
    if limit is None:
        return here
    return f"{here}, {reading.value / limit.value:.1%} of {shown(limit.value)} ({limit.assumes})"


def _by_record(
    of_limit: str, reading: Reading, best: tuple[float, Claim], catalog: Catalog, peak: Peak | None
) -> _Found:
    value, record = best
    share = reading.value / value
    elsewhere = find_peak(record.device or "") != peak
    whose = f"{record.device}'s " if elsewhere else ""
    says = f"{of_limit}; {share:.0%} of {whose}{shown(value)} ({catalog.source_of(record).title})"
    if share > ABOVE_BEST and not elsewhere:
        return "implausible", says
    return ("far_below" if share < FAR_BELOW else "plausible"), says


def _sharing(claim: Claim, reading: Reading, peak: Peak | None) -> str:
    """Return how many sequences a decoding rate needs at once, which the memory must hold the caches of."""
    weights, model = weights_gb(claim.conditions), model_of(claim.conditions)
    if QUANTITIES[claim.quantity].memory is False or peak is None or weights is None or model is None:
        return ""
    if claim.conditions.batch is not None or peak.memory_gb is None:
        return ""
    alone = claim.conditions.devices * peak.memory_tb_s * 1e3 / weights
    batch = max(1.0, reading.value / alone)
    left = max(0.0, USABLE * claim.conditions.devices * peak.memory_gb - weights)
    tokens = left * 1e9 / model.cache_bytes_per_token / batch
    return (f"; needs {batch:.0f} sequences at once, which leaves at most {tokens:,.0f} tokens of context each, "
            f"in {USABLE:.0%} of the memory")  # fmt: skip


def _best(claim: Claim, catalog: Catalog, peak: Peak | None) -> tuple[float, Claim] | None:
    """Return the best published figure that a claim is to be held against: on its device, else on a lesser one.

    A device whose peak and memory are no better is a floor: it tells what is far below, never what is too much.
    """
    if peak is None:
        return None
    here, lesser = [], []
    for value, other in _published(claim, catalog):
        theirs = find_peak(other.device or "")
        if theirs == peak:
            here.append((value, other))
        elif theirs is not None and _no_better(theirs, peak) and QUANTITIES[claim.quantity].by_device:
            lesser.append((value, other))
    return max(here or lesser, key=lambda one: one[0], default=None)


def _no_better(one: Peak, other: Peak) -> bool:
    return one.bf16_tflops <= other.bf16_tflops and one.memory_tb_s <= other.memory_tb_s


def _published(claim: Claim, catalog: Catalog) -> Iterator[tuple[float, Claim]]:
    """Yield what others measured of the same quantity, model and number of devices, at a rate with the same limit."""
    quantity = QUANTITIES[claim.quantity]
    for other in catalog.claims.values():
        theirs = QUANTITIES[other.quantity]
        if catalog.source_of(other).kind != "measured":
            continue
        if (quantity.held_as or claim.quantity) != (theirs.held_as or other.quantity):
            continue
        mine, others = claim.conditions, other.conditions
        same_group = quantity.by_device or mine.devices == others.devices
        same_share = mine.compute_units == others.compute_units
        same_way = mine.in_switch is not False or others.in_switch is not True
        if same_group and same_share and same_way and mine.model == others.model and _same_rate(claim, other):
            yield theirs.reading(other).value, other


def _same_rate(claim: Claim, other: Claim) -> bool:
    """Return whether two precisions have the same peak: bf16's record holds for fp16 where both run as fast."""
    mine, theirs = claim.conditions.precision, other.conditions.precision
    if mine is None or theirs is None or mine == theirs:
        return True
    peak = find_peak(other.device or "")
    return peak is not None and peak.tflops(mine) == peak.tflops(theirs)
