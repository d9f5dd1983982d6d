"""Which rank the others wait for, while the job runs: by each rank's own time until ranks first exchange something.

Steps of ranks that wait for one another take equally long on all of them, whoever is late. The time until the exchange
does not: there a late rank stands out by what it is late. Torch-free.
"""

import statistics
from collections import Counter, deque
from dataclasses import dataclass

from scalescope.records.rows import StepRow

_STEPS = 10  # that the others waited in; so many are looked at
_LOOK_EVERY = 5  # steps: a look takes longer than taking a step does
_MOST_OF_THEM = 0.8
_SHARE = 0.05  # of the step; what costs less is not said live
_WORSE = 2.0  # times as late as was said last: said again


@dataclass(frozen=True)
class LateRank:
    """A rank that comes later than the others do, by so much a step: the median of the last steps."""

    rank: int
    late_ms: float
    step_ms: float


@dataclass(frozen=True)
class _Step:
    last: int  # the rank that came last
    usual_ms: float  # the ranks' lower median
    own_ms: list[float]
    length_ms: float


class Lateness:
    """The last steps of a job; `late` is the rank that was late in most of them."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque(maxlen=_STEPS)
        self._taken = 0
        #: The rank that is late now; None where none is, or too few steps are known.
        self.late: LateRank | None = None

    def take(self, row: StepRow) -> None:
        """Take a step of a job whose ranks wait for one another; profiled and warm-up steps tell nothing."""
        own_ms = row.own_ms
        if row.phase == "steady" and row.synchronised and len(own_ms) > 1:
            usual_ms = sorted(own_ms)[(len(own_ms) - 1) // 2]
            self._steps.append(_Step(own_ms.index(max(own_ms)), usual_ms, own_ms, row.length_ms))
            self._taken += 1
            if self._taken % _LOOK_EVERY == 0:
                self.late = self._find()

    def is_news(self, said: LateRank | None) -> bool:
        """Tell whether another rank is late than the one that was `said` last, or that one much later."""
        late = self.late
        return late is not None and (said is None or late.rank != said.rank or late.late_ms > _WORSE * said.late_ms)

    def _find(self) -> LateRank | None:
        if len(self._steps) < _STEPS:
            return None
        ((rank, often),) = Counter(step.last for step in self._steps).most_common(1)
        late_ms = statistics.median(step.own_ms[rank] - step.usual_ms for step in self._steps)
        step_ms = statistics.median(step.length_ms for step in self._steps)
        if often < _MOST_OF_THEM * _STEPS or late_ms < _SHARE * step_ms:
            return None
        return LateRank(rank, late_ms, step_ms)


def describe_late(late: LateRank) -> str:
    """Return who is late in a few words."""
    return f"rank {late.rank} is {late.late_ms:,.1f} ms late a step ({late.late_ms / late.step_ms:.0%} of it)"
