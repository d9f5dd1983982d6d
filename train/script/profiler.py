"""`profile_steps`: what stands in the user's loop.

    with profile_steps("my-model", samples=32) as profile:
        for batch in loader:
            loss = train(batch)
            profile.step(loss)

A step is what happens between two calls of `step()`. Steps are timed by events on the device, so nothing waits for it;
ranks tell rank 0 about once a second, through the store that the script's process group has already, and never inside a
Kineto window. What fails in here is said once and never reaches the loop.
"""

import atexit
import functools
import os
import socket
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from scalescope.hardware.detect import describe, versions
from scalescope.records.folder import RunFolder
from scalescope.records.rows import RunStatus, StepPhase
from scalescope.records.steps.annotations import LOADING
from scalescope.records.steps.recording import NEAR_STEPS, WindowFacts, untraced_steps
from scalescope.train.measure.anomaly import Anomaly
from scalescope.train.measure.clock import Clock, make_clock
from scalescope.train.measure.memory import peak_bytes
from scalescope.train.measure.schedule import Window
from scalescope.train.measure.tracing.agreed_end import AgreedEnd
from scalescope.train.script import announce
from scalescope.train.script.config import script_config
from scalescope.train.script.ending import analyze_run, how_it_ended
from scalescope.train.script.exchange import Lap, Message, MessageChannel, Refused, told
from scalescope.train.script.exchange_marks import ExchangeMarks, Waits, keep_groups_for_reducers, mark_exchanges
from scalescope.train.script.loader_waits import LoaderWaits
from scalescope.train.script.losses import loss_number, loss_tensor
from scalescope.train.script.membership import Membership, find_membership
from scalescope.train.script.own_threads import OwnThreads
from scalescope.train.script.own_workers import OwnWorkers
from scalescope.train.script.run_recorder import RunRecorder
from scalescope.train.script.schedule import ScriptSchedule
from scalescope.train.script.windows import ScriptWindows

_BRIEFLY_S = 2.0  # an error of the script's is not held up for longer
_CHECK_EVERY = 100  # messages between two looks at whether rank 0 still listens

_uses: Counter[str] = Counter()  # of each name in this process: ranks meet under name and number
Arguments = ParamSpec("Arguments")
Batch = TypeVar("Batch")


