"""A collective that does not return: found in bounded time, and told with who did not arrive.

A thread in every rank beats on the store and reads the clock. The thread that measures says before each piece of
work which point it is at and how long the work may take. When that is over, the watching thread looks at the other
members: one whose beat has stopped is stopped or dead; one that is at an earlier point has not arrived; if all are
alive and there, the library or the network hangs. The rank whose word counts writes it down, every rank keeps the
Flight Recorder's dump, and the job ends: a rank that hangs in a library cannot be called back.
"""

import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from records.errors import ExitCode
from records.files import write_atomic
from records.folder import RunFolder

_BEAT_S = 0.5
_SILENCE_S = 2.5  # five beats missed
_GRACE_S = 3.0  # for the rank whose word counts to write, before the others leave too


class _Sign(msgspec.Struct):
    """What a rank says of itself on the store."""

    host: str
    pid: int
    beat: int
    point: int  # the last point it has come to, by its number in the plan


@dataclass(frozen=True)
class _Stage:
    number: int
    name: str
    ranks: tuple[int, ...]
    deadline: float


class Watch:
    """Watches one rank's measuring thread. `report` is called once, on the lowest rank that can still speak."""

    def __init__(
        self, store: dist.Store, rank: int, folder: RunFolder, limit_s: float, report: Callable[[int, str], None]
    ) -> None:
        # a connection of its own: the measuring thread may sit in a blocking call on the other
        self._store = dist.PrefixStore("sweep/watch", store.clone())
        self._rank = rank
        self._folder = folder
        self._limit_s = limit_s
        self._report = report
        self._sign = _Sign(host=socket.gethostname(), pid=os.getpid(), beat=0, point=-1)
        self._stage: _Stage | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sweep-watch", daemon=True)

    def __enter__(self) -> "Watch":
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=_SILENCE_S)

    def arrive(self, number: int, name: str, ranks: Sequence[int]) -> None:
        """Say that this rank has come to a point of the plan."""
        self._sign.point = number
        self._stage = _Stage(number, name, tuple(ranks), time.monotonic() + self._limit_s)

    def expect(self, seconds: float) -> None:
        """Say how long the next piece of work should take; it may take the limit longer, and three times itself."""
        if self._stage is not None:
            deadline = time.monotonic() + self._limit_s + 3 * seconds
            self._stage = _Stage(self._stage.number, self._stage.name, self._stage.ranks, deadline)

    def leave(self) -> None:
        """Say that this rank waits for others from here on, and may do so as long as they need."""
        self._stage = None

    def _watch(self) -> None:
        try:
            while not self._ended.wait(_BEAT_S):
                self._beat()
                stage = self._stage
                if stage is not None and time.monotonic() > stage.deadline:
                    self._give_up(stage)
        except RuntimeError:  # the store has gone, and with it the job: the measuring thread will say so
            return

    def _beat(self) -> None:
        self._sign.beat += 1
        self._store.set(str(self._rank), msgspec.json.encode(self._sign))

    def _give_up(self, stage: _Stage) -> None:
        before = self._signs(stage.ranks)
        for _ in range(round(_SILENCE_S / _BEAT_S)):
            time.sleep(_BEAT_S)
            self._beat()
        if self._ended.is_set() or self._stage is not stage:
            return  # it has come back meanwhile
        after = self._signs(stage.ranks)
        silent = [rank for rank in stage.ranks if rank != self._rank and after[rank].beat == before[rank].beat]
        try:
            self._keep_stack()
            self._keep_flight_record()
            if min(rank for rank in stage.ranks if rank not in silent) == self._rank:
                self._report(stage.number, explain(stage.name, self._limit_s, stage.number, silent, after))
                _end_silent({rank: after[rank] for rank in silent}, self._sign.host)
            else:
                time.sleep(_GRACE_S)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # whatever could not be written, the job ends here
            os._exit(ExitCode.RUN_FAILED)

    def _signs(self, ranks: Sequence[int]) -> dict[int, _Sign]:
        signs = {}
        for rank in ranks:
            known = self._store.check([str(rank)])
            signs[rank] = msgspec.json.decode(self._store.get(str(rank)), type=_Sign) if known else _Sign("?", 0, 0, -1)
        return signs

    def _keep_stack(self) -> None:
        """Keep where every thread of this rank stands."""
        try:
            self._folder.logs.mkdir(exist_ok=True)
            with (self._folder.logs / f"rank{self._rank}.hang.txt").open("w") as file:
                faulthandler.dump_traceback(file)
        except OSError as error:
            print(f"scalescope: rank {self._rank} could not keep its stack: {error}", file=sys.stderr)

    def _keep_flight_record(self) -> None:
        """Keep what torch recorded of its collectives; a pickle, as torch's own analyser reads it."""
        dump = getattr(torch._C._distributed_c10d, "_dump_nccl_trace", None) or getattr(
            torch._C._distributed_c10d, "_dump_fr_trace", None
        )
        if dump is not None:
            try:
                write_atomic(self._folder.path / "flight_recorder" / f"rank{self._rank}.pickle", dump())
            except (OSError, RuntimeError) as error:
                print(f"scalescope: rank {self._rank} could not keep the flight record: {error}", file=sys.stderr)


def explain(name: str, limit_s: float, number: int, silent: Sequence[int], signs: dict[int, _Sign]) -> str:
    """Return the one line that says what hangs, and which ranks it hangs for."""
    late = [rank for rank in signs if rank not in silent and signs[rank].point < number]
    reasons = [
        f"rank {rank} (process {signs[rank].pid} on {signs[rank].host}) does not respond: stopped or dead"
        for rank in silent
    ]
    if late:
        reasons.append(f"rank{'s' if len(late) > 1 else ''} {', '.join(map(str, late))} did not arrive")
    if not reasons:
        reasons.append("every rank arrived: the library or the network hangs")
    return f"{name} did not return within {limit_s:g} s; {'; '.join(reasons)}"


def _end_silent(silent: dict[int, _Sign], host: str) -> None:
    """End the ranks of this job that no longer respond here: a launcher would wait half a minute for them.

    Only a process that torchrun started for that very rank of this very job is ended.
    """
    for rank, sign in silent.items():
        if sign.host != host or sign.pid <= 0:
            continue
        try:
            theirs = Path(f"/proc/{sign.pid}/environ").read_bytes().split(b"\0")
            own = {f"RANK={rank}", f"MASTER_PORT={os.environ['MASTER_PORT']}"}
            if {setting.encode() for setting in own} <= set(theirs):
                os.kill(sign.pid, signal.SIGKILL)
        except (OSError, KeyError):
            continue
