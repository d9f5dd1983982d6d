"""A comparison as Markdown, for the comment of a pull request: the verdict, the gate, the parts, what differs."""

from collections.abc import Iterator

from scalescope.report.compare.noise import cores_in_parts, noise_sentence
from scalescope.report.compare.sentences import (
    alone_sentences,
    further,
    headline,
    places_sentence,
    recurring_sentence,
    samples_sentence,
    settings_sentence,
)
from scalescope.report.compare.tables import parts_table, points_table, settings_table
from scalescope.report.drawing.markdown import escaped, finished, folded
from scalescope.report.drawing.numbers import capitalized
from scalescope.report.drawing.tables import Table
from scalescope.scaling.compare.answer import Comparison

_SIGNS = {"slower": "🔴", "faster": "🟢", "same": "⚪", "not_comparable": "⚠️"}


def summary(answer: Comparison) -> str:
    """Return a few lines of Markdown: what whoever reviews a change has to know."""
    return finished(_lines(answer))


def _lines(answer: Comparison) -> Iterator[str]:
    members = answer.members or [answer]
    for member in members:
        yield f"{_SIGNS[member.verdict]} **{escaped(headline(member))}**"
        yield ""
        if more := further(member):
            yield escaped(more)
            yield ""
        for told in filter(
            None,
            (recurring_sentence(member), *alone_sentences(member), places_sentence(member), samples_sentence(member)),
        ):
            yield f"{escaped(told)}."
            yield ""
        if member.verdict != "not_comparable":  # else it is said already
            yield from (f"- {escaped(capitalized(note))}" for note in member.notes)
            yield from [""] * bool(member.notes)
        if set_otherwise := settings_sentence(member):
            yield f"{escaped(set_otherwise)}."
            yield ""
    for line in answer.gate:
        yield f"- {'❔' if line.untold else '✅' if line.held else '❌'} `{line.expression}`: {escaped(line.text)}"
    if answer.gate:
        yield ""
    for member in members:
        if member.parts:
            yield from folded("Where in the step", _of_parts(member))
            if held := cores_in_parts(member):
                yield escaped(held)
                yield ""
        if member.points:
            yield from folded("Points", points_table(member))
    if answer.environment:
        count = len(answer.environment)
        yield from folded(f"{count} setting{'s differ' if count > 1 else ' differs'}", settings_table(answer))
    if told := noise_sentence(answer):
        yield f"<sub>{escaped(told)}</sub>"
        yield ""


def _of_parts(answer: Comparison) -> Table:
    table = parts_table(answer)
    kept = [column for column in table.columns if column.key != "rank"]
    at = [list(table.columns).index(column) for column in kept]
    return Table(kept, [[row[index] for index in at] for row in table.rows])
