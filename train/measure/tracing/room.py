"""Room for what a window records on a host, ahead of it, in pages that the process has already.

A job on CPUs has its activations and gradients from malloc, as the profiler has its records. Small ones are cut off
whatever is free: each of a step's large tensors then no longer fits where it was the step before, and is laid into
fresh pages at the heap's end. A model with 12 MB of dense gradients took 5,500 of them a step in a window, and none
outside. Where a virtual machine has to get each from its host, its steps took 140 ms for 55 while recorded: time that
no model of recording's terms holds.

So pages are touched before the window opens, and left free amid the heap: what does not fit elsewhere is laid there
(0 to 60 page faults a step, and recorded steps as long as others). A last block in use keeps the heap from being cut
off behind them.

How many: a few dozen bytes are left over beside each aligned tensor, and a record that is laid there leaves the place a
little too small for that tensor for good. So each step may need pages of its own for all that the heap has free between
two steps, in which a step's tensors are, however few the first recorded one took: of a graph network with 27 tensors of
4 MB that took 600, and each later one 27,800, of 120 ms for 80. What the heap has free is filled first.

This is how glibc's main heap works: with another allocator, and from another thread, nothing is done.
"""

import ctypes
import os
import resource
import threading
from pathlib import Path

import psutil

#: What is asked for at once: smaller than what malloc would map by itself, whatever it has learnt.
_BLOCK = 100 << 10
_MOST, _LEAST = 2 << 30, 64 << 20
#: Of what the host has left, no more than this share is taken, by all of its ranks.
_SHARE = 1 / 8
#: The first step of a recording finds holes that later ones do not: they take so many times its pages.
_LATER = 8
#: What may stand in for glibc's malloc.
_OTHERS = ("jemalloc", "tcmalloc", "mimalloc")
#: Fewer fresh pages a step than this are not worth it.
_FEW = 64


class Room:
    """Free pages for a rank's windows, as many as the steps recorded so far have taken."""

    def __init__(self) -> None:
        self._since = 0
        self._a_step = 0.0  # fresh pages, as far as is known
        self._free_bytes = 0  # of the heap, between two steps that nobody recorded
        self.known = False  # whether any step was counted
        self._kept: int | None = None  # the block at the end

    def count(self) -> None:
        """Begin to count fresh pages."""
        if not self.known:
            self._free_bytes = _free_bytes()
        self._since = _faults()

    def counted(self, steps: int, *, first: bool = False) -> None:
        """Take what was counted over so many steps as what each takes; `first`: of a recording's first step alone."""
        fresh = (_faults() - self._since) / steps * (_LATER if first else 1)
        self.known = True
        # a window that had room says nothing of what it took from it
        self._a_step = max(self._a_step, fresh)

    def make(self, steps: int, ranks: int = 1) -> int:
        """Make room for so many steps of one of a job's ranks, which may all be on this host; return how many bytes
        were taken, 0 where it is not worth it or cannot be.
        """
        self.give_back()
        wanted = max(round(self._a_step * resource.getpagesize()), self._free_bytes) * steps
        if self._a_step < _FEW or threading.current_thread() is not threading.main_thread():
            return 0
        most = min(_MOST, round(_available() * _SHARE / max(1, min(ranks, os.cpu_count() or ranks))))
        blocks = (min(most, max(_LEAST, wanted)) + _free_bytes()) // _BLOCK
        libc = _glibc()
        if libc is None or most < _LEAST:
            return 0
        taken = [block for _ in range(blocks) if (block := libc.malloc(_BLOCK))]
        for block in taken:
            ctypes.memset(block, 0, _BLOCK)
        self._kept = libc.malloc(_BLOCK)
        for block in taken:
            libc.free(block)
        return len(taken) * _BLOCK

    def give_back(self) -> None:
        """Let go of what is left, as the process sees fit."""
        if self._kept is not None and (libc := _glibc()) is not None:
            libc.free(self._kept)
        self._kept = None


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


class _Heap(ctypes.Structure):
    """What glibc's mallinfo2 tells of the main heap."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
                     "keepcost")
    ]  # fmt: skip


def _free_bytes() -> int:
    """Return what glibc's heap has free, bytes; 0 where it does not tell (before glibc 2.33), or is not used."""
    libc = _glibc()
    if libc is None or not hasattr(libc, "mallinfo2"):
        return 0
    libc.mallinfo2.restype = _Heap
    return int(libc.mallinfo2().fordblks)


def _glibc() -> ctypes.CDLL | None:
    """Return the C library where its malloc is the one that torch uses; None where another was put before it."""
    libc = ctypes.CDLL(None)
    loaded = _libraries()
    if not hasattr(libc, "gnu_get_libc_version") or any(name in loaded for name in _OTHERS):
        return None
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
    return libc


def _libraries() -> str:
    try:
        return Path("/proc/self/maps").read_text(encoding="utf-8")
    except OSError:
        return ""


def _available() -> int:
    """Return how much memory may be taken, bytes: what the host has left, or this process's control group."""
    left = [int(psutil.virtual_memory().available)]
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
        if limit != "max":
            left.append(int(limit) - int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        pass  # no control group, or another version's
    return max(0, min(left))
