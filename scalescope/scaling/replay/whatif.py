"""What a change would do to the step: the replay of a changed graph against the replay of the unchanged one.

Both run in the same simulation, so what it leaves out is left out of both. Once recording's cost is taken out, both are
of the step as run; how well a replay reproduces the trace is judged on the step as traced all the same. A figure's
interval covers what is assumed: inflation, how fast transfers are under compute, how the times of collectives in
training spread around those alone, what recording costs, and the steps' own differences.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise

import msgspec

from scalescope.records.environment import usable_cores
from scalescope.records.errors import RunError, UserError
from scalescope.records.statistics import half_of_mean
from scalescope.scaling.answer import Replay
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.rank.record import RankRecord
from scalescope.scaling.ranks.processes import map_in_processes
from scalescope.scaling.replay.buckets import StepBuckets, find_buckets
from scalescope.scaling.replay.build import build_graph
from scalescope.scaling.replay.bursts import Bursts
from scalescope.scaling.replay.change import Change, even_out, free_data, free_host, no_overlap, perfect_overlap
from scalescope.scaling.replay.contention import measure_contention, measure_transfer_rate, measured_between_ranks
from scalescope.scaling.replay.engine import compiled
from scalescope.scaling.replay.engine.timing import Timing
from scalescope.scaling.replay.graph import Contention, Graph, median
from scalescope.scaling.replay.host_cost import Recording, settled_steps
from scalescope.scaling.replay.other_collectives import OtherCollectives
from scalescope.scaling.replay.ranks.absences import keep_absences
from scalescope.scaling.replay.ranks.between_ranks import cells_between_ranks
from scalescope.scaling.replay.ranks.launch_inflation import slowing_of_launches
from scalescope.scaling.replay.ranks.paced import keep_pace
from scalescope.scaling.replay.ranks.side_by_side import SideBySide, lay_side_by_side, under
from scalescope.scaling.replay.removal import remove
from scalescope.scaling.replay.simulate import bounded, bounded_steps, mean_step_ns, simulate, simulate_steps
from scalescope.scaling.replay.times import CollectiveTimes, TraceTimes

#: A replay without changes must be within this of the trace, else nothing is said of changes.
FAITHFUL = 0.01
#: Causes that are there already are priced by a replay that is within this: what it leaves out, it leaves out twice.
NEAR = 0.05
#: Nothing is predicted surer than this share of the change: so far off were known delays, taken out of traces of 2 and
#: 4×H200, from runs that never had them.
_LEAST_SHARE = 0.05
#: So many activities must be run in all for processes of their own to pay off: where C runs them, where Python does.
_WORTH_PROCESSES, _WORTH_PROCESSES_IN_PYTHON = 1_000_000, 100_000
#: Between the bounds of recording's scale, the step must move by so much for it to tell what follows it.
_FOLLOWS = 0.002
#: Of fewer steps it may be chance that they are even without a cause.
_FEWEST_LEFT = 3
#: A step that is known is known within this.
_KNOWN_WITHIN = 0.03
#: How far a transfer's rate under compute may be from the one used: where it was measured, and where it was not.
_MEASURED_SPREAD, _ASSUMED_SPREAD = 0.05, 0.15


class Prediction(msgspec.Struct, kw_only=True):
    """What a change would do to the step, each figure with its 95% interval."""

    change: Change
    what: str
    step_ms: float | None  # None: it cannot be told, see `reason`
    change_ms: float | None = None
    low_ms: float | None = None  # of the change
    high_ms: float | None = None
    fraction: float | None = None  # change over the replayed step
    reason: str | None = None


class WhatIf(msgspec.Struct, kw_only=True):
    """A run's replay, and what changes would do to it."""

    name: str
    replay: Replay
    step_ms: float  # unchanged: what the predictions' changes are of
    predictions: list[Prediction] = []


class _Assumed(msgspec.Struct, frozen=True):
    """One set of assumptions: the graph under them, its unchanged replay, and how collectives of other sizes come out.

    `place`: 0.5 for the most likely time of a collective, lower for faster ones, higher for slower ones.
    """

    graph: Graph
    base: dict[int, list[float]]
    place: float
    which: int
    bursts: dict[Change, Bursts] = {}  # by what of a change is made before gradients are cut anew


#: By how many ns the mean rank's steps change; in words, why that is not known.
_Deltas = list[float] | str


