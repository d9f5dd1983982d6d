"""The step as run of one replayer: recording's cost calibrated, taken out, and the step cut into parts."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from scalescope.records.errors import RunError
from scalescope.records.statistics import half_of_mean
from scalescope.records.steps.unevenness import UNLIKE
from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.answer_rows import PARTS, Split
from scalescope.scaling.answer_steps import OnceSteps, StepTimes
from scalescope.scaling.as_run.apart import is_apart
from scalescope.scaling.as_run.calibrate import ON_DEVICES, Calibration, calibrate
from scalescope.scaling.as_run.kinds import replayed_kinds
from scalescope.scaling.as_run.partition import partition_replayed
from scalescope.scaling.as_run.recording import recording_cost, terms_for
from scalescope.scaling.as_run.replays import HIGHEST_SCALE, Replays
from scalescope.scaling.as_run.untraced import untraced_of_traces
from scalescope.scaling.as_run.untraced_step import Untraced, with_its_long_ones
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.rank.partition import Partition
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.ranks.reads import reads_of
from scalescope.scaling.replay.simulate import host_bound_ns, host_work_ns
from scalescope.scaling.replay.whatif.replayer import Replayer
from scalescope.scaling.verdicts.efficiency import efficiency_of

#: Interruptions that are found take no larger share of a host's time: what is left of it would say nothing any more.
_MOST_INTERRUPTED = 0.75
#: Of so many steps at least, what they differ by tells how far their mean is known.
_FEWEST = 3
#: No step is so short, or so long, ms.
_SHORTEST, _LONGEST = Interval(1e-3, 1e-3, 1e-3), Interval(1e7, 1e7, 1e7)


def take_recording_out(
    replayer: Replayer,
    untraced: Untraced | None = None,
    host: Sequence[HostCause] = (),
    known: list[Replays] | None = None,
) -> AsRun | None:
    """Let a replayer speak of the step as run, and return that step; None where nothing at all is known of it.

    `untraced`: None where at most the traces themselves tell. `host`: what the hosts' own records say. `known`: holds
    what was replayed for another untraced step of the same replayer and hosts, once one was.
    Where the traced step cannot be replayed, the untraced one stands alone, without parts.
    """
    untraced = untraced or untraced_of_traces(replayer.records)
    found = _taken_out(replayer, untraced, host, [] if known is None else known)
    if untraced is not None:
        step = untraced.step_ms
        replayer.known_ns = Interval(1e6 * step.value, 1e6 * step.low, 1e6 * step.high)
    if found is not None and untraced is not None:
        found.untraced_ms, found.untraced_by = untraced.step_ms, untraced.source
    return found


def untraced_alone(untraced: Untraced | None) -> AsRun | None:
    """Return the untraced step without parts, of traces that cannot be replayed; None where none is known."""
    if untraced is None:
        return None
    step = untraced.step_ms
    return AsRun(step_ms=step.value, low_ms=step.low, high_ms=step.high, source=untraced.source, reason="not_replayed",
                 untraced_ms=step, untraced_by=untraced.source)  # fmt: skip


def add_contradiction(analysis: RunAnalysis, off_ms: float = 0.0) -> None:
    """Say of an untraced step that was told where the traces contradict it, and of a run that it was unsteady then."""
    find_contradiction(analysis, off_ms)
    mark_unsteady(analysis)


def find_contradiction(analysis: RunAnalysis, off_ms: float = 0.0) -> None:
    """Say of an untraced step that was told where the traces contradict it.

    Where they are replayed, that says so. Else no step is longer than the traced one, nor shorter than the compute of
    its busiest device, as far as those differ by more than devices do; a CPU computes for as long as it was recorded
    to, but for what recording can cost. `off_ms`: by so much may the mean of a few steps be off that of the run, where
    its steps differ: that is no contradiction. Below it is taken by its ratio, since no step takes less than nothing.
    """
    as_run = analysis.as_run
    if as_run is None or as_run.untraced_ms is None:
        return
    short, long = as_run.reason == "not_reached", as_run.reason == "untraced_longer"
    shortest, longest = 0.0, 0.0
    if as_run.step_ms is not None:
        # what came once is in no step that was told
        usual_ms = as_run.step_ms - (0.0 if analysis.once is None else analysis.once.longer_ms(as_run.step_numbers))
        shortest, longest = usual_ms / (1 + off_ms / usual_ms), usual_ms + off_ms
        # recording may cost less than is known of it: a step that may be as short as the traced one contradicts nothing
        traced_ms = analysis.replay.traced_ms if analysis.replay is not None else 0.0
        long = long and as_run.untraced_ms.low > max(longest, traced_ms)
        short = short and as_run.untraced_ms.high < shortest
    ranks = [a_step(one, one.steps) for one in analysis.ranks if one.steps]
    least = _least_ms(analysis.activity, as_run, ranks)
    if as_run.reason in ("not_replayed", "apart") and ranks:
        longest = max(one.window_ms for one in ranks)
        short = as_run.untraced_ms.high < least * (1 - ON_DEVICES)
        long = as_run.untraced_ms.low > longest * (1 + ON_DEVICES)
    elif as_run.reason != "untraced_longer" or not off_ms:
        longest = 0.0  # it is the step with something taken out, or known as the traced one is
    as_run.contradicts = "too_short" if short else "too_long" if long else None
    as_run.without_recording_ms = as_run.step_ms if short and as_run.reason == "not_reached" else None
    if as_run.contradicts is not None and ranks:
        traced = [analysis.replay.traced_ms] if analysis.replay is not None else [one.window_ms for one in ranks]
        as_run.contradicted_ms = sum(traced) / len(traced)
        as_run.allows_to_ms = max(longest, as_run.contradicted_ms)
        least = min(shortest if as_run.without_recording_ms else least, as_run.allows_to_ms)
        as_run.allows_from_ms = least or None


def impossible_step(contradicts: Literal["too_short", "too_long"]) -> Untraced:
    """Return an untraced step that no traces allow, shorter or longer: where they end, it tells."""
    return Untraced(_SHORTEST if contradicts == "too_short" else _LONGEST, "given")


def _least_ms(activity: str, as_run: AsRun, ranks: Sequence[Split]) -> float:
    """Return the shortest step that the compute of these ranks' mean steps allows, ms; 0 where that is not known."""
    busiest = max((one.compute_ms for one in ranks), default=0.0)
    if activity == "gpu":
        return busiest
    return 0.0 if as_run.recording_at_most_ms is None else max(0.0, busiest - as_run.recording_at_most_ms)


