"""How long hosts are in their loaders, while the job runs: all of them, or one longer than the others. Torch-free.

Ranks that all load for long are late for nobody, and still every step is as much longer.
"""

import statistics
from collections import deque
from dataclasses import dataclass, replace

from scalescope.records.rows import StepRow
from scalescope.train.measure.lateness import (
    CoreWaits,
    Lateness,
    LateRank,
    describe_late,
    describe_over,
    describe_waits,
)

_STEPS = 10
_LOOK_EVERY = 5
#: Of the step; what takes less is not said live. A host that runs ahead of its device may load meanwhile.
_SHARE, _SHARE_AHEAD = 0.05, 0.5
_WORSE = 2.0


@dataclass(frozen=True)
class SlowLoading:
    """What hosts are in their loaders a step, the median of the last ones: all of them (None), or one rank beyond."""

    rank: int | None
    ms: float
    step_ms: float


class LoadingWatch:
    """The last steps of a job; `slow` is what its hosts spend in their loaders, where that is worth a word."""

    def __init__(self, *, runs_ahead: bool) -> None:
        """`runs_ahead`: the hosts launch for devices, and load while those compute."""
        self._share = _SHARE_AHEAD if runs_ahead else _SHARE
        self._steps: deque[StepRow] = deque(maxlen=_STEPS)
        self._taken = 0
        self.slow: SlowLoading | None = None

    def take(self, row: StepRow) -> None:
        """Take a step; profiled and warm-up steps tell nothing, nor those whose loader was not timed."""
        if row.phase == "steady" and row.loading_ms:
            self._steps.append(row)
            self._taken += 1
            if self._taken % _LOOK_EVERY == 0:
                self.slow = self._find()

    def is_news(self, said: SlowLoading | None) -> bool:
        """Tell whether other hosts load for long than was `said` last, or for much longer."""
        slow = self.slow
        return slow is not None and (said is None or slow.rank != said.rank or slow.ms > _WORSE * said.ms)

    def _find(self) -> SlowLoading | None:
        ranks = {len(row.loading_ms) for row in self._steps}
        if len(self._steps) < _STEPS or len(ranks) > 1:
            return None
        step_ms = statistics.median(row.length_ms for row in self._steps)
        everyone = statistics.median(min(row.loading_ms) for row in self._steps)
        if everyone >= self._share * step_ms:
            return SlowLoading(None, everyone, step_ms)
        beyond = [
            statistics.median(row.loading_ms[rank] - _usual(row.loading_ms) for row in self._steps)
            for rank in range(max(ranks))
        ]
        most = max(beyond)
        return SlowLoading(beyond.index(most), most, step_ms) if most >= self._share * step_ms else None


def _usual(values_ms: list[float]) -> float:
    return sorted(values_ms)[(len(values_ms) - 1) // 2]


def describe_loading(slow: SlowLoading) -> str:
    """Return who loads for how long, in a few words."""
    share = f"({slow.ms / slow.step_ms:.0%} of {slow.step_ms:,.1f} ms)"
    if slow.rank is None:
        return f"loading data takes {slow.ms:,.1f} ms a step {share}"
    return f"rank {slow.rank} loads data {slow.ms:,.1f} ms longer a step {share}"


def describe_both(late: LateRank | None, slow: SlowLoading | None, waits: CoreWaits | None = None) -> str:
    """Return which rank is late, what ranks wait for cores and what hosts load, in a few words.

    A rank that loads for it is said once.
    """
    first = [describe_late(late)] if late is not None else []
    rest = [describe_waits(waits)] if waits is not None else []
    if slow is not None and late is not None and slow.rank == late.rank:
        known = replace(late, may_launch_last=False)  # what holds its host up is no launching
        first = [f"{describe_late(known)}, loading data for {slow.ms:,.1f} ms of that"]
    elif slow is not None:
        rest = [*rest, describe_loading(slow)]
    return ", ".join([*first, *rest])


class LiveNews:
    """What is worth a line of what steps tell: who is late, that it is no longer, and who loads for long."""

    def __init__(self, *, runs_ahead: bool) -> None:
        """`runs_ahead`: see `LoadingWatch`."""
        self._lateness = Lateness(runs_ahead=runs_ahead)
        self._loading = LoadingWatch(runs_ahead=runs_ahead)
        self._said: LateRank | None = None  # the rank that was last said to be late
        self._said_waits: CoreWaits | None = None
        self._said_loading: SlowLoading | None = None
        self._over: LateRank | None = None

    def take(self, row: StepRow) -> bool:
        """Take a step; return whether it brings news, which `text` then has."""
        self._lateness.take(row)
        self._loading.take(row)
        self._over = self._said if self._said is not None and self._lateness.is_over(self._said) else None
        is_news = self._lateness.is_news(self._said, self._said_waits) or self._loading.is_news(self._said_loading)
        return is_news or self._over is not None

    @property
    def text(self) -> str:
        """What holds now, in a few words; of a rank that was said to be late, that it is no longer."""
        over = describe_over(self._over) if self._over is not None else ""
        now = describe_both(self._lateness.late, self._loading.slow, self._lateness.waits)
        return ", ".join(filter(None, (over, now)))

    def told(self) -> None:
        """Note that `text` was said: it is no news any more."""
        late = self._lateness.late
        self._said = None if self._over is not None else late or self._said
        self._said_waits = self._lateness.waits or self._said_waits
        self._said_loading = self._loading.slow or self._said_loading
        self._over = None
