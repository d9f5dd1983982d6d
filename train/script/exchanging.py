"""Which modules of somebody else's script exchange something: looked for once, among the process's objects.

Those that `gc.freeze()` took out of Python's lists are found from the loop's own frames: from what its functions and
their modules name, and from what that holds.
"""

import gc
import inspect
import sys
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import nn
from torch.nn.parallel import DistributedDataParallel

_GATHERING = ("FSDPModule", "FullyShardedDataParallel")  # torch's FSDP2 and FSDP, by their classes' names

_DEEP = 4  # from a name of a frame: a trainer's attribute (its __dict__, and the value there), in a list at most
_MANY = 200_000  # objects looked at: a data set's samples may be named in a frame as well
_HELD_BY_ITS_FRAME = (
    3  # references to it: the frame's, a name's, and the call's that counts; else locals() gave it away
)
_NO_HOLDERS = (types.ModuleType, types.FunctionType, type, str, bytes, int, float)


class Exchanging(NamedTuple):
    """The modules that exchange something."""

    ddp: list[DistributedDataParallel]
    gathering: list[nn.Module]
    compiled: dict[int, nn.Module]  # by a module's id, the compiled one around it


def find_exchanging() -> Exchanging:
    """Look for them among the process's objects; to be called from the loop's own thread."""
    found = _sorted(one for one in gc.get_objects() if _is_module(one))
    if gc.get_freeze_count() and not (found.ddp or found.gathering):
        return _sorted(module for one in _named_in_frames() for module in one.modules())
    return found


def _sorted(modules: Iterable[Any]) -> Exchanging:
    found = Exchanging([], [], {})
    seen: set[int] = set()
    for one in modules:
        if id(one) in seen:
            continue
        seen.add(id(one))
        kind = type(one)
        if issubclass(kind, DistributedDataParallel):
            found.ddp.append(one)
        elif any(base.__name__ in _GATHERING for base in kind.__mro__):
            found.gathering.append(one)
        elif kind.__name__ == "OptimizedModule":
            found.compiled[id(one._orig_mod)] = one
    return found


def _is_module(one: object) -> bool:
    return issubclass(type(one), nn.Module)  # by its type: an object may claim to be of another class


def _named_in_frames() -> list[nn.Module]:
    """Return the modules that the frames of this thread name, or what these hold, down to `_DEEP`, once each."""
    frame = sys._getframe().f_back  # not its own, whose names would hold themselves
    level: list[Any] = []
    while frame is not None:
        level += [*_locals_of(frame), frame.f_globals]
        frame = frame.f_back
    modules: list[nn.Module] = []
    seen: set[int] = set()
    for _ in range(_DEEP + 1):
        held: list[Any] = []
        for one in level:
            if id(one) in seen or isinstance(one, _NO_HOLDERS):
                continue
            seen.add(id(one))
            if _is_module(one):
                modules.append(one)
            elif len(seen) < _MANY:
                held += gc.get_referents(one)
        level = held
    return modules


def _locals_of(frame: types.FrameType) -> list[Any]:
    """Return what a frame names, and leave no copy behind that would keep a step's tensors: Python before 3.13 does."""
    names = frame.f_locals
    values = list(names.values())
    is_a_copy = frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.version_info < (3, 13)
    if is_a_copy and sys.getrefcount(names) <= _HELD_BY_ITS_FRAME:
        names.clear()
    return values
