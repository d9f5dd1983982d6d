"""Collects every rank's laps on the host and turns them into rows, without making a device or a step wait.

Laps are exchanged in chunks of about a second, over gloo, asynchronously, and some steps late: by then the device has
passed them. Every decision that all ranks must take alike (how long the next chunk is, whether a loss has gone bad)
is taken from gathered values at fixed steps. Nothing is exchanged inside a Kineto window, so that the trace
shows the job alone.
"""

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import torch
import torch.distributed as dist

from scalescope.launch.job import Job
from scalescope.records.errors import RunError
from scalescope.records.rows import StepRow
from scalescope.records.steps.job_steps import JobSteps
from scalescope.train.config import TrainConfig
from scalescope.train.measure.accounting import Accounting
from scalescope.train.measure.anomaly import Anomaly, AnomalyWatch
from scalescope.train.measure.clock import Clock
from scalescope.train.measure.energy import PowerMeter
from scalescope.train.measure.memory import peak_bytes
from scalescope.train.measure.preemption import StopRequest
from scalescope.train.measure.progress_markers import ProgressMarkers
from scalescope.train.measure.schedule import Schedule

_CHUNK_MS = 1000.0
_MOST_STEPS = 20
_PATIENCE_S = 5.0  # for rows that the working thread is writing just now, perhaps to a disk that hangs


class Pause(NamedTuple):
    """What held a rank's loop up between two steps, ms."""

    validating_ms: float = 0.0
    saving_ms: float = 0.0


_Chunk = tuple[dist.Work, list[torch.Tensor], range]  # under way: (laps, 12) of each rank, and their steps


