"""Threads of Python's own beside a training loop that use a core: of a script's ranks, in recording.json."""

import msgspec

#: Of a core, from which on a thread is kept: what sleeps and now and then looks at something uses less.
LEAST_CORES = 0.05


class BusyThread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread of a rank's process, which holds the interpreter's lock while it runs Python."""

    rank: int
    name: str  # as Python's threading has it
    cores: float  # that it used in the mean, from the first step to the last
