"""ResNet-50 v1.5 training, images a second."""

from collections.abc import Iterator

from scalescope.records.scorecard.row import ScorecardRow
from scalescope.scorecard.machine import MachineUnderTest
from scalescope.scorecard.rows.training import TrainingJob, measure_training

_JOB = TrainingJob("resnet", "resnet50", ("model=resnet50_64px", "model.batch_size=2"), "training_samples", "images/s",
                   "image")  # fmt: skip


def measure(machine: MachineUnderTest) -> Iterator[ScorecardRow]:
    yield from measure_training(machine, _JOB)
