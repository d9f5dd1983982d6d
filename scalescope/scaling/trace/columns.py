"""Grows a trace's columns out of its events, block by block: integers, interned names, times in integer nanoseconds."""

import math
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from scalescope.scaling.trace.communication_args import MULTIPLIES, communication_of, gradient_of, multiplied_of
from scalescope.scaling.trace.events import EXACT_FLOAT_US, AnyEvent, Args, decode_event_anyhow, decode_events
from scalescope.scaling.trace.header import Header
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.kernel_names import capped
from scalescope.scaling.trace.tables import ColumnBlocks, column_of, externals, ids, times_of
from scalescope.scaling.trace.trace import (
    KERNEL,
    MEMCPY,
    MEMSET,
    Activities,
    CommunicationArgs,
    GradientArgs,
    Stretches,
    Trace,
)

#: Categories as torch 1.8 to 2.13 write them.
_ACTIVITY_KINDS = {
    "kernel": KERNEL, "Kernel": KERNEL, "concurrent_kernel": KERNEL,
    "gpu_memcpy": MEMCPY, "Memcpy": MEMCPY, "gpu_memset": MEMSET, "Memset": MEMSET,
}  # fmt: skip
_RUNTIME = ("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "xpu_runtime", "mtia_runtime",
            "privateuse1_runtime", "privateuse1_driver", "runtime", "driver")  # fmt: skip
_OPERATORS = ("cpu_op", "Operator")
_ANNOTATIONS = ("user_annotation",)
_FRAMES = ("python_function",)
_OVERHEAD = ("overhead",)
#: What CUPTI counts as its overhead, and is none: a launch waits while about 1,000 of them have not begun.
_QUEUE_FULL = "Command Buffer Full"
#: What stands on a device's streams and is no activity of its own.
_SHADOWS = ("gpu_user_annotation", "cuda_sync", "overhead")
_COMMUNICATING = re.compile(r"record_param_comms$|c10d::|gloo:|mpi:|nccl:|rccl:")
_GRADIENT = "torch::distributed::reducer::"
_THREAD_NUMBER = re.compile(r"-?[0-9]{1,18}")


