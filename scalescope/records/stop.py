"""A request to stop (SIGUSR1, as schedulers send it) that comes before the job can obey it: noted, not lost, not fatal.

Python takes seconds to load what a rank needs, and a signal that nobody has asked for ends a process.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_noted: list[str] = []


def note_requests() -> None:
    """From here on, note SIGUSR1 instead of dying of it, also one that was held back; in the main thread."""
    signal.signal(signal.SIGUSR1, _note)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


def noted() -> str | None:
    """Return the signal that has come to this process; None where none has."""
    return _noted[0] if _noted else None


@contextmanager
def held_back() -> Iterator[None]:
    """While it is open, SIGUSR1 waits for whatever process this thread starts until that one notes requests.

    A process inherits which signals are blocked; without it, one that is still loading Python would die. This thread
    does not get the signal either: another one must, which was started before.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _note(number: int, frame: FrameType | None) -> None:
    _noted.append(signal.Signals(number).name)
