"""What a file of another benchmark's results held."""

from dataclasses import dataclass, field

from scalescope.records.rows import SweepRow
from scalescope.records.scorecard.row import ScorecardRow


@dataclass
class ImportedResults:
    """Rows for a scorecard, rows for a sweep, and what could not be read."""

    rows: list[ScorecardRow] = field(default_factory=list)
    sweep: list[SweepRow] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, other: "ImportedResults") -> None:
        self.rows += other.rows
        self.sweep += other.sweep
        self.faults += other.faults


#: What others call a model, what we do, and its FLOPs a sample in training, where their work is ours.
MODEL_NAMES = (("resnet", "resnet50", 24.5e9), ("pytorch-resnet50", "resnet50", 24.5e9))


def our_model(theirs: str) -> tuple[str, float | None]:
    """Return our name of a model of theirs, and its FLOPs a sample; theirs, where we have none."""
    return next(((ours, flops) for name, ours, flops in MODEL_NAMES if name == theirs), (theirs, None))
