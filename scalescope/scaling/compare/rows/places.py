"""Ranks that changed places: there the step waits for one of them, and here for another that has as much to do.

Laid side by side rank by rank, the one does less and the other more, and neither is a change of the step.
"""

from statistics import fmean, median

from msgspec.structs import replace

from scalescope.scaling.answer_rows import PlacesChange
from scalescope.scaling.compare.measurement import Measurement
from scalescope.scaling.compare.rows.late import LEAST_SHARE, half_of, lateness_of


def places_change(baseline: Measurement, other: Measurement, rate: float) -> PlacesChange | None:
    """Return the ranks that have most to do on either side, where they are not the same; None where they are.

    By their samples; where these are shared out evenly or not told, by whom all steady steps wait for. `rate`: what
    OTHER's times are multiplied by.
    """
    waited = _by_lateness(baseline, other) if rate == 1.0 else None
    shares = _by_samples(baseline, other)
    if shares is None or waited is None or (waited.baseline, waited.other) != (shares.baseline, shares.other):
        return shares or waited
    return replace(waited, baseline_samples=shares.baseline_samples, other_samples=shares.other_samples)


def _by_samples(baseline: Measurement, other: Measurement) -> PlacesChange | None:
    """Return the ranks with most samples, where other ranks' shares are as large, or all so many times as large."""
    before, after = (side.first.identity.samples_by_rank for side in (baseline, other))
    if len(before) != len(after) or len(set(before)) < 2 or not all((*before, *after)):
        return None
    if any(one * max(after) != two * max(before) for one, two in zip(sorted(before), sorted(after), strict=True)):
        return None
    fullest = [tuple(rank for rank, own in enumerate(side) if own == max(side)) for side in (before, after)]
    if not set(fullest[0]).isdisjoint(fullest[1]):
        return None
    return PlacesChange(baseline=fullest[0], other=fullest[1], baseline_samples=max(before), other_samples=max(after))


def _by_lateness(baseline: Measurement, other: Measurement) -> PlacesChange | None:
    """Return the one rank that is late on either side, by as much, where the steady steps of both tell it."""
    sides = (baseline, other)
    if not all(one.steady_ms for side in sides for one in side.repeats):
        return None
    steps = [fmean(median(one.steady_ms) for one in side.repeats) for side in sides]
    late = [lateness_of(side, ms) for side, ms in zip(sides, steps, strict=True)]
    ranks = late[0].keys() & late[1].keys()
    first = [max(ranks, key=lambda rank: own[rank].ms) for own in late] if ranks else []
    if not first or first[0] == first[1]:
        return None
    before, after = (own[rank] for own, rank in zip(late, first, strict=True))
    least = max(half_of(before, after, len(ranks)), LEAST_SHARE * fmean(steps))
    if min(before.ms, after.ms) <= least or abs(before.ms - after.ms) > least:
        return None
    return PlacesChange(baseline=(first[0],), other=(first[1],), baseline_late_ms=before.ms, other_late_ms=after.ms)
