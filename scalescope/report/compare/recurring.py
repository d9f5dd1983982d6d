"""Steps that are longer every so often on one side of a comparison, in words."""

from scalescope.report.compare.irregular import irregular_change
from scalescope.report.text.findings import because as why
from scalescope.report.text.recurring import collects, recurring_words
from scalescope.scaling.compare.answer import Comparison


def of_recurring(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what steps that recur cost on both sides, and what they do: a sentence each, without full stops."""
    return [words for clause in (recurring_change, doing, irregular_change) if (words := clause(answer, here, there))]


def recurring_change(answer: Comparison, here: str, there: str) -> str:
    """Return what steps that recur cost more, where that is beyond noise."""
    one = answer.recurring
    return recurring_words(one, here, there) if one is not None and one.differs else ""


def doing(answer: Comparison, here: str, there: str) -> str:
    """Return what a window shows the longer steps to do, in a sentence of its own; "" where few words have told it."""
    one = answer.recurring
    if one is None or not one.differs or one.doing is None or collects(one):
        return ""
    where = f", on rank {one.doing.rank}" if one.doing.rank is not None else ""
    return f"In {there if one.other_every is not None else here}{where}, {why(one.doing)}"
