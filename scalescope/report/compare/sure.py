"""What is sure of a comparison, in words, whatever noise hides of the step: parts, places, ranks, amounts of work."""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.records.console import counted
from scalescope.records.statistics import digits_of
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import figure, listing, milliseconds, ordinal
from scalescope.report.text.codes.host_places import called
from scalescope.report.text.samples import other_shares
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.compare.alike.same_work import size_of
from scalescope.scaling.compare.answer import (
    Amount,
    AmountChange,
    Comparison,
    CountedWork,
    GapChange,
    KernelChange,
    PartChange,
    RecurringChange,
)
from scalescope.scaling.trace.kernel_kinds import KINDS

#: More parts are not named in the first sentence.
MOST_NAMED = 3
#: Work besides that takes less of the step is in the table alone.
WORTH_NAMING = 0.001
#: A kernel that makes up so much of a part's change is named.
_MOST_OF_IT = 0.7
#: Amounts of work are named in this order, and no more of them.
_ORDER: tuple[Amount, ...] = ("samples", "flops_a_sample", "collectives", "sent_bytes")
_MOST_AMOUNTS = 2
#: What a step does so many times as much of on one side is said before that it takes another time.
FAR_APART = 2.0
_WORK: tuple[Amount, ...] = ("flops_a_sample", "sent_bytes")
_SIDES = {"only_other": "here", "only_baseline": "there"}
#: Steps without a profiler are compared by their own lengths, and the parts by those of the profiled ones.
_REST = "not seen in the profiled steps"
#: A loop that stands still for less than this share of what it does on the other side does not stand still there: any
#: loop does so for some microseconds, and how long is told beside it.
_NOTHING_BESIDE = 0.1
#: Ranks whose loops stand still for so much of what the first one's does are told with its figure.
_NEAR = 0.75
#: What is less of a step's sure change is no cause to name beside it.
_NO_TRIFLE = 0.1
#: Two steps that are alike by chance are not known to the microsecond.
_MOST_DIGITS = 2


def part_name(part: PartChange) -> str:
    """Return a part's name as people meet it: a kernel kind's own, or that of the partition."""
    return parts.named(part.name).name if part.name in PARTS else _REST if part.name == "rest" else part.name


def signed(change: float, low: float, high: float, unit: str = " ms") -> str:
    """Return a change with its sign, and as many digits as its interval supports."""
    digits = digits_of((high - low) / 2)
    return f"{'+' if change > 0 else '−' if change < 0 else '±'}{figure(abs(change), digits)}{unit}"


def moved(answer: Comparison) -> list[PartChange]:
    """Return the parts of whose change something is sure, most first: it is beyond noise, or more or less is done."""
    least = WORTH_NAMING * (answer.baseline_ms or 0.0)
    sure = [one for one in answer.parts if answer.is_sure(one) or (one.more_done and abs(one.told_ms or 0.0) > least)]
    return sorted(sure, key=lambda one: -abs(one.told_ms or 0.0))


def told_change(part: PartChange, unit: str = "") -> str:
    """Return what is sure of a part's change: all of it, or what more kernels take."""
    if (more := part.counted) is not None and more.change_ms is not None:
        return signed(more.change_ms, more.low_ms or 0.0, more.high_ms or 0.0, unit)
    return signed(part.change_ms, part.low_ms, part.high_ms, unit)


def other_work(answer: Comparison) -> str:
    """Return what a step that is as long does more or less of, which is counted and no noise."""
    told = ""
    for clause in (_more_kernels, _beyond_noise, _late, _unlike, _standing, _recurring):
        if words := clause(answer):
            told += f"{', and ' if told else '; ' if clause is _beyond_noise else ', though '}{words}"
    return told


def sure_first(answer: Comparison, here: str, there: str) -> str:
    """Return what is sure of a step that may be longer or not, to be said before that; "" where nothing is.

    `here`, `there`: the sides' names. What a loop does that stands still at a place is told once, by that place.
    """
    told, unless = sure_clauses(answer), unless_others(answer)
    if answer.gaps and _recurs_most(answer):
        told = [told[0], _standing(answer), *told[1:]]
    elif answer.gaps:
        return "; ".join([_stands_still(answer.gaps, here, there), *(f"besides{unless}, {words}" for words in told)])
    return f"for sure in {there}, compared with {here}{unless}: {', and '.join(told)}" if told else ""


