"""A table once, shown four ways: terminal, HTML, CSV and W&B."""

from collections.abc import Sequence

import msgspec

from scalescope.report.drawing.numbers import figure

Cell = str | int | float | None

#: How a value that is not there is written. It always comes with a reason.
ABSENT = "–"


class Column(msgspec.Struct, frozen=True):
    """`key` is the machine's name, unit included; `title` and `unit` are the reader's. No digits: text."""

    key: str
    title: str
    unit: str = ""
    digits: int | None = None
    scale: float = 1.0  # what the reader sees = value × scale; the machine gets the value
    names: bool = False  # of kernels or operators: shown without their middle where they are long

    @property
    def is_figure(self) -> bool:
        return self.digits is not None

    def show(self, value: Cell) -> str:
        if value is None:
            return ABSENT
        if isinstance(value, str) or self.digits is None:
            return str(value)
        return figure(value * self.scale, self.digits)


def without_middle(name: str, longest: int) -> str:
    """Return a name of so many characters at most: those of one library begin alike, and end differently."""
    head = longest // 2
    return name if len(name) <= longest else f"{name[:head]}…{name[len(name) - (longest - head - 1) :]}"


class Table(msgspec.Struct, frozen=True):
    """Rows under columns. `reasons` says, by column key, why a value of that column is missing."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    reasons: dict[str, str] = msgspec.field(default_factory=dict)
    note: str = ""

    def absent(self) -> list[tuple[list[str], str]]:
        """Return each reason why values are missing, after the titles of the columns that it is the reason for."""
        titles: dict[str, list[str]] = {}
        for index, column in enumerate(self.columns):
            if any(row[index] is None for row in self.rows):
                titles.setdefault(self.reasons.get(column.key, "not measured"), []).append(column.title)
        return [(names, reason) for reason, names in titles.items()]

    def led_by(self, columns: Sequence[Column], cells: Sequence[Cell]) -> "Table":
        """Put columns before the others, with the same cells in every row: what the whole table is about."""
        rows = [[*cells, *row] for row in self.rows]
        return Table([*columns, *self.columns], rows, self.reasons, self.note)

    def without_zero_columns(self, keys: Sequence[str]) -> tuple["Table", list[str]]:
        """Leave out those of the named columns that read zero in every row; return the titles of what was left out."""
        gone = [
            index
            for index, column in enumerate(self.columns)
            if column.key in keys and all(row[index] == 0 for row in self.rows)
        ]
        kept = [index for index in range(len(self.columns)) if index not in gone]
        rows = [[row[index] for index in kept] for row in self.rows]
        table = Table([self.columns[index] for index in kept], rows, self.reasons, self.note)
        return table, [self.columns[index].title for index in gone]


def stacked(tables: Sequence[Table]) -> Table | None:
    """Return tables of the same columns as one; None where there are none."""
    if not tables:
        return None
    rows = [row for table in tables for row in table.rows]
    return Table(tables[0].columns, rows, tables[0].reasons, tables[0].note)
