"""Data parallel: every rank holds the whole model, gradients are averaged in buckets during the backward pass."""

import inspect
from contextlib import AbstractContextManager

from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from train.compiling import compile_module
from train.strategies.base import Strategy


class Ddp(Strategy):
    """torch's DistributedDataParallel."""

    def wrap(self) -> nn.Module:
        options = self.config.strategy
        inside = self.compiled and options.compile_inside
        self._ddp = DistributedDataParallel(
            compile_module(self.network) if inside else self.network,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            bucket_cap_mb=options.bucket_mb,
            gradient_as_bucket_view=options.gradient_as_bucket_view,
            static_graph=options.static_graph,
            **_keep_buffers_local(),
        )
        if options.gradient_dtype == "bf16":
            self._ddp.register_comm_hook(None, bf16_compress_hook)
        # compiled from outside: the graph is then cut at bucket edges, and gradients travel while others are computed;
        # compiled inside, one backward hands all of them over at its end (pytorch#109774)
        return compile_module(self._ddp) if self.compiled and not inside else self._ddp

    def no_sync(self) -> AbstractContextManager[None]:
        return self._ddp.no_sync()


def _keep_buffers_local() -> dict[str, bool]:
    """Each rank's batch statistics are its own: no broadcast before a forward pass. torch 2.13 renamed the option."""
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}
