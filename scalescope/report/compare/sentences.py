"""What a comparison says, in sentences: whether it is slower, by how much, where, and how sure that is."""

from collections.abc import Sequence

from scalescope.records.console import counted
from scalescope.records.statistics import digits_of
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import WIDE, capitalized, figure, listing, milliseconds, ordinal, percent
from scalescope.report.text.cores import WAITED, for_want_of_cores
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.compare.answer import (
    Amount,
    AmountChange,
    Comparison,
    CountedWork,
    KernelChange,
    Noise,
    PartChange,
    PointChange,
    RecurringChange,
)
from scalescope.scaling.compare.same_work import size_of
from scalescope.scaling.trace.kernel_kinds import KINDS

#: More parts are not named in the first sentence.
_MOST_NAMED = 3
#: Work besides that takes less of the step is in the table alone.
_WORTH_NAMING = 0.001
#: A kernel that makes up so much of a part's change is named.
_MOST_OF_IT = 0.7
#: Amounts of work are named in this order, and no more of them.
_ORDER: tuple[Amount, ...] = ("samples", "flops_a_sample", "collectives", "sent_bytes")
_MOST_AMOUNTS = 2
#: What a step does so many times as much of on one side is said before that it takes another time.
_FAR_APART = 2.0
#: Of the compute, what has no counterpart on the other side; from here on that may be another job's.
_ALONE = 0.2
_WORK: tuple[Amount, ...] = ("flops_a_sample", "sent_bytes")
_SIDES = {"only_other": "here", "only_baseline": "there"}
_REST = "what the traces do not show"
#: Settings are named in a sentence where they are no more than these; what a device does by itself is none.
_FEW_SETTINGS = 3
_STATE = "state."


def names_of(answer: Comparison) -> tuple[str, str]:
    """Return both sides' names: apart, and short."""
    here, there = answer.baseline, answer.other
    return (here, there) if here != there else (f"A ({here})", f"B ({there})")


def part_name(part: PartChange) -> str:
    """Return a part's name as people meet it: a kernel kind's own, or that of the partition."""
    return parts.named(part.name).name if part.name in PARTS else _REST if part.name == "rest" else part.name


def headline(answer: Comparison) -> str:
    """Return the first sentence."""
    here, there = names_of(answer)
    if answer.verdict == "not_comparable":
        return f"{there} and {here} are not comparable: {answer.notes[0] if answer.notes else answer.reason}."
    if answer.kind == "sweep":
        return _of_sweep(answer, here, there)
    if answer.on_both_sides and not answer.change_ms:
        return f"{there} and {here} are the same measurement, given twice: that they are alike says nothing of noise."
    change, low, high = answer.change_ms or 0.0, answer.low_ms or 0.0, answer.high_ms or 0.0
    step = answer.baseline_ms or 1.0
    per = " a sample" if answer.by_rate is not None else ""
    per += " on another number of ranks" if answer.reason == "another_world_size" else ""
    if answer.verdict == "same":
        sure, wide = _other_work(answer), max(-low, high) > WIDE * step
        by = f"{signed(change, low, high)} of {figure(step, 2)}"
        bounds = f" (95%: {percent(low / step)} to {percent(high / step)})"
        told = f"{there} {'cannot be told from' if wide else 'is as fast as'} {here}{per}, within noise: {by}{bounds}"
        if wide and sure:  # something of it is told all the same
            told = f"{there} may take as long as {here}{per}: {by} is within noise{bounds}"
        return f"{told}{_for_want_of_cores(answer)}{sure}{_once_each(answer, max(-low, high))}."
    shares = sorted((abs(low / step), abs(high / step)))
    whose = _other_job(answer) or _perhaps_other_job(answer)
    return (
        f"{whose}{there} is {percent(abs(change / step))} {answer.verdict}{per} "
        f"(95%: {figure(100 * shares[0], 1)} to {figure(100 * shares[1], 1)}): {signed(change, low, high)}"
        f"{_for_want_of_cores(answer)}{_where(answer)}{_besides(answer)}."
    )


def _once_each(answer: Comparison, hidden_ms: float) -> str:
    """Return that one run a side cannot tell a change from how runs differ, where that may hide much; what tells it."""
    noise = answer.noise
    if noise is None or noise.unit == "repeats" or hidden_ms <= WIDE * (answer.baseline_ms or 0.0):
        return ""
    return (
        "; one run a side does not tell a change of the step from how runs differ: run both again, and give all of "
        "them (--baseline, --other)"
    )


