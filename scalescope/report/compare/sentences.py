"""What a comparison says, in sentences: whether it is slower, by how much, where, and how sure that is."""

from collections.abc import Sequence

import msgspec

from scalescope.records.console import counted
from scalescope.report.compare.amounts import FAR_APART, amount_words, does_other_work, exchanges
from scalescope.report.compare.irregular import rare_change
from scalescope.report.compare.lead import beside_lead, is_trifle, lead_sentences, leading
from scalescope.report.compare.noise import (
    apart_from_waits,
    cores_more_ms,
    is_wide,
    once_each,
    waits_for_cores,
    without_waiting,
)
from scalescope.report.compare.parts import (
    MOST_NAMED,
    WORTH_NAMING,
    because,
    moved,
    names_in_words,
    part_name,
    told_change,
)
from scalescope.report.compare.recurring import of_recurring
from scalescope.report.compare.standing import NO_TRIFLE
from scalescope.report.compare.sure import besides, other_work, outweighs_the_step, sure_sentences
from scalescope.report.drawing.numbers import capitalized, figure, listing, milliseconds, percent, signed
from scalescope.report.text.findings import because as why
from scalescope.report.text.findings import cost, line, name, subject, verb
from scalescope.report.text.late.places import changed_places
from scalescope.report.text.late.together import provided
from scalescope.report.text.long import MOST_WORDS, one_or_two
from scalescope.report.text.recurring import recurring_words
from scalescope.report.text.samples import as_they_are
from scalescope.report.text.waits.change import UNTOLD
from scalescope.scaling.compare.answer import Comparison, FoundAlone, PartChange, PointChange
from scalescope.scaling.finding.finding import ranks_of
from scalescope.scaling.finding.kinds import is_now_and_then, is_of_one_step
from scalescope.scaling.trace.kernel_kinds import KINDS
from scalescope.scaling.verdicts.reference import PARTS_OF

#: Of the compute, what has no counterpart on the other side; from here on that may be another job's.
_ALONE = 0.2
#: Settings are named in a sentence where they are no more than these; what a device does by itself is none.
_FEW_SETTINGS = 3
_STATE = "state."
#: What the other side has less of than this share of a cause is none there.
_NEXT_TO_NOTHING = 0.1
#: A part that is more than this share of what is left beside those that are named is named with it.
_MOSTLY = 0.5
#: Why a part that is longer beyond noise in the profiled steps is not told to be so in the job's.
NOT_AS_RUN = "those without a profiler do not show it"


def headline(answer: Comparison) -> str:
    """Return the first sentence."""
    return verdict_sentences(answer)[0]


def further(answer: Comparison) -> str:
    """Return what is told behind the first sentence: what else is sure, what the whole step did, what to do."""
    return " ".join(verdict_sentences(answer)[1:])


def verdict_sentences(answer: Comparison) -> list[str]:
    """Return the first sentence and what is told behind it, each of which stands alone."""
    return [f"{one.removesuffix('.')}." for one in _told(answer)]


def _told(answer: Comparison) -> list[str]:
    here, there = names_in_words(answer)
    if answer.verdict == "not_comparable":
        return [f"{there} and {here} are not comparable: {answer.notes[0] if answer.notes else answer.reason}"]
    if answer.kind == "sweep":
        return [_of_sweep(answer, here, there)]
    if answer.on_both_sides and not answer.change_ms:
        return [f"{there} and {here} are the same measurement, given twice: that they are alike says nothing of noise"]
    told = _of_same(answer, here, there) if answer.verdict == "same" else _of_longer(answer, here, there)
    rare = rare_change(answer, here, there)
    if not rare or rare in told:
        return told
    return [told[0], rare, *told[1:]]


