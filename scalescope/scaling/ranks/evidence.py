"""What speaks for or against one rank's trace: what it lacks, what its times cannot be, counted once as it is read."""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from scalescope.scaling.answer import StepSource
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.rank.communication import communication_calls
from scalescope.scaling.rank.launches import LaunchTimes, is_kernel_launch
from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.rank.times.device_clock import misplaced
from scalescope.scaling.rank.times.stream_order import disordered, over_the_next, overlapped
from scalescope.scaling.ranks.units import impossible_call_ns
from scalescope.scaling.ranks.updates import updates_per_step
from scalescope.scaling.trace.intervals import Ints, is_among
from scalescope.scaling.trace.trace import KERNEL, Trace

#: CUDA's calls that copy or fill.
_COPYING = ("cudaMemcpy", "cudaMemset", "cuMemcpy", "cuMemset")


class Evidence(msgspec.Struct, frozen=True):
    """What speaks for or against a trace. Counts."""

    events: int
    invalid_events: int
    mended_events: int
    damage: tuple[str, ...]
    cut_off: bool
    unread: tuple[tuple[str, int], ...]  # categories of device activity that is not known here, and their events
    activities: int
    without_time: int  # kernels that take no time at all, which none does: their time stamps are lost
    before_window: int
    unlinked: int  # activities in the window whose launch is not in the trace
    launches: int  # runtime calls that launch a kernel
    launches_without_activity: int
    copies: int  # calls of CUDA's that copy or fill on a stream
    copies_without_activity: int
    lost_collectives: int  # of those launches, the ones inside a collective's call
    disordered: int  # activities that began after one that was launched later on their stream
    overlapped: int  # activities that began and ended while one that began before them ran on their stream
    over_the_next: float  # the share of what activities take that lies over those behind them on their stream
    misplaced: int  # activities where their launches, waits for them or the others of their stream say they are not
    nameless: int  # kernels
    steps: StepSource | None  # what told them; None where there are none
    step_kinds: tuple[str, ...]  # of a server's iterations, one each
    whole_steps: int | None = None  # of a file that ends early, where it tells steps
    quick_call_ns: int | None = None  # what the host's quickest calls take, where no call takes so long or short
    steps_left_out: int = 0  # on the other side of a step that is missing
    updates: tuple[int, ...] = ()  # how often the optimizer stepped in each ProfilerStep, where it is annotated


def evidence_of(
    trace: Trace,
    steps: Steps,
    launches: LaunchTimes,
    before_window: int,
    unlinked: int,
    whole_steps: int | None,
    *,
    known_lost: int = 0,
) -> Evidence:
    """Count what speaks for or against a trace; `known_lost`: collectives that lack, launches and all."""
    launching = np.array([is_kernel_launch(name) and "Graph" not in name for name in trace.names], bool)
    chosen = np.flatnonzero(launching[trace.runtime.name]) if len(trace.runtime) else np.empty(0, np.int64)
    chosen = chosen[~_captured(trace, chosen)]
    calls = trace.runtime.correlation[chosen]
    # ROCm may copy by kernels of its own, which have other correlations
    copying = np.array([name.startswith(_COPYING) and "Async" in name for name in trace.names], bool)
    copies = trace.runtime.correlation[copying[trace.runtime.name]] if len(trace.runtime) else calls
    # a kernel without a correlation (ROCm has such) may be what one of the launches without a kernel launched
    nameless = int((trace.activities.correlation <= 0).sum())
    lost = chosen[~is_among(calls, trace.activities.correlation)]
    return Evidence(
        events=trace.events,
        invalid_events=trace.invalid_events,
        mended_events=trace.mended_events,
        damage=tuple(trace.damage),
        cut_off=trace.cut_off,
        unread=tuple(sorted(trace.unread.items())),
        activities=len(trace.activities),
        without_time=int(((trace.activities.end <= trace.activities.start) & (trace.activities.kind == KERNEL)).sum()),
        before_window=before_window,
        unlinked=unlinked,
        launches=int(calls.size),
        launches_without_activity=max(0, lost.size - nameless),
        copies=int(copies.size),
        copies_without_activity=int((~is_among(copies, trace.activities.correlation)).sum()),
        lost_collectives=max(known_lost, _inside_collectives(trace, lost) - nameless),
        overlapped=overlapped(trace),
        over_the_next=over_the_next(trace),
        misplaced=misplaced(trace, launches),
        nameless=_nameless(trace),
        disordered=disordered(trace, launches.start) if trace.framework == "torch" else 0,
        steps=steps.source,
        step_kinds=steps.kinds,
        whole_steps=whole_steps,
        quick_call_ns=impossible_call_ns(trace),
        steps_left_out=steps.left_out,
        updates=updates_per_step(trace, steps),
    )


def lost_collectives(trace: Trace, collectives: Sequence[RankCollective]) -> int:
    """Return how many collectives of a device are known to be missing, or when they ran: those without a time.

    Of a trace that holds none, all that the host called for.
    """
    if not collectives:
        return _called_in_vain(trace)
    return sum(one.end <= one.start for one in collectives if not one.by_copies)


def _nameless(trace: Trace) -> int:
    nameless = np.array([not name.strip() for name in trace.names], bool)
    activities = trace.activities
    return int((nameless[activities.name] & (activities.kind == KERNEL)).sum()) if nameless.any() else 0


def _inside_collectives(trace: Trace, rows: Ints) -> int:
    """Return how many collectives' calls hold at least one of these runtime calls."""
    if not rows.size or not trace.operator_communication:
        return 0
    start, thread = trace.runtime.start[rows], trace.runtime.thread[rows]
    return sum(
        bool(((thread == call.thread) & (start >= call.start) & (start <= call.end)).any())
        for call in communication_calls(trace)
    )


def _called_in_vain(trace: Trace) -> int:
    """Return how many collectives between ranks the host gave to NCCL or RCCL, of a trace that has none on a device.

    The library runs each of them there: a trace without any lacks them, with their launches or without.
    """
    if trace.header.distributed.world_size == 1:
        return 0
    names = [trace.names[name] for name in trace.annotations.name[list(trace.annotation_communication)].tolist()]
    called = zip(names, trace.annotation_communication.values(), strict=True)
    return sum(
        name.startswith(("nccl:", "rccl:")) and trace.communications[index].group_size != 1 for name, index in called
    )


def _captured(trace: Trace, chosen: Ints) -> npt.NDArray[np.bool_]:
    """Tell which runtime calls are made while their thread captures a graph: those run nothing yet."""
    runtime = trace.runtime
    captured = np.zeros(chosen.size, bool)
    begins = np.array([name.endswith("StreamBeginCapture") for name in trace.names], bool)
    ends = np.array([name.endswith("StreamEndCapture") for name in trace.names], bool)
    if not len(runtime) or not begins[runtime.name].any():
        return captured
    for thread in np.unique(runtime.thread[begins[runtime.name]]).tolist():
        own = runtime.thread == thread
        opened = np.sort(runtime.start[own & begins[runtime.name]])
        closed = np.sort(runtime.start[own & ends[runtime.name]])
        at = runtime.start[chosen]
        depth = np.searchsorted(opened, at, side="right") - np.searchsorted(closed, at, side="right")
        captured |= (runtime.thread[chosen] == thread) & (depth > 0)
    return captured
