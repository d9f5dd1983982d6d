"""What an exception says of a job's end: a collective that waited for too long, or any other failure."""

import re

import torch.distributed as dist

from scalescope.records.rows import EndedBy

#: NCCL, gloo and the store have one type for all of their failures: whether time ran out is in their words alone.
_TIME_RAN_OUT = re.compile(r"time[d -]*out", re.IGNORECASE)


def ended_by_error(error: Exception) -> EndedBy:
    """Return what ended a rank that this error ended."""
    of_the_library = isinstance(error, dist.DistError | TimeoutError) or type(error) is RuntimeError
    return "hang" if of_the_library and _TIME_RAN_OUT.search(str(error)) else "failure"
