"""Predictions as a panel: what changes would do to a step, and what that rests on."""

from collections.abc import Sequence

from scalescope.report.drawing.numbers import capitalized, listing, milliseconds, percent
from scalescope.report.drawing.panel import Panel
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.sentences import sentence as sentence_of
from scalescope.scaling.replay.whatif.prediction import Prediction, WhatIf

_COLUMNS = (
    Column("change", "change"),
    Column("step_ms", "step", "ms", 2),
    Column("change_ms", "change of the step", "ms", 2),
    Column("interval_ms", "95% interval", "ms"),
    Column("fraction", "of the step", "%", 1, 100),
)


def replay_panel(answer: WhatIf) -> Panel:
    """Return the panel of one run's predictions."""
    replay = answer.replay
    held = "" if replay.faithful else "That is too far off: nothing is predicted. "
    replays = f"replays in {milliseconds(replay.replayed_ms)} ({percent(abs(replay.error), 2)} off)"
    sentence = f"{_untold(answer.predictions)}{answer.name}: {_steps(answer)} {replays}. {held}".rstrip()
    if not answer.predictions:
        return Panel(f"whatif-{answer.name}", "", f"{sentence} {_why_none(answer)}".rstrip(), Table(_COLUMNS, []))
    reasons = "; ".join(dict.fromkeys(one.reason for one in answer.predictions if one.reason))
    table = Table(
        _COLUMNS,
        [_row(one) for one in answer.predictions],
        {column.key: reasons for column in _COLUMNS[1:]},
        note="Assumed: " + "; ".join(replay.assumptions) + "." if replay.assumptions else "",
    )
    return Panel(f"whatif-{answer.name}", "What a change would do", sentence, table)


def _steps(answer: WhatIf) -> str:
    """Return which step changes are of, and then the one that was recorded, which is replayed."""
    traced, step = milliseconds(answer.replay.traced_ms), milliseconds(answer.step_ms)
    own = milliseconds(answer.own_ms) if answer.own_ms is not None else step
    of_it = ", of which all changes are" * bool(answer.predictions)
    beside = f"the job's own steps take {own}"
    if answer.of == "without_recording":
        return f"{beside}, the profiled ones {step} without recording{of_it}; the recorded one of {traced}"
    if answer.of == "as_profiled" or step == traced:
        if own in (step, traced):
            return f"the traced step of {traced}"
        return f"{beside}; the traced one of {traced}{of_it},"
    usual = "if recording costs what it usually does, " * (answer.of == "likely")
    return f"{usual}the step takes {step} as run{of_it}; the recorded one of {traced}"


def _why_none(answer: WhatIf) -> str:
    """Return why nothing is predicted where no change was asked for, and which ones can be."""
    if answer.unpriced is not None:
        return "" if answer.unpriced.code == "unfaithful" else sentence_of(capitalized(answer.unpriced.text))
    if answer.nothing_found is None:
        return ""
    found = answer.nothing_found
    flags = ["--bucket-mib 5,50", "--gradients bf16"] if found.gradients else []
    flags += ["--link 2x", "--perfect-overlap"] if found.exchanges else []
    said = "All known causes were looked for, and none was found: there is nothing to take out."
    return f"{said} Other changes can be asked for: {listing(flags)}." if flags else said


def _untold(predictions: Sequence[Prediction]) -> str:
    """Return which changes may make the step longer as well as shorter, in a sentence; "" where none may."""
    either = [one.what for one in predictions if _may_be_either(one)]
    if not either:
        return ""
    return f"It cannot be told whether the step would be shorter or longer: {'; '.join(either)}. "


def _may_be_either(one: Prediction) -> bool:
    return one.low_ms is not None and one.high_ms is not None and one.low_ms < 0 < one.high_ms


def _row(one: Prediction) -> list[Cell]:
    return [one.what, one.step_ms, one.change_ms, _interval(one), one.fraction]


def _interval(one: Prediction) -> str | None:
    if one.low_ms is None or one.high_ms is None:
        return None
    return f"{one.high_ms:+.2f} or further" if one.at_least else f"{one.low_ms:+.2f} to {one.high_ms:+.2f}"
