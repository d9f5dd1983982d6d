"""SIGTERM, heard while the main thread is inside a library.

Python's own handlers run in the main thread alone, and that one may wait in a collective which never ends. What Python
writes to its wakeup descriptor comes at once, and a thread can read it.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType


def on_termination(then: Callable[[], None]) -> None:
    """From here on, answer SIGTERM by a call of `then` in a thread of its own; to be called in the main thread.

    Where a body sets a handler of its own (training saves its state first), that one alone counts while it stands.
    """
    heard, told = socket.socketpair()
    told.setblocking(False)  # as Python asks of such a descriptor
    signal.set_wakeup_fd(told.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _heard_elsewhere)
    threading.Thread(target=_listen, args=(heard, then), name="termination", daemon=True).start()
    os.register_at_fork(after_in_child=let_terminate)  # a loading process is not the rank


def let_terminate() -> None:
    """Let SIGTERM end this process again, as it would have by itself."""
    signal.set_wakeup_fd(-1)
    if signal.getsignal(signal.SIGTERM) is _heard_elsewhere:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _heard_elsewhere(number: int, frame: FrameType | None) -> None:
    """Keep SIGTERM from ending the process: `_listen` hears of it."""


def _listen(heard: socket.socket, then: Callable[[], None]) -> None:
    with heard:
        while number := heard.recv(1):
            if number[0] == signal.SIGTERM and signal.getsignal(signal.SIGTERM) is _heard_elsewhere:
                then()
