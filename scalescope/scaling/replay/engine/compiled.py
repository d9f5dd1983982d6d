"""The replay's event loop in C (events.c): a graph as the arrays that it takes, and what comes back as a Timing.

C follows indices without a look: what a graph names is checked here, and a graph that names what it does not hold is
left to events.py, whose errors say so.
"""

import ctypes
from array import array
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache
from itertools import chain

import numpy as np

from scalescope.hardware.check_result import CheckResult, fine, note
from scalescope.records.package import find_library, load_library
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE, COPY
from scalescope.scaling.replay.engine.timing import Timing
from scalescope.scaling.replay.graph import Floats, Graph
from scalescope.scaling.replay.node_columns import Array

_NAME = f"{__package__}._events"  # as pyproject.toml has it
_SUBJECT = "C replay"
_FIX = "with a C compiler (cc, or CC=…) on the PATH, install scalescope anew"
_VERSION = 1  # of events.c
_DONE, _STUCK = 0, 1  # else there was no memory


class _Graph(ctypes.Structure):
    """`struct graph` of events.c, in its order."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("activities", "ranks", "transfers", "slows")],
        ("loss", ctypes.c_double),
        *[(name, ctypes.c_void_p) for name in ("kind", "rank", "collective", "dispatch", "late", "not_before", "work",
                                               "slow", "until")],
        *[(name, ctypes.c_int64) for name in ("streams", "pairs")],
        *[(name, ctypes.c_void_p) for name in ("stream_at", "stream", "waiting", "awaited", "call_at", "think",
                                               "duration", "until_after", "launches", "awaits", "room", "latency",
                                               "host_begins", "transfer_work", "member_at", "member_rank", "member",
                                               "skew")],
    ]  # fmt: skip


class _Timing(ctypes.Structure):
    """`struct timing` of events.c."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("begin", "end", "launch", "called")]


@cache
def _loop() -> "Callable[..., int] | None":
    """Return the compiled loop; None where the installation has none, or one of another version."""
    library = load_library(find_library(_NAME))
    return library.scalescope_replay if library is not None and _is_of_today(library) else None


def _is_of_today(library: ctypes.CDLL) -> bool:
    try:
        layout: int = library.scalescope_replay_layout()
    except AttributeError:
        return False
    return layout == _VERSION * 1000 + ctypes.sizeof(_Graph)


def is_built() -> bool:
    """Whether the loop was compiled at installation, and loads here."""
    return _loop() is not None


def check_library() -> CheckResult:
    """Say whether replays run in C."""
    file = find_library(_NAME)
    if is_built():
        return fine(_SUBJECT, f"{file}: replays run in C")
    why = "is not built" if file is None else f"{file} does not load on this machine, or is of another version"
    return note(_SUBJECT, f"{why}: replays run in Python, to the same figures in ten times as long", _FIX)


def run(graph: Graph, until: Set[int]) -> tuple[Timing, bool] | None:
    """Return what `events.run` does; None where that has to be asked."""
    loop = _loop()
    if loop is None:
        return None
    arrays = _arrays(graph, until)
    if not _is_sound(arrays):
        return None
    count = len(graph.activities)
    begin, end, launch = (array("d", bytes(8 * count)) for _ in range(3))  # most of it nobody looks at: no lists
    called = np.empty(arrays["think"].size)
    out = _Timing(begin.buffer_info()[0], end.buffer_info()[0], launch.buffer_info()[0], called.ctypes.data)
    outcome = loop(ctypes.byref(_given(graph, arrays)), ctypes.byref(out))
    if outcome not in (_DONE, _STUCK):
        return None
    return Timing(begin, end, launch, _loading(graph, called)), outcome == _DONE


def _given(graph: Graph, arrays: Mapping[str, Array]) -> _Graph:
    return _Graph(
        activities=len(graph.activities),
        ranks=len(graph.ranks),
        transfers=len(graph.transfers),
        slows=graph.contention.inflation > 0,
        loss=1.0 - graph.contention.transfer_rate,
        streams=arrays["stream_at"].size - 1,
        pairs=arrays["waiting"].size,
        **_addresses(arrays),
    )


def _addresses(arrays: Mapping[str, Array]) -> dict[str, int]:
    return {name: array.ctypes.data for name, array in arrays.items()}


def _arrays(graph: Graph, until: Set[int]) -> dict[str, Array]:
    """Return the arrays of `struct graph` by their names there."""
    found = {**_of_activities(graph), **_of_calls(graph), **_of_transfers(graph)}
    streams = [stream for own in graph.order.values() for stream in own]
    found |= {
        "stream_at": _begins([len(stream) for stream in streams]),
        "stream": np.array(list(chain.from_iterable(streams)), np.int32),
        "waiting": np.array([at for at, others in graph.after.items() for _ in others], np.int32),
        "awaited": np.array(list(chain.from_iterable(graph.after.values())), np.int32),
    }
    if until and min(until) >= 0 and max(until) < len(graph.activities):  # one that is not there never begins: all runs
        goals = found["until"] = np.zeros(len(graph.activities), np.uint8)
        goals[list(until)] = 1
    return found


