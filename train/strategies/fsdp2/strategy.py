"""Fully sharded: every rank holds a slice of each parameter, gathers a block's just before it runs, and scatters its
gradients just after (FSDP2, `fully_shard`)."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from scalescope.train.models.compiling import compile_apart
from scalescope.train.strategies.base import Strategy
from scalescope.train.strategies.fsdp2.config import Fsdp2Config
from scalescope.train.strategies.optimizers import build_optimizer


class Fsdp2(Strategy[Fsdp2Config]):
    """torch's fully_shard, block by block. bf16 is a cast of the gathered parameters; the slices stay fp32."""

    exchanges_forward = True

    def wrap(self) -> nn.Module:
        options = self.options
        group = None
        if options.cta_policy is not None:
            from scalescope.train.strategies.fsdp2.symmetric import gather_symmetrically, group_with_policy

            group = group_with_policy(options.cta_policy, self.device)
            mesh = DeviceMesh.from_group(group, self.device.type)
        else:
            mesh = init_device_mesh(self.device.type, (dist.get_world_size(),))
        policy = MixedPrecisionPolicy()
        if self._casts:
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        # it slices no other layout; a convolution turns its filters as it reads images in channels_last
        self.network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload] # torch's stub lacks it
        blocks = cast(Sequence[nn.Module], self.network.blocks)
        if self.compiled:  # block by block: a graph over the whole would cut at each gather anyway
            compile_apart(blocks)
        for block in blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=options.reshard_after_forward)
        fully_shard(self.network, mesh=mesh, mp_policy=policy)
        _prefetch(cast(Sequence[FSDPModule], blocks), options.prefetch)
        if group is not None:
            gather_symmetrically(cast(Sequence[FSDPModule], (*blocks, self.network)), group)
        return self.network

    def build_optimizer(self) -> torch.optim.Optimizer:
        return build_optimizer(self.config.optimizer, self.network, sharded=True)

    def forward_context(self) -> AbstractContextManager[object]:
        return nullcontext() if self._casts else super().forward_context()

    @property
    def _casts(self) -> bool:
        """Whether gathered parameters are cast; batch norms, whose statistics stay fp32, need autocast instead."""
        return self.precision.dtype is torch.bfloat16 and self.config.model.gathers_in_bf16

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