class Columns:
    """Grows the columns block by block."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.threads: dict[int, str] = {}
        self.thread_ids: dict[str, int] = {}
        self.communications: list[CommunicationArgs] = []
        self.events = 0
        self.invalid_events = 0
        self.unreadable = 0  # stretches of text without one whole event
        self.mended_events = 0
        self.unread: dict[str, int] = {}
        self._exact: bool | None = None
        self._activities = ColumnBlocks(10)
        self._runtime = ColumnBlocks(6)
        self._operators = ColumnBlocks(6)
        self._annotations = ColumnBlocks(6)
        self._frames = ColumnBlocks(3)
        self._overhead = ColumnBlocks(3)
        self._queue_full = ColumnBlocks(3)
        self._operator_communication: dict[int, int] = {}
        self._annotation_communication: dict[int, int] = {}
        self._talks: list[bool] = []  # by name id: may the event's arguments describe a collective?
        self._moves_gradient: list[bool] = []  # by name id: does DDP put a gradient into its bucket there?
        self._gradients: dict[int, GradientArgs] = {}
        self._multiplies: list[bool] = []  # by name id: does the operator multiply what grows with the batch?
        self._multiplied: dict[str, tuple[int, int]] = {}

    def add(self, array: bytes) -> None:
        """Add the events of a JSON array. Raises msgspec.DecodeError, with nothing added, where it does not decode."""
        events = decode_events(array, self._exact is True)
        if self._exact is None and events:
            # decided on the first block: a clock that counts from 1970 needs more digits than a float holds
            self._exact = any(isinstance(event.ts, float) and event.ts >= EXACT_FLOAT_US for event in events)
            if self._exact:
                events = decode_events(array, True)
        self._take(events)

    def add_events(self, events: list[AnyEvent]) -> None:
        """Add events that another reader has made; their times are floats of µs below EXACT_FLOAT_US."""
        self._take(events)

    def try_add(self, event: bytes) -> bool:
        """Add one event's text and tell whether it decoded as it stands."""
        try:
            self.add(b"[" + event + b"]")
        except msgspec.DecodeError:
            return False
        return True

    def add_anyhow(self, text: bytes) -> None:
        """Add one event's text, mended where it must be; count it where it cannot be."""
        if not self.try_add(text) and not self.mend(text):
            self.invalid_events += 1

    def mend(self, text: bytes) -> bool:
        """Add one event's text that does not decode as it stands, and tell whether it could be mended."""
        event = decode_event_anyhow(text.strip().strip(b","), self._exact is True)
        if event is None:
            return False
        self.mended_events += 1
        self._take([event])
        return True

    def trace(self, path: Path, header: Header, damage: list[str], cut_off: bool = False) -> Trace:
        """Return all that was added, with what stands around the events and what was wrong with the file."""
        start, end, name, kind, stream, device, correlation, external, communication, blocks = (
            self._activities.columns()
        )
        return Trace(
            path=path,
            header=header,
            names=list(map(capped, self.names)),
            activities=Activities(
                start, end, ids(name), ids(kind), stream, device, correlation, external, ids(communication), blocks
            ),
            runtime=self._runtime.spans(),
            operators=self._operators.spans(),
            annotations=self._annotations.spans(),
            communications=self.communications,
            operator_communication=self._operator_communication,
            gradients=self._gradients,
            multiplied=self._multiplied,
            annotation_communication=self._annotation_communication,
            threads=self.threads,
            frames=Stretches(*self._frames.columns()),
            overhead=Stretches(*self._overhead.columns()),
            queue_full=Stretches(*self._queue_full.columns()),
            events=self.events,
            invalid_events=self.invalid_events,
            mended_events=self.mended_events,
            unread=self.unread,
            damage=damage,
            cut_off=cut_off,
        )

    def _take(self, events: Iterable[AnyEvent]) -> None:
        activities: list[AnyEvent] = []
        kinds: list[int] = []
        runtime: list[AnyEvent] = []
        operators: list[AnyEvent] = []
        annotations: list[AnyEvent] = []
        frames: list[AnyEvent] = []
        overhead: list[AnyEvent] = []
        spans = dict.fromkeys(_RUNTIME, runtime) | dict.fromkeys(_OPERATORS, operators)
        spans |= dict.fromkeys(_ANNOTATIONS, annotations)
        spans |= dict.fromkeys(_FRAMES, frames) | dict.fromkeys(_OVERHEAD, overhead)
        count = 0
        for event in events:
            count += 1
            if event.ph == "X":
                category = event.cat
                if (rows := spans.get(category)) is not None:
                    rows.append(event)
                elif (kind := _ACTIVITY_KINDS.get(category)) is not None:
                    activities.append(event)
                    kinds.append(kind)
                elif event.args.stream >= 0 and category not in _SHADOWS:
                    self.unread[category] = self.unread.get(category, 0) + 1
            elif event.ph == "M" and event.name == "thread_name" and event.args.name is not None:
                thread = self._thread(event.tid)
                # two names may stand for one thread; the one that tells more is not the process's own
                if "gloo" not in self.threads.get(thread, ""):
                    self.threads[thread] = str(event.args.name)
        self.events += count
        if activities:
            self._take_activities(activities, kinds)
        if runtime:
            self._runtime.append(self._host_columns(runtime))
        if operators:
            self._take_talking(operators, self._operators, self._operator_communication)
        if annotations:
            self._take_talking(annotations, self._annotations, self._annotation_communication)
        queue_full = [event for event in overhead if event.name == _QUEUE_FULL]
        of_kinds = ((frames, self._frames), (overhead, self._overhead), (queue_full, self._queue_full))
        for events_of_kind, table in of_kinds:
            if events_of_kind:
                table.append(self._stretch_columns(events_of_kind))

    def _take_activities(self, events: list[AnyEvent], kinds: list[int]) -> None:
        start, end, good = times_of(events)
        communications = [
            -1 if event.args.collective is None else self._communication(event.args, event.name) for event in events
        ]
        block = [
            start,
            end,
            column_of(self._name_ids(events)),
            column_of(kinds),
            column_of([event.args.stream for event in events]),
            column_of([event.args.device for event in events]),
            column_of([event.args.correlation for event in events]),
            externals(events),
            column_of(communications),
            column_of([math.prod(event.args.grid) if event.args.grid else 0 for event in events]),
        ]
        self._activities.append(block if good is None else [column[good] for column in block])
        self._count_bad(good)

    def _take_talking(self, events: list[AnyEvent], table: ColumnBlocks, found: dict[int, int]) -> None:
        """Take operators or annotations, and the arguments of those that describe a collective."""
        first = table.rows
        columns = self._host_columns(events)
        for row, name in enumerate(columns[3].tolist()):
            if self._talks[name]:
                event = events[row]
                index = self._communication(event.args, event.name)
                if index >= 0:
                    found[first + row] = index
            elif self._moves_gradient[name] and (gradient := gradient_of(events[row].args)) is not None:
                self._gradients[first + row] = gradient
            elif self._multiplies[name] and (elements := multiplied_of(events[row].args, events[row].name)) > 0:
                calls, before = self._multiplied.get(events[row].name, (0, 0))
                self._multiplied[events[row].name] = calls + 1, before + elements
        table.append(columns)

    def _stretch_columns(self, events: list[AnyEvent]) -> list[Ints]:
        start, end, good = times_of(events)
        threads = column_of([event.tid if type(event.tid) is int else self._thread(event.tid) for event in events])
        if good is not None:
            start, end, threads = start[good], end[good], threads[good]
        return [start, end, threads]

    def _host_columns(self, events: list[AnyEvent]) -> list[Ints]:
        start, end, good = times_of(events)
        if good is not None:
            # an event without a usable time is dropped before rows are numbered
            kept = [event for event, usable in zip(events, good.tolist(), strict=True) if usable]
            events[:] = kept
            start, end = start[good], end[good]
            self._count_bad(good)
        threads = [event.tid if type(event.tid) is int else self._thread(event.tid) for event in events]
        return [
            start,
            end,
            column_of(threads),
            column_of(self._name_ids(events)),
            column_of([event.args.correlation for event in events]),
            externals(events),
        ]

    def _count_bad(self, good: npt.NDArray[np.bool_] | None) -> None:
        if good is not None:
            self.invalid_events += int((~good).sum())

    def _name_ids(self, events: list[AnyEvent]) -> list[int]:
        names = self.names
        found = [names.setdefault(event.name, len(names)) for event in events]
        for name in list(names)[len(self._talks) :]:
            self._talks.append(_COMMUNICATING.match(name) is not None)
            self._moves_gradient.append(name.startswith(_GRADIENT))
            self._multiplies.append(name in MULTIPLIES)
        return found

    def _thread(self, tid: int | str) -> int:
        if isinstance(tid, int):
            return tid
        if _THREAD_NUMBER.fullmatch(tid):
            return int(tid)
        # negative numbers are no thread ids, so they cannot collide with one
        return self.thread_ids.setdefault(tid, -1_000_000 - len(self.thread_ids))

    def _communication(self, args: Args, name: str) -> int:
        """Keep what the arguments say about a collective; return its index, -1 where they say it moves no data."""
        found = communication_of(args, name)
        if found is None:
            return -1
        self.communications.append(found)
        return len(self.communications) - 1
