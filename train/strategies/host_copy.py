"""The copy of a rank's state on the host that a save in the background writes: its memory is the same in every save.

A GPU copies to pinned memory directly, and to other memory through the driver's own, page by page. To pin takes long,
so what was pinned is kept from save to save: as much as the state takes. Where the host has none left to pin, the copy
lies in pageable memory, which is kept as well.
"""

from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.distributed.checkpoint.staging import DefaultStager


class HostCopy:
    """One copy of a state, which the next one overwrites: not before whoever writes the last one has done so."""

    def __init__(self, device: torch.device) -> None:
        self._pinned = device.type == "cuda" and torch.cuda.is_available()
        self._stager: DefaultStager | None = None
        self._reader: Future[object] | None = None

    def take(self, state: dict[str, Any]) -> Any:
        """Return the state on the host, which the device has made when this returns."""
        if self._reader is not None:
            wait([self._reader])  # how it ended is its own caller's business
            self._reader = None
        try:
            return self._copied(state)
        except RuntimeError:
            if not self._pinned:
                raise
            self._pinned = False  # no more memory can be pinned
            assert self._stager is not None
            self._stager.close()
            self._stager = None
            return self._copied(state)

    def lend(self, reader: "Future[object]") -> None:
        """Keep the copy as it is until somebody has read it."""
        self._reader = reader

    def _copied(self, state: dict[str, Any]) -> Any:
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions  # a second to load

        if self._stager is None:
            # no shared memory, neither a thread nor a stream of its own; the last one's name has changed. Only pinned
            # memory is copied to without waiting for each tensor
            self._stager = DefaultStager(StagingOptions(self._pinned, False, False, self._pinned))
        return self._stager.stage(state)
