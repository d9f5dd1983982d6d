"""Every package that gets installed has a tested version: one without comes in whatever version is newest that day."""

import re
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
#: One torch of one version is several wheels: PyPI's and each of PyTorch's indices have their own, which bring what
#: they were built with (CUDA's libraries, ROCm's, Triton) and say so by markers of the platform. Which versions those
#: are is said by the wheel, exactly or as a range of one CUDA's; a constraint of ours would keep the others out.
_OF_TORCHS_PLATFORM = re.compile(r"\b(platform_system|platform_machine|sys_platform)\b")

Requires = Callable[[str], list[str]]


def _of_installed(name: str) -> list[str]:
    """Return what an installed package requires. Raises PackageNotFoundError where there is none."""
    return distribution(name).requires or []


def installed_below(wanted: list[Requirement], requires: Requires = _of_installed) -> set[str]:
    """Return the names of these packages and of all that they need; what belongs to a platform is left out.

    That is what is not installed, since another platform needs it, and what torch's wheel brings for its own.
    """
    names: set[str] = set()
    waiting, seen = list(wanted), set()
    while waiting:
        one = waiting.pop()
        if (key := (canonicalize_name(one.name), frozenset(one.extras))) in seen:
            continue
        seen.add(key)
        try:
            needs = [Requirement(text) for text in requires(one.name)]
        except PackageNotFoundError:
            continue
        names.add(key[0])
        extras = one.extras or {""}
        for need in needs:
            if key[0] == "torch" and _OF_TORCHS_PLATFORM.search(str(need.marker or "")):
                continue
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(need)
    return names


def pinned() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}


def all_of_ours() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [one for extra in ("mpich", "submitit", "dev") for one in project["optional-dependencies"][extra]]
    return [Requirement(one) for one in (*project["dependencies"], *extras)]


def test_every_package_that_gets_installed_is_among_the_constraints() -> None:
    found = installed_below(all_of_ours())
    assert len(found) > 60 and found <= pinned(), sorted(found - pinned())


#: What PyPI's wheel of torch 2.13.0 for Linux says of itself, and what it brings.
_CUDA = {
    "torch": [
        "filelock", "typing-extensions>=4.10.0", "sympy>=1.13.3",
        'cuda-toolkit[cublas,cufft]==13.0.3; platform_system == "Linux"',
        'cuda-bindings<14,>=13.0.3; platform_system == "Linux" and python_version < "3.15"',
        'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
        'triton==3.7.1; platform_system == "Linux" and python_version < "3.15"',
    ],
    "cuda-toolkit": [
        "nvidia-cublas==13.1.1.3.*; sys_platform == 'linux' and extra == 'cublas'",
        "nvidia-nvjitlink<14,>=13.0.88; sys_platform == 'linux' and extra == 'cufft'",
    ],
    "cuda-bindings": ["cuda-pathfinder>=1.4.2"],
    "nvidia-cudnn-cu13": ["nvidia-cublas"],
    "cuda-pathfinder": [], "nvidia-cublas": [], "nvidia-nvjitlink": [], "triton": [],
}  # fmt: skip


def _with_cuda(name: str) -> list[str]:
    return _CUDA[name] if name in _CUDA else _of_installed(name)


def test_what_torchs_cuda_wheel_brings_needs_no_constraint_of_ours() -> None:
    found = installed_below(all_of_ours(), _with_cuda)
    assert {"torch", "filelock", "sympy", "mpmath"} <= found
    assert found <= pinned() and found.isdisjoint({"cuda-bindings", "cuda-pathfinder", "nvidia-cublas", "triton"})


def test_what_others_need_has_a_constraint_though_torchs_wheel_brings_it_too() -> None:
    for package in ("cuda-bindings", "nvidia-cublas"):
        assert package in installed_below([*all_of_ours(), Requirement(package)], _with_cuda)
    marked = {**_CUDA, "sympy": ['mpmath<1.4,>=1.1.0; sys_platform == "linux"']}
    found = installed_below([Requirement("torch")], lambda name: marked.get(name, []))
    assert "mpmath" in found, "only torch's own wheel is another on another platform"
