"""How long the loop's own thread is in torch's loaders, without a word from the script: while its batch is not there.

Between a begin and its end torch's iterators of batches, and what makes one at an epoch's begin, go through a function
that looks at the clock before and after (about a microsecond a batch). Of the threads that begin, that is: a loader
that another thread is in, ahead of the loop, costs the loop nothing. What one loader takes from another is told once.

Entering a loader tells besides how many worker processes it starts for that: none where it has none, or keeps them from
one epoch to the next.

torch has no such place of its own; where it calls things otherwise than here, nothing is timed.
"""

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any

_MODULE = "torch.utils.data.dataloader"
_ENTERS = "__iter__"
_TIMED = (("_BaseDataLoaderIter", "__next__"), ("DataLoader", _ENTERS))

Note = Callable[[float], None]
Entered = Callable[[int], None]


class _Thread(threading.local):
    """What is known of the thread that asks."""

    def __init__(self) -> None:
        self.notes: list[tuple[Note, Entered | None]] = []
        self.is_loading = False


_thread = _Thread()
_lock = threading.Lock()
_begun = 0  # of all threads
_wrapped: list[tuple[type, str, Callable[..., Any], Callable[..., Any]]] = []  # with torch's own, and ours


class LoaderWaits:
    """Tells `note` how many ms the thread that made this is in torch's loaders, each time, until `end`; and `entered`
    how many workers one starts that it enters anew.
    """

    def __init__(self, note: Note, entered: Entered | None = None) -> None:
        self._notes: list[tuple[Note, Entered | None]] | None = _thread.notes
        self._note = note, entered
        self._notes.append(self._note)
        _count(1)

    def end(self) -> None:
        """Tell no more; once nobody asks any more, torch's own functions stand there again."""
        if self._notes is not None:
            self._notes.remove(self._note)
            self._notes = None
            _count(-1)


def _count(change: int) -> None:
    global _begun
    with _lock:
        _begun += change
        if not _begun:
            _unwrap()
        elif not _wrapped:
            _wrap()


def _wrap() -> None:
    module = sys.modules.get(_MODULE)  # who has not loaded it has no loader
    for owner_name, name in _TIMED:
        owner = getattr(module, owner_name, None)
        own = vars(owner).get(name) if isinstance(owner, type) else None
        if isinstance(owner, type) and callable(own):
            timed = _timed(own, enters=name == _ENTERS)
            with suppress(AttributeError, TypeError):
                setattr(owner, name, timed)
                _wrapped.append((owner, name, own, timed))


def _unwrap() -> None:
    for owner, name, own, timed in _wrapped:
        if vars(owner).get(name) is timed:  # else another has put its own around ours, which then tells nobody
            setattr(owner, name, own)
    _wrapped.clear()


def _timed(own: Callable[..., Any], *, enters: bool) -> Callable[..., Any]:
    @functools.wraps(own)
    def timed(*arguments: Any, **named: Any) -> Any:
        here = _thread
        if here.is_loading or not here.notes:
            return own(*arguments, **named)
        here.is_loading = True
        started = _workers_to_start(*arguments) if enters else None
        since_s = perf_counter()
        try:
            return own(*arguments, **named)
        finally:
            here.is_loading = False
            ms = (perf_counter() - since_s) * 1e3
            for note, entered in tuple(here.notes):
                note(ms)
                if entered is not None and started is not None:
                    entered(started)

    return timed


def _workers_to_start(loader: Any = None, *_: Any) -> int:
    """Return how many processes entering a loader starts: all its workers, but where it has kept those of before."""
    kept = getattr(loader, "persistent_workers", False) and getattr(loader, "_iterator", None) is not None
    workers = getattr(loader, "num_workers", 0)
    return workers if isinstance(workers, int) and not kept else 0
