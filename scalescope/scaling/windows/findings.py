"""The findings of several windows as one list: each cause with its mean over the windows, and their noise.

A window in which a cause is not found counts as one in which it costs nothing. What windows differ by is added to a
finding's own interval: by Student's t from three windows on, of two half their difference.
"""

import math
import statistics
from collections.abc import Sequence

import msgspec

from scalescope.records.statistics import half_of_mean
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding.kinds import is_now_and_then
from scalescope.scaling.finding.order import are_little_at_most, ranked
from scalescope.scaling.findings.candidate import WORTH_SAYING

#: In so many of the windows a cause must be found, unless it costs so much of the mean step all the same.
_MOST_WINDOWS = 0.5
_LARGE = 0.03

#: What tells one cause from another: the code, the ranks, and which of several such it is.
_Key = tuple[Code, tuple[int, ...], int]


def pool_findings(windows: Sequence[Sequence[Finding]], step_ms: float, *, on_cpus: bool = False) -> list[Finding]:
    """Return the findings of windows together, most costly first; `step_ms`: the mean step of all windows."""
    found: dict[_Key, list[Finding]] = {}
    for findings in windows:
        seen: dict[tuple[Code, tuple[int, ...]], int] = {}
        for one in findings:
            ordinal = seen[one.code, ranks_of(one)] = seen.get((one.code, ranks_of(one)), -1) + 1
            found.setdefault((one.code, ranks_of(one), ordinal), []).append(one)
    pooled = [_pooled(members, len(windows), step_ms) for members in found.values()]
    unpriced = [one for one in pooled if one is not None and one.ms is None]
    priced = ranked([one for one in pooled if one is not None and one.ms is not None])
    if priced and not are_little_at_most([*unpriced, *priced], step_ms, on_cpus=on_cpus):
        unpriced = [one for one in unpriced if one.code != "nothing"]
    elif not unpriced:
        unpriced = [one for findings in windows for one in findings if one.code == "nothing"][-1:]
    return [*unpriced, *priced]


def _pooled(members: Sequence[Finding], windows: int, step_ms: float) -> Finding | None:
    """Return one cause over all windows; None where too few of them have it for it to be there."""
    often = len(members) >= _MOST_WINDOWS * windows
    told = max(members, key=lambda one: one.ms or 0.0)
    if told.ms is None:
        return told if often else None
    values = [one.ms or 0.0 for one in members] + [0.0] * (windows - len(members))
    mean = statistics.fmean(values)
    if mean < (WORTH_SAYING if often else _LARGE) * step_ms:
        return None
    below = sum((one.ms or 0.0) - _bound(one.low_ms, one) for one in members) / windows
    above = sum(_bound(one.high_ms, one) - (one.ms or 0.0) for one in members) / windows
    noise = noise_of_mean(values)
    low = mean - math.hypot(below, noise)
    sure = low > 0 and len(members) == windows and all(one.at_least for one in members)
    ms = low if sure else mean  # of what is told as a least, what all windows together are sure of
    most_ms = step_ms if step_ms and not is_now_and_then(told) else math.inf
    return msgspec.structs.replace(
        told,
        ms=ms,
        low_ms=max(0.0, low) if (told.low_ms or 0.0) >= 0 else low,
        high_ms=max(mean, min(mean + math.hypot(above, noise), most_ms)),
        fraction=ms / step_ms if step_ms else None,
        at_least=sure,
    )


def _bound(bound_ms: float | None, finding: Finding) -> float:
    return bound_ms if bound_ms is not None else finding.ms or 0.0


def noise_of_mean(values: Sequence[float]) -> float:
    """Return half of the 95% interval of a mean over windows, by what they differ by; 0 of one window."""
    if len(values) < 2:
        return 0.0
    if len(values) == 2:
        return abs(values[0] - values[1]) / 2
    return half_of_mean(values)


def mean_interval(intervals: Sequence[Interval]) -> Interval:
    """Return the mean over windows, with their own intervals and what they differ by."""
    mean = statistics.fmean(one.value for one in intervals)
    noise = noise_of_mean([one.value for one in intervals])
    below = statistics.fmean(one.value - one.low for one in intervals)
    above = statistics.fmean(one.high - one.value for one in intervals)
    return Interval(mean, mean - math.hypot(below, noise), mean + math.hypot(above, noise))
