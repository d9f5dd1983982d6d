"""Which operator launched which kernels, in the order of the step: what stays the same where kernels' names do not.

On a CPU operators launch nothing: the outermost ones of the training loop's thread are its kernels. On a device a
kernel belongs to the outermost operator that was open on the thread that launched it (`aten::linear`, or of the
backward pass `AddmmBackward0`). Operators around a large share of the step, such as a compiled region, say nothing of
a kernel's place, and are looked through. A collective is its own operator, whatever library's kernel carries it out.
"""

import re
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np

from scalescope.scaling.rank.cpu import CpuTimeline, build_cpu_timeline
from scalescope.scaling.rank.launches import find_launches
from scalescope.scaling.rank.partition import device_windows
from scalescope.scaling.rank.records.of_cpu import record_host
from scalescope.scaling.rank.records.of_device import record_device
from scalescope.scaling.rank.records.own_code.places import kinds_by_place
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE, Timeline, build_timeline
from scalescope.scaling.trace import kernel_kinds
from scalescope.scaling.trace.families import HANDOVER_OPS
from scalescope.scaling.trace.intervals import Ints, covered_before
from scalescope.scaling.trace.kernel_kinds import kind_of
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.trace.trace import Trace

#: An operator around more kernels of a step than these is a region of the program.
_REGION_KERNELS, _REGION_SHARE = 64, 0.2
#: More steps say little more of a kernel's mean time.
_MOST_STEPS = 8
_ENGINE = "autograd::engine::evaluate_function: "
#: What torch.compile puts around kernels of its own making.
_COMPILED = re.compile(r"CompiledFunction|CompiledFxGraph|Torch-Compiled")
#: Whose implementation an operator names, where platforms choose differently.
_LIBRARY = re.compile(r"(?i)_?(flash|efficient|cudnn|miopen|fused_?(?=attention)|overrideable)_?")


class Kernel(msgspec.Struct, frozen=True):
    """One kernel of an operator's call: its time is the mean over the steps, µs."""

    name: str
    us: float
    blocks: int | None  # of its grid; None where the trace does not tell
    placed: str | None = None  # its kind, where the place tells that and not the name

    @property
    def kind(self) -> str:
        """What it is for."""
        return self.placed or kind_of(self.name)


class Call(msgspec.Struct, frozen=True):
    """One operator's call in the mean step, with the kernels that it launched. None: no operator was recorded."""

    operator: str | None
    kernels: tuple[Kernel, ...]

    @property
    def us(self) -> float:
        return sum(kernel.us for kernel in self.kernels)

    @property
    def token(self) -> str:
        """Return what the same call is called on another platform."""
        return _LIBRARY.sub("", self.operator) if self.operator is not None else self.kernels[0].name

    @property
    def main(self) -> Kernel:
        """Return the kernel that takes the longest."""
        return max(self.kernels, key=lambda kernel: kernel.us)

    @property
    def kind(self) -> str:
        if self.operator is not None and self.operator.startswith(_COLLECTIVE):
            return kernel_kinds.COMMUNICATION
        return self.main.kind


_COLLECTIVE = "collective "


class CallTable(msgspec.Struct, frozen=True):
    """The calls of one rank's step, in the order of their launches."""

    calls: list[Call]
    steps: int
    device: str | None  # None: a CPU
    compiled: bool = False

    @property
    def named(self) -> float:
        """Return the share of the compute that operators are known of."""
        compute = [call for call in self.calls if call.kind != kernel_kinds.COMMUNICATION]
        whole = sum(call.us for call in compute)
        return sum(call.us for call in compute if call.operator is not None) / whole if whole else 0.0


