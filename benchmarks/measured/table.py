"""A table, what it is read from, and how its figures are written."""

import csv
import gzip
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = Sequence[str]
#: Makes a table of what lies in a folder of benchmarks/results.
Maker = Callable[[Path], "Table"]


@dataclass(frozen=True)
class Table:
    """Cells as they are printed; units stand in the header, whose names are all different."""

    header: Row
    rows: Sequence[Row]

    def __post_init__(self) -> None:
        if len(set(self.header)) < len(self.header):
            raise ValueError(f"two columns have one name: {', '.join(self.header)}")

    def only(self, columns: Sequence[str]) -> "Table":
        """Return these columns, in this order. Raises ValueError for one that it has not."""
        places = [self.header.index(name) for name in columns]
        return Table(columns, [[row[place] for place in places] for row in self.rows])

    def where(self, column: str, values: Sequence[str]) -> "Table":
        """Return the rows whose cell is one of these. Raises ValueError for a value that no row has."""
        place = self.header.index(column)
        if absent := set(values) - {row[place] for row in self.rows}:
            raise ValueError(f"no row has {', '.join(sorted(absent))} as {column}")
        return Table(self.header, [row for row in self.rows if row[place] in values])

    def markdown(self) -> str:
        """Return it as Markdown."""
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (self.header, ["---"] * len(self.header), *self.rows))


def read_tsv(path: Path) -> Table:
    """Read a header and its rows. Raises ValueError where a row has more cells than the header, or fewer."""
    with path.open(encoding="utf-8", newline="") as lines:
        header, *rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"{path}: {row[0]} has {len(row)} cells of {len(header)}")
    return Table(header, rows)


def read_markdown(path: Path) -> Table:
    """Read the table of a file that a benchmark wrote as Markdown. A column without a name has its number."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    named, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return Table([name or str(number) for number, name in enumerate(named)], rows)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a .jsonl.gz."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_answer(path: Path) -> Any:
    """Read a .json.gz."""
    with gzip.open(path, "rt", encoding="utf-8") as text:
        return json.load(text)


def figure(value: float | None, digits: int) -> str:
    """Return a figure, with a minus that is one; nothing where there is none."""
    return "" if value is None else f"{value:,.{digits}f}".replace("-", "−")


def signed(value: float, digits: int) -> str:
    """Return a change with its sign; of what rounds to nothing, 0."""
    text = f"{value:+,.{digits}f}"
    return text.replace("-", "−") if re.search("[1-9]", text) else "0"


def percent(value: float, digits: int = 1) -> str:
    """Return a share of one."""
    return f"{figure(100 * value, digits)}%"


def span(values: Sequence[float], digits: int) -> str:
    """Return the lowest and the highest, or the one where both are written alike."""
    low, high = figure(min(values), digits), figure(max(values), digits)
    return low if low == high else f"{low} to {high}"


def size(count: int) -> str:
    """Return bytes in the largest unit that they are a whole number of."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count % 2**power == 0:
            return f"{count >> power} {unit}"
    return f"{count} B"
