"""What is said of ranks that changed places between two measurements."""

from scalescope.report.drawing.numbers import figure, rank_names
from scalescope.scaling.answer_rows import PlacesChange

#: What the others wait is known to a twentieth of a step at best.
_FEW_MS, _DIGITS = 10.0, 1


def changed_places(one: PlacesChange) -> str:
    """Return which ranks have most to do on either side, without a full stop."""
    here, there = rank_names(one.other), rank_names(one.baseline)
    late = ""
    if one.other_late_ms is not None and one.baseline_late_ms is not None:
        late = f"{_long(one.other_late_ms)} here and {_long(one.baseline_late_ms)} there"
    if one.other_samples is None or one.baseline_samples is None:
        return f"The ranks changed places: by all steps the others wait for {here} here and for {there} there, {late}"
    has = "has" if len(one.other) == 1 else "have"
    beside = "" if one.other_samples == one.baseline_samples else f" ({one.baseline_samples:,})"
    waits = f"; the others wait for it for {late}" if late else ""
    most = f"{here} {has} most to do here ({one.other_samples:,} samples a step)"
    return f"The ranks changed places: {most}, and {there} there{beside}{waits}"


def _long(ms: float) -> str:
    return f"{figure(ms, _DIGITS if ms < _FEW_MS else 0)} ms"
