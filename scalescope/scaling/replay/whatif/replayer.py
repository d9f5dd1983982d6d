"""What a change would do to the step: the replay of a changed graph against the replay of the unchanged one.

Both run in the same simulation, so what it leaves out is left out of both. Once recording's cost is taken out, both are
of the step as run; how well a replay reproduces the trace is judged on the step as traced all the same. A figure's
interval covers what is assumed: inflation, how fast transfers are under compute, how the times of collectives in
training spread around those alone, what recording costs, and the steps' own differences; where a change sends other
things or at other times, also what the replay was wrong by of such changes that were made.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from scalescope.records.environment import usable_cores
from scalescope.records.errors import RunError
from scalescope.records.statistics import half_of_mean, student_95
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.ranks.processes import map_in_processes
from scalescope.scaling.replay.buckets import NARROWING, StepBuckets
from scalescope.scaling.replay.bursts import Bursts
from scalescope.scaling.replay.change import Change, even_out, free_data, free_host, no_overlap, perfect_overlap
from scalescope.scaling.replay.engine import compiled
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.hook_gaps import begin_later
from scalescope.scaling.replay.host_cost import settled_steps
from scalescope.scaling.replay.ranks.paced import keep_pace
from scalescope.scaling.replay.removal import remove
from scalescope.scaling.replay.simulate import mean_step_ns
from scalescope.scaling.replay.times import CollectiveTimes
from scalescope.scaling.replay.whatif.model_error import MODEL_ERROR
from scalescope.scaling.replay.whatif.prediction import Prediction, withheld
from scalescope.scaling.replay.whatif.unchanged import Assumed, Unchanged

#: Nothing is predicted surer than this share of the change: so far off were known delays, taken out of traces of 2 and
#: 4×H200, from runs that never had them.
LEAST_SHARE = 0.05
#: So many activities must be run in all for processes of their own to pay off: where C runs them, where Python does.
_WORTH_PROCESSES, _WORTH_PROCESSES_IN_PYTHON = 1_000_000, 100_000
#: Between the bounds of recording's scale, the step must move by so much for it to tell what follows it.
_FOLLOWS = 0.002
#: Of fewer steps it may be chance that they are even without a cause.
_FEWEST_LEFT = 3
#: Nor do fewer lie on a line but by chance.
_FEWEST_ON_A_LINE = 5

#: All of so many steps lie above the typical one in one case of 32.
_FEWEST_FOR_LEAST = 5

#: By how many ns the mean rank's steps change; in words, why that is not known.
Deltas = list[float] | str
#: Assumptions that make the step longer than this share of the known one contradict it.
_KNOWN_TO = 0.02


class InEachStep(NamedTuple):
    """What a change does in each step alike."""

    least_share: float  # what it brings in the step in which it brings least, of what it brings in the mean
    left_low_ns: float  # how long the mean step is without, at least


class Replayer(Unchanged):
    """One run's traces, ready to be replayed under changes."""

    def __init__(
        self,
        records: Mapping[int, RankRecord],
        times: CollectiveTimes | None = None,
        alone: RankRecord | None = None,
        jobs: int | None = None,
    ) -> None:
        """`times`, `alone`: as `Unchanged` has them. `jobs`: processes that work out what changes do; None: as many as
        pay off.
        """
        super().__init__(records, times, alone)
        self._jobs = jobs
        self._known: dict[tuple[Change, int], Deltas] = {}  # by the change, and which assumptions

    def _forget(self) -> None:
        super()._forget()
        self._known.clear()

    def predict(
        self, change: Change, *, quick: bool = False, beyond: Change | None = None, near: bool = False
    ) -> Prediction:
        """Return what a change would do; `quick`: without the interval.

        `beyond`: another change that is made already. `near`: a replay that is a few per cent off will do.
        """
        if self.stalled is not None:
            return withheld(change, self.stalled)
        if not self.is_good_for(near=near):
            return withheld(
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
                return withheld(change, one)
        return self._prediction(change, {which: one for which, one in zip(asked, found, strict=True)
                                         if not isinstance(one, str)}, whole=beyond is None)  # fmt: skip

    def gained_if_others(self, change: Change, ranks: tuple[int, ...], times: float) -> float | None:
        """Return what a change would bring, ms, if recording cost all ranks but these so many times as much.

        None where the untraced step does not tell what it costs, or contradicts that.
        """
        try:
            assumed = self._others_recorded(ranks, times)
            if assumed is None or mean_step_ns(assumed.base) > self.base_ns * (1 + _KNOWN_TO):
                return None
            deltas = self._replay(change, assumed)
        except RunError:
            return None
        return None if isinstance(deltas, str) else -statistics.fmean(deltas) / 1e6

    def _prediction(self, change: Change, found: Mapping[int, list[float]], *, whole: bool) -> Prediction:
        center = found[0]
        middles = {which: statistics.fmean(deltas) for which, deltas in found.items()}
        # what is left of a step without a cause was run so; what other settings would leave, the model says alone
        run_so = whole and change == Change(without=change.without)
        left = self._half_of_what_is_left(center) if run_so else math.inf
        own = min(half_of_mean(self._own_differences(center, middles)), left, self._half_by_length(center))
        noise = max(own, LEAST_SHARE * abs(middles[0]))
        # what is assumed is wrong for other reasons than those that steps differ for
        below, above = middles[0] - min(middles.values()), max(middles.values()) - middles[0]
        model = MODEL_ERROR * self.base_ns if change.sends_otherwise else 0.0
        return Prediction(
            change=change,
            what=change.description,
            step_ms=(self.base_ns + middles[0]) / 1e6,
            change_ms=middles[0] / 1e6,
            low_ms=(middles[0] - math.hypot(below, noise, model)) / 1e6,
            high_ms=(middles[0] + math.hypot(above, noise, model)) / 1e6,
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

    @property
    def usual_ns(self) -> float | None:
        """The typical step as run of the mean rank; None where the mean of the replayed ones was fitted to one,
        or hosts compute.
        """
        if self.on_cpu or (self._recording is not None and self._recording.fitted):
            return None
        medians = [statistics.median(own) for own in self.base.values() if own]
        return statistics.fmean(medians) if medians else None

    def left_ns(self, change: Change) -> float | None:
        """Return how long the mean step is without what a change takes out; None where nothing tells that it is even.

        It is where single steps differ less without the cause than by what it costs each of them.
        """
        deltas = self._deltas(change, 0)
        steps = [statistics.fmean(of_ranks) for of_ranks in zip(*self._assumed(0).base.values(), strict=False)]
        if self.on_cpu or isinstance(deltas, str) or len(steps) != len(deltas) or len(steps) < _FEWEST_LEFT:
            return None
        left = [step + delta for step, delta in zip(steps, deltas, strict=True)]
        return statistics.fmean(left) if statistics.stdev(left) <= statistics.stdev(deltas) else None

    def in_each_step(self, change: Change) -> InEachStep | None:
        """Return what a change does in each step alike; None of too few to tell, or where it brings nothing."""
        deltas = self._deltas(change, 0)
        steps = [statistics.fmean(of_ranks) for of_ranks in zip(*self._assumed(0).base.values(), strict=False)]
        if isinstance(deltas, str) or len(deltas) < _FEWEST_FOR_LEAST or len(steps) != len(deltas):
            return None
        if statistics.fmean(deltas) >= 0:
            return None
        left = [step + delta for step, delta in zip(steps, deltas, strict=True)]
        return InEachStep(
            least_share=max(0.0, max(deltas) / statistics.fmean(deltas)),
            left_low_ns=max(0.0, statistics.fmean(left) - half_of_mean(left)),
        )

    def _half_by_length(self, deltas: Sequence[float]) -> float:
        """Return how far a change's effect may be off where it follows each step's length, and the mean step is known.

        Of ranks that have more to do by turns, the step with most of it is the longest, and gains most. Such steps
        differ by far more than what one gains is off the line through all of them: that line is known at the mean step.
        """
        steps = [statistics.fmean(of_ranks) for of_ranks in zip(*self._assumed(0).base.values(), strict=False)]
        if self.known_ns is None or self.on_cpu or len(steps) != len(deltas) or len(steps) < _FEWEST_ON_A_LINE:
            return math.inf
        if statistics.pstdev(steps) <= _FOLLOWS * self.base_ns:
            return math.inf
        slope, at_zero = statistics.linear_regression(steps, deltas)
        off = [delta - slope * step - at_zero for step, delta in zip(steps, deltas, strict=True)]
        degrees = len(off) - 2
        about = math.sqrt(sum(one**2 for one in off) / degrees / len(off))  # of the line, at the mean step
        along = about / statistics.pstdev(steps)  # of its slope
        away = abs(self.base_ns - self.known_ns.value) + (self.known_ns.high - self.known_ns.low) / 2
        return math.hypot(student_95(degrees) * about, away * (abs(slope) + student_95(degrees) * along))

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

    def _work(self, task: tuple[int, Sequence[Change]]) -> list[Deltas]:
        which, changes = task
        return [self._deltas(change, which) for change in changes]

    def _deltas(self, change: Change, which: int) -> Deltas:
        if (change, which) not in self._known:
            try:
                self._known[change, which] = self._replay(change, self._assumed(which))
            except RunError as error:
                self._known[change, which] = str(error)
        return self._known[change, which]

    def _replay(self, change: Change, assumed: Assumed) -> Deltas:
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

    def _apply(self, graph: Graph, change: Change, assumed: Assumed) -> str | None:
        """Change a graph in place; return in words why that cannot be done."""
        if change.without:  # first: these know the calls as traced
            side = self._side(assumed.which, assumed.graph)
            for removal in change.without:
                remove(graph, side, removal, on_cpu=self.on_cpu)
        for rank in (late := change.evened_out):
            if rank not in graph.ranks:
                return f"there is no rank {rank} in the traces"
            if not set(graph.ranks) - set(late):
                return f"{'one rank has' if len(late) < 2 else 'all ranks together have'} no others to be as fast as"
            even_out(graph, rank, late)
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
            if not self.on_cpu and any(one.name == NARROWING for one in graph.activities):
                begin_later(graph, self.buckets)
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
    freed = {one.rank for one in change.without if one.what == "data"} | set(change.evened_out)
    return frozenset(graph.ranks if None in freed else (one for one in freed if one is not None))


def _bursts(assumed: Assumed, change: Change, graph: Graph, buckets: Sequence[StepBuckets]) -> Bursts:
    """Return how gradients come in a graph under these assumptions in which what a change begins with is made."""
    begun = Change(without=change.without, no_straggler=change.no_straggler, no_stragglers=change.no_stragglers,
                   data_free=change.data_free,
                   host_free=change.host_free)  # fmt: skip
    if begun not in assumed.bursts:
        assumed.bursts[begun] = Bursts(graph, buckets)
    return assumed.bursts[begun]


def _difference(deltas: Deltas, already: Deltas) -> Deltas:
    """Return what is beyond what is made already; where a change leaves steps out, of those at the front alone."""
    if isinstance(deltas, str):
        return deltas
    if isinstance(already, str):
        return already
    return [one - other for one, other in zip(deltas, already, strict=False)]
