"""Fully sharded: every rank holds a slice of each parameter, gathers a block's just before it runs, and scatters its
gradients just after (FSDP2, `fully_shard`)."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from train.compiling import hush_dynamo
from train.strategies.base import Strategy


class Fsdp2(Strategy):
    """torch's fully_shard, block by block. bf16 is a cast of the gathered parameters; the slices stay fp32."""

    def wrap(self) -> nn.Module:
        options = self.config.strategy
        mesh = init_device_mesh(self.device.type, (dist.get_world_size(),))
        policy = MixedPrecisionPolicy()
        if self.precision.parameters is not None:
            policy = MixedPrecisionPolicy(param_dtype=self.precision.parameters, reduce_dtype=torch.float32)
        if self.compiled:
            hush_dynamo()
        blocks = cast(Sequence[nn.Module], self.network.blocks)
        for block in blocks:
            if self.compiled:  # block by block: a graph over the whole would cut at each gather anyway
                block.compile(dynamic=False)
            fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=options.reshard_after_forward)
        fully_shard(self.network, mesh=mesh, mp_policy=policy)
        _prefetch(cast(Sequence[FSDPModule], blocks), options.prefetch)
        return self.network

    def forward_context(self) -> AbstractContextManager[object]:
        return super().forward_context() if self.precision.parameters is None else nullcontext()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        root = cast(FSDPModule, self.network)
        root.set_requires_gradient_sync(False)
        yield
        root.set_requires_gradient_sync(True)


def _prefetch(blocks: Sequence[FSDPModule], ahead: int) -> None:
    """Gather `ahead` blocks early; fully_shard itself gathers one, as far as the host runs ahead."""
    if ahead < 2:
        return
    for index, block in enumerate(blocks):
        block.set_modules_to_forward_prefetch(list(blocks[index + 1 : index + 1 + ahead]))
        block.set_modules_to_backward_prefetch(list(reversed(blocks[max(0, index - ahead) : index])))
