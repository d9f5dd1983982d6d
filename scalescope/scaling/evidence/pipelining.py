"""What torch's pipeline schedules say of themselves: which micro-batches pass through which of a rank's stages.

A schedule with several stages a rank annotates each of its actions, `PP:2F1` for the forward pass of micro-batch 1
through stage 2. Between two ranks nothing else tells it from a plain schedule of more micro-batches: either way each
rank works on what it receives, and sends it on.
"""

import re

import msgspec
import numpy as np

from scalescope.scaling.trace.trace import Trace

_FORWARD = re.compile(r"PP:(\d{1,6})F(\d{1,6})")


class ForwardPasses(msgspec.Struct, frozen=True):
    """Of one rank in a step."""

    stages: int
    micro_batches: int


def forward_passes(trace: Trace) -> ForwardPasses | None:
    """Return through how many stages how many micro-batches pass; None where no annotation tells."""
    names = [trace.names[name] for name in np.unique(trace.annotations.name).tolist()]
    passes = [(int(found[1]), int(found[2])) for name in names if (found := _FORWARD.fullmatch(name))]
    if not passes:
        return None
    return ForwardPasses(len({stage for stage, _ in passes}), len({part for _, part in passes}))