def _for_want_of_cores(answer: Comparison) -> str:
    """Return how much of a change ranks waited for cores, where that is a good part of it, or that nothing tells."""
    noise = answer.noise
    waited = (None, None) if noise is None else (noise.baseline_run_delay_ms, noise.other_run_delay_ms)
    untold = answer.cores_untold and answer.verdict != "same"  # within noise it is in any case
    return for_want_of_cores(answer.change_ms or 0.0, answer.baseline_ms or 0.0, waited, untold=untold)


def signed(change: float, low: float, high: float, unit: str = " ms") -> str:
    """Return a change with its sign, and as many digits as its interval supports."""
    digits = digits_of((high - low) / 2)
    return f"{'+' if change > 0 else '−' if change < 0 else '±'}{figure(abs(change), digits)}{unit}"


def _where(answer: Comparison) -> str:
    if not answer.parts:
        return "; where it lies is not known: there are no traces on both sides"
    told = moved(answer)
    if not told:
        return ", and of no single part is the change beyond noise"
    words = [f"{part_name(one)} {_told(one)}{_because(one, answer)}" for one in told[:_MOST_NAMED]]
    rest = [one for one in answer.parts if one not in told[:_MOST_NAMED]]
    within = all(one.within_noise for one in rest)
    return f", of which {', '.join(words)}" + (", the rest within noise" if within and rest else "")


def moved(answer: Comparison) -> list[PartChange]:
    """Return the parts of whose change something is sure, most first: it is beyond noise, or more or less is done."""
    least = _WORTH_NAMING * (answer.baseline_ms or 0.0)
    sure = [one for one in answer.parts if not one.within_noise or abs(one.told_ms or 0.0) > least]
    return sorted(sure, key=lambda one: -abs(one.told_ms or 0.0))


def _told(part: PartChange, unit: str = "") -> str:
    """Return what is sure of a part's change: all of it, or what more kernels take."""
    if (more := part.counted) is not None and more.change_ms is not None:
        return signed(more.change_ms, more.low_ms or 0.0, more.high_ms or 0.0, unit)
    return signed(part.change_ms, part.low_ms, part.high_ms, unit)


def _other_work(answer: Comparison) -> str:
    """Return what a step that is as long does more or less of, which is counted and no noise."""
    told = _more_kernels(answer)
    for words in (_beyond_noise, _late, _unlike, _standing, _recurring):
        told += words(answer, ", and " if told else ", though ")
    return told


def _beyond_noise(answer: Comparison, link: str) -> str:
    """Return which parts changed for sure, and none by another number of kernels: others made up for it."""
    least = _WORTH_NAMING * (answer.baseline_ms or 0.0)
    sure = [
        one
        for one in moved(answer)
        if not one.within_noise and abs(one.change_ms) > least and (one.work is None or one.work.change_ms is None)
    ]
    words = [f"{part_name(one)} {_told(one, ' ms')}{_because(one, answer)}" for one in sure[:_MOST_NAMED]]
    unless = ", unless other processes had its cores" if answer.cores_untold else ""
    link = "; " if link == ", though " else link
    return f"{link}sure is{unless}: {', '.join(words)}" if words else ""


def _besides(answer: Comparison) -> str:
    """Return what is no matter of noise of a step that is slower, or faster."""
    return _late(answer, "; ") + _unlike(answer, "; ") + _standing(answer, "; ") + _recurring(answer, "; ")


def _late(answer: Comparison, link: str) -> str:
    """Return which rank keeps the others waiting for longer, unless a part of that rank's says so."""
    late = answer.late
    if late is None or any(one.rank == late.rank and one.of_one_rank and not one.within_noise for one in answer.parts):
        return ""
    more = "longer" if late.change_ms > 0 else "less long"
    low, high = sorted((abs(late.low_ms), abs(late.high_ms)))
    digits = digits_of((high - low) / 2)
    return (
        f"{link}by all steps rank {late.rank} keeps the others waiting {figure(abs(late.change_ms), digits)} ms {more} "
        f"({figure(low, digits)} to {figure(high, digits)})"
    )


def _recurring(answer: Comparison, link: str) -> str:
    """Return what steps that recur cost more, where that is beyond noise."""
    if answer.recurring is None or not answer.recurring.differs:
        return ""
    told = _recurring_words(answer.recurring)
    change = signed(answer.recurring.change_ms, answer.recurring.low_ms, answer.recurring.high_ms)
    return f"{link}{told}: {change} in the mean step"


def recurring_sentence(answer: Comparison) -> str:
    """Return what steps that recur take on both sides, which the step's change says nothing of; "" where none do."""
    one = answer.recurring
    if one is None:
        return ""
    digits = digits_of((one.high_ms - one.low_ms) / 2)
    sure = f"{figure(one.low_ms, digits)} to {figure(one.high_ms, digits)}"
    within = "" if one.differs else ", within noise"
    change = signed(one.change_ms, one.low_ms, one.high_ms)
    told = f"{capitalized(_recurring_words(one))}: {change} (95%: {sure}) in the mean step"
    return f"{told}{within}, beside the change of the steps between"


