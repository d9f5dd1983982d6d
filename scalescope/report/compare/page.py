"""A comparison as one HTML file: two bars, the difference as a waterfall, kernels to sort, what differs."""

from collections.abc import Sequence
from pathlib import Path

from scalescope.records.console import counted
from scalescope.records.files import write_atomic
from scalescope.report.compare.noise import at_once, noise_sentence
from scalescope.report.compare.parts import names_of, part_name
from scalescope.report.compare.sentences import (
    alone_sentences,
    headline,
    kernels_sentence,
    places_sentence,
    recurring_sentence,
    samples_sentence,
    settings_sentence,
    verdict_sentences,
)
from scalescope.report.compare.tables import (
    gate_table,
    kernels_table,
    parts_sentence,
    parts_table,
    points_table,
    settings_table,
)
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import capitalized, size
from scalescope.report.drawing.palette import category
from scalescope.report.drawing.panel import Key, Panel, Section, drawing
from scalescope.report.page import Card, Figure, Page, render
from scalescope.report.sentences import Level, Verdict
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.compare.answer import Comparison, PartChange, PointChange

_LEVELS: dict[str, Level] = {"slower": "poor", "faster": "good", "same": "unknown", "not_comparable": "unknown"}
#: Sections of several jobs are told apart by their number.
_MOST_BARS = 16


def write_comparison(answer: Comparison, out: Path) -> Path:
    """Write the page and return its path. Raises OSError where it cannot be written."""
    write_atomic(out, render(comparison_page(answer)))
    return out


def comparison_page(answer: Comparison) -> Page:
    """Return the page: a verdict a job, the gate, then where in the step, kernels, points and what differs."""
    here, there = names_of(answer)
    members = answer.members or [answer]
    sections = [
        Section("partition", "Where in the step", [panel for one in members for panel in _parts_panels(one)]),
        Section("limits", "Limits", _limits_panels(answer)),
        Section("kernels", "Kernels side by side", [panel for one in members for panel in _kernels_panels(one)]),
        Section("sweep", "Collectives alone", [panel for one in members for panel in _points_panels(one)]),
        Section("configuration", "What is different about them", _settings_panels(answer)),
    ]
    return Page(
        name=f"{there} beside {here}",
        facts="",  # each card says what its figures rest on
        cards=[_card(one) for one in members],
        notes=list(dict.fromkeys(note for one in [answer, *answer.members] for note in one.notes)),
        sections=[section for section in sections if section.panels],
        machines=[],
    )  # fmt: skip


def _card(answer: Comparison) -> Card:
    here, there = names_of(answer)
    told = noise_sentence(answer)
    said = (
        recurring_sentence(answer),
        *alone_sentences(answer),
        places_sentence(answer),
        samples_sentence(answer),
        settings_sentence(answer),
        told,
    )
    sentences = (*verdict_sentences(answer)[1:], *(f"{one}." for one in said if one))
    verdict = Verdict("comparison", _LEVELS[answer.verdict], headline(answer), sentences)
    if answer.baseline_ms is None or answer.other_ms is None:
        return Card(verdict)
    return Card(
        verdict, [Figure(here, f"{answer.baseline_ms:.2f}", "ms"), Figure(there, f"{answer.other_ms:.2f}", "ms")]
    )


def _colour(part: PartChange, at: int) -> str:
    return f"var({parts.BY_KEY[part.name].variable})" if part.name in PARTS else category(at)


def _limits_panels(answer: Comparison) -> list[Panel]:
    if not answer.gate:
        return []
    failed = sum(not line.held for line in answer.gate)
    untold = sum(line.untold for line in answer.gate)
    told = [f"{failed} of {counted(len(answer.gate), 'limit')} failed"] if failed else []
    told += [f"{counted(untold, 'limit')} cannot be told for noise"] if untold else []
    sentence = f"{capitalized('; '.join(told))}." if told else "All of them hold."
    return [Panel("comparison-limits", "Limits", sentence, gate_table(answer))]


def _parts_panels(answer: Comparison) -> list[Panel]:
    if not answer.parts:
        return []
    here, there = names_of(answer)
    shown = [one for one in answer.parts if one.name != "rest"]
    colours = {one.name: _colour(one, at) for at, one in enumerate(shown)}
    bars = [
        {"label": name, "part": part_name(one), "order": order, "ms": ms, "share": ms / whole if whole else 0.0}
        for order, one in enumerate(shown)
        for name, ms, whole in ((here, one.baseline_ms, answer.baseline_ms), (there, one.other_ms, answer.other_ms))
    ]
    ranked = sorted(answer.parts, key=lambda one: -abs(one.change_ms))[:_MOST_BARS]
    falls = [(part_name(one), colours.get(one.name, "var(--ideal)"), one.change_ms) for one in ranked]
    charts = drawing()
    shades = [(part_name(one), colours[one.name]) for one in shown]
    return [
        Panel(
            f"comparison-parts-{answer.other}",
            f"{there} beside {here}",
            f"{parts_sentence(answer)} {at_once(answer)}".rstrip(),
            parts_table(answer),
            [
                charts.partition(bars, (here, there), shades, "ms a step"),
                charts.waterfall(falls, answer.change_ms or 0.0),
            ]
            if charts
            else [],
            [Key(name, colour) for name, colour in shades],
        )
    ]


def _kernels_panels(answer: Comparison) -> list[Panel]:
    if not answer.kernels:
        return []
    return [Panel(f"comparison-kernels-{answer.other}", "Kernels", kernels_sentence(answer), kernels_table(answer))]


def _points_panels(answer: Comparison) -> list[Panel]:
    panels = []
    here, there = names_of(answer)
    charts = drawing()
    for operation in dict.fromkeys(one.operation for one in answer.points):
        own = [one for one in answer.points if one.operation == operation]
        part = Comparison(
            baseline=answer.baseline, other=answer.other, kind="sweep", verdict=answer.verdict, points=own
        )
        lines = _lines(own, (here, there))
        groups = [(name, category(at)) for at, name in enumerate((here, there))]
        panels.append(
            Panel(
                f"comparison-{operation}",
                operation,
                headline(part),
                points_table(part),
                [charts.bus_bandwidth(lines, groups, []), charts.call_time(lines, groups)] if charts and lines else [],
                [Key(name, colour) for name, colour in groups],
            )
        )
    return panels


def _lines(points: Sequence[PointChange], names: tuple[str, str]) -> list[dict[str, object]]:
    """Return the points of the largest group as two lines."""
    group = max(one.group_size for one in points)
    drawn = [one for one in points if one.group_size == group and one.ratio is not None]
    return [
        {"bytes": one.bytes, "bus": bus, "time": us, "group": name, "size": size(one.bytes)}
        for at, name in enumerate(names)
        for one in drawn
        for bus, us in [((one.baseline_bus_gb_s, one.baseline_us), (one.other_bus_gb_s, one.other_us))[at]]
        if bus is not None and us is not None
    ]


def _settings_panels(answer: Comparison) -> list[Panel]:
    found = {one.key: one for part in [answer, *answer.members] for one in part.environment}
    if not found:
        return []
    whole = Comparison(
        baseline=answer.baseline, other=answer.other, verdict=answer.verdict, environment=list(found.values())
    )
    likely = sum(one.likely for one in found.values())
    differ = "1 setting differs" if len(found) == 1 else f"{len(found)} settings differ"
    sentence = f"{differ}; of the kind that changes what changed: {likely}."
    return [Panel("comparison-differences", "Environment and configuration", sentence, settings_table(whole))]