def sure_clauses(answer: Comparison) -> list[str]:
    """Return what is sure of a step that may be longer or not, but for a place at which a loop stands still; steps that
    recur come first where they cost most.
    """
    clauses = [_more_kernels, _moved_besides, _late_besides, _unlike]
    clauses.insert(0 if _recurs_most(answer) else len(clauses), _recurring)
    return [words for clause in clauses if (words := clause(answer))]


def _recurs_most(answer: Comparison) -> bool:
    """Tell whether steps that recur cost more beyond noise than any other change that is sure does."""
    often = answer.recurring
    if often is None or not often.differs:
        return False
    besides = replace(answer, recurring=None)
    return abs(often.change_ms) > max(most_sure_ms(besides), abs(sum(one.change_ms for one in answer.gaps)))


def most_sure_ms(answer: Comparison) -> float:
    """Return the largest change beyond noise of a part, or of what steps that recur cost in the mean, ms a step."""
    often = answer.recurring
    own = [one.told_ms or 0.0 for one in _parts_besides(answer)]
    return max(map(abs, [*own, often.change_ms if often is not None and often.differs else 0.0]))


def unless_others(answer: Comparison) -> str:
    """Return what makes parts doubtful that are beyond noise, where nothing tells who had the ranks' cores."""
    return ", unless other processes had its cores" if answer.cores_untold and _parts_besides(answer) else ""


def _stands_still(gaps: Sequence[GapChange], here: str, there: str) -> str:
    """Return on which side ranks' loops stand still, at which place, and for how long they do on the other."""
    most, others = gaps[0], len(gaps) - len(_alike(gaps))
    (less_ms, less), (more_ms, more) = sorted([(most.baseline_ms, here), (most.other_ms, there)])
    still = f"in {more} {_whose(gaps)} still for {milliseconds(more_ms)} of nearly every step before {_place(most)}"
    elsewhere = f", and for longer or shorter at {counted(others, 'other place')}" if others else ""
    if less_ms >= _NOTHING_BESIDE * more_ms:
        return f"{still}, in {less} for {milliseconds(less_ms)}{elsewhere}"
    what = "they do not" if len(_alike(gaps)) > 1 else "it does not"
    return f"{still}, which {what} in {less} ({milliseconds(less_ms)}){elsewhere}"


def _alike(gaps: Sequence[GapChange]) -> list[GapChange]:
    """Return those of the place that is most of it, one a rank: its figures are near those of the first."""
    first = gaps[0]
    return [one for one in gaps if one.before == first.before and one.change_ms / first.change_ms >= _NEAR]


def _whose(gaps: Sequence[GapChange]) -> str:
    ranks = sorted({one.rank for one in _alike(gaps)})
    told = listing(list(map(str, ranks)))
    return f"rank {told}'s loop stands" if len(ranks) == 1 else f"the loops of ranks {told} stand"


def _place(gap: GapChange) -> str:
    return called(gap.before) if gap.before is not None else "the end of the step"


def _moved_besides(answer: Comparison) -> str:
    return _in_words(_parts_besides(answer), answer)


def _parts_besides(answer: Comparison) -> list[PartChange]:
    """Return the parts that changed for sure, but for the idle time of a rank whose loop is told to stand still, and
    for what steps that recur cost in the mean, of which the profiled ones are some.
    """
    still = next(iter(answer.gaps), None)

    def is_told(part: PartChange) -> bool:
        alike = still is not None and part.rank in (None, still.rank) and part.change_ms * still.change_ms > 0
        often = answer.recurring
        recurs = often is not None and often.differs and often.low_ms <= part.change_ms <= often.high_ms
        return recurs or (part.name == "idle_launch" and alike)

    return [one for one in _sure_parts(answer) if not is_told(one)]


def _late_besides(answer: Comparison) -> str:
    """Return which rank keeps the others waiting for longer, but for one whose loop is told to stand still."""
    late = answer.late
    still = late is not None and any(
        one.rank == late.rank and one.change_ms * late.change_ms > 0 for one in answer.gaps
    )
    return "" if still else _late(answer)


