"""W&B's service process where it does not answer: stopped, swapped out, or waiting for a disk that hangs.

W&B's library waits for it without a limit: in `wandb.init` whatever init_timeout says, since it is the service that
would keep it, and once more when Python ends. So we wait in a thread, and end the service where it takes too long;
the library then sees its connection closed and lets go.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TypeVar

Result = TypeVar("Result")
_NAME = b"wandb-core"
_FORGET_S = 5.0


def within(limit_s: float, what: str, call: Callable[[], Result]) -> Result:
    """Return what a call of W&B's library returns; whatever it raises is raised here.

    Raises TimeoutError where it takes longer, and ends the service.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name=f"W&B: {what}", daemon=True)
    thread.start()
    thread.join(limit_s)
    if results:
        return results[0]
    if errors:
        raise errors[0]
    end_service()
    raise TimeoutError(f"W&B's service did not answer within {limit_s:g} s while {what}, and was ended")


def end_service() -> None:
    """End the service process that this process has started, with what it has started itself.

    Where a run of the user's own is open in this process, the service is theirs, and stays.
    """
    wandb = sys.modules.get("wandb")
    if wandb is None or wandb.run is not None:
        return
    for service in _children(os.getpid()):
        if _NAME in _command(service):
            for process in (*_children(service), service):
                with suppress(OSError):  # it has gone by itself
                    os.kill(process, signal.SIGKILL)
    # the library would find that out when Python ends, with a traceback
    forget = threading.Thread(target=_forget, args=(wandb,), name="W&B: letting go", daemon=True)
    forget.start()
    forget.join(_FORGET_S)


def _forget(wandb: ModuleType) -> None:
    with suppress(Exception):  # its service has gone: that is why
        wandb.teardown()


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            yield from map(int, task.read_text(encoding="utf-8").split())


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
    return b""
