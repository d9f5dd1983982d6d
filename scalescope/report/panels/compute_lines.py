"""What a step's compute is, in three lines under the partition; and what the table's columns mean, in three more.

Compute in which ranks wait for cores is none, though an operator runs meanwhile: that is said beside it.
"""

import statistics

from scalescope.report.as_run.shown import is_shown_alone, shown_efficiency, shown_step
from scalescope.report.drawing.numbers import listing, milliseconds, percent
from scalescope.report.drawing.tables import Table
from scalescope.report.text.waits.on_cores import on_a_core
from scalescope.scaling.answer import Efficiency, RunAnalysis
from scalescope.scaling.as_run.of_job import kinds_of_step
from scalescope.scaling.findings.of_rows.on_cores import waits_in_step
from scalescope.scaling.trace.kernel_kinds import COMMUNICATION

#: Kinds of kernels that are shown, and of each the kernels with the most time.
_KINDS, _KERNELS = 3, 2
_LONGEST_NAME = 60
#: Of so many ranks each one's waits for cores are told; of more the longest and the mean: of few, the mean is nobody's.
_MOST_RANKS = 4

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


def on_cores_clause(run: RunAnalysis) -> str:
    """Return how much of the step is compute on a core, to stand behind what counts as compute; "" where all is."""
    factors, _ = shown_efficiency(run)
    if factors is None or factors.on_cores_at_most is None:
        return ""
    return f" (waits for cores included: {on_a_core(factors)} of the step is on a core)"


def waits_in_compute(run: RunAnalysis) -> float:
    """Return what share of the step counts as compute and is sure to wait for a core; 0 where none is told."""
    factors, _ = shown_efficiency(run)
    most = factors.on_cores_at_most if factors is not None else None
    return max(0.0, factors.parallel - most) if factors is not None and most is not None else 0.0


def efficiency_told(factors: Efficiency, whose: str) -> str:
    """Return the parallel efficiency, and what it is without waits for cores, where these count in it."""
    name = f"Parallel efficiency{f' {whose}' if whose else ''}"
    if factors.on_cores_at_most is None:
        return f"{name} {percent(factors.parallel)}"
    return f"{name} {on_a_core(factors)}, without waits for cores; with these as compute {percent(factors.parallel)}"


def on_cores_figure(label: str, factors: Efficiency) -> tuple[str, str]:
    """Return a card's figure of the efficiency, its label and its value: a bound where ranks wait for cores."""
    if factors.on_cores_at_most is None:
        return label, percent(factors.parallel)
    told = on_a_core(factors) if factors.on_cores_at_least is not None else f"≤ {percent(factors.on_cores_at_most)}"
    return f"{label}, without waits for cores", told


def waits_line(run: RunAnalysis) -> str:
    """Return how long ranks wait for cores within the parts of a step, mostly in compute; "" where none is told to."""
    if not on_cores_clause(run):
        return ""
    waits = waits_in_step(run, shown_step(run))
    if not waits:
        return "compute holds what operators wait for a core."
    most = max(waits, key=lambda one: one.ms)
    others = [f"rank {one.rank} for {milliseconds(one.ms)}" for one in waits if one is not most]
    if len(waits) > _MOST_RANKS:
        others = [f"the mean rank for {milliseconds(statistics.fmean(one.ms for one in waits))}"]
    beside = "".join(f", {told}" for told in others)
    factors, _ = shown_efficiency(run)
    untold = factors is not None and factors.on_cores_at_least is not None
    where = "; how much of that lies in compute no trace tells" if untold else ""
    return (
        f"compute holds what operators wait for a core: in the step rank {most.rank}, ready to run, waits for one for "
        f"{milliseconds(most.ms)}{beside}{where}."
    )
