"""A scaling efficiency in words: with its 95% interval where it is known no better than to a hundredth."""

from collections.abc import Sequence

from scalescope.records.statistics import digits_of
from scalescope.report.drawing.numbers import percent
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.study_answer import ScalingPoint
from scalescope.scaling.verdicts.growth import measured_growth

#: An interval that reaches less far is not worth a reader's word.
_WORTH_SAYING = 0.01


def efficiency_figure(last: ScalingPoint, runs: Sequence[RunAnalysis]) -> str:
    """Return the efficiency alone, with no digits below its interval. `runs`: those of its series, ascending."""
    told = _interval(last, runs)
    return percent(last.efficiency) if told is None else percent(last.efficiency, _digits(told))


def efficiency_text(last: ScalingPoint, runs: Sequence[RunAnalysis]) -> str:
    """Return the efficiency, and its interval where that is worth a word: `78% (67% to 94%)`."""
    figure, told = efficiency_figure(last, runs), _interval(last, runs)
    if told is None or _half(told) < _WORTH_SAYING:
        return figure
    return f"{figure} ({percent(told.low, _digits(told))} to {percent(told.high, _digits(told))})"


def _digits(told: Interval) -> int:
    return min(1, digits_of(100 * _half(told)))


def _half(told: Interval) -> float:
    return (told.high - told.low) / 2


def _interval(last: ScalingPoint, runs: Sequence[RunAnalysis]) -> Interval | None:
    """Return the efficiency's interval, by that of what the measured step grew by; None where it is not told."""
    large = next((run for run in runs if run.name == last.run), None)
    if large is None or runs[0] is large or runs[0].step_times is None:
        return None
    grown, before = measured_growth(runs[0], large), runs[0].step_times.measured_step_ms
    if grown is None or before is None or before + grown.low <= 0:
        return None
    whole = last.efficiency * (before + grown.value)  # an efficiency goes with one over the step
    return Interval(last.efficiency, whole / (before + grown.high), whole / (before + grown.low))
