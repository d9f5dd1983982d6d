"""Data parallel: every rank holds the whole model, gradients are averaged in buckets during the backward pass."""

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from scalescope.train.models.compiling import compile_module
from scalescope.train.strategies.base import Strategy
from scalescope.train.strategies.ddp.config import DdpConfig
from scalescope.train.strategies.ddp.nvlink import are_joined_by_nvlink
from scalescope.train.strategies.process_groups import keep_group_for_reducer


class Ddp(Strategy[DdpConfig]):
    """torch's DistributedDataParallel."""

    exchanges_beside_backward = True

    def wrap(self) -> nn.Module:
        options = self.options
        # compiled around DDP, a graph is cut at bucket edges: gradients travel while others are computed. Compiled
        # whole, one backward hands all of them over at its end (pytorch#109774), which costs nothing on one rank, and
        # less than the cuts do where links are as fast as NVLink
        if self.compiled:
            self.compiled_by_bucket = options.cuts_graph(dist.get_world_size(), are_joined_by_nvlink(self.device))
        whole = self.compiled_by_bucket is False
        self._ddp = DistributedDataParallel(
            compile_module(self.network) if whole else self.network,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            bucket_cap_mb=options.bucket_mib,
            gradient_as_bucket_view=options.gradient_as_bucket_view,
            static_graph=options.static_graph,
            **_keep_buffers_local(),
        )
        keep_group_for_reducer(self._ddp)
        if options.gradient_dtype == "bf16":
            self._ddp.register_comm_hook(None, bf16_compress_hook)
        return compile_module(self._ddp) if self.compiled and not whole else self._ddp

    def forward_context(self) -> AbstractContextManager[object]:
        context = super().forward_context()
        return _in_one_graph(context) if self.compiled_by_bucket is False else context

    def no_sync(self) -> AbstractContextManager[None]:
        return self._ddp.no_sync()


@contextmanager
def _in_one_graph(context: AbstractContextManager[object]) -> Iterator[None]:
    """Keep Dynamo from cutting what it compiles while DDP's forward pass runs, in this context alone."""
    with torch._dynamo.config.patch(optimize_ddp=False), context:
        yield


def _keep_buffers_local() -> dict[str, Any]:
    """Each rank's batch statistics are its own: no broadcast before a forward pass. torch 2.13 renamed the option."""
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}
