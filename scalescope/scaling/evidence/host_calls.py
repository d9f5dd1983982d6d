"""What runtime and driver calls mean to the host, by name: CUDA's beside HIP's.

The patterns match at the name's begin. Extending a family is a line.

A collective of Python objects (`all_gather_object`, `broadcast_object_list`) has no name, and is known by the operators
that torch makes of it. The object is pickled first, of which nothing is recorded. Its bytes become a tensor that is
laid over them (`aten::empty`, `aten::set_`), their count another; ranks exchange the counts, then the bytes, which are
unpickled. A host that pickles for long seems to stand still before an `aten::empty`.
"""

import re
from collections.abc import Sequence

import numpy as np

from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import Ids

#: Calls that return when the device has done something.
SYNCHRONISING = re.compile(
    r"(cuda|hip|cu)(Device|Ctx|Stream|Event)Synchronize"
    r"|(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol|WithStream|DtoH|HtoD|DtoD)?(_ptds|_spt|_v\d+)?$"
    r"|cuMemcpy(DtoH|HtoD|DtoD|2D|3D)?(_v2)?(_ptds)?$"
)

#: Copies that need not wait, and do where the host's memory is pageable or the device's queue is full.
ASYNCHRONOUS_COPY = re.compile(r"(cuda|hip|cu)Mem(cpy|set)\w*Async")

#: Calls that take memory from the driver, or give it back. A free waits until the device has done everything.
ALLOCATING = re.compile(
    r"(cuda|hip)(Malloc|ExtMalloc)|(cuda|hip)Host(Alloc|Malloc|Register)"
    r"|cuMem(Alloc|Host|Create|Map|SetAccess|AddressReserve)"
    r"|(cuda|hip)(Free(?!ze)|HostFree|HostUnregister)|cuMem(Free|Release|Unmap|AddressFree)"
)

#: Calls that load a kernel's code: it was just compiled, or runs for the first time.
LOADING_CODE = re.compile(r"(cu|hip)(ModuleLoad|LibraryLoad)|cudaLibraryLoad")

#: What torch calls it, by the operator that exchanges the bytes.
OBJECT_COLLECTIVES = {
    "c10d::allgather_": "all_gather_object",
    "c10d::gather_": "gather_object",
    "c10d::broadcast_": "broadcast_object_list",
    "c10d::scatter_": "scatter_object_list",
    "c10d::send": "send_object_list",
}
OBJECTS_BEGIN_WITH = "aten::empty"
_LAID_OVER = "aten::set_"
#: The operators that each of its parts makes at most: a dozen for an object, of several in a list.
_MOST_OPERATORS = 80
#: What reads the bytes.
_READS = frozenset({
    "aten::to", "aten::_to_copy", "aten::copy_", "aten::detach", "detach", "aten::resolve_conj", "aten::resolve_neg",
    "aten::item", "aten::_local_scalar_dense", "aten::slice", "aten::select", "aten::as_strided", "aten::view",
    "aten::empty", "aten::empty_strided", "aten::narrow", "aten::type_as",
})  # fmt: skip
#: What lays the bytes and their count out, and finds the largest count. A loop that hands a batch of a loader's
#: worker, which is laid over shared memory, to DDP, which broadcasts buffers, runs others between the two.
_LAYS_OUT = _READS | {
    "aten::set_", "aten::lift_fresh", "aten::zeros", "aten::zero_", "aten::unsqueeze", "aten::cat", "aten::gt",
    "aten::max", "aten::sum", "aten::is_nonzero", "aten::resize_", "aten::detach_", "detach_", "aten::fill_",
    "aten::full", "aten::type", "aten::clone", "aten::expand", "aten::reshape",
}  # fmt: skip


def object_collectives(starts: Ints, ends: Ints, name: Ids, names: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return (begin, end, name) of each collective of objects among one thread's operators, which ascend by start.

    It begins with what is laid over the bytes, and ends with the last operator that reads what came.
    """
    known = {text: at for at, text in enumerate(names)}
    laid, empty = known.get(_LAID_OVER), known.get(OBJECTS_BEGIN_WITH)
    if laid is None or empty is None or known.keys().isdisjoint(OBJECT_COLLECTIVES):
        return []
    first = np.flatnonzero((name[1:] == laid) & (name[:-1] == empty))
    found: list[tuple[int, int, str]] = []
    for row in first.tolist():
        if found and starts[row] < found[-1][1]:
            continue  # another object of the same list
        if (own := _one(row, name, names)) is not None:
            last, what = own
            found.append((int(starts[row]), int(ends[row : last + 1].max()), what))
    return found


def _one(row: int, name: Ids, names: Sequence[str]) -> tuple[int, str] | None:
    """Return the last row of the collective whose bytes are laid out at this one, and what it is; None for none."""
    exchanged: list[str] = []
    at = since = row
    while at + 1 < name.size and at - since < _MOST_OPERATORS and len(exchanged) < 2:
        at += 1
        text = names[name[at]]
        if text in OBJECT_COLLECTIVES:
            exchanged.append(text)
            since = at
        elif text not in _LAYS_OUT:
            return None
    if len(exchanged) < 2:
        return None
    while at + 1 < name.size and names[name[at + 1]] in _READS and at - since < _MOST_OPERATORS:
        at += 1
    what = "c10d::scatter_" if "c10d::scatter_" in exchanged else exchanged[-1]
    return at, OBJECT_COLLECTIVES[what]
