"""The arithmetic of a job: which type the matrix units multiply in."""

from contextlib import AbstractContextManager

import torch
from torch import nn

from scalescope.train.models.fp8 import convert_to_fp8
from scalescope.train.settings import PrecisionConfig

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}  # fp8: all but its products


class Precision:
    """Sets the process's fp32 mode once, and hands out the context that the forward pass runs in.

    `scaler` keeps fp16's small gradients from vanishing; for every other arithmetic it does nothing.
    """

    def __init__(self, config: PrecisionConfig, device: torch.device) -> None:
        self.kind = config.kind
        self._device = device
        self.dtype = _AUTOCAST.get(config.kind, torch.float32)  # what the matrix units read
        allow_tf32 = config.kind == "tf32"
        torch.set_float32_matmul_precision("high" if allow_tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = allow_tf32  # on by default in torch, and then fp32 would not be fp32

        self.scaler = torch.amp.GradScaler(device.type, enabled=config.kind == "fp16")

    def convert(self, network: nn.Module) -> None:
        """Change what of a network this arithmetic needs changed; before a strategy wraps it."""
        if self.kind == "fp8":  # no job gets this far on a CPU
            convert_to_fp8(network, emulate=self._device.type == "cpu")

    def context(self) -> AbstractContextManager[object]:
        """Weights stay fp32; autocast casts what the matrix units and convolutions read to bf16 or fp16."""
        dtype = _AUTOCAST.get(self.kind)
        return torch.autocast(self._device.type, dtype=dtype, enabled=dtype is not None)
