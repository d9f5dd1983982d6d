"""Which rank the others wait for, while the job runs: by each rank's own time until ranks first exchange something.

Steps of ranks that wait for one another take equally long on all of them, whoever is late. The time until the exchange
does not: there a late rank stands out by what it is late. A rank that had no core meanwhile is not late by itself: what
it waited for one is taken off, and told as what it is.

By a device's clock a rank may be the last one without being late: where hosts bound a step, one of them launches last,
by a little, and the others get ahead of their devices, which wait for it. From its own time alone, which then is all
that launching takes, that cannot be told from a rank that is late by itself, and both are said. Torch-free.
"""

import math
import statistics
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.records.rows import StepRow
from scalescope.records.statistics import SURE, is_beyond_chance, student_beyond
from scalescope.records.steps.core_waits import WAITS_FOR_CORES, waited_ms, without_waits_ms

_STEPS = 10  # that the others waited in; so many are looked at
_KEPT = 50  # steps: how much ranks differ by anyway; of ten alone, neighbours that are alike tell too little of it
_LOOK_EVERY = 5  # steps: a look takes longer than taking a step does
_MOST_OF_THEM = 0.8
_SHARE = 0.05  # of the step; what costs less is not said live
_WORSE = 2.0  # times as late as was said last: said again
_LESS = 0.5  # of what was said: then it no longer holds
#: Of two ranks either may come last in most steps by chance; of more, none does.
_EITHER = 2


@dataclass(frozen=True)
class LateRank:
    """A rank that comes later than the others do, by so much a step: the median of the last steps."""

    rank: int
    late_ms: float
    step_ms: float
    may_launch_last: bool = False  # by a device's clock: its host may be the last of hosts that all bound the step


@dataclass(frozen=True)
class CoreWaits:
    """What the rank that waits most for a core does so a step: the median of the last steps."""

    ms: float
    step_ms: float


@dataclass(frozen=True)
class _Step:
    last: int  # the rank that came last
    usual_ms: float  # the ranks' lower median
    own_ms: list[float]  # without what each waited for a core
    length_ms: float
    waited_ms: float | None


