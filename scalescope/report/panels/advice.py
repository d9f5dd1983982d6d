"""Advice, shown: what would bring most, the setting that makes it, and what came of it where it was tried."""

from collections.abc import Sequence

from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.report.drawing.panel import Panel
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.report_data import Material
from scalescope.report.views import run_label
from scalescope.scaling.answer import Advice, RunAnalysis, TriedAdvice

_OF_STEADY_STEPS = ("measured_ms", "base_step_ms", "run_step_ms")


def advice_sentence(advice: Advice) -> str:
    """Return one advice as a sentence with its figures: `gradient buckets of 25 MiB: 1.2 ms (0.9 to 1.4), …`."""
    if advice.at_most:
        gain = f"at most {milliseconds(advice.gain_ms)} a step, {percent(advice.fraction)}"
    else:
        gain = (
            f"{milliseconds(advice.gain_ms)} a step ({milliseconds(advice.low_ms)} to {milliseconds(advice.high_ms)}), "
            f"{percent(advice.fraction)}"
        )
    how = f" with {' '.join(advice.overrides)}" if advice.overrides else ""
    return f"{advice.what}{how}: {gain}"


def advice_table(advice: Sequence[Advice]) -> Table:
    """Return the advice as a table, best first."""
    columns = [
        Column("what", "change"),
        Column("because", "because"),
        Column("gain_ms", "expected gain", "ms", 2),
        Column("interval_ms", "95% interval", "ms"),
        Column("fraction", "of the step", "%", 1, 100),
        Column("overrides", "setting"),
        Column("elsewhere", "in a script of your own"),
    ]
    rows: list[list[Cell]] = [
        [one.what, one.because, one.gain_ms, _interval(one), one.fraction, " ".join(one.overrides) or None,
         one.elsewhere]
        for one in advice
    ]  # fmt: skip
    return Table(columns, rows, {"overrides": "no setting of a job does it"})


def tried_table(tried: Sequence[TriedAdvice]) -> Table:
    """Return what was expected of advice beside what came of it."""
    columns = [
        Column("run", "run"),
        Column("what", "change"),
        Column("expected_ms", "expected gain", "ms", 2),
        Column("expected_interval_ms", "95% interval", "ms"),
        Column("measured_ms", "measured gain", "ms", 2),
        Column("measured_interval_ms", "95% interval", "ms"),
        Column("base_step_ms", "step before", "ms", 2),
        Column("run_step_ms", "step after", "ms", 2),
    ]
    rows: list[list[Cell]] = [
        [one.run, one.what, one.expected_ms,
         "at most" if one.at_most else f"{one.expected_low_ms:.2f} to {one.expected_high_ms:.2f}",
         one.measured_ms, _measured(one), one.base_step_ms, one.run_step_ms]
        for one in tried
    ]  # fmt: skip
    reasons = dict.fromkeys(_OF_STEADY_STEPS, "one of the runs has no steady steps")
    return Table(columns, rows, reasons | {"measured_interval_ms": "one of the runs has fewer than ten steady steps"})


def advice_panels(material: Material) -> list[Panel]:
    """Return a panel a replayed run, and one for what was tried."""
    panels = [_advice_panel(answer) for answer in material.answers if answer.replay is not None]
    tried = material.study.tried if material.study is not None else []
    if tried:
        panels.append(Panel("tried", "Advice followed", tried_sentence(tried), tried_table(tried)))
    return panels


def tried_sentence(tried: Sequence[TriedAdvice]) -> str:
    """Return what came of the advice, in words."""
    told = []
    for one in tried:
        expected = f"{'at most ' if one.at_most else ''}{milliseconds(one.expected_ms)}"
        came = "was not measured" if one.measured_ms is None else f"{milliseconds(one.measured_ms)} came"
        told.append(f"{one.what} ({' '.join(one.overrides)}): {expected} a step expected, {came}")
    return f"{'; '.join(told)}."


def _advice_panel(answer: RunAnalysis) -> Panel:
    replay = answer.replay
    assert replay is not None
    held = (
        f"Replayed from what waits for what, the step takes {milliseconds(replay.replayed_ms)} "
        f"({percent(abs(replay.error), 2)} off the traced {milliseconds(replay.traced_ms)})."
    )
    if not replay.faithful:
        sentence = f"{held} That is too far off to predict anything."
    elif not answer.advice:
        sentence = f"{held} No setting that the replay can try is sure to bring half a per cent of the step."
    else:
        sentence = f"{held} Most would come of: {advice_sentence(answer.advice[0])}."
    table = advice_table(answer.advice)
    assumed = f"Assumed: {'; '.join(replay.assumptions)}." if replay.assumptions else ""
    return Panel(
        f"advice-{answer.name}", run_label(answer), sentence, Table(table.columns, table.rows, table.reasons, assumed)
    )


def _interval(advice: Advice) -> str:
    return "at most" if advice.at_most else f"{advice.low_ms:.2f} to {advice.high_ms:.2f}"


def _measured(tried: TriedAdvice) -> str | None:
    if tried.measured_low_ms is None or tried.measured_high_ms is None:
        return None
    return f"{tried.measured_low_ms:.2f} to {tried.measured_high_ms:.2f}"
