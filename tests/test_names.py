"""A name means one thing: no two public classes of one name in the half that measures, nor in the half that reads."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: The links in scalescope/ are not followed: what they lead to is the other half.
HALVES = {"measuring": ("train", "collectives", "launch"), "reading": ("scalescope",)}


def public_classes(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf8")))
    return [node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def files_of(package: Path) -> list[Path]:
    found = [package] if package.suffix == ".py" else []
    if package.is_dir() and not (package.is_symlink() and package.parent.name == "scalescope"):
        found += [file for inside in sorted(package.iterdir()) for file in files_of(inside)]
    return found


@pytest.mark.parametrize("half", HALVES)
def test_no_two_public_classes_of_a_half_have_one_name(half: str) -> None:
    homes: dict[str, list[str]] = {}
    for file in (file for package in HALVES[half] for file in files_of(ROOT / package)):
        for name in public_classes(file):
            homes.setdefault(name, []).append(str(file.relative_to(ROOT)))
    assert len(homes) > 50, "the sources were not found"
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def names_assigned(path: Path) -> list[str]:
    """Return what a module assigns at its top level, once for each time."""
    targets = [
        target
        for node in ast.parse(path.read_text(encoding="utf8")).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    flat = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [one.id for one in flat if isinstance(one, ast.Name)]


@pytest.mark.parametrize("half", HALVES)
def test_no_constant_of_a_module_is_assigned_twice(half: str) -> None:
    """The second one silently is what all who import the name from there mean."""
    files = [file for package in HALVES[half] for file in files_of(ROOT / package)]
    assigned = {str(file.relative_to(ROOT)): names_assigned(file) for file in files}
    assert sum(map(len, assigned.values())) > 100, "the sources were not found"
    twice = {file: {name for name in names if names.count(name) > 1} for file, names in assigned.items()}
    assert not {file: names for file, names in twice.items() if names}
