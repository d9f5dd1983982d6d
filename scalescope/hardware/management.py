"""The vendors' libraries that tell about a device, NVIDIA's NVML and AMD's amdsmi, asked one question at a time."""

from collections.abc import Callable
from typing import Any, TypeVar

from scalescope.records.environment import module_or_none

T = TypeVar("T")


def ask_nvml(question: Callable[[Any], T | None]) -> T | None:
    """Return what `question`, given the pynvml module ready for use, returns; None where NVML does not answer."""
    nvml = module_or_none("pynvml")
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
        try:
            return question(nvml)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return None


def ask_amdsmi(question: Callable[[Any], T | None]) -> T | None:
    """Return what `question`, given the amdsmi module ready for use, returns; None where amdsmi does not answer."""
    smi = module_or_none("amdsmi")
    if smi is None:
        return None
    try:
        smi.amdsmi_init()
        try:
            return question(smi)
        finally:
            smi.amdsmi_shut_down()
    except smi.AmdSmiException:
        return None