def spread_ms(replayer: Replayer, once: OnceSteps | None = None) -> float:
    """Return by how much the mean of a run's steps may be off that of the few replayed ones, ms, however even.

    `once`: those that are known to have come once, which are left out with the ones in which others wait for them.
    """
    steps = _steps_ms(replayer, once)
    return half_of_mean(steps) if len(steps) >= _FEWEST else 0.0


def _steps_ms(replayer: Replayer, once: OnceSteps | None) -> list[float]:
    steps = [statistics.fmean(of_ranks) / 1e6 for of_ranks in zip(*replayer.base.values(), strict=False)]
    if once is None:
        return steps
    odd = {*once.steps, *(step + 1 for step in once.steps)}
    numbers = replayer.graph.step_numbers
    return [ms for at, ms in enumerate(steps) if at >= len(numbers) or numbers[at] not in odd]


def mark_unsteady(analysis: RunAnalysis) -> None:
    """Say that the machine was unsteady where a run's own untraced steps contradict its traces.

    Those beside the window do, or all of them: the profiled ones are longer by far more than recording costs. Where
    those before and after it agree it is the window that made them so.
    """
    as_run, times = analysis.as_run, analysis.step_times
    if as_run is None or times is None or times.longer_recorded is not None:
        return
    if as_run.own_steps_contradict or _longer_than_recorded(as_run, times):
        analysis.step_times = msgspec.structs.replace(times, unsteady=True)


def _longer_than_recorded(as_run: AsRun, times: StepTimes) -> bool:
    """Tell whether the profiled steps are longer than the measured ones by what recording does not cost."""
    costs = as_run.recording_at_most_ms if as_run.recording_ms is None else as_run.recording_ms.value
    if costs is None or times.profiling_overhead_ms is None or times.measured_step_ms is None:
        return False
    return times.profiling_overhead_ms - costs > UNLIKE * times.measured_step_ms


