"""Kernel by kernel: what takes a step's time, and which kernels are slower on more ranks."""

from scalescope.report.as_run.shown import as_profiled, is_shown_alone
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.report.drawing.panel import Key, Panel, drawing, of_run
from scalescope.report.drawing.tables import Table, stacked
from scalescope.report.panels.ranks import labels_of
from scalescope.report.report_data import ReportData
from scalescope.report.views import devices, kernels_table
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import KernelRow

_MOST_BARS = 12
_COMPUTE, _COMMUNICATION = parts.BY_KEY["compute"], parts.BY_KEY["exposed_transfer"]


def kernel_panels(data: ReportData) -> list[Panel]:
    """Return a panel a series: the longest kernels of its largest run, each beside its time in the smallest one."""
    panels = []
    for name, members in data.by_series().items():
        runs = [run.answer for run in members if run.answer is not None and run.answer.kernels]
        if not runs:
            continue
        smallest, largest = runs[0], runs[-1]
        compared = smallest.world_size < largest.world_size
        before = {(row.name, row.communication): row for row in smallest.kernels} if compared else {}
        rows = [
            {"kernel": row.name, "kind": "communication" if row.communication else "compute",
             "colour": f"var({(_COMMUNICATION if row.communication else _COMPUTE).variable})",
             "ms": row.ms, "label": milliseconds(row.ms), "calls": row.calls,
             "share": "no part of it" if row.share_of_compute is None else percent(row.share_of_compute),
             "before": there.ms if there else None, "right": max(row.ms, there.ms if there else 0.0),
             "there": milliseconds(there.ms) if there else "not among the longest"}
            for row in largest.kernels[:_MOST_BARS]
            for there in [before.get((row.name, row.communication))]
        ]  # fmt: skip
        tables = [of_run(kernels_table(run), title) for run, title in zip(runs, labels_of(runs), strict=True)]
        table = stacked(list(reversed(tables)))  # the largest run first: it is the one in the picture
        legend = [Key("compute", f"var({_COMPUTE.variable})")]
        if any(row["kind"] == "communication" for row in rows):
            legend.append(Key("communication, waiting included", f"var({_COMMUNICATION.variable})"))
        if any(row["before"] is not None for row in rows):
            legend.append(Key(f"the same on {devices(smallest.world_size, smallest.activity)}", "var(--ink)"))
        charts = drawing()
        panels.append(
            Panel(
                f"kernels-{name}",
                f"{name}: {devices(largest.world_size, largest.activity)}",
                _sentence(largest, before),
                table or Table([], []),
                [charts.kernels(rows, "ms a step, mean rank")] if charts else [],
                legend,
                subject=name,
            )
        )
    return panels


def _sentence(run: RunAnalysis, before: dict[tuple[str, bool], KernelRow]) -> str:
    """Name the longest of the compute, and what grew most against the smallest run."""
    noun = "operators" if run.activity == "cpu" else "kernels"
    compute = [row for row in run.kernels if not row.communication]
    if not compute:
        return f"Communication is all that is among the longest {noun}."
    first = compute[0]
    share = sum(row.share_of_compute or 0.0 for row in compute[:5])
    text = f"{_in_prose(first.name)} takes the most compute, {milliseconds(first.ms)} a step{_of_which(run)}"
    if len(compute) > 5:
        text += f"; the five longest {noun} are {percent(share, 0)} of it"
    grown = [(row.ms - there.ms, row, there) for row in compute if (there := before.get((row.name, False)))]
    if not grown:
        return f"{text}."
    most, row, there = max(grown, key=lambda one: one[0])
    if most <= 0:
        return f"{text}. None of them is slower than in the smallest run."
    what = "It" if row is first else _in_prose(row.name)
    return f"{text}. {what} grew the most, from {milliseconds(there.ms)} to {milliseconds(row.ms)}."


def _of_which(run: RunAnalysis) -> str:
    """Return of which steps the kernels are, where the kinds above are of others."""
    return ", recording included, in all profiled steps" if is_shown_alone(run) else as_profiled(run)


def _in_prose(name: str) -> str:
    """Return a name that a sentence can hold: its beginning and its end, which tell kernels of one library apart."""
    return name if len(name) <= 64 else f"{name[:36]}…{name[-27:]}"
