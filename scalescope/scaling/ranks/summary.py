"""What one rank's trace says by itself: read once, kept small, so that a thousand ranks fit beside each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from scalescope.scaling.evidence.host_evidence import HostEvidence, collect_host_evidence
from scalescope.scaling.evidence.pipelining import ForwardPasses, forward_passes
from scalescope.scaling.rank.annotations.loading import data_loading
from scalescope.scaling.rank.collective import ListedGroup, RankCollective, listed_groups
from scalescope.scaling.rank.copy_engines import join_copies
from scalescope.scaling.rank.cpu import CpuTimeline, build_cpu_timeline, share_out_cpu
from scalescope.scaling.rank.kernels import KernelTable, kernel_table, longest_beyond
from scalescope.scaling.rank.launches import LaunchTimes
from scalescope.scaling.rank.partition import OneRankShares, share_out
from scalescope.scaling.rank.records.callers import OwnCode, own_code
from scalescope.scaling.rank.records.inputs import StepInputs, inputs_by_step
from scalescope.scaling.rank.records.of_cpu import record_host
from scalescope.scaling.rank.records.of_device import record_device
from scalescope.scaling.rank.records.own_code.places import kernels_by_place
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE, Timeline, build_timeline
from scalescope.scaling.rank.times.device_clock import Moved, by_the_hosts_clock
from scalescope.scaling.rank.times.stream_order import LeftOut
from scalescope.scaling.ranks.evidence import Evidence, evidence_of, lost_collectives
from scalescope.scaling.trace.families import ENGINE_FRAMES, runs_on_a_device
from scalescope.scaling.trace.intervals import Intervals, intervals, is_among, length, union
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.trace.trace import KERNEL, Framework, Trace

#: Time stamps are lost all at once, or not at all.
_MOST_TIMES = 0.5
#: Without more of its launches a rank's kernels are in steps that nobody knows; without what more of them launched, its
#: idle time is what the profiler lost.
_MOST_LAUNCHES = 0.5
#: A stream runs things in the order of their launches: of more than this share in another, the launches are others'.
_MISLINKED, _FEW = 0.1, 10
#: Of real traces no activity lies within another one of its stream.
_OVERLAPPED = 0.01
#: Kernels without a name may be one tool's own few.
_NAMELESS = 0.01
#: What is lost of more than this share may be what one rank seems to have more of than another.
LOST_SHARE = 0.01


#: A device on which one process has less than this share of its kernels' time is no device that it works on.
_WORKED_ON = 0.05


class RankSummary(msgspec.Struct, frozen=True):
    """One rank's share of the analysis. Times are absolute ns on the rank's own clock."""

    path: Path
    rank: int | None  # None where the header does not say
    world_size: int | None
    host: str
    device: str | None
    backend: str
    activity: Literal["gpu", "cpu"]
    shares: OneRankShares | None  # None for a trace in which nothing ran
    collectives: list[RankCollective]
    kernels: KernelTable
    before_window_ns: int
    evidence: Evidence
    host_evidence: HostEvidence | None  # None where nothing of the host was recorded
    framework: Framework = "torch"
    forward_passes: ForwardPasses | None = None  # where a pipeline's schedule tells them
    multiplied: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)  # see Trace
    step_inputs: dict[int, StepInputs] = msgspec.field(default_factory=dict)  # by a step's number, where shapes tell
    longer_in: dict[int, tuple[str, int]] = msgspec.field(default_factory=dict)  # … on CPUs: see longest_beyond
    device_moved: Moved = Moved()  # by so much its device's clock was behind its host's; taken out
    left_out: LeftOut = LeftOut()  # activities whose times cannot be
    busy: tuple[float, ...] = ()  # of each of several devices, the share of the window in which a kernel runs there
    busy_any: float = 0.0  # the share in which one runs on any of them
    groups: tuple[ListedGroup, ...] = ()
    hides_device: bool = False  # of a trace of the host alone: its operators worked for a device all the same
    on_devices: tuple[int, ...] = ()  # the numbers of the devices that it worked on, as its host counts them
    of_file: int | None = None  # which of its file's devices it is; None where a file is of one rank

    @property
    def cut_off(self) -> bool:
        """Whether the file ends early: its partition would take for idle time what it lacks."""
        return self.evidence.cut_off

    @property
    def timeless(self) -> bool:
        """Whether the file tells what ran on the device, and of most of it not when."""
        return self.evidence.without_time > _MOST_TIMES * self.evidence.activities

    @property
    def lacks_times(self) -> bool:
        """Whether it does not tell when more than a few of what ran did."""
        return self.evidence.without_time > LOST_SHARE * self.evidence.activities

    @property
    def misscaled(self) -> bool:
        """Whether its times are in another unit than Kineto's, so that none of them is a time."""
        return self.evidence.quick_call_ns is not None

    @property
    def launchless(self) -> bool:
        """Whether most of what ran has lost its launch, or is linked to others', so that its step is a guess."""
        return self.evidence.unlinked > _MOST_LAUNCHES * self.evidence.activities or self.mislinked

    @property
    def workless(self) -> bool:
        """Whether nothing ran in its steps: no operator, no kernel and no collective."""
        return not self.kernels.name.size and not self.collectives and not self.evidence.activities

    @property
    def mislinked(self) -> bool:
        """Whether activities are linked to launches that cannot be theirs, as where correlations are used again."""
        return self.evidence.disordered > max(_FEW, _MISLINKED * self.evidence.activities)

    @property
    def overlapping(self) -> bool:
        """Whether its device's times cannot be: a stream runs one by one, and nothing before its launch."""
        return bool(self.evidence.misplaced) or self.evidence.overlapped > max(
            _FEW, _OVERLAPPED * self.evidence.activities
        )

    @property
    def nameless(self) -> bool:
        """Whether so many kernels have no name that neither what ran nor which collectives did is told."""
        return self.evidence.nameless > max(_FEW, _NAMELESS * self.evidence.activities)

    @property
    def blind(self) -> bool:
        """Whether what is in the file is no account of what ran, and when."""
        told_wrong = self.timeless or self.misscaled or self.mislinked or self.overlapping or self.nameless
        return told_wrong or self.workless

    @property
    def activityless(self) -> bool:
        """Whether most of what was launched is not in the trace, so that it seems to be idle."""
        return self.evidence.launches_without_activity > _MOST_LAUNCHES * self.evidence.launches

    @property
    def lossy(self) -> bool:
        """Whether the profiler lost enough of what ran, or of its launches, to be taken for a difference of ranks."""
        evidence = self.evidence
        return (
            evidence.unlinked > LOST_SHARE * evidence.activities
            or evidence.launches_without_activity > LOST_SHARE * evidence.launches
            or evidence.copies_without_activity > LOST_SHARE * evidence.copies
            or self.lacks_times
            or self.left_out.share > LOST_SHARE
            or evidence.lost_collectives > 0
        )

    @property
    def lost_collectives_share(self) -> float:
        """The share of its collectives of which there is a launch alone."""
        lost = self.evidence.lost_collectives
        return lost / (lost + len(self.collectives)) if lost else 0.0


