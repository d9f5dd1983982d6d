"""One launch, all group sizes: groups take turns, and a rank outside the group at work waits on the store.

Waiting on the store costs a look every few milliseconds on the host; no device is touched, so that an idle rank
takes no link, no multiprocessor and no power from those that measure.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, cast

import msgspec
import torch
import torch.distributed as dist

from scalescope.collectives.config import SweepConfig
from scalescope.collectives.measure.timing import Clock
from scalescope.collectives.operations.operation import NotAvailable, Transport
from scalescope.collectives.plan import Group
from scalescope.collectives.transports import direct, mpi
from scalescope.collectives.transports.c10d import C10dTransport
from scalescope.collectives.transports.messages import Messages, form
from scalescope.collectives.transports.refused import RefusedTransport
from scalescope.collectives.transports.rotation import IssuedBy, Run
from scalescope.collectives.transports.xla import transport as xla
from scalescope.collectives.transports.xla import world as xla_world
from scalescope.launch.job import Job
from scalescope.records.rows import SweepRow

_LOOK_S = 0.01
_xla_said: list[str | None] = []  # how this process's one attempt to join a world of JAX came out, for all ranks alike


class Compiled(Protocol):
    """What a transport has whose operations run inside compiled programs, on no stream of torch's."""

    @property
    def clock(self) -> Clock: ...

    @property
    def memory(self) -> str:
        """Return whose allocator its buffers are from."""

    @property
    def compiled_with(self) -> str:
        """Return the compiler and its options."""

    def chained(self, calls: Sequence[Any], count: int) -> Run:
        """Return a function that runs so many programs of `count` operations each; compiling may be refused."""


class OpenTransport(Transport, Protocol):
    """A transport that was opened for a group."""

    @property
    def compiled(self) -> Compiled | None:
        """Return what programs need; None where operations are enqueued one by one."""

    @property
    def issued_by(self) -> IssuedBy | None:
        """Return the language of the loop that enqueues eager operations; None where nothing can be."""

    def rotating(self, calls: Sequence[Any]) -> Run:
        """Return a function that runs so many of this transport's calls, all the same operation, going round them."""

    def use(self, stream: torch.cuda.Stream) -> None:
        """Run on this stream from here on, as a graph's capture needs it."""

    def register(self, block: torch.Tensor) -> None:
        """Make memory known to the group. Raises NotAvailable or RuntimeError where this way cannot."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class GroupMember:
    """One rank's place in the group at work."""

    messages: Messages
    transport: OpenTransport


@contextmanager
def turn(job: Job[SweepConfig], group: Group) -> Iterator[GroupMember | None]:
    """Give this rank its place in the group whose turn it is, or None where it is outside.

    Every rank of the job enters, since torch forms a group with all of them. A process group stays until the job
    ends: ending a NCCL one that was split from the default group, while that lives on, can wait for ever.
    """
    configured = bool(library_settings(group))
    everyone = len(group.ranks) == job.world.size
    timeout_s = job.config.launch.timeout_s
    host_group, process_group = job.host_group, cast(dist.ProcessGroup, dist.group.WORLD)
    if not everyone:  # the default groups span everyone
        host_group = form(group.ranks, timeout_s, "gloo")
    if group.transport == "c10d" and (not everyone or configured):  # settings count for fresh communicators only
        process_group = form(group.ranks, timeout_s, options=_options(job, group))
    refused = _join_xla(job) if group.transport == "xla" else None
    if job.world.rank not in group.ranks:
        yield None
        return
    messages = Messages(host_group, group.ranks, job.world.rank)
    with _environment(group), _stream(job, group):
        transport = cast(OpenTransport, refused) if refused else _open(job, group, process_group, messages)
        yield GroupMember(messages=messages, transport=transport)
        transport.close()


def library_settings(group: Group) -> dict[str, str]:
    """Return what a communicator is told instead of choosing, by the library's names."""
    settings = {"NCCL_ALGO": group.algorithm, "NCCL_PROTO": group.protocol, "CTAs": group.channels}
    return {name: str(value) for name, value in settings.items() if value is not None}


