"""Steps of a window in which something outside of the job slows its hosts, and those in which nothing does.

On a machine that others use each host takes, in some steps, twice as long for every operator. What those steps take is
none of the job's doing: as long as enough others stand beside each other, the answer is of those.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

#: A host is slowed in a step where it takes so many times as long for each operator as in its quickest one.
SLOWED = 1.6
#: It is not where it takes no more than so many times as long: of hosts that nothing slows, steps differ by up to 1.25.
_QUIET = 1.35
#: What tells how steps differ is at least so many of them.
_LEAST = 2


class PacedHost(Protocol):
    """What is asked of a rank's host; each tuple holds a value a step."""

    @property
    def on_cpu(self) -> bool:
        """Tell whether it computes itself."""

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the steps' numbers."""

    @property
    def step_ns(self) -> tuple[int, ...]:
        """Return how long each of them is on the host."""

    @property
    def paces(self) -> tuple[int, ...]:
        """Return how long its operators take, in per cent of the median step; none where too few tell."""


@dataclass(frozen=True)
class Quiet:
    """The steps in which no rank's host is slowed, beside those in which one is."""

    first: int  # by the profiler's number; from there on one after another
    last: int
    slowed: tuple[int, ...]  # the numbers of all other steps of the window
    times: float  # how many times as long a host takes for its operators at most as in its quickest step
    quiet_ns: float  # a quiet step, on the hosts, and one that is left out
    slowed_ns: float


def times_slowed(paces: Sequence[Sequence[float]]) -> float | None:
    """Return how many times as long each host takes for its operators in its slowest step as in its quickest.

    `paces`: by rank and step. Of the rank on which that is least; None where it is little, or not known of all.
    """
    times = [max(own) / min(own) if own and min(own) > 0 else 0.0 for own in paces]
    return min(times) if times and min(times) >= SLOWED else None


def quiet_steps(hosts: Mapping[int, PacedHost | None]) -> Quiet | None:
    """Return the longest stretch of steps in which no host is slowed; None where none is in any, or few are left.

    Of hosts that compute, each waits for cores by itself, which is told of each step.
    """
    known = [one for one in hosts.values() if one is not None and not one.on_cpu and one.paces]
    if not known or len(known) < len(hosts) or len({one.steps for one in known}) > 1:
        return None
    if times_slowed([one.paces for one in known]) is None:
        return None
    numbers = known[0].steps
    quiet = [all(one.paces[at] <= _QUIET * min(one.paces) for one in known) for at in range(len(numbers))]
    first, end = _longest(quiet)
    if end - first < _LEAST:
        return None
    lengths = [statistics.fmean(one.step_ns[at] for one in known) for at in range(len(numbers))]
    return Quiet(
        first=numbers[first],
        last=numbers[end - 1],
        slowed=(*numbers[:first], *numbers[end:]),
        times=max(max(one.paces) / min(one.paces) for one in known),
        quiet_ns=statistics.fmean(lengths[first:end]),
        slowed_ns=statistics.fmean([*lengths[:first], *lengths[end:]]),
    )


def _longest(quiet: Sequence[bool]) -> tuple[int, int]:
    """Return where the longest stretch of them begins and ends; of several the last."""
    best, begin = (0, 0), 0
    for at, one in enumerate([*quiet, False]):
        if not one:
            if at > begin and at - begin >= best[1] - best[0]:
                best = (begin, at)
            begin = at + 1
    return best
