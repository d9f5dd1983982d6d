"""The worked examples of CONTRIBUTING, applied to a copy of the tree: only the files that they name are touched."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("contributing*")))
_SHIPPED = ("scalescope", "train", "collectives", "launch", "conf", "slurm")


@dataclass(frozen=True)
class Piece:
    """One block of an example: a new file, or lines added to one that is there."""

    path: str
    language: str
    text: str


def example(title: str) -> list[Piece]:
    """Return the blocks below a heading, each with the file that the text before it names."""
    page = next(page for page in PAGES if page.is_file() and f"\n## {title}\n" in f"\n{page.read_text()}")
    section = f"\n{page.read_text()}".partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return [_piece(before, block) for before, block in _blocks(section)]


def copied_tree(to: Path) -> Path:
    """Copy what is installed, links as links. With the copy on PYTHONPATH it goes before any installation."""
    for name in _SHIPPED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, to / name, symlinks=True, ignore=ignored)
    (to / "sitecustomize.py").write_text(f"import sys; sys.path.insert(0, {str(to)!r})\n")
    return to


def apply(pieces: list[Piece], tree: Path) -> None:
    """Write an example's files and lines into a tree."""
    for piece in pieces:
        path = tree / piece.path
        if piece.language == "diff":
            path.write_text(_with_lines(path.read_text(), piece.text))
        else:
            assert not path.exists(), f"{piece.path} is there already"
            path.parent.mkdir(exist_ok=True)
            path.write_text(piece.text)


def _blocks(section: str) -> list[tuple[str, str]]:
    parts = re.split(r"^```", section, flags=re.MULTILINE)
    return list(zip(parts[0::2], parts[1::2], strict=False))


def _piece(before: str, block: str) -> Piece:
    language, _, text = block.partition("\n")
    named = re.findall(r"`((?:\w+/)+\w+\.\w+)`", before)
    assert named, f"nothing says which file this is:\n{text}"
    return Piece(named[-1] if language == "diff" else named[0], language, text)


def _with_lines(text: str, diff: str) -> str:
    """Return a text with a diff's `+` lines after the line that stands before them, which must be there once."""
    lines, after = text.splitlines(), -1
    for line in diff.splitlines():
        if line.startswith("+"):
            after += 1
            lines.insert(after, line[1:])
        else:
            assert lines.count(line[1:]) == 1, line
            after = lines.index(line[1:])
    return "\n".join([*lines, ""])
