"""What detectors look at, and what they return: causes that are not priced yet."""

import math
import statistics
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from scalescope.hardware.peaks import Peak
from scalescope.records.rows import TrainFacts
from scalescope.records.statistics import share_95
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import AlsoLate, EvidenceRow, Remedy
from scalescope.scaling.findings.cores import CoreShare
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.graph import median
from scalescope.scaling.replay.ranks.elements import ElementsRead, elements_read
from scalescope.scaling.replay.ranks.exchanges import ObjectExchange, object_exchanges
from scalescope.scaling.replay.ranks.side_by_side import SideBySide
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.replay.whatif.replayer import Replayer

#: What costs less than this share of the step is no finding.
WORTH_SAYING = 0.008
#: What takes less than this share of the step by itself is not even priced.
WORTH_A_LOOK = 0.004
#: In how many of the steps a cause must be there to be one rank's own.
MOST_STEPS = 0.75
#: What a rank that nothing is the matter with may seem to have, on cores that others use.
BY_CHANCE: tuple[Code, ...] = ("slower_compute", "host_stall", "host_starved", "data_loading")


def share_ms(analysis: RunAnalysis, part: str) -> float:
    """Return a part of the mean rank's step as run, ms."""
    _, ranks = step_as_run(analysis)
    return sum(rank.part_ms(part) for rank in ranks) / len(ranks) if ranks else 0.0


def is_a_longer_one(analysis: RunAnalysis, step: int) -> bool:
    """Tell whether a step is one of those that are longer every so often, for enough to be told by themselves, or of
    those that came once.
    """
    often = analysis.recurring
    if analysis.once is not None and step in analysis.once.steps:
        return True
    return often is not None and often.is_worth_a_word and often.has(step)


def may_wait_unseen(analysis: RunAnalysis) -> bool:
    """Tell whether ranks may wait for one whose trace, or whose collectives, are not there: so much is not split."""
    return share_ms(analysis, "exposed_unsplit") >= WORTH_SAYING * step_as_run(analysis)[0].value


def gained_ms(replayer: Replayer, change: Change) -> float:
    """Return by how much a change makes the step shorter, ms, with no interval."""
    return -(replayer.predict(change, quick=True, near=True).change_ms or 0.0)


@dataclass(frozen=True)
class Scene:
    """A run as detectors see it: the analysis, the replay of the step as run, and the ranks side by side."""

    analysis: RunAnalysis
    replayer: Replayer
    facts: TrainFacts | None = None
    peak: Peak | None = None
    step_ms: float = field(default=0.0)
    host: Sequence[HostCause] | None = None  # what the hosts' own records say; None: they were not looked at
    cores: CoreShare | None = None  # of ranks on CPUs, where the run itself tells

    @property
    def side(self) -> SideBySide:
        return self.replayer.side_by_side

    @property
    def ours(self) -> bool:
        """Whether the loop is one of our jobs', so that a remedy may name their keys."""
        return self.facts is not None and self.facts.origin == "job"

    def overrides(self, *keys: str) -> tuple[str, ...]:
        """Return keys for a job of ours; none for anybody else's loop, nor for traces that no run folder says ours."""
        return keys if self.ours else ()

    def share_ms(self, part: str) -> float:
        """Return a part of the mean rank's step as run, ms."""
        return share_ms(self.analysis, part)

    @cached_property
    def element_loops(self) -> dict[int, ElementsRead]:
        """What each rank's host reads element by element; ranks that hardly do so are not in it."""
        graph, steps = self.replayer.graph, self.side.steps
        found = {rank: elements_read(graph, rank, steps) for rank in self.side.ranks}
        return {rank: one for rank, one in found.items() if self.worth_a_look(one.ns / 1e6)}

    @cached_property
    def object_exchanges(self) -> dict[int, list[ObjectExchange]]:
        """Each rank's collectives of Python objects, where hosts compute; of those on devices no operator tells."""
        if not self.replayer.on_cpu:
            return {}
        return {rank: object_exchanges(self.replayer.graph, rank) for rank in self.replayer.graph.ranks}

    @property
    def transfers_of_objects(self) -> set[int]:
        """The graph's transfers that carry objects: none of them can go with another one."""
        return {at for own in self.object_exchanges.values() for one in own for at in one.transfers}

    @property
    def slower_beside_ms(self) -> float:
        """By how much compute is slower for collectives beside it, ms a step of the median rank."""
        graph = self.replayer.graph
        inflation = graph.contention.inflation
        steps = max(1, len(graph.step_numbers))
        overlap_ms = [
            sum(graph.activities[at].overlap_ns for stream in graph.order[rank] for at in stream) / steps / 1e6
            for rank in graph.ranks
        ]
        return inflation / (1 + inflation) * median(overlap_ms)

    @property
    def longest_between_ms(self) -> float:
        """For how long a rank's host does other things than it computes with, ms a step, where that is longest.

        Where hosts compute. For how long one stands still at one place, step after step or in some of them, is no
        launching, and neither is what it takes to read element by element.
        """
        loops = self.element_loops
        stalled = {rank: loops[rank].calling_ns / 1e6 if rank in loops else 0.0 for rank in self.side.ranks}
        for cause in self.host or ():
            if cause.code == "host_stall" and cause.now_and_then:
                for one in [one for one in stalled if cause.rank in (None, one)]:
                    stalled[one] += cause.mean_ns_in(self._replayed) / 1e6
            elif cause.code == "host_stall":
                for rank, ns in cause.own_ns or ((cause.rank, cause.typical_ns),):
                    if rank in stalled:
                        stalled[rank] += ns / 1e6
        _, ranks = step_as_run(self.analysis)
        return max((one.part_ms("idle_launch") - stalled.get(one.rank, 0.0) for one in ranks), default=0.0)

    @property
    def longest_between_usual_ms(self) -> float:
        """The same in the steps that are not longer every so often, where the window holds some that are."""
        longer = {one.step for one in self.analysis.steps if is_a_longer_one(self.analysis, one.step)}
        return self.longest_between_without_ms(longer) if longer else math.inf

    def longest_between_without_ms(self, steps: Container[int]) -> float:
        """Return for how long a rank's host does other things than it computes with, ms in the mean of the other steps,
        where that is longest.
        """
        own: dict[int, list[float]] = {}
        for one in self.analysis.steps:
            if not one.open_ended and one.step not in steps:
                own.setdefault(one.rank, []).append(one.idle_launch_ms)
        return max(map(statistics.fmean, own.values()), default=math.inf)

    def for_longer_ones_ms(self, *parts: str) -> float:
        """Return what parts (`window`: all) of the mean rank's step are longer by for steps that are so every so often.

        What those take longer is told of all steps, and so is what the other ranks wait for them.
        """
        found = []
        for rank in self.side.ranks:
            own = [one for one in self.analysis.steps if one.rank == rank and one.step in self._replayed]
            took = {one.step: one.window_ms if "window" in parts else sum(map(one.part_ms, parts)) for one in own}
            usual = [ms for step, ms in took.items() if not is_a_longer_one(self.analysis, step)]
            longer = [ms for step, ms in took.items() if is_a_longer_one(self.analysis, step)]
            beyond = [max(0.0, ms - statistics.median(usual)) for ms in longer if usual]
            found.append(sum(beyond) / max(1, len(took)))
        return statistics.fmean(found) if found else 0.0

    @property
    def _replayed(self) -> set[int]:
        """The steps that the step as run is the mean of, by number."""
        return {self.replayer.graph.step_numbers[at] for at in self.side.steps}

    @property
    def may_wait_unseen(self) -> bool:
        """Whether ranks may wait for one whose trace, or whose collectives, are not there: so much is not split."""
        return may_wait_unseen(self.analysis)

    def worth_a_look(self, ms: float) -> bool:
        return ms >= WORTH_A_LOOK * self.step_ms


