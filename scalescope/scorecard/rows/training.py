"""A short training job on one device, and what its steady steps come to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scalescope.records.errors import RunError, UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow, TrainFacts
from scalescope.records.scorecard.row import Conditions, ScorecardRow
from scalescope.scorecard.machine import MachineUnderTest, first_line, mean_and_half

_FULL = ("steps=50", "warmup_steps=15", "precision=bf16")
_SMALL = ("steps=4", "warmup_steps=1", "precision=fp32")


@dataclass(frozen=True)
class TrainingJob:
    """What is trained: the model as it is and one for two cores, and what its throughput counts."""

    row: str
    model: str
    small: Sequence[str]  # overrides
    quantity: str
    unit: str
    each: str  # image | token


def measure_training(machine: MachineUnderTest, job: TrainingJob) -> Iterator[ScorecardRow]:
    """Yield throughput, TFLOP/s and energy, of the eager model and of the compiled one."""
    for compiled in (False, True):
        way = "compiled" if compiled else "eager"
        if compiled and not machine.full:
            yield machine.missing(job.row, job.quantity, way, job.unit, "small sizes: compiling takes a minute")
            continue
        sized = (f"model={job.model}", *_FULL) if machine.full else (*job.small, *_SMALL)
        try:
            folder = machine.run_job("train", f"{job.model}-{way}", 1, [
                *sized, f"compile={str(compiled).lower()}", "profiler=none", "strategy=local", "data=synthetic",
            ])  # fmt: skip
        except (RunError, UserError) as error:
            yield machine.missing(job.row, job.quantity, way, job.unit, first_line(error))
            continue
        yield from _figures(machine, job, folder, way)


def _figures(machine: MachineUnderTest, job: TrainingJob, folder: RunFolder, way: str) -> Iterator[ScorecardRow]:
    facts = folder.read_facts()
    steady = [row for row in folder.read_steps() if row.phase == "steady"]
    if facts is None or not steady:
        yield machine.missing(job.row, job.quantity, way, job.unit, "the job has no steady step")
        return
    each = facts.tokens_per_sample or 1
    conditions = Conditions(
        precision=facts.precision, batch=facts.samples_per_rank_step, model=facts.model,
        flops_per_sample=facts.flops_per_sample / each,
    )  # fmt: skip
    what = f"{facts.model} {way}, batch {facts.samples_per_rank_step} {facts.precision}"
    value, low, high = _throughput(machine, facts, steady)
    yield machine.row(job.row, job.quantity, what, job.unit, (value, low, high), conditions)
    flops = facts.flops_per_sample / each / 1e12
    yield machine.row(
        job.row, "training_flops", what, "TFLOP/s", (value * flops, low * flops, high * flops), conditions
    )
    joules = [row.joules_per_sample / each for row in steady if row.joules_per_sample is not None]
    if joules:
        mean, half = mean_and_half(joules)
        yield machine.row(
            job.row, "energy", f"{what}, each {job.each}", "J", (mean, mean - half, mean + half), conditions
        )
    else:
        yield machine.missing(
            job.row, "energy", f"{what}, each {job.each}", "J", "the device tells no energy", conditions
        )


def _throughput(machine: MachineUnderTest, facts: TrainFacts, steady: Sequence[StepRow]) -> tuple[float, float, float]:
    """Return samples or tokens a second over the steady steps, with the interval of their mean."""
    amount = facts.samples_per_rank_step * (facts.tokens_per_sample or 1)
    return machine.rate([row.length_ms / 1e3 for row in steady], amount)
