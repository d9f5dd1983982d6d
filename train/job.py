"""One training job on one rank, from the model to the last trace."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from scalescope.hardware.energy import energy_counter_of
from scalescope.launch.job import Job
from scalescope.records.errors import Preempted, RunError
from scalescope.records.rows import RunInfo, TrainFacts
from scalescope.records.steps.recording import LongerFacts
from scalescope.train.checkpoints import Checkpoints
from scalescope.train.checks import samples_per_rank
from scalescope.train.config import TrainConfig
from scalescope.train.data.samples import Share
from scalescope.train.loader import Loader, open_loader
from scalescope.train.measure.accounting import Accounting
from scalescope.train.measure.anomaly import Anomaly
from scalescope.train.measure.clock import Clock, make_clock
from scalescope.train.measure.energy import PowerMeter
from scalescope.train.measure.forecast import forecast
from scalescope.train.measure.memory import record_history
from scalescope.train.measure.preemption import StopRequest
from scalescope.train.measure.progress_markers import ProgressMarkers
from scalescope.train.measure.publisher import Publisher
from scalescope.train.measure.schedule import Schedule, Window, make_schedule
from scalescope.train.measure.step_recorder import Pause, StepRecorder
from scalescope.train.measure.summary import summarise
from scalescope.train.measure.tracing.agreed_end import AgreedEnd
from scalescope.train.measure.tracing.bursts import Bursts
from scalescope.train.measure.tracing.kineto import Tracer
from scalescope.train.measure.tracing.traces import describe_run, rescue_traces, write_traces
from scalescope.train.models.network import Model, build_model, network_class
from scalescope.train.models.precision import Precision
from scalescope.train.out_of_memory import explain_out_of_memory, is_out_of_memory
from scalescope.train.strategies.base import Strategy
from scalescope.train.strategies.build import build_strategy
from scalescope.train.validation import HeldOutLoss


def run(job: Job[TrainConfig]) -> None:
    """Train as configured, leaving facts.json, steps.jsonl, checkpoints and the traces in the run folder.

    Raises RunError where the job ended but not as asked for (a loss that is not finite, no memory left, a trace that
    does not fit), and Preempted where it was asked to stop and saved its state.
    """
    try:
        _run(job)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(explain_out_of_memory(job, error)) from error


def _run(job: Job[TrainConfig]) -> None:
    config = job.config
    share = share_of(config, job.world.rank, job.world.size)
    info = _info_of_rank0(job)

    if config.memory_history:
        record_history(job.device)
    torch.manual_seed(config.seed)  # the same weights on every rank
    torch.backends.cudnn.benchmark = config.cudnn_benchmark
    precision = Precision(config.precision, job.device)
    model = build_model(config.model, job.device, config.recompute)
    strategy = build_strategy(config, model.network, precision, job.device)
    checkpoints = Checkpoints(job, strategy)
    schedule = make_schedule(config).resumed(checkpoints.resume())
    loader, held_out = open_loader(job, share, schedule.first_step)
    facts = _facts(job, model, strategy)
    if job.is_rank0:
        job.folder.write_facts(facts)
        for line in forecast(facts, job.ceilings):
            print(line, flush=True)

    clock = make_clock(job.device)
    description = describe_run(job, info)
    tracer = Tracer(
        config.profiler, job.device, job.world.rank, description, lambda: job.folder.traces,
        config.strategy.buckets_gradients, AgreedEnd(job.store, f"train/{info.attempt}"),
    )  # fmt: skip
    bursts = Bursts(job.world.rank, job.device, config.profiler.stacks)
    if schedule.windows or config.profiler.on_anomaly:
        bursts.begin()
    markers = ProgressMarkers(job)
    with StopRequest() as stop, Publisher(job) as publisher:
        recorder = StepRecorder(
            job, clock, schedule, _accounting(job, model, share), info.attempt, publisher.publish, stop, markers,
            PowerMeter(energy_counter_of(job.devices[job.world.rank])),
        )  # fmt: skip

        def rescue(_: object = None) -> None:
            recorder.rescue()
            rescue_traces(job, tracer)

        job.watchdog.rescue = rescue
        try:
            loop = _Loop(job, schedule, strategy, loader, held_out, checkpoints, clock, tracer, recorder, markers)
            loop.run()
        except BaseException:
            rescue()
            raise

    if job.is_rank0:
        for line in summarise(config.model.name, job.folder.read_steps(), loop.schedule):
            print(line, flush=True)
        for line in checkpoints.describe():
            print(f"{config.model.name}: {line}", flush=True)
    markers.writing(schedule.steps)
    write_traces(job, tracer, bursts, loop.opened)


@dataclass
class _Loop:
    """The step loop. In the steady state the host only enqueues: whatever it reads lies steps back."""

    job: Job[TrainConfig]
    schedule: Schedule
    strategy: Strategy[Any]
    loader: Loader
    held_out: HeldOutLoss
    checkpoints: Checkpoints
    clock: Clock
    tracer: Tracer
    recorder: StepRecorder
    markers: ProgressMarkers
    opened: dict[int, LongerFacts] = field(default_factory=dict)  # why windows were, by their first recorded step

    def run(self) -> None:
        self.strategy.arrive = self.clock.arrive
        if self.schedule.first_step == 0:
            self.markers.validating_untrained()
            self._validate(0)
        gc.collect()
        gc.freeze()  # what lives until now lives to the end: no collection needs to look at it again
        self.clock.restart()
        for step in range(self.schedule.first_step, self.schedule.steps):
            window = self.schedule.window(step)
            if window is not None:
                if step == window.first:
                    self.recorder.settle()  # no message of ours inside the window
                self.markers.starting_profiler(step)
                if step == window.first:
                    self.checkpoints.settle()  # nor anything being written
                self.tracer.before(window, step)
                self.clock.restart()

            self.markers.loading(step)
            self.clock.begin_step()
            with self.tracer.step(window, step):
                asked_s = time.perf_counter()
                batch = self.loader.next()
                self.clock.loaded((time.perf_counter() - asked_s) * 1e3)
                self.markers.step(step)
                loss = self.strategy.train_step(batch, step)
                self.clock.lap(loss)

            if window is not None:
                self.markers.ending_profiler(step)
                self.tracer.after(window, step)
                if step == window.end - 1:  # ranks write for unlike times, or not at all: no step is to wait for one
                    dist.barrier(group=self.job.host_group)
                self.clock.restart()
            self._pause_after(step)
            self.recorder.close_step(step)
            if (anomaly := self.recorder.take_anomaly()) is not None:
                self._record_anomaly(anomaly, step + 1)
            if self.recorder.stop_asked and step + 1 < self.schedule.steps:
                self._leave(step + 1)
        self.recorder.finish(self.schedule.steps)
        self.markers.saving(self.schedule.steps)
        self.checkpoints.settle()

    def _record_anomaly(self, anomaly: Anomaly, first: int) -> None:
        """Open a window for steps that have become longer, on every rank with the same step; or say why not."""
        window = Window.of(first, self.job.config.profiler.warmup, self.job.config.active_steps)
        longer = self.schedule.with_window(window)
        if longer is not None:
            self.schedule = longer
            self.recorder.follow(longer)
            self.opened[window.active] = anomaly.facts
        if self.job.is_rank0:
            done = (
                f"recording steps {window.active} to {window.end - 1}"
                if longer
                else "no window fits in before the next one, or the end"
            )
            print(f"{self.job.config.model.name}: since step {anomaly.since} steps take {anomaly.step_ms:,.1f} ms, "
                  f"where {anomaly.level_ms:,.1f} were usual: {done}", flush=True)  # fmt: skip

    def _pause_after(self, step: int) -> None:
        """Validate and save where a step asks for it; none of it is a step's time."""
        last = step == self.schedule.steps - 1
        every = self.job.config.validate_every
        save = self.job.config.checkpoint_every
        validates = last or (every is not None and (step + 1) % every == 0)
        saves = save is not None and (last or (step + 1) % save == 0)
        if not (validates or saves) or not self.schedule.may_interrupt_after(step):
            return
        validating_ms = saving_ms = 0.0
        if validates:
            self.markers.validating(step)
            self.clock.wait()  # what is enqueued is steps' time; the loss is waited for anyway
            validating_ms = _timed_ms(lambda: self._validate(step))
        if saves:
            self.recorder.finish(step + 1)  # a job that goes on from here has the rows of all steps before it
            self.markers.saving(step)
            saving_ms = _timed_ms(lambda: self.checkpoints.begin(step + 1))
        self.recorder.note_pause(step + 1, Pause(validating_ms, saving_ms))
        self.clock.restart()

    def _validate(self, step: int) -> None:
        loss = self.held_out.loss(self.strategy)
        if loss is not None:
            self.recorder.note_validation(step, loss)

    def _leave(self, next_step: int) -> None:
        """Save and end, on every rank after the same step."""
        self.recorder.finish(next_step)
        self.markers.saving(next_step)
        path = self.checkpoints.save(next_step)
        raise Preempted(f"asked to stop before step {next_step}; the state is in {path}")


