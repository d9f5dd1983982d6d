"""Pipeline parallel: every rank has a stage of the layers, and micro-batches pass forward and back through all of them
(torch.distributed.pipelining)."""

from contextlib import nullcontext
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from scalescope.train.data.samples import Batch
from scalescope.train.models.compiling import hush_dynamo, uncompiled
from scalescope.train.models.network import Network, Stage, cut_stage
from scalescope.train.strategies.base import Strategy
from scalescope.train.strategies.optimizers import gradient_norm, scale_gradients
from scalescope.train.strategies.pipeline.config import STAGES_PER_RANK, PipelineConfig


class PipelineParallel(Strategy[PipelineConfig]):
    """One replica over all ranks. Only the last stage has the loss: there it counts for every rank, so that the mean
    over ranks is the job's, and no step waits for it to travel."""

    exchanges_forward = True

    def wrap(self) -> nn.Module:
        self._rank, ranks = dist.get_rank(), dist.get_world_size()
        each = STAGES_PER_RANK[self.options.schedule] if ranks > 1 else 1  # alone there is nothing to interleave
        self._count = ranks * each
        self._places = range(self._rank, self._count, ranks)  # of this rank's stages
        self._stages: list[Stage] = [
            cut_stage(self.config.model, self.network, place, self._count) for place in self._places
        ]
        # a group of its own, which says in traces what it is for, and has no other messages
        self._group = cast(dist.ProcessGroup, dist.new_group(group_desc="mesh_pp"))
        self._ends: dist.ProcessGroup | None = None  # the ranks of the first and of the last stage
        if ranks > 1:
            self._ends = cast(dist.ProcessGroup, dist.new_group([0, ranks - 1], group_desc="EMBEDDING_GROUP"))
        if self.compiled:
            hush_dynamo()
            for block in (block for stage in self._stages for block in stage.blocks):
                block.compile(dynamic=False)
        self._schedule: Any = None  # made of the first batch, which says how large micro-batches are
        whole = nn.ModuleList(self._stages)
        self.network = cast(Network, whole)  # the other ranks' stages are let go of
        return whole

    def train_step(self, batch: Batch, step: int) -> Tensor:
        inputs, targets = batch
        if self._schedule is None:
            self._schedule = self._make_schedule(inputs)
        losses: list[Tensor] = []
        self.arrive()
        with self.forward_context():
            self._schedule.step(
                *((inputs,) if 0 in self._places else ()),
                target=targets if self._has_loss else None,
                losses=losses if self._has_loss else None,
                return_outputs=False,
            )
        self._sum_shared()
        self.update(step)
        return self._for_all(torch.stack(losses).mean().detach() if losses else None)

    def clip_gradients(self) -> None:
        """Stages hold different parameters, but for the shared one, which counts on the first alone."""
        limit = self.config.optimizer.gradient_clip
        if limit is None:
            return
        own = [parameter for parameter in self.network.parameters() if parameter.grad is not None]
        again = self._stages[-1].shared if self._has_loss and not self._holds_both else None
        norm = gradient_norm([parameter for parameter in own if parameter is not again])
        squared = norm.square()
        dist.all_reduce(squared)
        scale_gradients([own], limit, squared.sqrt())

    def state(self) -> dict[str, Any]:
        return {f"rank{self._rank}": super().state()}  # of equal names in ranks' states one would be kept

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state[f"rank{self._rank}"])

    @torch.no_grad()
    def evaluate(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """All samples at once, stage by stage."""
        self.network.eval()
        loss, x, ranks = None, inputs, dist.get_world_size()
        with self.forward_context(), uncompiled() if self.compiled else nullcontext():
            for stage, place in zip(self._stages, self._places, strict=True):
                if place and ranks > 1:
                    x = torch.empty_like(stage.activations(len(inputs), self._dtype), device=self.device)
                    dist.recv(x, (self._rank - 1) % ranks, group=self._group)
                x = stage(x)
                if place == self._count - 1:
                    loss = stage.loss(x, targets)
                elif ranks > 1:
                    dist.send(x, (self._rank + 1) % ranks, group=self._group)
        self.network.train()
        return self._for_all(loss)

    @property
    def _has_loss(self) -> bool:
        return self._count - 1 in self._places

    @property
    def _holds_both(self) -> bool:
        return self._has_loss and 0 in self._places

    def _for_all(self, loss: Tensor | None) -> Tensor:
        """Return what of a loss is this rank's, so that the mean over ranks is the loss."""
        return torch.zeros((), device=self.device) if loss is None else loss.float() * dist.get_world_size()

    def _make_schedule(self, inputs: Tensor) -> Any:
        parts = self.options.microbatches
        rows = len(inputs) // parts
        stages = []
        for stage, place in zip(self._stages, self._places, strict=True):
            passed = stage.activations(rows, self._dtype).requires_grad_()  # else no gradient comes back for it
            taken = passed if place else inputs[:rows]
            stages.append(PipelineStage(stage, place, self._count, self.device, taken, passed, group=self._group))
        loss_of = self._stages[-1].loss if self._has_loss else lambda *_: None
        if len(stages) > 1:
            return ScheduleInterleaved1F1B(cast(Any, stages), parts, loss_fn=loss_of)
        return (ScheduleGPipe if self.options.schedule == "gpipe" else Schedule1F1B)(stages[0], parts, loss_fn=loss_of)

    @property
    def _dtype(self) -> torch.dtype:
        """What stages hand on is in: a bf16 job's residual stream is bf16."""
        return torch.bfloat16 if self.precision.dtype is torch.bfloat16 else torch.float32

    def _sum_shared(self) -> None:
        """Add up the gradients of the parameter that the first and the last stage hold."""
        if self._ends is None or not (self._has_loss or 0 in self._places):
            return
        shared = self._stages[0 if 0 in self._places else -1].shared
        if shared is not None:
            dist.all_reduce(cast(Tensor, shared.grad), group=self._ends)
