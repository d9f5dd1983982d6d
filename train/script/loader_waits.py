"""How long the loop's own thread is in torch's loaders, without a word from the script: while its batch is not there.

Between a begin and its end torch's iterators of batches, and what makes one at an epoch's begin, go through a function
that looks at the clock before and after (about a microsecond a batch). Of the threads that begin, that is: a loader
that another thread is in, ahead of the loop, costs the loop nothing. What one loader takes from another is told once.

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
_TIMED = (("_BaseDataLoaderIter", "__next__"), ("DataLoader", "__iter__"))

Note = Callable[[float], None]


class _Thread(threading.local):
    """What is known of the thread that asks."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.is_loading = False


_thread = _Thread()
_lock = threading.Lock()
_begun = 0  # of all threads
_wrapped: list[tuple[type, str, Callable[..., Any], Callable[..., Any]]] = []  # with torch's own, and ours


class LoaderWaits:
    """Tells `note` how many ms the thread that made this is in torch's loaders, each time, until `end`."""

    def __init__(self, note: Note) -> None:
        self._notes: list[Note] | None = _thread.notes
        self._note = note
        self._notes.append(note)
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
            timed = _timed(own)
            with suppress(AttributeError, TypeError):
                setattr(owner, name, timed)
                _wrapped.append((owner, name, own, timed))


def _unwrap() -> None:
    for owner, name, own, timed in _wrapped:
        if vars(owner).get(name) is timed:  # else another has put its own around ours, which then tells nobody
            setattr(owner, name, own)
    _wrapped.clear()


def _timed(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def timed(*arguments: Any, **named: Any) -> Any:
        here = _thread
        if here.is_loading or not here.notes:
            return own(*arguments, **named)
        here.is_loading = True
        since_s = perf_counter()
        try:
            return own(*arguments, **named)
        finally:
            here.is_loading = False
            ms = (perf_counter() - since_s) * 1e3
            for note in tuple(here.notes):
                note(ms)

    return timed