class Seen(msgspec.Struct, frozen=True):
    """In how many of a window's steps a cause is there, that is not there in all of them."""

    steps: int
    of: int
    replayed: float = 0.0  # the share of the replayed steps that have it
    period: int | None = None  # it is in every so manieth step, and in no other
    error: float = 0.0  # of a period's: within what share of itself its length in one step is known

    @property
    def share(self) -> float:
        return 1 / self.period if self.period else self.steps / self.of

    def bounds(self, ms: float) -> tuple[float, float]:
        """Return between what a cost that is so much in these steps lies in others, by how often the cause is there.

        Once may be chance. How often a period's cause is there is known.
        """
        if self.period:
            return ms * max(0.0, 1 - self.error), ms * (1 + self.error)
        low, high = share_95(self.steps, self.of)
        return (0.0 if self.steps == 1 else ms * low / self.share), ms * high / self.share


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A cause with what would take it out of the step. What that brings is not known yet, but for `gain_ms`."""

    code: Code
    rank: int | None = None
    ranks: tuple[int, ...] = ()  # of a cause that several ranks have, and not all; `rank` is the first of them
    one_ms: float | None = None  # of several ranks: what taking it out of one of them alone brings, at best
    also_late: AlsoLate | None = None
    removals: tuple[Removal, ...] = ()  # causes that may be there together, and are priced together
    surely: tuple[Removal, ...] = ()  # where not all of `removals` is sure to go with the cause: what is
    perhaps: tuple[Removal, ...] = ()  # what may go with the cause, and may as well stay
    change: Change | None = None  # another change, priced by itself in the step without all removals
    gain_ms: tuple[float, float, float] | None = None  # where no replay tells: what it brings, from, to
    seen: Seen | None = None  # of what is there in some steps: what steps differ by is no noise then
    # by what its rank takes longer than the others, ms in each step, below 0 where they do: chance makes that, too
    beyond_ms: tuple[float, ...] = ()
    # between which shares of what a replay says it lies in other jobs, where that was measured
    known_within: tuple[float, float] | None = None
    longer_by: float = 0.0  # of a rank that computes slower: by what share of what the others take it takes longer
    in_each_ms: tuple[float, ...] = ()  # of one rank's, that is there in each step: what it takes in each, ms
    usual: Interval | None = None  # it costs no more than this in a step, ms, where chance made few of them longer
    evidence: tuple[EvidenceRow, ...] = ()
    remedy: Remedy | None = None
    at_most: bool = False
    at_least: bool = False  # a cause that is known to be there: removals take out what is sure of it
    waits_ms: float = 0.0  # that may go with it, and for which a replay finds another place, in the mean step
    most_ms: float | None = None  # a change brings no more than this, whatever a replay of it says
    least_ms: float = 0.0  # what of it was seen to be lost in each step, whatever a replay says
    least_share: float = WORTH_SAYING  # of the step, below which it is no finding

    @property
    def late(self) -> tuple[int, ...]:
        """The ranks that have the cause; none where it is nobody's alone."""
        return self.ranks or (() if self.rank is None else (self.rank,))
