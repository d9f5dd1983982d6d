"""How the ranks of a user's script report to rank 0 what they measured: by messages in the store that they share.

No collective is called, so nothing of ours can come between the script's own, and ranks need not agree on anything:
one may take more steps than another, or end early. A rank takes a number and writes its message under it; rank 0 reads
them in order and deletes them: two short exchanges with the store a message on either side.
"""

import math
import time

import msgspec
import torch.distributed as dist

from scalescope.records.rows import Device
from scalescope.records.steps.busy_threads import BusyThread
from scalescope.records.steps.recording import RecordedWindow, RecordingBursts
from scalescope.records.steps.worker_times import ChildTime, WorkerTime

_SECONDS_APART = 1.0
_MARGIN, _MARGIN_STEPS = 2.5, 2  # times that; ranks look as often as they speak, between two steps
_RANKS_A_SECOND = 16  # more ranks than these speak less often, so that rank 0 need not listen all the time


class Lap(msgspec.Struct, frozen=True, array_like=True):
    """One step of one rank."""

    step: int
    ms: float
    loss: float | None
    own_ms: float | None = None  # until it first waited for the others; None where that was not marked
    run_delay_ms: float | None = None  # of `ms` ready to run without a core; None where nothing tells
    loading_ms: float | None = None  # in the loader; None where that is not timed
    own_run_delay_ms: float | None = None  # as run_delay_ms, of own_ms
    on_cpu_ms: float | None = None  # of `ms` on a core; None where nothing tells
    workers_started: int | None = None  # by a loader that it entered anew; None where it entered none


def told(ms: float) -> float | None:
    """Return a figure of a lap, None where it is not known."""
    return ms if math.isfinite(ms) else None


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rank tells rank 0."""

    rank: int
    laps: list[Lap] = []
    memory_peak_bytes: int = 0
    device: Device | None = None
    samples: int | None = None  # of this rank and step, as its script says; None: it does not
    remarks: list[str] = []
    bursts: RecordingBursts | None = None
    windows: list[RecordedWindow] = []
    threads: list[BusyThread] = []  # of its process, beside the loop's
    workers: WorkerTime | None = None  # its loaders' workers
    no_workers: bool = False  # it is known to have had none
    children: list[ChildTime] = []  # its other child processes
    ended: bool = False  # the rank's last message


class Refused(Exception):
    """Rank 0 has given up, so nobody listens to what this rank measures."""


class MessageChannel:
    """One rank's end of the messages of one `profile_steps`."""

    def __init__(self, store: dist.Store, rank: int, size: int, key: str) -> None:
        self._store = dist.PrefixStore(f"scalescope/{key}", store)
        self._rank = rank
        self._received = 0
        self._apart_s = _SECONDS_APART * max(1.0, size / _RANKS_A_SECOND)
        self._next_s = 0.0

    def announce(self, folder: str) -> None:
        """Say where the run folder is; empty: there is none, and nobody need measure. By rank 0."""
        self._store.set("folder", f"={folder}")

    def refused(self) -> bool:
        """Whether rank 0 has said that nobody need measure."""
        return bool(self._store.check(["folder"])) and self._store.get("folder") == b"="

    def await_folder(self, timeout_s: float) -> str:
        """Return what rank 0 announced. Raises TimeoutError."""
        until = time.monotonic() + timeout_s
        while not self._store.check(["folder"]):
            if time.monotonic() > until:
                raise TimeoutError(f"rank 0 has not said within {timeout_s:g} s where the run folder is; wrap the loop "
                                   "on rank 0, too")  # fmt: skip
            time.sleep(0.02)
        return str(self._store.get("folder"), "utf-8")[1:]

    def ask_for_window(self, number: int, first: int) -> None:
        """Ask all ranks for a window, the `number`th, from a step on. By rank 0."""
        self._store.set(f"window/{number}", str(first))

    def asked_window(self, number: int) -> int | None:
        """Return from which step on rank 0 has asked for the `number`th window; None: it has not."""
        key = f"window/{number}"
        return int(self._store.get(key)) if self._store.check([key]) else None

    def steps_until_known(self, step_ms: float) -> int:
        """Return within how many steps every rank has seen what rank 0 asks for now."""
        return _MARGIN_STEPS + math.ceil(_MARGIN * self._apart_s * 1e3 / step_ms)

    def due(self) -> bool:
        """Whether it is time for the next message."""
        now = time.monotonic()
        if now < self._next_s:
            return False
        self._next_s = now + self._apart_s
        return True

    def send(self, message: Message) -> None:
        number = self._store.add("messages", 1)
        self._store.set(f"message/{number}", msgspec.json.encode(message).decode())

    def receive(self) -> list[Message]:
        """Return the messages since the last call, in order, without waiting. By rank 0."""
        sent = self._store.add("messages", 0)
        keys = [f"message/{number}" for number in range(self._received + 1, sent + 1)]
        whole = bool(keys) and self._store.check(keys)
        messages = []
        for key in keys:
            if not whole and not self._store.check([key]):
                break  # a rank has taken this number and is about to write
            messages.append(msgspec.json.decode(self._store.get(key), type=Message))
            self._store.delete_key(key)
        self._received += len(messages)
        return messages
