"""All that one rank's trace says about its host, kept small: sums a step, and the names of what matters most.

The host's time in a step is shared out exactly, each instant to the first that applies: it loads data; it stands still
for the profiler; it waits, in a call or for a collective on a CPU; a gap, in which nothing is recorded; and the rest,
in which it is busy.
"""

import msgspec
import numpy as np

from scalescope.scaling.evidence.allocating import Allocation, allocations
from scalescope.scaling.evidence.compiling import Compilation, compilation, compiling_stretches
from scalescope.scaling.evidence.enclosing import Enclosing
from scalescope.scaling.evidence.gaps import (
    NO_GAPS,
    Gaps,
    Located,
    collects,
    inside_steps,
    locate,
    placed_gaps,
    quiet_stretches,
    without,
)
from scalescope.scaling.evidence.host_timeline import HostTimeline, Mask, host_timeline
from scalescope.scaling.evidence.interruptions import (
    LONGEST_TURN_NS,
    Interruptions,
    LockWaits,
    interruptions,
    interruptions_alone,
    lock_waits,
)
from scalescope.scaling.evidence.modes.debugging import Debugging, debugging
from scalescope.scaling.evidence.pace.operators import OperatorPace, operator_paces, step_counts, step_paces
from scalescope.scaling.evidence.synchronising import Synchronisation, synchronisations
from scalescope.scaling.evidence.waiting import held_up
from scalescope.scaling.rank.annotations.loading import copies_from_host
from scalescope.scaling.rank.cpu import WOKEN_NS
from scalescope.scaling.rank.launches import is_kernel_launch
from scalescope.scaling.rank.partition import OneRankShares
from scalescope.scaling.rank.records.callers import NO_CODE, OwnCode
from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.rank.timeline import COMPUTE, COPY, Timeline
from scalescope.scaling.trace.intervals import EMPTY, Intervals, Ints, covers, intersect, split_by_priority, union
from scalescope.scaling.trace.trace import Trace

PerStep = tuple[int, ...]
#: A host that makes no call for so long, ns, does something else than to run operators on its device.
_LONG_BETWEEN_CALLS_NS = 5_000_000
#: What tells steps by what is launched: the last one ends with that.
_BY_LAUNCHES = ("period", "graph")


class Loading(msgspec.Struct, frozen=True):
    """What one annotation around fetching a batch takes."""

    annotation: str
    ns: PerStep
    count: int  # in all steps
    counts: PerStep = ()  # that begin in each
    line: str | None = None  # of the script's own functions the one that most of it lies in


class HostEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank's trace says about its host. Tuples have a value for each step of the host, times in ns.

    A step of the host runs from one ProfilerStep's begin to the next one's. `busy_ns`, `waiting_ns`, `loading_ns`,
    `gap_ns` and `recording_ns` add up to `step_ns`; compiling is part of what a host is busy with.
    """

    on_cpu: bool  # no device: operators compute on the host
    calls_alone: bool = False  # operators were not recorded: what a host does between its calls is not told
    open_ended: bool = False  # the last step ends with its last launch: what its host did after that is not told
    steps: PerStep  # the ProfilerSteps' numbers
    step_ns: PerStep
    busy_ns: PerStep
    waiting_ns: PerStep  # for the device or a collective
    loading_ns: PerStep
    gap_ns: PerStep
    recording_ns: PerStep  # the profiler's own, while the host stands still
    launches: PerStep  # calls that launch kernels
    launches_beside: PerStep = ()  # of threads that run no operators: kernels and copies
    kernels: PerStep  # that ran on the device
    kernel_ns: PerStep  # theirs, added up
    late_ns: PerStep  # of the device step of the same number: idle, as what comes next is not launched yet
    loading: tuple[Loading, ...] = ()
    gaps: Gaps = NO_GAPS
    interruptions: Interruptions | None = None
    interruptions_alone: Interruptions | None = None  # of a device's host, as one without others tells them
    lock_waits: LockWaits | None = None
    synchronising: tuple[Synchronisation, ...] = ()
    allocating: tuple[Allocation, ...] = ()
    compiling: Compilation | None = None
    operators: tuple[OperatorPace, ...] = ()
    paces: PerStep = ()  # of the steps: how long operators take, in per cent of the median one
    counts: PerStep = ()  # of the steps: operators that begin in each
    debugging: Debugging | None = None


def collect_host_evidence(
    trace: Trace,
    steps: Steps,
    loading: Intervals,
    shares: OneRankShares | None,
    device: Timeline | None = None,
    communication: Intervals = EMPTY,
    ended: Ints | None = None,
    code: OwnCode = NO_CODE,
) -> HostEvidence | None:
    """Return what a rank's trace says about its host, None where it recorded nothing of it.

    `steps`: the trace's. `loading`: when the loop's thread loads data; `communication`: on a CPU, when collectives
    run; both disjoint. `ended`: when each of those does, ascending. All in absolute ns. `shares`: the rank's partition.
    `device`: what ran on the device, None on a CPU. `code`: the script's own functions, where stacks tell.
    """
    host = host_timeline(trace, steps)
    if host is None:
        return None
    compiling = compiling_stretches(host)
    quiet = quiet_stretches(host)
    waiting = held_up(host) if device is not None else _awaits(quiet, communication, ended)
    located = locate(host, without(quiet, loading, waiting, compiling, host.recording), loading)
    # of what Python collects it is known what it is: no others' turn on a core
    unknown = located.of(~collects(host, located.intervals))
    gaps = located if device is not None else located.of(~located.computes)
    free = _free(gaps, communication, waiting) if device is None else None
    around = Enclosing(host)
    # where operators were not recorded, a host that computes between two calls looks like one that stands still
    calls_alone = device is not None and not len(host.operators)
    layers = [loading, host.recording, waiting, gaps.intervals]
    shared = split_by_priority(host.edges, [inside_steps(host, part) for part in layers])
    loads, records, waits, idles, works = (tuple(column.tolist()) for column in shared.T)
    kernels, kernel_ns = _kernels(host, device)
    return HostEvidence(
        on_cpu=device is None,
        calls_alone=calls_alone,
        open_ended=steps.source in _BY_LAUNCHES,
        steps=host.numbers,
        step_ns=tuple(np.diff(host.edges).tolist()),
        busy_ns=works,
        waiting_ns=waits,
        loading_ns=loads,
        gap_ns=idles,
        recording_ns=records,
        launches=_launches(host),
        launches_beside=_in_steps(host, host.beside),
        kernels=kernels,
        kernel_ns=kernel_ns,
        late_ns=_late(host, shares),
        loading=_loadings(host, loading, code),
        gaps=placed_gaps(host, _long_ones(gaps) if calls_alone else gaps, _copies_first(host, device), free, code),
        interruptions=interruptions(unknown, len(host)) if not calls_alone else None,
        interruptions_alone=(
            interruptions_alone(unknown, len(host)) if device is not None and not calls_alone else None
        ),
        lock_waits=lock_waits(unknown, len(host)) if not calls_alone else None,
        synchronising=synchronisations(host, device, around, code) if device is not None else (),
        allocating=allocations(host, device, around) if device is not None else (),
        compiling=compilation(host, compiling),
        operators=operator_paces(host),
        paces=step_paces(host),
        counts=step_counts(host),
        debugging=debugging(host, device),
    )


def _awaits(quiet: Intervals, communication: Intervals, ended: Ints | None) -> Intervals:
    """Return when a host that computes waits for a collective: it goes on when one ends.

    A host that goes on while they run, as in hooks of the backward pass, did other things, and not wait.
    """
    if ended is not None and ended.size:
        following = np.searchsorted(ended, quiet.starts)
        soon = ended[np.minimum(following, ended.size - 1)] <= quiet.ends + WOKEN_NS
        quiet = Intervals(quiet.starts[soon & (following < ended.size)], quiet.ends[soon & (following < ended.size)])
    return intersect(union(quiet), communication)


def _free(gaps: Located, communication: Intervals, waiting: Intervals) -> Mask:
    """Tell of which gaps a host that computes does not wait in, nor wakes up from a wait.

    Who wakes up waits for a core where others have it, wherever the wait was: but no longer than their turns are. While
    a collective runs, a gap may be a wait for it whose end was recorded late.
    """
    woken = np.isin(gaps.starts, waiting.ends) & (gaps.ends - gaps.starts < LONGEST_TURN_NS)
    return np.asarray(~woken & ~covers(communication, gaps.starts))


def _late(host: HostTimeline, shares: OneRankShares | None) -> PerStep:
    """Return the idle time of the device steps that is the host's, for the host's steps of the same numbers."""
    if shares is None:
        return (0,) * len(host)
    by_number = dict(zip(shares.windows.numbers, shares.shares[:, 4].tolist(), strict=True))
    return tuple(by_number.get(number, 0) for number in host.numbers)


def _kernels(host: HostTimeline, device: Timeline | None) -> tuple[PerStep, PerStep]:
    """Return how many kernels that compute were launched in each step, and how long they take together, ns."""
    count, length = np.zeros((2, len(host)), np.int64)
    if device is not None:
        step = host.step_of(device.launch)
        rows = (step >= 0) & (device.kind == COMPUTE)
        np.add.at(count, step[rows], 1)
        np.add.at(length, step[rows], (device.end - device.start)[rows])
    return tuple(count.tolist()), tuple(length.tolist())


def _launches(host: HostTimeline) -> PerStep:
    launching = np.array([is_kernel_launch(name) for name in host.names], bool)
    return _in_steps(host, host.calls.start[launching[host.calls.name]])


def _long_ones(gaps: Located) -> Located:
    """Return those that are too long for operators, each of which would launch something, between two calls."""
    return gaps.of(gaps.ends - gaps.starts >= _LONG_BETWEEN_CALLS_NS)


def _in_steps(host: HostTimeline, instants: Ints) -> PerStep:
    step = host.step_of(instants)
    return tuple(np.bincount(step[step >= 0], minlength=len(host)).tolist())


def _loadings(host: HostTimeline, loading: Intervals, code: OwnCode) -> tuple[Loading, ...]:
    """Return the annotations that make up the loading of the steps, outermost ones, by name."""
    spans = host.annotations
    if not loading.starts.size or not len(spans):
        return ()
    at = np.searchsorted(loading.starts, spans.start)
    begins = (at < loading.starts.size) & (loading.starts[np.minimum(at, loading.starts.size - 1)] == spans.start)
    step = host.step_of(spans.start)
    rows = np.flatnonzero(begins & (step >= 0))
    rows = rows[np.concatenate(([True], np.diff(spans.start[rows]) > 0))] if rows.size else rows
    found = []
    for name in np.unique(spans.name[rows]).tolist():
        own = rows[spans.name[rows] == name]
        ns = np.zeros(len(host), np.int64)
        np.add.at(ns, step[own], spans.end[own] - spans.start[own])
        counts = np.bincount(step[own], minlength=len(host))
        line = code.during(spans.of(own).intervals, host.loop)
        found.append(Loading(host.names[name], tuple(ns.tolist()), int(own.size), tuple(counts.tolist()), line))
    return tuple(sorted(found, key=lambda one: -sum(one.ns)))


def _copies_first(host: HostTimeline, device: Timeline | None) -> Mask:
    """Tell of each step whether the first work that the host gives to the device is a copy out of the host's memory."""
    result = np.zeros(len(host), bool)
    if device is None:
        return result
    order = np.argsort(device.launch, kind="stable")
    launch = device.launch[order]
    at = np.searchsorted(launch, host.edges[:-1])
    for step, row in enumerate(at.tolist()):
        if row < launch.size and launch[row] < host.edges[step + 1]:
            first = order[row]
            result[step] = device.kind[first] == COPY and copies_from_host(host.names[device.name[first]])
    return result
