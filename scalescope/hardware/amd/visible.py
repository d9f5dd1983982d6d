"""Which devices ROCm's visible-devices variables leave, by the rules of its two runtimes.

ROCr reads ROCR_VISIBLE_DEVICES first (ROCR-Runtime, amd_filter_device.cpp). HIP chooses among what that leaves, by
HIP_VISIBLE_DEVICES, or by CUDA_VISIBLE_DEVICES where HIP's is unset or empty (clr, rocdevice.cpp, Device::init). They
differ: an empty value hides everything from ROCr, and nothing from HIP; a device named twice ends ROCr's list, and is
skipped by HIP; ROCr forgives blanks, and HIP does not.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

UniqueIds = Sequence[str | None]  # "GPU-" and 16 figures in small letters; None where a device has none


@dataclass(frozen=True)
class Choice:
    """What one variable leaves, and what ended its list too early."""

    devices: list[int]  # as the stage before it counts them
    dropped: str | None = None  # the first entry that the runtime does not take: it drops that and all after it
    repeated: str | None = None  # the first device that is named twice


def by_rocr(value: str, unique_ids: UniqueIds) -> Choice:
    """Return what ROCr leaves of these devices."""
    devices: list[int] = []
    words = value.split(",") if value else []
    for word in words[: len(unique_ids)]:
        device = _rocr_device(word.strip().upper(), unique_ids)
        if device is None:
            return Choice(devices, dropped=word)
        if device in devices:
            return Choice(devices, dropped=word, repeated=word)
        devices.append(device)
    return Choice(devices)


def by_hip(value: str, unique_ids: UniqueIds) -> Choice:
    """Return what HIP leaves of these devices; all of them for an empty value."""
    if not value:
        return Choice(list(range(len(unique_ids))))
    devices: list[int] = []
    repeated = None
    for word in value.split(","):
        device = _hip_device(word, unique_ids)
        if device is None:
            return Choice(devices, dropped=word, repeated=repeated)
        if device in devices:
            repeated = repeated or word
        else:
            devices.append(device)
    return Choice(devices, repeated=repeated)


def hip_variable(environ: Mapping[str, str]) -> str | None:
    """Return the variable that HIP obeys; None where it obeys none."""
    return next((name for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES") if environ.get(name)), None)


def visible_devices(environ: Mapping[str, str], unique_ids: UniqueIds) -> list[int]:
    """Return which of a machine's devices this process sees, in the order in which torch counts them."""
    left = list(range(len(unique_ids)))
    if "ROCR_VISIBLE_DEVICES" in environ:
        left = by_rocr(environ["ROCR_VISIBLE_DEVICES"], unique_ids).devices
    name = hip_variable(environ)
    if name is not None:
        chosen = by_hip(environ[name], [unique_ids[device] for device in left]).devices
        left = [left[device] for device in chosen]
    return left


def _rocr_device(word: str, unique_ids: UniqueIds) -> int | None:
    if word.startswith("G"):  # a beginning of an id, of one device alone
        fitting = [at for at, unique in enumerate(unique_ids) if unique is not None and unique.upper().startswith(word)]
        return fitting[0] if len(word) >= 5 and len(fitting) == 1 else None
    number = re.fullmatch(r"(-?)(?:0x([0-9a-f]+)|0([0-7]*)|([1-9]\d*)|)", word.lower())  # as strtol reads it
    if number is None:
        return None
    _, hexadecimal, octal, decimal = number.groups()
    device = int(hexadecimal, 16) if hexadecimal else int(octal or "0", 8) if octal is not None else int(decimal or 0)
    return None if number[1] or device >= len(unique_ids) else device


def _hip_device(word: str, unique_ids: UniqueIds) -> int | None:
    if "GPU-" in word:  # any part of an id
        return next((at for at, unique in enumerate(unique_ids) if unique is not None and word in unique), None)
    return int(word) if word.isdecimal() and word == str(int(word)) and int(word) < len(unique_ids) else None