@contextmanager
def _environment(group: Group) -> Iterator[None]:
    """Set the variables that NCCL and RCCL read whenever a communicator forms."""
    variables = {name: value for name, value in library_settings(group).items() if name.startswith("NCCL_")}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _options(job: Job[SweepConfig], group: Group) -> object:
    """Return torch's options for the group's communicator; the library reads their variables once a process."""
    if group.channels is None or job.backend != "nccl":
        return None
    options = dist.ProcessGroupNCCL.Options()
    options.config.min_ctas = options.config.max_ctas = group.channels
    return options


def _join_xla(job: Job[SweepConfig]) -> RefusedTransport | None:
    """Make the job's ranks a world of JAX, which takes all of them. Returns the reason of one that cannot, on all.

    A process can try once: after a failure JAX calls itself joined, and would measure in a world without the others.
    """
    if not _xla_said:
        _xla_said.append(_agree_on_xla(job))
    return RefusedTransport(_xla_said[0]) if _xla_said[0] is not None else None


def _agree_on_xla(job: Job[SweepConfig]) -> str | None:
    everyone = Messages(job.host_group, tuple(range(job.world.size)), job.world.rank)
    reason = xla_world.refusal(job.device)
    if not (reasons := list(filter(None, everyone.texts(reason)))):
        try:
            one_host = len({device.host for device in job.devices}) == 1
            xla_world.join(everyone, job.device, one_host, job.config.launch.timeout_s)
        except (NotAvailable, RuntimeError) as error:
            reason = f"JAX joined no world: {error!s:.200}".replace("\n", " ")
        reasons = list(filter(None, everyone.texts(reason)))
    return reasons[0] if reasons else None


def _open(job: Job[SweepConfig], group: Group, process_group: dist.ProcessGroup, messages: Messages) -> OpenTransport:
    if group.transport == "direct":
        return cast(OpenTransport, direct.open_transport(messages, job.device, group.channels, group.cta_policy))
    if group.cta_policy is not None:
        why = f"cta_policy is told to the library itself, and this is transport={group.transport}; use direct"
        return cast(OpenTransport, RefusedTransport(why))
    if group.transport == "xla":
        return cast(OpenTransport, xla.open_transport(messages, group.ranks, job.world.rank))
    if group.transport == "mpi":
        reason = mpi.refusal(job.world.rank, job.world.size, job.world.source, job.device)
        if reasons := list(filter(None, messages.texts(reason))):
            return cast(OpenTransport, RefusedTransport(reasons[0]))
        return mpi.MpiTransport(group.ranks)
    return C10dTransport(process_group, group.ranks, job.device)


def _stream(job: Job[SweepConfig], group: Group) -> AbstractContextManager[object]:
    # the library by itself runs as nccl-tests runs it, on a stream that waits for no other; torch.distributed
    # runs where training calls it
    if group.transport == "direct" and job.device.type == "cuda":
        return torch.cuda.stream(torch.cuda.Stream(job.device))
    return nullcontext()


class RowTransfer:
    """How rows get from a group's first rank to rank 0, which alone writes them."""

    def __init__(self, job: Job[SweepConfig], group: Group) -> None:
        self._store = dist.PrefixStore(f"sweep/{group.index}", job.store)

    def send(self, number: int, row: SweepRow) -> None:
        """Hand a row to rank 0."""
        self._store.set(f"row/{number}", msgspec.json.encode(row).decode())

    def receive(self, number: int) -> SweepRow:
        """Wait for a row of a group that rank 0 is outside of."""
        _await(self._store, f"row/{number}")
        return msgspec.json.decode(self._store.get(f"row/{number}"), type=SweepRow)

    def finish(self) -> None:
        """Say that the group's turn is over."""
        self._store.set("done", "1")

    def await_finish(self) -> None:
        """Wait until it is; for ranks outside the group."""
        _await(self._store, "done")


def _await(store: dist.Store, key: str) -> None:
    # looking now and then instead of a blocking wait: Ctrl-C gets through, and the store stays free for others
    while not store.check([key]):
        time.sleep(_LOOK_S)
