"""What a change would do to the step: the replay of a changed graph against the replay of the traced one.

Both run in the same simulation, so what it leaves out is left out of both. A figure's interval covers what is assumed:
inflation, how fast transfers are under compute, how the times of collectives in training spread around those alone,
and the steps' own differences.
"""

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from records.errors import UserError
from scaling.replay.buckets import StepBuckets, cut_by, find_buckets, first_bucket_cap, recut
from scaling.replay.contention import measure_contention, measure_transfer_rate
from scaling.replay.graph import COMMUNICATION, COMPUTE, Contention, Graph, build_graph, median
from scaling.replay.record import RankRecord
from scaling.replay.simulate import mean_step_ns, simulate
from scaling.replay.times import CollectiveTimes, TraceTimes

#: A replay without changes must be within this of the trace, else nothing is said of changes.
FAITHFUL = 0.01
#: How far a transfer's rate under compute may be from the one used, where nothing measured it.
_RATE_SPREAD = 0.15


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed. Nothing set: nothing is."""

    bucket_mib: float | None = None  # DDP's buckets, cut anew
    gradients: str | None = None  # "bf16" | "fp32": what they travel as
    link: float | None = None  # how many times as fast
    overlap: str | None = None  # "none": collectives begin when the backward pass ends | "perfect": nothing waits
    no_straggler: int | None = None  # this rank takes no longer than the others do
    no_inflation: bool = False  # compute takes no longer beside collectives
    data_free: bool = False  # batches are there when they are asked for
    host_free: bool = False  # launching takes no time

    @property
    def words(self) -> str:
        """Return the change as a reader would say it."""
        told = []
        if self.bucket_mib is not None:
            told.append(f"buckets of {self.bucket_mib:g} MiB")
        if self.gradients is not None:
            told.append(f"gradients travel as {self.gradients}")
        if self.link is not None:
            told.append(f"links {self.link:g} times as fast")
        if self.overlap is not None:
            told.append("no overlap" if self.overlap == "none" else "perfect overlap")
        if self.no_straggler is not None:
            told.append(f"rank {self.no_straggler} no slower than the others")
        if self.no_inflation:
            told.append("compute not slowed by communication")
        if self.data_free:
            told.append("data loading free")
        if self.host_free:
            told.append("launching free")
        return ", ".join(told) or "nothing"


class Prediction(msgspec.Struct, kw_only=True):
    """What a change would do to the profiled step, each figure with its 95% interval."""

    change: Change
    what: str
    step_ms: float | None  # None: it cannot be told, see `reason`
    change_ms: float | None = None
    low_ms: float | None = None  # of the change
    high_ms: float | None = None
    fraction: float | None = None  # change over the replayed step
    reason: str | None = None


class Replay(msgspec.Struct, kw_only=True):
    """The unchanged replay beside the trace, and what it assumes."""

    traced_ms: float
    replayed_ms: float
    error: float  # replayed / traced - 1
    worst_step_error: float  # of all steps and ranks, the largest |error|
    unexplained_ms: float  # idle a step that no dependency explains, on the worst rank
    faithful: bool
    assumptions: list[str]


class Replayer:
    """One run's traces, ready to be replayed under changes."""

    def __init__(
        self,
        records: Mapping[int, RankRecord],
        times: CollectiveTimes | None = None,
        alone: RankRecord | None = None,
    ) -> None:
        """`times`: of collectives alone, from a sweep; `alone`: the same job on one rank, to measure inflation by."""
        if not records:
            raise UserError("there are no traces to replay")
        contention = measure_contention(records, alone)
        known = times is not None and _covers(build_graph(records), times)
        rate = measure_transfer_rate(build_graph(records), times) if known and times is not None else None
        self.contention = msgspec_replace(contention, rate)
        self.rate_known = rate is not None
        self.records = records
        self.graph = build_graph(records, self.contention)
        self.times: CollectiveTimes = times if known and times is not None else TraceTimes(self.graph.transfers)
        self.ratios = self._ratios()
        self.base = simulate(self.graph).step_ns(self.graph)
        self.base_ns = mean_step_ns(self.base)

    @property
    def replay(self) -> Replay:
        """Return how well the unchanged replay reproduces the trace."""
        traced = {
            rank: [float(right - left) for left, right in zip(edges, edges[1:], strict=False)]
            for rank, edges in self.graph.edges.items()
        }
        mean = mean_step_ns(traced)
        worst = max(
            (abs(here / there - 1) for rank in traced for here, there in zip(self.base[rank], traced[rank], strict=True)
             if there > 0), default=0.0,
        )  # fmt: skip
        steps = max(1, len(self.graph.step_numbers))
        error = self.base_ns / mean - 1 if mean else 0.0
        unexplained = max(self.graph.unexplained_ns.values(), default=0.0) / steps
        return Replay(
            traced_ms=mean / 1e6,
            replayed_ms=self.base_ns / 1e6,
            error=error,
            worst_step_error=worst,
            unexplained_ms=unexplained / 1e6,
            faithful=abs(error) <= FAITHFUL and mean > 0,
            assumptions=self.assumptions,
        )

    @property
    def assumptions(self) -> list[str]:
        """Return in words what predictions rest on."""
        if not self.graph.transfers:
            return []
        rate = self.contention.transfer_rate
        known = "measured between hidden and bare ones" if self.rate_known else "assumed"
        return [
            f"inflation {self.contention.basis}",
            f"transfers under compute at {rate:.2f} of their own rate, {known}",
            f"collectives of other sizes: {self.times.source}, × {median(self.ratios, 1.0):.2f} as in the trace",
        ]

    def predict(self, change: Change) -> Prediction:
        """Return what a change would do. Raises UserError for values that make no sense."""
        _check(change)
        if not self.replay.faithful:
            replay = self.replay
            return Prediction(
                change=change,
                what=change.words,
                step_ms=None,
                reason=f"the unchanged replay is {100 * replay.error:+.1f}% off the trace "
                f"({replay.unexplained_ms:.2f} ms a step wait for what the traces do not show)",
            )
        center = self._deltas(change, self.contention, 0.5)
        if isinstance(center, str):
            return Prediction(change=change, what=change.words, step_ms=None, reason=center)
        corners = [statistics.fmean(center)]
        for contention, position in self._corners():
            found = self._deltas(change, contention, position)
            if not isinstance(found, str):
                corners.append(statistics.fmean(found))
        noise = 1.96 * statistics.stdev(center) / len(center) ** 0.5 if len(center) > 1 else 0.0
        noise = max(noise, abs(self.replay.error) * abs(corners[0]))
        step = self.base_ns + corners[0]
        return Prediction(
            change=change,
            what=change.words,
            step_ms=step / 1e6,
            change_ms=corners[0] / 1e6,
            low_ms=(min(corners) - noise) / 1e6,
            high_ms=(max(corners) + noise) / 1e6,
            fraction=corners[0] / self.base_ns,
        )

    def _corners(self) -> list[tuple[Contention, float]]:
        """Return the assumptions at which a prediction's interval is taken, each with its place among the ratios."""
        own = self.contention
        spread = _RATE_SPREAD / (3 if self.rate_known else 1)
        slow, fast = max(0.4, own.transfer_rate - spread), min(1.0, own.transfer_rate + spread)
        return [
            (_with(own, own.inflation_low, fast), 0.1),
            (_with(own, own.inflation_high, slow), 0.9),
            (_with(own, own.inflation_low, slow), 0.9),
            (_with(own, own.inflation_high, fast), 0.1),
        ]

    def _deltas(self, change: Change, contention: Contention, position: float) -> list[float] | str:
        """Return by how many ns each step of each rank changes under assumptions; in words, why that is not known."""
        same = contention is self.contention
        graph = self.graph.copy() if same else build_graph(self.records, contention)
        base = self.base if same else simulate(graph).step_ns(graph)
        changed = graph if not same else graph
        if not same:
            changed = graph.copy()
        why = self._apply(changed, change, position)
        if why is not None:
            return why
        after = simulate(changed).step_ns(changed)
        return [
            statistics.fmean(after[rank][at] - base[rank][at] for rank in base)
            for at in range(min(len(own) for own in base.values()))
        ]

    def _apply(self, graph: Graph, change: Change, position: float) -> str | None:
        if change.no_straggler is not None:
            if change.no_straggler not in graph.ranks:
                return f"there is no rank {change.no_straggler} in the traces"
            _even_out(graph, change.no_straggler)
        if change.data_free:
            _free_data(graph)
        if change.host_free:
            _free_host(graph)
        if change.bucket_mib is not None or change.gradients is not None:
            steps = find_buckets(graph)
            if isinstance(steps, str):
                return steps
            why = self._recut(graph, steps, change, position)
            if why is not None:
                return why
        if change.link is not None:
            self._faster(graph, change.link)
        if change.overlap == "none":
            _no_overlap(graph)
        elif change.overlap == "perfect":
            _perfect_overlap(graph)
        if change.no_inflation:
            graph.contention = _with(graph.contention, 0.0, graph.contention.transfer_rate)
        return None

    def _recut(self, graph: Graph, steps: Sequence[StepBuckets], change: Change, position: float) -> str | None:
        scale = steps[0].scale
        if change.gradients is not None:
            width = steps[0].gradients[graph.ranks[0]][0].element_bytes
            scale = min(1.0, (2 if change.gradients == "bf16" else 4) / width)
        cuts = [step.cut for step in steps]
        if change.bucket_mib is not None:
            cap = round(change.bucket_mib * (1 << 20))
            first = first_bucket_cap(graph, steps)
            cuts = [
                cut_by([one.bytes for one in step.gradients[graph.ranks[0]]], cap, first and min(first, cap))
                for step in steps
            ]
        model = graph.transfers[steps[0].transfers[0]]
        ratio = self._ratio(position)
        work: dict[int, float] = {}
        for size in {round(held * scale) for cut in cuts for _, held in cut}:
            alone = self.times.time_us(model.operation, size, model.dtype, model.group_size)
            if alone is None:
                return f"no time of an {model.operation} on {model.group_size} ranks is known"
            work[size] = alone * ratio
        recut(graph, steps, cuts, scale, work)
        return None

    def _faster(self, graph: Graph, factor: float) -> None:
        """Divide what of each transfer is not latency."""
        for one in graph.transfers:
            latency = self.times.time_us(one.operation, 1, one.dtype, one.group_size)
            fixed = min(one.work_ns, (latency or 0.0) * 1e3)
            one.work_ns = fixed + (one.work_ns - fixed) / factor

    def _ratios(self) -> list[float]:
        """Return, ascending, the transfers' work over their times alone, of those from 1 MiB up."""
        found = []
        for one in self.graph.transfers:
            if one.bytes is None or one.bytes < 1 << 20:
                continue
            alone = self.times.time_us(one.operation, one.bytes, one.dtype, one.group_size)
            if alone:
                found.append(one.work_ns / 1e3 / alone)
        return sorted(found)

    def _ratio(self, position: float) -> float:
        if not self.ratios:
            return 1.0
        return self.ratios[round(position * (len(self.ratios) - 1))]


