"""What is sure of a comparison, in words, whatever noise hides of the step: parts, places, ranks, amounts of work."""

from collections.abc import Sequence

from scalescope.records.console import counted
from scalescope.records.statistics import digits_of
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import figure, listing, milliseconds, ordinal
from scalescope.report.text.codes.host_places import called
from scalescope.report.text.findings import because as why
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
#: What exchanging more, or oftener, changes.
_EXCHANGED = ("exposed_transfer", "exposed_wait")
_ON_ONE_SIDE = ("only_baseline", "only_other")
#: Steps without a profiler are compared by their own lengths, and the parts by those of the profiled ones.
_REST = "not seen in the profiled steps"
#: A loop that stands still for less than this share of what it does on the other side does not stand still there: any
#: loop does so for some microseconds, and how long is told beside it.
_NOTHING_BESIDE = 0.1
#: Ranks whose loops stand still for so much of what the first one's does are told with its figure.
_NEAR = 0.75
#: What is less of a step's sure change is no cause to name beside it.
NO_TRIFLE = 0.1
#: Two steps that are alike by chance are not known to the microsecond.
_MOST_DIGITS = 2


def names_of(answer: Comparison) -> tuple[str, str]:
    """Return both sides' names: apart, and short."""
    here, there = answer.baseline, answer.other
    return (here, there) if here != there else (f"A ({here})", f"B ({there})")


def part_name(part: PartChange) -> str:
    """Return a part's name as people meet it: a kernel kind's own, or that of the partition."""
    return parts.named(part.name).name if part.name in PARTS else _REST if part.name == "rest" else part.name


def signed(change: float, low: float, high: float, unit: str = " ms") -> str:
    """Return a change with its sign, and as many digits as its interval supports."""
    digits = digits_of((high - low) / 2)
    told = figure(abs(change), digits)
    sign = "±" if told == figure(0.0, digits) else "+" if change > 0 else "−"
    return f"{sign}{told}{unit}"


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


