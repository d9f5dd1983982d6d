"""Reads an XSpace (`*.xplane.pb`): one plane a device and one for the host, lines of events, statistics by number.

The file is mapped, not read; a plane's names stand behind its lines, so each plane is gone through twice. Of a device
only the asked one is read, of the host only what launches, what executes modules, and what marks steps.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.scaling.trace.header import DeviceProperties
from scalescope.scaling.trace.xla import profile as model
from scalescope.scaling.trace.xla.hlo import collectives_of
from scalescope.scaling.trace.xla.host_events import Stats, add_host_event, number_of
from scalescope.scaling.trace.xla.operators import operator_type
from scalescope.scaling.trace.xla.profile import DeviceActivity, HostOperator, Profile
from scalescope.scaling.trace.xla.wire import Buffer, CutOff, Field, NoMessage, fields, signed, text

#: More events of one device, or of the host, are nobody's: a file of noughts and ones must not fill the memory.
MOST_EVENTS = 8_000_000
#: The same of a plane's names, of its lines and own statistics, and of one event's statistics: 2 bytes each in a file.
_MOST_NAMES, _MOST_PARTS, _MOST_STATS = 1_000_000, 100_000, 1_000
#: What the profiler itself said of a recording, and how much of it is passed on.
_MOST_MESSAGES, _LONGEST_MESSAGE = 8, 400
_FARTHEST_NS = 4 * 10**18


class _Plane(msgspec.Struct):
    name: str = ""
    lines: list[tuple[int, int]] = []
    events: dict[int, str] = {}  # names, by their number
    stats: dict[int, str] = {}
    metadata: list[tuple[int, int]] = []  # of events, as they lie in the file
    own: list[tuple[int, int]] = []  # the plane's own statistics


def read_xplane(path: Path, device: int | None) -> Profile:
    """Return what a file says of a device (None: of which there are, and nothing else).

    A file that ends early is read up to its last whole plane. Raises UserError where it is no XSpace.
    """
    found = Profile(host=path.name.removesuffix(".xplane.pb"))
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if not size:
                raise UserError(f"{path} is empty; record again, and let jax.profiler.stop_trace() return")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                _read_space(data, size, device, found, path)
    except OSError as error:
        raise UserError(f"cannot read the trace {path}: {error.strerror or error}") from error
    return found


def _read_space(data: Buffer, size: int, device: int | None, found: Profile, path: Path) -> None:
    planes = messages = 0
    try:
        for field in fields(data, 0, size):
            if field.number == 1 and field.start >= 0:
                _read_plane(data, field, device, found)
                planes += 1
            elif field.number == 4 and (name := text(data, field, 256)):
                found.host = name
            elif field.number in (2, 3) and field.start >= 0 and messages < _MOST_MESSAGES:
                messages += 1
                _pass_on(text(data, field, _LONGEST_MESSAGE), found)
    except CutOff as error:
        found.damage.append(f"it is cut off: {error}")
        found.cut_off = True
    except NoMessage as error:
        found.damage.append(f"it is no XSpace from some place on: {error}")
        found.cut_off = True
    if not planes:
        raise UserError(f"{path} is no XSpace, or cut off in its first plane; give what jax.profiler wrote, whole")


def _pass_on(message: str, found: Profile) -> None:
    """Note an error or a warning of the profiler. That it dropped events stands nowhere but in such a sentence."""
    shown = " ".join("".join(one if one.isprintable() else " " for one in message).split())
    if shown:
        found.harm(f"the profiler said: {shown}", cut_off="dropped" in shown)


def _read_plane(data: Buffer, field: Field, device: int | None, found: Profile) -> None:
    name = next((text(data, one, 256) for one in fields(data, field.start, field.end) if one.number == 2), "")
    match = model.DEVICE_PLANE.match(name)
    if match is not None:
        lines = (one for one in fields(data, field.start, field.end) if one.number == 3 and one.start >= 0)
        if any(_streams(data, line.start, line.end) for line in lines):
            found.devices.append(int(match[1]))
    if device is None:
        return
    if match is not None and int(match[1]) == device:
        _read_device(data, _plane(data, field, found), device, found)
    elif name == "/host:CPU":
        _read_host(data, _plane(data, field, found), device == model.THE_HOST, found)
    elif name == "/host:metadata":
        _read_modules(data, _plane(data, field, found), found)
    elif name == "Task Environment":
        plane = _plane(data, field, found)
        begun = _stats(data, plane.own, plane.stats).get("profile_start_time")
        if isinstance(begun, int) and 0 < begun < _FARTHEST_NS:
            found.base_ns = begun


def _streams(data: Buffer, start: int, end: int) -> bool:
    """Tell whether a line is a stream with events on it."""
    stream = events = False
    for field in fields(data, start, end):
        stream = stream or (field.number == 2 and model.STREAM_LINE.match(text(data, field, 64)) is not None)
        events = events or field.number == 4
        if stream and events:
            return True
    return False


def _plane(data: Buffer, at: Field, found: Profile) -> _Plane:
    """Return what stands in a plane around its events; of one that has more of it than anybody's, the begin."""
    plane = _Plane()
    names = 0
    for field in fields(data, at.start, at.end):
        if field.start < 0:
            continue
        names += field.number in (4, 5)
        if len(plane.lines) + len(plane.own) >= _MOST_PARTS or names > _MOST_NAMES:
            what = f"more than {_MOST_PARTS:,} lines or {_MOST_NAMES:,} names in a plane; the rest is left out"
            found.harm(what, cut_off=True)
            break
        if field.number == 2:
            plane.name = text(data, field, 256)
        elif field.number == 3:
            plane.lines.append((field.start, field.end))
        elif field.number == 6:
            plane.own.append((field.start, field.end))
        elif field.number in (4, 5):
            # an entry of a map: its number, and the metadata, whose name is field 2
            number = 0
            for entry in fields(data, field.start, field.end):
                if entry.number == 1:
                    number = signed(entry.value)
                elif entry.number == 2 and entry.start >= 0:
                    named = plane.events if field.number == 4 else plane.stats
                    named[number] = next(
                        (text(data, one) for one in fields(data, entry.start, entry.end) if one.number == 2), ""
                    )
                    if field.number == 4:
                        plane.metadata.append((entry.start, entry.end))
    return plane