class RankReading(msgspec.Struct, frozen=True):
    """What was read of one rank's trace."""

    summary: RankSummary
    record: RankRecord | None  # what a replay needs, where it was asked for


def read_rank(
    path: Path, device: int | None = None, *, for_replay: bool = False, only: tuple[int, int] | None = None
) -> RankReading:
    """Read one trace file and keep what is needed of it. Raises UserError for a file that is no trace.

    `device`: of a file with several, which of them is the rank. `for_replay`: keep what a replay needs, too: far more
    than a summary, about 1 kB an activity. `only`: of the steps, those from one number to another.
    """
    trace, launches, moved, left_out = by_the_hosts_clock(join_copies(read_trace(path, device)))
    timeline = build_timeline(trace, launches, only)
    if timeline.start.size:
        code = own_code(trace, timeline.steps)
        summary = _summarise_device(trace, timeline, launches, code)
        summary = replace(summary, of_file=device, device_moved=moved, left_out=left_out)
        record = record_device(trace, timeline, code) if for_replay and summary.shares is not None else None
    else:
        on_cpu = build_cpu_timeline(trace, only)
        code = own_code(trace, on_cpu.steps)
        summary = replace(_summarise_host(trace, on_cpu, launches, code), of_file=device)
        record = record_host(trace, on_cpu, code) if for_replay else None
    if record is not None:
        summary = replace(summary, kernels=replace(summary.kernels, placed=kernels_by_place(record)))
    return RankReading(summary, record)


def summarise(path: Path) -> RankSummary:
    """Read one trace file and keep what a run's analysis needs of it. Raises UserError for a file that is no trace."""
    return read_rank(path).summary


def _summarise_device(trace: Trace, timeline: Timeline, launches: LaunchTimes, code: OwnCode) -> RankSummary:
    loading = data_loading(trace, timeline.steps)
    shares = share_out(timeline, loading)
    early = timeline.before_window(int(shares.windows.edges[0]))
    chosen = timeline.kind == COMPUTE
    spans = Intervals(timeline.start[chosen], timeline.end[chosen])
    unlinked = ~timeline.linked & ~early
    whole = None
    if timeline.whole >= 0:
        whole = 0 if shares.windows.open_ended else len(shares.windows)
        # launches that stand behind the cut are not lost, nor told
        unlinked &= timeline.start < shares.windows.edges[-1]
    steps = timeline.steps.first(timeline.whole) if whole else timeline.steps
    busy, busy_any = _busy(trace, int(shares.windows.edges[0]), int(shares.windows.edges[-1]))
    return RankSummary(
        **_identity(trace),
        activity="gpu",
        shares=shares if whole != 0 else None,
        collectives=timeline.collectives,
        kernels=kernel_table(
            spans, timeline.name[chosen], union(spans), shares.windows, trace.names, _by_label(timeline.collectives)
        ),
        before_window_ns=length(union(Intervals(timeline.start[early], timeline.end[early]))),
        evidence=evidence_of(
            trace,
            timeline.steps,
            launches,
            int(early.sum()),
            int(unlinked.sum()),
            whole,
            known_lost=lost_collectives(trace, timeline.collectives),
        ),
        host_evidence=collect_host_evidence(trace, steps, loading, shares, timeline, code=code),
        step_inputs=inputs_by_step(trace, steps),
        busy=busy,
        busy_any=busy_any,
    )