def _sure_parts(answer: Comparison) -> list[PartChange]:
    """Return the parts that changed for sure, and none by another number of kernels: others made up for it."""
    least = WORTH_NAMING * (answer.baseline_ms or 0.0)
    return [one for one in moved(answer) if answer.is_sure(one) and abs(one.change_ms) > least and not one.more_done]


def _in_words(sure: Sequence[PartChange], answer: Comparison) -> str:
    return ", ".join(f"{part_name(one)} {told_change(one, ' ms')}{because(one, answer)}" for one in sure[:MOST_NAMED])


def _beyond_noise(answer: Comparison) -> str:
    unless = ", unless other processes had its cores" if answer.cores_untold else ""
    return f"sure is{unless}: {_in_words(sure, answer)}" if (sure := _sure_parts(answer)) else ""


def besides(answer: Comparison) -> str:
    """Return what is no matter of noise of a step that is slower, or faster."""
    still = _standing if _is_no_trifle(answer.gaps, answer) else None
    clauses = [clause for clause in (_late, _unlike, still, _recurring) if clause is not None]
    return "".join(f"; {words}" for clause in clauses if (words := clause(answer)))


def _is_no_trifle(gaps: Sequence[GapChange], answer: Comparison) -> bool:
    """Tell whether for how long loops stand still is worth a word beside a step's change that is beyond noise."""
    own = [one.change_ms for one in gaps if one.rank == gaps[0].rank]
    return abs(sum(own)) > _NO_TRIFLE * abs(answer.change_ms or 0.0)


def _late(answer: Comparison) -> str:
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
        f"by all steps rank {late.rank} keeps the others waiting {figure(abs(late.change_ms), digits)} ms {more} "
        f"({figure(low, digits)} to {figure(high, digits)})"
    )


def _recurring(answer: Comparison) -> str:
    """Return what steps that recur cost more, where that is beyond noise."""
    one = answer.recurring
    return recurring_words(one) if one is not None and one.differs else ""


def recurring_words(one: RecurringChange) -> str:
    """Return what steps that recur take on both sides, and what they cost in the mean step."""
    digits = digits_of((one.high_ms - one.low_ms) / 2)
    bounds = f"95%: {figure(one.low_ms, digits)} to {figure(one.high_ms, digits)}"
    return f"{_how_often(one)}: {signed(one.change_ms, one.low_ms, one.high_ms)} ({bounds}) in the mean step"


def _how_often(one: RecurringChange) -> str:
    if one.other_every is None:
        there = f"{milliseconds(one.baseline_each_ms)} longer"
        return f"there every {ordinal(one.baseline_every or 0)} step takes {there}, and here none does"
    here = f"every {ordinal(one.other_every)} step takes {milliseconds(one.other_each_ms)} longer"
    if one.baseline_every is None:
        return f"{here}, and there none does"
    every = f"every {ordinal(one.baseline_every)} " if one.baseline_every != one.other_every else ""
    return f"{here} ({every}{milliseconds(one.baseline_each_ms)} there)"


def _standing(answer: Comparison) -> str:
    """Return where ranks' loops stand still for longer, at the place that is most of it."""
    if not answer.gaps:
        return ""
    most = answer.gaps[0]
    more = "longer" if most.change_ms > 0 else "less long"
    low, high = sorted((abs(most.low_ms), abs(most.high_ms)))
    digits = min(_MOST_DIGITS, digits_of((high - low) / 2))
    others = len(answer.gaps) - len(_alike(answer.gaps))
    return (
        f"in nearly every step {_whose(answer.gaps)} still {figure(abs(most.change_ms), digits)} ms {more} "
        f"({figure(low, digits)} to {figure(high, digits)}) before {_place(most)}"
        f"{f', and at {others} other places' if others else ''}"
    )


