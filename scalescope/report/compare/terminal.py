"""A comparison on the terminal: the verdict, what differs, the parts, the kernels, the gate."""

from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from scalescope.records.console import counted
from scalescope.report.compare.noise import noise_sentence
from scalescope.report.compare.sentences import (
    alone_sentences,
    further,
    headline,
    kernels_sentence,
    places_sentence,
    recurring_sentence,
    samples_sentence,
    settings_sentence,
)
from scalescope.report.compare.tables import (
    kernels_table,
    outcome,
    parts_sentence,
    parts_table,
    points_table,
    settings_table,
)
from scalescope.report.drawing.panel import Panel
from scalescope.report.drawing.tables import Table
from scalescope.report.terminal.tables import print_panel
from scalescope.scaling.compare.answer import Comparison

#: A terminal shows so many rows of what a page and --json have whole.
_MOST_ROWS = 12
_STYLES = {"slower": "red", "faster": "green", "same": "bold", "not_comparable": "yellow"}


def print_comparison(answer: Comparison, console: Console) -> None:
    """Print a comparison, and of several jobs each."""
    members = answer.members or [answer]
    for member in members:
        _print_one(member, console)
    for note in answer.notes if answer.members else []:
        _print_line(console, f"Noted: {note}.", "dim")
    for line in answer.gate:
        style = "yellow" if line.untold else "green" if line.held else "red"
        _print_line(console, f"{outcome(line)}, {line.expression}: {line.text}", style)


def _print_one(answer: Comparison, console: Console) -> None:
    _print_line(console, headline(answer), _STYLES[answer.verdict])
    if more := further(answer):
        _print_line(console, more)
    if recurring := recurring_sentence(answer):
        _print_line(console, f"{recurring}.")
    for alone in alone_sentences(answer):
        _print_line(console, f"{alone}.", "bold")
    if places := places_sentence(answer):
        _print_line(console, f"{places}.")
    if shares := samples_sentence(answer):
        _print_line(console, f"{shares}.")
    if set_otherwise := settings_sentence(answer):
        _print_line(console, f"{set_otherwise}.")
    for note in answer.notes[answer.verdict == "not_comparable" :]:
        _print_line(console, f"Noted: {note}.", "dim")
    if told := noise_sentence(answer):
        _print_line(console, f"{told}.", "dim")
    if answer.environment:
        count = len(answer.environment)
        sentence = f"{count} setting{'s differ' if count > 1 else ' differs'}, likely ones first."
        _print_table(console, "What differs", sentence, settings_table(answer))
    if answer.parts:
        _print_table(console, "Where in the step", parts_sentence(answer), parts_table(answer), 99)
    if answer.kernels:
        _print_table(console, "Kernels", kernels_sentence(answer), kernels_table(answer))
    if answer.points:
        _print_table(console, "Points", "Bandwidth over the baseline's, point by point.", points_table(answer), 10_000)
        for only, points in ((answer.baseline, answer.only_baseline), (answer.other, answer.only_other)):
            if points:
                _print_line(console, f"only in {only}: {counted(len(points), 'point')}, such as {points[0]}")


def _print_table(console: Console, title: str, sentence: str, table: Table, most: int = _MOST_ROWS) -> None:
    more = len(table.rows) - most
    note = f"… and {more} more rows: --json and --html have them" if more > 0 else table.note
    print_panel(Panel(title, title, sentence, replace(table, rows=table.rows[:most], note=note)), console)


def _print_line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)
