"""Grows a trace's columns out of its events, block by block: integers, interned names, times in integer nanoseconds."""

import re
import sys
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from scalescope.scaling.trace.communication_args import (
    COMPUTES,
    MULTIPLIES,
    communication_of,
    gradient_of,
    multiplied_of,
    number_of,
    precision_of,
)
from scalescope.scaling.trace.events import EXACT_FLOAT_US, AnyEvent, Args, decode_event_anyhow, decode_events
from scalescope.scaling.trace.fields.compiled import read_fields
from scalescope.scaling.trace.fields.fields import Fields, fields_of
from scalescope.scaling.trace.header import Header
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.kernel_names import capped
from scalescope.scaling.trace.tables import GrowingColumns, ids
from scalescope.scaling.trace.trace import (
    KERNEL,
    MEMCPY,
    MEMSET,
    Activities,
    CommunicationArgs,
    GradientArgs,
    Lines,
    MultipliedAt,
    Numbered,
    Precisions,
    Stretches,
    Trace,
)

#: Where events go: activities by their kind, spans of the host, and the rest.
_RUNTIME, _OPERATOR, _ANNOTATION, _FRAME, _OVERHEAD, _SHADOW, _UNKNOWN, _NO_SPAN = range(MEMSET + 1, MEMSET + 9)
#: Categories as torch 1.8 to 2.13 write them.
_TABLES = {
    "kernel": KERNEL, "Kernel": KERNEL, "concurrent_kernel": KERNEL,
    "gpu_memcpy": MEMCPY, "Memcpy": MEMCPY, "gpu_memset": MEMSET, "Memset": MEMSET,
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "xpu_runtime", "mtia_runtime",
                     "privateuse1_runtime", "privateuse1_driver", "runtime", "driver"), _RUNTIME),
    "cpu_op": _OPERATOR, "Operator": _OPERATOR,
    "user_annotation": _ANNOTATION, "python_function": _FRAME, "overhead": _OVERHEAD,
    # what stands on a device's streams and is no activity of its own
    "gpu_user_annotation": _SHADOW, "cuda_sync": _SHADOW,
}  # fmt: skip
#: What CUPTI counts as its overhead, and is none: a launch waits while about 1,000 of them have not begun.
_QUEUE_FULL = "Command Buffer Full"
_COMMUNICATING = re.compile(r"record_param_comms$|c10d::|gloo:|mpi:|nccl:|rccl:")
_GRADIENT = "torch::distributed::reducer::"
#: What is over sooner costs as much in any precision, ns; and so many shapes are kept, and those of one block.
_TAKES_TIME_NS, _MOST_KNOWN = 10_000, 4096
#: So many operators of a stretch tell whether shapes were recorded.
_SAMPLED = 256
_NODE = re.compile(r"\w+Backward\d*")
_THREAD_NUMBER = re.compile(r"-?[0-9]{1,18}")


#: A function of Python as the profiler names it, by the file's path behind the folder that it was imported from.
_FUNCTION = re.compile(r"(?P<file>[^<>]+)\.py\(\d+\): .+")
#: Whose functions call torch's operators for a script, and are none of its own.
_LIBRARIES = frozenset({"torch", "torchvision", "torchaudio", "numpy", "deepspeed", "scalescope", "site-packages"})


def _is_a_scripts(name: str) -> bool:
    """Tell whether a frame's name is that of a function of a script's own."""
    told = _FUNCTION.fullmatch(name)
    folders = told["file"].split("/") if told is not None else []
    standard = bool(folders) and (folders[0] in sys.stdlib_module_names or "lib" in folders[:-1])
    return bool(folders) and not standard and not _LIBRARIES.intersection(folders[:-1])


