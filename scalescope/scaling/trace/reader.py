"""Reads a Kineto trace: blocks of text → typed events → columns, in one pass and in bounded memory.

Natively written traces are cut at Kineto's own event separator, others by a scan for whole events; a block that does
not decode as a whole is gone through in runs, down to the single event that does not. What a file holds is read as far
as it goes: a truncated one gives everything before the cut, and says so.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from scalescope.records.errors import UserError
from scalescope.scaling.trace.blocks import Blocks
from scalescope.scaling.trace.columns import Columns
from scalescope.scaling.trace.header import read_header
from scalescope.scaling.trace.onnx.adapter import is_onnx_profile, read_onnx_profile
from scalescope.scaling.trace.splitting import NATIVE, NATIVE_END, scan
from scalescope.scaling.trace.strangers.known import said_of_file
from scalescope.scaling.trace.trace import HostSpans, Trace
from scalescope.scaling.trace.xla.read import is_profile, read_device

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_EVENT_START = re.compile(rb'\{\s*"(?:ph|name|cat|pid|tid|ts|args|dur)"\s*:')
#: A text this long without one whole event in it is not waited for any longer.
_LONGEST_EVENT = 8 << 20
#: After so many of them, there is nothing more to be had from the file.
_MOST_UNREADABLE = 4
#: What stands before and behind the events is no longer than this in any trace.
_LONGEST_HEADER = 64 << 20
_STEP = "ProfilerStep#"
#: A thread works beside another one from this share of the other's operators on.
_WORKS = 0.2
#: So many of a file's rows are looked for once more, and so many of them are where it holds its events twice.
_SAMPLE, _MOSTLY = 16, 0.75
_BETWEEN_EVENTS = b" \t\r\n,"


def read_trace(path: Path, device: int | None = None) -> Trace:
    """Return a trace file's content; `device`: of a profile of XLA, which of its devices.

    Raises UserError where the file is no trace at all or cannot be opened, or holds several devices and none is said.
    """
    if is_profile(path):
        return read_device(path, device)
    if is_onnx_profile(path):
        return read_onnx_profile(path)
    columns = Columns()
    before, after, damage = b"", b"", []
    try:
        with Blocks(path) as blocks:
            before, after, found_end = _read_events(iter(blocks), columns, path)
            if blocks.damage:
                damage.append(blocks.damage)
    except OSError as error:
        raise UserError(f"cannot read the trace {path}: {error.strerror or error}") from error
    if not found_end and not damage:
        damage.append("its event list has no end: the file is cut off")
    cut_off = bool(damage)
    header, whole = read_header(before, after)
    if not whole and found_end:
        damage.append("its header does not decode")
    if header.own.bundle:
        raise UserError(f"{path} holds the traces of all ranks for ui.perfetto.dev; give the ranks' own files")
    trace = columns.trace(path, header, damage, cut_off)
    if _stands_twice(trace.operators if len(trace.operators) else trace.runtime):
        raise UserError(
            f"{path} holds its events more than once, as where a file is joined with its copy; give what the profiler "
            "wrote"
        )
    if _has_steps_at_once(trace):
        raise UserError(
            f"{path} holds several ranks: one step is open on several threads at once; give each rank's own file, as "
            "its profiler wrote it"
        )
    return trace


def _has_steps_at_once(trace: Trace) -> bool:
    """Tell whether most steps are open on two threads at once that both work, as where files of ranks were joined.

    A profiler inside another one annotates the same steps, too, on a thread that does nothing else.
    """
    steps = np.array([name.startswith(_STEP) for name in trace.names], bool)[trace.annotations.name]
    rows = np.flatnonzero(steps)
    rows = rows[np.lexsort((trace.annotations.start[rows], trace.annotations.name[rows]))]
    first, second = rows[:-1], rows[1:]
    same = trace.annotations.name[first] == trace.annotations.name[second]
    same &= trace.annotations.thread[first] != trace.annotations.thread[second]
    same &= trace.annotations.start[second] < trace.annotations.end[first]
    if not same.any():
        return False
    spans = trace.operators if len(trace.operators) else trace.runtime
    busy = [
        int((spans.thread == thread).sum())
        for thread in np.unique(trace.annotations.thread[np.concatenate((first[same], second[same]))]).tolist()
    ]
    if min(busy) == 0 or min(busy) < _WORKS * max(busy):
        return False
    return bool(np.unique(trace.annotations.name[second[same]]).size * 2 > np.unique(trace.annotations.name[rows]).size)


def _stands_twice(spans: HostSpans) -> bool:
    """Tell whether most of what a host did is there again, to the nanosecond; by a sample."""
    rows = np.unique(np.linspace(0, max(len(spans) - 1, 0), _SAMPLE).astype(np.int64)) if len(spans) else ()
    again = 0
    for row in rows:
        same = np.flatnonzero((spans.start == spans.start[row]) & (spans.end == spans.end[row]))
        for column in (spans.name, spans.thread, spans.correlation, spans.external):
            same = same[column[same] == column[row]]
        again += same.size > 1
    return len(rows) == _SAMPLE and again >= _MOSTLY * _SAMPLE


def _read_events(blocks: Iterator[bytes], columns: Columns, path: Path) -> tuple[bytes, bytes, bool]:
    """Feed all events to the columns; return the text before the array's key and after its end, and if it has one."""
    text = b""
    while True:
        block = next(blocks, b"")
        text += block
        if match := _ARRAY.search(text):
            before, text = text[: match.start()], text[match.end() :]
            break
        if text.lstrip()[:1] == b"[" and _EVENT_START.match(text.lstrip()[1:].lstrip()):
            before, text = b"", text.lstrip()[1:]  # the bare list that the oldest profilers wrote
            break
        if not block and not text.strip():
            why = f"{path} is no Kineto trace: it is empty; the profiler has not written it to its end"
            raise UserError(said_of_file(path) or why)
        if not block or len(text) > _LONGEST_HEADER:
            why = "it has no traceEvents; give what torch.profiler's export_chrome_trace wrote"
            raise UserError(said_of_file(path) or f"{path} is no Kineto trace: {why}")
    scan_from = 0  # a long text without one whole event is scanned again when it has doubled, not at every block
    for block in blocks:
        cut = block.rfind(NATIVE)
        if cut < 0:
            text = (text + block).lstrip(_BETWEEN_EVENTS)  # the separator may lie across the two
            if len(text) < scan_from:
                continue
            block, text = text, b""
            cut = block.rfind(NATIVE)
        if cut >= 0:
            # a block is 2 MiB: it is copied once, into the array that is decoded
            rest = _feed_native(text, memoryview(block)[: cut + NATIVE_END], columns)
            if rest is not None:
                return before, _remainder(rest + block[cut + NATIVE_END :], blocks), True
            text, scan_from = block[cut + NATIVE_END + 1 :], 0
        else:
            text, after = _feed_scanned(block, columns)
            if after is not None:
                return before, _remainder(after, blocks), True
            scan_from = 2 * len(text) if len(text) == len(block) else 0
            if columns.unreadable > _MOST_UNREADABLE:
                return before, b"", False
    # the last stretch: its events, the array's end and what follows
    cut = text.rfind(NATIVE)
    if cut >= 0:
        rest = _feed_native(b"", memoryview(text)[: cut + NATIVE_END], columns)
        if rest is not None:
            return before, rest + text[cut + NATIVE_END :], True
        text = text[cut + NATIVE_END + 1 :]
    text, after = _feed_scanned(text, columns)
    if after is None and (native_end := text.rfind(b"\n  }\n  ]")) >= 0:
        # an unbalanced quote in the last event hides the end from the scan
        columns.add_anyhow(text[: native_end + NATIVE_END])
        after = text[native_end + len(b"\n  }\n  ]") :]
    return before, after or b"", after is not None


