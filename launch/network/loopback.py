"""One host's ranks meet and talk on the loopback interface: no other host can reach what they listen at.

Neither torch's store nor gloo nor NCCL asks who is there, so a job is as safe as its sockets are out of reach. A store
listens on every interface whatever its address, unless it is given a socket that is bound already. torchrun's usual
rendezvous (c10d) keeps its state in the store as a pickle, which would run whatever a stranger writes there; the one
here keeps none.
"""

import os
import socket
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

from scalescope.records.stop import asked_to_end

BACKEND = "scalescope-loopback"  # its name among torchrun's rendezvous

_ADDRESS = "127.0.0.1"
_PENDING = 1024  # ranks that connect at once
_TIMEOUT = timedelta(seconds=60)  # only the launcher itself is to be awaited
_INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def is_loopback(address: str) -> bool:
    """Return whether an address means every host to itself, so that all who meet there are on one host."""
    return address in ("localhost", "::1") or address.startswith("127.")


def listening(address: str = _ADDRESS, port: int = 0) -> socket.socket:
    """Return a socket that listens at a loopback address alone; port 0 = any free one. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that a job has just left will do
        listener.bind((address, port))
        listener.listen(_PENDING)
    except OSError:
        listener.close()
        raise
    return listener


def stay_on_loopback() -> None:
    """Have gloo and NCCL (RCCL) listen on the loopback interface; what the user has set stays. For one host's ranks."""
    if "lo" in (name for _, name in socket.if_nameindex()):
        for variable in _INTERFACE_VARIABLES:
            os.environ.setdefault(variable, "lo")


def register() -> None:
    """Make the rendezvous known to torchrun's engine."""
    rendezvous_handler_registry.register(BACKEND, _make)


def _make(parameters: RendezvousParameters) -> RendezvousHandler:
    return _LoopbackRendezvous(parameters.run_id)


class _LoopbackRendezvous(RendezvousHandler):
    """The rendezvous of one launcher with itself: it serves the ranks' store, and nobody else ever joins.

    torchrun's engine asks it before it starts ranks, and again and again while they run. These are the moments at which
    a launcher that was asked to end leaves the engine: it then knows all that it has started, and ends them.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._rounds = 0
        listener = listening()
        self._port: int = listener.getsockname()[1]
        self._store = dist.TCPStore(_ADDRESS, self._port, is_master=True, timeout=_TIMEOUT, wait_for_workers=False,
                                    multi_tenant=True, master_listen_fd=listener.detach())  # fmt: skip

    @property
    def use_agent_store(self) -> bool:
        """Whether the ranks use this store for their own."""
        return True

    def get_backend(self) -> str:
        return BACKEND

    def get_run_id(self) -> str:
        return self._run_id

    def next_rendezvous(self) -> RendezvousInfo:
        """Return the store; every round, and so every restart of the ranks, has keys of its own."""
        _leave_where_asked_to()
        self._rounds += 1
        store = dist.PrefixStore(f"launcher/{self._rounds}", self._store)
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(_ADDRESS, self._port))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        return

    def num_nodes_waiting(self) -> int:
        _leave_where_asked_to()
        return 0

    def shutdown(self) -> bool:
        return True


def _leave_where_asked_to() -> None:
    if (ending := asked_to_end()) is not None:
        raise SignalException(f"asked to end by {ending.number.name}", ending.number)
