"""How many steps of a window all ranks record: as many as the rank with the most operators a step has room for.

A rank that went on alone would wait for one that ends its recording and writes it, and would record that.
"""

import torch.distributed as dist


class AgreedEnd:
    """What the ranks of a job tell one another of their windows, by its key-value store; nobody waits for anybody.

    Each tells what it has room for a step before the window opens, and looks once it does: between lies a step in which
    they exchange data. A rank whose host runs a whole step ahead of another's may look too early, and go on alone.
    """

    def __init__(self, store: dist.Store, key: str) -> None:
        self._store = dist.PrefixStore(f"scalescope/{key}/window", store)

    def tell(self, window: int, steps: int) -> None:
        """Say that this rank records so many steps of the window that begins with a step."""
        self._store.set(f"{window}/{steps}", "")

    def least(self, window: int, steps: int) -> int:
        """Return what the rank that records least does, as far as that is told; of a rank that records none nothing."""
        return next((one for one in range(1, steps) if self._store.check([f"{window}/{one}"])), steps)
