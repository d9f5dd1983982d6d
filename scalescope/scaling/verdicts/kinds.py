"""What a step's compute consists of, kind by kind, on the mean rank, and how much of it collectives run beside."""

from collections.abc import Mapping

import numpy as np

from scalescope.scaling.answer_rows import KindRow, RankSplit
from scalescope.scaling.rank.kernels import CARRIED, KernelTable
from scalescope.scaling.trace.kernel_kinds import COMMUNICATION, KINDS


def kernel_kinds(kernels: Mapping[int, KernelTable], ranks: list[RankSplit]) -> list[KindRow]:
    """Return a row a kind, then one for communication; `kernels` by rank. Their ms, but the last, are the compute's."""
    tables = [table for table in kernels.values() if table.steps]
    numbers: dict[str, int] = {}
    of_tables = [[numbers.setdefault(kind, len(numbers)) for kind in table.row_kinds()] for table in tables]
    sums = np.zeros((3, len(numbers)))
    for table, of_row in zip(tables, of_tables, strict=True):
        weight = table.steps * len(tables)
        of_kernel = np.array(of_row, np.int64)
        # what runs on from the step before is time of this one, and no call
        is_call = np.array([name != CARRIED for name in table.names], bool)[table.name]
        np.add.at(sums[0], of_kernel, np.where(is_call, table.ran, 0) / weight)
        np.add.at(sums[1], of_kernel, table.time / weight / 1e6)
        # two kinds of collectives at once would count twice: what can be said is at most the whole time
        np.add.at(sums[2], of_kernel, table.overlap.sum(axis=1) / weight / 1e6)
    calls, ms, overlap = (dict(zip(numbers, column.tolist(), strict=True)) for column in sums)
    whole = sum(ms.values())
    rows = [
        KindRow(
            kind=kind,
            calls=calls[kind],
            ms=ms[kind],
            share_of_compute=ms[kind] / whole if whole else None,
            beside_communication_ms=min(overlap.get(kind, 0.0), ms[kind]),
        )
        for kind in KINDS
        if ms.get(kind)
    ]
    profiled = [rank for rank in ranks if rank.steps]
    if any(rank.communication_ms for rank in profiled):
        rows.append(
            KindRow(
                kind=COMMUNICATION,
                calls=0.0,
                ms=sum(rank.communication_ms / rank.steps for rank in profiled) / len(profiled),
                share_of_compute=None,
                beside_communication_ms=None,
            )
        )
    return rows
