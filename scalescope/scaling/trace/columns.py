"""Grows a trace's columns out of its events, block by block: integers, interned names, times in integer nanoseconds."""

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from scalescope.records.dtypes import element_bytes
from scalescope.records.operations import FROM_ROOT, TO_ROOT, canonical_operation
from scalescope.scaling.trace.events import EXACT_FLOAT_US, AnyEvent, Args, decode_event_anyhow, decode_events
from scalescope.scaling.trace.families import NO_COLLECTIVE
from scalescope.scaling.trace.header import Header
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.kernel_names import capped
from scalescope.scaling.trace.trace import (
    KERNEL,
    MEMCPY,
    MEMSET,
    Activities,
    CommunicationArgs,
    GradientArgs,
    HostSpans,
    Ids,
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
_THREAD_NUMBER, _NUMBER = re.compile(r"-?[0-9]{1,18}"), re.compile(r"[0-9]{1,18}")

#: What lies beyond is no event's time: a start of 2096, eleven days for one event. The sums of starts, durations and
#: the clock's base then stay within 64 bits of ns.
_FARTHEST_US, _LONGEST_US = 4e15, 1e12
#: Elements, ranks and numbers beyond these are nobody's; a product of shapes may have a thousand digits.
_MOST_ELEMENTS, _MOST_RANKS = 1 << 50, 1 << 24
_LONGEST_WORD = 256  # of an operation, a dtype, a group


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
        self._activities = _Table(9)
        self._runtime = _Table(6)
        self._operators = _Table(6)
        self._annotations = _Table(6)
        self._frames = _Table(3)
        self._overhead = _Table(3)
        self._queue_full = _Table(3)
        self._operator_communication: dict[int, int] = {}
        self._annotation_communication: dict[int, int] = {}
        self._talks: list[bool] = []  # by name id: may the event's arguments describe a collective?
        self._moves_gradient: list[bool] = []  # by name id: does DDP put a gradient into its bucket there?
        self._gradients: dict[int, GradientArgs] = {}

    def add(self, array: bytes) -> None:
        """Add the events of a JSON array. Raises msgspec.DecodeError, with nothing added, where it does not decode."""
        events = decode_events(array, self._exact is True)
        if self._exact is None and events:
            # decided on the first block: a clock that counts from 1970 needs more digits than a float holds
            self._exact = any(isinstance(event.ts, float) and event.ts >= EXACT_FLOAT_US for event in events)
            if self._exact:
                events = decode_events(array, True)
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
        start, end, name, kind, stream, device, correlation, external, communication = self._activities.columns()
        return Trace(
            path=path,
            header=header,
            names=list(map(capped, self.names)),
            activities=Activities(
                start, end, _ids(name), _ids(kind), stream, device, correlation, external, _ids(communication)
            ),
            runtime=self._runtime.spans(),
            operators=self._operators.spans(),
            annotations=self._annotations.spans(),
            communications=self.communications,
            operator_communication=self._operator_communication,
            gradients=self._gradients,
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
        start, end, good = _times(events)
        communications = [
            -1 if event.args.collective is None else self._communication(event.args, event.name) for event in events
        ]
        block = [
            start,
            end,
            _column(self._name_ids(events)),
            _column(kinds),
            _column([event.args.stream for event in events]),
            _column([event.args.device for event in events]),
            _column([event.args.correlation for event in events]),
            _externals(events),
            _column(communications),
        ]
        self._activities.append(block if good is None else [column[good] for column in block])
        self._count_bad(good)

    def _take_talking(self, events: list[AnyEvent], table: "_Table", found: dict[int, int]) -> None:
        """Take operators or annotations, and the arguments of those that describe a collective."""
        first = table.rows
        columns = self._host_columns(events)
        for row, name in enumerate(columns[3].tolist()):
            if self._talks[name]:
                event = events[row]
                index = self._communication(event.args, event.name)
                if index >= 0:
                    found[first + row] = index
            elif self._moves_gradient[name] and (gradient := _gradient(events[row].args)) is not None:
                self._gradients[first + row] = gradient
        table.append(columns)

    def _stretch_columns(self, events: list[AnyEvent]) -> list[Ints]:
        start, end, good = _times(events)
        threads = _column([event.tid if type(event.tid) is int else self._thread(event.tid) for event in events])
        if good is not None:
            start, end, threads = start[good], end[good], threads[good]
        return [start, end, threads]

    def _host_columns(self, events: list[AnyEvent]) -> list[Ints]:
        start, end, good = _times(events)
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
            _column(threads),
            _column(self._name_ids(events)),
            _column([event.args.correlation for event in events]),
            _externals(events),
        ]

    def _count_bad(self, good: npt.NDArray[np.bool_] | None) -> None:
        if good is not None:
            self.invalid_events += int((~good).sum())

    def _name_ids(self, events: list[AnyEvent]) -> list[int]:
        names = self.names
        ids = [names.setdefault(event.name, len(names)) for event in events]
        for name in list(names)[len(self._talks) :]:
            self._talks.append(_COMMUNICATING.match(name) is not None)
            self._moves_gradient.append(name.startswith(_GRADIENT))
        return ids

    def _thread(self, tid: int | str) -> int:
        if isinstance(tid, int):
            return tid
        if _THREAD_NUMBER.fullmatch(tid):
            return int(tid)
        # negative numbers are no thread ids, so they cannot collide with one
        return self.thread_ids.setdefault(tid, -1_000_000 - len(self.thread_ids))

    def _communication(self, args: Args, name: str) -> int:
        """Keep what the arguments say about a collective; return its index, -1 where they say it moves no data."""
        described = args.collective if args.collective is not None else name
        if described.lower() in NO_COLLECTIVE:
            return -1
        # torch before 2.0 recorded that there is a collective, not which
        operation = None if described == "record_param_comms" else canonical_operation(described)
        in_elements = args.in_elements if args.in_elements >= 0 else args.in_elements_old
        out_elements = args.out_elements if args.out_elements >= 0 else args.out_elements_old
        dtype = args.dtype
        dims = args.input_dims or args.input_dims_old
        if in_elements < 0 and dims:
            in_elements, out_elements = _elements(dims, args.input_type)
        if dtype is None and args.input_type:
            dtype = _first_dtype(args.input_type)
        if operation == "barrier":
            in_elements, out_elements, dtype = -1, -1, None  # the tensor that it carries says nothing
        rooted = operation in FROM_ROOT or operation in TO_ROOT
        root = args.rank if rooted else -1
        source, destination = args.source, args.destination
        if name.startswith("c10d::") and args.concrete_inputs:
            # torch's own operator: who the data comes from or goes to is an argument of it
            other = _first_integer(args.concrete_inputs)
            root = other if rooted and root < 0 else root
            destination = other if name == "c10d::send" and destination < 0 else destination
            source = other if name == "c10d::recv_" and source < 0 else source
        self.communications.append(
            CommunicationArgs(
                operation=_word(operation),
                in_elements=_within(in_elements, _MOST_ELEMENTS),
                out_elements=_within(out_elements, _MOST_ELEMENTS),
                dtype=_word(dtype),
                group=_word(args.group),
                group_ranks=args.group_ranks,
                group_size=_within(args.group_size, _MOST_RANKS) or None,
                sequence=_within(args.sequence, _MOST_ELEMENTS),
                root=_within(root, _MOST_RANKS),
                source=_within(source, _MOST_RANKS),
                destination=_within(destination, _MOST_RANKS),
            )
        )
        return len(self.communications) - 1


def _within(number: int, most: int) -> int | None:
    """Return a number as the trace gives it; None where it gives none (-1), or one that cannot be."""
    return number if 0 <= number <= most else None


def _word(word: str | None) -> str | None:
    return word[:_LONGEST_WORD] if word is not None else None


def _gradient(args: Args) -> GradientArgs | None:
    """Return the gradient that an operator of DDP's reducer moves; None where shapes were not recorded."""
    elements, _ = _elements(args.input_dims, args.input_type) if args.input_dims else (-1, -1)
    size = element_bytes(_first_dtype(args.input_type) or "") if args.input_type else None
    return GradientArgs(elements, size) if 0 < elements <= _MOST_ELEMENTS and size else None


class _Table:
    """Columns of equal length, kept as blocks until they are asked for."""

    def __init__(self, width: int) -> None:
        self._blocks: list[list[Ints]] = [[] for _ in range(width)]
        self.rows = 0

    def append(self, block: list[Ints]) -> None:
        for column, part in zip(self._blocks, block, strict=True):
            column.append(part)
        self.rows += int(block[0].size)

    def columns(self) -> list[Ints]:
        return [np.concatenate(column) if column else np.empty(0, np.int64) for column in self._blocks]

    def spans(self) -> HostSpans:
        start, end, thread, name, correlation, external = self.columns()
        return HostSpans(start, end, thread, _ids(name), correlation, external)


def _externals(events: list[AnyEvent]) -> Ints:
    column = _column([event.args.external_id for event in events])
    missing = np.flatnonzero(column < 0)
    column[missing] = [max(events[row].args.external_id_old, -1) for row in missing.tolist()]
    return column


def _ids(column: Ints) -> Ids:
    return column.astype(np.int32)


def _column(values: list[int]) -> Ints:
    try:
        return np.array(values, np.int64)
    except OverflowError:
        # a nonsense number in one event (a flipped byte) must not cost the others
        return np.array([value if -(1 << 63) <= value < 1 << 63 else -1 for value in values], np.int64)


def _times(events: list[AnyEvent]) -> tuple[Ints, Ints, npt.NDArray[np.bool_] | None]:
    """Return starts and ends in ns, and a mask of usable rows (None: all are).

    A float of µs is split into whole µs and the rest, which is exact below EXACT_FLOAT_US; times a thousand as it
    stands would round twice.
    """
    if isinstance(events[0].ts, float):
        start_us = np.array([event.ts for event in events], np.float64)
        duration_us = np.array([event.dur for event in events], np.float64)
        good = np.isfinite(start_us) & np.isfinite(duration_us) & (duration_us >= 0)
        good &= (np.abs(start_us) < _FARTHEST_US) & (duration_us < _LONGEST_US)
        usable = None if bool(good.all()) else good
        if usable is not None:
            start_us, duration_us = np.where(good, start_us, 0.0), np.where(good, duration_us, 0.0)
        start = _nanoseconds(start_us)
        return start, start + _nanoseconds(duration_us), usable
    starts, ends, marks = [], [], []
    for event in events:
        begin, duration = Decimal(event.ts), Decimal(event.dur)
        mark = begin.is_finite() and duration.is_finite() and abs(begin) < _FARTHEST_US and 0 <= duration < _LONGEST_US
        starts.append(round(begin * 1000) if mark else 0)
        ends.append(starts[-1] + (round(duration * 1000) if mark else 0))
        marks.append(mark)
    return np.array(starts, np.int64), np.array(ends, np.int64), None if all(marks) else np.array(marks, bool)


def _nanoseconds(micro: npt.NDArray[np.float64]) -> Ints:
    whole = np.floor(micro)
    nanoseconds: Ints = whole.astype(np.int64) * 1000 + np.rint((micro - whole) * 1000).astype(np.int64)
    return nanoseconds


#: What `Input type` calls a tensor's element type.
_TENSORS = frozenset({"float", "double", "c10::Half", "c10::BFloat16", "int", "long", "long int", "short", "bool",
                      "signed char", "unsigned char"})  # fmt: skip


def _elements(dims: msgspec.Raw, types: msgspec.Raw) -> tuple[int, int]:
    """Return the elements of an operator's smallest and largest tensor argument, -1 where the shapes do not say.

    An argument is a tensor's shape, or a list of them nested as deep as the operator takes them. A scalar tensor and an
    argument that is no tensor are both written `[]`; the types tell them apart.
    """
    try:
        arguments = msgspec.json.decode(dims)
        named = msgspec.json.decode(types) if types else []
        counts = [count for argument in arguments if (count := _count(argument)) > 0]
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        return -1, -1
    if counts:
        return min(counts), max(counts)
    scalar = any(argument == [] and kind in _TENSORS for argument, kind in zip(arguments, named, strict=False))
    return (1, 1) if scalar else (-1, -1)


def _count(argument: Any) -> int:
    if not argument:
        return 0
    if isinstance(argument[0], list):
        return sum(max(_count(part), 1 if part == [] else 0) for part in argument)
    return math.prod(argument)


def _first_integer(inputs: msgspec.Raw) -> int:
    """Return the first whole number among an operator's arguments, which are written as strings; -1 without one.

    Of `c10d::broadcast_` (tensors, group, root, …), `reduce_` (tensors, group, operation, root, …), `gather_` and
    `scatter_` (outputs, inputs, group, root, …) that is the root, of `send` and `recv_` (tensors, group, rank, tag) the
    partner; all of them within the group. What is no scalar is written empty.
    """
    try:
        written = msgspec.json.decode(inputs)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return -1
    found = (
        (one for one in written if isinstance(one, str) and _NUMBER.fullmatch(one)) if isinstance(written, list) else ()
    )
    return int(next(iter(found), -1))


def _first_dtype(types: msgspec.Raw) -> str | None:
    """Return the first of an operator's argument types that is an element type; lists of tensors hold theirs inside."""
    try:
        open_ones = msgspec.json.decode(types)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    open_ones = open_ones[::-1] if isinstance(open_ones, list) else []
    while open_ones:
        one = open_ones.pop()
        if isinstance(one, list):
            open_ones.extend(reversed(one))
        elif isinstance(one, str) and element_bytes(one) is not None:
            return one
    return None
