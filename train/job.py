"""One training job on one rank, from the model to the last trace."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from launch.job import Job
from records.rows import RunInfo, TrainFacts
from train.accounting import Accounting
from train.checks import samples_per_rank
from train.clock import Clock, make_clock
from train.config import TrainConfig
from train.data import Share
from train.kineto import Tracer
from train.ledger import Ledger
from train.loader import Loader, open_loader
from train.models import Model, build_model
from train.precision import Precision
from train.publisher import Publisher
from train.schedule import Schedule, make_schedule
from train.strategies import Strategy, build_strategy
from train.summary import summarise
from train.traces import describe_run, write_traces
from train.validation import HeldOut


def run(job: Job[TrainConfig]) -> None:
    """Train as configured, leaving facts.json, steps.jsonl and the traces in the run folder.

    Raises RunError where the job ended but not as asked for: a loss that is not finite, a trace that does not fit.
    """
    config = job.config
    schedule = make_schedule(config)
    share = Share(job.world.rank, job.world.size, samples_per_rank(config, job.world.size))
    info = _info_of_rank0(job)

    torch.manual_seed(config.seed)  # the same weights on every rank
    precision = Precision(config.precision, job.device)
    model = build_model(config.model, job.device, config.recompute)
    strategy = build_strategy(config, model.network, precision, job.device)
    loader, held_out = open_loader(job, share)
    if job.is_rank0:
        job.folder.write_facts(_facts(config, model, share))

    clock = make_clock(job.device)
    tracer = Tracer(config.profiler, job.device, job.world.rank, describe_run(job, info))
    with Publisher(job) as publisher:
        ledger = Ledger(job, clock, schedule, _accounting(job, model, share), info.attempt, publisher.publish)
        try:
            _Loop(job, schedule, strategy, loader, held_out, clock, tracer, ledger).run()
        finally:
            ledger.rescue()

    if job.is_rank0:
        for line in summarise(config.model.name, publisher.rows, schedule):
            print(line, flush=True)
    write_traces(job, tracer)


@dataclass
class _Loop:
    """The step loop. In the steady state the host only enqueues: whatever it reads lies steps back."""

    job: Job[TrainConfig]
    schedule: Schedule
    strategy: Strategy
    loader: Loader
    held_out: HeldOut
    clock: Clock
    tracer: Tracer
    ledger: Ledger

    def run(self) -> None:
        self._validate(0)  # the untrained model
        self.clock.restart()
        for step in range(self.schedule.steps):
            window = self.schedule.window(step)
            if window is not None:
                if step == window.first:
                    self.ledger.settle()  # no message of ours inside the window
                self.tracer.before(window, step)
                self.clock.restart()

            self.clock.begin_step()
            with self.tracer.step(window, step):
                batch = self.loader.next()
                loss = self.strategy.train_step(batch, step)
                self.clock.lap(loss)

            if window is not None:
                self.tracer.after(window, step)
                self.clock.restart()
            if self._validates_after(step):
                self._validate(step)
                self.clock.restart()
            self.ledger.close_step(step)
        self.ledger.finish(self.schedule.steps)

    def _validates_after(self, step: int) -> bool:
        """The last step's update is always followed by a validation; one inside a window would be in its trace."""
        if step == self.schedule.steps - 1:
            return True
        every = self.job.config.validate_every
        window = self.schedule.window(step)
        return every is not None and (step + 1) % every == 0 and (window is None or step == window.end - 1)

    def _validate(self, step: int) -> None:
        loss = self.held_out.loss(self.strategy)
        if loss is not None:
            self.ledger.note_validation(step, loss)


def _info_of_rank0(job: Job[TrainConfig]) -> RunInfo:
    """Return run.json as rank 0 reads it: other nodes may not see the folder."""
    read: list[RunInfo | None] = [job.folder.read_info() if job.is_rank0 else None]
    dist.broadcast_object_list(read, src=0, group=job.host_group)
    assert read[0] is not None
    return read[0]


def _facts(config: TrainConfig, model: Model, share: Share) -> TrainFacts:
    return TrainFacts(
        model=config.model.name,
        strategy=config.strategy.kind,
        precision=config.precision.kind,
        parameters=model.parameters,
        flops_per_sample=model.flops.per_sample,
        flops_formula=model.flops.formula,
        samples_per_rank_step=share.samples,
        tokens_per_sample=model.tokens_per_sample,
        compiled=config.compile,
    )


def _accounting(job: Job[TrainConfig], model: Model, share: Share) -> Accounting:
    return Accounting(
        ranks=job.world.size,
        samples_per_step=share.global_samples,
        tokens_per_sample=model.tokens_per_sample,
        flops_per_sample=model.flops.per_sample,
        peak_tflops=job.ceilings.peak_tflops,
        matmul_tflops=job.ceilings.matmul_tflops,
    )
