"""All ranks' traces as one file for ui.perfetto.dev: on one clock, named by rank, with waits and stragglers marked.

Every event of every rank is kept, streamed block by block, so that memory does not grow with the trace. What is new in
the file are one track a rank with its collectives, each cut into waiting and transfer, flows from the rank that the
others waited for, and an instant mark on each straggler.
"""

import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from isal import igzip

from scalescope.records.errors import UserError
from scalescope.records.files import UNDECODABLE
from scalescope.records.folder import RunFolder
from scalescope.records.outputs.overwriting import BUNDLE_MARK, refuse_to_lose
from scalescope.report.drawing.numbers import size
from scalescope.report.redaction.pseudonyms import Pseudonyms
from scalescope.report.redaction.report_data import pseudonyms_of
from scalescope.report.redaction.structs import redacted
from scalescope.report.text.findings import straggler_text
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.ranks.clocks import host_offsets
from scalescope.scaling.ranks.matching import match_collectives
from scalescope.scaling.ranks.read import read_ranks
from scalescope.scaling.ranks.summary import RankSummary
from scalescope.scaling.ranks.waits import MatchedWait, wait_of
from scalescope.scaling.trace.blocks import Blocks
from scalescope.scaling.trace.header import read_header
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.trace.sources import PERFETTO_BUNDLE, find_sources
from scalescope.scaling.trace.splitting import scan
from scalescope.scaling.trace.xla.trace_events import base_ns_of, read_device_events

Event = dict[str, Any]

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_FLOWS = ("s", "t", "f")
_RANK_STRIDE = 10_000  # process ids a rank
_MARKS = 1  # the process of a rank's collectives
_FLOW_STRIDE = 2**40  # flow ids a rank; a correlation id has 32 bits
_TEXT_TID = 2_000_000_000  # where threads that have a name for an id begin
_LONGEST_EVENT = 64 << 20


