"""Which of a host's operators are an optimizer's, that it runs one by one: several for each parameter, or for all.

A fused one is a single operator, which reads and writes what it needs once. What each of many reads and writes does not
fit the caches of a core, and each makes a tensor that is gone with the next.
"""

import bisect
import re
from collections.abc import Iterator

from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE

#: What torch's optimizers say that they do which have a fused form on CPUs, and gain much by it. SGD has one, and reads
#: and writes little else without it.
STEPPING = re.compile(r"Optimizer\.step#(Adam|AdamW|Adagrad)\.step")
#: What such optimizers run where they are not fused. A closure's forward and backward passes stand before that.
_OPERATIONS = re.compile(
    r"aten::(_foreach_)?(lerp|mul|addcmul|addcdiv|sqrt|div|add|sub|neg|pow|maximum|reciprocal|rsqrt|copy|zero|fill)_?"
    r"|aten::(item|_local_scalar_dense|zeros_like|clone|to|detach|result_type)"
)
#: Gradients that hold some rows alone, which no fused optimizer takes.
_SPARSE = re.compile("sparse|coalesce")
#: A fused one, beside which a hook of the step may run what it likes.
_FUSED = "::_fused_"


def single_operations(record: RankRecord) -> dict[str, list[int]]:
    """Return what of a host's operators are an optimizer's, ascending, by the name of its step; none if it is fused.

    Of the operators within a step these are the last ones, up to what no optimizer runs.
    """
    found: dict[str, list[int]] = {}
    for begun, over, name in record.phases:
        if STEPPING.fullmatch(name):
            found.setdefault(name, []).extend(reversed(list(_last_ones(record, begun, over))))
    return {name: own for name, own in found.items() if own}


def _last_ones(record: RankRecord, begun: int, over: int) -> Iterator[int]:
    first, until = (bisect.bisect_left(record.start, edge) for edge in (begun, over))
    within = [at for at in range(first, until) if record.end[at] <= over and record.kind[at] == COMPUTE]
    if any(_SPARSE.search(record.name[at]) or _FUSED in record.name[at] for at in within):
        return
    stream = record.stream[within[-1]] if within else -1  # of the loop: what other threads run is none of its
    for at in reversed(within):
        if record.stream[at] != stream:
            continue
        if not _OPERATIONS.fullmatch(record.name[at]):
            return
        yield at
