"""What others measured on the same devices, so that a sweep can say whether a figure is normal. Torch-free."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """The best bus bandwidth on record of an operation over so many devices of one host."""

    device: str  # part of the device's name, lower case
    operation: str
    group_size: int
    bus_gb_s: float
    source: str


_ML_ENGINEERING = "stas00/ml-engineering, network"

PUBLISHED = (
    Published("h200", "all_reduce", 2, 344.2, "nccl-tests, NCCL 2.28.9, NVLS off, 4 GiB"),
    Published("h200", "all_reduce", 3, 360.1, "nccl-tests, NCCL 2.28.9, NVLS off, 4 GiB"),
    Published("h200", "all_reduce", 4, 362.5, "nccl-tests, NCCL 2.28.9, NVLS off, 4 GiB"),
    Published("h200", "all_reduce", 8, 367.2, f"{_ML_ENGINEERING}, NVLS off, 16 GiB (480 with NVLS)"),
    Published("h100", "all_reduce", 8, 367.0, "NVIDIA/nccl#1455, NVLS off (480 with NVLS)"),
    Published("mi300x", "all_reduce", 8, 312.9, f"{_ML_ENGINEERING}, 4 GiB"),
    Published("mi300x", "all_reduce", 2, 47.7, "ROCm/rccl#1270"),
)


def published_for(device: str, operation: str, group_size: int) -> Published | None:
    """Return the figure on record, or None where there is none for this device, operation and group size."""
    name = device.lower()
    for entry in PUBLISHED:
        if entry.device in name and (entry.operation, entry.group_size) == (operation, group_size):
            return entry
    return None
