"""What a loop calls by name, and where it calls backward(): an operator of torch's own begins it, whose name says
nothing of that.

A backward pass of one loss begins with the gradient of that loss, which is one: `aten::ones_like`. A loop may run that
operator anywhere. It begins a backward pass where no other one is around it, and the next thing that any thread which
drives training begins is autograd's own frame, on the loop's thread on a CPU and on another one on a GPU.
"""

import re

import numpy as np
import numpy.typing as npt

from scalescope.scaling.trace.families import ENGINE_FRAMES
from scalescope.scaling.trace.intervals import Ints

#: What a backward pass is called, in the names that evidence has for calls of the loop.
BACKWARD_CALL = "autograd.backward"
#: Other calls of a loop, by their annotations, that begin with operators which nobody calls by name, such as a
#: broadcast of buffers.
LOOP_CALLS = re.compile(r"(DistributedDataParallel|FullyShardedDataParallel)\.forward|Optimizer\.step#")
#: A place lies before such a call whose last part alone that is, and most of the place's time does.
BEFORE_CALL = 0.9
_FIRST_GRADIENT = "aten::ones_like"


def backward_begins(starts: Ints, ends: Ints, name: npt.NDArray[np.int32], names: list[str]) -> Ints:
    """Return when the operators begin with which backward passes do, ascending.

    The operators, of all threads that drive training, ascend by when they start.
    """
    rows = np.flatnonzero(np.array([one == _FIRST_GRADIENT for one in names], bool)[name])
    if not rows.size:
        return starts[:0]
    reach = np.maximum.accumulate(ends)
    following = np.searchsorted(starts, ends[rows], side="left")
    frames = np.array([one.startswith(ENGINE_FRAMES) for one in names], bool)
    outermost = (rows == 0) | (reach[np.maximum(rows - 1, 0)] <= starts[rows])
    leads = following < starts.size
    leads &= frames[name[np.minimum(following, starts.size - 1)]]
    begins: Ints = starts[rows[outermost & leads]]
    return begins
