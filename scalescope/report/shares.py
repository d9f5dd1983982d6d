"""What a trace without steps says: shares of what was recorded, and no step's time. And a server's steps, by kind."""

import statistics

from scalescope.report.drawing import parts
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import PARTS, StepSplit

#: A server's iterations, in the order in which they are shown.
_KINDS = ("prefill", "mixed", "decode")
EXPOSED_COMMUNICATION = ("exposed_transfer", "exposed_wait", "exposed_unsplit")
_IDLE = ("idle_data", "idle_launch", "idle_queued")


def shares_table(run: RunAnalysis) -> Table:
    """One row a rank of a run without steps: what was recorded in ms, and of it the parts in percent."""
    columns = [
        Column("rank", "rank", digits=0),
        Column("window_ms", "recorded", "ms", 2),
        *(Column(f"{part.key}_ms", part.name, "%", 1, 100) for part in parts.ALL),
        Column("communication_ms", "communication", "%", 1, 100),
        Column("overlap_fraction", "hidden", "%", 1, 100),
    ]
    rows: list[list[Cell]] = [
        [rank.rank, rank.window_ms, *(_of(rank.part_ms(part), rank.window_ms) for part in PARTS),
         _of(rank.communication_ms, rank.window_ms), rank.overlap_fraction]
        for rank in run.ranks
    ]  # fmt: skip
    return Table(columns, rows, {"overlap_fraction": "no communication in the window"})


def _of(ms: float, window_ms: float) -> float:
    return ms / window_ms if window_ms else 0.0


def has_kinds(run: RunAnalysis) -> bool:
    """Tell whether a run's steps are a server's iterations."""
    return any(step.kind for step in run.steps)


def iterations_table(run: RunAnalysis) -> Table:
    """One row a kind of a server's iterations, over all ranks: the median one, and what it consists of."""
    columns = [
        Column("kind", "iteration"),
        Column("iterations", "a rank", digits=1),
        Column("median_ms", "median", "ms", 2),
        Column("compute_ms", "compute", "ms", 2),
        Column("exposed_ms", "exposed communication", "ms", 2),
        Column("copies_ms", "exposed copies", "ms", 2),
        Column("idle_ms", "idle", "ms", 2),
    ]
    ranks = len({step.rank for step in run.steps}) or 1
    rows: list[list[Cell]] = []
    for kind in _KINDS:
        own = [step for step in run.steps if step.kind == kind]
        if own:
            middle = statistics.median(step.window_ms for step in own)
            rows.append(
                [kind, len(own) / ranks, middle, _mean(own, ("compute",)), _mean(own, EXPOSED_COMMUNICATION),
                 _mean(own, ("exposed_memory",)), _mean(own, _IDLE)]
            )  # fmt: skip
    return Table(columns, rows)


def _mean(steps: list[StepSplit], keys: tuple[str, ...]) -> float:
    return statistics.fmean(sum(step.part_ms(key) for key in keys) for step in steps)
