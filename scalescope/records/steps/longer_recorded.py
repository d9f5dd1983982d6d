"""Recorded steps that are longer than those right before and after them, which agree: the window's doing, no machine's.

What records cost by themselves is next to nothing beside that. What they do to a job is more: they take memory in whose
place its steps need fresh pages (benchmarks/page_faults.py). Operators take longer then, which no trace tells.
"""

import math
import statistics
from collections.abc import Callable, Sequence

import msgspec

from scalescope.records.rows import StepRow
from scalescope.records.steps.core_waits import waited_ms
from scalescope.records.steps.recording import NEAR_STEPS
from scalescope.records.steps.unevenness import UNLIKE, placebo_ms

#: Of fewer steps on a side of a window nothing is told.
_LEAST = 5
#: Recorded steps are longer by so many times what those around them differ by.
_BEYOND = 1.5
#: From this share of what they are longer by on, waits for cores that others had are why.
_WAITS = 0.25
#: So much of it the ranks' own loops compute for, and no more of it they wait for batches.
_MOST = 0.5


class LongerRecorded(msgspec.Struct, frozen=True, kw_only=True):
    """Median steps, ms, by the job's own clock."""

    recorded_ms: float
    before_ms: float  # of those right before the window, and right after it; of several windows the mean of each
    after_ms: float

    @property
    def beside_ms(self) -> float:
        """What a step takes beside the window."""
        return (self.before_ms + self.after_ms) / 2


def longer_recorded(steady: Sequence[StepRow], recorded: Sequence[StepRow]) -> LongerRecorded | None:
    """Return how much longer recorded steps are than those on either side of each window, where these agree.

    None where they do not, where as many steps differ so by themselves, or where rows tell another reason: ranks waited
    for cores, or for batches. Both are in order, without steps that are longer every so often.
    """
    before, after = _sides_ms(steady, recorded)
    if not before or not after:
        return None
    shortest, longest = min(*before, *after), max(*before, *after)
    found = LongerRecorded(
        recorded_ms=statistics.median(row.length_ms for row in recorded),
        before_ms=statistics.fmean(before),
        after_ms=statistics.fmean(after),
    )
    apart, excess = longest - shortest, found.recorded_ms - longest
    placebo = placebo_ms([row.length_ms for row in steady], len(recorded))
    if placebo is None or apart > UNLIKE * shortest or excess < UNLIKE * longest:
        return None
    if excess < _BEYOND * max(apart, placebo) or _has_another_reason(steady, recorded):
        return None
    return found


def _sides_ms(steady: Sequence[StepRow], recorded: Sequence[StepRow]) -> tuple[list[float], list[float]]:
    """Return the median of the steps right before each window, and right after, ms; none where a side has too few."""
    sides: tuple[list[float], list[float]] = ([], [])
    if not all(row.step_ms for row in recorded):
        return sides
    windows = _windows(steady, recorded)
    for at, own in enumerate(windows):
        first = windows[at - 1][-1] if at else -math.inf
        last = windows[at + 1][0] if at + 1 < len(windows) else math.inf
        before = [row.length_ms for row in steady if first < row.step < own[0]][-NEAR_STEPS:]
        after = [row.length_ms for row in steady if own[-1] < row.step < last]
        if min(len(before), len(after)) < _LEAST:
            return [], []
        sides[0].append(statistics.median(before))
        sides[1].append(statistics.median(after[:NEAR_STEPS]))
    return sides


def _windows(steady: Sequence[StepRow], recorded: Sequence[StepRow]) -> list[list[int]]:
    """Return the recorded steps, those of a list with no steady one between them."""
    others = [row.step for row in steady]
    found: list[list[int]] = []
    for row in recorded:
        if found and not any(found[-1][-1] < step < row.step for step in others):
            found[-1].append(row.step)
        else:
            found.append([row.step])
    return found


def _has_another_reason(steady: Sequence[StepRow], recorded: Sequence[StepRow]) -> bool:
    """Tell whether rows say that ranks waited for cores, or batches, or that their loops did not compute for longer."""
    longer = _more(steady, recorded, lambda row: row.length_ms) or 0.0
    waits = _more(steady, recorded, waited_ms)
    computes = _more(steady, recorded, lambda row: max(row.on_cpu_ms, default=None))
    loads = _more(steady, recorded, lambda row: max(row.loading_ms, default=None))
    return (
        (waits is not None and waits > _WAITS * longer)
        or (computes is not None and computes < _MOST * longer)
        or (loads is not None and loads > _MOST * longer)
    )


def _more(
    steady: Sequence[StepRow], recorded: Sequence[StepRow], of: Callable[[StepRow], float | None]
) -> float | None:
    """Return how much more of something recorded steps have in the mean; None where not all rows tell it."""
    own, others = [of(row) for row in recorded], [of(row) for row in steady]
    told, beside = [ms for ms in own if ms is not None], [ms for ms in others if ms is not None]
    if len(told) < len(own) or len(beside) < len(others):
        return None
    return statistics.fmean(told) - statistics.fmean(beside)
