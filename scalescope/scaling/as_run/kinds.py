"""What the compute of replayed steps consists of, kind by kind: the same rows, by the same rules, as of traced ones."""

from collections.abc import Sequence

import msgspec
import numpy as np

from scalescope.scaling.answer_rows import KindRow
from scalescope.scaling.as_run.partition import replayed_windows
from scalescope.scaling.rank.kernels import KernelTable, kernel_table, placed
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE
from scalescope.scaling.replay.engine.timing import Timing
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.trace.intervals import Intervals, union
from scalescope.scaling.verdicts.kinds import kernel_kinds


def replayed_kinds(graph: Graph, timing: Timing) -> list[KindRow]:
    """Return a row a kind of compute on the mean rank; their ms add up to the compute of the replayed partition.

    `timing`: of the whole graph. Ranks on which no step has a length are left out, as they are there.
    """
    tables = {rank: table for rank in graph.ranks if (table := _table(graph, timing, rank)) is not None}
    return kernel_kinds(tables, [])


def mean_kinds(windows: Sequence[tuple[Sequence[KindRow], int]]) -> list[KindRow]:
    """Return the rows of several windows' steps as those of all of them, given each window's rows and step count."""
    steps = sum(count for _, count in windows)
    sums: dict[str, list[float]] = {}
    for rows, count in windows:
        for row in rows:
            own = sums.setdefault(row.kind, [0.0, 0.0, 0.0])
            for at, value in enumerate((row.calls, row.ms, row.beside_communication_ms or 0.0)):
                own[at] += value * count / steps
    whole = sum(ms for _, ms, _ in sums.values())
    return [
        KindRow(
            kind=kind,
            calls=calls,
            ms=ms,
            share_of_compute=ms / whole if whole else None,
            beside_communication_ms=beside,
        )
        for kind, (calls, ms, beside) in sums.items()
    ]


def _table(graph: Graph, timing: Timing, rank: int) -> KernelTable | None:
    windows = replayed_windows(graph, timing, rank)
    if windows is None:
        return None
    rows = np.array([at for stream in graph.order[rank] for at in stream], np.int64)
    rows = rows[np.argsort(np.array(timing.begin)[rows], kind="stable")]
    kinds = np.array([graph.activities[at].kind for at in rows.tolist()], np.int64)
    loads = np.array([at in graph.loading for at in rows.tolist()], bool)
    begins = np.rint(np.array(timing.begin)[rows]).astype(np.int64)
    ends = np.rint(np.array(timing.end)[rows]).astype(np.int64)
    computes, moves = (kinds == COMPUTE) & ~loads, kinds == COMMUNICATION
    spans = Intervals(begins[computes], ends[computes])
    numbers: dict[str, int] = {}
    name = [numbers.setdefault(graph.activities[at].name, len(numbers)) for at in rows[computes].tolist()]
    beside = {"": union(Intervals(begins[moves], ends[moves]))}
    table = kernel_table(spans, np.array(name, np.int64), union(spans), windows, list(numbers), beside)
    ran = rows[computes].tolist()
    by_place = {at: graph.by_place[at] for at in ran if at in graph.by_place}
    kernels = ((at, begin, graph.activities[at].name) for at, begin in zip(ran, spans.starts.tolist(), strict=True))
    return (
        msgspec.structs.replace(table, placed=placed(kernels, windows.edges.tolist(), by_place)) if by_place else table
    )
