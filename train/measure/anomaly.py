"""Notices that steps have become longer, while they run: what a profiler window that opens by itself is for.

The level is the median of the steps before; three steps in a row that lie a fifth above it are an anomaly, as long as
each is nearer to what they take than to the level: else a step that noise made a little longer, right before, would be
the first of them. A single long step is none: it is over by the time that a window could open. What comes to stay
becomes the level.

Every rank feeds it the same gathered times at the same step, so that all decide alike.
"""

import math
import statistics
from collections import deque
from dataclasses import dataclass

from scalescope.records.steps.recording import LongerFacts

_ABOVE = 1.2
_IN_A_ROW = 3
_LEVEL_OF = 50  # steps at most, ten at least
_LEAST = 10


@dataclass(frozen=True)
class Anomaly:
    """Steps that lie above their level."""

    since: int  # the first of them
    step_ms: float  # their median
    level_ms: float  # of the steps before

    @property
    def facts(self) -> LongerFacts:
        """What the run folder keeps of it, with the window that it opened."""
        return LongerFacts(since=self.since, step_ms=self.step_ms, level_ms=self.level_ms)


class AnomalyWatch:
    """Takes each steady step once, in order; after an anomaly it is silent for `every` steps."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._silent_until = 0
        self._lengths: deque[float] = deque(maxlen=_LEVEL_OF + _IN_A_ROW)

    def take(self, step: int, length_ms: float) -> Anomaly | None:
        """Return the anomaly that a step completes, if it does."""
        self._lengths.append(length_ms)
        if len(self._lengths) < _LEAST + _IN_A_ROW or step < self._silent_until:
            return None
        lengths = list(self._lengths)
        before, last = lengths[:-_IN_A_ROW], lengths[-_IN_A_ROW:]
        level_ms = statistics.median(before)
        if min(last) < max(_ABOVE * level_ms, math.sqrt(level_ms * statistics.median(last))):
            return None
        self._silent_until = step + self._every
        return Anomaly(step - _IN_A_ROW + 1, statistics.median(last), level_ms)
