"""An operation as a C library takes it, and many of them in a row, issued from C (issue.c) or from Python.

A call through ctypes takes the host microseconds, which a small collective on the device does not: from Python the
figure would be the host's. Where the C helper was not built, it is Python's loop all the same, and the rows say so.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scalescope.collectives.transports.issue_library import load
from scalescope.collectives.transports.rotation import Run

_ARGUMENTS = 8
_Check = Callable[[int], None]


@dataclass(frozen=True)
class LibraryCall:
    """A C function that returns 0 on success, and its arguments: each a ctypes value of a word at most."""

    function: Any
    arguments: tuple[Any, ...]  # the last one is the stream, shared by all calls, so that it can change


@dataclass(frozen=True)
class Grouping:
    """The functions between which a library takes several calls as one."""

    start: Any
    end: Any


@dataclass(frozen=True)
class Enqueue:
    """One operation with its buffers bound: a call of the library, or several inside a group."""

    calls: tuple[LibraryCall, ...]
    grouping: Grouping | None
    check: _Check

    def __call__(self) -> None:
        """Enqueue it once. Raises what `check` makes of the first result that is not 0."""
        if self.grouping is None:
            (call,) = self.calls
            if result := call.function(*call.arguments):
                self.check(result)
            return
        self.check(self.grouping.start())
        result = next(filter(None, (call.function(*call.arguments) for call in self.calls)), 0)
        ended = self.grouping.end()  # also after a failure: the thread would stay inside the group
        self.check(result or ended)


class _Call(ctypes.Structure):
    _fields_ = (
        ("function", ctypes.c_void_p),
        ("arguments", ctypes.c_ssize_t * _ARGUMENTS),
        ("stream_at", ctypes.c_size_t),
    )


class _Operations(ctypes.Structure):
    _fields_ = (
        ("calls", ctypes.POINTER(_Call)),
        ("slots", ctypes.c_size_t),
        ("calls_each", ctypes.c_size_t),
        ("group_start", ctypes.c_void_p),
        ("group_end", ctypes.c_void_p),
    )


class Issuer:
    """The loop in C. Python's lock is free while it runs, so that the threads that watch go on."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._issue = library.issue
        self._issue.restype = ctypes.c_int
        self._issue.argtypes = (
            ctypes.POINTER(_Operations), ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p,
        )  # fmt: skip

    @classmethod
    def find(cls) -> "Issuer | None":
        """Return the loop; None where the installation could not compile it."""
        library = load()
        return cls(library) if library is not None else None

    def rotating(self, operations: Sequence[Enqueue], stream: ctypes.c_void_p) -> Run:
        """Return a function that enqueues so many operations on the stream's value of then, going round them.

        All are the same operation on other buffers.
        """
        table = _table(operations)
        check, issue = operations[0].check, self._issue
        pointer = ctypes.pointer(table)
        slots, position = len(operations), 0

        def run(count: int) -> None:
            nonlocal position
            result = issue(pointer, position, count, stream)
            position = (position + count) % slots
            if result:
                check(result)

        return run


def _table(operations: Sequence[Enqueue]) -> _Operations:
    first = operations[0]
    calls = [call for operation in operations for call in operation.calls]
    array = (_Call * len(calls))()  # the structure keeps what its pointers are set from
    for entry, call in zip(array, calls, strict=True):
        entry.function = _address(call.function)
        entry.stream_at = len(call.arguments) - 1
        for index, argument in enumerate(call.arguments):
            entry.arguments[index] = argument.value or 0
    grouping = first.grouping
    return _Operations(
        calls=ctypes.cast(array, ctypes.POINTER(_Call)),
        slots=len(operations),
        calls_each=len(first.calls),
        group_start=_address(grouping.start) if grouping else None,
        group_end=_address(grouping.end) if grouping else None,
    )


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
