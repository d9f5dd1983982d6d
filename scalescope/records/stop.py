"""Signals that come before a process can answer them well: noted or held back, not lost, and nothing half done.

A request to stop (SIGUSR1, as schedulers send it) would end a rank that still loads Python; Ctrl-C there would have
Python print a traceback of wherever it was; and an exception that a handler raises in a launcher that is just starting
ranks would lose those it has started.
"""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_HELD_BACK = (signal.SIGUSR1, signal.SIGINT)
_KEYS = (signal.SIGINT, signal.SIGQUIT)  # a batch system may send SIGTERM twice, or SIGHUP behind it
#: Within it, a second signal is the first one once more: a wrapper passes on what the terminal gave to all. Two presses
#: by hand lie further apart, as a rule; of a third signal nobody asks when it came.
_SAME_S = 0.3
_noted: list[str] = []
_interrupts: list[int] = []


@dataclass(frozen=True)
class Ending:
    """A signal that asks a launcher to end, and when it came (seconds since 1970)."""

    number: signal.Signals
    came_unix_s: float


_endings: list[Ending] = []


def note_requests() -> None:
    """From here on, note SIGUSR1 instead of dying of it, also one that was held back; in the main thread."""
    signal.signal(signal.SIGUSR1, _note)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


def noted() -> str | None:
    """Return the signal that has come to this process; None where none has."""
    return _noted[0] if _noted else None


def note_interrupts() -> None:
    """From here on, note each Ctrl-C before Python raises its KeyboardInterrupt: what is loading may swallow that.

    numpy's C part, loaded by torch's, is such: it clears the exception, and a later import fails of what was half done.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note_interrupt)


def interrupted() -> bool:
    """Whether a Ctrl-C has come to this process since they are noted."""
    return bool(_interrupts)


def _note_interrupt(number: int, frame: FrameType | None) -> None:
    _interrupts.append(number)
    signal.default_int_handler(number, frame)


@contextmanager
def held_back() -> Iterator[None]:
    """While it is open, SIGUSR1 and SIGINT wait for whatever process this thread starts until that one answers them.

    A process inherits which signals are blocked; without it, one that is still loading Python would die, of SIGINT
    with a traceback of Python's own. This thread does not get the signals either: another one must, which was started
    before.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_interrupt() -> None:
    """From here on, let SIGINT end this process without a word, also one that was held back; what is ignored stays so.

    For a rank that loads: whoever started it says why it ends.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def endings_noted(numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """While it is open, note these signals, for whoever asks `asked_to_end` where it is ready to end.

    In a thread other than the main one no handler can be set.
    """
    _endings.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _note_ending) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def asked_to_end() -> Ending | None:
    """Return the first signal that has asked this process to end while endings were noted; None where none has."""
    return _endings[0] if _endings else None


def told_again() -> bool:
    """Return whether somebody at the keyboard has not waited for the end that was asked for, and interrupts that."""
    later = [ending for ending in _endings[1:] if ending.number in _KEYS]
    return len(later) > 1 or any(ending.came_unix_s - _endings[0].came_unix_s >= _SAME_S for ending in later)


def _note_ending(number: int, frame: FrameType | None) -> None:
    _endings.append(Ending(signal.Signals(number), time.time()))


def _note(number: int, frame: FrameType | None) -> None:
    _noted.append(signal.Signals(number).name)