def _recurring_words(one: RecurringChange) -> str:
    if one.other_every is None:
        there = f"{milliseconds(one.baseline_each_ms)} longer"
        return f"there every {ordinal(one.baseline_every or 0)} step takes {there}, and here none does"
    here = f"every {ordinal(one.other_every)} step takes {milliseconds(one.other_each_ms)} longer"
    if one.baseline_every is None:
        return f"{here}, and there none does"
    every = f"every {ordinal(one.baseline_every)} " if one.baseline_every != one.other_every else ""
    return f"{here} ({every}{milliseconds(one.baseline_each_ms)} there)"


def _standing(answer: Comparison, link: str) -> str:
    """Return where ranks' loops stand still for longer, at the place that is most of it."""
    if not answer.gaps:
        return ""
    most = answer.gaps[0]
    alike = [one for one in answer.gaps if one.before == most.before and one.change_ms * most.change_ms > 0]
    ranks = sorted({one.rank for one in alike})
    whose = (
        f"rank {ranks[0]}'s loop stands"
        if len(ranks) == 1
        else f"the loops of ranks {listing(list(map(str, ranks)))} stand"
    )
    more = "longer" if most.change_ms > 0 else "less long"
    low, high = sorted((abs(most.low_ms), abs(most.high_ms)))
    digits = digits_of((high - low) / 2)
    others = len(answer.gaps) - len(alike)
    return (
        f"{link}in nearly every step {whose} still {figure(abs(most.change_ms), digits)} ms {more} "
        f"({figure(low, digits)} to {figure(high, digits)}) before {most.before or 'its end'}"
        f"{f', and at {others} other places' if others else ''}"
    )


def _far_apart(answer: Comparison) -> list[AmountChange]:
    """Return the work of which one side does twice as much or more, or all."""
    return [
        one
        for one in sorted(answer.amounts, key=lambda one: _ORDER.index(one.amount))
        if one.amount in _WORK and max(one.baseline, one.other) >= _FAR_APART * min(one.baseline, one.other)
    ]


def _other_job(answer: Comparison) -> str:
    """Return that two steps that are laid side by side do other work altogether, before what that makes of them."""
    told = _far_apart(answer)
    if not told or "samples" in {one.amount for one in answer.amounts}:
        return ""
    return f"these do not do the same work ({', '.join(amount_words(one) for one in told[:_MOST_AMOUNTS])}): "


def _perhaps_other_job(answer: Comparison) -> str:
    """Return that two steps may well be of two jobs, which nothing names: one is far longer, or runs what the other
    does not.
    """
    if not answer.job_untold:
        return ""
    steps = sorted((answer.baseline_ms or 0.0, answer.other_ms or 0.0))
    alone = 1 - answer.matched_share if answer.matched_share is not None else 0.0
    if alone <= _ALONE and steps[1] < _FAR_APART * steps[0]:
        return ""
    which = f" ({percent(alone, 0)} of their compute has no counterpart)" if alone > _ALONE else ""
    return f"nothing tells whether these are of one job{which}: "


def _unlike(answer: Comparison, link: str) -> str:
    """Return what a step does another amount of."""
    told = sorted(answer.amounts, key=lambda one: _ORDER.index(one.amount))
    if not told or (answer.verdict != "same" and _other_job(answer)):
        return ""
    amounts = {one.amount for one in told}
    what = "its collectives are not as many"
    if "samples" in amounts:
        what = "its steps are of another batch"
    elif amounts & {"flops_a_sample", "sent_bytes"}:
        what = "it is not the same work"
    return f"{link}{what}: {', '.join(amount_words(one) for one in told[:_MOST_AMOUNTS])}"


def amount_words(one: AmountChange) -> str:
    """Return an amount on both sides, in words."""
    if one.amount == "samples":
        return f"{one.other:,.0f} samples a rank's step for {one.baseline:,.0f}"
    if one.amount == "flops_a_sample":
        return f"{figure(one.other / one.baseline, 2)} times the FLOPs a sample"
    if one.amount == "collectives":
        return f"{one.other:,.0f} {one.operation} calls a step for {one.baseline:,.0f}"
    return f"{one.operation} of {size_of(one.other)} a step for {size_of(one.baseline)}"


def _more_kernels(answer: Comparison) -> str:
    sure = [(one, one.work) for one in moved(answer) if one.work is not None and one.work.change_ms is not None]
    words = [f"{part_name(one)} {calls(work)} ({_told(one, ' ms')})" for one, work in sure[:_MOST_NAMED]]
    return f", though it is not the same work: {', '.join(words)}" if words else ""


