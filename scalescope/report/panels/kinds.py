"""Kernel kinds: what a step's compute consists of, and which kinds grew with the ranks, with what ran beside them."""

from collections.abc import Sequence

from scalescope.report.as_run.shown import as_profiled
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import listing, milliseconds, percent
from scalescope.report.drawing.panel import Panel, drawing, of_run
from scalescope.report.drawing.tables import Cell, Column, Table, stacked
from scalescope.report.panels.ranks import labels_of
from scalescope.report.report_data import ReportData
from scalescope.report.views import activities, devices, points_of
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import KindRow
from scalescope.scaling.as_run.of_job import kinds_of_step
from scalescope.scaling.study_answer import StudyAnalysis, Waterfall
from scalescope.scaling.trace.kernel_kinds import COMMUNICATION

_WORTH_A_WORD = 0.1  # of the inflation
_ALL = 0.95
#: Less than this share of the compute reads as 0%.
_A_WORD = 0.005


def kind_panels(data: ReportData) -> list[Panel]:
    """Return a panel a series: the mean rank's compute by kind, a bar a run."""
    panels = []
    for name, members in data.by_series().items():
        runs = [run.answer for run in members if run.answer is not None and run.answer.kinds]
        if not runs:
            continue
        labels = labels_of(runs)
        of_step = all(kinds_of_step(run) is not run.kinds for run in runs)  # runs of one drawing are told alike
        told = [kinds_of_step(run) if of_step else run.kinds for run in runs]
        kinds = list(dict.fromkeys(row.kind for own in told for row in own if row.kind != COMMUNICATION))
        rows = [
            {"label": label, "part": row.kind, "order": kinds.index(row.kind), "ms": row.ms,
             "share": row.share_of_compute or 0.0}
            for own, label in zip(told, labels, strict=True) for row in own if row.kind != COMMUNICATION
        ]  # fmt: skip
        tables = [of_run(kinds_table(own), label) for own, label in zip(told, labels, strict=True)]
        charts = drawing()
        panels.append(
            Panel(
                f"kinds-{name}",
                f"{name}: kinds of {'operators' if runs[-1].activity == 'cpu' else 'kernels'}",
                kind_sentence(runs[-1], told[-1]),
                stacked(tables) or Table([], []),
                [charts.kinds(rows, labels, kinds)] if charts else [],
                subject=name,
            )
        )
    return panels


def kind_sentence(run: RunAnalysis, kinds: Sequence[KindRow]) -> str:
    """Return what the compute of a run's step consists of, in words: the kinds that a terminal tells, or all profiled
    ones."""
    compute = sorted((row for row in kinds if row.kind != COMMUNICATION), key=lambda row: -row.ms)
    which = as_profiled(run) if kinds is run.kinds else " without recording"
    told = [row for row in compute[:4] if (row.share_of_compute or 0.0) >= _A_WORD] or compute[:1]
    shown = [f"{percent(row.share_of_compute or 0.0, 0)} {row.kind}" for row in told]
    text = f"On {devices(run.world_size, run.activity)} compute{which} is {listing(shown)}"
    concurrent = sum(row.beside_communication_ms or 0.0 for row in compute)
    whole = sum(row.ms for row in compute)
    if concurrent >= _A_WORD * whole > 0:
        text += f"; {percent(concurrent / whole, 0)} of it runs with a collective beside"
    return f"{text}."


def kinds_table(kinds: Sequence[KindRow]) -> Table:
    """One row a kind of kernel on the mean rank, then one for communication, as profiled."""
    columns = [
        Column("kind", "kind"),
        Column("calls_a_step", "calls a step", digits=1),
        Column("ms_a_step", "a step", "ms", 3),
        Column("share_of_compute", "of the compute", "%", 1, 100),
        Column("beside_ms", "with collectives beside", "ms", 3),
    ]

    def cells(row: KindRow) -> list[Cell]:
        calls = None if row.kind == COMMUNICATION else row.calls
        return [row.kind, calls, row.ms, row.share_of_compute, row.beside_communication_ms]

    reasons = {
        "calls_a_step": "communication is told as one stretch of time",
        "share_of_compute": "communication is no part of the compute; it may run under it",
        "beside_ms": "communication itself",
    }
    return Table(columns, [cells(row) for row in kinds], reasons)


