"""The page on AMD says how every path is held, and never without a link."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "rocm.md"


def test_every_path_is_held_by_something_with_a_link() -> None:
    section = PAGE.read_text().partition("## How each path is held")[2]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 15
    for path, held, where in rows:
        assert {word.strip() for word in held.split(",")} <= {"trace", "source", "record", "never"}, path
        assert re.search(r"\]\((https://|#)", where), path


def test_it_says_what_was_never_run() -> None:
    assert "**None of it has run on AMD hardware" in PAGE.read_text()
