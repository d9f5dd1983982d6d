"""One HTML file that needs no network: verdict cards, sections of panels, tables with their CSV, drawn by Vega.

Every name from a trace or a config is text in it, never markup or script: the template escapes, JSON is escaped for
the inside of a script element, and a content security policy admits the page's own two scripts and nothing else.
"""

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any, Literal

import jinja2
from markupsafe import Markup

from scalescope.records.console import counted
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import capitalized, listing
from scalescope.report.drawing.palette import stylesheet
from scalescope.report.drawing.panel import NO_DRAWING, Cause, Panel, Section, Spec, can_draw
from scalescope.report.drawing.tables import Cell, Column, Table, without_middle
from scalescope.report.drawing.vega_library import vega_library
from scalescope.report.sentences import Verdict

#: Rows of one table on the page, and in its CSV; the run folder has them all.
_PAGE_ROWS, _CSV_ROWS = 250, 2000
_LONG_CELL = 40  # characters
#: Of a kernel's name, before its middle is left to the cell's title.
_LONG_NAME = 44
#: What a folded section says is so many characters at most, if its first sentence is.
_GIST = 170
_NEXT_SENTENCE = re.compile(r"(?<=[a-z0-9)%][.]) (?=[A-Z0-9])")
_FIGURE_AND_UNIT = re.compile(r"(\d) (ms|µs|[kKMG]i?B/?s?|B|GPUs?|CPU ranks?|ranks?|tokens/s|samples/s|batches/s)\b")

