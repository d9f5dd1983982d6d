"""Whether what a rank says of itself tells that its parameters are sharded: FSDP names what it does, as DDP does."""

from collections.abc import Iterable

#: What annotations of sharded parameters begin with, and those of whole ones on each rank.
_SHARDED = ("FSDP::", "FullyShardedDataParallel", "fully_shard")
_WHOLE = "DistributedDataParallel.forward"


def tells_sharding(names: Iterable[str]) -> bool | None:
    """Return whether a trace's names tell that parameters are sharded over ranks; None where they tell neither."""
    found = None
    for name in names:
        if name.startswith(_SHARDED):
            return True
        if name == _WHOLE:
            found = False
    return found
