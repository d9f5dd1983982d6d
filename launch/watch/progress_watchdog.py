"""A rank that stops arriving: found in bounded time, and reported with which ranks arrived where.

A thread in every rank gives heartbeats on the job's store. The thread that does the work says at each marker in the
job which one it has come to, and how long the way to the next may take. When that is over, or when a rank of this host
has died, the thread that finds it writes a reason on the store; every rank reads it, keeps its stack and its flight
record, saves what it has, and leaves: a rank that hangs in a library cannot be called back. One rank writes the reason
into run.json, rank 0 where it can.

Any rank may also fail by itself, by an exception. It announces that as a reason before it leaves, so that the others
do not wait for it until their launcher loses its patience.
"""

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import torch.distributed as dist

from scalescope.launch.watch import flight_recorder
from scalescope.launch.watch.abort_reason import AbortReason
from scalescope.launch.watch.arrivals import JOINING, where_they_are
from scalescope.launch.watch.end_watchdog import watch_end
from scalescope.launch.watch.peers import Peers
from scalescope.launch.watch.presence import Heartbeat, kill_stopped, kill_stopped_sibling
from scalescope.launch.watch.process_watchdog import ProcessWatchdog
from scalescope.records.errors import ExitCode
from scalescope.records.folder import RunFolder
from scalescope.records.rows import EndedBy

_BEAT_S = 0.5
_BEATS_A_SECOND = 256  # of all ranks together: the store of a large job is spared
_MISSED = 5  # beats without which a rank does not respond
_SPEAK_S = 10.0  # what the others leave the rank that writes the reason, before they leave too
_STOPPING_S = 2.0  # what one that leaves looks whether another rank stops on its way out: a signal takes its time, too
_LEAVE_S = 60.0  # what leaving may take at most: a W&B that does not answer, a trace on a slow disk
_LOST_LEAST_S = 10.0  # a rank may hold Python's lock for seconds, and give no heartbeat meanwhile
_GONE_S = 5.0  # what the working thread has, when the store has gone, to say why by itself
_STOP_S = 1.0  # what a watching thread has to come back from the store, where the rank is in a hurry
_BLAME_S = 1.5  # how long a rank that fails, or is asked to end, looks whether another one failed before


@dataclass(frozen=True)
class _Marker:
    number: int
    name: str
    ranks: Sequence[int]
    limit_s: float
    deadline: float


