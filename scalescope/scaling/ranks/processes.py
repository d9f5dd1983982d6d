"""Work shared out among processes of this machine."""

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import get_context
from typing import Any, TypeVar

from scalescope.records.errors import RunError

Item = TypeVar("Item")
Found = TypeVar("Found")

#: A process is handed its share in so many pieces: the last of them is what the others may wait for.
_CHUNKS = 32
#: glibc's parameters of mallopt, and what they are set to.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_AT_THE_TOP, _LARGEST_KEPT = 64 << 20, 16 << 20


def map_in_processes(function: Callable[[Item], Found], items: Sequence[Item], workers: int, doing: str) -> list[Found]:
    """Return what `function` gives for each item, in order, worked out by as many processes forked from this one.

    They see what this one holds, the function included: only items and what is found travel. For one worker, and where
    none can be forked, this process does it all. `doing` says what ("read traces of runs/x") should a process be
    killed: then it raises RunError.
    """
    workers = min(workers, len(items))
    # a forked process has everything imported already, but must not copy the locks of other threads
    if workers < 2 or sys.platform != "linux" or threading.active_count() > 1:
        return [function(item) for item in items]
    try:
        with ProcessPoolExecutor(workers, get_context("fork"), initializer=_keep, initargs=(function,)) as pool:
            found = pool.map(_work, items, chunksize=max(1, len(items) // (workers * _CHUNKS)))
            while _awaited:
                import_module(_awaited.pop(0))
            return list(found)
    except BrokenProcessPool as error:
        raise RunError(f"a process that {doing} was killed, perhaps for memory; nothing was written") from error


_awaited: list[str] = []
_kept: list[Callable[[Any], Any]] = []


def load_meanwhile(modules: Sequence[str]) -> None:
    """Name modules to import once processes are at work: they need none of them, and this one would only wait."""
    _awaited[:] = modules


def _keep(function: Callable[[Any], Any]) -> None:
    _kept[:] = [function]
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Let glibc hold on to what an item frees: the next takes as much, which the kernel would have to clear anew."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT_AT_THE_TOP)
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)


def _work(item: Any) -> Any:
    return _kept[0](item)