def read_calls(
    path: Path, of_file: int | None = None, only: tuple[int, int] | None = None, *, with_places: bool = False
) -> CallTable:
    """Return the operators' calls of one rank's trace. Raises UserError.

    `of_file`: of a file with several devices, which of them is the rank. `only`: of the steps from one number to
    another. `with_places`: find out what kernels are for whose place tells it.
    """
    trace = read_trace(path, of_file)
    timeline = build_timeline(trace, only=only)
    device = next((device.name for device in trace.header.devices), None)
    compiled = any(_COMPILED.search(name) for name in trace.names)
    if not timeline.start.size:
        on_cpu = build_cpu_timeline(trace, only)
        by_step = _host_calls(trace, on_cpu, _places(record_host(trace, on_cpu)) if with_places else {})
        return CallTable(_mean_calls(by_step), len(by_step), None, compiled)
    rows, step = _rows_of_steps(timeline)
    operator = _operators(trace, timeline, rows)
    order = np.argsort(trace.activities.start, kind="stable")
    blocks = trace.activities.blocks[order]
    steps = max(1, len(set(step.tolist())))
    places = _places(record_device(trace, timeline)) if with_places else {}
    by_step = _device_calls(trace, timeline, rows, step, operator, blocks, places)
    return CallTable(_mean_calls(by_step), steps, device, compiled)


def _places(record: RankRecord) -> "_Places":
    return {(record.start[at], record.name[at]): kind for at, kind in kinds_by_place(record).items()}


def _host_calls(trace: Trace, timeline: CpuTimeline, places: "_Places") -> "_ByStep":
    """Return the operators of a rank that trains on a CPU, a call each: but those that communicate or load data."""
    (start, end), edges = timeline.operators, timeline.windows.edges
    step = np.searchsorted(edges, start, side="right") - 1
    loads = covered_before(timeline.data, end) > covered_before(timeline.data, start)
    kept = (step >= 0) & (step < min(len(timeline.windows), _MOST_STEPS)) & ~loads
    by_step: _ByStep = {}
    for row in np.flatnonzero(kept).tolist():
        name = trace.names[timeline.operator_name[row]]
        if not name.startswith(HANDOVER_OPS):
            us = (int(end[row]) - int(start[row])) / 1e3
            kind = places.get((int(start[row]), name))
            by_step.setdefault(int(step[row]), []).append((name, [(name, us, 0, kind)]))
    return by_step


