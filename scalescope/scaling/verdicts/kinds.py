"""What a step's compute consists of, kind by kind, on the mean rank, and how much of it collectives run beside."""

from collections.abc import Mapping

from scalescope.scaling.answer import KindRow, RankSplit
from scalescope.scaling.rank.kernels import CARRIED, KernelTable
from scalescope.scaling.trace.kernel_kinds import COMMUNICATION, KINDS, kind_of


def kernel_kinds(kernels: Mapping[int, KernelTable], ranks: list[RankSplit]) -> list[KindRow]:
    """Return a row a kind, then one for communication; `kernels` by rank. Their ms, but the last, are the compute's."""
    tables = [table for table in kernels.values() if table.steps]
    calls: dict[str, float] = {}
    ms: dict[str, float] = {}
    overlap: dict[str, float] = {}
    for table in tables:
        weight = table.steps * len(tables)
        for (name, _), kernel in table.items():
            kind = kind_of(name)
            # what runs on from the step before is time of this one, and no call
            calls[kind] = calls.get(kind, 0.0) + (kernel.steps / weight if name != CARRIED else 0.0)
            ms[kind] = ms.get(kind, 0.0) + kernel.total_ns / weight / 1e6
        for (name, _), meanwhile in table.overlaps():
            kind = kind_of(name)
            # two kinds of collectives at once would count twice: what can be said is at most the whole time
            overlap[kind] = overlap.get(kind, 0.0) + sum(meanwhile) / weight / 1e6
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
