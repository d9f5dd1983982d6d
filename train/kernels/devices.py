"""Where Triton builds kernels: on AMD's GPUs, and on NVIDIA's from Volta on; in bf16 from Ampere on, which has it."""

from importlib.util import find_spec

import torch

_HAS_TRITON = find_spec("triton") is not None  # torch for CPUs comes without
_VOLTA, _AMPERE = (7, 0), (8, 0)


@torch.compiler.assume_constant_result
def triton_takes(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether Triton is there, and builds kernels that read and write this type on this device."""
    if not _HAS_TRITON or device.type != "cuda":
        return False
    least = _AMPERE if dtype is torch.bfloat16 else _VOLTA
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= least
