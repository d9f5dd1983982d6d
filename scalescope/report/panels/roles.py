"""Communication by what its process groups are for: data, tensor, pipeline, context parallel, experts."""

from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.drawing.panel import Panel
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.report_data import ReportData
from scalescope.report.views import run_label
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import GroupRow
from scalescope.scaling.verdicts.groups import by_role

_NAMES = {
    "dp": "data parallel",
    "tp": "tensor parallel",
    "pp": "pipeline parallel",
    "cp": "context parallel",
    "ep": "experts",
}


def worth_showing(run: RunAnalysis) -> bool:
    """Tell whether a run has more than the one group of all its ranks, or says what a group is for."""
    return len(run.groups) > 1 or any(row.role for row in run.groups)


def role_name(row: GroupRow) -> str:
    """Return a role in words; the group's own name where it has none."""
    return _NAMES.get(row.role, row.role) if row.role else f"group {row.group}"


def roles_table(run: RunAnalysis) -> Table:
    """One row a role, on the mean rank in a step."""
    columns = [
        Column("role", "groups"),
        Column("group_size", "ranks", digits=0),
        Column("where", "where"),
        Column("calls", "calls a step", digits=1),
        Column("bytes", "size", "MB", 2, 1e-6),
        Column("communication_ms", "communication", "ms", 2),
        Column("exposed_transfer_ms", "exposed transfer", "ms", 2),
        Column("exposed_wait_ms", "exposed wait", "ms", 2),
        Column("exposed_unsplit_ms", "exposed wait or transfer", "ms", 2),
    ]
    where = {True: "inside a host", False: "between hosts", None: None}
    rows: list[list[Cell]] = [
        [role_name(row), row.group_size, where[row.inside_host], row.calls, row.bytes, row.communication_ms,
         row.exposed_transfer_ms, row.exposed_wait_ms, row.exposed_unsplit_ms]
        for row in by_role(run.groups)
    ]  # fmt: skip
    return Table(columns, rows, {"where": "the traces name no hosts, or lack some of its ranks"})


def role_panels(data: ReportData) -> list[Panel]:
    """Return a panel a run that has groups of several kinds."""
    return [
        Panel(
            f"roles-{run.name}",
            run_label(run),
            _sentence(run),
            roles_table(run),
            [],
            subject=data.series_of(run),
        )
        for run in data.answers
        if worth_showing(run)
    ]


def _sentence(run: RunAnalysis) -> str:
    first = by_role(run.groups)[0]
    return f"Most is exposed of {role_name(first)}: {milliseconds(first.exposed_ms)} a step on the mean rank."
