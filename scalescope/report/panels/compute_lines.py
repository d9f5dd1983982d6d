"""What a step's compute is, in three lines under the partition; and what the table's columns mean, in three more."""

from scalescope.report.as_run import is_shown_alone
from scalescope.report.drawing.numbers import listing, milliseconds, percent
from scalescope.report.drawing.tables import Table
from scalescope.report.panels.on_cores import waits_line
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.of_job import kinds_of_step
from scalescope.scaling.trace.kernel_kinds import COMMUNICATION

#: Kinds of kernels that are shown, and of each the kernels with the most time.
_KINDS, _KERNELS = 3, 2
_LONGEST_NAME = 60

_COMPUTE = {
    "compute": "a kernel runs that computes",
    "communication": "collectives, hidden or not",
    "hidden": "their share beside compute",
    "before the window": "launched before the first step",
}
_COMPUTE_ON_CPU = {
    "compute": "an operator runs on the loop's thread",
    "communication": "what gloo's threads do, hidden or not",
    "hidden": "its share beside compute",
}
_EXPOSED = {
    "exposed transfer": "data moves between ranks",
    "exposed wait": "a collective waits for another rank",
    "exposed wait or transfer": "a collective runs, and which of the two it does cannot be told",
    "exposed copies": "a copy or a fill runs",
}
_ON_CPUS = {"idle (host late)": "what the host does between operators, such as Python"}
_IDLE = {
    "idle (loading data)": "the host fetches a batch",
    "idle (host late)": "nothing is enqueued",
    "idle (queued)": "what comes next is enqueued already",
}


def compute_title(run: RunAnalysis) -> str:
    """Return what stands over these lines: of which step they are, where not of that of the table above."""
    whole = "What the compute is"
    of_all = kinds_of_step(run) is run.kinds
    return f"{whole}, as profiled, recording included" if is_shown_alone(run) and of_all else whole


def compute_lines(run: RunAnalysis) -> list[str]:
    """Return the kinds of kernels (on CPUs: of operators) with the most time, each with its longest ones."""
    compute = sorted(
        (row for row in kinds_of_step(run) if row.kind != COMMUNICATION and row.ms > 0), key=lambda row: -row.ms
    )
    lines = []
    for row in sorted(compute, key=lambda row: -row.ms)[:_KINDS]:
        longest = [kernel for kernel in run.kernels if kernel.kind == row.kind and not kernel.communication]
        names = [_shortened(kernel.name) for kernel in sorted(longest, key=lambda one: -one.ms)[:_KERNELS]]
        size = f", {milliseconds(row.ms)} a step" if run.steps_by is not None else ""
        calls = f" in {row.calls:,.0f} calls" if row.calls >= 1 else ""
        share = percent(row.share_of_compute or 0.0, 0)
        lines.append(f"{share} {row.kind}{size}{calls}{f': {listing(names)}' if names else ''}")
    return lines


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def legend_lines(run: RunAnalysis, table: Table) -> list[str]:
    """Return what the columns that a partition's table shows mean, in three lines; in one more what compute waits."""
    shown = {column.title for column in table.columns}
    on_cpu = run.activity == "cpu"
    groups = (
        ("", _COMPUTE_ON_CPU if on_cpu else _COMPUTE),
        ("while nothing computes: ", _EXPOSED),
        (
            "while nothing runs: ",
            _IDLE | _ON_CPUS if on_cpu else _IDLE,
        ),
    )
    lines = []
    for head, meanings in groups:
        told = [f"{title} = {meaning}" for title, meaning in meanings.items() if title in shown]
        if told:
            lines.append(f"{head}{'; '.join(told)}.")
    waits = waits_line(run)
    return [*lines[:1], waits, *lines[1:]] if waits else lines