def _not_replayed(replayer: Replayer, untraced: Untraced | None) -> AsRun | None:
    """Return the untraced step alone, with what recording can cost it at most: each record, at its dearest."""
    found = untraced_alone(untraced)
    records = replayer.records
    if found is None or any(one.recorded is None for one in records.values()):
        return found
    cost = recording_cost(records, terms_for(records))
    ends = np.cumsum([len(records[rank].start) for rank in sorted(records)])
    inside = np.split(cost.inside, ends[:-1]) if cost.inside.size else [np.zeros(1)] * len(records)
    spent = [
        (HIGHEST_SCALE * (calls.before.sum() + calls.during.sum() + own.sum())
         + calls.before_known.sum() + calls.during_known.sum()) / max(1, len(records[rank].steps))
        for own, (rank, calls) in zip(inside, sorted(cost.calls.items()), strict=True)
    ]  # fmt: skip
    found.recording_at_most_ms = float(max(spent)) / 1e6
    return found


def _taken_out(
    replayer: Replayer, untraced: Untraced | None, host: Sequence[HostCause], known: list[Replays]
) -> AsRun | None:
    if not replayer.is_good_for(near=True):
        return _not_replayed(replayer, untraced)
    terms = terms_for(replayer.records)
    if untraced is not None and replayer.on_cpu:
        numbers = replayer.graph.step_numbers
        untraced = with_its_long_ones(untraced, numbers[: _bounded_steps(replayer)])
    if not known:
        cost = recording_cost(replayer.records, terms, _interrupted(replayer.traced, host), opening_ns(host))
        known.append(Replays(replayer.undisturbed(replayer.contention), cost))
    graph, cost = known[0].graph, known[0].cost
    try:
        held_up = any(
            one.code not in ("host_bound", "synchronising") or _reads_in_a_row(replayer.graph, one) for one in host
        )
        found = calibrate(graph, replayer.base_ns, cost, terms, untraced, known[0], held_up=held_up)
        if not replayer.replay.faithful:
            # no step is told of such a replay. But where recording moves none, its hosts hide what changes would bring
            if found.source == "not_needed":
                replayer.take_out(found.recording)
            return _not_replayed(replayer, untraced)
        traced_ns = replayer.base_ns
        timing = replayer.take_out(found.recording)
    except RunError:
        return _not_replayed(replayer, untraced)
    parts = partition_replayed(replayer.graph, timing, on_cpu=replayer.on_cpu)
    if is_apart(replayer, cost, terms, parts, untraced.step_ms if untraced is not None else None, found.reason):
        replayer.put_back()
        return AsRun(step_ms=None, source=found.source, reason="apart")
    late = round(host_bound_ns(replayer.graph, timing))
    told = _answer(found, traced_ns, replayer.base_ns, parts, _bounded_steps(replayer), late)
    told.step_numbers = list(replayer.graph.step_numbers[: told.steps])
    if replayer.on_cpu:  # there recording is in the operators' own time; a device's kernels take as long without it
        told.kinds = replayed_kinds(replayer.graph, timing)
    if untraced is None and told.low_ms is not None and told.high_ms is not None:
        # a few steps know the mean of all no better than by what they differ; below it by the ratio, as contradictions
        half, step = spread_ms(replayer), replayer.base_ns / 1e6
        shorter = step - step / (1 + half / step) if step else 0.0
        told.low_ms, told.high_ms = (
            max(0.0, step - math.hypot(step - told.low_ms, shorter)),
            step + math.hypot(told.high_ms - step, half),
        )
    return told


def _reads_in_a_row(graph: Graph, cause: HostCause) -> bool:
    """Tell whether hosts that wait for their devices read values one after another in each step.

    Between two of them the device has no more to do than what computes the next one: it rests, recorded or not, and
    the host that launches anew behind each read is what a longer step has more of.
    """
    if cause.code != "synchronising":
        return False
    ranks = graph.ranks if cause.rank is None else [one for one in graph.ranks if one == cause.rank]
    steps = set(graph.step_numbers)
    return bool(ranks) and all(
        steps <= {graph.activities[graph.calls[rank][one.copy].launches].step for one in reads_of(graph, rank)
                  if one.follows}
        for rank in ranks
    )  # fmt: skip


