"""A GPT cut into the stages of a pipeline: blocks in equal numbers, embeddings first, norm and projection last.

The output projection is the token embedding itself: the first and the last stage both hold that weight, and its
gradient is the sum of theirs.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from scalescope.train.models.gpt.network import Gpt
from scalescope.train.models.network import Stage


class GptStage(Stage, Gpt):
    """Stage `stage` of `stages`; the earlier stages have the blocks that do not divide evenly."""

    def __init__(self, whole: Gpt, stage: int, stages: int) -> None:
        nn.Module.__init__(self)  # its parts are the whole network's
        self.recompute, self.fuses_loss = whole.recompute, whole.fuses_loss
        self.loss_by_eights = whole.loss_by_eights
        self._context, self._width = cast(tuple[int, int], whole.transformer["wpe"].weight.shape)
        self._first, self._last = stage == 0, stage == stages - 1
        each, more = divmod(len(whole.blocks), stages)
        begin = stage * each + min(stage, more)
        own = range(begin, begin + each + (stage < more))
        parts: dict[str, nn.Module] = {"h": nn.ModuleDict({str(at): whole.blocks[at] for at in own})}
        if self._first:
            parts |= {name: whole.transformer[name] for name in ("wte", "wpe")}
        if self._last:
            parts["ln_f"] = whole.transformer["ln_f"]
            self.lm_head = whole.lm_head
        self.transformer = nn.ModuleDict(parts)

    @property
    def blocks(self) -> Any:
        return list(cast(nn.ModuleDict, self.transformer["h"]).values())

    @property
    def shared(self) -> nn.Parameter | None:
        if not (self._first or self._last):
            return None
        return cast(nn.Parameter, self.transformer["wte"].weight if self._first else self.lm_head.weight)

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return the residual stream (B, T, C) behind this stage; x: tokens (B, T) where it is the first."""
        return self.run_blocks(self.embed(x) if self._first else x)

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        return self.predict(x, targets)

    def activations(self, samples: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(samples, self._context, self._width, dtype=dtype, device="meta")
