"""Tables on a terminal.

A figure is never cut: a table wider than the terminal is printed in blocks that each repeat the first column, as
numpy's and pandas' users know it.
"""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from scalescope.report.drawing.numbers import listing
from scalescope.report.drawing.panel import Panel
from scalescope.report.drawing.tables import ABSENT, Cell, Column, Table, without_middle
from scalescope.report.terminal.console import print_line

_PAD = 2  # blanks between two columns
_Pad = Callable[[str, int], str]
#: A log file has no width, but names of kernels lose their middles for its lines to be no longer than this. Of a name
#: so many characters stay at least, and so many at most.
_PLAIN_ROOM = 200
_SHORT_NAME, _LONG_NAME = 20, 44


def print_panel(panel: Panel, console: Console) -> None:
    """Print a panel of a report without its charts: what it says, and its table."""
    console.print()
    print_line(console, f"{panel.title}: {panel.sentence}" if panel.title and not panel.table.rows else panel.sentence)
    if panel.table.rows:
        print_table(console, panel.table, panel.title)
    if panel.table.note:
        print_line(console, panel.table.note, "dim")


def print_table(
    console: Console, table: Table, title: str, *, grouped: bool = True, blank_absent: bool = False
) -> None:
    """Print a table in as many blocks as the width asks for; the first column leads each of them."""

    def show(column: Column, value: Cell) -> str:
        if value is None and blank_absent:
            return ""
        text = column.show(value)
        return text if grouped else text.replace(",", "")

    shown = [[show(column, value) for column, value in zip(table.columns, row, strict=True)] for row in table.rows]
    heads = [_head(column) for column in table.columns]
    _shorten_names(table.columns, shown, console)
    widths = [
        max([len(line) for line in heads[index]] + [len(row[index]) for row in shown])
        for index in range(len(table.columns))
    ]
    console.print()
    console.print(Text(title, style="bold"), soft_wrap=not console.is_terminal)
    pads = [str.rjust if column.is_figure else str.ljust for column in table.columns]
    tall = max(len(lines) for lines in heads)
    headers = [[""] * (tall - len(lines)) + lines for lines in heads]
    for block in _blocks(widths, console.width):
        lines = [Text(_line(block, pads, widths, [head[at] for head in headers]), "dim") for at in range(tall)]
        if console.is_terminal:
            lines.append(Text("─" * (sum(widths[index] for index in block) + _PAD * (len(block) - 1)), "dim"))
        lines += [Text(_line(block, pads, widths, row)) for row in shown]
        for line in lines:
            console.print(line, soft_wrap=True)  # rich would cut a column; a line that is too long wraps instead
    for titles, reason in [] if blank_absent else table.absent():
        if reason != "not measured":
            print_line(console, f"{ABSENT} under {listing(titles)}: {reason}", "dim")


def _shorten_names(columns: Sequence[Column], shown: list[list[str]], console: Console) -> None:
    """Take the middles out of long names of kernels, in place, so that a row of theirs fits; --json and pages have all.

    On a terminal a block holds two of them; a log has no width, and a line of one is not to be longer than a wide
    terminal's.
    """
    named = [at for at, column in enumerate(columns) if column.names]
    if not named:
        return
    room = console.width // 3
    if not console.is_terminal:
        others = sum(
            _PAD + max(len(text) for text in [*_head(column), *(row[at] for row in shown)])
            for at, column in enumerate(columns)
            if at not in named
        )
        room = (_PLAIN_ROOM - others) // len(named) - _PAD
    for row in shown:
        for at in named:
            row[at] = without_middle(row[at], min(max(room, _SHORT_NAME), _LONG_NAME))


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the columns of each block. One that alone is too wide still gets its block: it wraps, never cut."""
    blocks = [[0]]
    used = widths[0]
    for index in range(1, len(widths)):
        if used + _PAD + widths[index] > room and len(blocks[-1]) > 1:
            blocks.append([0])
            used = widths[0]
        blocks[-1].append(index)
        used += _PAD + widths[index]
    return blocks


def _line(block: list[int], pads: Sequence[_Pad], widths: Sequence[int], cells: Sequence[str]) -> str:
    return (" " * _PAD).join(pads[index](cells[index], widths[index]) for index in block).rstrip()


def _head(column: Column) -> list[str]:
    """Return a column's title on one or two lines, its unit below: figures decide how wide a column is, not words."""
    pieces = column.title.split(" ")
    lines = [column.title] if len(column.title) <= 10 else _halves(pieces)
    return [*lines, column.unit] if column.unit else lines


def _halves(pieces: list[str]) -> list[str]:
    best = min(range(len(pieces)), key=lambda cut: abs(len(" ".join(pieces[:cut])) - len(" ".join(pieces[cut:]))))
    return [line for line in (" ".join(pieces[:best]), " ".join(pieces[best:])) if line]
