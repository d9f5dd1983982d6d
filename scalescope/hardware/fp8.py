"""Whether this machine's devices multiply matrices in fp8, and in which of the two layouts."""

import torch

FIRST_NVIDIA = (8, 9)  # compute capability: Ada; Hopper is 9.0
AMD = ("gfx942", "gfx950", "gfx1200", "gfx1201")  # CDNA 3 and 4, RDNA 4
AMD_OWN_LAYOUT = ("gfx940", "gfx941", "gfx942")  # fp8 without a negative zero, exponents counted from one more ("fnuz")


def fp8_obstacle() -> str | None:
    """Return why the first device does not multiply in fp8; None where it does. No context is made on the device."""
    if not torch.cuda.is_available():
        return "there is no GPU here"
    properties = torch.cuda.get_device_properties(0)
    if torch.version.hip:
        architecture = str(properties.gcnArchName)
        if architecture.partition(":")[0] in AMD:
            return None
        return f"{properties.name or 'this AMD GPU'} is {architecture}, and {', '.join(AMD)} alone multiply in fp8"
    capability = (properties.major, properties.minor)
    if capability >= FIRST_NVIDIA:
        return None
    return f"{properties.name} has compute capability {capability[0]}.{capability[1]}, below 8.9"


def fp8_dtype() -> torch.dtype:
    """Return the type with four bits of exponent and three of mantissa that the device multiplies."""
    if torch.version.hip and has_fnuz(str(torch.cuda.get_device_properties(0).gcnArchName)):
        return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn


def has_fnuz(architecture: str | None) -> bool:
    """Return whether a device takes fp8's bits for AMD's own layout, and so does RCCL on it (rccl_float8.h)."""
    return (architecture or "").partition(":")[0] in AMD_OWN_LAYOUT


def fp8_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return (M, N) bf16 of fp8 tensors left (M, K) and right (K, N), whose columns lie one after another."""
    one = torch.ones((), device=left.device)
    product: torch.Tensor = torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    return product
