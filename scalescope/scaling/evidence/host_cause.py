"""One thing that a comparison of the ranks' hosts finds: a cause of lost host time, not yet priced."""

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from scalescope.scaling.evidence.gaps import GapLocation
from scalescope.scaling.finding.finding import LoopPlace
from scalescope.scaling.rank.records.callers import MOST

#: Causes on the host's side; the vocabulary of findings has them by the same names.
HostCode = Literal[
    "data_loading",
    "host_stall",
    "host_starved",
    "host_bound",
    "synchronising",
    "recompilation",
    "allocation",
    "debug_mode",
]


class HostFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that speaks for a cause, as a mean a step. `others_ns`: what the other ranks take for the same."""

    kind: Literal["operator", "call", "annotation", "gap", "interruptions", "lock_waits", "kernels", "mode"]
    name: str = ""
    inside: str = ""  # the operator or annotation that it lies in
    opens: str = ""  # of a gap: the call at its end, where the operator there is of that call's making
    within: LoopPlace | None = None  # of a gap: where in the loop it lies, where that is known
    ns: float
    others_ns: float | None = None
    count: float | None = None  # how often
    from_host: bool = False  # of a call: a copy out of the host's memory makes it wait
    share: float | None = None  # of interruptions: those between two operators, where Python runs
    line: str | None = None  # the function of the script that it lies in, where stacks tell one


def line_of_all(lines: Iterable[tuple[str | None, float]]) -> str | None:
    """Return the function that most of several things lie in, by that of each and its ns; None for none."""
    own: dict[str | None, float] = {}
    for line, ns in lines:
        own[line] = own.get(line, 0.0) + ns
    line = max(own, key=own.__getitem__, default=None)
    return line if own and own[line] >= MOST * sum(own.values()) > 0 else None


class HostCause(msgspec.Struct, frozen=True, kw_only=True):
    """A cause of lost host time on one rank, or on all alike. What it costs the step is for a replay to say.

    `ns`: for each of `steps`, how long the host is held up beyond what the other ranks' are, or, on all ranks alike, at
    all; of `synchronising`, `allocation` and `host_bound` how long the device idles for it. `at_most_ns`: with what may
    have other reasons, where that is told apart. `confidence`: 0 to 1, that it is this, not `otherwise`.
    """

    code: HostCode
    rank: int | None  # None: all
    steps: tuple[int, ...]  # the ProfilerSteps' numbers
    ns: tuple[int, ...]
    at_most_ns: tuple[int, ...] | None = None
    by_rank_ns: tuple[tuple[int, ...], ...] = ()  # of what all ranks load for: a rank each, what it does in each step
    own_ns: tuple[tuple[int, int], ...] = ()  # of all ranks: each one's mean a step, where it is longer than `ns` tells
    beyond_ns: tuple[int, ...] | None = None  # of one rank: what `ns` is cut from, below 0 where the others take longer
    evidence: tuple[HostFigure, ...]
    place: GapLocation | None = None  # of a stall
    now_and_then: bool = False  # a stall in some steps, with 0 ns in the others; its evidence is of those that have it
    longest_ns: int = 0  # of such a stall of several gaps: the longest of them, in the mean; 0: it is one
    opening: bool = False  # of those, a single one in the window's first step, where recording itself begins
    each_pass_ns: int = 0  # of a stall that is there whenever the host comes to its place: what one typically takes
    punctual: bool = False  # of one rank's stall: so long, at one place in every step, no interruptions can be
    unseen: bool = False  # of a stall at a step's end: that of the last one was not recorded, and its 0 ns say nothing
    period: int | None = None  # of a stall in some steps: it is there in every so manieth one, and in no other
    confidence: float = 1.0
    otherwise: HostCode | None = None

    @property
    def typical_ns(self) -> float:
        """Return the mean a step, of those that were recorded to their ends."""
        ns = self.ns[:-1] if self.unseen else self.ns
        return sum(ns) / len(ns) if ns else 0.0

    def mean_ns_in(self, steps: Collection[int]) -> float:
        """Return the mean of these steps, by number. What comes before a step's first launch is the one before's."""
        earlier = self.place is not None and self.place.phase == "before_first"
        held_up = sum(ns for step, ns in zip(self.steps, self.ns, strict=True) if step - earlier in steps)
        return held_up / max(1, len(steps))


def of_ranks(causes: Iterable[HostCause], ranks: Collection[int]) -> list[HostCause]:
    """Return what holds up the hosts of these ranks: what that costs on others, which are not replayed, nothing tells.

    The ranks that come last most often are among those that are replayed.
    """
    found = []
    for cause in causes:
        own = tuple((rank, ns) for rank, ns in cause.own_ns if rank in ranks)
        if (cause.rank is None or cause.rank in ranks) and (own or not cause.own_ns):
            found.append(replace(cause, own_ns=own))
    return found