class StepRecorder:
    """The laps of all ranks. Rank 0 hands each finished row to `publish`, in the order of steps."""

    def __init__(
        self,
        job: Job[TrainConfig],
        clock: Clock,
        schedule: Schedule,
        accounting: Accounting,
        attempt: int,
        publish: Callable[[StepRow], None],
        stop: StopRequest,
        markers: ProgressMarkers,
        power: PowerMeter,
    ) -> None:
        self._job = job
        self._clock = clock
        self._schedule = schedule
        self._accounting = accounting
        self._job_steps = JobSteps()
        self._attempt = attempt
        self._publish = publish
        self._stop = stop
        self._markers = markers
        self._power = power
        self.stop_asked = False  # by any rank; the same on all ranks after the same step
        self._validation: dict[int, float] = {}
        self._paused: dict[int, Pause] = {}  # by the step before which the loop was held up
        self._next_step = schedule.first_step  # the first step whose lap was not sent yet
        self._chunk_steps = 1
        self._pending: _Chunk | None = None
        self._writing = threading.Lock()  # the watching thread may rescue while the working one writes
        self._gathered: torch.Tensor | None = None  # (ranks, steps, 12) of the last chunk that arrived
        profiler = job.config.profiler
        self._anomalies = AnomalyWatch(profiler.anomaly_every) if profiler.enabled and profiler.on_anomaly else None
        self._anomaly: Anomaly | None = None

    def note_validation(self, step: int, loss: float) -> None:
        """Put a held-out loss into a step's row; before that step is closed."""
        self._validation[step] = loss

    def note_pause(self, before: int, pause: Pause) -> None:
        """Put what the loop did between two steps into the second one's row."""
        self._paused[before] = pause

    def take_anomaly(self) -> Anomaly | None:
        """Return steps that have become longer, once; the same on all ranks after the same step."""
        found, self._anomaly = self._anomaly, None
        return found

    def follow(self, schedule: Schedule) -> None:
        """Go by another schedule, from the next step on."""
        self._schedule = schedule

    def close_step(self, step: int) -> None:
        """Say that a step's lap was made; now and then, send what the device has passed to the other ranks."""
        if self._schedule.window(step) is not None:
            return
        if self._pending is not None and self._pending[0].is_completed():
            self._take_in(self._pending)
        ready = step + 1 - self._clock.lag - self._next_step
        if ready >= self._chunk_steps:
            self.settle()
            self._send(ready)

    def settle(self) -> None:
        """Wait for the chunk under way, if any. Raises RunError on every rank where a loss is not finite."""
        if self._pending is not None:
            self._take_in(self._pending)
        if self._gathered is not None:
            slowest_ms = float(self._gathered[:, :, 0].max())
            self._markers.timed(slowest_ms / 1e3)
            self._chunk_steps = min(_MOST_STEPS, max(1, int(_CHUNK_MS / slowest_ms)))
            self.stop_asked |= bool(self._gathered[:, :, 3].any())
            self._check_losses(self._gathered[:, :, 1])
            self._watch_lengths(self._gathered[:, :, 0])
            self._gathered = None

    def finish(self, steps: int) -> None:
        """Exchange all that is left, waiting for the device."""
        self._markers.collecting(steps)
        self.settle()
        if steps > self._next_step:
            self._send(steps - self._next_step)
            self.settle()

    def rescue(self) -> None:
        """On the way out of a failed job: write what has arrived, without waiting for anybody."""
        chunk = self._pending
        if chunk is not None and chunk[0].is_completed():
            with suppress(RuntimeError):  # it was cut short
                self._take_in(chunk)

    def _send(self, laps: int) -> None:
        memory = float(peak_bytes(self._job.device))
        stop = float(self._stop.name is not None)
        read = [self._clock.read() for _ in range(laps)]
        watts = self._power.watts([lap.step_ms for lap in read])
        pauses = [self._paused.pop(self._next_step + index, Pause()) for index in range(laps)]
        own = torch.tensor(
            [
                (
                    lap.step_ms,
                    lap.loss,
                    memory,
                    stop,
                    watts,
                    lap.own_ms,
                    lap.run_delay_ms,
                    lap.loading_ms,
                    lap.own_run_delay_ms,
                    pause.saving_ms,
                    pause.validating_ms,
                    lap.on_cpu_ms,
                )
                for lap, pause in zip(read, pauses, strict=True)
            ],
            dtype=torch.float64,
        )
        everyone = [torch.empty_like(own) for _ in range(self._job.world.size)]
        work = dist.all_gather(everyone, own, group=self._job.host_group, async_op=True)
        assert work is not None
        self._pending = (work, everyone, range(self._next_step, self._next_step + laps))
        self._next_step += laps

    def _take_in(self, chunk: _Chunk) -> None:
        """Wait for a chunk and write it, once. Raises RuntimeError where a rank has gone: its laps never came."""
        chunk[0].wait()
        if not self._writing.acquire(timeout=_PATIENCE_S):
            return
        try:
            if self._pending is chunk:  # else the other thread has written it
                self._pending = None
                self._write(chunk)
        finally:
            self._writing.release()

    def _write(self, chunk: _Chunk) -> None:
        _, everyone, steps = chunk
        self._first_gathered = steps.start
        self._gathered = torch.stack(everyone)
        if not self._job.is_rank0:
            return
        now_s = time.time()
        for index, step in enumerate(steps):
            laps = self._gathered[:, index]
            self._publish(
                self._accounting.row(
                    step=step,
                    phase=self._schedule.phase(step),
                    step_ms=laps[:, 0].tolist(),
                    losses=laps[:, 1].tolist(),
                    memory_peak_bytes=int(laps[:, 2].max()) or None,
                    power_w=float(laps[:, 4].sum()),
                    validation_loss=self._validation.pop(step, None),
                    attempt=self._attempt,
                    unix_s=now_s,
                    own_ms=laps[:, 5].tolist(),
                    run_delay_ms=laps[:, 6].tolist(),
                    loading_ms=laps[:, 7].tolist(),
                    own_run_delay_ms=laps[:, 8].tolist(),
                    saving_ms=laps[:, 9].tolist(),
                    validating_ms=laps[:, 10].tolist(),
                    job_step_ms=self._job_steps.take(
                        step, laps[:, 0].tolist(), synchronised=self._accounting.synchronised
                    ),
                    on_cpu_ms=laps[:, 11].tolist(),
                )
            )

    def _watch_lengths(self, lengths_ms: torch.Tensor) -> None:
        """lengths_ms: (ranks, steps)."""
        if self._anomalies is None:
            return
        for index, length_ms in enumerate(lengths_ms.amax(dim=0).tolist()):
            step = self._first_gathered + index
            if self._schedule.phase(step) == "steady":
                self._anomaly = self._anomalies.take(step, length_ms) or self._anomaly

    def _check_losses(self, losses: torch.Tensor) -> None:
        """losses: (ranks, steps)."""
        bad = [
            (rank, index)
            for index in range(losses.shape[1])
            for rank in range(losses.shape[0])
            if not math.isfinite(float(losses[rank, index]))
        ]
        if bad and self._job.config.stop_on_bad_loss:
            rank, index = bad[0]
            raise RunError(
                f"the loss is {float(losses[rank, index])} at step {self._first_gathered + index} on rank "
                f"{rank}; lower optimizer.learning_rate, set optimizer.gradient_clip, or try precision=fp32 "
                "(stop_on_bad_loss=false goes on)"
            )