def _busy(trace: Trace, opens: int, closes: int) -> tuple[tuple[float, ...], float]:
    """Return of each device that a process works on for how much of its window a kernel runs there, and for how much
    one runs on any; of one device nothing.
    """
    raw = trace.activities
    kernels = raw.kind == KERNEL
    devices = np.unique(raw.device[kernels])
    if devices.size < 2 or closes <= opens:
        return (), 0.0
    base = trace.header.base_ns
    found = []
    for chosen in (kernels, *(kernels & (raw.device == device) for device in devices.tolist())):
        start, end = (np.clip(times[chosen] + base, opens, closes) for times in (raw.start, raw.end))
        found.append(length(union(Intervals(start, end))) / (closes - opens))
    together, *found = found
    kept = tuple(share for share in found if share >= _WORKED_ON * sum(found))
    return (kept, together) if len(kept) > 1 else ((), 0.0)


def _summarise_host(trace: Trace, timeline: CpuTimeline, launches: LaunchTimes, code: OwnCode) -> RankSummary:
    empty = len(timeline.windows) == 0
    whole = timeline.whole if timeline.whole >= 0 else None
    shares = None if empty or whole == 0 else share_out_cpu(timeline)
    spans, names = timeline.computing()
    return RankSummary(
        **_identity(trace),
        hides_device=_worked_for_a_device(trace),
        activity="cpu",
        shares=shares,
        collectives=timeline.collectives,
        kernels=kernel_table(
            spans,
            names,
            timeline.compute,
            timeline.windows,
            trace.names,
            _by_label(timeline.collectives),
        ),
        before_window_ns=0,
        evidence=evidence_of(trace, timeline.steps, launches, 0, 0, whole),
        host_evidence=collect_host_evidence(
            trace,
            timeline.steps,
            timeline.data,
            shares,
            communication=timeline.communication,
            ended=np.sort(np.array([one.end for one in timeline.collectives], np.int64)),
            code=code,
        ),
        step_inputs=inputs_by_step(trace, timeline.steps),
        longer_in={} if empty else longest_beyond(spans, names, timeline.compute, timeline.windows, trace.names),
    )


def _worked_for_a_device(trace: Trace) -> bool:
    """Tell whether a host without any device activity handed work to a device: it was recorded without the device.

    By operators that only devices have; or, on a machine that has a device, by the thread of the backward pass: nodes
    on a CPU run in the thread that called for it, those on a device in one that the engine keeps for that device.
    """
    if trace.framework != "torch" or not len(trace.operators):
        return False
    if any(map(runs_on_a_device, trace.names)):
        return True
    nodes = np.array([name.startswith(ENGINE_FRAMES[0]) for name in trace.names], bool)[trace.operators.name]
    steps = np.array([name.startswith("ProfilerStep") for name in trace.names], bool)[trace.annotations.name]
    if not trace.header.devices or not nodes.any() or not steps.any():
        return False
    return not is_among(np.unique(trace.operators.thread[nodes]), np.unique(trace.annotations.thread[steps])).any()


def _by_label(collectives: Sequence[RankCollective]) -> dict[str, Intervals]:
    """Return when collectives run, by their kind: operation and dtype."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for one in collectives:
        spans.setdefault(one.label, []).append((one.start, one.end))
    return {label: union(intervals(pairs)) for label, pairs in spans.items()}


def _identity(trace: Trace) -> dict[str, Any]:
    info = trace.header.distributed
    rank = info.rank if info.rank >= 0 else None
    names = {device.id: device.known_name for device in trace.header.devices}
    used = np.unique(trace.activities.device)
    device = names.get(int(used[0])) if used.size else None
    return {
        "path": trace.path,
        "rank": rank,
        "world_size": info.world_size if info.world_size > 0 else None,
        "host": trace.header.host or trace.header.own.host,
        "device": device or next(iter(names.values()), None),
        "on_devices": tuple(used.tolist()),
        "backend": info.backend,
        "framework": trace.framework,
        "forward_passes": forward_passes(trace),
        "multiplied": trace.multiplied,
        "groups": listed_groups(trace),
    }
