"""When Python collected its garbage while a window was recorded: in the header of each trace of our own measuring.

No profiler records it: the thread that collects stands still, and only the interpreter says why.
"""

from typing import Annotated

import msgspec

_Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=4 * 10**18)]  # since 1970: up to 2096

#: Shorter collections are not kept: those of young objects take some µs, and come thousands of times a second.
SHORTEST_NS = 200_000


class GarbageCollection(msgspec.Struct, frozen=True):
    """One collection, in ns since 1970, as a trace's times are."""

    start_ns: _Nanoseconds
    end_ns: _Nanoseconds
    generation: int  # the oldest of those that it looked through: 2 is everything
    thread: int  # the operating system's number, as in traces
