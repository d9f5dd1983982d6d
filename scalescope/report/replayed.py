"""Of which profiled steps it is that a step is told without recording: those that can be replayed, not a window's last.

Tables, bars and growths as profiled are of all of them, so both are never told without saying which is which.
"""

from dataclasses import dataclass

from scalescope.report.drawing.numbers import milliseconds
from scalescope.scaling.answer import RunAnalysis


@dataclass(frozen=True)
class Replayed:
    """How many of the profiled steps of a rank are replayed, and how long those are as profiled."""

    steps: int
    of: int
    traced_ms: float

    @property
    def which(self) -> str:
        """Which they are, to go before a verb: `2 of the 3 profiled steps take`."""
        return f"{self.steps} of the {self.of} profiled steps {'takes' if self.steps == 1 else 'take'}"

    @property
    def length(self) -> str:
        """Which they are, and how long as profiled, to go before what recording takes of that."""
        mean = " in the mean" if self.steps > 1 else ""
        return f"Of the {self.of} profiled steps {self.steps} can be replayed, {milliseconds(self.traced_ms)}{mean}"


def fewer_replayed(run: RunAnalysis) -> Replayed | None:
    """Return which of a run's profiled steps are replayed; None where all are, or none is."""
    told, replay = run.as_run, run.replay
    if told is None or replay is None or not told.ranks or not told.steps:
        return None
    recorded = max((one.steps for one in run.ranks), default=0)
    return Replayed(told.steps, recorded, replay.traced_ms) if told.steps < recorded else None
