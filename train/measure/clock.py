"""How long each step takes: laps between marks on the device's own time line, read when they are long past."""

import math
import time
import weakref
from collections import deque
from pathlib import Path
from typing import BinaryIO, NamedTuple

import torch
from torch import Tensor


class Reading(NamedTuple):
    """A lap as it is read: the step's milliseconds, its loss, and the rank's own milliseconds until it exchanges.

    `own_ms` is NaN where no exchange was marked, `run_delay_ms` where a device keeps the time, or nothing tells,
    `loading_ms` (the host's, in the loader) where no loader was timed; `workers_started` is None where none was entered
    anew.
    """

    step_ms: float
    loss: float
    own_ms: float
    run_delay_ms: float = math.nan  # of them the loop's thread was ready to run, and another had its core
    loading_ms: float = math.nan
    own_run_delay_ms: float = math.nan  # as run_delay_ms, of own_ms
    on_cpu_ms: float = math.nan  # of step_ms the loop's thread had a core; told where run_delay_ms is
    workers_started: int | None = None  # by loaders that were entered anew


_SCHEDSTAT = Path("/proc/thread-self/schedstat")


class RunDelay:
    """How long the thread that made this has been ready to run while others had its cores, by Linux's scheduler."""

    def __init__(self) -> None:
        try:
            self._file: BinaryIO | None = _SCHEDSTAT.open("rb", buffering=0)
        except OSError:  # not Linux, or a kernel that does not account for it
            self._file = None
        else:
            weakref.finalize(self, self._file.close)

    def ms(self) -> float:
        """Return it since the thread began; NaN where nothing tells."""
        if self._file is None:
            return math.nan
        try:
            self._file.seek(0)
            fields = self._file.read(128).split()  # ns on a core, ns waiting for one, times it got one
        except OSError:  # that thread has ended
            return math.nan
        # a kernel that accounts for nothing tells zeros; who has run got a core at least once
        return int(fields[1]) / 1e6 if len(fields) > 2 and int(fields[2]) else math.nan


class _LoaderTime:
    """The host's time in the loader since the last lap, and what loaders started that it entered anew."""

    def __init__(self) -> None:
        self._ms = math.nan
        self._started: int | None = None

    def add(self, ms: float) -> None:
        self._ms = ms if math.isnan(self._ms) else self._ms + ms

    def enter(self, workers: int) -> None:
        self._started = (self._started or 0) + workers

    def take(self) -> tuple[float, int | None]:
        """Return both, and begin anew."""
        told = self._ms, self._started
        self._ms, self._started = math.nan, None
        return told


class CpuClock:
    """Laps by the host's clock: on a CPU a step has ended when its call returns."""

    lag = 0  # steps between a lap and when it may be read without waiting

    def __init__(self) -> None:
        self._run_delay = RunDelay()
        self._own_ms = self._own_delay_ms = math.nan
        self._waits_since: tuple[float, float] | None = None
        self._waited_ms = self._waited_delay_ms = 0.0
        self._loader = _LoaderTime()
        self._laps: deque[Reading] = deque()
        self.restart()

    def restart(self) -> None:
        """Begin a new lap here: what came before (validation, an export) is no step's time."""
        self._delayed_ms = self._run_delay.ms()
        # of the same account, which its file in /proc tells a scheduler's tick late
        self._on_cpu_s = time.thread_time()
        self._mark_s = time.perf_counter()
        self._forget_own()
        self._loader.take()

    def arrive(self) -> None:
        """Say that the rank now turns to the others: what it does next waits for them. The first time of a step counts.

        Synchronised steps take equally long on all ranks, whoever is late; the time until here does not.
        """
        if math.isnan(self._own_ms):
            self._own_ms = (time.perf_counter() - self._mark_s) * 1e3 - self._waited_ms
            self._own_delay_ms = self._run_delay.ms() - self._delayed_ms - self._waited_delay_ms

    def begin_wait(self) -> None:
        """Say that until `end_wait` the rank waits for the others before it has arrived: that time is not its own."""
        self._waits_since = (time.perf_counter(), self._run_delay.ms())

    def end_wait(self) -> None:
        """Say that the wait is over; nothing where none began."""
        if self._waits_since is not None:
            since_s, delayed_ms = self._waits_since
            self._waited_ms += (time.perf_counter() - since_s) * 1e3
            self._waited_delay_ms += self._run_delay.ms() - delayed_ms
            self._waits_since = None

    def loaded(self, ms: float) -> None:
        """Say that the host was in the loader for so long, in this step."""
        self._loader.add(ms)

    def entered_loader(self, workers: int) -> None:
        """Say that the host entered a loader anew in this step, as an epoch begins, which started so many workers."""
        self._loader.enter(workers)

    def begin_step(self) -> None:
        """Leave out what the host did between two steps, which on a CPU would lengthen the second."""
        self.restart()

    def lap(self, loss: Tensor) -> None:
        """End a step: its time runs from the mark before to here."""
        now_s = time.perf_counter()
        delayed_ms = self._run_delay.ms()
        step_ms = (now_s - self._mark_s) * 1e3
        delay_ms = delayed_ms - self._delayed_ms
        on_cpu_s = time.thread_time()
        # without its waits for a core nobody can tell how long it is off them
        on_cpu_ms = math.nan if math.isnan(delay_ms) else (on_cpu_s - self._on_cpu_s) * 1e3
        own = self._own_ms, self._own_delay_ms
        loading_ms, started = self._loader.take()
        self._laps.append(Reading(step_ms, float(loss), own[0], delay_ms, loading_ms, own[1], on_cpu_ms, started))
        self._mark_s, self._delayed_ms, self._on_cpu_s = now_s, delayed_ms, on_cpu_s
        self._forget_own()

    def wait(self) -> None:
        """Wait until the device has passed the last lap: on a CPU it has."""

    def ready(self) -> int:
        """Return how many unread laps can be read without waiting."""
        return len(self._laps)

    def read(self) -> Reading:
        """Return the oldest unread lap."""
        return self._laps.popleft()

    def _forget_own(self) -> None:
        self._own_ms = self._own_delay_ms = math.nan
        self._waits_since = None
        self._waited_ms = self._waited_delay_ms = 0.0


