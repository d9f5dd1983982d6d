"""W&B's service process where it does not answer: stopped, swapped out, or waiting for a disk that hangs.

W&B's library waits for it without a limit: in `wandb.init` whatever init_timeout says, since it is the service that
would keep it, and once more when Python ends. So we wait in a thread, and end the service where it takes too long;
the library then sees its connection closed and lets go.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import TypeVar

import psutil

Result = TypeVar("Result")
_NAME = "wandb-core"
_FORGET_S = 5.0
_GONE_S = 5.0  # a killed process is there for some ms yet, or as long as a disk holds it


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
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has gone by itself
            if any(_NAME in program for program in child.cmdline()[:1]):
                _kill([*child.children(), child])
    # the library would find that out when Python ends, with a traceback
    forget = threading.Thread(target=_forget, args=(wandb,), name="W&B: letting go", daemon=True)
    forget.start()
    forget.join(_FORGET_S)


def _kill(processes: Sequence[psutil.Process]) -> None:
    """Kill processes and wait until they have gone; their exit codes are left to the library, which started them."""
    for process in processes:
        with suppress(psutil.Error):  # it has gone by itself
            process.kill()
    until = time.monotonic() + _GONE_S
    while any(map(_is_there, processes)) and time.monotonic() < until:
        time.sleep(0.01)


def _is_there(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _forget(wandb: ModuleType) -> None:
    with suppress(Exception):  # its service has gone: that is why
        wandb.teardown()