def _of_activities(graph: Graph) -> dict[str, Array]:
    nodes = graph.activity_columns()
    return {
        "kind": nodes["kind"],
        "rank": _places(graph, nodes["rank"]),
        "collective": nodes["collective"],
        "dispatch": nodes["dispatch_ns"],
        "late": nodes["late_ns"],
        "not_before": nodes["not_before"],
        "work": np.array(graph.work_ns, np.float64),
        "slow": 1.0 / (1.0 + graph.inflation()),
    }


def _of_calls(graph: Graph) -> dict[str, Array]:
    by_rank = [graph.call_columns(rank) for rank in graph.ranks]
    fields = {"think": "think_ns", "duration": "duration_ns", "until_after": "until_ns", "launches": "launches",
              "awaits": "awaits", "room": "room"}  # fmt: skip
    return {
        **{name: np.concatenate([own[field] for own in by_rank]) for name, field in fields.items()},
        "call_at": _begins([len(graph.calls[rank]) for rank in graph.ranks]),
        "latency": np.array([graph.latency[rank] for rank in graph.ranks], np.float64),
        "host_begins": np.array([graph.begins[rank] for rank in graph.ranks], np.float64),
    }


def _of_transfers(graph: Graph) -> dict[str, Array]:
    members = [member for one in graph.transfers for member in one.members.items()]
    return {
        "transfer_work": np.array([one.work_ns for one in graph.transfers], np.float64),
        "member_at": _begins([len(one.members) for one in graph.transfers]),
        "member_rank": _places(graph, np.array([rank for rank, _ in members], np.int64)),
        "member": np.array([at for _, at in members], np.int32),
        "skew": np.array([graph.activities[at].skew_ns for _, at in members], np.float64),
    }


def _places(graph: Graph, ranks: Array) -> Array:
    """Return where in the graph's order ranks stand; beyond its end what is not in it."""
    known = np.array(graph.ranks, np.int64)
    if (known == np.arange(known.size)).all():  # as in most jobs
        return np.where((ranks >= 0) & (ranks < known.size), ranks, known.size).astype(np.int32)
    order = np.argsort(known)
    at = np.searchsorted(known, ranks, sorter=order)
    found = np.append(order, known.size)[at]
    return np.where(np.append(known, -1)[found] == ranks, found, known.size).astype(np.int32)


def _begins(lengths: Sequence[int]) -> Array:
    """Return where each of several stretches begins that lie one behind another, and where the last one ends."""
    return np.cumsum([0, *lengths], dtype=np.int64)


def _is_sound(arrays: Mapping[str, Array]) -> bool:
    """Tell whether all that the arrays name is there, and each transfer has no more activities than members."""
    count, ranks = arrays["kind"].size, arrays["latency"].size
    if arrays["work"].size != count:
        return False
    members = np.diff(arrays["member_at"])
    transfers = arrays["collective"][(arrays["kind"] == COMMUNICATION) & (arrays["collective"] >= 0)]
    if transfers.size and transfers.max() >= members.size:
        return False
    if (members == 0).any() or (np.bincount(transfers, minlength=members.size) > members).any():
        return False
    bounds = {
        "kind": (COMPUTE, COPY), "rank": (0, ranks - 1), "collective": (-1, arrays["transfer_work"].size - 1),
        "stream": (0, count - 1), "waiting": (0, count - 1), "awaited": (0, count - 1), "launches": (-1, count - 1),
        "awaits": (-1, count - 1), "member": (0, count - 1), "member_rank": (0, ranks - 1),
    }  # fmt: skip
    return all(
        arrays[name].size == 0 or (least <= arrays[name].min() and arrays[name].max() <= most)
        for name, (least, most) in bounds.items()
    )


def _loading(graph: Graph, called: Floats) -> dict[int, list[tuple[float, float]]]:
    """Return by rank when its host loads data before the calls that it came to."""
    found: dict[int, list[tuple[float, float]]] = {}
    first = 0
    for rank in graph.ranks:
        data_ns = graph.call_columns(rank)["data_ns"]
        begun = called[first : first + data_ns.size]
        loads = (data_ns != 0) & ~np.isnan(begun)
        found[rank] = list(zip((begun - data_ns)[loads].tolist(), begun[loads].tolist(), strict=True))
        first += data_ns.size
    return found