class Replayer:
    """One run's traces, ready to be replayed under changes."""

    def __init__(
        self,
        records: Mapping[int, RankRecord],
        times: CollectiveTimes | None = None,
        alone: RankRecord | None = None,
        jobs: int | None = None,
    ) -> None:
        """`times`: of collectives alone, from a sweep; `alone`: the same job on one rank, to measure inflation by.

        `jobs`: processes that work out what changes do; None: as many as pay off.
        """
        if not records:
            raise UserError("there are no traces to replay")
        self.records = records
        self.on_cpu = all(one.activity == "cpu" for one in records.values())  # that is where the ranks compute
        contention = measure_contention(records, alone)
        self.traced = build_graph(records)
        self._aligned = keep_absences(self.traced, lay_side_by_side(self.traced, on_cpu=self.on_cpu))
        if alone is None and not self.on_cpu:
            contention = measured_between_ranks(contention, cells_between_ranks(self.traced, self._aligned))
        known = times if times is not None and _covers(self.traced, times) else None
        rate = measure_transfer_rate(self.traced, known) if known is not None else None
        self._rate_known = rate is not None
        self.contention = replace(contention, transfer_rate=rate) if rate is not None else contention
        if not self.on_cpu:
            self.traced.slowed = slowing_of_launches(replace(self.traced, contention=self.contention), self._aligned)
        self.graph = self.traced.under(self.contention)
        self.times: CollectiveTimes = known if known is not None else TraceTimes(self.graph.transfers)
        self._jobs = jobs
        self._assumed_at: dict[int, _Assumed] = {}
        self._sides: dict[int, SideBySide] = {}
        self._known: dict[tuple[Change, int], _Deltas] = {}  # by the change, and which assumptions
        self.stalled: str | None = None  # why the unchanged replay does not come to its end
        self.base: dict[int, list[float]] = {rank: [] for rank in self.graph.ranks}
        try:
            self.base = simulate_steps(self.graph)
        except RunError as error:
            self.stalled = str(error)
        self.base_ns = self._traced_ns = mean_step_ns(self.base)
        self._traced_base = self.base
        self._recording: Recording | None = None
        self.longest_ns: float | None = None  # the step as run is known to be no longer
        self.known_ns: Interval | None = None  # the mean of many steps, of which the replayed ones are a few

    def take_out(self, recording: Recording) -> Timing:
        """Speak of the step as run from here on: `graph`, `base` and predictions; return when all of it runs.

        Raises RunError where the replay stalls; then nothing is changed.
        """
        graph = recording.taken_out(self.traced.under(self.contention), recording.scale.value)
        timing = simulate(graph)
        single = any(len(own) < 2 for own in graph.steps.values())
        self.base = bounded(timing.step_ns(graph)) if single else bounded_steps(graph, timing)
        self.base_ns = mean_step_ns(self.base)
        self.graph, self._recording = graph, recording
        self._forget()
        return timing

    def put_back(self) -> None:
        """Speak of the step as traced once more."""
        self.base, self.base_ns = self._traced_base, self._traced_ns
        self.graph, self._recording = self.traced.under(self.contention), None
        self._forget()

    @property
    def slower_devices(self) -> float:
        """How many times as long devices take in the step that is spoken of as in the trace."""
        return self._recording.devices if self._recording is not None else 1.0

    def _forget(self) -> None:
        self._assumed_at.clear()
        self._sides.clear()
        self._known.clear()

    @cached_property
    def replay(self) -> Replay:
        """How well the unchanged replay reproduces the trace."""
        traced = {
            rank: [float(right - left) for left, right in pairwise(edges)] for rank, edges in self.traced.edges.items()
        }
        mean = mean_step_ns(bounded(traced))
        error = self._traced_ns / mean - 1 if mean else 0.0
        unexplained = max(self.traced.unexplained_ns.values(), default=0.0) / max(1, len(self.traced.step_numbers))
        return Replay(
            traced_ms=mean / 1e6,
            replayed_ms=self._traced_ns / 1e6,
            error=error,
            unexplained_ms=unexplained / 1e6,
            faithful=abs(error) <= FAITHFUL and mean > 0,
            assumptions=self.assumptions,
        )

    @cached_property
    def buckets(self) -> list[StepBuckets] | str:
        """DDP's buckets, a step; in words why there are none. They are the same under all assumptions."""
        return find_buckets(self.graph)

    @property
    def side_by_side(self) -> SideBySide:
        """The ranks' launches, aligned, with their times as the likeliest assumptions have them."""
        return self._side(0, self.graph)

    def _side(self, which: int, graph: Graph) -> SideBySide:
        if which not in self._sides:
            self._sides[which] = under(self._aligned, graph)
        return self._sides[which]

    @cached_property
    def _collectives(self) -> OtherCollectives:
        return OtherCollectives(self.graph.transfers, self.times)

    @cached_property
    def assumptions(self) -> list[str]:
        """What predictions rest on, in words."""
        if not self.graph.transfers:
            return []
        known = "measured between hidden and bare ones" if self._rate_known else "assumed"
        ratio = median([ratio for _, ratio in self._collectives.ratios], 1.0)
        return [
            f"inflation {self.contention.basis}",
            f"transfers under compute at {self.contention.transfer_rate:.2f} of their own rate, {known}",
            f"collectives of other sizes: {self.times.source}, × {ratio:.2f} as in the trace",
        ]

    @property
    def waits_for_others(self) -> bool:
        """Whether collectives hold ranks together in the replay, as they do where they are matched: one a step does."""
        return sum(len(one.members) > 1 for one in self.graph.transfers) >= len(self.graph.step_numbers)

    @cached_property
    def latest_rank(self) -> int | None:
        """The rank that comes last most often; None without collectives of several ranks."""
        last = Counter(
            max(one.members, key=lambda rank: self.graph.activities[one.members[rank]].traced_start)
            for one in self.graph.transfers
        )
        return last.most_common(1)[0][0] if last else None

    def is_good_for(self, *, near: bool) -> bool:
        """Whether anything is predicted: where the replay is faithful, or (`near`) within a few per cent."""
        return self.stalled is None and (self.replay.faithful or (near and abs(self.replay.error) <= NEAR))

    def predict(
        self, change: Change, *, quick: bool = False, beyond: Change | None = None, near: bool = False
    ) -> Prediction:
        """Return what a change would do; `quick`: without the interval.

        `beyond`: another change that is made already. `near`: a replay that is a few per cent off will do.
        """
        if self.stalled is not None:
            return _withheld(change, self.stalled)
        if not self.is_good_for(near=near):
            return _withheld(
                change,
                f"the unchanged replay is {100 * self.replay.error:+.1f}% off the trace "
                f"({self.replay.unexplained_ms:.2f} ms a step wait for what the traces do not show)",
            )
        asked = [0] if quick else [which for which in range(1 + len(self._corners)) if self._may_be(which)]
        found = [self._deltas(change, which) for which in asked]
        if beyond is not None:
            already = [self._deltas(beyond, which) for which in asked]
            found = [_difference(one, other) for one, other in zip(found, already, strict=True)]
        for one in found:
            if isinstance(one, str):
                return _withheld(change, one)
        return self._prediction(change, {which: one for which, one in zip(asked, found, strict=True)
                                         if not isinstance(one, str)}, whole=beyond is None)  # fmt: skip

    def _may_be(self, which: int) -> bool:
        """Whether assumptions leave the step no longer than it is known to be."""
        if which == 0 or self.longest_ns is None:
            return True
        try:
            return mean_step_ns(self._assumed(which).base) <= self.longest_ns * (1 + _KNOWN_WITHIN)
        except RunError:
            return False

    def _prediction(self, change: Change, found: Mapping[int, list[float]], *, whole: bool) -> Prediction:
        center = found[0]
        middles = {which: statistics.fmean(deltas) for which, deltas in found.items()}
        # what is left of a step without a cause was run so; what other settings would leave, the model says alone
        run_so = whole and change == Change(without=change.without)
        left = self._half_of_what_is_left(center) if run_so else math.inf
        own = min(half_of_mean(self._own_differences(center, middles)), left)
        noise = max(own, _LEAST_SHARE * abs(middles[0]))
        # what is assumed is wrong for other reasons than those that steps differ for
        below, above = middles[0] - min(middles.values()), max(middles.values()) - middles[0]
        return Prediction(
            change=change,
            what=change.description,
            step_ms=(self.base_ns + middles[0]) / 1e6,
            change_ms=middles[0] / 1e6,
            low_ms=(middles[0] - math.hypot(below, noise)) / 1e6,
            high_ms=(middles[0] + math.hypot(above, noise)) / 1e6,
            fraction=middles[0] / self.base_ns,
        )

    def _own_differences(self, deltas: Sequence[float], middles: Mapping[int, float]) -> Sequence[float]:
        """Return by what a change's effects on the steps differ for other reasons than that the steps themselves do.

        Of a step whose mean is known, what single ones differ by is no error: recording's scale was found so that the
        mean is the known one. As far as the change's effect follows the step's length, which the bounds of that scale
        tell, it is as well known as that. A step that hosts bound and that devices bound after the change is such a
        one: its effect varies as the step did, and what is left of it does not.
        """
        cheap, costly = ([1 + at for at, one in enumerate(self._corners) if one[2] == dear] for dear in (False, True))
        if self._recording is None or not self._recording.fitted or any(one not in middles for one in cheap + costly):
            return deltas
        low, high = ([mean_step_ns(self._assumed(one).base) for one in which] for which in (costly, cheap))
        longer = statistics.fmean(high) - statistics.fmean(low)
        if longer <= _FOLLOWS * self.base_ns:
            return deltas
        more = statistics.fmean(middles[one] for one in cheap) - statistics.fmean(middles[one] for one in costly)
        follows = min(max(more / longer, -1.0), 0.0)  # a longer step has more to lose
        steps = [statistics.fmean(of_ranks) for of_ranks in zip(*self._assumed(0).base.values(), strict=False)]
        if len(steps) != len(deltas):
            return deltas
        return [delta - follows * step for delta, step in zip(deltas, steps, strict=True)]

    def _half_of_what_is_left(self, deltas: Sequence[float]) -> float:
        """Return how far a change's effect may be off as the known mean step less what it leaves of each replayed one.

        Steps that a cause makes uneven are even without it: of a loader that costs 1 to 3 ms, three steps tell hardly
        what it costs in the mean, but well how long a step is without, and many untraced ones how long with it. What
        the replayed steps are off those by may be off the effect as well.
        """
        steps = [statistics.fmean(of_ranks) for of_ranks in zip(*self._assumed(0).base.values(), strict=False)]
        if self.known_ns is None or self.on_cpu or len(steps) != len(deltas) or len(steps) < _FEWEST_LEFT:
            return math.inf
        left = half_of_mean([step + delta for step, delta in zip(steps, deltas, strict=True)])
        off = abs(self.base_ns - self.known_ns.value) + (self.known_ns.high - self.known_ns.low) / 2
        return math.hypot(left, off)

    def work_out(self, changes: Sequence[Change], *, quick: bool = False, near: bool = False) -> None:
        """Work out what changes would do, several at a time where that pays: `predict` then has it at hand."""
        if not self.is_good_for(near=near) or not changes:
            return
        if quick:
            tasks = [(0, [change]) for change in changes]
        else:  # a corner's unchanged replay is needed once
            tasks = [(0, list(changes))] + [(1 + at, list(changes)) for at in range(len(self._corners))]
        tasks = [
            (which, new) for which, some in tasks if (new := [one for one in some if (one, which) not in self._known])
        ]
        runs = sum(len(new) + (which > 0) for which, new in tasks)
        workers = self._jobs if self._jobs is not None else usable_cores()
        worth = _WORTH_PROCESSES if compiled.is_built() else _WORTH_PROCESSES_IN_PYTHON
        if self._jobs is None and runs * len(self.graph.activities) < worth:
            workers = 1
        for (which, new), found in zip(tasks, map_in_processes(self._work, tasks, workers, "replayed"), strict=True):
            self._known.update(zip([(change, which) for change in new], found, strict=True))

    def _work(self, task: tuple[int, Sequence[Change]]) -> list[_Deltas]:
        which, changes = task
        return [self._deltas(change, which) for change in changes]

    @cached_property
    def _corners(self) -> list[tuple[Contention, float, bool]]:
        """The contention, the place of a collective's time, and whether recording costs most: a prediction's bounds.

        Half of all combinations: each bound of one meets both bounds of each other one.
        """
        own = self.contention
        spread = _MEASURED_SPREAD if self._rate_known else _ASSUMED_SPREAD
        slow, fast = max(0.4, own.transfer_rate - spread), min(1.0, own.transfer_rate + spread)
        return [
            (replace(own, inflation=inflation, transfer_rate=rate), place, costly)
            for inflation, rate, place, costly in (
                (own.inflation_low, fast, 0.1, False), (own.inflation_high, slow, 0.9, False),
                (own.inflation_low, slow, 0.9, True), (own.inflation_high, fast, 0.1, True),
            )
        ]  # fmt: skip

    def _assumed(self, which: int) -> _Assumed:
        """Return the likeliest assumptions (0), or those of a corner. Raises RunError where its replay stalls."""
        if which == 0 and which not in self._assumed_at:
            self._assumed_at[which] = _Assumed(self.graph, self._steps(self.graph), 0.5, which)
        if which not in self._assumed_at:
            contention, place, costly = self._corners[which - 1]
            graph = self.traced.under(contention)
            if self._recording is not None:
                scale = self._recording.scale
                graph = self._recording.taken_out(graph, scale.high if costly else scale.low)
            self._assumed_at[which] = _Assumed(graph, self._steps(graph), place, which)
        return self._assumed_at[which]

    def _steps(self, graph: Graph) -> dict[int, list[float]]:
        """Return an unchanged graph's steps in full swing; where hosts compute, as they are: ranks drift by chance."""
        return simulate_steps(graph) if self.on_cpu else settled_steps(graph)

    def _deltas(self, change: Change, which: int) -> _Deltas:
        if (change, which) not in self._known:
            try:
                self._known[change, which] = self._replay(change, self._assumed(which))
            except RunError as error:
                self._known[change, which] = str(error)
        return self._known[change, which]

    def _replay(self, change: Change, assumed: _Assumed) -> _Deltas:
        graph = assumed.graph.copy()
        why = self._apply(graph, change, assumed)
        if why is not None:
            return why
        base = assumed.base
        after = settled_steps(graph, base if self.on_cpu else None)
        return [
            statistics.fmean(after[rank][at] - base[rank][at] for rank in base)
            for at in range(min(len(own) for own in base.values()))
            if at not in graph.left_out
        ]

    def _apply(self, graph: Graph, change: Change, assumed: _Assumed) -> str | None:
        """Change a graph in place; return in words why that cannot be done."""
        if change.without:  # first: these know the calls as traced
            side = self._side(assumed.which, assumed.graph)
            for removal in change.without:
                remove(graph, side, removal, on_cpu=self.on_cpu)
        if change.no_straggler is not None:
            if change.no_straggler not in graph.ranks:
                return f"there is no rank {change.no_straggler} in the traces"
            if len(graph.ranks) < 2:
                return "one rank has no others to be as fast as"
            even_out(graph, change.no_straggler)
        if change.data_free:
            free_data(graph)
        if change.host_free:
            free_host(graph)
        if change.bucket_mib is not None or change.gradients is not None or change.spread:
            if isinstance(self.buckets, str):
                return self.buckets
            bursts = partial(_bursts, assumed, change, graph, self.buckets)
            why = self._collectives.recut(graph, self.buckets, change, assumed.place, bursts)
            if why is not None:
                return why
        if change.link is not None:
            self._collectives.speed_up(graph, change.link)
        if change.overlap == "none":
            no_overlap(graph)
        elif change.overlap == "perfect":
            perfect_overlap(graph)
        if change.no_inflation:
            graph.contention = replace(graph.contention, inflation=0.0)
        if graph.paced:
            keep_pace(graph, assumed.graph, _loading_freed(graph, change))
        return None


