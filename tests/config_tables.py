"""The reference's tables of settings, made of conf/, where a key is explained beside its default: `make docs`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
PAGE = ROOT / "docs" / "reference.md"
BEGIN, END = "<!-- written by make docs, from conf/ -->", "<!-- end of what make docs writes -->"

#: Heading, what stands before each key, and the files whose keys are listed, of those that explain any.
SECTIONS = (
    ("A training job", "", "train.yaml"),
    ("Its model", "model.", "model/*.yaml"),
    ("Its data", "data.", "data/*.yaml"),
    ("Its strategy", "strategy.", "strategy/*.yaml"),
    ("Its optimiser", "optimizer.", "optimizer/*.yaml"),
    ("Its profiler", "profiler.", "profiler/*.yaml"),
    ("A sweep", "", "sweep.yaml"),
    ("A scorecard", "", "scorecard.yaml"),
    ("How a job starts", "launch.", "launch/*.yaml"),
    ("Live loggers", "logger.", "logger/*.yaml"),
    ("A study", "", "study.yaml preset/none.yaml"),
    ("A loop of your own", "", "script.yaml"),
)
_KEY = re.compile(r"^( *)([a-z]\w*):(?: +(.*?))??(?: +# (.*)| *#)?$")
_HYDRAS = ("defaults", "hydra")


@dataclass(frozen=True)
class Setting:
    """One key of a file, with its default and what is said of it there; None where it is said elsewhere."""

    key: str
    default: str
    says: str | None


def settings_of(path: Path) -> Iterator[Setting]:
    """Yield a file's keys in order. A key is explained on its line, or by the comment on the lines above it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    above: list[str] = []
    inside: list[tuple[int, str]] = []
    of_file = next(number for number, line in enumerate(lines) if not line.startswith("#"))  # its first lines
    for line in lines[of_file:]:
        if line.lstrip().startswith("#"):
            above.append(line.lstrip(" #"))
            continue
        found = _KEY.match(line)
        if found:
            indent, name, default, beside = found.groups()
            inside = [(depth, key) for depth, key in inside if depth < len(indent)]
            if not (inside and inside[0][1] in _HYDRAS) and name not in _HYDRAS:
                key = ".".join([*(key for _, key in inside), name])
                says = beside or " ".join(above) or None
                if default or beside:  # else it only holds others
                    yield Setting(key, (default or "").strip('"'), says)
            inside.append((len(indent), name))
        above = []


def table(prefix: str, files: str) -> str:
    """Return a section's table; which file a key is of stands there where several explain one."""
    paths = [path for pattern in files.split() for path in sorted(CONF.glob(pattern))]
    rows = [(path.stem, each) for path in paths for each in settings_of(path) if each.says is not None]
    several = bool(prefix) and len({stem for stem, _ in rows}) > 1
    lines = ["| key | default | means |", "|---|---|---|"]
    for stem, each in rows:
        of = f" ({stem})" if several and not each.key.startswith(stem) else ""
        cells = (f"`{prefix}{each.key}`{of}", f"`{each.default}`" if each.default else "", each.says or "")
        lines.append("| " + " | ".join(_escaped(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;")


def tables() -> str:
    """Return all of what stands between the marks."""
    return "\n\n".join(f"### {title}\n\n{table(prefix, files)}" for title, prefix, files in SECTIONS)


def written(page: str) -> str:
    """Return a page with its tables as conf/ has them now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