def _interrupted(graph: Graph, host: Sequence[HostCause]) -> dict[int, float]:
    """Return by rank the share of its host's time in which it is interrupted, where its own records say so.

    Of all ranks alike on devices, too: on CPUs what all of them have in common is priced by how their steps differ.
    """
    found: dict[int, float] = {}
    for cause in host:
        if cause.code != "host_starved" or not any(one.kind == "interruptions" for one in cause.evidence):
            continue
        for rank, ns in cause.own_ns if cause.rank is None else ((cause.rank, cause.typical_ns),):
            whole = host_work_ns(graph, rank) if rank in graph.calls else 0.0
            if whole > 0:
                found[rank] = min(ns / whole, _MOST_INTERRUPTED)
    return found


def opening_ns(host: Sequence[HostCause]) -> dict[int | None, float]:
    """Return by rank (None: each) for how long its host stands still where recording begins."""
    found: dict[int | None, float] = {}
    for cause in host:
        if cause.opening:
            found[cause.rank] = max(found.get(cause.rank, 0.0), float(max(cause.ns)))
    return found


def _bounded_steps(replayer: Replayer) -> int:
    return max(1, min(len(own) for own in replayer.graph.steps.values()) - 1)


def _answer(
    found: Calibration, traced_ns: float, step_ns: float, parts: Mapping[int, Partition], steps: int, late: int
) -> AsRun:
    step = Interval(step_ns, min(step_ns, found.step_ns.low), max(step_ns, found.step_ns.high))
    settled = {rank: _settled(part, late * steps) for rank, part in parts.items()}
    spent = [max(0.0, traced_ns - one) / 1e6 for one in (step.value, step.high, step.low)]
    if (known := found.spent_ns) is not None:
        spent = [one / 1e6 for one in (known.value, known.low, known.high)]
    return AsRun(
        step_ms=step.value / 1e6,
        low_ms=step.low / 1e6,
        high_ms=step.high / 1e6,
        source=found.source,
        reason=found.reason,
        scale=found.recording.scale,
        recording_ms=Interval(*spent),
        slowed_ms=found.slowed_ns / 1e6,
        steps=steps,
        ranks=[_split(rank, part) for rank, part in settled.items()],
        efficiency=efficiency_of(list(settled.values())),
    )


def _settled(part: Partition, late: int) -> Partition:
    """Return a rank's parts with the ns for which its device will wait for hosts once their lead is used up."""
    return msgspec.structs.replace(part, window=part.window + late, launch=part.launch + late)


def _split(rank: int, part: Partition) -> Split:
    parts = dict(zip(PARTS, part.parts, strict=True))
    return Split(rank=rank, window_ms=part.window / 1e6, **{f"{name}_ms": ns / 1e6 for name, ns in parts.items()})


def step_as_run(analysis: RunAnalysis) -> tuple[Interval, list[Split]]:
    """Return a run's step, ms, and each rank's parts of one mean step: as run where that is known, else as profiled.

    It is the step that the parts add up to: where the job's own steps are timed, the profiled ones without recording.
    The interval of a step as profiled is the spread over its ranks.
    """
    as_run = analysis.as_run
    if as_run is not None and as_run.parts_ms is not None and is_known_as_run(analysis):
        return as_run.parts_ms, [a_step(one, as_run.steps) for one in as_run.ranks]
    ranks = [a_step(one, one.steps) for one in analysis.ranks if one.steps]
    windows = [one.window_ms for one in ranks] or [0.0]
    return Interval(sum(windows) / len(windows), min(windows), max(windows)), ranks


def is_known_as_run(analysis: RunAnalysis) -> bool:
    """Tell whether what is said is of the step as run; else it is of the mean of all that were profiled."""
    return analysis.as_run is not None and analysis.as_run.step_ms is not None and bool(analysis.as_run.ranks)


def a_step(split: Split, steps: int) -> Split:
    """Return the parts of a rank's mean step, given those of so many steps."""
    return Split(
        rank=split.rank,
        window_ms=split.window_ms / steps,
        **{f"{part}_ms": split.part_ms(part) / steps for part in PARTS},
    )
