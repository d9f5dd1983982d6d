"""A panel: one claim, its charts, and the table of their figures."""

from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import msgspec

from scalescope.report.drawing.tables import Column, Table

Spec = dict[str, Any]

NO_DRAWING = "Drawing charts needs altair and vl-convert-python, which are not installed here."


class Key(msgspec.Struct, frozen=True):
    """One entry of a chart's legend."""

    name: str
    colour: str
    meaning: str = ""


class Cause(msgspec.Struct, frozen=True):
    """One thing that costs the step, in words: what and how much, why, and what to do about it; no full stops."""

    told: str
    because: str
    todo: str


class Panel(msgspec.Struct, frozen=True):
    """One claim and its evidence. Without charts, `reason` says why there are none.

    `subject`: the series or the run that it speaks of; "" where it speaks of all of them. `causes`: most costly first.
    """

    key: str
    title: str
    sentence: str
    table: Table
    charts: list[Spec] = msgspec.field(default_factory=list)
    legend: Sequence[Key] = ()
    reason: str = ""
    subject: str = ""
    causes: Sequence[Cause] = ()


class Section(msgspec.Struct, frozen=True):
    """Panels under one title. `open`: it is what a reader looks for next, and is not folded."""

    key: str
    title: str
    panels: list[Panel]
    open: bool = False


def can_draw() -> bool:
    """Say whether charts can be drawn here: altair writes them, vl-convert holds their JavaScript."""
    return find_spec("altair") is not None and find_spec("vl_convert") is not None


def drawing() -> ModuleType | None:
    """Return scalescope.report.drawing.charts, or None where charts cannot be drawn."""
    if not can_draw():
        return None
    from scalescope.report.drawing import charts

    return charts


def of_run(table: Table, name: str) -> Table:
    """Return a run's table with the run's name before each row."""
    return table.led_by([Column("run", "run")], [name])
