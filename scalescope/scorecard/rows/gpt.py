"""GPT-2 124M training, tokens a second."""

from collections.abc import Iterator

from scalescope.records.scorecard.row import ScorecardRow
from scalescope.scorecard.machine import MachineUnderTest
from scalescope.scorecard.rows.training import TrainingJob, measure_training

_SMALL = (
    "model=gpt_tiny",
    "model.layers=2",
    "model.width=64",
    "model.heads=2",
    "model.context=64",
    "model.batch_size=2",
)
_JOB = TrainingJob("gpt", "gpt_small", _SMALL, "training_tokens", "tokens/s", "token")


def measure(machine: MachineUnderTest) -> Iterator[ScorecardRow]:
    yield from measure_training(machine, _JOB)
