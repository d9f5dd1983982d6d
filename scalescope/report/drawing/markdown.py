"""Tables and text as Markdown, for issues and pull requests."""

from collections.abc import Iterable, Iterator, Sequence

from scalescope.records.outputs.overwriting import sealed
from scalescope.report.drawing.tables import Cell, Table

_MOST_ROWS = 12


def folded(title: str, table: Table) -> Iterator[str]:
    """Yield the lines of a table that is opened by a click."""
    yield f"<details><summary>{escaped(title)}</summary>"
    yield ""
    yield from lines_of(table)
    yield ""
    yield "</details>"
    yield ""


def lines_of(table: Table) -> Iterator[str]:
    """Yield a table's lines; of many rows the first ones and the last."""
    yield f"| {' | '.join(escaped(_title(column.title, column.unit)) for column in table.columns)} |"
    yield f"| {' | '.join('---:' if column.is_figure else '---' for column in table.columns)} |"
    for row in [*table.rows[:_MOST_ROWS], *table.rows[_MOST_ROWS:][-1:]]:
        yield f"| {' | '.join(_cells(table, row))} |"


def finished(lines: Iterable[str]) -> str:
    """Return an answer's lines as one text, with a last one by which a file of it is known to be scalescope's."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        by = f" {version('scalescope')}"
    except PackageNotFoundError:  # a checkout that is not installed
        by = ""
    return sealed("".join(f"{line}\n" for line in lines), by)


def escaped(text: str) -> str:
    """Return text that no name of a stranger turns into markup."""
    for sign in "\\`*_|[]":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")


def _title(title: str, unit: str) -> str:
    return f"{title} [{unit}]" if unit else title


def _cells(table: Table, row: Sequence[Cell]) -> list[str]:
    return [escaped(column.show(cell)) for column, cell in zip(table.columns, row, strict=True)]
