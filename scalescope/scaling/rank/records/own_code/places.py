"""What kernels, or operators, are for whose names do not tell: those that a job's own code computes the long way with.

A mean, a square root, a product element by element: in a normalisation that is written out they normalise, and in an
optimizer that is not fused they update parameters. So a part of the step is the same whichever way it is computed.
"""

from scalescope.scaling.rank.kernels import Kernel, placed
from scalescope.scaling.rank.records.own_code.by_hand import updated_by_hand
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.trace.kernel_kinds import COPIES, ELEMENTWISE, NORMALISATION, OPTIMISER, kind_of

#: Of other kinds a name tells what a kernel is for, wherever it runs.
_UNTOLD = (ELEMENTWISE, COPIES)


def kinds_by_place(record: RankRecord) -> dict[int, str]:
    """Return what activities are for, by their numbers, where the place tells it and the name does not."""
    found: dict[int, str] = {}
    for one in record.long_way.chains:
        found.update(dict.fromkeys(one.activities, NORMALISATION))
    for own in (*record.long_way.single.values(), *(one.activities for one in updated_by_hand(record))):
        found.update(dict.fromkeys(own, OPTIMISER))
    return {at: kind for at, kind in found.items() if kind_of(record.name[at]) in _UNTOLD}


def kernels_by_place(record: RankRecord) -> dict[Kernel, str]:
    """Return what a step's kernels are for whose place tells it, as `KernelTable.placed` has them."""
    kinds = kinds_by_place(record)
    rows = enumerate(zip(record.start, record.name, record.kind, strict=True))
    kernels = ((at, start, name) for at, (start, name, kind) in rows if kind == COMPUTE)
    return placed(kernels, record.edges, kinds) if kinds else {}
