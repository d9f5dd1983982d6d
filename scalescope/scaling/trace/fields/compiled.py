"""The fields of events, read from their text in C (fields.c): several times as fast as decoding each as a struct.

What C does not take as it stands it leaves: then Python decodes the events, and says what they mean (fields.py). A test
holds the two to the same columns.
"""

import ctypes
import re
from collections.abc import Callable
from functools import cache

import msgspec
import numpy as np

from scalescope.hardware.check_result import CheckResult, fine, note
from scalescope.records.package import find_library, load_library
from scalescope.scaling.trace.events import AnyEvent, decode_events
from scalescope.scaling.trace.fields.fields import Fields, Shapes
from scalescope.scaling.trace.intervals import Ints

_NAME = f"{__package__}._fields"  # as pyproject.toml has it
_SUBJECT = "C trace reader"
_FIX = "with a C compiler (cc, or CC=…) on the PATH, install scalescope anew"
_VERSION = 2  # of fields.c
#: The columns of fields.c, in its order.
_COLUMNS = ("begin", "end", "phase", "category", "name", "thread", "thread_word", "start", "stop", "external",
            "correlation", "stream", "device", "blocks", "talks", "dims", "dims_end", "types", "types_end")  # fmt: skip
#: Fewer characters than this no profiler writes for an event, on average; what does is left to Python.
_SHORTEST_EVENT = 48
_MOST_STRINGS = 1 << 15
#: What autograd counts, among an operator's arguments. Within a string its quotes are escaped.
_AUTOGRADS = re.compile(rb'"Sequence number"\s*:\s*(\d+)(?=\s*[,}])')


class _Fields(ctypes.Structure):
    """`struct fields` of fields.c, in its order."""

    _fields_ = [("rows_room", ctypes.c_int64), ("strings_room", ctypes.c_int64), ("columns", ctypes.c_void_p),
                ("strings", ctypes.c_void_p), ("rows", ctypes.c_int64), ("strings_found", ctypes.c_int64),
                ("events", ctypes.c_int64), ("farthest", ctypes.c_int64)]  # fmt: skip


@cache
def _read() -> "Callable[..., int] | None":
    """Return the compiled reader; None where the installation has none, or one of another version."""
    library = load_library(find_library(_NAME))
    if library is None or not _is_of_today(library):
        return None
    library.scalescope_fields.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.POINTER(_Fields)]
    return library.scalescope_fields


def _is_of_today(library: ctypes.CDLL) -> bool:
    try:
        layout: int = library.scalescope_fields_layout()
    except AttributeError:
        return False
    return layout == _VERSION * 1000 + ctypes.sizeof(_Fields) + len(_COLUMNS)


def is_built() -> bool:
    """Whether the reader was compiled at installation, and loads here."""
    return _read() is not None


def check_library() -> CheckResult:
    """Say whether traces are read in C."""
    file = find_library(_NAME)
    if is_built():
        return fine(_SUBJECT, f"{file}: traces are read in C")
    why = "is not built" if file is None else f"{file} does not load on this machine, or is of another version"
    return note(_SUBJECT, f"{why}: traces are read in Python, to the same figures in three times as long", _FIX)


def read_fields(array: bytes) -> Fields | None:
    """Return the fields of a JSON array of events; None where Python has to be asked."""
    read = _read()
    if read is None:
        return None
    room = len(array) // _SHORTEST_EVENT + 8
    columns = np.empty((len(_COLUMNS), room), np.int64)
    strings = np.empty((2, min(3 * room, _MOST_STRINGS)), np.int64)
    out = _Fields(room, strings.shape[1], columns.ctypes.data, strings.ctypes.data)
    if not read(array, len(array), ctypes.byref(out)):
        return None
    given = dict(zip(_COLUMNS, columns[:, : out.rows], strict=True))
    spans = strings[:, : out.strings_found].T.tolist()
    try:
        words: list[str] = msgspec.json.decode(b"[" + b",".join([array[begin:end] for begin, end in spans]) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return Fields(
        count=out.events,
        strings=[*words, ""],
        phase=given["phase"],
        category=given["category"],
        name=given["name"],
        thread=given["thread"],
        thread_word=given["thread_word"],
        start=given["start"],
        end=given["stop"],
        usable=None,
        external=given["external"],
        correlation=given["correlation"],
        stream=given["stream"],
        device=given["device"],
        blocks=given["blocks"],
        talks=given["talks"] > 0,
        events=_decoder(array, given["begin"], given["end"]),
        shapes=_shapes(array, *(given[name] for name in ("dims", "dims_end", "types", "types_end"))),
        autograds=_autograds(array, given["begin"], given["end"]),
        farthest=out.farthest,
    )


def _shapes(array: bytes, *edges: Ints) -> Callable[[Ints], list[Shapes]]:
    def told(rows: Ints) -> list[Shapes]:
        # where one is not given its edges are -1, and nothing lies between them
        return [(array[a:b], array[c:d]) for a, b, c, d in zip(*(edge[rows].tolist() for edge in edges), strict=True)]

    return told


def _autograds(array: bytes, begin: Ints, end: Ints) -> Callable[[Ints], list[bytes]]:
    def told(rows: Ints) -> list[bytes]:
        found = (
            _AUTOGRADS.search(array, *edges) for edges in zip(begin[rows].tolist(), end[rows].tolist(), strict=True)
        )
        return [b"" if one is None else one[1] for one in found]

    return told


def _decoder(array: bytes, begin: Ints, end: Ints) -> Callable[[Ints], list[AnyEvent]]:
    def decode(rows: Ints) -> list[AnyEvent]:
        texts = [array[start:stop] for start, stop in zip(begin[rows].tolist(), end[rows].tolist(), strict=True)]
        return decode_events(b"[" + b",".join(texts) + b"]", exact=False)  # for their arguments: times are in columns

    return decode
