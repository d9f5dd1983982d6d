"""Every package that gets installed has a tested version: one without comes in whatever version is newest that day."""

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


def installed_below(wanted: list[Requirement]) -> set[str]:
    """Return the names of these packages and of all that they need; another platform's own are left out."""
    names: set[str] = set()
    waiting, seen = list(wanted), set()
    while waiting:
        one = waiting.pop()
        if (key := (canonicalize_name(one.name), frozenset(one.extras))) in seen:
            continue
        seen.add(key)
        try:
            needs = [Requirement(text) for text in distribution(one.name).requires or []]
        except PackageNotFoundError:
            continue
        names.add(key[0])
        extras = one.extras or {""}
        for need in needs:
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(need)
    return names


def test_every_package_that_gets_installed_is_among_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [one for extra in ("mpich", "submitit", "dev") for one in project["optional-dependencies"][extra]]
    found = installed_below([Requirement(one) for one in (*project["dependencies"], *extras)])
    assert len(found) > 60 and found <= pinned, sorted(found - pinned)
