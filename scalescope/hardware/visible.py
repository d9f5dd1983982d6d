"""The visible-devices variables: what they leave over, and where they contradict the machine. Torch-free."""

from collections.abc import Mapping

from scalescope.hardware.amd.visible import Choice, UniqueIds, by_hip, by_rocr, hip_variable
from scalescope.hardware.check_result import CheckResult, broken, note


def check_visible(
    environ: Mapping[str, str], present: int | None, rocm: bool, unique_ids: UniqueIds | None = None
) -> list[CheckResult]:
    """Return what is wrong or worth knowing about the visible-devices variables.

    `present` is how many devices the driver has, whatever is visible; None where that is not known. `unique_ids` are
    those of AMD's devices, where they are known.
    """
    if rocm:
        return _check_rocm(environ, present, unique_ids)
    findings: list[CheckResult] = []
    name = "CUDA_VISIBLE_DEVICES"
    if name in environ:
        chosen, problem = _read(name, environ[name], present)
        if problem is not None:
            findings.append(problem)
        elif chosen is not None:
            findings.append(note(name, f"{environ[name]!r} leaves {chosen} of {_count(present)} devices"))
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if name in environ:
            findings.append(note(name, "is set, but this torch is no ROCm build: it has no effect"))
    return findings


def _check_rocm(environ: Mapping[str, str], present: int | None, unique_ids: UniqueIds | None) -> list[CheckResult]:
    findings: list[CheckResult] = []
    left: UniqueIds | None = unique_ids or (None if present is None else [None] * present)
    rocr, obeyed = environ.get("ROCR_VISIBLE_DEVICES"), hip_variable(environ)
    if rocr is not None:
        choice = None if left is None or _names_unknown(rocr, left) else by_rocr(rocr, left)
        findings += _judge("ROCR_VISIBLE_DEVICES", rocr, choice, left)
        left = [left[device] for device in choice.devices] if choice is not None and left is not None else None
    if environ.get("HIP_VISIBLE_DEVICES") == "":
        findings.append(broken("HIP_VISIBLE_DEVICES", "'' hides every device from torch, and none from HIP itself",
                               "unset HIP_VISIBLE_DEVICES, or list the devices you want"))  # fmt: skip
    if obeyed is None:
        return findings
    value = environ[obeyed]
    choice = None if left is None or _names_unknown(value, left) else by_hip(value, left)
    findings += _judge(obeyed, value, choice, left)
    both = rocr is not None and obeyed == "HIP_VISIBLE_DEVICES"
    if rocr is not None and both and len(value.split(",")) > len(rocr.split(",")):
        findings.append(broken(obeyed, f"{value!r} lists more devices than ROCR_VISIBLE_DEVICES={rocr}, which torch "
                               "refuses", f"count in {obeyed} within what ROCR_VISIBLE_DEVICES leaves"))  # fmt: skip
    if rocr is not None and not both:
        findings.append(broken(obeyed, f"{value!r} counts for HIP; torch counts by ROCR_VISIBLE_DEVICES={rocr} alone",
                               f"set HIP_VISIBLE_DEVICES={value} instead"))  # fmt: skip
    if obeyed == "HIP_VISIBLE_DEVICES" and environ.get("CUDA_VISIBLE_DEVICES") not in (None, "", value):
        findings.append(note("CUDA_VISIBLE_DEVICES", f"={environ['CUDA_VISIBLE_DEVICES']} has no effect: HIP obeys "
                             f"HIP_VISIBLE_DEVICES={value}", "unset CUDA_VISIBLE_DEVICES"))  # fmt: skip
    return findings


def _names_unknown(value: str, unique_ids: UniqueIds) -> bool:
    """Return whether a list names devices by ids that are not known here, so that nothing can be said of it."""
    return "GPU-" in value.upper() and not any(unique_ids)


def _judge(name: str, value: str, choice: Choice | None, before: UniqueIds | None) -> list[CheckResult]:
    if choice is None:
        return [note(name, f"{value!r} is not checked: how many devices there are, or their ids, is not known here")]
    there = len(before or ())
    if choice.repeated is not None:
        ends = ", which ends the list there" if name == "ROCR_VISIBLE_DEVICES" else ""
        return [broken(name, f"{value!r} names {choice.repeated.strip()} twice{ends}", f"list each once in {name}")]
    if not choice.devices and value.strip() in ("", "-1"):
        return [broken(name, f"{value!r} hides every device", f"unset {name}, or list the devices you want")]
    if choice.dropped is not None:
        why = " (HIP takes no blanks)" if choice.dropped != choice.dropped.strip() else ""
        return [broken(name, f"{value!r} names device {choice.dropped.strip()}{why}, but there are {there} "
                       f"(0 to {there - 1})", f"correct {name}: the runtime drops that and all after it")]  # fmt: skip
    return [note(name, f"{value!r} leaves {len(choice.devices)} of {there} devices")]


def _read(name: str, value: str, present: int | None) -> tuple[int | None, CheckResult | None]:
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    if not entries or entries == ["-1"]:
        return None, broken(name, f"{value!r} hides every device", f"unset {name}, or list the devices you want")
    if duplicates := sorted({entry for entry in entries if entries.count(entry) > 1}):
        return None, broken(name, f"{value!r} names {', '.join(duplicates)} twice", f"list each device once in {name}")
    numbers = [int(entry) for entry in entries if entry.lstrip("-").isdigit()]
    outside = [number for number in numbers if number < 0 or (present is not None and number >= present)]
    if outside:
        # the runtime silently ignores the first bad number and all that follow it
        return None, broken(
            name,
            f"{value!r} names device {outside[0]}, but there are {_count(present)} (0 to {(present or 1) - 1})",
            f"correct {name}: the driver drops that number and every one after it",
        )
    return len(entries), None


def _count(present: int | None) -> str:
    return "an unknown number of" if present is None else str(present)