def _never_raises(
    method: "Callable[Concatenate[StepProfiler, Arguments], None]",
) -> "Callable[Concatenate[StepProfiler, Arguments], None]":
    """What goes wrong in the method is said once, and measuring ends; the script goes on."""

    @functools.wraps(method)
    def guarded(self: "StepProfiler", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        if self._given_up:
            return
        try:
            method(self, *args, **kwargs)
        except Refused:
            self._given_up = True  # rank 0 has said why
            self._unmark()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason to end somebody's training
            self._give_up(f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}")

    return guarded


class StepProfiler:
    """Measures the steps of one loop. A context manager, or `start()` and `close()`; without `close()` it ends with the
    process."""

    def __init__(self, what: str, settings: Mapping[str, Any]) -> None:
        self._config, self._text = script_config(what, settings)
        self._step = self._config.first_step  # the step at work
        self._started = False
        self._given_up = False
        self._pid = os.getpid()
        self._mark_s = 0.0
        self._threads = OwnThreads()
        self._workers: OwnWorkers | None = None  # from the first step's end on
        self._membership: Membership | None = None
        self._exchange: MessageChannel | None = None
        self._recorder: RunRecorder | None = None
        self._folder: RunFolder | None = None
        self._clock: Clock | None = None
        self._marks: ExchangeMarks | None = None  # where the loop waits for the others
        self._waits: LoaderWaits | None = None  # where it waits for torch's loaders
        self._is_timing = False  # `loading` is, whatever loader is inside
        # what is on which device, the first step tells
        self._windows = ScriptWindows(ScriptSchedule.of(self._config), self._known_of, _say)
        self._recent: deque[Lap] = deque(maxlen=2 * NEAR_STEPS)
        self._laps: list[Lap] = []
        self._next_lap = self._step + 1  # the first step's is taken by the host
        self._sent = 0
        self._remarks: list[str] = []
        self._asked = 0  # windows that rank 0 has asked for, and this rank has seen

    @property
    def folder(self) -> Path | None:
        """The run folder; None before the first step has ended, and on other ranks than 0."""
        return self._recorder.folder.path if self._recorder is not None else None

    def __enter__(self) -> "StepProfiler":
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close(*how_it_ended(error))

    def start(self) -> "StepProfiler":
        """Begin the first step."""
        if not self._started:
            self._started = True
            self._mark_s = time.perf_counter()
        return self

    @_never_raises
    def step(self, loss: "torch.Tensor | float | None" = None) -> None:
        """End a step. `loss`: its mean over this rank's samples; a tensor is read later, without waiting for it."""
        if not self._started:
            self.start()
            return
        self._windows.end_annotation()
        if self._clock is None:
            self._laps.append(Lap(self._step, (time.perf_counter() - self._mark_s) * 1e3, loss_number(loss)))
            self._connect()
        else:
            self._clock.lap(loss_tensor(loss))
        window = self._schedule.window(self._step)
        if window is not None:
            self._windows.after(window, self._step)
        elif self._exchange is not None and self._exchange.due():
            self._report()
        self._step += 1
        if self._marks is not None:
            self._marks.begin_step(self._step)
        following = self._schedule.window(self._step)
        if self._workers is not None and (window is None) != (following is None):
            (self._workers.go_on if following is None else self._workers.pause)()
        if following is not None:
            self._windows.before(following, self._step)
        assert self._clock is not None
        if window is not None or following is not None:
            self._clock.restart()
        if following is not None:
            self._windows.annotate(following, self._step)

    def loading(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of a loader, each timed: `for batch in profile.loading(loader)`.

        How long the host waits for them is then in each row, is said live where it is long, and is loading in traces.
        torch's own loaders need no such word: what the loop's thread waits for in them is timed anyway, once.
        """
        asked_s = time.perf_counter()
        with self._timing():  # a loader may start its workers here, every epoch
            following = iter(batches)
        while True:
            with self._timing():
                try:
                    batch = next(following)
                except StopIteration:
                    return
            self._note_loaded((time.perf_counter() - asked_s) * 1e3)
            yield batch
            asked_s = time.perf_counter()

    @contextmanager
    def _timing(self) -> Iterator[None]:
        """Annotate loading that is timed as a whole, whatever loaders of torch's are in there."""
        self._is_timing = True
        try:
            with torch.profiler.record_function(LOADING):
                yield
        finally:
            self._is_timing = False

    @_never_raises
    def _note_loaded(self, ms: float) -> None:
        if self._started and self._clock is not None:
            self._clock.loaded(ms)

    def _note_waited(self, ms: float) -> None:
        if not self._is_timing:
            self._note_loaded(ms)

    @_never_raises
    def _note_entered(self, workers: int) -> None:
        if self._started and self._clock is not None:
            self._clock.entered_loader(workers)

    def close(self) -> None:
        """End the run: the last rows, and on rank 0 the analysis and the report."""
        self._close("done", None)

    @_never_raises
    def _close(self, status: RunStatus, message: str | None) -> None:
        if not self._started or os.getpid() != self._pid:
            return
        self._started = False
        atexit.unregister(self._close_at_exit)
        self._windows.end_annotation()
        self._unmark()
        if self._exchange is None or self._membership is None:
            _say("no step has ended, so there is nothing to keep")
            return
        self._windows.close(self._step)
        self._report(wait=status == "done", last=True)
        if self._recorder is not None:
            self._end_run(self._recorder, status, message)
        elif status != "done":
            self._note_failure(status, f"rank {self._membership.rank}: {message}")

    def _unmark(self) -> None:
        """Leave torch, and the script's modules, as they were."""
        if self._marks is not None:
            self._marks.remove()
        if self._waits is not None:
            self._waits.end()

    def _close_at_exit(self) -> None:
        """The script is at its end without having closed: by an error, where Python has noted one."""
        self._close(*how_it_ended(getattr(sys, "last_value", None)))

    def _connect(self) -> None:
        config = self._config
        self._membership = membership = find_membership(config.timeout_s)
        _uses[config.what] += 1
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        key = f"{config.what}/{_uses[config.what]}/{restart}"
        self._exchange = MessageChannel(membership.store, membership.rank, membership.size, key)
        self._exchange.due()
        device = describe(membership.rank, membership.device)
        if membership.rank == 0:
            self._recorder = RunRecorder(config, self._text, membership, device, self._phase, _say)
            self._folder = self._recorder.folder
            self._exchange.announce(str(self._folder.path))
            ranks = f"{membership.size} rank{'s' if membership.size > 1 else ''}"
            _say(f"{ranks} ({membership.source}) → {self._folder.path}")
            if (taken := self._recorder.taken_name) is not None:
                _say(announce.renamed(taken, self._folder.path))
            _say(announce.plan(self._schedule.windows, self._folder.path, analyze=config.analyze,
                               left_open=config.profiler.is_left_open))  # fmt: skip
        else:
            self._exchange.send(Message(membership.rank, device=device, samples=config.samples))
        if self._schedule.windows or (config.profiler.enabled and config.profiler.on_anomaly):
            self._windows.equip(
                config.profiler, membership, self._metadata(membership), lambda: self._run_folder(config.timeout_s),
                AgreedEnd(membership.store, key), says=self._recorder is not None,
            )  # fmt: skip
        self._workers = OwnWorkers()
        self._clock = make_clock(membership.device)
        self._waits = LoaderWaits(self._note_waited, self._note_entered)
        if membership.size > 1:
            self._marks = mark_exchanges(self._clock.arrive, Waits(self._clock.begin_wait, self._clock.end_wait))
        elif membership.backend is not None:
            keep_groups_for_reducers()
        atexit.register(self._close_at_exit)  # after the sinks have registered theirs, so it runs before them

    def _metadata(self, membership: Membership) -> dict[str, Any]:
        own = versions(membership.backend)
        return {"model": self._config.what, "strategy": self._config.strategy, "precision": self._config.precision,
                "world_size": membership.size, "rank": membership.rank, "host": socket.gethostname(),
                "scalescope": own.scalescope, "torch": own.torch}  # fmt: skip

    def _report(self, wait: bool = False, last: bool = False) -> None:
        """Tell rank 0 the laps that the device has passed (`wait`: all of them); on rank 0, take what was sent."""
        assert self._exchange is not None and self._membership is not None and self._clock is not None
        self._read_laps(self._step - self._next_lap if wait else self._clock.ready())
        if self._marks is not None and self._recent:
            self._marks.spread(statistics.median(lap.ms for lap in self._recent))
        remarks = [*self._remarks, *self._windows.take_remarks(last)]
        message = Message(
            self._membership.rank, self._laps, peak_bytes(self._membership.device), remarks=remarks,
            windows=self._windows.take_written(), bursts=self._windows.measured if last else None, ended=last,
            threads=self._threads.busy(self._membership.rank) if last else [],
            workers=self._workers.worked(self._membership.rank) if last and self._workers is not None else None,
            no_workers=last and self._workers is not None and self._workers.had_none(),
            children=self._workers.others(self._membership.rank) if last and self._workers is not None else [],
        )  # fmt: skip
        self._laps, self._remarks = [], []
        if self._recorder is not None:
            self._recorder.take([message, *self._exchange.receive()])
            if not last and (anomaly := self._recorder.take_anomaly()) is not None:
                self._record_anomaly(anomaly)
            return
        self._exchange.send(message)
        if self._config.profiler.on_anomaly and (first := self._exchange.asked_window(self._asked)) is not None:
            self._asked += 1
            self._add_window(first)
        self._sent += 1
        if self._sent % _CHECK_EVERY == 0 and self._exchange.refused():
            raise Refused

    def _record_anomaly(self, anomaly: Anomaly) -> None:
        """Ask for a window that begins as soon as all ranks know of it. By rank 0."""
        assert self._exchange is not None
        first = self._step + 1 + self._exchange.steps_until_known(anomaly.step_ms)
        window = self._add_window(first)
        if window is not None:
            assert self._recorder is not None
            self._recorder.note_opened(window.active, anomaly)
            self._exchange.ask_for_window(self._asked, first)
            self._asked += 1
        _say(announce.longer_steps(anomaly, window))

    def _add_window(self, first: int) -> Window | None:
        """Open a window from a step on, if this rank has not come so far, and no other one is near."""
        window = self._schedule.window_from(first)
        longer = self._schedule.with_window(window) if first > self._step + 1 else None
        if longer is None:
            self._remarks.append(f"no trace of steps {window.active} to {window.end - 1}: another window was near, or "
                                 "this rank further on")  # fmt: skip
            return None
        self._windows.schedule = longer
        return window

    def _read_laps(self, count: int) -> None:
        assert self._clock is not None
        for _ in range(count):
            lap = self._clock.read()
            self._laps.append(
                Lap(
                    self._next_lap,
                    lap.step_ms,
                    lap.loss,
                    own_ms=told(lap.own_ms),
                    run_delay_ms=told(lap.run_delay_ms),
                    loading_ms=told(lap.loading_ms),
                    own_run_delay_ms=told(lap.own_run_delay_ms),
                    on_cpu_ms=told(lap.on_cpu_ms),
                    workers_started=lap.workers_started,
                )
            )
            self._recent.append(self._laps[-1])
            self._next_lap += 1

    def _end_run(self, recorder: RunRecorder, status: RunStatus, message: str | None) -> None:
        assert self._exchange is not None
        until = time.monotonic() + (self._config.timeout_s if status == "done" else 0.0)
        while not recorder.complete() and time.monotonic() < until:
            time.sleep(0.02)
            recorder.take(self._exchange.receive())
        for remark in recorder.end(status, message):
            _say(remark)
        if status == "done" and (short := announce.too_short(self._step, self._schedule.windows)) is not None:
            _say(short)
        if status != "done":
            _say(announce.kept(self._step, self._schedule.windows, recorder.folder.path))
        elif self._config.analyze:
            _say(announce.analysis(recorder.folder))
            analyze_run(recorder.folder.path)
        else:
            _say(f"measured; scalescope analyze {recorder.folder.path} says where the time went")

    def _note_failure(self, status: RunStatus, message: str) -> None:
        """Rank 0 may never come to say it: it waits for this rank, and is then ended."""
        with suppress(Exception):
            folder = self._run_folder(_BRIEFLY_S)
            if folder.read_info().status == "running":
                folder.set_status(status, message)

    @property
    def _schedule(self) -> ScriptSchedule:
        return self._windows.schedule

    def _phase(self, step: int) -> StepPhase:
        return self._schedule.phase(step)

    def _known_of(self, steps: list[int]) -> WindowFacts:
        """Return what a trace's header says of this rank's own steps before the window."""
        assert self._clock is not None
        self._read_laps(self._clock.ready())
        opened = self._schedule.end_before(steps[0])
        before = [
            lap.ms
            for lap in self._recent
            if (opened or 0) <= lap.step < steps[0] and self._schedule.phase(lap.step) == "steady"
        ]
        return WindowFacts(steps=steps, before=untraced_steps(before[-NEAR_STEPS:], len(steps)), first=opened is None)

    def _run_folder(self, timeout_s: float) -> RunFolder:
        """Return the run folder as rank 0 named it. Raises TimeoutError, and Refused where there is none."""
        if self._folder is None:
            assert self._exchange is not None
            path = self._exchange.await_folder(timeout_s)
            if not path:
                raise Refused
            self._folder = RunFolder(Path(path))
        return self._folder

    def _give_up(self, why: str) -> None:
        self._given_up = True
        with suppress(Exception):
            self._windows.abandon()
        with suppress(Exception):
            self._unmark()
        _say(f"measuring has ended, and the script goes on: {why}")
        if self._exchange is not None and self._membership is not None and self._membership.rank == 0:
            with suppress(Exception):
                self._exchange.announce("")
        if self._recorder is not None:
            with suppress(Exception):
                self._recorder.end("failed", why)


def _say(line: str) -> None:
    with suppress(OSError):
        print(f"scalescope: {line}", file=sys.stderr, flush=True)