_TERMS = (
    ("efficiency", "Speedup over the smallest rank count of the series, over the ratio of the rank counts."),
    ("compute factor, parallel factor", "How much of the efficiency is compute that stayed as fast, and how much "
     "is time that stayed compute. Their product explains the efficiency of the profiled window."),
    ("busbw", "Algorithm bandwidth (size over time) times nccl-tests' factor: comparable with the links' rate."),
    ("transfer and wait", "A collective's wait on a rank is the time before its data can be there, most often before "
     "the last member arrives; the rest is transfer."),
    ("MFU", "Model FLOPs over the device's dense data-sheet peak. Recomputation is not counted."),
    ("longer in the window", "The step inside the profiler's window minus the one measured outside it. What recording "
     "takes is part of that; the rest is the machine's, or of what these few steps did."),
    ("before the window", "Device activity launched before the window opened: its own figure, in no part."),
)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A headline figure; without a value it has a reason."""

    label: str
    value: str
    unit: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Stretch:
    """One stretch of a bar. Its weight is a share: of the bar, or in `Bars` per cent of the longest one."""

    weight: str
    colour: str
    label: str


@dataclass(frozen=True)
class Bar:
    """A bar with what stands before and behind it."""

    label: str
    value: str
    stretches: list[Stretch]


@dataclass(frozen=True)
class Bars:
    """Bars of one scale, with the parts of the last one in the legend.

    `title`: what they are, in a line or two; `notes`: of which steps, and which other lengths there are, to be folded.
    """

    bars: list[Bar]
    legend: list[Stretch]
    title: str
    notes: list[str] = field(default_factory=list)


#: By what a card has its colour: a series by its efficiency, a run by what its step loses, by itself or beside a
#: reference, a sweep by its links.
JudgedBy = Literal["efficiency", "step", "reference", "links"]
#: So many figures stand before a card's sentence; the others are folded.
_LEADING = 3


@dataclass(frozen=True)
class Card:
    """A verdict with its figures, most telling first, and what is drawn of it.

    `bars`: where a step goes; `lost`: to what a growth went; `judged_by`: what its colour goes by.
    """

    verdict: Verdict
    figures: list[Figure] = field(default_factory=list)
    bars: Bars | None = None
    lost: list[Stretch] = field(default_factory=list)
    judged_by: JudgedBy | None = None

    @property
    def leading(self) -> list[Figure]:
        """The figures before the sentence: the first that have a value."""
        return [one for one in self.figures if not one.reason][:_LEADING]

    @property
    def others(self) -> list[Figure]:
        return [one for one in self.figures if one not in self.leading]

    @property
    def lead(self) -> str:
        """The one sentence in large type: the first of the headline."""
        return _NEXT_SENTENCE.split(self.verdict.told, 1)[0]

    @property
    def behind(self) -> str:
        """The rest of the headline, which stands beneath it."""
        return self.verdict.told.removeprefix(self.lead).strip()

    @property
    def explained(self) -> list[str]:
        """The sentences that explain the headline, but for what is among the cautions."""
        return [one for one in self.verdict.sentences if one not in self.verdict.cautions]

    @property
    def folded(self) -> list[str]:
        """The paragraphs that are folded: where nothing is drawn, the explanation stands open."""
        notes = [note for note in self.verdict.notes if note not in self.verdict.cautions]
        drawn = [] if self.bars is None else [note for note in self.bars.notes if note not in self.verdict.sentences]
        explained = self.explained if self.bars is not None else []
        return [" ".join(told) for told in (explained, drawn, notes) if told]


@dataclass(frozen=True)
class Machine:
    """An environment: its facts, its devices, and long texts to unfold, such as a config."""

    title: str
    pairs: list[tuple[str, str]]
    devices: Table
    texts: list[tuple[str, str]]


@dataclass(frozen=True)
class Drawing:
    """A step drawn: a picture for those without scripts and for paper, what a script draws over it, and its figures."""

    key: str
    title: str
    sentence: str
    svg: str  # markup: whoever makes it escapes its names
    payload: dict[str, Any]
    legends: list[tuple[str, list[Stretch]]]  # by lane
    table: Table
    subject: str = ""  # the series that it is of, as a panel's


@dataclass(frozen=True)
class Page:
    """What a page shows, top to bottom."""

    name: str
    facts: str
    cards: list[Card]
    notes: list[str]
    sections: list[Section]
    machines: list[Machine]
    drawings: list[Drawing] = field(default_factory=list)
    notes_title: str = "What is missing here"
    colours: list[Stretch] = field(default_factory=list)  # what the cards' edges mean


@dataclass(frozen=True)
class _TableCell:
    text: str
    number: bool
    reason: str
    long: bool  # wraps; else a table's last columns would be out of sight


@dataclass(frozen=True)
class _TableView:
    columns: Sequence[Column]
    rows: list[list[_TableCell]]
    absent: list[tuple[str, str]]
    note: str
    csv: str
    file: str


@dataclass(frozen=True)
class _PanelView:
    title: str
    sentence: str
    table: _TableView
    charts: list[str]
    legend: Sequence[Any]
    reason: str
    open: bool
    causes: Sequence[Cause]


@dataclass(frozen=True)
class _SectionView:
    key: str
    title: str
    gist: str  # what is said while it is folded
    panels: list[_PanelView]
    open: bool


@dataclass(frozen=True)
class _DrawingView:
    key: str
    title: str
    sentence: str
    svg: Markup
    legends: list[tuple[str, list[Stretch]]]
    table: _TableView


@dataclass(frozen=True)
class _MachineView:
    title: str
    pairs: list[tuple[str, str]]
    table: _TableView
    texts: list[tuple[str, str]]


def render(page: Page) -> str:
    """Return the page's HTML. Where charts cannot be drawn it holds the tables and says what the charts need."""
    specs: dict[str, Spec] = {}
    told = [one.subject for section in page.sections for one in section.panels] + [one.subject for one in page.drawings]
    several = len(set(filter(None, told))) > 1
    shown = [_section_view(section, specs, several=several) for section in page.sections]
    drawn = can_draw() and bool(specs)
    scripts = [vega_library(), _asset("page.js")] if drawn else []
    scripts += [_asset("timeline.js")] if page.drawings else []
    return _template().render(
        name=page.name,
        facts=page.facts,
        script_sources=" ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'",
        palette=stylesheet(),
        css=_asset("page.css"),
        cards=page.cards,
        colours=page.colours,
        notes=page.notes if can_draw() else [*page.notes, NO_DRAWING],
        notes_title=page.notes_title,
        sections=shown,
        opened=all(card.bars is None for card in page.cards),  # where the top draws nothing, the figures are the page
        heights={key: int(spec.get("height", 200)) + 50 for key, spec in specs.items()},
        machines=[
            _MachineView(machine.title, machine.pairs, _table_view(machine.devices, "devices"), machine.texts)
            for machine in page.machines
        ],
        parts=parts.ALL,
        terms=_TERMS,
        version=_version(),
        made=f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
        drawn=drawn,
        specs=Markup(inline_json(specs)),
        drawings=[
            _DrawingView(
                one.key, one.title, one.sentence, Markup(one.svg), one.legends, _table_view(one.table, one.key)
            )
            for one in page.drawings
        ],
        drawn_gist=_gist(page.drawings[0], several=several) if page.drawings else "",
        timelines=Markup(inline_json({one.key: one.payload for one in page.drawings})),
        scripts=[Markup(script) for script in scripts],
    )


