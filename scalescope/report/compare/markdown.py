"""A comparison as Markdown, for the comment of a pull request: the verdict, the gate, the parts, what differs."""

from collections.abc import Iterator, Sequence

from scalescope.report.compare.sentences import headline, noise_sentence
from scalescope.report.compare.tables import parts_table, points_table, settings_table
from scalescope.report.drawing.tables import Table
from scalescope.scaling.compare.answer import Comparison

_SIGNS = {"slower": "🔴", "faster": "🟢", "same": "⚪", "not_comparable": "⚠️"}
_MOST_ROWS = 12


def summary(answer: Comparison) -> str:
    """Return a few lines of Markdown: what whoever reviews a change has to know."""
    return "\n".join(_lines(answer)) + "\n"


def _lines(answer: Comparison) -> Iterator[str]:
    members = answer.members or [answer]
    for member in members:
        yield f"{_SIGNS[member.verdict]} **{_escaped(headline(member))}**"
        yield ""
    for line in answer.gate:
        yield f"- {'✅' if line.held else '❌'} `{line.expression}`: {_escaped(line.text)}"
    if answer.gate:
        yield ""
    for member in members:
        if member.parts:
            yield from _folded("Where in the step", _of_parts(member))
        if member.points:
            yield from _folded("Points", points_table(member))
    if answer.environment:
        yield from _folded(f"{len(answer.environment)} settings differ", settings_table(answer))
    if told := noise_sentence(answer):
        yield f"<sub>{_escaped(told)}</sub>"


def _of_parts(answer: Comparison) -> Table:
    table = parts_table(answer)
    kept = [column for column in table.columns if column.key != "rank"]
    at = [list(table.columns).index(column) for column in kept]
    return Table(kept, [[row[index] for index in at] for row in table.rows])


def _folded(title: str, table: Table) -> Iterator[str]:
    yield f"<details><summary>{_escaped(title)}</summary>"
    yield ""
    yield f"| {' | '.join(_escaped(_title(column.title, column.unit)) for column in table.columns)} |"
    yield f"| {' | '.join('---:' if column.is_figure else '---' for column in table.columns)} |"
    for row in [*table.rows[:_MOST_ROWS], *table.rows[_MOST_ROWS:][-1:]]:
        yield f"| {' | '.join(_cells(table, row))} |"
    yield ""
    yield "</details>"
    yield ""


def _title(title: str, unit: str) -> str:
    return f"{title} [{unit}]" if unit else title


def _cells(table: Table, row: Sequence[object]) -> list[str]:
    return [_escaped(column.show(cell)) for column, cell in zip(table.columns, row, strict=True)]  # type: ignore[arg-type]


def _escaped(text: str) -> str:
    """Return text that no name of a stranger turns into markup."""
    for sign in "\\`*_|[]":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
