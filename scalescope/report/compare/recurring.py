"""Steps that are longer every so often on one side of a comparison, in words."""

from scalescope.records.statistics import digits_of
from scalescope.report.compare.irregular import irregular_change
from scalescope.report.compare.parts import signed
from scalescope.report.drawing.numbers import figure, milliseconds, ordinal
from scalescope.report.text.findings import because as why
from scalescope.scaling.compare.answer import Comparison, RecurringChange


def of_recurring(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what steps that recur cost on both sides, and what they do: a sentence each, without full stops."""
    return [words for clause in (recurring_change, doing, irregular_change) if (words := clause(answer, here, there))]


def recurring_change(answer: Comparison, here: str, there: str) -> str:
    """Return what steps that recur cost more, where that is beyond noise."""
    one = answer.recurring
    return recurring_words(one, here, there) if one is not None and one.differs else ""


def recurring_words(one: RecurringChange, here: str, there: str) -> str:
    """Return what steps that recur take on both sides, what they do, and what they cost in the mean step."""
    digits = digits_of((one.high_ms - one.low_ms) / 2)
    bounds = " to ".join(figure(ms, digits).replace("-", "−") for ms in (one.low_ms, one.high_ms))
    told = f"{_how_often(one, here, there)}: {signed(one.change_ms, one.low_ms, one.high_ms)} (95%: {bounds})"
    return f"{told} in the mean step"


def _how_often(one: RecurringChange, here: str, there: str) -> str:
    collecting = ", as Python collects its garbage" if _collects(one) else ""
    if 1 in (one.baseline_every, one.other_every):
        told = [(there, _by_the_loop(one.other_every, one.other_each_ms)),
                (here, _by_the_loop(one.baseline_every, one.baseline_each_ms))]  # fmt: skip
        (first, held), (second, beside) = told if one.other_every is not None else told[::-1]
        return f"In {first} {held}, and in {second} {beside}"
    if one.other_every is None:
        each = f"{milliseconds(one.baseline_each_ms)} longer{collecting}"
        return f"In {here} every {ordinal(one.baseline_every or 0)} step takes {each}, and in {there} none does"
    longer = (
        f"In {there} every {ordinal(one.other_every)} step takes {milliseconds(one.other_each_ms)} longer{collecting}"
    )
    if one.baseline_every is None:
        return f"{longer}, and in {here} none does"
    every = f"every {ordinal(one.baseline_every)} " if one.baseline_every != one.other_every else ""
    return f"{longer}, and in {here} {every}{milliseconds(one.baseline_each_ms)}"


def _by_the_loop(every: int | None, each_ms: float) -> str:
    """Return what a side's loop does between steps, beside one whose loop is held up at no one period."""
    if every is None:
        return "it is not"
    if every == 1:
        return f"the loop is held up between steps, for {milliseconds(each_ms)} at a time"
    return f"every {ordinal(every)} step takes {milliseconds(each_ms)} longer"


def _collects(one: RecurringChange) -> bool:
    known = one.doing.remedy if one.doing is not None else None
    return known is not None and known.cure == "collect_less"


def doing(answer: Comparison, here: str, there: str) -> str:
    """Return what a window shows the longer steps to do, in a sentence of its own; "" where few words have told it."""
    one = answer.recurring
    if one is None or not one.differs or one.doing is None or _collects(one):
        return ""
    where = f", on rank {one.doing.rank}" if one.doing.rank is not None else ""
    return f"In {there if one.other_every is not None else here}{where}, {why(one.doing)}"