def _lines(start: Ints, end: Ints, thread: Ints, name: Ints) -> Lines:
    return Lines(start, end, thread, ids(name))


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
        self._activities = GrowingColumns(10)
        self._runtime = GrowingColumns(6)
        self._operators = GrowingColumns(6)
        self._annotations = GrowingColumns(6)
        self._frames = GrowingColumns(3)
        self._lines = GrowingColumns(4)
        self._overhead = GrowingColumns(3)
        self._queue_full = GrowingColumns(3)
        self._operator_communication: dict[int, int] = {}
        self._annotation_communication: dict[int, int] = {}
        self._talks: list[bool] = []  # by name id: may the event's arguments describe a collective?
        self._moves_gradient: list[bool] = []  # by name id: does DDP put a gradient into its bucket there?
        self._gradients: dict[int, GradientArgs] = {}
        self._multiplies: list[bool] = []  # by name id: does the operator multiply what grows with the batch?
        self._multiplied: dict[str, tuple[int, int]] = {}
        self._multiplied_at = GrowingColumns(3)
        self._computes: list[bool] = []  # by name id: does the operator compute with its tensors?
        self._precisions = GrowingColumns(2)
        self._known_precisions: dict[tuple[bytes, bytes], int] = {}
        self._is_numbered: list[bool] = []  # by name id: does autograd number the operator, or is it a node of it?
        self._numbered = GrowingColumns(2)

    def add(self, array: bytes) -> None:
        """Add the events of a JSON array. Raises msgspec.DecodeError, with nothing added, where it does not decode."""
        fields = read_fields(array)
        if fields is not None:
            far = fields.farthest >= EXACT_FLOAT_US * 1000
            if self._exact is None and fields.count:
                self._exact = far
            if self._exact or not far:
                self._take(fields)
                return
        events = decode_events(array, self._exact is True)
        if self._exact is None and events:
            # decided on the first block: a clock that counts from 1970 needs more digits than a float holds
            self._exact = any(isinstance(event.ts, float) and abs(event.ts) >= EXACT_FLOAT_US for event in events)
            if self._exact:
                events = decode_events(array, True)
        self.add_events(events)

    def add_events(self, events: list[AnyEvent]) -> None:
        """Add events; of another reader's, times are floats of µs below EXACT_FLOAT_US."""
        if events:
            self._take(fields_of(events))

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
        self.add_events([event])
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
            multiplied_at=MultipliedAt(*self._multiplied_at.columns()),
            precisions=Precisions(*self._precisions.columns()),
            numbered=Numbered(*self._numbered.columns()),
            annotation_communication=self._annotation_communication,
            threads=self.threads,
            frames=Stretches(*self._frames.columns()),
            lines=_lines(*self._lines.columns()),
            overhead=Stretches(*self._overhead.columns()),
            queue_full=Stretches(*self._queue_full.columns()),
            events=self.events,
            invalid_events=self.invalid_events,
            mended_events=self.mended_events,
            unread=self.unread,
            damage=damage,
            cut_off=cut_off,
        )

    def _take(self, fields: Fields) -> None:
        strings = fields.strings
        spans = np.array([word == "X" for word in strings], bool)[fields.phase]
        table = np.array([_TABLES.get(word, _UNKNOWN) for word in strings], np.int8)[fields.category]
        table[~spans] = _NO_SPAN
        self.events += fields.count
        self._take_thread_names(fields)
        unread = fields.category[(table == _UNKNOWN) & (fields.stream >= 0)]
        for word in _in_order(unread, len(strings)):
            category = strings[word]
            self.unread[category] = self.unread.get(category, 0) + int((unread == word).sum())
        if (activities := self._usable(fields, np.flatnonzero(table <= MEMSET))).size:
            self._take_activities(fields, activities, table[activities].astype(np.int64))
        if (runtime := self._usable(fields, np.flatnonzero(table == _RUNTIME))).size:
            self._runtime.append(self._host_columns(fields, runtime))
        if (operators := self._usable(fields, np.flatnonzero(table == _OPERATOR))).size:
            first = self._operators.rows
            names = self._take_talking(fields, operators, self._operators, self._operator_communication)
            self._take_numbers(fields, operators, names, first)
        if (annotations := self._usable(fields, np.flatnonzero(table == _ANNOTATION))).size:
            self._take_talking(fields, annotations, self._annotations, self._annotation_communication)
        frames = self._usable(fields, np.flatnonzero(table == _FRAME))
        own = [word for word in np.unique(fields.name[frames]).tolist() if _is_a_scripts(strings[word])]
        if (lines := frames[np.isin(fields.name[frames], own)]).size:
            names = self._name_ids(fields, lines)
            self._lines.append([fields.start[lines], fields.end[lines], self._threads(fields, lines), names])
        overhead = np.flatnonzero(table == _OVERHEAD)
        full = overhead[np.array([word == _QUEUE_FULL for word in strings], bool)[fields.name[overhead]]]
        for rows, stretches in (
            (frames, self._frames),
            (overhead, self._overhead),
            (full, self._queue_full),
        ):
            if rows.size:
                stretches.append(self._stretch_columns(fields, rows))

    def _take_thread_names(self, fields: Fields) -> None:
        named = np.array([word == "thread_name" for word in fields.strings], bool)[fields.name]
        named &= np.array([word == "M" for word in fields.strings], bool)[fields.phase]
        for event in fields.events(np.flatnonzero(named)) if named.any() else ():
            if event.args.name is not None:
                thread = self._thread(event.tid)
                # two names may stand for one thread; the one that tells more is not the process's own
                if "gloo" not in self.threads.get(thread, ""):
                    self.threads[thread] = str(event.args.name)

    def _usable(self, fields: Fields, rows: Ints) -> Ints:
        """Return those of the rows that have a usable time; the others are counted."""
        if fields.usable is None:
            return rows
        kept = rows[fields.usable[rows]]
        self.invalid_events += rows.size - kept.size
        return kept

    def _take_activities(self, fields: Fields, rows: Ints, kinds: Ints) -> None:
        names = self._name_ids(fields, rows)
        communications = np.full(rows.size, -1, np.int64)
        talking = np.flatnonzero(fields.talks[rows])
        if talking.size:
            events = fields.events(rows[talking])
            communications[talking] = [self._communication(event.args, event.name) for event in events]
        self._activities.append(
            [
                fields.start[rows],
                fields.end[rows],
                names,
                kinds,
                fields.stream[rows],
                fields.device[rows],
                fields.correlation[rows],
                fields.external[rows],
                communications,
                fields.blocks[rows],
            ]
        )

    def _take_talking(self, fields: Fields, rows: Ints, table: GrowingColumns, found: dict[int, int]) -> Ints:
        """Take operators or annotations, and the arguments of those that describe a collective or a gradient.

        Return their names, as indices.
        """
        first = table.rows
        columns = self._host_columns(fields, rows)
        names = columns[3]
        talking, moving, multiplying = (
            np.flatnonzero(np.array(one, bool)[names]) for one in (self._talks, self._moves_gradient, self._multiplies)
        )
        for row, event in zip(talking.tolist(), fields.events(rows[talking]) if talking.size else (), strict=True):
            index = self._communication(event.args, event.name)
            if index >= 0:
                found[first + row] = index
        for row, (dims, types) in zip(moving.tolist(), fields.shapes(rows[moving]), strict=True):
            if (gradient := gradient_of(dims, types)) is not None:
                self._gradients[first + row] = gradient
        words = fields.name[rows[multiplying]].tolist()
        counted = np.zeros(len(words), np.int64)
        for at, (word, (dims, _)) in enumerate(zip(words, fields.shapes(rows[multiplying]), strict=True)):
            name = fields.strings[word]
            if (elements := multiplied_of(dims, name)) > 0:
                calls, before = self._multiplied.get(name, (0, 0))
                self._multiplied[name] = calls + 1, before + elements
                counted[at] = elements
        told = counted > 0
        self._multiplied_at.append([columns[0][multiplying][told], counted[told], names[multiplying][told]])
        if table is self._operators:
            self._take_precisions(fields, rows, columns)
        table.append(columns)
        return names

    def _take_numbers(self, fields: Fields, rows: Ints, names: Ints, first: int) -> None:
        """Take what autograd counts, of operators that are at `first` and behind in the table."""
        chosen = np.flatnonzero(np.array(self._is_numbered, bool)[names])
        numbers = np.array([number_of(text) for text in fields.autograds(rows[chosen])], np.int64)
        self._numbered.append([first + chosen[numbers >= 0], numbers[numbers >= 0]])

    def _take_precisions(self, fields: Fields, rows: Ints, columns: list[Ints]) -> None:
        """Take what operators compute in that take their time, where shapes are recorded."""
        start, end, _, names, *_ = columns
        computing = np.flatnonzero(np.array(self._computes, bool)[names] & (end - start >= _TAKES_TIME_NS))
        if not any(types for _, types in fields.shapes(rows[computing[:_SAMPLED]])):
            return
        # a job's shapes recur in each step: most of them are looked up
        shapes, known = fields.shapes(rows[computing]), self._known_precisions
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known.update((one, precision_of(*one)) for one in {*shapes} - known.keys())
        places = np.array([known[one] for one in shapes], np.int64)
        told = places > 0
        self._precisions.append([self._operators.rows + computing[told], places[told]])

    def _stretch_columns(self, fields: Fields, rows: Ints) -> list[Ints]:
        if fields.usable is not None:
            rows = rows[fields.usable[rows]]
        return [fields.start[rows], fields.end[rows], self._threads(fields, rows)]

    def _host_columns(self, fields: Fields, rows: Ints) -> list[Ints]:
        return [
            fields.start[rows],
            fields.end[rows],
            self._threads(fields, rows),
            self._name_ids(fields, rows),
            fields.correlation[rows],
            fields.external[rows],
        ]

    def _name_ids(self, fields: Fields, rows: Ints) -> Ints:
        """Return the rows' names as indices into those of the trace."""
        words, names = fields.name[rows], self.names
        known = np.zeros(len(fields.strings), np.int64)
        for word in _in_order(words, known.size):
            known[word] = names.setdefault(fields.strings[word], len(names))
        for name in islice(names, len(self._talks), None):
            self._talks.append(_COMMUNICATING.match(name) is not None)
            self._moves_gradient.append(name.startswith(_GRADIENT))
            self._multiplies.append(name in MULTIPLIES)
            self._computes.append(COMPUTES.match(name) is not None)
            self._is_numbered.append(name in MULTIPLIES or _NODE.fullmatch(name) is not None)
        return known[words]

    def _threads(self, fields: Fields, rows: Ints) -> Ints:
        threads, words = fields.thread[rows], fields.thread_word[rows]
        for word in _in_order(words[words >= 0], len(fields.strings)):
            threads[words == word] = self._thread(fields.strings[word])
        return threads

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


def _in_order(indices: Ints, size: int) -> list[int]:
    """Return each of some indices (below `size`; -1 is the last) once, in the order in which they come first."""
    first = np.full(size, -1, np.int64)
    first[indices[::-1]] = np.arange(indices.size)[::-1]  # of several at one place the last one counts
    found = np.flatnonzero(first >= 0)
    ordered: list[int] = found[np.argsort(first[found])].tolist()
    return ordered
