"""The operations of one group of devices as XLA's, each as a call with its buffers bound.

A call by itself is for checking a result: it takes a tensor's bits, runs one program, and puts the bits back. What is
timed moves nothing between torch and JAX: programs follow one another on the arrays that the call has left.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from scalescope.collectives.operations.operation import Call, NotAvailable
from scalescope.collectives.transports.messages import Messages
from scalescope.collectives.transports.overlap import overlap
from scalescope.collectives.transports.refused import RefusedTransport
from scalescope.collectives.transports.rotation import Run
from scalescope.collectives.transports.xla import world
from scalescope.collectives.transports.xla.clock import ProgramClock
from scalescope.collectives.transports.xla.program import (
    AXIS,
    Buffers,
    Collective,
    Mesh,
    Program,
    compile_program,
    options,
    take,
)


def open_transport(messages: Messages, ranks: tuple[int, ...], rank: int) -> "XlaTransport | RefusedTransport":
    """Return this way, or, on every rank of the group alike, a closed one with the reason of one."""
    transport, reason = None, None
    try:
        transport = XlaTransport(ranks, rank)
    except (NotAvailable, RuntimeError, ValueError) as error:
        reason = f"JAX makes no mesh of the group: {error!s:.200}".replace("\n", " ")
    reasons = list(filter(None, messages.texts(reason)))
    return RefusedTransport(reasons[0]) if transport is None or reasons else transport


class BoundCollective:
    """One collective with its buffers, on one rank; its programs are compiled when they are first asked for."""

    def __init__(self, mesh: Mesh, collective: Collective, send: torch.Tensor, receive: torch.Tensor) -> None:
        self._mesh, self._collective = mesh, collective
        self._send, self._receive = send, receive
        self._programs: dict[int, Program] = {}
        self._buffers: Buffers | None = None

    def __call__(self) -> None:
        """Run it once from the tensor that is sent to the one that receives."""
        dtype = self._collective.dtype
        try:
            sent, received = self._mesh.put(self._send, dtype), self._mesh.zeros(self._receive.numel(), dtype)
            self._buffers = Buffers(sent, received, self._mesh.token())
            self.prepare(1)
            done = self.dispatch(1)
            take(done.sent if self._programs[1].on_itself else done.received, self._receive)
        except RuntimeError as error:
            if "RESOURCE_EXHAUSTED" in str(error):
                raise torch.OutOfMemoryError(f"XLA has no memory left for it: {str(error)[:120]}") from error
            raise

    def prepare(self, count: int) -> None:
        """Compile the program of so many. Raises NotAvailable where XLA cannot, or compiles something else."""
        if self._buffers is None:
            raise ValueError("a collective is run by itself before its programs are")
        if count not in self._programs:
            self._programs[count] = compile_program(self._mesh, self._collective, self._buffers, count)

    def dispatch(self, count: int) -> Buffers:
        """Dispatch the program of so many, and return its buffers at once; the next one waits for them."""
        buffers = self._buffers
        if buffers is None:
            raise ValueError("a collective is run by itself before its programs are")
        self._buffers = Buffers(*self._programs[count].run(buffers.sent, buffers.received, buffers.token))
        return self._buffers


class XlaTransport:
    """The collectives of a mesh of devices, one of each rank."""

    issued_by = None
    memory = "xla"

    def __init__(self, ranks: tuple[int, ...], rank: int) -> None:
        self._rank = ranks.index(rank)
        self._size = len(ranks)
        self._mesh = Mesh(world.one_device_a_rank(ranks), self._rank)
        self._latest: Any = None
        self.clock = ProgramClock(lambda: self._latest)
        self.compiled_with = f"{world.version()}, {' '.join(f'{key}={value}' for key, value in options().items())}"

    @property
    def compiled(self) -> "XlaTransport":
        return self

    def use(self, stream: object) -> None:
        """XLA has streams of its own."""

    def register(self, block: object) -> None:
        raise NotAvailable("XLA is not told of symmetric windows here; use transport=direct")

    def close(self) -> None:
        """Nothing to free: JAX keeps its communicators until the process ends."""
        self._latest = None

    def rotating(self, calls: Sequence[BoundCollective]) -> Run:
        """Return a function that dispatches so many programs of one operation each, one after another."""
        return self._dispatching(calls[0], 1)

    def chained(self, calls: Sequence[BoundCollective], count: int) -> Run:
        """Return a function that dispatches so many programs, each of which runs the operation `count` times."""
        calls[0].prepare(count)
        return self._dispatching(calls[0], count)

    def _dispatching(self, call: BoundCollective, count: int) -> Run:
        def run(programs: int) -> None:
            for _ in range(programs):
                self._latest = call.dispatch(count).token

        return run

    def all_reduce(self, send: torch.Tensor, receive: torch.Tensor, reduction: str) -> Call:
        from jax import lax

        ways = {"sum": lax.psum, "min": lax.pmin, "max": lax.pmax}
        if reduction not in ways:
            raise NotAvailable(f"XLA's all-reduce has no {reduction}: {', '.join(ways)} are its own")
        return self._bound("all-reduce", partial(ways[reduction], axis_name=AXIS), send, receive, on_itself=True)

    def all_gather(self, send: torch.Tensor, receive: torch.Tensor) -> Call:
        from jax import lax

        return self._bound("all-gather", partial(lax.all_gather, axis_name=AXIS, tiled=True), send, receive)

    def reduce_scatter(self, send: torch.Tensor, receive: torch.Tensor, reduction: str) -> Call:
        from jax import lax

        if reduction != "sum":
            raise NotAvailable(f"JAX's psum_scatter sums, and has no {reduction}")
        return self._bound("reduce-scatter", partial(lax.psum_scatter, axis_name=AXIS, tiled=True), send, receive)

    def broadcast(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Call:
        from jax import lax

        # a tuple: JAX looks through the letters of a name that stands alone
        apply = partial(lax.pbroadcast, axis_name=(AXIS,), source=root)
        return self._bound("collective-broadcast", apply, send, receive, on_itself=True)

    def all_to_all(self, send: torch.Tensor, receive: torch.Tensor) -> Call:
        from jax import lax

        apply = partial(lax.all_to_all, axis_name=AXIS, split_axis=0, concat_axis=0, tiled=True)
        return self._bound("all-to-all", apply, send, receive)

    def send_recv(self, send: torch.Tensor, receive: torch.Tensor, to: int, source: int) -> Call:
        from jax import lax

        step = (to - self._rank) % self._size  # every rank's neighbour is as far away
        pairs = [(rank, (rank + step) % self._size) for rank in range(self._size)]
        return self._bound("collective-permute", partial(lax.ppermute, axis_name=AXIS, perm=pairs), send, receive)

    def reduce(self, send: torch.Tensor, receive: torch.Tensor, reduction: str, root: int) -> Call:
        raise NotAvailable("XLA has no reduce to one rank")

    def gather(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Call:
        raise NotAvailable("XLA has no gather to one rank")

    def scatter(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Call:
        raise NotAvailable("XLA has no scatter from one rank")

    def barrier(self) -> Call:
        raise NotAvailable("XLA has no barrier that moves no data")

    def _bound(
        self,
        hlo: str,
        apply: Callable[[Any], Any],
        send: torch.Tensor,
        receive: torch.Tensor,
        *,
        on_itself: bool = False,
    ) -> Call:
        if overlap(send, receive):
            raise NotAvailable("XLA decides by itself where a result lies; its figures are of modes=out_of_place")
        collective = Collective(apply, hlo, str(send.dtype).removeprefix("torch."), on_itself)
        return BoundCollective(self._mesh, collective, send, receive)