class ProgressWatchdog:
    """One rank's watchdog over itself and the others; it begins when the rank has joined its world."""

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        self._peers = Peers(store, rank, size)
        self._rank = rank
        self._size = size
        self._beat_s = max(_BEAT_S, size / _BEATS_A_SECOND)
        self._heartbeat = self._peers.own
        self._marker: _Marker | None = None
        self._dying: set[int] = set()
        self._answered = time.monotonic()  # when the store did so last
        self._lost_s = _LOST_LEAST_S
        self._threads = [
            threading.Thread(target=target, name=f"watch-{target.__name__.strip('_')}", daemon=True)
            for target in (self._listen, self._guard)
        ]
        self._ended = threading.Event()
        self._departure = threading.Lock()  # taken once, by the thread that leaves with this rank
        self._folder: RunFolder | None = None
        self._process_watchdog: ProcessWatchdog | None = None
        self._leave: Callable[[AbortReason, bool], None] = _say
        #: What the job's body saves when it is left in the middle; called on every rank, from the watching thread.
        self.rescue: Callable[[AbortReason], None] = lambda reason: None

    def begin(self, limit_s: float) -> None:
        """Start watching, with a limit for all ranks to join."""
        self._lost_s = max(limit_s, _LOST_LEAST_S)
        self.arrive(JOINING, "joining the job", limit_s)
        self._peers.join()
        for thread in self._threads:
            thread.start()

    def attend(self, folder: RunFolder, lost_s: float, leave: Callable[[AbortReason, bool], None]) -> None:
        """Say where stacks and flight records go, and what to do last; `leave` hears whether it writes the reason.

        A rank without a heartbeat for `lost_s` is lost, wherever the others are: compiling or saving is no excuse.
        """
        self._folder, self._leave = folder, leave
        self.lose_after(lost_s)

    def lose_after(self, seconds: float) -> None:
        """Take a rank for lost that gives no heartbeat for so long, 10 s at least; from here on."""
        self._lost_s = max(seconds, _LOST_LEAST_S)

    def start_process_watchdog(self, folder: RunFolder) -> None:
        """Have a process beside end this rank where even the watchdog's own threads run no more."""
        self._process_watchdog = ProcessWatchdog(self._rank, folder.path)

    def end(self) -> None:
        """Stop watching: this rank has come to the job's end. Does not return where it is made to leave already."""
        self._claim()
        self._heartbeat.left = True
        with suppress(RuntimeError):  # rank 0, which may serve the store, has gone already
            self._peers.beat()
        self._await_threads(_GONE_S)
        if (watchdog := self._process_watchdog) is not None:
            self._process_watchdog = None
            watchdog.dismiss()

    def watch_end(self, folder: RunFolder) -> None:
        """Have a process look after the ranks of this host on their way from the job's end to their own."""
        neighbours = self._peers.neighbours()
        watch_end(folder.path, self._rank, {self._rank: self._heartbeat, **neighbours}, self._lost_s)

    # --- said by the working thread ---------------------------------------------------------------------------------

    def arrive(self, number: int, name: str, limit_s: float, ranks: Sequence[int] | None = None) -> None:
        """Say that this rank has come to a marker of progress, which these ranks (all) pass within a limit."""
        deadline = time.monotonic() + limit_s
        self._marker = _Marker(number, name, range(self._size) if ranks is None else ranks, limit_s, deadline)
        self._heartbeat.marker, self._heartbeat.name, self._heartbeat.waits = number, name, False

    def expect(self, seconds: float) -> None:
        """Say how long the next piece of work should take: it may take three times that, and the limit on top."""
        marker = self._marker
        if marker is not None:
            deadline = time.monotonic() + marker.limit_s + 3 * seconds
            self._marker = _Marker(marker.number, marker.name, marker.ranks, marker.limit_s, deadline)

    def wait(self, name: str = "waiting for the others") -> None:
        """Say that this rank waits for others from here on, and may do so as long as they need."""
        self._marker = None
        self._heartbeat.name, self._heartbeat.waits = name, True

    def blame(self) -> AbortReason | None:
        """Return why the job ends already, where this rank's failure is but a consequence of another's."""
        return self._cause()

    def announce(self, message: str, ended_by: EndedBy = "failure") -> bool:
        """Say that this rank fails and leaves; returns whether it is the one to write the reason down.

        Does not return where the watching thread leaves with this rank already.
        """
        self._claim()
        _leave_after(_LEAVE_S)
        try:
            first = self._peers.post(AbortReason(self._rank, message, ended_by=ended_by)).by == self._rank
        except RuntimeError:  # the store has gone: nobody else can hear of it, or tells
            first = True
        self._await_threads(_STOP_S)
        return first

    def _await_threads(self, seconds: float) -> None:
        """Wait for so long until each watching thread has stopped.

        One that is inside the store when Python ends comes back to find it gone, and is ended by an exception that
        torch's code does not let through: the process then ends by SIGABRT, whatever its exit code was to be.
        """
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=seconds)

    def _claim(self) -> None:
        """Be the thread that leaves with this rank, from its end or of its own failure."""
        if not self._ended.is_set() and not self._departure.acquire(blocking=False):
            threading.Event().wait()  # a watching thread is leaving with it, and ends the process
        self._ended.set()
        self._beat_process_watchdog()

    def part(self) -> None:
        """Wait a moment before leaving, until those that have something to write have done it."""
        try:
            self._peers.say_done()
            reason = self._peers.reason()
            if reason is not None:
                self._peers.await_done({0, self._writer(reason)} - set(reason.silent), _SPEAK_S)
                until = time.monotonic() + _STOPPING_S
                self._end_silent(reason)
                while self._peers.leaving() and time.monotonic() < until:
                    time.sleep(0.05)
                    self._end_silent(reason)
        except RuntimeError:
            return

    # --- the watching threads ---------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Beat, read the reason, judge: all that goes through the store."""
        while not self._ended.wait(self._beat_s):
            try:
                self._peers.beat()
                reason = self._peers.reason() or self._judge()
            except RuntimeError as error:
                self._store_has_gone(error)
                return
            self._answered = time.monotonic()
            if reason is not None:
                self._carry_out(reason)

    def _guard(self) -> None:
        """Look whether the store still answers: who serves it may be what has stopped."""
        unanswered, last = 0, self._answered  # counted, not timed: a job that was suspended as a whole is not late
        while not self._ended.wait(_BEAT_S):
            self._beat_process_watchdog()
            unanswered, last = (unanswered + 1, last) if last == self._answered else (0, self._answered)
            silence_s, marker = unanswered * _BEAT_S, self._marker
            overdue = marker is not None and time.monotonic() > marker.deadline
            if silence_s > self._lost_s or (overdue and silence_s > 2 * _MISSED * self._beat_s):
                message = f"rank {self._rank} waits at {self._heartbeat.name}; {self._of_store('does not answer')}"
                self._carry_out(AbortReason(self._rank, message, ended_by="lost_rank"), alone=True)

    def _judge(self) -> AbortReason | None:
        """Return what this rank finds by itself: a neighbour that died, or a marker that is not passed in time."""
        dead = self._peers.dead()
        confirmed, self._dying = dead & self._dying, dead
        if confirmed:  # seen twice: what ends all ranks at once, as a launcher's signal does, has ended this one too
            return self._peers.post(self._peers.deaths(sorted(confirmed)))
        if lost := self._peers.lost(self._lost_s):
            silent = sorted({*lost, *self._peers.stopped()})  # one that is stopped may be why the lost ones wait
            message = where_they_are(self._peers.heartbeats(range(self._size)), silent)
            message = f"no sign of life for {self._lost_s:g} s; {message}"
            return self._peers.post(AbortReason(self._rank, message, ended_by="lost_rank", silent=tuple(silent)))
        marker = self._marker
        if marker is None or time.monotonic() < marker.deadline:
            return None
        everyone = range(self._size)  # a rank that is outside of what is at work may be the one that has stopped
        before = self._peers.heartbeats(everyone)
        for _ in range(_MISSED):
            time.sleep(self._beat_s)
            self._peers.beat()
            self._answered = time.monotonic()
        if self._ended.is_set() or self._marker is not marker:
            return None  # it has come back meanwhile
        after = self._peers.heartbeats(everyone)
        silent = [rank for rank, beat in after.items() if rank != self._rank and _same_beat(before[rank], beat)]
        expected = {rank: beat for rank, beat in after.items() if rank in marker.ranks or rank in silent}
        overdue = f"{marker.name} did not return within {marker.limit_s:g} s"
        message = f"{overdue}; {where_they_are(expected, silent)}"
        how: EndedBy = "lost_rank" if silent else "hang"
        return self._peers.post(
            AbortReason(self._rank, message, ended_by=how, marker=marker.number, silent=tuple(silent))
        )

    def _carry_out(self, reason: AbortReason, alone: bool = False) -> None:
        """Leave, with everything kept that can be. Does not return, but where another thread is leaving already."""
        if self._departure.acquire(blocking=False):
            self._depart(reason, alone)

    def _depart(self, reason: AbortReason, alone: bool) -> NoReturn:
        _leave_after(_LEAVE_S)  # whatever does not come to an end here
        self._beat_process_watchdog()
        try:
            if self._folder is not None:
                self._keep_stack(self._folder)
                flight_recorder.keep(self._folder, self._rank)
            self.rescue(reason)
            self._leave(reason, alone or self._writer(reason) == self._rank)
            if not alone:
                self.part()
        except Exception as error:  # noqa: BLE001 - whatever could not be kept, the job ends here, and says so
            print(f"scalescope: rank {self._rank} left without all it had: {error}", file=sys.stderr)
        finally:
            _exit()

    def _store_has_gone(self, error: RuntimeError) -> None:
        if not self._ended.wait(_GONE_S):
            reason = f"{self._of_store('has gone')} ({next(iter(str(error).splitlines()), '')[:120]})"
            how: EndedBy | None = "lost_rank"
            if cause := self._cause():
                reason, how = f"{cause.message}; {reason}", cause.ended_by
            message = f"{reason}, while this rank was at {self._heartbeat.name}"
            self._carry_out(AbortReason(self._rank, message, ended_by=how), alone=True)

    def terminate(self, number: signal.Signals) -> None:
        """Leave, since a signal asks for it: as a launcher does where another rank has failed, or as a user does.

        For the thread that hears of the signal. A rank that fails or ends by itself is leaving already.
        """
        if self._ended.is_set():
            return
        message = f"rank {self._rank} was asked to end by {number.name}"
        if number == signal.SIGINT:
            message = "interrupted from the keyboard"  # as all ranks are at once
        reason = self._cause() or AbortReason(self._rank, message, "interrupted")
        if not self._departure.acquire(blocking=False):
            return  # it has come to its end meanwhile, or to another one: nobody is to hear of this
        try:
            reason, alone = self._peers.post(reason), False
        except RuntimeError:  # the store has gone
            alone = True
        self._depart(reason, alone)

    # --- what they share ---------------------------------------------------------------------------------------------

    def _beat_process_watchdog(self) -> None:
        """Say that this rank runs, and how long it may take until it says so again."""
        if self._process_watchdog is not None:
            lost_s = None if self._departure.locked() else self._lost_s
            limit_s = (_LEAVE_S if lost_s is None else lost_s) + _SPEAK_S  # this watchdog, where it runs, is the first
            self._process_watchdog.beat(self._heartbeat.name, limit_s, lost_s, self._peers.neighbours())

    def _cause(self) -> AbortReason | None:
        """Return what ends the job on another rank, by its word or its death; looks for it for a moment."""
        until = time.monotonic() + _BLAME_S
        try:
            while time.monotonic() < until:
                if (reason := self._peers.reason()) is not None:
                    return reason if reason.by != self._rank else None
                if dead := self._peers.dead():
                    return self._peers.deaths(sorted(dead))
                time.sleep(0.05)
        except RuntimeError:  # the store has gone, perhaps with the rank that served it
            if gone := self._peers.gone():
                message = "; ".join(f"rank {rank} ({beat}) has died" for rank, beat in sorted(gone.items()))
                return AbortReason(self._rank, message, ended_by="lost_rank", silent=tuple(gone))
        return None

    def _writer(self, reason: AbortReason) -> int:
        """Return the rank that writes the reason down: rank 0, or the lowest that still can."""
        return min((rank for rank in range(self._size) if rank not in reason.silent), default=reason.by)

    def _end_silent(self, reason: AbortReason) -> None:
        """End what is stopped of this job on this host, whoever is to blame: its launcher would wait half a minute."""
        heartbeats = self._peers.heartbeats(reason.silent)
        named = [beat for beat in heartbeats.values() if beat is not None]
        kill_stopped([*named, *self._peers.neighbours().values()])
        for rank, beat in heartbeats.items():
            if beat is None:
                kill_stopped_sibling(rank)

    def _keep_stack(self, folder: RunFolder) -> None:
        """Keep where every thread of this rank stands."""
        try:
            folder.logs.mkdir(parents=True, exist_ok=True)
            with (folder.logs / f"rank{self._rank}.hang.txt").open("w", encoding="utf-8") as file:
                faulthandler.dump_traceback(file)
        except OSError as error:
            print(f"scalescope: rank {self._rank} could not keep its stack: {error}", file=sys.stderr)

    def _of_store(self, what: str) -> str:
        at = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        return f"the job's store at {at} {what}: rank 0, or the launcher that serves it, is stopped, dead or cut off"


def _same_beat(before: Heartbeat | None, after: Heartbeat | None) -> bool:
    return (before.count if before else None) == (after.count if after else None)


def _say(reason: AbortReason, writes: bool) -> None:
    """Say why the job ends that has no run folder yet."""
    if writes:
        print(f"scalescope: {reason.message}", file=sys.stderr)


def _leave_after(seconds: float) -> None:
    timer = threading.Timer(seconds, os._exit, [ExitCode.RUN_FAILED])  # no flush: the console may be what hangs
    timer.daemon = True
    timer.start()


def _exit(*_: Any) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ExitCode.RUN_FAILED)