def _remainder(begin: bytes, blocks: Iterator[bytes]) -> bytes:
    """Return what stands behind the events: all of it, or the part of it that a header may be long."""
    after = bytearray(begin)
    for block in blocks:
        if len(after) > _LONGEST_HEADER:
            break
        after += block.rstrip() if block.isspace() else block
    return bytes(after[:_LONGEST_HEADER])


def _feed_native(begin: bytes, more: memoryview, columns: Columns) -> bytes | None:
    """Feed events separated as Kineto separates them; return what follows the array where it ends in this text."""
    array = b"".join((b"[", begin, more, b"]"))
    try:
        columns.add(array)
        return None
    except msgspec.DecodeError:
        pass
    pieces = array[1:-1].split(b",\n  {")
    pieces = [pieces[0], *[b"\n  {" + piece for piece in pieces[1:]]]
    at, run = 0, max(1, len(pieces) // 2)  # events around a damaged one are read in runs: one by one takes far longer
    while at < len(pieces):
        run = min(run, len(pieces) - at)
        whole = columns.try_add(b",".join(pieces[at : at + run]))
        at, run = (at + run, 2 * run) if whole else (at, run // 2)
        if whole or run:
            continue
        piece, at, run = pieces[at], at + 1, 1
        found = scan(piece)
        if found.array_end is not None and piece[found.array_end - 4 : found.array_end].strip() in (b"", b"}"):
            _add_scanned(piece, found.events, columns)
            return piece[found.array_end + 1 :] + b"".join(b"," + later for later in pieces[at:])
        # a separator inside a name cuts one event in two: it is whole again with the piece behind it
        if columns.mend(piece):
            continue
        if at < len(pieces) and columns.mend(piece + b"," + pieces[at]):
            at += 1
        else:
            columns.invalid_events += 1
    return None


def _add_scanned(text: bytes, events: Sequence[tuple[int, int]], columns: Columns) -> None:
    """Add events that lie between these places, all at once or, around one that is damaged, in runs."""
    at, run = 0, len(events)
    while at < len(events):
        run = min(run, len(events) - at)
        whole = columns.try_add(text[events[at][0] : events[at + run - 1][1]])
        at, run = (at + run, 2 * run) if whole else (at, run // 2)
        if not run:
            columns.add_anyhow(text[slice(*events[at])])
            at, run = at + 1, 1


def _feed_scanned(text: bytes, columns: Columns) -> tuple[bytes, bytes | None]:
    """Feed the whole events that a scan finds; return the text behind them, and behind the array where it ends here."""
    found = scan(text)
    if found.events:
        last = found.events[-1][1]
        _add_scanned(text, found.events, columns)
        if found.array_end is None:
            return text[last:], None
    if found.array_end is not None:
        return b"", text[found.array_end + 1 :]
    if len(text) > _LONGEST_EVENT:
        # an unbalanced quote swallows all that follows: begin anew at the next place that looks like an event
        columns.unreadable += 1
        columns.invalid_events += 1
        again = _EVENT_START.search(text, 1)
        return (text[again.start() :] if again else b""), None
    return text, None
