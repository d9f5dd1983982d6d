"""A collective as a compiled program: alone, or many in a row in one loop, each after the one before it.

The loop carries what is sent (a) and what was received (b). Each pass receives anew from a, and hands a on only
through a barrier of the optimizer together with the new b: nothing on the device, but to XLA the next operation's
operand depends on this one's result, so that it can neither be hoisted out of the loop nor dropped, and there is never
more than one of them to combine. Where an operation gives back what it took, in number, it can be its own next
operand instead. XLA's all-reduce on a GPU always works in its operand's buffer: apart, it would be timed with a copy;
on a CPU it never does, and the other way round it is. So the program is taken in which XLA copies least.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch

from scalescope.collectives.dtypes import DTYPES
from scalescope.collectives.operations.operation import NotAvailable
from scalescope.collectives.transports.xla.hlo import held

AXIS = "ranks"
#: So that what is timed is one collective at a time, whatever a program holds.
_NO_COMBINING: dict[str, str | bool] = {
    f"xla_gpu_{name}_combine_threshold_bytes": "0"
    for name in ("all_reduce", "all_gather", "reduce_scatter", "collective_permute")
}
_BYTES = {"pred": 1, "bf16": 2}  # of XLA's element types whose name does not tell


@dataclass(frozen=True)
class Collective:
    """One collective on one rank's part: what JAX is told, and what XLA calls it."""

    apply: Callable[[Any], Any]
    hlo: str
    dtype: str
    on_itself: bool = False  # whether its result can be its next operand


@dataclass(frozen=True)
class Program:
    """A compiled program, and where it leaves the last result."""

    run: Callable[..., Any]
    on_itself: bool


@dataclass
class Buffers:
    """This rank's parts of what a program takes and gives back: sent, received, and a token that says it is done."""

    sent: Any
    received: Any
    token: Any


class Mesh:
    """The devices of one group, as JAX names them, and what lies on them."""

    def __init__(self, devices: list[Any], place: int) -> None:
        import jax
        import numpy
        from jax.sharding import NamedSharding, PartitionSpec

        self.mesh = jax.sharding.Mesh(numpy.array(devices), (AXIS,))
        self.size = len(devices)
        self.split, self.same = PartitionSpec(AXIS), PartitionSpec()
        self._split_over, self._same_on = (NamedSharding(self.mesh, spec) for spec in (self.split, self.same))
        self._device = devices[place]

    def put(self, tensor: torch.Tensor, dtype: str) -> Any:
        """Return a tensor's bits as this rank's part of an array over the group."""
        import jax
        import jax.numpy as jnp

        own = tensor.view(torch.uint8)
        own = own.clone() if own.device.type == "cpu" else own.cpu()  # JAX may keep what it is handed
        part = jax.device_put(own.numpy().view(jnp.dtype(dtype)), self._device)
        return jax.make_array_from_single_device_arrays((self.size * len(part),), self._split_over, [part])

    def zeros(self, elements: int, dtype: str) -> Any:
        """Return so many zeros a rank."""
        import jax
        import jax.numpy as jnp

        part = jnp.zeros(elements, jnp.dtype(dtype), device=self._device)
        return jax.make_array_from_single_device_arrays((self.size * elements,), self._split_over, [part])

    def token(self) -> Any:
        import jax
        import numpy

        part = jax.device_put(numpy.int32(0), self._device)
        return jax.make_array_from_single_device_arrays((), self._same_on, [part])


@cache
def options() -> dict[str, str | bool]:
    """Return the compiler's options for what is timed: those of them that this XLA knows."""
    import jax

    known = dict(_NO_COMBINING)
    while known:
        try:
            jax.jit(lambda one: one + 1).lower(1.0).compile(compiler_options=known)
            break
        except RuntimeError as error:
            unknown = [name for name in known if f"'{name}'" in str(error)]
            if not unknown:
                raise
            del known[unknown[0]]
    return known


def take(array: Any, into: torch.Tensor) -> None:
    """Copy this rank's part of an array, bit by bit, into a tensor."""
    import numpy

    part = numpy.array(array.addressable_shards[0].data).view(numpy.uint8)
    into.view(torch.uint8).copy_(torch.from_numpy(part))


def compile_program(mesh: Mesh, collective: Collective, buffers: Buffers, count: int) -> Program:
    """Return a program that runs the collective `count` times, and returns its new buffers.

    Raises NotAvailable where XLA cannot run it, or runs something else: fewer of them, or other element types.
    """
    copies: dict[int, Program] = {}
    for on_itself in (True, False) if collective.on_itself else (False,):
        run, text = _compile(mesh, collective, buffers, count, on_itself)
        _check(text, collective, count)
        copied = held(text, "copy", count).runs
        copies.setdefault(copied, Program(run, on_itself))
        if not copied:
            break
    return copies[min(copies)]


def _compile(
    mesh: Mesh, collective: Collective, buffers: Buffers, count: int, on_itself: bool
) -> tuple[Callable[..., Any], str]:
    """Return a program and its text. Raises NotAvailable where XLA has no such collective."""
    import jax
    from jax import lax

    def once(_: int, carried: tuple[Any, Any]) -> tuple[Any, Any]:
        sent, received = carried
        if on_itself:
            return collective.apply(sent), received
        received = collective.apply(sent)
        sent, _ = lax.optimization_barrier((sent, received))
        return sent, received

    def run(sent: Any, received: Any, token: Any) -> tuple[Any, Any, Any]:
        sent, received = lax.fori_loop(0, count, once, (sent, received))
        return sent, received, token + 1

    specs = (mesh.split, mesh.split, mesh.same)
    sharded = jax.shard_map(run, mesh=mesh.mesh, in_specs=specs, out_specs=specs, check_vma=False)
    try:
        lowered = jax.jit(sharded, donate_argnums=(0, 1)).lower(buffers.sent, buffers.received, buffers.token)
        program = lowered.compile(compiler_options=options())
    except NotImplementedError as error:
        raise NotAvailable(f"XLA here has no {collective.hlo}: {next(iter(str(error).splitlines()), '')}") from error
    return cast(Callable[..., Any], program), program.as_text() or ""


def _check(text: str, collective: Collective, count: int) -> None:
    found = held(text, collective.hlo, count)
    if found.runs != count:
        raise NotAvailable(f"XLA's program runs {found.runs} {collective.hlo} where it was told {count}")
    width = DTYPES[collective.dtype].itemsize
    if other := sorted(name for name in found.dtypes if _width(name) != width):
        raise NotAvailable(f"XLA moves {', '.join(other)} in the place of {collective.dtype} here: other bytes")


def _width(name: str) -> int:
    digits = "".join(filter(str.isdigit, name.split("e")[0]))  # f8e4m3fn has 8
    return _BYTES.get(name) or int(digits) // 8