class _CudaLap(NamedTuple):
    """A lap whose events the device may not have passed yet."""

    start: torch.cuda.Event
    end: torch.cuda.Event
    loss: Tensor
    arrived: torch.cuda.Event | None
    waits: list[tuple[torch.cuda.Event, torch.cuda.Event]]  # before it arrived
    loading_ms: float
    workers_started: int | None


class CudaClock:
    """Laps by events on the compute stream: the host marks, runs ahead, and reads what the device passed long ago.

    A lap runs from event to event, so a device that starves between two steps is seen.
    """

    lag = 3  # a host that is further ahead than this only waits for work that lies three steps back

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._laps: deque[_CudaLap] = deque()
        self._loader = _LoaderTime()
        self._arrived: torch.cuda.Event | None = None
        self._waits_since: torch.cuda.Event | None = None
        self._waits: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._mark = self._record()

    def restart(self) -> None:
        self._mark = self._record()
        self._forget_own()
        self._loader.take()

    def arrive(self) -> None:
        """As a CpuClock's, on the device's time line: one event more a step."""
        if self._arrived is None:
            self._arrived = self._record()

    def begin_wait(self) -> None:
        """As a CpuClock's, on the device's time line."""
        self._waits_since = self._record() if self._arrived is None else None

    def end_wait(self) -> None:
        """As a CpuClock's."""
        if self._waits_since is not None:
            self._waits.append((self._waits_since, self._record()))
            self._waits_since = None

    def loaded(self, ms: float) -> None:
        """As a CpuClock's: by the host's clock, which may load while the device computes."""
        self._loader.add(ms)

    def entered_loader(self, workers: int) -> None:
        """As a CpuClock's."""
        self._loader.enter(workers)

    def begin_step(self) -> None:
        """Nothing: what the host does between two steps is hidden, or else the device starves, which counts."""

    def lap(self, loss: Tensor) -> None:
        host_loss = torch.empty((), dtype=torch.float32, pin_memory=True)
        host_loss.copy_(loss, non_blocking=True)
        end = self._record()
        self._laps.append(_CudaLap(self._mark, end, host_loss, self._arrived, self._waits, *self._loader.take()))
        self._mark = end
        self._forget_own()

    def wait(self) -> None:
        """As a CpuClock's."""
        self._mark.synchronize()

    def ready(self) -> int:
        """Return how many unread laps the device has passed."""
        return next((index for index, lap in enumerate(self._laps) if not lap.end.query()), len(self._laps))

    def read(self) -> Reading:
        lap = self._laps.popleft()
        lap.end.synchronize()
        own_ms = math.nan
        if lap.arrived is not None:
            own_ms = lap.start.elapsed_time(lap.arrived) - sum(since.elapsed_time(to) for since, to in lap.waits)
        step_ms = lap.start.elapsed_time(lap.end)
        return Reading(step_ms, float(lap.loss), own_ms, loading_ms=lap.loading_ms, workers_started=lap.workers_started)

    def _forget_own(self) -> None:
        self._arrived = self._waits_since = None
        self._waits = []

    def _record(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event


Clock = CpuClock | CudaClock


def make_clock(device: torch.device) -> Clock:
    """Return the clock of a device."""
    return CudaClock(device) if device.type == "cuda" else CpuClock()
