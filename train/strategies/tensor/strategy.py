"""Tensor parallel: ranks compute each layer together, a slice each. Of several such groups each is a replica, and FSDP2
slices what they hold over the replicas, so that a rank keeps a slice of a slice."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

from scalescope.train.models.compiling import hush_dynamo
from scalescope.train.strategies.base import Strategy
from scalescope.train.strategies.optimizers import build_optimizer
from scalescope.train.strategies.tensor.config import TensorConfig


class TensorParallel(Strategy[TensorConfig]):
    """The network's own slices as DTensors; with one rank a replica, the plain layers."""

    exchanges_forward = True

    def wrap(self) -> nn.Module:
        ranks = dist.get_world_size()
        self._degree = self.options.ranks_per_replica(ranks)
        self._replicas = ranks // self._degree
        if self._replicas == 1:  # a mesh over all ranks would take the default group, which does not say what it is for
            group = cast(dist.ProcessGroup, dist.new_group(group_desc="mesh_tp"))
            mesh = DeviceMesh.from_group(group, self.device.type, mesh_dim_names=("tp",))
        else:
            shape = (self._replicas, self._degree)
            mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("dp", "tp"))
        if self._degree > 1:
            self.network.slice_layers(mesh["tp"])
        if self.compiled:
            hush_dynamo()
            for block in self.network.blocks:
                block.compile(dynamic=False)
        if self._replicas > 1:
            policy = MixedPrecisionPolicy()
            if self._casts:
                policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            if self._degree > 1:
                mesh._flatten("dp_tp")  # so that a norm over both takes one all-reduce
            for part in (*self.network.blocks, self.network):
                fully_shard(part, mesh=mesh["dp"], mp_policy=policy)
        return self.network

    def build_optimizer(self) -> torch.optim.Optimizer:
        return build_optimizer(self.config.optimizer, self.network, sharded=self._degree * self._replicas > 1)

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        with nullcontext() if self._casts else super().forward_context(), self._loss_context():
            yield

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        if self._replicas == 1:
            yield
            return
        root = cast(FSDPModule, self.network)
        root.set_requires_gradient_sync(False)
        yield
        root.set_requires_gradient_sync(True)

    def backward(self, loss: Tensor) -> None:
        with self._loss_context():
            super().backward(loss)

    def evaluate(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return _local(super().evaluate(inputs, targets))

    def _forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return _local(super()._forward(inputs, targets))

    @property
    def _casts(self) -> bool:
        """Whether parameters are cast as FSDP2 gathers them; else autocast casts what is multiplied."""
        return self._replicas > 1 and self.precision.dtype is torch.bfloat16 and self.config.model.gathers_in_bf16

    def _loss_context(self) -> AbstractContextManager[object]:
        """Cross entropy of logits that no rank holds whole, in either direction."""
        return loss_parallel() if self._degree > 1 else nullcontext()


def _local(loss: Tensor) -> Tensor:
    """Return a loss, which every rank of a group has, as a plain tensor."""
    return loss.to_local() if isinstance(loss, DTensor) else loss