def _covers(graph: Graph, times: CollectiveTimes) -> bool:
    sized = [one for one in graph.transfers if one.bytes]
    return bool(sized) and all(
        times.time_us(one.operation, one.bytes or 1, one.dtype, one.group_size) is not None for one in sized
    )


def msgspec_replace(contention: Contention, rate: float | None) -> Contention:
    """Return the contention with a measured transfer rate, where there is one."""
    if rate is None:
        return contention
    return _with(contention, contention.inflation, rate)


def _with(contention: Contention, inflation: float, rate: float) -> Contention:
    return Contention(inflation, contention.inflation_low, contention.inflation_high, rate, contention.basis)


def _check(change: Change) -> None:
    if change.bucket_mib is not None and change.bucket_mib <= 0:
        raise UserError(f"a bucket of {change.bucket_mib:g} MiB: must be above 0")
    if change.link is not None and change.link <= 0:
        raise UserError(f"a link {change.link:g} times as fast: must be above 0")
    if change.gradients not in (None, "bf16", "fp32"):
        raise UserError(f"gradients as {change.gradients}: choose bf16 or fp32")
    if change.overlap not in (None, "none", "perfect"):
        raise UserError(f"overlap {change.overlap}: choose none or perfect")


# --- changes that need no new nodes ----------------------------------------------------------------------------------


