"""The visible-devices variables: what they leave over, and where they contradict the machine. Torch-free."""

from collections.abc import Mapping

from scalescope.hardware.check_result import CheckResult, broken, note


def check_visible(environ: Mapping[str, str], present: int | None, rocm: bool) -> list[CheckResult]:
    """Return what is wrong or worth knowing about the visible-devices variables.

    `present` is how many devices the driver has, whatever is visible; None where that is not known. HIP's numbers
    count within what ROCR_VISIBLE_DEVICES leaves.
    """
    findings: list[CheckResult] = []
    left = present
    names = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES") if rocm else ("CUDA_VISIBLE_DEVICES",)
    for name in names:
        if name not in environ:
            continue
        chosen, problem = _read(name, environ[name], left)
        if problem is not None:
            findings.append(problem)
        elif chosen is not None:
            findings.append(note(name, f"{environ[name]!r} leaves {chosen} of {_count(left)} devices"))
            left = chosen
    cuda, hip = environ.get("CUDA_VISIBLE_DEVICES"), environ.get("HIP_VISIBLE_DEVICES")
    if rocm and cuda is not None and hip is not None and cuda != hip:
        findings.append(
            broken(
                "visible devices",
                f"CUDA_VISIBLE_DEVICES={cuda} and HIP_VISIBLE_DEVICES={hip} contradict each other",
                "unset CUDA_VISIBLE_DEVICES; on AMD, HIP_VISIBLE_DEVICES is the one to set",
            )
        )
    if not rocm:
        for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
            if name in environ:
                findings.append(note(name, "is set, but this torch is no ROCm build: it has no effect"))
    return findings


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
