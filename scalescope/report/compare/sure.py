"""What is sure of a comparison, in words, whatever noise hides of the step: parts, places, ranks, amounts of work."""

from collections.abc import Sequence

from scalescope.records.statistics import digits_of
from scalescope.report.compare.amounts import more_kernels, unlike
from scalescope.report.compare.exchanged import exchanged, in_place_of, is_replaced
from scalescope.report.compare.irregular import irregular_change
from scalescope.report.compare.parts import MOST_NAMED, WORTH_NAMING, because, moved, part_name, told_change
from scalescope.report.compare.recurring import doing, recurring_change
from scalescope.report.compare.standing import is_no_trifle, standing, stands_still
from scalescope.report.drawing.numbers import figure, listing
from scalescope.scaling.compare.answer import Comparison, PartChange


def other_work(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what a step that is as long does more or less of, which is counted and no noise: a sentence each, without
    full stops; not what steps that recur do. `here`, `there`: the sides' names.
    """
    clauses = (more_kernels, in_place_of, _beyond_noise, _late, unlike, standing)
    return [words for clause in clauses if (words := clause(answer, here, there))]


def sure_sentences(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what is sure of a step that may be longer or not: a sentence each, without full stops.

    What a loop does that stands still at a place is told once, by that place; it comes first, unless steps that recur
    cost most.
    """
    told = _sure_but_places(answer, here, there)
    if not answer.gaps:
        return told
    still = stands_still(answer.gaps, here, there)
    return [told[0], still, *told[1:]] if _recurs_most(answer) else [still, *told]


def _sure_but_places(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what is sure but for a place at which a loop stands still; what steps that recur cost comes first where
    that is most.
    """
    clauses = [more_kernels, in_place_of, _moved_besides, _late_besides, unlike]
    at = 0 if _recurs_most(answer) else len(clauses)
    clauses[at:at] = [recurring_change, doing, irregular_change]
    return [words for clause in clauses if (words := clause(answer, here, there))]


def _recurs_most(answer: Comparison) -> bool:
    """Tell whether steps that recur cost more beyond noise than any other change that is sure does."""
    if not answer.in_the_mean:
        return False
    places = sum(one.change_ms for one in answer.gaps)
    return abs(_in_the_mean_ms(answer)) > max(
        map(abs, [places, *(one.told_ms or 0.0 for one in _parts_besides(answer))])
    )


def outweighs_the_step(answer: Comparison) -> bool:
    """Tell whether what steps that recur cost changed for sure, by more than the typical step between them did."""
    return bool(answer.in_the_mean) and abs(_in_the_mean_ms(answer)) > abs(answer.change_ms or 0.0)


def _in_the_mean_ms(answer: Comparison) -> float:
    """Return what steps that are longer every so often, or now and then, cost more beyond noise, ms a step."""
    return sum(one.change_ms for one in answer.in_the_mean)


def most_sure_ms(answer: Comparison) -> float:
    """Return the largest change beyond noise of a part, or of what steps that recur cost in the mean, ms a step."""
    own = [one.told_ms or 0.0 for one in _parts_besides(answer)]
    return max(map(abs, [*own, _in_the_mean_ms(answer)]))


def _moved_besides(answer: Comparison, here: str, there: str) -> str:
    return _in_words(_parts_besides(answer), answer, here, there)


def _parts_besides(answer: Comparison) -> list[PartChange]:
    """Return the parts that changed for sure, but for the idle time of a rank whose loop is told to stand still, and
    for what steps that recur cost in the mean, of which the profiled ones are some.
    """
    still = next(iter(answer.gaps), None)

    def is_told(part: PartChange) -> bool:
        alike = still is not None and part.rank in (None, still.rank) and part.change_ms * still.change_ms > 0
        return _is_as_recurring(part, answer) or (part.name == "idle_launch" and alike)

    return [one for one in _sure_parts(answer) if not is_told(one)]


def _is_as_recurring(part: PartChange, answer: Comparison) -> bool:
    """Tell whether a part may have changed by what steps that recur cost: the profiled ones hold more of them, or
    fewer, than come to them, so that both are one within their bounds.
    """
    often = answer.recurring
    if often is None or not often.differs or part.change_ms * often.change_ms <= 0:
        return False
    return part.low_ms <= often.high_ms and often.low_ms <= part.high_ms


def _late_besides(answer: Comparison, here: str, there: str) -> str:
    """Return which rank keeps the others waiting for longer, but for one whose loop is told to stand still."""
    late = answer.late
    still = late is not None and any(
        one.rank == late.rank and one.change_ms * late.change_ms > 0 for one in answer.gaps
    )
    return "" if still else _late(answer, here, there)


def _sure_parts(answer: Comparison) -> list[PartChange]:
    """Return the parts that changed for sure, and none by another number of kernels: others made up for it, or run in
    its place.
    """
    least, instead = WORTH_NAMING * answer.step_ms, exchanged(answer)
    sure = [one for one in moved(answer) if answer.is_sure(one) and abs(one.change_ms) > least and not one.more_done]
    return [one for one in sure if not is_replaced(one, instead)]


def _in_words(sure: Sequence[PartChange], answer: Comparison, here: str, there: str) -> str:
    """Return which parts a step has more or less of, in a sentence."""
    if not sure:
        return ""
    unless = ", unless other processes had its cores," if answer.cores_untold else ""
    words = [f"{_more_or_less(one)} {part_name(one)}" for one in sure[:MOST_NAMED]]
    whys = [because(one, answer) for one in sure[:MOST_NAMED]]
    if len(words) == 1:
        return f"In {there}{unless} a step has {words[0]} than in {here}{whys[0]}"
    told = listing([f"{what}{why}" for what, why in zip(words, whys, strict=True)])
    return f"In {there}{unless} a step has {told} than in {here}"


def _more_or_less(part: PartChange) -> str:
    return f"{told_change(part, ' ms').lstrip('+−±')} {'more' if (part.told_ms or 0.0) > 0 else 'less'}"


def _beyond_noise(answer: Comparison, here: str, there: str) -> str:
    return _in_words(_sure_parts(answer), answer, here, there)


def besides(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what is no matter of noise of a step that is slower, or faster: a sentence each, without full stops."""
    still = standing if is_no_trifle(answer.gaps, answer) else None
    clauses = [
        clause for clause in (unlike, _late, still, recurring_change, doing, irregular_change) if clause is not None
    ]
    return [words for clause in clauses if (words := clause(answer, here, there))]


def _late(answer: Comparison, here: str, there: str) -> str:
    """Return which rank keeps the others waiting for longer, unless a part of that rank's says so."""
    late = answer.late
    if answer.places is not None and answer.places.other_late_ms is not None:
        return ""  # for another rank they wait less long by as much
    if late is None or any(one.rank == late.rank and one.of_one_rank and not one.within_noise for one in answer.parts):
        return ""
    more = "longer" if late.change_ms > 0 else "less long"
    low, high = sorted((abs(late.low_ms), abs(late.high_ms)))
    digits = digits_of((high - low) / 2)
    return (
        f"By all steps rank {late.rank} keeps the others waiting {figure(abs(late.change_ms), digits)} ms {more} "
        f"({figure(low, digits)} to {figure(high, digits)}) in {there} than in {here}"
    )