def calls(work: CountedWork) -> str:
    """Return by how many calls a step does more or less."""
    whose = f" on rank {work.rank}" if work.rank is not None else ""
    return f"{work.other_calls:,} calls a step for {work.baseline_calls:,}{whose}"


def _because(part: PartChange, answer: Comparison) -> str:
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
    elif part.work is not None and part.work.other_calls != part.work.baseline_calls:
        told.append(calls(part.work))
    elif part.name in KINDS and any(one.key == "state.sm_clock_mhz" for one in answer.environment):
        told.append("clocks differ")
    return f" ({', '.join(told)})" if told else ""


def _on_both_sides(row: KernelChange, rows: Sequence[KernelChange]) -> bool:
    """Tell whether the other side has the kernel, too, though not as often."""
    name = row.other_name or row.baseline_name
    return any(name in (one.baseline_name, one.other_name) for one in rows if one.matched_by not in _SIDES)


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


def noise_sentence(answer: Comparison) -> str:
    """Return what the intervals rest on."""
    noise = answer.noise
    if noise is None:
        return ""
    besides = f"{_run_delay(answer, noise)}{_chosen(answer)}"
    return f"{capitalized(_basis(answer))}; {_rests_on(noise)}; {_at_once(noise)}{besides}"


def _run_delay(answer: Comparison, noise: Noise) -> str:
    """Return for how long ranks had no core, where that is much of a step: it is in the bounds."""
    waited = [noise.baseline_run_delay_ms, noise.other_run_delay_ms]
    if max(ms or 0.0 for ms in waited) <= WAITED * (answer.baseline_ms or 0.0):
        return ""
    there, here = ("nothing tells" if ms is None else f"{figure(ms, 1)} ms" for ms in waited)
    return (
        f"; a rank waits for a core for so long of a step: {there} there, {here} here (other processes had it, or "
        "other threads of the job): the bounds hold that, and a machine left alone gives narrower ones"
    )


def _chosen(answer: Comparison) -> str:
    """Return what other kernels make of a change, which a library may have chosen: it is in the bounds."""
    told = [one for one in answer.parts if one.chosen_ms is not None and abs(one.chosen_ms) > _chosen_least(answer)]
    if not told:
        return ""
    words = listing([f"{part_name(one)} {signed(one.chosen_ms or 0.0, one.low_ms, one.high_ms)}" for one in told])
    return (
        f"; other kernels do the same operators' work ({words}), as libraries choose them anew in each run by which is "
        "quickest: the bounds hold that, and four runs a side tell how it falls"
    )


def _chosen_least(answer: Comparison) -> float:
    return _WORTH_NAMING * (answer.baseline_ms or 0.0)


def _basis(answer: Comparison) -> str:
    if answer.basis == "untraced":
        return "steps without a profiler"
    return "steps as run, without what recording cost" if answer.basis == "as_run" else "steps as profiled"


def _rests_on(noise: Noise) -> str:
    if noise.unit == "steps":
        return (
            "one run a side, so what its steps differ by, and what runs of one undisturbed job are known to, give the "
            "noise: repeats on both sides tell how runs of this one differ"
        )
    if noise.unit == "windows":
        return (
            f"one run a side, of {noise.baseline} and {noise.other} windows, so what these differ by and what runs of "
            "one job are known to differ by give the noise: repeats on both sides give a narrower interval"
        )
    if min(noise.baseline, noise.other) < 2:
        return f"noise between {_count(noise)}, where one stands alone and is taken to vary as the other side's do"
    return f"noise between {_count(noise)}"


def _count(noise: Noise) -> str:
    return f"{noise.baseline} and {noise.other} repeats"


def _at_once(noise: Noise) -> str:
    times = figure(noise.parts_factor, 1)
    return f"parts are tested all at once, so that their bounds are {times} times as wide as one's alone"


def settings_sentence(answer: Comparison) -> str:
    """Return what was set otherwise, where that is little: whatever else varies, this is known to differ."""
    told = [one for one in answer.environment if not one.key.startswith(_STATE)]
    if not 0 < len(told) <= _FEW_SETTINGS:
        return ""
    words = [f"{one.key.removeprefix('config.')} {_set_to(one.other)} ({_set_to(one.baseline)} there)" for one in told]
    return f"Set otherwise: {listing(words)}"


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
    order = "longest first; what they differ by is within noise" if alike else "most changed first"
    share = f"{percent(answer.matched_share)} of the compute has a counterpart"
    return f"The kernels of one rank's step side by side, {order}; {share}."
