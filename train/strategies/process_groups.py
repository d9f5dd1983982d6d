"""How DDP's process group ends: let go of by Python, whatever is let go of first.

torch's reducer of gradients holds its process group, and where that is the last reference, as after
`destroy_process_group`, the group ends in the reducer's destructor, which keeps Python's lock. gloo's destructor waits
for its threads; one of them may still be letting go of the last backward pass's context (torch 2.13 keeps the caller's
thread-local state with each collective), for which it needs that lock: both wait for ever, where a busy core made the
thread a little late. A group that Python lets go of last gives the lock away meanwhile.
"""

import weakref
from typing import Any

from torch.nn.parallel import DistributedDataParallel

_kept_for: "weakref.WeakSet[Any]" = weakref.WeakSet()


def keep_group_for_reducer(ddp: DistributedDataParallel) -> None:
    """Let Python hold the process group of a DDP module until its reducer has gone, and no longer."""
    # the logger holds the reducer, and a module whose construction failed has neither
    for holder in (getattr(ddp, "logger", None), getattr(ddp, "reducer", None)):
        if holder is None or holder in _kept_for:
            continue
        _kept_for.add(holder)
        # called after the holder's destructor, and the last reference to what it is called with goes with it
        weakref.finalize(holder, _let_go, ddp.process_group).atexit = False


def _let_go(_: object) -> None:
    """Nothing more."""