def _free_data(graph: Graph) -> None:
    for calls in graph.calls.values():
        for call in calls:
            call.think_ns = max(0.0, call.think_ns - call.data_ns)
            call.data_ns = 0.0


def _free_host(graph: Graph) -> None:
    for calls in graph.calls.values():
        for call in calls:
            call.think_ns, call.duration_ns = call.data_ns, 0.0


def _perfect_overlap(graph: Graph) -> None:
    """Let nothing wait for a collective but collectives."""
    carried = {at for at in graph.living() if graph.activities[at].kind == COMMUNICATION}
    for at in graph.living():
        if at not in carried:
            graph.activities[at].after = [other for other in graph.activities[at].after if other not in carried]
    for calls in graph.calls.values():
        for call in calls:
            if call.awaits in carried:
                call.awaits = -1


def _no_overlap(graph: Graph) -> None:
    """Let collectives begin once all compute that was launched before their result is needed is over."""
    for rank in graph.ranks:
        compute_before: dict[int, int] = {}
        last = -1
        position = {call.launches: index for index, call in enumerate(graph.calls[rank]) if call.launches >= 0}
        for stream in graph.order[rank]:
            for at in stream:
                node = graph.activities[at]
                if node.kind != COMPUTE:
                    continue
                waited = [other for other in node.after if graph.activities[other].kind == COMMUNICATION]
                for other in waited:
                    compute_before[other] = last
                last = at
        for other, before in compute_before.items():
            if before >= 0 and position.get(before, -1) >= 0:
                graph.activities[other].after.append(before)