def inflation_panels(study: StudyAnalysis, runs: list[RunAnalysis]) -> list[Panel]:
    """Return a panel a series: by how much each kind of kernel grew to the largest count, and what ran beside it."""
    kinds_of = activities(runs)
    panels = []
    # ascending: the last one of a series counts
    for fall in {fall.series: fall for fall in study.waterfall if fall.kinds}.values():
        names = [point.run for point in points_of(study, fall.series)]
        activity = kinds_of.get(names[-1]) if names else None
        start, end = devices(fall.from_world_size, activity), devices(fall.to_world_size, activity)
        steps = [
            (growth.kind, f"var({parts.INFLATION.variable})", growth.inflation_ms)
            for growth in sorted(fall.kinds, key=lambda growth: -growth.inflation_ms)
            if abs(growth.inflation_ms) >= 0.005
        ]
        charts = drawing() if steps else None
        panels.append(
            Panel(
                f"inflation-{fall.series}-{fall.to_world_size}",
                f"{fall.series}, slower compute by kind: {start} → {end}",
                inflation_sentence(fall, activity),
                inflation_table(fall),
                [charts.waterfall(steps, fall.compute_inflation_ms or 0.0)] if charts else [],
                (),
                "" if steps else "no kind of kernel became slower",
                subject=fall.series,
            )
        )
    return panels


def inflation_sentence(fall: Waterfall, activity: str | None = None) -> str:
    """Return which kinds of kernels became slower, and how much of that had a collective beside, in words."""
    inflated = sum(growth.inflation_ms for growth in fall.kinds)
    if inflated <= 0:
        return "The same kernels take no longer than in the smaller run."
    worst = sorted(fall.kinds, key=lambda growth: -growth.inflation_ms)
    shown = [
        f"{milliseconds(growth.inflation_ms)} {growth.kind}"
        for growth in worst
        if growth.inflation_ms >= _WORTH_A_WORD * inflated
    ]
    concurrent = sum(growth.inflation_beside_ms for growth in fall.kinds)
    share = max(0.0, concurrent / inflated)
    labels = dict.fromkeys(label for growth in worst for label in growth.beside_ms)
    what = f" beside {listing(list(labels))}" if labels else ""
    text = f"The same kernels take {milliseconds(inflated)} a step longer: {listing(shown)}"
    if share > 1:
        return (
            f"{text}. Those that run{what} take {milliseconds(concurrent)} longer, the others "
            f"{milliseconds(concurrent - inflated)} less."
        )
    text += f". {percent(share, 0)} of that are kernels that run{what or ' beside a collective'}"
    why = "" if activity == "cpu" else " (clocks, power)"
    return f"{text}; the rest became slower by themselves{why}." if share < _ALL else f"{text}."


def inflation_table(fall: Waterfall) -> Table:
    """One row a kind: before, after, slower, more work, and how long which collectives ran beside it."""
    labels = list(dict.fromkeys(label for growth in fall.kinds for label in growth.beside_ms))
    columns = [
        Column("kind", "kind"),
        Column("from_ms", f"on {fall.from_world_size}", "ms", 3),
        Column("to_ms", f"on {fall.to_world_size}", "ms", 3),
        Column("inflation_ms", "slower", "ms", 3),
        Column("inflation_beside_ms", "of that, with a collective beside", "ms", 3),
        Column("more_work_ms", "more work", "ms", 3),
        *(Column(f"beside_{at}_ms", f"with {label} beside", "ms", 3) for at, label in enumerate(labels)),
    ]
    rows: list[list[Cell]] = [
        [growth.kind, growth.from_ms, growth.to_ms, growth.inflation_ms, growth.inflation_beside_ms,
         growth.more_work_ms, *(growth.beside_ms.get(label, 0.0) for label in labels)]
        for growth in fall.kinds
    ]  # fmt: skip
    return Table(columns, rows)