def _unlike(answer: Comparison) -> str:
    """Return what a step does another amount of."""
    told = sorted(answer.amounts, key=lambda one: _ORDER.index(one.amount))
    if answer.samples is not None and answer.samples.rate is None:  # of which a mean rank's would say too little
        return f"its ranks take other shares of a step's samples: {other_shares(answer.samples)}"
    if not told or (answer.verdict != "same" and other_job(answer)):
        return ""
    amounts = {one.amount for one in told}
    what = "its collectives are not as many"
    if "samples" in amounts:
        what = "its steps are of another batch"
    elif amounts & {"flops_a_sample", "sent_bytes"}:
        what = "it is not the same work"
    return f"{what}: {', '.join(amount_words(one) for one in told[:_MOST_AMOUNTS])}"


def amount_words(one: AmountChange) -> str:
    """Return an amount on both sides, in words."""
    if one.amount == "samples":
        return f"{_whole(one.other)} samples a rank's step for {_whole(one.baseline)}"
    if one.amount == "flops_a_sample":
        return f"{figure(one.other / one.baseline, 2)} times the FLOPs a sample"
    if one.amount == "collectives":
        return f"{one.other:,.0f} {one.operation} calls a step for {one.baseline:,.0f}"
    return f"{one.operation} of {size_of(one.other)} a step for {size_of(one.baseline)}"


def _whole(samples: float) -> str:
    """Return a number of samples, which is no whole one where it is a mean of ranks that differ."""
    return f"{samples:,.0f}" if samples == round(samples) else f"{samples:,.1f}"


def _more_kernels(answer: Comparison) -> str:
    sure = [(one, one.work) for one in moved(answer) if one.work is not None and one.work.change_ms is not None]
    words = [f"{part_name(one)} {calls(work)} ({told_change(one, ' ms')})" for one, work in sure[:MOST_NAMED]]
    return f"it is not the same work: {', '.join(words)}" if words else ""


def calls(work: CountedWork) -> str:
    """Return by how many calls a step does more or less."""
    whose = f" on rank {work.rank}" if work.rank is not None else ""
    return f"{work.other_calls:,} calls a step for {work.baseline_calls:,}{whose}"


def because(part: PartChange, answer: Comparison) -> str:
    """Return in brackets whose part it is, and what stands beside its change."""
    told = [f"rank {part.rank}" if part.of_one_rank else "on every rank"] if part.rank is not None else []
    if part.counted is not None and part.counted.rank is not None:
        told = [f"rank {part.counted.rank}"]
    own = [one for one in answer.kernels if one.kind == part.name]
    grown = {one: (one.other_us - one.baseline_us) / 1e3 for one in own}
    whole = part.told_ms or part.change_ms
    alone = next((one for one, ms in grown.items() if whole and ms / whole >= _MOST_OF_IT), None)
    if alone is not None and alone.matched_by in _SIDES and not _on_both_sides(alone, own):
        told.append(f"{alone.other_name or alone.baseline_name}, only {_SIDES[alone.matched_by]}")
    elif part.work is not None and part.work.other_calls != part.work.baseline_calls and not part.work.resized:
        told.append(calls(part.work))
    elif part.name in KINDS and any(one.key == "state.sm_clock_mhz" for one in answer.environment):
        told.append("clocks differ")
    return f" ({', '.join(told)})" if told else ""


def _on_both_sides(row: KernelChange, rows: Sequence[KernelChange]) -> bool:
    """Tell whether the other side has the kernel, too, though not as often."""
    name = row.other_name or row.baseline_name
    return any(name in (one.baseline_name, one.other_name) for one in rows if one.matched_by not in _SIDES)


def _far_apart(answer: Comparison) -> list[AmountChange]:
    """Return the work of which one side does twice as much or more, or all."""
    return [
        one
        for one in sorted(answer.amounts, key=lambda one: _ORDER.index(one.amount))
        if one.amount in _WORK and max(one.baseline, one.other) >= FAR_APART * min(one.baseline, one.other)
    ]


def other_job(answer: Comparison) -> str:
    """Return that two steps that are laid side by side do other work altogether, before what that makes of them."""
    told = _far_apart(answer)
    if not told or "samples" in {one.amount for one in answer.amounts}:
        return ""
    return f"these do not do the same work ({', '.join(amount_words(one) for one in told[:_MOST_AMOUNTS])}): "
