"""Processes as the kernel shows them to a test that does something to them from outside."""

import signal
import time
from collections.abc import Callable
from pathlib import Path


def await_that(holds: Callable[[], bool], limit_s: float = 120) -> None:
    until = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def descendants(pid: int) -> list[int]:
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler of its own for a signal."""
    return _is_in(pid, "SigCgt:", number)


def pending(pid: int, number: signal.Signals) -> bool:
    """Return whether a signal has been sent to a process that has not taken it yet."""
    return _is_in(pid, "ShdPnd:", number)


def _is_in(pid: int, field: str, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = [line.split()[1] for line in status.splitlines() if line.startswith(field)]
    return bool(int(mask, 16) >> (number - 1) & 1)


def environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