@dataclass
class Packed:
    """What went into the file: events a rank, and what of a rank's trace could not be read."""

    path: Path
    events: dict[int, int] = field(default_factory=dict)
    unreadable: dict[int, int] = field(default_factory=dict)
    offsets_ns: dict[int, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


def write_perfetto(
    run: RunFolder | Path, out: Path | None = None, answer: RunAnalysis | None = None, *, redact: bool = False
) -> Packed:
    """Pack a run's traces into one gzipped trace-event file (`perfetto.json.gz` in the folder).

    `answer` adds its stragglers as marks. `redact`: without names of hosts and users and without absolute paths, which
    stacks of Python are full of. Raises UserError where there are no traces, OSError for a file that cannot be
    written.
    """
    folder = run.path if isinstance(run, RunFolder) else run
    path = out or (folder if folder.is_dir() else folder.parent) / PERFETTO_BUNDLE
    if out is None:
        refuse_to_lose(path, "bundle", str(path), "name another FILE with --out")
    bundle = open_bundle(folder, path, answer)
    write_events(path, bundle.events, pseudonyms_of([RunFolder(folder)]) if redact else None)
    return bundle.packed


@dataclass
class Bundle:
    """The events of all ranks of a run on one clock, µs from `origin_ns`; what went wrong is in `packed`."""

    events: Iterator[Event]
    packed: Packed
    origin_ns: int
    summaries: Mapping[int, RankSummary]


def open_bundle(folder: Path, path: Path, answer: RunAnalysis | None = None) -> Bundle:
    """Return what goes into a file: read as it is asked for. Raises UserError where there are no traces."""
    ranks = read_ranks(find_sources(folder), every_step=True)
    summaries = ranks.summaries
    collectives = {rank: one.collectives for rank, one in summaries.items()}
    clocks = host_offsets({rank: one.host for rank, one in summaries.items()}, collectives)
    packed = Packed(path, offsets_ns=dict(clocks.offsets), reasons=[*ranks.reasons, *clocks.reasons, *ranks.asides])
    bases = {
        rank: base_ns(one.path) if one.of_file is None else base_ns_of(one.path, one.of_file)
        for rank, one in summaries.items()
    }
    origin = min(bases.values())
    return Bundle(_all_events(summaries, bases, origin, packed, answer), packed, origin, summaries)


def write_events(path: Path, events: Iterator[Event], known: Pseudonyms | None = None) -> None:
    """Write events into a gzipped trace-event file, under pseudonyms where these are given.

    Raises UserError where it cannot be made, OSError later on.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; give another file by --out") from error
    os.close(handle)
    try:
        with igzip.open(temporary, "wb", compresslevel=1) as file:
            file.write(b'{"displayTimeUnit":"ms",' + BUNDLE_MARK + b',"traceEvents":[\n')
            lead = b""
            for event in events:
                file.write(lead + msgspec.json.encode(redacted(event, known) if known is not None else event))
                lead = b",\n"
            file.write(b"\n]}\n")
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _all_events(
    summaries: Mapping[int, RankSummary],
    bases: Mapping[int, int],
    origin: int,
    packed: Packed,
    answer: RunAnalysis | None,
) -> Iterator[Event]:
    for rank, summary in summaries.items():
        shift_us = (bases[rank] - origin + packed.offsets_ns.get(rank, 0)) / 1e3
        events = (
            read_events(summary.path) if summary.of_file is None else read_device_events(summary.path, summary.of_file)
        )
        yield from _rank_events(rank, events, shift_us, packed)
    yield from _marks(summaries, origin, packed.offsets_ns, answer)


def base_ns(path: Path) -> int:
    """Return what a trace's times count from, in absolute ns; 0 where its header does not say."""
    text = b""
    with Blocks(path) as blocks:
        for block in blocks:
            text += block
            if match := _ARRAY.search(text):
                header, _ = read_header(text[: match.start()], b"")
                return header.base_ns or read_trace(path).header.base_ns
            if len(text) > _LONGEST_EVENT:
                break
    return read_trace(path).header.base_ns


def read_events(path: Path) -> Iterator[Event | None]:
    """Yield the events of a trace file as they stand in it; None for one that is no JSON. Reads as far as it goes."""
    text, inside = b"", False
    with Blocks(path) as blocks:
        for block in blocks:
            text += block
            if not inside:
                match = _ARRAY.search(text)
                if match is None and text.lstrip()[:1] != b"[":
                    continue
                text, inside = text[match.end() if match else text.index(b"[") + 1 :], True
            found = scan(text)
            for start, end in found.events:
                yield _decoded(text[start:end])
            if found.array_end is not None:
                return
            if found.events:
                text = text[found.events[-1][1] :]
            elif len(text) > _LONGEST_EVENT:
                return


def _decoded(text: bytes) -> Event | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except UNDECODABLE:
        pass
    try:  # control characters inside a name: invalid JSON, written by some versions of Kineto
        return msgspec.json.decode(re.sub(rb"[\x00-\x1f]+", b" ", text).decode(errors="replace"), type=dict[str, Any])
    except UNDECODABLE:
        return None


class _Processes:
    """New process and thread ids of one rank, so that no two ranks share one."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._pids: dict[object, int] = {}
        self._tids: dict[str, int] = {}

    def pid(self, old: object) -> int:
        return self._pids.setdefault(old, (self._rank + 1) * _RANK_STRIDE + _MARKS + 1 + len(self._pids))

    def tid(self, old: object) -> int:
        if isinstance(old, int):
            return old
        return self._tids.setdefault(str(old), _TEXT_TID + len(self._tids))


def _rank_events(rank: int, events: Iterator[Event | None], shift_us: float, packed: Packed) -> Iterator[Event]:
    processes = _Processes(rank)
    metadata: list[Event] = []
    busy: set[object] = set()
    text_threads: dict[tuple[int, int], str] = {}
    packed.events[rank] = packed.unreadable[rank] = 0
    for event in events:
        if event is None or not _has_time(event) or not _has_place(event):
            packed.unreadable[rank] += 1
            continue
        old = event.get("pid")
        if event.get("ph") == "M":
            metadata.append(event)
            continue
        busy.add(old)
        if "ts" in event:
            event["ts"] = round(float(event["ts"]) + shift_us, 3)
        event["pid"] = processes.pid(old)
        tid = event.get("tid", 0)
        event["tid"] = processes.tid(tid)
        if isinstance(tid, str):
            text_threads[event["pid"], event["tid"]] = tid
        if event.get("ph") in _FLOWS and isinstance(event.get("id"), int):
            event["id"] += (rank + 1) * _FLOW_STRIDE
        packed.events[rank] += 1
        yield event
    # a Kineto trace names every device of the host; only those that did something are this rank's
    yield from _names(rank, processes, metadata, busy)
    for (pid, thread), name in text_threads.items():
        yield _meta("thread_name", pid, thread, name=name)


def _has_place(event: Event) -> bool:
    """Tell whether process and thread are what a viewer can show, and name the process where the event does not."""
    event.setdefault("pid", 0)
    return all(isinstance(event.get(key, 0), int | str) for key in ("pid", "tid"))


def _has_time(event: Event) -> bool:
    """Tell whether an event's time, where it has one, is a number: a flipped byte must not cost the other events."""
    try:
        return math.isfinite(float(event.get("ts", 0)))
    except (TypeError, ValueError, OverflowError):
        return False


def _names(rank: int, processes: _Processes, metadata: Sequence[Event], busy: set[object]) -> Iterator[Event]:
    labels = {
        event.get("pid"): _argument(event, "labels") for event in metadata if event.get("name") == "process_labels"
    }
    for order, old in enumerate(sorted(busy, key=lambda pid: (not isinstance(pid, int), str(pid)))):
        pid = processes.pid(old)
        what = labels.get(old) or (str(old) if isinstance(old, str) and old else "process")
        yield _meta("process_name", pid, 0, name=f"rank {rank} · {what}")
        yield _meta("process_sort_index", pid, 0, sort_index=(rank + 1) * 100 + 10 + order)
    for event in metadata:
        if event.get("pid") in busy and str(event.get("name", "")).startswith("thread_"):
            yield {**event, "ts": 0, "pid": processes.pid(event["pid"]), "tid": processes.tid(event.get("tid", 0))}


def _marks(
    summaries: Mapping[int, RankSummary], origin: int, offsets: Mapping[int, int], answer: RunAnalysis | None
) -> Iterator[Event]:
    """Yield a track a rank of its collectives with their waits, flows from who was awaited, and the stragglers."""
    collectives = {rank: one.collectives for rank, one in summaries.items()}
    for rank in summaries:
        pid = (rank + 1) * _RANK_STRIDE + _MARKS
        yield _meta("process_name", pid, 0, name=f"rank {rank} · collectives")
        yield _meta("process_sort_index", pid, 0, sort_index=(rank + 1) * 100)
    lanes: dict[int, list[int]] = {rank: [] for rank in summaries}
    for number, match in enumerate(match_collectives(collectives, offsets)):
        wait = wait_of(match, collectives, offsets)
        members = {rank: collectives[rank][index] for rank, index in match.members.items()}
        lane = {rank: _lane(lanes[rank], one) for rank, one in members.items()}
        for rank, one in members.items():
            yield from _slices(rank, one, wait, lane[rank], offsets.get(rank, 0) - origin)
        if wait is not None and len(members) > 1:
            yield from _flow(number, members, wait, lane, offsets, origin)
    if answer is None:
        return
    for straggler in answer.stragglers:
        own = collectives.get(straggler.rank) or []
        if straggler.rank in summaries:
            at = min((one.start for one in own), default=origin) + offsets.get(straggler.rank, 0) - origin
            name = f"straggler: {straggler_text(answer, straggler.rank)}"
            yield {"ph": "i", "s": "p", "name": name, "cat": "straggler", "ts": at / 1e3,
                   "pid": (straggler.rank + 1) * _RANK_STRIDE + _MARKS, "tid": 0,
                   "args": {"lost on the others, ms a step": straggler.lost_ms}}  # fmt: skip


def _slices(rank: int, one: RankCollective, wait: MatchedWait | None, lane: int, shift: int) -> Iterator[Event]:
    what = " ".join(text for text in (one.operation or "collective", size(one.bytes) if one.bytes else "") if text)
    place = {"pid": (rank + 1) * _RANK_STRIDE + _MARKS, "tid": lane, "cat": "collective"}
    facts = {"step": one.step, "dtype": one.dtype, "group": one.group, "group_size": one.group_size}
    yield {"ph": "X", "name": what, "ts": (one.start + shift) / 1e3, "dur": (one.end - one.start) / 1e3, **place,
           "args": {key: value for key, value in facts.items() if value is not None}}  # fmt: skip
    if wait is None:
        return
    ready = wait.ready[rank]
    if ready > one.start:
        yield {"ph": "X", "name": f"wait for rank {wait.awaited[rank]}", "ts": (one.start + shift) / 1e3,
               "dur": (ready - one.start) / 1e3, **place}  # fmt: skip
    if one.end > ready:
        yield {"ph": "X", "name": "transfer", "ts": (ready + shift) / 1e3, "dur": (one.end - ready) / 1e3, **place}


def _flow(
    number: int,
    members: Mapping[int, RankCollective],
    wait: MatchedWait,
    lane: Mapping[int, int],
    offsets: Mapping[int, int],
    origin: int,
) -> Iterator[Event]:
    """Yield an arrow from the awaited rank's arrival to the moment it sets each other rank free."""
    for rank, one in members.items():
        awaited = wait.awaited[rank]
        if rank == awaited or awaited not in members or wait.ready[rank] <= one.start:
            continue
        begin = members[awaited].start + offsets.get(awaited, 0) - origin
        flow = {"cat": "awaited", "name": "awaited", "id": number * 4096 + rank}
        yield {**flow, "ph": "s", "ts": begin / 1e3, "pid": (awaited + 1) * _RANK_STRIDE + _MARKS,
               "tid": lane[awaited]}  # fmt: skip
        yield {**flow, "ph": "f", "bp": "e", "ts": (wait.ready[rank] + offsets.get(rank, 0) - origin) / 1e3,
               "pid": (rank + 1) * _RANK_STRIDE + _MARKS, "tid": lane[rank]}  # fmt: skip


def _lane(ends: list[int], one: RankCollective) -> int:
    """Return the first track on which nothing else runs by then: collectives of several groups may overlap."""
    for number, end in enumerate(ends):
        if end <= one.start:
            ends[number] = one.end
            return number
    ends.append(one.end)
    return len(ends) - 1


def _meta(name: str, pid: int, tid: int, /, **arguments: object) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": arguments}


def _argument(event: Event, key: str) -> str | None:
    arguments = event.get("args")
    return str(arguments[key]) if isinstance(arguments, dict) and key in arguments else None
