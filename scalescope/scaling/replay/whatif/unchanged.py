"""The step as it is, replayed: as traced and as run, under the likeliest assumptions and at their bounds.

What a change does is told beside it, in the same simulation, so what that leaves out is left out of both. Once
recording's cost is taken out, the step is that as run; how well a replay reproduces the trace is judged on the step as
traced all the same. What is assumed: inflation, how fast transfers are under compute, how the times of collectives in
training spread around those alone, what recording costs.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from scalescope.records.errors import RunError, UserError
from scalescope.scaling.answer import Replay
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.replay.buckets import StepBuckets, find_buckets
from scalescope.scaling.replay.build import build_graph
from scalescope.scaling.replay.bursts import Bursts
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.contention import measure_contention, measure_transfer_rate, measured_between_ranks
from scalescope.scaling.replay.engine.timing import Timing
from scalescope.scaling.replay.graph import Contention, Graph, median
from scalescope.scaling.replay.host_cost import Recording, settled_steps
from scalescope.scaling.replay.other_collectives import OtherCollectives
from scalescope.scaling.replay.ranks.absences import keep_absences
from scalescope.scaling.replay.ranks.between_ranks import cells_between_ranks
from scalescope.scaling.replay.ranks.launch_inflation import slowing_of_launches, undisturbed
from scalescope.scaling.replay.ranks.side_by_side import SideBySide, lay_side_by_side, under
from scalescope.scaling.replay.simulate import bounded, bounded_steps, mean_step_ns, simulate, simulate_steps
from scalescope.scaling.replay.times import CollectiveTimes, TraceTimes
from scalescope.scaling.replay.whatif.prediction import ChangedStep

#: A replay without changes must be within this of the trace, else nothing is said of changes.
FAITHFUL = 0.01
#: Causes that are there already are priced by a replay that is within this: what it leaves out, it leaves out twice.
NEAR = 0.05
#: A step that is known is known within this.
_KNOWN_WITHIN = 0.03
#: How far a transfer's rate under compute may be from the one used: where it was measured, and where it was not.
_MEASURED_SPREAD, _ASSUMED_SPREAD = 0.05, 0.15


class Assumed(msgspec.Struct, frozen=True):
    """One set of assumptions: the graph under them, its unchanged replay, and how collectives of other sizes come out.

    `place`: 0.5 for the most likely time of a collective, lower for faster ones, higher for slower ones.
    """

    graph: Graph
    base: dict[int, list[float]]
    place: float
    which: int
    bursts: dict[Change, Bursts] = {}  # by what of a change is made before gradients are cut anew


class Unchanged:
    """One run's traces, ready to be replayed."""

    def __init__(
        self,
        records: Mapping[int, RankRecord],
        times: CollectiveTimes | None = None,
        alone: RankRecord | None = None,
    ) -> None:
        """`times`: of collectives alone, from a sweep; `alone`: the same job on one rank, to measure inflation by."""
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
            self.traced.slowed = slowing_of_launches(
                dataclasses.replace(self.traced, contention=self.contention), self._aligned
            )
        self.graph = self.traced.under(self.contention)
        self.times: CollectiveTimes = known if known is not None else TraceTimes(self.graph.transfers)
        self._assumed_at: dict[int, Assumed] = {}
        self._others_at: dict[tuple[tuple[int, ...], float], Assumed] = {}
        self._sides: dict[int, SideBySide] = {}
        self.stalled: str | None = None  # why the unchanged replay does not come to its end
        self.base: dict[int, list[float]] = {rank: [] for rank in self.graph.ranks}
        try:
            self.base = simulate_steps(self.graph)
        except RunError as error:
            self.stalled = str(error)
        self.base_ns = self._traced_ns = mean_step_ns(self.base)
        self._traced_base = self.base
        self._recording: Recording | None = None
        self.cut_by_bucket = False  # the compiled graph is cut where gradient buckets end
        self.longest_ns: float | None = None  # the step as run is known to be no longer
        self.known_ns: Interval | None = None  # the mean of many steps, of which the replayed ones are a few
        self.of: ChangedStep = "as_profiled"  # which step `base` is of
        self.job_ms: float | None = None  # what a step of hosts that compute takes by all of the job's own

    def take_out(self, recording: Recording) -> Timing:
        """Speak of the step as run from here on: `graph`, `base` and predictions; return when all of it runs.

        Raises RunError where the replay stalls; then nothing is changed.
        """
        graph = recording.taken_out(self.undisturbed(self.contention), recording.scale.value)
        timing = simulate(graph)
        single = any(len(own) < 2 for own in graph.steps.values())
        self.base = bounded(timing.step_ns(graph)) if single else bounded_steps(graph, timing)
        self.base_ns = mean_step_ns(self.base)
        self.graph, self._recording = graph, recording
        self._forget()
        return timing

    def undisturbed(self, contention: Contention) -> Graph:
        """Return the graph, as traced, under a contention, but for launches that something disturbed, which take what
        they do undisturbed: what recording made of a step is in its devices' times as well.
        """
        graph = self.traced.under(contention)
        for at, ns in self._undisturbed_ns.items():
            graph.work_ns[at] = ns
        return graph

    @cached_property
    def _undisturbed_ns(self) -> dict[int, float]:
        """By activity: what it takes undisturbed, where the same launch ran so in another step or on another rank."""
        if self.on_cpu:
            return {}
        return undisturbed(dataclasses.replace(self.traced, contention=self.contention), self._aligned)

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
        self._others_at.clear()
        self._sides.clear()

    @cached_property
    def replay(self) -> Replay:
        """How well the unchanged replay reproduces the trace."""
        traced = {
            rank: [float(right - left) for left, right in pairwise(edges)] for rank, edges in self.traced.edges.items()
        }
        mean = mean_step_ns(bounded(traced))
        between = self._between_begins_ns() if self.on_cpu else 0.0
        error = self._traced_ns / (between or mean) - 1 if mean else 0.0
        unexplained = max(self.traced.unexplained_ns.values(), default=0.0) / max(1, len(self.traced.step_numbers))
        return Replay(
            traced_ms=mean / 1e6,
            replayed_ms=self._traced_ns / 1e6,
            error=error,
            unexplained_ms=unexplained / 1e6,
            faithful=abs(error) <= FAITHFUL and mean > 0,
            assumptions=self.assumptions,
        )

    def _between_begins_ns(self) -> float:
        """Return the mean traced step from its first activity to the next one's, ns, as a replay has it; 0: unlike it.

        What a host does before that, such as fetching its batch, is in the step before: of a few short steps, whose
        edges lie elsewhere, the mean would differ by up to 2% for nothing that a replay left out.
        """
        begins = {
            rank: [self.traced.activities[at].traced_start for at in own if at >= 0]
            for rank, own in self.traced.steps.items()
        }
        steps = {rank: [float(right - left) for left, right in pairwise(own)] for rank, own in begins.items()}
        alike = all(len(own) == len(self._traced_base.get(rank, ())) > 0 for rank, own in steps.items())
        return mean_step_ns(steps) if alike else 0.0

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
        cuts = "other buckets leave the compute as it is, though they cut the compiled graph elsewhere: a run tells"
        return [
            *([cuts] if self.cut_by_bucket else []),
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

    def _assumed(self, which: int) -> Assumed:
        """Return the likeliest assumptions (0), or those of a corner. Raises RunError where its replay stalls."""
        if which == 0 and which not in self._assumed_at:
            self._assumed_at[which] = Assumed(self.graph, self._steps(self.graph), 0.5, which)
        if which not in self._assumed_at:
            contention, place, costly = self._corners[which - 1]
            if self._recording is None:
                graph = self.traced.under(contention)
            else:
                scale, graph = self._recording.scale, self.undisturbed(contention)
                graph = self._recording.taken_out(graph, scale.high if costly else scale.low, quickest=costly)
            self._assumed_at[which] = Assumed(graph, self._steps(graph), place, which)
        return self._assumed_at[which]

    def _others_recorded(self, ranks: tuple[int, ...], times: float) -> Assumed | None:
        """Return the likeliest assumptions, but for recording that costs all ranks but these so many times as much.

        None where the untraced step did not tell what recording costs. Raises RunError where the replay stalls.
        """
        if self._recording is None or not self._recording.fitted or self.on_cpu:
            return None
        if (ranks, times) not in self._others_at:
            graph = self._recording.taken_out(
                self.undisturbed(self.contention),
                self._recording.scale.value,
                times={rank: times for rank in self.graph.ranks if rank not in ranks},
            )
            which = -1 - len(self._others_at)  # none of the corners'
            self._others_at[ranks, times] = Assumed(graph, self._steps(graph), 0.5, which)
        return self._others_at[ranks, times]

    def bases_at_bounds(self) -> list[dict[int, list[float]]]:
        """Return each rank's steps, ns, where recording costs least, and where it costs most.

        Raises RunError where a replay stalls.
        """
        return [self._assumed(1 + at).base for at in (0, 2)]

    def _steps(self, graph: Graph) -> dict[int, list[float]]:
        """Return an unchanged graph's steps in full swing; where hosts compute, as they are: ranks drift by chance."""
        return simulate_steps(graph) if self.on_cpu else settled_steps(graph)

    def _may_be(self, which: int) -> bool:
        """Whether assumptions leave the step no longer than it is known to be."""
        if which == 0 or self.longest_ns is None:
            return True
        try:
            return mean_step_ns(self._assumed(which).base) <= self.longest_ns * (1 + _KNOWN_WITHIN)
        except RunError:
            return False


def _covers(graph: Graph, times: CollectiveTimes) -> bool:
    sized = [one for one in graph.transfers if one.bytes]
    return bool(sized) and all(
        times.time_us(one.operation, one.bytes or 1, one.dtype, one.group_size) is not None for one in sized
    )
