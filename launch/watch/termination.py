"""SIGTERM and SIGINT, heard while the main thread is inside a library.

Python's own handlers run in the main thread alone, and that one may wait in a collective which never ends. What Python
writes to its wakeup descriptor comes at once, and a thread can read it.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_receiver, _sender = socket.socketpair()
_before: dict[signal.Signals, Any] = {}  # handlers, of what is not ignored


def on_termination(then: Callable[[signal.Signals], None]) -> None:
    """From here on, answer SIGTERM and SIGINT by a call of `then` in a thread of its own; to be called once, in the
    main thread.

    What is ignored (by nohup, or a shell's background jobs) stays so. Where a body sets a handler of its own (training
    saves its state first), that one alone counts while it stands.
    """
    _sender.setblocking(False)  # as Python asks of such a descriptor
    signal.set_wakeup_fd(_sender.fileno(), warn_on_full_buffer=False)
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            _before[number] = signal.signal(number, _pass_on)
    threading.Thread(target=_listen, args=(then,), name="termination", daemon=True).start()
    os.register_at_fork(after_in_child=let_terminate)  # a loading process is not the rank


def let_terminate() -> None:
    """Let SIGTERM and SIGINT end this process again, as they would have before."""
    signal.set_wakeup_fd(-1)
    for number, handler in _before.items():
        signal.signal(number, handler)


def _pass_on(number: int, frame: FrameType | None) -> None:
    """Python has written to the thread already, unless a library has taken the wakeup descriptor (as asyncio does)."""
    with suppress(OSError):
        _sender.send(bytes([number]))


def _listen(then: Callable[[signal.Signals], None]) -> None:
    while number := _receiver.recv(1):
        if number[0] in _SIGNALS and signal.getsignal(number[0]) is _pass_on:
            then(signal.Signals(number[0]))
