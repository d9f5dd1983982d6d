"""The arithmetic of a job: which type the matrix units multiply in."""

from contextlib import AbstractContextManager

import torch

from train.config import PrecisionConfig


class Precision:
    """Sets the process's fp32 mode once, and hands out the context that the forward pass runs in."""

    def __init__(self, config: PrecisionConfig, device: torch.device) -> None:
        self.kind = config.kind
        self._device = device
        allow_tf32 = config.kind == "tf32"
        torch.set_float32_matmul_precision("high" if allow_tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = allow_tf32  # on by default in torch, and then fp32 would not be fp32

    def context(self) -> AbstractContextManager[object]:
        """Weights stay fp32; with bf16, autocast casts what the matrix units and convolutions read."""
        return torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self.kind == "bf16")
