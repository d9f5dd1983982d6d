"""In which precision each of a CPU's activities computes, as far as shapes were recorded.

That is what its products have, where it has any: what autocast is given is dearer than what it multiplies. Of any other
it is the dearest type of its tensors, which is what it reads or writes most of.
"""

import numpy as np

from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.trace.communication_args import MULTIPLIES
from scalescope.scaling.trace.trace import Trace

#: Calls another of those that multiply, of which it is a part.
_CALLS_OTHERS = "aten::linear"


def precisions_of(trace: Trace, record: RankRecord, thread: int) -> list[int]:
    """Return the place in PRECISIONS, from 1 on, of each activity that `thread` computes; 0 where that is not told."""
    found = np.zeros(len(record.start), np.int64)
    computing = np.flatnonzero(np.array(record.kind, np.int64) == COMPUTE)
    told = trace.precisions
    if not told.row.size or not computing.size:
        return []
    starts, ends = (np.array(times, np.int64)[computing] for times in (record.start, record.end))
    began = trace.operators.start[told.row] + trace.header.base_ns
    at = np.searchsorted(starts, began, side="right") - 1
    inside = (trace.operators.thread[told.row] == thread) & (at >= 0) & (began < ends[np.maximum(at, 0)])
    by_name = np.array([name in MULTIPLIES and name != _CALLS_OTHERS for name in trace.names], bool)
    products = by_name[trace.operators.name[told.row]]
    of_products = np.zeros(computing.size, np.int64)
    of_any = np.zeros(computing.size, np.int64)
    for chosen, dearest in ((inside & products, of_products), (inside, of_any)):
        np.maximum.at(dearest, at[chosen], told.place[chosen])
    found[computing] = np.where(of_products > 0, of_products, of_any)
    return [int(place) for place in found]
