"""What a comparison says, in sentences: whether it is slower, by how much, where, and how sure that is."""

from scalescope.records.console import counted
from scalescope.report.compare.lead import lead_sentence, leading
from scalescope.report.compare.sure import (
    FAR_APART,
    MOST_NAMED,
    WORTH_NAMING,
    because,
    besides,
    moved,
    other_job,
    other_work,
    part_name,
    recurring_words,
    signed,
    sure_first,
    told_change,
)
from scalescope.report.drawing.numbers import WIDE, capitalized, figure, listing, percent
from scalescope.report.text.findings import line
from scalescope.report.text.late.places import changed_places
from scalescope.report.text.samples import as_they_are
from scalescope.report.text.waits.change import WAITED, for_want_of_cores
from scalescope.scaling.compare.answer import Comparison, Noise, PointChange
from scalescope.scaling.trace.kernel_kinds import KINDS

#: Of the compute, what has no counterpart on the other side; from here on that may be another job's.
_ALONE = 0.2
#: Settings are named in a sentence where they are no more than these; what a device does by itself is none.
_FEW_SETTINGS = 3
_STATE = "state."
#: Why a part that is longer beyond noise in the profiled steps is not told to be so in the job's.
NOT_AS_RUN = "those without a profiler do not show it"


def names_of(answer: Comparison) -> tuple[str, str]:
    """Return both sides' names: apart, and short."""
    here, there = answer.baseline, answer.other
    return (here, there) if here != there else (f"A ({here})", f"B ({there})")


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
        wide = max(-low, high) > WIDE * step
        by = f"{signed(change, low, high)} of {figure(step, 2)}"
        bounds = f" (95%: {percent(low / step)} to {percent(high / step)})"
        cores, repeat = _for_want_of_cores(answer), _once_each(answer, max(-low, high))
        # steps that recur are told in the mean: of those the change, which is a median's, says nothing
        which = "typical (median)" if answer.recurring is not None and answer.recurring.differs else "whole"
        longer = "longer" if change >= 0 else "shorter"
        if (lead := leading(answer)) is not None:
            sure = capitalized(lead_sentence(answer, lead, here, there))
            whole = f"by that and all else that runs differ by, the {which} step changed by {by}{bounds}, within noise"
            return f"{sure}; {whole}{cores}{repeat}."
        if wide and (sure := sure_first(answer, here, there)):
            whole = f"whether the {which} step{per} is {longer} is within noise: {by}{bounds}{cores}"
            return f"{capitalized(sure)}; {whole}{repeat}."
        told = f"{there} {'cannot be told from' if wide else 'is as fast as'} {here}{per}, within noise: {by}{bounds}"
        return f"{told}{cores}{'' if wide else other_work(answer)}{repeat}."
    shares = sorted((abs(low / step), abs(high / step)))
    whose = other_job(answer) or _perhaps_other_job(answer)
    return (
        f"{whose}{there} is {percent(abs(change / step))} {answer.verdict}{per} "
        f"(95%: {figure(100 * shares[0], 1)} to {figure(100 * shares[1], 1)}): {signed(change, low, high)}"
        f"{_for_want_of_cores(answer)}{_found_first(answer, here, there)}{_where(answer)}{besides(answer)}."
    )


def _found_first(answer: Comparison, here: str, there: str) -> str:
    """Return what the longer side's own analysis begins with, where the other's has no such cause; "" else."""
    if not answer.alone:
        return ""
    mine, theirs = (there, here) if answer.alone[0].side == "other" else (here, there)
    return f"; found first in {mine}, and not in {theirs}: {line(answer.alone[0].finding).removesuffix('.')}"


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


def _where(answer: Comparison) -> str:
    if not answer.parts:
        return "; where it lies is not known: there are no traces on both sides"
    told = moved(answer)
    if not told:
        return f"{'; ' if answer.alone else ', and '}of no single part is the change beyond noise"
    words = [f"{part_name(one)} {told_change(one)}{because(one, answer)}" for one in told[:MOST_NAMED]]
    rest = [one for one in answer.parts if one not in told[:MOST_NAMED]]
    within = all(one.within_noise for one in rest)
    of = "; sure of its parts is: " if answer.alone else ", of which "
    return f"{of}{', '.join(words)}" + (", the rest within noise" if within and rest else "")


def recurring_sentence(answer: Comparison) -> str:
    """Return what steps that recur take on both sides, where that is within noise: else the first sentence has it; ""
    where none do.
    """
    one = answer.recurring
    if one is None or one.differs:
        return ""
    return f"{capitalized(recurring_words(one))}, within noise, beside the change of the steps between"


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
    return f"nothing tells whether these are of one job{which}: "


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
    return WORTH_NAMING * (answer.baseline_ms or 0.0)


def _basis(answer: Comparison) -> str:
    if answer.basis == "untraced":
        return "steps as run, the median of those without a profiler"
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


def alone_sentences(answer: Comparison) -> list[str]:
    """Return which causes are sure of one side alone, where its steps do not tell; without full stops.

    What a loop does that stands still at a place is said already, by that place; so is what comes first.
    """
    here, there = names_of(answer)
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
    return f"The kernels of one rank's step side by side, {order}; {share}."
