"""What a file of another benchmark's results held."""

import json
import math
from dataclasses import dataclass, field

from scalescope.records.errors import UserError
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


_MOST_DIGITS = 18  # what 64 bits hold
_LARGEST = 1e18  # of a figure: no benchmark has one, and sums of such as these stay finite


def decoded(line: str, where: str) -> object:
    """Return what a line of JSON holds. Raises UserError for what is none, and for an integer of no figure."""
    try:
        return json.loads(line, parse_int=_integer)
    except json.JSONDecodeError:
        raise UserError(f"{where} is cut or no JSON, and left out") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is left out: {error}") from None


def figure(value: object) -> float | None:
    """Return a number that can be one of a benchmark; None of all else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if abs(value) < _LARGEST else None


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS + digits.startswith("-"):
        raise ValueError("it holds an integer of more than 64 bits")
    return int(digits)


#: What others call a model, what we do, and its FLOPs a sample in training, where their work is ours.
MODEL_NAMES = (("resnet", "resnet50", 24.5e9), ("pytorch-resnet50", "resnet50", 24.5e9))


def our_model(theirs: str) -> tuple[str, float | None]:
    """Return our name of a model of theirs, and its FLOPs a sample; theirs, where we have none."""
    return next(((ours, flops) for name, ours, flops in MODEL_NAMES if name == theirs), (theirs, None))