@cache
def _template() -> jinja2.Template:
    """Return the page's template, compiled once: a study's jobs write many pages."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["unbroken"] = unbroken
    environment.filters["capitalized"] = capitalized
    return environment.from_string(_asset("page.html"))


def unbroken(text: str) -> str:
    """Return prose in which no line breaks between a figure and its unit, or its ±."""
    return _FIGURE_AND_UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text).replace("± ", "±\N{NO-BREAK SPACE}")


def inline_json(value: object) -> str:
    """Return JSON that can stand inside a <script> element: no character of it can end one or open a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def table_csv(table: Table) -> str:
    """Return a table as CSV under the machine's names, full precision, an empty field where a value is missing.

    A text that a spreadsheet would take for a formula is quoted with an apostrophe: names come from strangers' traces.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    writer.writerows([[_csv_cell(cell) for cell in row] for row in table.rows[:_CSV_ROWS]])
    return out.getvalue()


def _csv_cell(cell: Cell) -> str | int | float:
    if cell is None:
        return ""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in tuple("=+-@\t\r") else cell


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _asset(name: str) -> str:
    return (files("scalescope.report") / name).read_text(encoding="utf-8")


def _version() -> str:
    try:
        return version("scalescope")
    except PackageNotFoundError:
        return "(from a checkout)"


def _gist(first: Panel | Drawing, *, several: bool) -> str:
    """Return what a folded section says, by the first that stands in it; of whom, where a page tells of several.

    Whole sentences: as many as two lines hold, and at least one.
    """
    told = f"{first.subject}: {first.sentence}" if several and first.subject else first.sentence
    gist, *rest = _NEXT_SENTENCE.split(told)
    for one in rest:
        if len(gist) + len(one) >= _GIST:
            break
        gist = f"{gist} {one}"
    return gist


def _section_view(section: Section, specs: dict[str, Spec], *, several: bool) -> _SectionView:
    views = []
    for panel in section.panels:
        ids = []
        for spec in panel.charts:
            ids.append(f"chart-{len(specs)}")
            specs[ids[-1]] = spec
        views.append(
            _PanelView(
                panel.title,
                panel.sentence,
                _table_view(panel.table, panel.key),
                ids,
                panel.legend if panel.charts else (),
                panel.reason or ("" if can_draw() else NO_DRAWING),
                open=not panel.charts and not panel.causes,
                causes=panel.causes,
            )
        )
    gist = _gist(section.panels[0], several=several)
    # how much of the rest there is, and where: "(1 more)" behind a sentence was one more of nobody knew what
    more = f" (inside: {counted(len(views) - 1, 'more panel')})" if len(views) > 1 else ""
    return _SectionView(section.key, section.title, f"{gist}{more}", views, section.open)


def _cell_view(table: Table, column: Column, cell: Cell) -> _TableCell:
    """Return a cell as it is shown; a long name of a kernel without its middle, which stands in its title."""
    text = column.show(cell)
    shown = without_middle(text, _LONG_NAME) if column.names else text
    title = table.reasons.get(column.key, "not measured") if cell is None else text if shown != text else ""
    return _TableCell(shown, column.is_figure, title, isinstance(cell, str) and len(shown) > _LONG_CELL)


def _table_view(table: Table, key: str) -> _TableView:
    rows = [
        [_cell_view(table, column, cell) for column, cell in zip(table.columns, row, strict=True)]
        for row in table.rows[:_PAGE_ROWS]
    ]
    note = table.note
    if len(table.rows) > _PAGE_ROWS:
        note += f" The first {_PAGE_ROWS} of {len(table.rows):,} rows."
    if len(table.rows) > _CSV_ROWS:
        note += f" The CSV holds {_CSV_ROWS:,}; the run folder has all."
    data = base64.b64encode(table_csv(table).encode()).decode()
    return _TableView(
        table.columns,
        rows,
        [(listing(titles), reason) for titles, reason in table.absent()],
        note,
        f"data:text/csv;charset=utf-8;base64,{data}",
        f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', key)}.csv",
    )
