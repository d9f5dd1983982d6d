"""Steps that are far longer now and then on one side of a comparison, at no period, in words."""

from scalescope.records.statistics import digits_of
from scalescope.report.drawing.numbers import figure, listing, milliseconds, signed
from scalescope.scaling.compare.answer import Comparison, IrregularChange

#: Of more steps than these no numbers are told.
_MOST_NAMED = 4


def irregular_change(answer: Comparison, here: str, there: str) -> str:
    """Return what steps that are far longer now and then cost more in the mean step, where that is beyond noise."""
    one = answer.irregular
    if one is None or not one.differs:
        return ""
    change, digits = signed(one.change_ms, one.low_ms, one.high_ms), digits_of((one.high_ms - one.low_ms) / 2)
    bounds = " to ".join(figure(ms, digits).replace("-", "−") for ms in (one.low_ms, one.high_ms))
    return f"{_on_both_sides(one, here, there)}: {change} (95%: {bounds}) in the mean step as measured"


def rare_change(answer: Comparison, here: str, there: str) -> str:
    """Return which steps make much of the mean step and are too few to tell how often such come; "" where none do."""
    one = answer.irregular
    if one is None or not one.too_few:
        return ""
    change = signed(one.change_ms, one.low_ms, one.high_ms)
    few = "one does" if len(one.longer_steps) == 1 else "so few do"
    told = f"{_on_both_sides(one, here, there)}: {change} in the mean step as measured"
    return f"{told}, and {few} not tell how often such come"


def _on_both_sides(one: IrregularChange, here: str, there: str) -> str:
    sides = [(there, one.other_steps, one.other_of, one.other_each_ms),
             (here, one.baseline_steps, one.baseline_of, one.baseline_each_ms)]  # fmt: skip
    (more, steps, of, each), (less, few, of_less, each_less) = sides if one.change_ms > 0 else sides[::-1]
    named = f" ({listing(list(map(str, steps)))})" if len(steps) <= _MOST_NAMED else ""
    beside = f"{len(few)} of {of_less} {milliseconds(each_less)}" if few else f"none of {of_less} does"
    take = "takes" if len(steps) == 1 else "take"
    return f"In {more} {len(steps)} of {of} steps{named} {take} {milliseconds(each)} longer, and in {less} {beside}"