def _loading_freed(graph: Graph, change: Change) -> frozenset[int]:
    """Return the ranks whose batches a change lets come otherwise than they do."""
    if change.data_free:
        return frozenset(graph.ranks)
    freed = {one.rank for one in change.without if one.what == "data"} | ({change.no_straggler} - {None})
    return frozenset(graph.ranks if None in freed else (one for one in freed if one is not None))


def _bursts(assumed: _Assumed, change: Change, graph: Graph, buckets: Sequence[StepBuckets]) -> Bursts:
    """Return how gradients come in a graph under these assumptions in which what a change begins with is made."""
    begun = Change(without=change.without, no_straggler=change.no_straggler, data_free=change.data_free,
                   host_free=change.host_free)  # fmt: skip
    if begun not in assumed.bursts:
        assumed.bursts[begun] = Bursts(graph, buckets)
    return assumed.bursts[begun]


def _difference(deltas: _Deltas, already: _Deltas) -> _Deltas:
    """Return what is beyond what is made already; where a change leaves steps out, of those at the front alone."""
    if isinstance(deltas, str):
        return deltas
    if isinstance(already, str):
        return already
    return [one - other for one, other in zip(deltas, already, strict=False)]


def _withheld(change: Change, reason: str) -> Prediction:
    return Prediction(change=change, what=change.description, step_ms=None, reason=reason)


def _covers(graph: Graph, times: CollectiveTimes) -> bool:
    sized = [one for one in graph.transfers if one.bytes]
    return bool(sized) and all(
        times.time_us(one.operation, one.bytes or 1, one.dtype, one.group_size) is not None for one in sized
    )