def other_work(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what a step that is as long does more or less of, which is counted and no noise: a sentence each, without
    full stops; not what steps that recur do. `here`, `there`: the sides' names.
    """
    clauses = (_more_kernels, _beyond_noise, _late, _unlike, _standing)
    return [words for clause in clauses if (words := clause(answer, here, there))]


def sure_sentences(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what is sure of a step that may be longer or not: a sentence each, without full stops.

    What a loop does that stands still at a place is told once, by that place; it comes first, unless steps that recur
    cost most.
    """
    told = _sure_but_places(answer, here, there)
    if not answer.gaps:
        return told
    still = _stands_still(answer.gaps, here, there)
    return [told[0], still, *told[1:]] if _recurs_most(answer) else [still, *told]


def _sure_but_places(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what is sure but for a place at which a loop stands still; what steps that recur cost comes first where
    that is most.
    """
    clauses = [_more_kernels, _moved_besides, _late_besides, _unlike]
    at = 0 if _recurs_most(answer) else len(clauses)
    clauses[at:at] = [_recurring, _doing]
    return [words for clause in clauses if (words := clause(answer, here, there))]


def _recurs_most(answer: Comparison) -> bool:
    """Tell whether steps that recur cost more beyond noise than any other change that is sure does."""
    often = answer.recurring
    if often is None or not often.differs:
        return False
    places = sum(one.change_ms for one in answer.gaps)
    return abs(often.change_ms) > max(map(abs, [places, *(one.told_ms or 0.0 for one in _parts_besides(answer))]))


def outweighs_the_step(answer: Comparison) -> bool:
    """Tell whether what steps that recur cost changed for sure, by more than the typical step between them did."""
    often = answer.recurring
    return often is not None and often.differs and abs(often.change_ms) > abs(answer.change_ms or 0.0)


def of_recurring(answer: Comparison, here: str, there: str) -> list[str]:
    """Return what steps that recur cost on both sides, and what they do: a sentence each, without full stops."""
    return [words for clause in (_recurring, _doing) if (words := clause(answer, here, there))]


def most_sure_ms(answer: Comparison) -> float:
    """Return the largest change beyond noise of a part, or of what steps that recur cost in the mean, ms a step."""
    often = answer.recurring
    own = [one.told_ms or 0.0 for one in _parts_besides(answer)]
    return max(map(abs, [*own, often.change_ms if often is not None and often.differs else 0.0]))


def _stands_still(gaps: Sequence[GapChange], here: str, there: str) -> str:
    """Return on which side ranks' loops stand still, at which place, and for how long they do on the other."""
    most, others = gaps[0], len(gaps) - len(_alike(gaps))
    (less_ms, less), (more_ms, more) = sorted([(most.baseline_ms, here), (most.other_ms, there)])
    still = f"In {more} {_whose(gaps)} still for {milliseconds(more_ms)} of nearly every step before {_place(most)}"
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
    """Return the parts that changed for sure, and none by another number of kernels: others made up for it."""
    least = WORTH_NAMING * (answer.baseline_ms or 0.0)
    return [one for one in moved(answer) if answer.is_sure(one) and abs(one.change_ms) > least and not one.more_done]


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
    still = _standing if _is_no_trifle(answer.gaps, answer) else None
    clauses = [clause for clause in (_unlike, _late, still, _recurring, _doing) if clause is not None]
    return [words for clause in clauses if (words := clause(answer, here, there))]


def _is_no_trifle(gaps: Sequence[GapChange], answer: Comparison) -> bool:
    """Tell whether for how long loops stand still is worth a word beside a step's change that is beyond noise."""
    own = [one.change_ms for one in gaps if one.rank == gaps[0].rank]
    return abs(sum(own)) > NO_TRIFLE * abs(answer.change_ms or 0.0)


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


def _recurring(answer: Comparison, here: str, there: str) -> str:
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


def _doing(answer: Comparison, here: str, there: str) -> str:
    """Return what a window shows the longer steps to do, in a sentence of its own; "" where few words have told it."""
    one = answer.recurring
    if one is None or not one.differs or one.doing is None or _collects(one):
        return ""
    where = f", on rank {one.doing.rank}" if one.doing.rank is not None else ""
    return f"In {there if one.other_every is not None else here}{where}, {why(one.doing)}"


def _standing(answer: Comparison, here: str, there: str) -> str:
    """Return where ranks' loops stand still for longer, at the place that is most of it."""
    if not answer.gaps:
        return ""
    most = answer.gaps[0]
    more = "longer" if most.change_ms > 0 else "less long"
    low, high = sorted((abs(most.low_ms), abs(most.high_ms)))
    digits = min(_MOST_DIGITS, digits_of((high - low) / 2))
    others = len(answer.gaps) - len(_alike(answer.gaps))
    return (
        f"In nearly every step {_whose(answer.gaps)} still {figure(abs(most.change_ms), digits)} ms {more} "
        f"({figure(low, digits)} to {figure(high, digits)}) in {there} than in {here}, before {_place(most)}"
        f"{f', and at {others} other places' if others else ''}"
    )


def _unlike(answer: Comparison, here: str, there: str) -> str:
    """Return what a step does another amount of."""
    told = sorted(answer.amounts, key=lambda one: _ORDER.index(one.amount))
    if answer.samples is not None and answer.samples.rate is None:  # of which a mean rank's would say too little
        return f"The ranks of {there} take other shares of a step's samples: {other_shares(answer.samples)}"
    if not told:
        return ""
    if answer.verdict != "same" and does_other_work(answer):  # which is said before
        return f"The work that differs: {', '.join(amount_words(one) for one in _far_apart(answer)[:_MOST_AMOUNTS])}"
    what = f"{there} has another number of collectives than {here}"
    if "samples" in {one.amount for one in told}:
        what = f"The steps of {there} are of another batch than those of {here}"
    elif _is_other_work(told):
        if answer.verdict == "same" and _with_more_calls(answer):
            return ""  # told in one sentence with them
        what = f"{there} does not do the same work as {here}"
    return f"{what}: {', '.join(amount_words(one) for one in told[:_MOST_AMOUNTS])}"


def _is_other_work(amounts: Sequence[AmountChange]) -> bool:
    """Tell whether a step does other work by its amounts, on batches that are alike."""
    told = {one.amount for one in amounts}
    return "samples" not in told and bool(told & {"flops_a_sample", "sent_bytes"})


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


def _more_kernels(answer: Comparison, here: str, there: str) -> str:
    """Return which kernels run more or less often; with other work that is counted as well, what costs more first."""
    sure = _with_more_calls(answer)
    told = [", ".join(f"{part_name(one)} {calls(work)} ({told_change(one, ' ms')})" for one, work in sure[:MOST_NAMED])]
    amounts = sorted(answer.amounts, key=lambda one: _ORDER.index(one.amount))
    by_rank = answer.samples is not None and answer.samples.rate is None  # of which the mean rank's say too little
    if sure and answer.verdict == "same" and _is_other_work(amounts) and not by_rank:
        exchanged = sum(one.change_ms for one in answer.parts if one.name in _EXCHANGED)
        first = abs(exchanged) > abs(sum(one.told_ms or 0.0 for one, _ in sure))
        told.insert(0 if first else 1, ", ".join(map(amount_words, amounts[:_MOST_AMOUNTS])))
    return f"{there} does not do the same work as {here}: {'; '.join(told)}" if sure else ""


def _with_more_calls(answer: Comparison) -> list[tuple[PartChange, CountedWork]]:
    """Return the parts of which something is sure that run more or fewer kernels, most changed first."""
    return [(one, one.work) for one in moved(answer) if one.work is not None and one.work.change_ms is not None]


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
    if alone is not None and alone.matched_by in _ON_ONE_SIDE and not _on_both_sides(alone, own):
        whose = names_of(answer)[_ON_ONE_SIDE.index(alone.matched_by)]
        told.append(f"{alone.other_name or alone.baseline_name}, only in {whose}")
    elif part.work is not None and part.work.other_calls != part.work.baseline_calls and not part.work.resized:
        told.append(calls(part.work))
    elif part.name in KINDS and any(one.key == "state.sm_clock_mhz" for one in answer.environment):
        told.append("clocks differ")
    return f" ({', '.join(told)})" if told else ""


def _on_both_sides(row: KernelChange, rows: Sequence[KernelChange]) -> bool:
    """Tell whether the other side has the kernel, too, though not as often."""
    name = row.other_name or row.baseline_name
    return any(name in (one.baseline_name, one.other_name) for one in rows if one.matched_by not in _ON_ONE_SIDE)


def _far_apart(answer: Comparison) -> list[AmountChange]:
    """Return the work of which one side does twice as much or more, or all."""
    return [
        one
        for one in sorted(answer.amounts, key=lambda one: _ORDER.index(one.amount))
        if one.amount in _WORK and max(one.baseline, one.other) >= FAR_APART * min(one.baseline, one.other)
    ]


def exchanges(answer: Comparison) -> AmountChange | None:
    """Return the operation of which a side has far more calls, and sends far more; None where other work differs."""
    sent = _far_apart(answer)
    if not sent or any(one.amount != "sent_bytes" for one in sent):
        return None
    most = max(sent, key=lambda one: abs(one.other - one.baseline)).operation
    calls = next((one for one in answer.amounts if (one.amount, one.operation) == ("collectives", most)), None)
    far = calls is not None and max(calls.baseline, calls.other) >= FAR_APART * min(calls.baseline, calls.other)
    return calls if far else None


def does_other_work(answer: Comparison) -> bool:
    """Tell whether two steps that are laid side by side do other work altogether, of batches that are alike."""
    return bool(_far_apart(answer)) and "samples" not in {one.amount for one in answer.amounts}
