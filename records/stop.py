"""A request to stop (SIGUSR1, as schedulers send it) that comes before the job can obey it: noted, not lost, not fatal.

Python takes seconds to load what a rank needs, and a signal that nobody has asked for ends a process.
"""

import os
import signal
from types import FrameType

_HANDED_ON = "SCALESCOPE_ASKED_TO_STOP"  # to ranks that a process starts which was asked before them
_noted: list[str] = []


def note_requests() -> None:
    """From here on, note SIGUSR1 instead of dying of it; in the main thread."""
    signal.signal(signal.SIGUSR1, _note)


def noted() -> str | None:
    """Return the signal that has come to this process, or to the one that started it; None where none has."""
    return _noted[0] if _noted else os.environ.get(_HANDED_ON)


def hand_on() -> None:
    """Let processes that are started from here on know of a request that came before them."""
    if (name := noted()) is not None:
        os.environ[_HANDED_ON] = name


def _note(number: int, frame: FrameType | None) -> None:
    _noted.append(signal.Signals(number).name)