def _stats(data: Buffer, spans: list[tuple[int, int]], names: dict[int, str]) -> Stats:
    """Return statistics by name: numbers as they are, strings and references to strings as text."""
    found: Stats = {}
    for start, end in spans:
        name = ""
        for field in fields(data, start, end):
            if field.number == 1:
                name = names.get(signed(field.value), "")
            elif field.number in (3, 4):
                found[name] = signed(field.value)
            elif field.number == 5:
                found[name] = text(data, field)
            elif field.number == 7:
                found[name] = names.get(signed(field.value), "")
    return found


class _XEvent(msgspec.Struct, gc=False):
    metadata: int
    start: int
    duration: int
    stats: list[tuple[int, int]]


def _events(data: Buffer, line: tuple[int, int], found: Profile, wanted: dict[int, bool]) -> Iterator[_XEvent]:
    """Yield a line's events of wanted names; those whose names are not in the file, or whose times are none, count."""
    begin = 0
    for field in fields(data, *line):
        if field.number == 3 and field.start < 0:
            begin = signed(field.value)
    for field in fields(data, *line):
        if field.number != 4 or field.start < 0:
            continue
        metadata = offset = duration = 0
        stats: list[tuple[int, int]] = []
        for one in fields(data, field.start, field.end):
            if one.number == 1:
                metadata = signed(one.value)
                if not wanted.get(metadata, False):
                    break
            elif one.number == 2:
                offset = signed(one.value)
            elif one.number == 3:
                duration = signed(one.value)
            elif one.number == 4 and one.start >= 0:
                if len(stats) >= _MOST_STATS:
                    found.harm(f"more than {_MOST_STATS:,} statistics of an event; the rest is left out")
                    break
                stats.append((one.start, one.end))
        start = begin + offset // 1000
        if not wanted.get(metadata, metadata not in wanted):
            continue
        if metadata not in wanted or duration < 0 or not 0 <= start < _FARTHEST_NS or duration > _FARTHEST_NS:
            found.invalid += 1
            continue
        yield _XEvent(metadata, start, duration // 1000, stats)


def _line_name(data: Buffer, line: tuple[int, int]) -> tuple[int, str]:
    number, name = 0, ""
    for field in fields(data, *line):
        if field.number == 1 and field.start < 0:
            number = field.value
        elif field.number == 2:
            name = text(data, field, 256)
    return number, name


def _read_device(data: Buffer, plane: _Plane, device: int, found: Profile) -> None:
    own = _stats(data, plane.own, plane.stats)
    found.device = DeviceProperties(
        id=device,
        name=str(own.get("gpu_device_name", "")),
        memory_bytes=number_of(own, "memory_size", 0),
        compute_units=number_of(own, "core_count", 0),
        major=number_of(own, "compute_cap_major", 0),
        minor=number_of(own, "compute_cap_minor", 0),
    )
    wanted = dict.fromkeys(plane.events, True)
    for line in plane.lines:
        match = model.STREAM_LINE.match(_line_name(data, line)[1])
        if match is None:
            continue
        for event in _events(data, line, found, wanted):
            if len(found.activities) >= MOST_EVENTS:
                found.harm(f"more than {MOST_EVENTS:,} activities of a device; the rest is left out", cut_off=True)
                return
            stats = _stats(data, event.stats, plane.stats)
            name = plane.events[event.metadata]
            category = model.category_of(name, "memcpy_details" in stats, "Memset_details" in stats)
            found.activities.append(
                DeviceActivity(
                    name=model.kernel_name(name),
                    start=event.start,
                    duration=event.duration,
                    stream=int(match[1]),
                    category=category,
                    correlation=number_of(stats, "correlation_id"),
                    op=str(stats.get("hlo_op", "")),
                    program=number_of(stats, "program_id"),
                    grid=model.grid_of(str(stats.get("kernel_details", ""))),
                )
            )


def _read_host(data: Buffer, plane: _Plane, computes: bool, found: Profile) -> None:
    # Python's frames are most of what a host records, and launch nothing
    wanted = {number: not name.startswith("$") for number, name in plane.events.items()}
    types = {number: operator_type(name) for number, name in plane.events.items()} if computes else {}
    kept = 0
    for thread, line in enumerate(plane.lines, 1):
        for event in _events(data, line, found, wanted):
            if kind := types.get(event.metadata):
                found.operators.append(HostOperator(kind, event.start, event.duration))
            elif not event.stats:
                continue
            name, stats = plane.events[event.metadata], _stats(data, event.stats, plane.stats)
            kept += 1
            if kept > MOST_EVENTS:
                found.harm(f"more than {MOST_EVENTS:,} events of the host; the rest is left out")
                return
            add_host_event(found, name, event.start, event.duration, thread, stats)


def _read_modules(data: Buffer, plane: _Plane, found: Profile) -> None:
    for start, end in plane.metadata:
        program, proto = -1, None
        for field in fields(data, start, end):
            if field.number == 1 and field.start < 0:
                program = max(program, signed(field.value))
            if field.number != 5 or field.start < 0:
                continue
            name, span, value = "", None, -1
            for one in fields(data, field.start, field.end):
                if one.number == 1:
                    name = plane.stats.get(signed(one.value), "")
                elif one.number == 6 and one.start >= 0:
                    span = (one.start, one.end)
                elif one.number in (3, 4):
                    value = signed(one.value)
            if name.lower().replace("_", " ") == "hlo proto" and span is not None:
                proto = span
            elif name == "program_id":
                program = value
        if proto is None:
            continue
        try:
            found.collectives.update(((program, op), one) for op, one in collectives_of(data, *proto))
        except ValueError as error:
            found.harm(f"the HLO of module {program} does not decode: {error}")