def _timed_ms(do: Callable[[], None]) -> float:
    """Do something and return how long it took."""
    started_s = time.perf_counter()
    do()
    return (time.perf_counter() - started_s) * 1e3


def share_of(config: TrainConfig, rank: int, ranks: int) -> Share:
    """Return the samples that a rank works on; ranks of one replica have the same ones, all of theirs together."""
    together = config.strategy.ranks_per_replica(ranks)
    return Share(rank // together, ranks // together, samples_per_rank(config, ranks) * together)


def _info_of_rank0(job: Job[TrainConfig]) -> RunInfo:
    """Return run.json as rank 0 reads it, since other nodes may not see the folder; with this attempt's number."""
    read: list[RunInfo | None] = [None]
    if job.is_rank0:
        info = job.folder.read_info()
        rows = job.folder.read_steps()
        if rows:  # somebody was here before
            info.attempt = max(info.attempt, 1 + max(row.attempt for row in rows))
        read = [info]
    dist.broadcast_object_list(read, src=0, group=job.host_group)
    assert read[0] is not None
    return read[0]


def _facts(job: Job[TrainConfig], model: Model, strategy: Strategy[Any]) -> TrainFacts:
    config, ranks = job.config, job.world.size
    return TrainFacts(
        model=config.model.name,
        strategy=config.strategy.label,
        precision=config.precision.kind,
        parameters=model.parameters,
        flops_per_sample=model.flops.per_sample,
        flops_formula=model.flops.formula,
        hardware_flops_per_sample=model.flops.hardware_per_sample,
        hardware_flops_formula=model.flops.hardware_formula,
        samples_per_rank_step=samples_per_rank(config, ranks),
        tokens_per_sample=model.tokens_per_sample,
        compiled=strategy.compiled,
        compiled_by_bucket=strategy.compiled_by_bucket,
        attention=network_class(config.model).attention_kernel(config.model, strategy.device, strategy.precision.dtype),
        origin="job",
        dataset=config.data.kind,
        mlperf_benchmark=config.model.mlperf_benchmark,
        ranks_per_replica=config.strategy.ranks_per_replica(ranks),
    )


def _accounting(job: Job[TrainConfig], model: Model, share: Share) -> Accounting:
    return Accounting(
        ranks=job.world.size,
        samples_per_step=share.global_samples,
        tokens_per_sample=model.tokens_per_sample,
        flops_per_sample=model.flops.per_sample,
        hardware_flops_per_sample=model.flops.hardware_per_sample,
        peak_tflops=job.ceilings.peak_tflops,
        matmul_tflops=job.ceilings.matmul_tflops,
        synchronised=job.config.strategy.synchronises,
    )
