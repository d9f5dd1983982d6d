"""What is said of compute in which ranks wait for cores: it is none, though an operator runs meanwhile."""

import statistics

from scalescope.report.as_run import shown_efficiency, shown_step
from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.scaling.answer import Efficiency, RunAnalysis
from scalescope.scaling.findings.of_rows.on_cores import waits_in_step


def on_cores_clause(run: RunAnalysis) -> str:
    """Return how much of the step is compute on a core, to stand behind what counts as compute; "" where all is."""
    factors, _ = shown_efficiency(run)
    if factors is None or factors.on_cores_at_most is None:
        return ""
    return f" (waits for cores included: at most {percent(factors.on_cores_at_most)} is on a core)"


def efficiency_told(factors: Efficiency, whose: str) -> str:
    """Return the parallel efficiency, and what it is without waits for cores, where these count in it."""
    name = f"Parallel efficiency{f' {whose}' if whose else ''}"
    if factors.on_cores_at_most is None:
        return f"{name} {percent(factors.parallel)}"
    return (
        f"{name} at most {percent(factors.on_cores_at_most)}, without waits for cores; with these as compute "
        f"{percent(factors.parallel)}"
    )


def on_cores_figure(label: str, factors: Efficiency) -> tuple[str, str]:
    """Return a card's figure of the efficiency, its label and its value: a bound where ranks wait for cores."""
    if factors.on_cores_at_most is None:
        return label, percent(factors.parallel)
    return f"{label}, without waits for cores", f"≤ {percent(factors.on_cores_at_most)}"


def waits_line(run: RunAnalysis) -> str:
    """Return how long ranks wait for cores within the parts of a step, mostly in compute; "" where none is told to."""
    if not on_cores_clause(run):
        return ""
    waits = waits_in_step(run, shown_step(run))
    if not waits:
        return "compute holds what operators wait for a core."
    most = max(waits, key=lambda one: one.ms)
    mean = statistics.fmean(one.ms for one in waits)
    beside = f", the mean rank for {milliseconds(mean)}" if len(waits) > 1 else ""
    return (
        f"compute holds what operators wait for a core: in the step rank {most.rank}, ready to run, waits for one for "
        f"{milliseconds(most.ms)}{beside}."
    )
