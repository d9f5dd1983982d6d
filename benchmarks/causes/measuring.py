"""How long steps take while nobody records: freely running stretches, and what limits them."""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from causes.cases import BATCHES, GPU_BOUND, LARGE, LAUNCH_BOUND
from causes.injections import Tools
from causes.job import Hooks, Job

LEAD, STEPS = 3, 10  # of a stretch: until the host is as far ahead as it gets, and those that count
#: The device's time for a batch, as a multiple of the host's time to launch the step. Recording doubles the latter.
DEVICE_TO_HOST = {LAUNCH_BOUND: 0.5, GPU_BOUND: 1.6, LARGE: 3.0}
CPU_SAMPLES = {LAUNCH_BOUND: 2, GPU_BOUND: 4, LARGE: 8}


class Team:
    """Talk among the ranks that leaves the device alone."""

    def __init__(self, patience: timedelta) -> None:
        self.group = dist.new_group(backend="gloo", timeout=patience)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()

    def all(self, mine: Any) -> list[Any]:
        """Return what every rank has."""
        everyone = [None] * self.world_size
        dist.all_gather_object(everyone, mine, group=self.group)
        return everyone

    def first(self, mine: Any) -> Any:
        """Return what rank 0 has."""
        return self.all(mine)[0]

    def barrier(self) -> None:
        dist.barrier(group=self.group)

    @contextmanager
    def running(self, hooks: Hooks) -> Iterator[None]:
        """Have all ranks' injections at work until the end, whatever happens. Raises on all ranks where one fails."""
        try:
            error = None
            try:
                hooks.start()
            except Exception as raised:  # noqa: BLE001  the other ranks would wait for this one
                error = f"rank {self.rank}: {type(raised).__name__}: {raised}"
            started = self.all((error, hooks.amount))
            if errors := [one for one, _ in started if one]:
                raise RuntimeError("; ".join(errors))
            if hooks.amount is not None:  # of the first that does it
                hooks.settle(next(amount for _, amount in started if amount is not None))
            yield
        finally:
            hooks.stop()


class Marks:
    """Moments between steps: of the device where there is one, else of the host."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.events: list[torch.cuda.Event] = []
        self.moments: list[float] = []

    def mark(self) -> None:
        if self.job.on_gpu:
            self.events.append(torch.cuda.Event(enable_timing=True))
            self.events[-1].record()
        else:
            self.moments.append(time.perf_counter())

    def steps_ms(self) -> list[float]:
        """Return the times between the marks; waits for the last."""
        self.job.synchronize()
        if self.job.on_gpu:
            pairs = zip(self.events, self.events[1:], strict=False)
            return [round(first.elapsed_time(last), 4) for first, last in pairs]
        return [round((last - first) * 1e3, 4) for first, last in zip(self.moments, self.moments[1:], strict=False)]


def stretch(job: Job, team: Team, hooks: Hooks, steps: int = STEPS, lead: int = LEAD) -> list[float]:
    """Return this rank's step times, ms, of a stretch that ranks begin together and then run freely."""
    marks = Marks(job)
    with team.running(hooks):
        job.synchronize()
        team.barrier()
        for number in range(lead + steps):
            if number >= lead:
                marks.mark()
            job.step(hooks)
        marks.mark()
        return marks.steps_ms()


@dataclass(frozen=True)
class Limits:
    """What the undisturbed job could do if this or that were free, ms a step; lists are by rank.

    host_ms: launching it onto an idle device; device_ms: running it, all of it launched before it begins;
    no_sync_ms: without exchanging gradients (DDP).
    """

    samples: int
    step_ms: list[float]
    host_ms: list[float]
    device_ms: float
    no_sync_ms: list[float] | None

    @property
    def step(self) -> float:
        """The step, ms: ranks step together."""
        return statistics.fmean(self.step_ms)

    def slack_ms(self, of: str, ranks: Sequence[int]) -> float:
        """Return what can be added to these ranks' host's or device's time before the step gets longer."""
        if of == "host":
            return max(0.0, self.step - max(self.host_ms[rank] for rank in ranks or range(len(self.host_ms))))
        return max(0.0, self.step - {"": self.step, "device": self.device_ms, "step": 0.0}[of])


def measure_limits(job: Job, team: Team, tools: Tools, samples: int) -> Limits:
    """Measure them for a resident batch."""
    job.prepare(samples)
    stretch(job, team, Hooks(), steps=2)  # warms up, and lets DDP order its buckets
    step_ms = statistics.median(stretch(job, team, Hooks(), steps=15))
    host_ms = _host_ms(job, team)
    device_ms = _device_ms(job, team, tools, host_ms) if job.on_gpu else step_ms
    no_sync_ms = None
    if isinstance(job.model, nn.parallel.DistributedDataParallel):
        with job.model.no_sync():
            no_sync_ms = team.all(statistics.median(stretch(job, team, Hooks())))
    of_step, of_host = team.all(step_ms), team.all(host_ms if job.on_gpu else step_ms)
    return Limits(samples, of_step, of_host, device_ms, no_sync_ms)


def choose_samples(job: Job, team: Team, tools: Tools) -> dict[str, int]:
    """Return how many samples a rank make each of the batches on this machine."""
    if not job.on_gpu:
        return CPU_SAMPLES
    few, many = (4, 24) if job.kind.model == "gpt" else (32, 256)
    few_ms, many_ms = (_device_ms_of(job, team, tools, samples) for samples in (few, many))
    for _ in range(2):  # the second line goes through a batch near the ones wanted
        host_ms = team.first(_host_ms(job, team))
        a_sample = max((many_ms - few_ms) / (many - few), 1e-3)
        fixed = few_ms - few * a_sample
        wanted = {batch: max(1, round((DEVICE_TO_HOST[batch] * host_ms - fixed) / a_sample)) for batch in BATCHES}
        many = max(few + 1, min(wanted[GPU_BOUND], 1024))
        many_ms = _device_ms_of(job, team, tools, many)
    return wanted


def _device_ms_of(job: Job, team: Team, tools: Tools, samples: int) -> float:
    """Return the device's time for a step with such a batch; the same on all ranks."""
    job.prepare(samples)
    stretch(job, team, Hooks(), steps=3)
    found: float = team.first(_device_ms(job, team, tools, _host_ms(job, team)))
    return found


def _host_ms(job: Job, team: Team, times: int = 7) -> float:
    """Return how long the host takes to launch a step onto an idle device."""
    taken = []
    for _ in range(times):
        job.synchronize()
        team.barrier()
        began = time.perf_counter()
        job.step(Hooks())
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


def _device_ms(job: Job, team: Team, tools: Tools, host_ms: float, times: int = 7) -> float:
    """Return how long the devices take for a step that is launched as a whole while they are held up."""
    taken: list[float] = []
    for _ in range(times):
        job.synchronize()
        team.barrier()
        tools.delay(2.5 * host_ms + 2)
        marks = Marks(job)
        marks.mark()
        job.step(Hooks())
        marks.mark()
        # the rank that was let go last waits for nobody
        taken.append(min(team.all(marks.steps_ms()[0])))
    return statistics.median(taken)
