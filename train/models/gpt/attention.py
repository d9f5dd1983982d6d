"""Which of torch's attention kernels runs: chosen process-wide, and reported: it decides a seventh of a GPT's step."""

import torch
from torch.nn.attention import SDPBackend

from scalescope.records.errors import UserError
from scalescope.train.models.gpt.config import GptConfig

_SWITCHES = {
    "flash": torch.backends.cuda.enable_flash_sdp,  # also AOTriton's, on ROCm
    "cudnn": torch.backends.cuda.enable_cudnn_sdp,
    "efficient": torch.backends.cuda.enable_mem_efficient_sdp,
    "math": torch.backends.cuda.enable_math_sdp,
}
_NAMES = {
    SDPBackend.FLASH_ATTENTION.value: "flash",
    SDPBackend.CUDNN_ATTENTION.value: "cudnn",
    SDPBackend.EFFICIENT_ATTENTION.value: "efficient",
    SDPBackend.MATH.value: "math",
}


def choose_attention(name: str, device: torch.device) -> None:
    """Leave torch one kernel, or with `auto` the choice among all. Raises UserError for a GPU's kernel on a CPU."""
    if device.type == "cpu" and name in ("cudnn", "efficient"):
        raise UserError(f"model.attention={name} is a GPU's kernel, and this rank runs on a CPU; use auto")
    for kind, switch in _SWITCHES.items():
        switch(name in ("auto", kind))


def chosen_attention(config: GptConfig, device: torch.device, dtype: torch.dtype) -> str | None:
    """Return the kernel that torch takes for this model on this device, or None where it does not tell.

    Raises UserError where the one that was asked for does not take it.
    """
    shape = (1, config.heads, config.context, config.width // config.heads)  # (B, H, T, D)
    query = torch.empty(shape, device=device, dtype=dtype, requires_grad=True)
    try:
        choice = torch._fused_sdp_choice(query, query, query, None, 0.0, True)
    except (AttributeError, TypeError):  # not a public name
        return None
    except RuntimeError as error:
        if config.attention == "auto":
            return None
        raise UserError(f"model.attention={config.attention}: torch has no such kernel on this device for "
                        f"{str(dtype).removeprefix('torch.')} and heads {config.width // config.heads} wide; use "
                        "model.attention=auto") from error  # fmt: skip
    return _NAMES.get(int(choice))