class Lateness:
    """The last steps of a job; `late` is the rank that was late in most of the latest of them."""

    def __init__(self, *, runs_ahead: bool = False) -> None:
        """`runs_ahead`: the hosts launch for devices, whose clocks tell the ranks' own times."""
        self._runs_ahead = runs_ahead
        self._steps: deque[_Step] = deque(maxlen=_KEPT)
        self._taken = 0
        self._late_from: dict[int, int] = {}  # by the rank that was late last, how many steps were taken before it was,
        self._late_to = 0  # … and until it was seen to be so last
        #: The rank that is late now; None where none is, or too few steps are known.
        self.late: LateRank | None = None
        #: What ranks wait for cores now; None where that is no word worth, or nothing tells.
        self.waits: CoreWaits | None = None

    def take(self, row: StepRow) -> None:
        """Take a step of a job whose ranks wait for one another; profiled and warm-up steps tell nothing."""
        if row.phase == "steady" and row.synchronised and len(row.own_ms) > 1:
            own_ms = without_waits_ms(row)
            usual_ms = sorted(own_ms)[(len(own_ms) - 1) // 2]
            if self._steps and len(self._steps[-1].own_ms) != len(own_ms):
                self._steps.clear()  # the job's ranks are others by now
                self._late_from.clear()
            self._steps.append(_Step(own_ms.index(max(own_ms)), usual_ms, own_ms, row.length_ms, waited_ms(row)))
            self._taken += 1
            if self._taken % _LOOK_EVERY == 0:
                self.late = self._find()
                self._note_late()
                self.waits = self._find_waits()

    def is_news(self, said: LateRank | None, said_waits: CoreWaits | None = None) -> bool:
        """Tell whether another rank is late than the one that was `said` last, or that one much later.

        Or whether ranks wait for cores, or much longer than was said.
        """
        late, waits = self.late, self.waits
        is_late = late is not None and (said is None or late.rank != said.rank or late.late_ms > _WORSE * said.late_ms)
        return is_late or (waits is not None and (said_waits is None or waits.ms > _WORSE * said_waits.ms))

    def is_over(self, said: LateRank) -> bool:
        """Tell whether the rank that was `said` last comes late by less than half of that by now, or by chance: for as
        long as it was late before, as far as steps are kept. A few steps that are noisy end no lateness that a run has.

        It is looked at as seldom as who is late. Where the job's ranks are others by now, it is over, too.
        """
        if len(self._steps) < _STEPS or self._taken % _LOOK_EVERY or self.late is not None:
            return False
        if said.rank >= len(self._steps[-1].own_ms):
            return True
        late = [step.own_ms[said.rank] - step.usual_ms for step in self._steps]
        lasted = self._late_to - self._late_from.get(said.rank, self._late_to)
        as_long = min(_KEPT, max(_STEPS, lasted))
        if len(late) < as_long:
            return False
        late_ms = max(statistics.median(late[-_STEPS:]), statistics.median(late[-as_long:]))
        return late_ms < _LESS * said.late_ms or not is_beyond_chance(self._least_ms(said.rank, 0.0), _EITHER)

    def _note_late(self) -> None:
        """Keep since when the rank that is late is so: since the first of the steps that told it first."""
        if self.late is not None:
            rank = self.late.rank
            self._late_from = {rank: self._late_from.get(rank, self._taken - _STEPS)}
            self._late_to = self._taken

    def _latest(self) -> list[_Step]:
        return list(self._steps)[-_STEPS:]

    def _least_ms(self, rank: int, less_ms: float) -> list[float]:
        """Return by how much more than `less_ms` a rank comes later than all others, in each step that is kept."""
        return [step.own_ms[rank] - max(_others(step.own_ms, rank)) - less_ms for step in self._steps]

    def _find(self) -> LateRank | None:
        if len(self._steps) < _STEPS:
            return None
        latest = self._latest()
        ((rank, often),) = Counter(step.last for step in latest).most_common(1)
        late_ms = statistics.median(step.own_ms[rank] - step.usual_ms for step in latest)
        step_ms = statistics.median(step.length_ms for step in latest)
        if often < _MOST_OF_THEM * _STEPS or late_ms < _SHARE * step_ms:
            return None
        # later than all others by a share worth a word for sure: ranks that share cores are late by turns
        least_ms = self._least_ms(rank, _SHARE * step_ms)
        looks = self._taken // _LOOK_EVERY - _STEPS // _LOOK_EVERY + 1
        if not _stands_out(least_ms, _EITHER * looks):
            return None
        return LateRank(rank, late_ms, step_ms, may_launch_last=self._runs_ahead)

    def _find_waits(self) -> CoreWaits | None:
        latest = self._latest()
        told = [step.waited_ms for step in latest if step.waited_ms is not None]
        if len(told) < _STEPS:
            return None
        ms, step_ms = statistics.median(told), statistics.median(step.length_ms for step in latest)
        return CoreWaits(ms, step_ms) if ms >= WAITS_FOR_CORES * step_ms else None


def _stands_out(least_ms: Sequence[float], looked_at: int) -> bool:
    """Tell whether the mean of the latest values is above 0 for sure, beside what all of them differ by.

    Who looks every few steps, at each rank, finds something by chance sooner or later: `looked_at` is how often.
    """
    mean, spread = statistics.fmean(least_ms[-_STEPS:]), statistics.stdev(least_ms)
    if mean <= 0 or not spread:
        return mean > 0
    return student_beyond(mean / spread * math.sqrt(_STEPS), len(least_ms) - 1) * looked_at <= 1 - SURE


def _others(own_ms: list[float], rank: int) -> list[float]:
    return own_ms[:rank] + own_ms[rank + 1 :]


def describe_late(late: LateRank) -> str:
    """Return who is late in a few words."""
    ms, share = f"{late.late_ms:,.1f} ms", f"({late.late_ms / late.step_ms:.0%} of {late.step_ms:,.1f} ms)"
    if late.may_launch_last:
        return f"the others wait {ms} a step for rank {late.rank} {share}, which is late or launches last"
    return f"rank {late.rank} is {ms} late a step {share}"


def describe_over(late: LateRank) -> str:
    """Return that a rank is late no longer, in a few words."""
    if late.may_launch_last:
        return f"the others no longer wait for rank {late.rank}"
    return f"rank {late.rank} is no longer late"


def describe_waits(waits: CoreWaits) -> str:
    """Return what ranks wait for cores, in a few words: whose doing it is, nothing tells."""
    share = f"({waits.ms / waits.step_ms:.0%} of {waits.step_ms:,.1f} ms)"
    return f"ranks wait {waits.ms:,.1f} ms of a step for a core {share}"
