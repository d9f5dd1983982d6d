"""Reads the trace-event JSON that jax.profiler writes beside the xplane: no categories, planes and lines by name.

It holds what the xplane's events do, and neither the modules' HLO nor when the clock began.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from isal import igzip_lib, isal_zlib

from scalescope.records.errors import UserError
from scalescope.scaling.trace.blocks import Blocks
from scalescope.scaling.trace.splitting import scan
from scalescope.scaling.trace.xla import profile as model
from scalescope.scaling.trace.xla.host_events import add_host_event
from scalescope.scaling.trace.xla.profile import DeviceActivity, Profile
from scalescope.scaling.trace.xla.xplane import MOST_EVENTS

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
#: What its writer begins every file with.
_BEGIN = re.compile(rb'\s*\{\s*"displayTimeUnit"\s*:\s*"\w+"\s*,\s*"metadata"\s*:\s*\{\s*"highres-ticks"')
#: XLA writes the earliest so many unless told otherwise, and leaves out what came later without a word.
_XLA_WRITES = 1_000_000
_HEAD_BYTES = 64 << 10
_LONGEST_EVENT = 8 << 20
#: Longer than 2096 from 1970, and eleven days, in µs.
_FARTHEST_US, _LONGEST_US = 4e15, 1e12

Args = dict[str, str | int | float | bool | None]


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    name: str = ""
    pid: int = -1
    tid: int = -1
    ts: float = -1.0
    dur: float = 0.0
    args: Args = {}


_DECODER = msgspec.json.Decoder(_Event)


def is_trace_json(path: Path) -> bool:
    """Tell by a file's begin whether it is XLA's trace JSON; not of one that cannot be opened."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    if head[:2] == b"\x1f\x8b":
        try:
            head = isal_zlib.decompressobj(31).decompress(head, _HEAD_BYTES)
        except (igzip_lib.IsalError, ValueError):  # type: ignore[misc]
            return False
    return _BEGIN.match(head) is not None


def read_trace_json(path: Path, device: int | None) -> Profile:
    """Return what a file says of a device (None: of which there are, and nothing else), read as far as it goes.

    Raises UserError where it cannot be opened.
    """
    found = Profile(host=re.sub(r"\.trace\.json(\.gz)?$", "", path.name))
    planes: dict[int, str] = {}
    streams: dict[tuple[int, int], int] = {}
    has_streams: set[int] = set()
    host_events = written = 0
    for event in _events(path, found):
        if event.ph == "M":
            name = str(event.args.get("name", ""))
            if event.name == "process_name":
                planes[event.pid] = name
            elif event.name == "thread_name" and (match := model.STREAM_LINE.match(name)):
                streams[event.pid, event.tid] = int(match[1])
                has_streams.add(event.pid)
        elif device is None:
            break  # names come first
        elif event.ph == "X":
            written += 1
            plane = planes.get(event.pid, "")
            match = model.DEVICE_PLANE.match(plane)
            mine = match is not None and int(match[1]) == device
            if not mine and plane != "/host:CPU":
                continue
            if not (0 <= event.ts < _FARTHEST_US and 0 <= event.dur < _LONGEST_US):
                found.invalid += 1
            elif mine:
                if len(found.activities) >= MOST_EVENTS:
                    found.harm(f"more than {MOST_EVENTS:,} activities of a device; the rest is left out", cut_off=True)
                    break
                if (stream := streams.get((event.pid, event.tid))) is not None:
                    found.activities.append(_activity(event, stream))
            elif event.args and not event.name.startswith("$") and host_events < MOST_EVENTS:
                host_events += 1
                start, duration = round(event.ts * 1000), round(event.dur * 1000)
                add_host_event(found, event.name, start, duration, event.tid, _numbers(event.args))
    if written >= _XLA_WRITES:
        found.harm(f"it has {written:,} events, and XLA drops what is beyond {_XLA_WRITES:,} from this JSON: "
                   "give the .xplane.pb beside it", cut_off=True)  # fmt: skip
    for pid in sorted(has_streams):
        if match := model.DEVICE_PLANE.match(planes.get(pid, "")):
            found.devices.append(int(match[1]))
    return found


def _events(path: Path, found: Profile) -> Iterator[_Event]:
    """Yield the events; what is none counts."""
    text, inside = b"", False
    try:
        with Blocks(path) as blocks:
            for block in blocks:
                text += block
                if not inside:
                    if (match := _ARRAY.search(text)) is None:
                        if len(text) > _LONGEST_EVENT:
                            break
                        continue
                    text, inside = text[match.end() :], True
                pieces = scan(text)
                for start, end in pieces.events:
                    try:
                        yield _DECODER.decode(text[start:end])
                    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                        found.invalid += text[start:end].strip() != b"{}"  # an empty one ends the list
                if pieces.array_end is not None:
                    return
                text = text[pieces.events[-1][1] :] if pieces.events else text
                if len(text) > _LONGEST_EVENT:
                    break
            found.damage.append(blocks.damage or "its event list has no end: the file is cut off")
            found.cut_off = True
    except OSError as error:
        raise UserError(f"cannot read the trace {path}: {error.strerror or error}") from error


def _activity(event: _Event, stream: int) -> DeviceActivity:
    args = _numbers(event.args)
    correlation = args.get("correlation_id", -1)
    return DeviceActivity(
        name=model.kernel_name(event.name),
        start=round(event.ts * 1000),
        duration=round(event.dur * 1000),
        stream=stream,
        category=model.category_of(event.name, "memcpy_details" in args, "Memset_details" in args),
        correlation=correlation if isinstance(correlation, int) else -1,
        op=str(args.get("hlo_op", "")),
        grid=model.grid_of(str(args.get("kernel_details", ""))),
    )


def _numbers(args: Args) -> dict[str, int | str]:
    """Return arguments with the numbers that are written as text as numbers."""
    return {
        name: int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value
        for name, value in args.items()
        if isinstance(value, str | int)
    }