def _rows_of_steps(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return the activities that compute or communicate in whole steps, by launch, and the step of each."""
    windows = device_windows(timeline)
    wanted = (timeline.kind == COMPUTE) | (timeline.kind == COMMUNICATION)
    if not len(timeline.steps):
        rows = np.flatnonzero(wanted)
        return rows[np.argsort(timeline.launch[rows], kind="stable")], np.zeros(rows.size, np.int64)
    last = int(timeline.step.max())
    # what ran on from before the first step is no part of it, and the last may lack what the file's end cut off
    kept = wanted & (timeline.step >= 0) & (timeline.step < _MOST_STEPS) & ((timeline.step < last) | (last == 0))
    rows = np.flatnonzero(kept if len(windows) else wanted)
    rows = rows[np.argsort(timeline.launch[rows], kind="stable")]
    return rows, timeline.step[rows]


def _operators(trace: Trace, timeline: Timeline, rows: Ints) -> list[tuple[str | None, int]]:
    """Return each activity's operator, and a number that its calls do not share."""
    found: list[tuple[str | None, int]] = [(None, -1 - at) for at in range(rows.size)]
    launch = timeline.launch[rows] - trace.header.base_ns
    thread = _threads(trace, timeline)[rows]
    per_step = rows.size / max(1, len(set(timeline.step[rows].tolist())))
    most = max(_REGION_KERNELS, _REGION_SHARE * per_step)
    operators = trace.operators
    regions = np.array([_COMPILED.search(name) is not None for name in trace.names], bool)
    for one in np.unique(thread).tolist():
        own = np.flatnonzero(operators.thread == one)
        mine = np.flatnonzero((thread == one) & (timeline.launch[rows] >= 0))
        if not own.size or not mine.size:
            continue
        launches = np.sort(launch[mine])
        inside = np.searchsorted(launches, operators.end[own], side="right") - np.searchsorted(
            launches, operators.start[own]
        )
        own = own[(inside > 0) & (inside <= most) & ~regions[operators.name[own]]]
        own = own[np.lexsort((-operators.end[own], operators.start[own]))]
        reach = np.maximum.accumulate(np.concatenate(([np.iinfo(np.int64).min], operators.end[own])))[:-1]
        own = own[operators.start[own] >= reach]
        if not own.size:
            continue
        at = np.searchsorted(operators.start[own], launch[mine], side="right") - 1
        hit = (at >= 0) & (launch[mine] <= operators.end[own[at]])
        for row, operator in zip(mine[hit].tolist(), own[at[hit]].tolist(), strict=True):
            name = trace.names[operators.name[operator]].removeprefix(_ENGINE)
            found[row] = (name, operator)
    return found


def _threads(trace: Trace, timeline: Timeline) -> Ints:
    """Return the thread that launched each activity, in the timeline's order; -1 where nothing tells."""
    order = np.argsort(trace.activities.start, kind="stable")
    threads: Ints = find_launches(trace).thread[order]
    return threads


#: By begin and name: the kinds of kernels whose place tells them.
_Places = dict[tuple[int, str], str]
#: A kernel's name, its time in µs, its blocks, and its kind where the place tells that.
_Ran = tuple[str, float, int, str | None]
#: By step: each call's operator, and its kernels.
_ByStep = dict[int, list[tuple[str | None, list[_Ran]]]]


def _device_calls(
    trace: Trace,
    timeline: Timeline,
    rows: Ints,
    step: Ints,
    operator: list[tuple[str | None, int]],
    blocks: Ints,
    places: _Places,
) -> _ByStep:
    """Return the calls that launched these activities, in the order of their launches."""
    collectives = dict(zip(np.flatnonzero(timeline.kind == COMMUNICATION).tolist(), timeline.collectives, strict=True))
    by_step: _ByStep = {}
    open_call: dict[int, int] = {}
    for at, (row, of) in enumerate(zip(rows.tolist(), step.tolist(), strict=True)):
        name, call = operator[at]
        if row in collectives:
            one = collectives[row]
            name, call = f"{_COLLECTIVE}{one.operation or 'of unknown kind'}", -1 - at
        us = (int(timeline.end[row]) - int(timeline.start[row])) / 1e3
        kernel_name = trace.names[timeline.name[row]]
        kernel = (kernel_name, us, int(blocks[row]), places.get((int(timeline.start[row]), kernel_name)))
        calls = by_step.setdefault(of, [])
        if call >= 0 and open_call.get(of) == call:
            calls[-1][1].append(kernel)
        else:
            calls.append((name, [kernel]))
            open_call[of] = call
    return by_step


def _mean_calls(by_step: _ByStep) -> list[Call]:
    """Return the calls of the step that has most of them in common with the others, with times of all steps."""
    if not by_step:
        return []
    lengths = Counter(len(calls) for calls in by_step.values())
    usual = lengths.most_common(1)[0][0]
    alike = [calls for calls in by_step.values() if len(calls) == usual]
    shapes = [[(name, len(kernels)) for name, kernels in calls] for calls in alike]
    alike = [calls for calls, shape in zip(alike, shapes, strict=True) if shape == shapes[0]]
    return [_mean_call([calls[at] for calls in alike]) for at in range(usual)]


def _mean_call(same: list[tuple[str | None, list[_Ran]]]) -> Call:
    name, kernels = same[0]
    means = []
    for at, (kernel, _, blocks, kind) in enumerate(kernels):
        us = sum(calls[at][1] for _, calls in same) / len(same)
        means.append(Kernel(kernel, us, blocks if blocks > 0 else None, kind))
    return Call(name, tuple(means))