def _of_same(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what is said of a step whose change is within noise: a cause, what is sure, or that nothing can be told;
    and then what the whole step did, and what tells more.
    """
    waits = waits_for_cores(answer)
    whole = [one for one in (*_whole_step(answer), waits, apart_from_waits(answer), once_each(answer)) if one]
    lead = leading(answer)
    if (more_ms := cores_more_ms(answer)) is not None and (lead is None or (lead.finding.ms or 0.0) <= abs(more_ms)):
        own = without_waiting(answer, more_ms)
        told = (
            lead_sentences(own, lead, here, there)
            if lead is not None and lead.finding.code != "host_starved" and not is_trifle(lead, more_ms)
            else sure_sentences(own, here, there)
        )
        return [waits, *told, *(one for one in whole if one != waits)]
    if lead is not None:
        return [*lead_sentences(answer, lead, here, there), *whole]
    per, rare = _per(answer), rare_change(answer, here, there)
    if not is_wide(answer):
        told = [f"{there} is as fast as {here}{per}, within noise: {_changed_by(answer)}"]
        often = of_recurring(answer, here, there)
        if rare:
            told = [rare, f"But for that {told[0]}"]
        if outweighs_the_step(answer):  # a job that saves for as long as it trains is not as fast as one that does not
            told, often = [*often, *_whole_step(answer)], []
        return [*told, *other_work(answer, here, there), *often, *whole[1:]]
    sure = sure_sentences(answer, here, there)
    but = " but for waits for cores" if answer.sure_as_measured is not None else ""
    if sure:
        return [*sure, *whole]
    told = [f"{there} cannot be told from {here}{per}: what they differ by is within noise{but}"]
    return [*([rare, f"But for that {told[0]}"] if rare else told), *whole]


def _whole_step(answer: Comparison) -> list[str]:
    # steps that recur are told in the mean: of those the change, which is a median's, says nothing
    rare = answer.irregular is not None and answer.irregular.too_few
    which = "typical (median)" if answer.in_the_mean or rare else "whole"
    step = answer.baseline_ms or 1.0
    if (told := answer.sure_as_measured) is not None:
        measured = _by(answer.change_ms or 0.0, told.low_ms, told.high_ms, step)
        free = _by(told.free_ms, told.free_low_ms, told.free_high_ms, step, of=False)
        return [
            f"The {which} step{_per(answer)} as measured: {measured}, beyond noise",
            f"Without what ranks waited for cores: {free}, within noise",
        ]
    known = answer.standing or (answer.by_cause if leading(answer) is not None else None)
    if known is not None:
        still, change = known[0], answer.change_ms or 0.0
        low, high = (answer.low_ms or 0.0) - still, (answer.high_ms or 0.0) - still
        bounds = f"95%: {signed(low, low, high, '')} to {signed(high, low, high)}"
        # what is said beside the first cause is part of that
        rest = "all but the first cause" if answer.standing is None and beside_lead(answer) else "all else"
        return [
            f"The {which} step of {milliseconds(step)} changed by {signed(change, low, high)}, of which {rest} made "
            f"{signed(change - still, low, high)} ({bounds}), within noise"
        ]
    return [f"The {which} step{_per(answer)}: {_changed_by(answer)}, within noise"]


def _changed_by(answer: Comparison) -> str:
    change, low, high = answer.change_ms or 0.0, answer.low_ms or 0.0, answer.high_ms or 0.0
    return _by(change, low, high, answer.baseline_ms or 1.0)


def _by(change: float, low: float, high: float, step: float, *, of: bool = True) -> str:
    """Return a change with its bounds, both in ms; `of`: the step is named."""
    whole = f" of {milliseconds(step)}" if of else ""
    return f"{signed(change, low, high)}{whole} (95%: {signed(low, low, high, '')} to {signed(high, low, high)})"


def _per(answer: Comparison) -> str:
    """Return a sample of what, or on what, a step is that is not laid beside the other as it is."""
    per = " a sample" if answer.by_rate is not None else ""
    return per + (" on another number of ranks" if answer.reason == "another_world_size" else "")


def _of_longer(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what is said of a step that is longer, or shorter, beyond noise: by how much, of which what, and what else
    is no matter of noise.
    """
    change, low, high = answer.change_ms or 0.0, answer.low_ms or 0.0, answer.high_ms or 0.0
    step = answer.baseline_ms or 1.0
    shares = sorted((abs(low / step), abs(high / step)))
    other = _other_work(answer, here)
    # doubt of all of the change stays beside it
    untold = UNTOLD if answer.cores_untold else ""
    told = (
        f"{'' if other else _perhaps_other_job(answer)}{there}{other} is {percent(abs(change / step))} "
        f"{answer.verdict}{_per(answer)} (95%: {figure(100 * shares[0], 1)} to {figure(100 * shares[1], 1)}): "
        f"{signed(change, low, high)}{untold}"
    )
    waits, more_ms = waits_for_cores(answer), cores_more_ms(answer)
    named = _named_first(answer, here) if more_ms is None else None
    if named is not None:
        told += named[0]
    found = named[1] if named is not None else _found_first(answer, here, there)
    if more_ms is not None:  # what takes longer for that is no part of its own to name
        free = without_waiting(answer, more_ms)
        behind, apart = _where(free, 0) if moved(free) else ("", "")
    else:
        behind, apart = _where(answer, 0 if found else MOST_WORDS - len(told.split()))
    own = _without_named(answer) if named is not None else answer
    beside = [one for one in (waits, apart_from_waits(answer), *found, apart) if one]
    beside += besides(own, here, there)
    if outweighs_the_step(answer):
        often = of_recurring(answer, here, there)
        return [*often, f"Between these steps {told}{behind}", *(one for one in beside if one not in often)]
    return [f"{told}{behind}", *beside]


def _other_work(answer: Comparison, here: str) -> str:
    """Return that a side does other work, before how long it takes: how many exchanges, where it is these alone."""
    if not does_other_work(answer):
        return ""
    calls = exchanges(answer)
    return f" makes {amount_words(calls)} in {here}, and" if calls is not None else f" does other work than {here}, and"


def _named_first(answer: Comparison, here: str) -> tuple[str, list[str]] | None:
    """Return what goes behind a step's sure change of the cause that its longer side finds first, and why it costs, in
    a sentence of its own; None where that cause is not sure to be of this side alone, or no measure of the change.

    `here`: the baseline's name.
    """
    if not answer.alone:
        return None
    one = answer.alone[0]
    finding = one.finding
    if finding.ms is None or finding.at_most or is_of_one_step(finding) or (finding.low_ms or 0.0) <= 0:
        return None
    # a rank's cause is what it has beyond the others: of the part that it is of both sides have much
    theirs_ms = (one.like_ms or 0.0) if ranks_of(finding) else _other_ms(answer, one)
    low, high = sorted((abs(answer.low_ms or 0.0), abs(answer.high_ms or 0.0)))
    if theirs_ms > _NEXT_TO_NOTHING * finding.ms or not low <= finding.ms <= high:
        return None
    mine = "it" if one.side == "other" else here
    who = subject(finding)
    what = f"{who}, {name(finding)}," if ranks_of(finding) and who != name(finding) else who
    mean = " in the mean" if is_now_and_then(finding) else ""
    costs = f", and in {mine} alone {what} {verb(finding)} {cost(finding, even=True)}{mean}{provided(finding)}"
    return costs, [capitalized(why(finding))]


def _without_named(answer: Comparison) -> Comparison:
    """Return what is told beside a cause that is named: of a host that stands still, not that it does at its place."""
    finding = answer.alone[0].finding
    if finding.code != "host_stall":
        return answer
    return msgspec.structs.replace(answer, gaps=[one for one in answer.gaps if one.rank not in ranks_of(finding)])


def _found_first(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what the longer side's own analysis begins with, where that is no such cause of the other: found in it
    alone, or dearer there; none else.
    """
    if not answer.alone:
        return []
    one = answer.alone[0]
    mine, theirs = (there, here) if one.side == "other" else (here, there)
    own_ms, their_ms = one.finding.ms or 0.0, _other_ms(answer, one)
    if their_ms <= _NEXT_TO_NOTHING * own_ms:
        return [f"Found in {mine} alone: {line(one.finding)}"]
    if their_ms >= own_ms:
        return [f"Found first in {mine}: {line(one.finding)}"]
    costs = f"{cost(one.finding)} a step, for at most {milliseconds(their_ms)} in {theirs}"
    return one_or_two(
        f"{capitalized(subject(one.finding))} {verb(one.finding)} more in {mine}: {costs}", why(one.finding)
    )


def _other_ms(answer: Comparison, found: FoundAlone) -> float:
    """Return what a cause like it, or the part of a step that it is of, may cost the other side."""
    parts = [one for one in answer.parts if one.name in PARTS_OF.get(found.finding.code, ())]
    whole = sum(one.other_ms if found.side == "baseline" else one.baseline_ms for one in parts)
    return max(whole, found.like_ms or 0.0)


def _where(answer: Comparison, most_words: int) -> tuple[str, str]:
    """Return where a change lies: behind the first sentence, of `most_words`, and what has no room there in one of its
    own; "" for none.
    """
    if not answer.parts:
        return "", "Where it lies is not known: there are no traces on both sides"
    told = moved(answer)[:MOST_NAMED]
    if not told:
        nothing = "f no single part is the change beyond noise"
        return (f", and o{nothing}", "") if len(nothing.split()) < most_words else ("", f"O{nothing}")
    rest = [one for one in answer.parts if one not in told]
    # of what other exchanges take no part's noise says that it is none
    within = bool(rest) and all(one.within_noise for one in rest) and not exchanges(answer)
    left = _left_beside(answer, told, rest) if within else ""
    noise = ", the rest within noise" if within and not left else ""
    words = [f"{part_name(one)} {told_change(one)}{because(one, answer)}" for one in told]
    for count in range(len(words), 0, -1):
        behind = f", of which {', '.join(words[:count])}{noise if count == len(words) else ''}"
        if len(behind.split()) <= most_words:
            break
    else:
        behind, count = "", 0
    if count == len(words):
        return behind, left
    apart = [f"{part_name(one)} {told_change(one, ' ms')}{because(one, answer)}" for one in told[count:]]
    first = "Besides" if count else "Sure of its parts" if answer.alone else "Of that"
    return behind, f"{first}: {', '.join(apart)}{noise}{f'. {left}' if left else ''}"


def _left_beside(answer: Comparison, told: Sequence[PartChange], rest: Sequence[PartChange]) -> str:
    """Return what is left of a sure change beside its named parts, where each of the `rest` is within its own noise; ""
    where that is a trifle.

    What is left of a change that is sure is no noise for that: all that noise hides is which part it is of.
    """
    left_ms = sum(one.change_ms for one in answer.parts) - sum(one.told_ms or 0.0 for one in told)
    if abs(left_ms) < max(NO_TRIFLE * abs(answer.change_ms or 0.0), WORTH_NAMING * answer.step_ms):
        return ""
    most = max(rest, key=lambda one: one.change_ms / left_ms)
    where = f", most of it {part_name(most)}" if most.change_ms / left_ms > _MOSTLY else ""
    left = signed(left_ms, answer.low_ms or 0.0, answer.high_ms or 0.0)
    return f"The rest, {left}, is in parts each of which is within noise{where}"


def recurring_sentence(answer: Comparison) -> str:
    """Return what steps that recur take on both sides, where that is within noise: else it is among what is sure; ""
    where none do.
    """
    one = answer.recurring
    if one is None or one.differs:
        return ""
    return f"{recurring_words(one, *names_in_words(answer))}, within noise, beside the change of the steps between"


def _perhaps_other_job(answer: Comparison) -> str:
    """Return that two steps may well be of two jobs, which nothing names: one is far longer, or runs what the other
    does not.
    """
    if not answer.job_untold:
        return ""
    steps = sorted((answer.baseline_ms or 0.0, answer.other_ms or 0.0))
    alone = 1 - answer.matched_share if answer.matched_share is not None else 0.0
    if alone <= _ALONE and steps[1] < FAR_APART * steps[0]:
        return ""
    which = f" ({percent(alone, 0)} of their compute has no counterpart)" if alone > _ALONE else ""
    return f"Nothing tells whether these are of one job{which}: "


def _of_sweep(answer: Comparison, here: str, there: str) -> str:
    different = [one for one in answer.points if one.differs and one.ratio is not None]
    count = len(answer.points)
    if not different:
        known = any(one.low is not None for one in answer.points)
        how = "within noise" if known else "though neither side tells its spread"
        return f"{there} is as fast as {here} at {'its only point' if count == 1 else f'all {count} points'}, {how}."
    worse = [one for one in different if (one.ratio or 1) < 1]
    better = [one for one in different if (one.ratio or 1) > 1]
    told = [f"slower at {len(worse)}"] if worse else []
    told += [f"faster at {len(better)}"] if better else []
    worst = max(different, key=lambda one: abs((one.ratio or 1) - 1))
    return (
        f"{there} is {listing(told)} of {counted(count, 'point')}; most at {point_name(worst)}: {_times(worst, here)}."
    )


def point_name(point: PointChange) -> str:
    """Return a point of a sweep in words."""
    return f"{point.operation} {point.bytes} B {point.dtype} n={point.group_size} {point.variant}"


def _times(point: PointChange, here: str) -> str:
    known = f" (95%: {figure(point.low, 3)} to {figure(point.high or 0, 3)})" if point.low is not None else ""
    return f"{figure(point.ratio or 0, 3)} times {here}'s bandwidth{known}"


def settings_sentence(answer: Comparison) -> str:
    """Return what was set otherwise, where that is little: whatever else varies, this is known to differ."""
    told = [one for one in answer.environment if not one.key.startswith(_STATE)]
    if not 0 < len(told) <= _FEW_SETTINGS:
        return ""
    words = [f"{one.key.removeprefix('config.')} {_set_to(one.other)} ({_set_to(one.baseline)} there)" for one in told]
    return f"Set otherwise: {listing(words)}"


def alone_sentences(answer: Comparison) -> list[str]:
    """Return which causes are sure of one side alone, where its steps do not tell; without full stops.

    What a loop does that stands still at a place is said already, by that place; so is what comes first.
    """
    here, there = names_in_words(answer)
    still = {one.rank for one in answer.gaps}
    lead = leading(answer)
    rest = [one for one in answer.alone if one is not lead]
    told = [one for one in rest if not (one.finding.code == "host_stall" and one.finding.rank in still)]
    found = [f"Found in {here if one.side == 'baseline' else there} alone: {line(one.finding)}" for one in told]
    if not found or answer.verdict != "same":  # beyond noise the first sentence has it
        return []
    if lead is not None:
        return found  # the whole step is told beside that
    it = "it" if len(found) == 1 else "them"
    return [
        *found[:-1],
        f"{found[-1].removesuffix('.')}; the whole step as measured does not tell {it} apart from noise",
    ]


def places_sentence(answer: Comparison) -> str:
    """Return which ranks changed places; "" where none did."""
    return changed_places(answer.places) if answer.places is not None else ""


def samples_sentence(answer: Comparison) -> str:
    """Return why steps are compared as they are where ranks take other shares of their samples; else ""."""
    told = answer.samples
    return capitalized(as_they_are(told)) if told is not None and told.rate is None else ""


def _set_to(value: str | None) -> str:
    return value if value is not None else "not set"


def kernels_are_as_long(answer: Comparison) -> bool:
    """Tell whether all that kernels differ by is within noise: then none has a share of a change."""
    kinds = [one for one in answer.parts if one.name in KINDS]
    sure = {one.name for one in moved(answer)}
    return bool(kinds) and not any(one.name in sure for one in kinds)


def kernels_sentence(answer: Comparison) -> str:
    """Return how much of the kernels' time has a counterpart on the other side, and whether they differ for sure."""
    if not answer.matched_share:
        return ""
    alike = kernels_are_as_long(answer)
    of_window = any(answer.is_of_the_window(one) and not one.within_noise for one in answer.parts if one.name in KINDS)
    why = f"of the profiled steps alone: {NOT_AS_RUN}" if of_window else "within noise"
    order = f"longest first; what they differ by is {why}" if alike else "most changed first"
    share = f"{percent(answer.matched_share)} of the compute has a counterpart"
    whose = f"rank {answer.kernels_rank}" if answer.kernels_rank is not None else "one rank"
    return f"The kernels of {whose}'s step side by side, {order}; {share}."