def _even_out(graph: Graph, rank: int) -> None:
    """Let a rank take for each kernel, and for what its host does before each, what the other ranks take.

    A kernel that it alone runs is gone. Kernels are the same by name and ordinal in the step.
    """
    work: dict[tuple[int, str, int], list[float]] = {}
    think: dict[tuple[int, str, int], list[tuple[float, float]]] = {}
    mine: dict[int, tuple[int, str, int]] = {}
    for own in graph.ranks:
        launched = {call.launches: call for call in graph.calls[own] if call.launches >= 0}
        ordinals: dict[tuple[int, str], int] = {}
        for at in sorted(
            (at for stream in graph.order[own] for at in stream), key=lambda at: graph.activities[at].traced_start
        ):
            node = graph.activities[at]
            if node.kind == COMMUNICATION:
                continue
            ordinal = ordinals[node.step, node.name] = ordinals.get((node.step, node.name), -1) + 1
            key = (node.step, node.name, ordinal)
            if own == rank:
                mine[at] = key
            else:
                work.setdefault(key, []).append(node.work_ns)
                if at in launched:
                    think.setdefault(key, []).append((launched[at].think_ns, launched[at].data_ns))
    steps = {key[0] for key in work}
    for at, key in mine.items():
        node = graph.activities[at]
        if node.step not in steps:
            continue
        node.work_ns = min(node.work_ns, median(work.get(key, [])))
    for call in graph.calls[rank]:
        if call.launches in mine and (others := think.get(mine[call.launches])):
            call.think_ns = min(call.think_ns, median([one[0] for one in others]))
            call.data_ns = min(call.data_ns, median([one[1] for one in others]))
