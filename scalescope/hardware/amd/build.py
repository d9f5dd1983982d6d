"""Whether this torch fits these AMD devices: kernels for their architectures, and settings around them. Torch-free."""

from collections.abc import Mapping, Sequence

from scalescope.hardware.check_result import CheckResult, broken, fine, note

_RADEON = ("gfx10", "gfx11", "gfx12")
_INSTINCT = "gfx9"
#: torch hands channels_last convolutions and batch norms to MIOpen as such only where these are set (ConvUtils.h).
NHWC = ("PYTORCH_MIOPEN_SUGGEST_NHWC", "PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM")
_FAMILIES = {"gfx9-4-generic": "gfx94", "gfx10-3-generic": "gfx103", "gfx11-generic": "gfx11", "gfx12-generic": "gfx12"}


def is_radeon(architecture: str) -> bool:
    """Return whether an architecture is that of Radeon cards: names do not tell, which images may lack."""
    return architecture.startswith(_RADEON)


def channels_last_settings(architectures: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return what to set before ranks start, so that channels_last does what it says; nothing that the user has set.

    On Instinct alone: on Radeon cards MIOpen's NHWC kernels are much slower (pytorch/pytorch#170764).
    """
    if not architectures or not all(each.startswith(_INSTINCT) for each in architectures):
        return {}
    return {name: "1" for name in NHWC if name not in environ}


def check_build(
    architectures: Sequence[str], built_for: Sequence[str], environ: Mapping[str, str]
) -> list[CheckResult]:
    """Say whether torch has kernels for these devices (`torch.cuda.get_arch_list()`), and how they are overridden."""
    findings = []
    override = environ.get("HSA_OVERRIDE_GFX_VERSION")
    if override is not None:
        findings.append(note("HSA_OVERRIDE_GFX_VERSION", f"={override}: kernels of another architecture run, which can "
                             "be wrong or end in a fault", "unset it where this torch has kernels of its own for the "
                             "device"))  # fmt: skip
    without = sorted({each for each in architectures if built_for and not _covered(each, built_for)})
    if without:
        findings.append(broken("torch", f"has no kernels for {', '.join(without)}, but for {', '.join(built_for)}",
                               "take a torch that is built for it; or set HSA_OVERRIDE_GFX_VERSION to a near "
                               "architecture of that list, such as 11.0.0 for gfx1100"))  # fmt: skip
    return findings


def check_channels_last(architectures: Sequence[str], environ: Mapping[str, str]) -> list[CheckResult]:
    """Say whether channels_last reaches MIOpen, and where it should."""
    is_set = {name: environ[name] for name in NHWC if name in environ}
    if any(is_radeon(each) for each in architectures):
        if "1" in is_set.values():
            return [note("channels_last", "is handed to MIOpen, whose NHWC kernels are much slower on Radeon cards",
                         f"unset {' and '.join(is_set)}")]  # fmt: skip
        return []
    off = [name for name, value in is_set.items() if value != "1"]
    if off:
        return [note("channels_last", f"changes nothing: {' and '.join(off)} keep MIOpen from it", "unset them")]
    missing = [name for name in NHWC if name not in is_set]
    if missing:
        return [fine("channels_last", f"our jobs set {' and '.join(missing)}; in a script of yours it changes nothing "
                     "without them")]  # fmt: skip
    return [fine("channels_last", "is handed to MIOpen")]


def _covered(architecture: str, built_for: Sequence[str]) -> bool:
    """Return whether a build covers an architecture: by itself, or by the generic one of its family."""
    names = {each.partition(":")[0] for each in built_for}
    return architecture in names or any(architecture.startswith(_FAMILIES[name]) for name in names & _FAMILIES.keys())
