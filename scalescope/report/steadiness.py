"""What is said of profiled steps beside the measured ones: what profiling costs, or that the machine was unsteady."""

from collections.abc import Sequence

from scalescope.records.steps.unevenness import UNLIKE
from scalescope.report.as_run.recording import as_run_sentence, by_own_steps, recording_ms, slower_by, unmeasured
from scalescope.report.as_run.shown import is_as_measured, is_shown_alone, step_of_job
from scalescope.report.drawing.numbers import (
    READS_AS_ZERO_MS,
    capitalized,
    figure,
    listing,
    milliseconds,
    numbers_named,
    ordinal,
    percent,
)
from scalescope.report.replayed import Replayed, fewer_replayed, long_among
from scalescope.report.text.recurring import long_ones, longer_by_ms
from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.answer_steps import SteadyStretch, StepTimes
from scalescope.scaling.as_run.of_job import beyond_the_job_ms
from scalescope.scaling.finding.kinds import is_of_steady_steps
from scalescope.scaling.verdicts.step_rows.doubt import (
    contradict,
    differ_by_workers,
    have_workers_the_cores,
    is_longer_recorded,
    is_of_other_steps,
    is_unlike,
    longer_for_long_ones_ms,
    scatter,
    told_usual_ms,
    was_unsteady,
)

#: A drawn step that is so near the measured one needs no word beside it.
AS_MEASURED = 0.01

#: What makes steps differ where no machine does.
OWN_WORKERS = "the job's own loader workers have the ranks' cores"
_MISLEADS = "so the other steps may spend their time otherwise"


def profiling_line(run: RunAnalysis) -> str:
    """Return what a step takes without a profiler, and what profiling costs it; empty where nothing tells, or where it
    is said already how unlike the profiled steps are.
    """
    times = run.step_times
    if times is None or times.measured_step_ms is None or times.profiling_overhead_ms is None or _is_unlike(run):
        return ""
    if is_shown_alone(run) or is_as_measured(run):
        return ""  # what recording costs is told, and what else makes profiled steps longer
    where = " where the profiled ones were" if run.growing is not None else ""
    text = f"A step takes {figure(times.measured_step_ms, 2)} ms{where} without a profiler"
    if times.unsteady:  # by a few per cent steps differ on any machine: then only what profiling costs is not known
        within = times.placebo_ms is not None and abs(times.profiling_overhead_ms) <= times.placebo_ms
        spread = f" (± {figure(times.placebo_ms or 0.0, 2)} ms)"
        if within:
            return f"{text}; what profiling costs is less than such steps differ anyway{spread}."
        longer = "longer" if times.profiling_overhead_ms > 0 else "shorter"
        return f"{text}; the profiled ones are {longer}, {_why(times, times.profiling_overhead_ms)}."
    if times.profiling_overhead_ms < 0:
        return f"{text}, the profiled ones {figure(-times.profiling_overhead_ms, 2)} ms less."
    known = recording_ms(run)
    takes = f", of which recording takes {milliseconds(known)}" if known is not None else ""
    return f"{text}, the profiled ones {figure(times.profiling_overhead_ms, 2)} ms longer{takes}."


def recording_line(run: RunAnalysis) -> str:
    """Return what recording takes of a profiled step, of which no length is told beside the job's own; else what
    `as_run_sentence` does. Of how many steps the figures are is said where it is not told before.
    """
    told = run.as_run
    if told is None or not is_shown_alone(run):
        return as_run_sentence(run)
    if not as_run_sentence(run):
        return ""
    taken, fewer = recording_ms(run), fewer_replayed(run)
    if terms := unmeasured(run):
        return f"{terms}, which are left out.{_of_how_many(run, fewer)}"
    takes = "too little to show"
    if taken is not None:
        takes = f"{milliseconds(taken)}{by_own_steps(run)} of a profiled step, and is left out"
    return f"Recording takes {takes}{slower_by(told)}.{_of_how_many(run, fewer)}"


def _of_how_many(run: RunAnalysis, fewer: Replayed | None) -> str:
    """Return of how many of the profiled steps the figures are, where that is not said before, and why not of all."""
    if fewer is None:
        return ""
    if step_of_job(run):
        which = f"are {numbers_named(fewer.numbers)}" if fewer.numbers else f"are {fewer.steps} of {fewer.of}"
        return f" The profiled steps that figures are of {which}: {fewer.why}." if fewer.why else ""
    why = f": {fewer.why}" if fewer.why else ""
    return f" Figures are of {fewer.of_which}{why}."


def longer_recorded_sentences(run: RunAnalysis) -> str:
    """Return that recording made its steps longer, and not the machine, and what is told of them therefore; or ""."""
    found = run.step_times.longer_recorded if run.step_times is not None else None
    if found is None or not is_longer_recorded(run):
        return ""
    steady = ", and the machine was steady" if not uneven_sentence(run) else ""
    beside = list(dict.fromkeys((milliseconds(found.before_ms), milliseconds(found.after_ms))))
    text = (
        f"Recorded steps took {milliseconds(found.recorded_ms)}, those before and after them {listing(beside)}: "
        f"recording made them longer, most likely by fresh memory pages{steady}"
    )
    told = run.as_run
    if told is not None and told.slowed_ms >= READS_AS_ZERO_MS:
        return f"{text}. So operators are told at the pace of the others, {milliseconds(told.slowed_ms)} a step less."
    share = percent(min(1.0, found.beside_ms / found.recorded_ms), 0)
    return f"{text}. Of what is told of operators, about {share} is theirs in other steps."


def unlike_sentence(run: RunAnalysis, where: str) -> str:
    """Return a warning where the profiled steps are not like the measured ones; empty where they are.

    `where`: what ran them, in words.
    """
    times = run.step_times
    if times is None or not _is_unlike(run) or is_as_measured(run) or is_longer_recorded(run):
        return ""  # the step as run is like the measured one, and says what recording costs the profiled ones
    paced = is_shown_alone(run) and not contradict(run) and _is_at_pace_of_job(run, run.as_run)
    if any(is_of_steady_steps(one) for one in run.findings[:1]):  # whose mean is told, and is no median of either
        if paced:
            return ""  # at the job's pace they are as long, and all that is told of them is at that
        return f"On {where} the profiled steps are not like the mean one, {_MISLEADS}."
    unlike = is_unlike(run)
    if not unlike and not contradict(run) and scatter(times):
        return f"On {where} {_why_unlike(run)}: {_scattered(times)}, {_MISLEADS}."
    if is_shown_alone(run) and not contradict(run):
        if paced:  # which is said with the figures: no second length stands beside them
            return (
                f"On {where} {_why_unlike(run)}: {_at_own_pace(run)}, {_MISLEADS}."
                if was_unsteady(run) or differ_by_workers(run)
                else ""
            )
        why = f"{_why_unlike(run)}: " if was_unsteady(run) or differ_by_workers(run) else ""
        return f"On {where} {why}{_apart_from_job(run)}, {_MISLEADS}."
    if not unlike and not contradict(run) and run.as_run is not None and run.as_run.step_ms is not None:
        beside = f"{milliseconds(run.as_run.step_ms)} ({_bounds(run.as_run)})"
        whole = milliseconds(times.measured_step_ms or 0.0)
        return (
            f"On {where} {_why_unlike(run)}: by the steps beside the profiled ones a step takes {beside} as run, "
            f"by all of them {whole}, {_MISLEADS}."
        )
    if not unlike:
        return f"On {where} {_why_unlike(run)}: the job's own steps contradict its traces, {_MISLEADS}."
    cost_ms, apart = _apart_from_measured(run, times)
    if run.activity != "cpu" and _are_the_long_ones(run, cost_ms, longer_for_long_ones_ms(run)):
        return ""  # which is said of them
    if was_unsteady(run) or differ_by_workers(run):
        if _is_within(times, cost_ms):  # two sentences, each read at once
            anyway = f"Such steps differ by ± {milliseconds(times.placebo_ms or 0.0, times.placebo_ms)} anyway"
            return f"On {where} {_why_unlike(run)}: {apart}. {anyway}, {_MISLEADS}."
        return f"On {where} {_why_unlike(run)}: {apart}, {_why(times, cost_ms)}. {capitalized(_MISLEADS)}."
    return f"On {where} {apart}{_recordings_share(run, times, cost_ms)}, {_MISLEADS}."


def _why_unlike(run: RunAnalysis) -> str:
    """Return what makes profiled steps unlike the others: the machine, or the job's own workers on its ranks' cores."""
    return OWN_WORKERS if differ_by_workers(run) else "the machine was unsteady"


def _recordings_share(run: RunAnalysis, times: StepTimes, cost_ms: float) -> str:
    """Return what of profiled steps' further length recording is known to cost; "" where they are no longer."""
    if cost_ms <= 0 or times.unsteady:
        return ""
    known = recording_ms(run)
    if run.activity != "cpu" or (known is not None and known >= _IS_WHY * cost_ms):
        return ", which profiling costs them"
    return f", of which recording is known to take {milliseconds(known)}" if known is not None else ""


def _are_the_long_ones(run: RunAnalysis, off_ms: float, by_them: float) -> bool:
    """Tell whether steps are longer for those among them that are longer every so often, `by_them`, within noise."""
    times = run.step_times
    spread = (times.placebo_ms if times is not None else None) or 0.0
    return off_ms > 0 and by_them > 0 and abs(off_ms - by_them) <= max(spread, _APART_OF_LONG * by_them)


def _apart_from_measured(run: RunAnalysis, times: StepTimes) -> tuple[float, str]:
    """Return by how much the profiled steps are longer than the measured ones, ms, and that in words.

    Of ranks on CPUs those count that the figures, and the bars, are of, which may lie further off than their median.
    """
    cost_ms, share = times.profiling_overhead_ms or 0.0, times.profiling_overhead_fraction or 0.0
    measured, told, lengths = times.measured_step_ms, told_usual_ms(run), ""
    if run.activity == "cpu" and measured and told is not None:
        cost_ms, share = told - measured, told / measured - 1
        fewer, often = fewer_replayed(run), run.recurring
        long = (
            f"what every {ordinal(often.every)} step takes longer" if often is not None and _met_long_ones(run) else ""
        )
        without = [f"without {one}" for one in ("recording" if fewer is not None else "", long) if one]
        of = "" if fewer is None else f" of {fewer.steps} of {fewer.of}"
        of += f", {' and '.join(without)}," if without else ""
        lengths = f" ({milliseconds(told)} in the mean{of} for {milliseconds(measured)} in the median)"
    elif measured is not None and times.profiled_step_ms is not None:
        lengths = f" (in the median {milliseconds(times.profiled_step_ms)} for {milliseconds(measured)})"
    than = "longer" if share > 0 else "shorter"
    return cost_ms, f"the profiled steps are {percent(abs(share), 0)} {than} than the measured ones{lengths}"


def _met_long_ones(run: RunAnalysis) -> bool:
    """Tell whether some of the steps that figures are of are among those that are longer every so often."""
    return longer_for_long_ones_ms(run) > 0


#: Of what long steps among the profiled ones make these longer in the mean, what else may be off by.
_APART_OF_LONG = 0.25
#: Of what stretches differ by: what ranks waited more for a core there is why, where it is so much of it.
_IS_WHY = 0.5


def uneven_sentence(run: RunAnalysis) -> str:
    """Return that the job's own workers make steps differ, and that a step took far longer in one part of the run than
    in another; empty where all are about alike.
    """
    return " ".join(one for one in (_by_own_workers(run), _longer_stretch(run)) if one)


def _by_own_workers(run: RunAnalysis) -> str:
    if not differ_by_workers(run):
        return ""
    return (
        "Steps differ as the job's own loader workers take turns with the ranks on their cores, of which they use "
        f"{_used_by_workers(run):.2f}: no quiet machine helps, only cheaper batches or more cores do."
    )


def _longer_stretch(run: RunAnalysis) -> str:
    """Return in which part of the run a step took far longer than in another, and why where waits for cores are; else
    "".
    """
    uneven = run.step_times.uneven if run.step_times is not None else None
    if uneven is None:
        return ""
    long, short = uneven.longest, uneven.shortest
    text = (
        f"The job did not run evenly: a step took {milliseconds(long.ms)} {_in_steps(long)} and "
        f"{milliseconds(short.ms)} {_in_steps(short)}"
    )
    there, here = long.run_delay_ms, short.run_delay_ms
    if there is None or here is None or there - here < _IS_WHY * (long.ms - short.ms):
        return f"{text}."
    whose = " that other processes or the job's own other threads had"
    if have_workers_the_cores(run):
        whose = f", of which the job's own loader workers use {_used_by_workers(run):.2f}"
    return f"{text}, of which ranks waited {milliseconds(there)} and {milliseconds(here)} for a core{whose}."


def _used_by_workers(run: RunAnalysis) -> float:
    return sum(one.cores for one in run.worker_times)


def _in_steps(stretch: SteadyStretch) -> str:
    if stretch.first == stretch.last:
        return f"in step {stretch.first}"
    return f"in steps {stretch.first} to {stretch.last}"


def beside_measured(drawn: Sequence[tuple[RunAnalysis, str, float, bool]]) -> str:
    """Return what drawn steps take without a profiler, each where it was drawn, in ms; "" where they are no others.

    Each as (run, what ran it, its step as drawn, ms, whether that is the one as run). A page that shows both figures
    says by how much they may differ.
    """
    told, of_jobs = [], []
    apart: dict[str, list[str]] = {}  # what is said of them, and where
    for run, where, drawn_ms, as_run in drawn:
        times = run.step_times
        if times is None or times.measured_step_ms is None or run.growing is not None:
            continue
        off_ms = drawn_ms - times.measured_step_ms
        if abs(off_ms) <= AS_MEASURED * times.measured_step_ms:
            continue
        if as_run and is_shown_alone(run):
            of_jobs.append(step_of_job(run, where))
            continue
        spread = f" (± {milliseconds(times.placebo_ms)})" if times.placebo_ms is not None else ""
        told.append(f"{milliseconds(times.measured_step_ms)}{spread}{f' on {where}' if where else ''}")
        if times.placebo_ms is None or abs(off_ms) <= times.placebo_ms:
            continue
        by_long = longer_for_long_ones_ms(run) if as_run else longer_by_ms(run)
        if run.recurring is not None and _are_the_long_ones(run, off_ms, by_long):
            why = f"profiled ones are longer by more than that: {long_ones(run, run.recurring)}"
        elif _is_unlike(run) and not is_as_measured(run):
            continue  # it is said
        else:
            why = _apart(run.as_run if as_run else None, off_ms, recording_ms(run))
        apart.setdefault(why, []).append(where)
    if not told:
        return " ".join(filter(None, of_jobs))
    text = f"Without a profiler the median step took {listing(told)}"
    if any("±" in one for one in told):
        text += "; ± is how far a few such steps lie apart anyway"
    said = [
        f"{f'On {listing(where)} the' if all(where) else 'The'} {why} {'each' * (len(where) > 1)}".rstrip()
        for why, where in apart.items()
    ]
    return " ".join(filter(None, [f"{text}.", *(f"{one}." for one in said), *of_jobs]))


def _apart(as_run: AsRun | None, off_ms: float, recording: float | None) -> str:
    longer = off_ms > 0
    than = "longer" if longer else "shorter"
    if as_run is not None and as_run.source == "steps":
        return (
            f"step as run is {than} by more than that: it is by the steps beside the profiled ones, which were {than}"
        )
    if as_run is not None:
        return f"step as run is {than} by more than that: what recording costs is not known so well"
    if longer and recording is not None:
        return f"profiled ones are longer by more than that, of which recording takes {milliseconds(recording)}"
    if longer:
        return "profiled ones are longer by more than that: recording lengthens them, or something else ran meanwhile"
    return "profiled ones are shorter by more than that: something else ran during the others"


def _apart_from_job(run: RunAnalysis) -> str:
    """Return how long profiled steps are without recording, beside the job's own; where both lengths are told, by how
    much they differ."""
    if step_of_job(run) and run.as_run is not None and run.as_run.step_ms:
        long = long_among(run)
        without = f" and {long.without}," if long is not None else ""
        share = _beyond_usual_ms(run, run.as_run) / run.as_run.step_ms
        than = "longer" if share > 0 else "shorter"
        fewer = fewer_replayed(run)
        which = "the profiled steps are"
        if fewer is not None:
            which = f"{fewer.steps} of the {fewer.of} profiled steps {'is' if fewer.steps == 1 else 'are'}"
        return f"without recording{without} {which} {percent(abs(share))} {than} than the job's own"
    told, profiled_ms = run.as_run, run.as_run.profiled_ms if run.as_run is not None else None
    if told is None or told.step_ms is None or profiled_ms is None:
        return "the profiled steps are not like the job's own"
    fewer = fewer_replayed(run)
    which = "the profiled steps take" if fewer is None else fewer.which
    beside = "" if fewer is None else f" ({milliseconds(fewer.traced_ms)} with it)"
    return (
        f"without recording {which} {milliseconds(profiled_ms.value)}{beside}, the job's own "
        f"{milliseconds(told.step_ms)} ({_bounds(told)})"
    )


def _at_own_pace(run: RunAnalysis) -> str:
    """Return by how much operators took longer in profiled steps that are told at the job's pace, and what those are
    at their own: a machine is called unsteady by that one, which no figure else is of.
    """
    told, own, fewer = run.as_run, told_usual_ms(run), fewer_replayed(run)
    if told is None or not told.step_ms or own is None:
        return "the profiled steps are not like the job's own"
    which = "the profiled steps" if fewer is None else f"{fewer.steps} of the {fewer.of} profiled steps"
    share = own / told.step_ms - 1
    are = "that is" if fewer is not None and fewer.steps == 1 else "those are"
    return (
        f"operators took {milliseconds(told.slowed_ms)} longer in {which} than in the job's own, and at that pace "
        f"{are} {percent(abs(share))} {'longer' if share > 0 else 'shorter'}"
    )


def _beyond_usual_ms(run: RunAnalysis, told: AsRun) -> float:
    """Return by how much profiled steps, without recording and what recurs, are longer than the job's own, ms."""
    return beyond_the_job_ms(told) - longer_for_long_ones_ms(run)


def _is_at_pace_of_job(run: RunAnalysis, told: AsRun | None) -> bool:
    """Tell whether a step's operators are told at the pace of the job's own, to which that brings it near."""
    return told is not None and told.slowed_ms > 0 and abs(_beyond_usual_ms(run, told)) < UNLIKE * (told.step_ms or 0.0)


def _bounds(as_run: AsRun) -> str:
    return f"{milliseconds(as_run.low_ms or 0.0)} to {milliseconds(as_run.high_ms or 0.0)}"


def _is_unlike(run: RunAnalysis) -> bool:
    """Tell whether the profiled steps are not like the measured ones; of steps that grow none is like another."""
    return (
        run.step_times is not None
        and run.growing is None
        and (is_unlike(run) or contradict(run) or is_of_other_steps(run) or _only_scatter(run))
    )


def _only_scatter(run: RunAnalysis) -> bool:
    """Tell whether all that speaks against the profiled steps is how far steps without a profiler lie apart."""
    return run.step_times is not None and scatter(run.step_times) and (was_unsteady(run) or differ_by_workers(run))


def _scattered(times: StepTimes) -> str:
    """Return by how much steps without a profiler differ where that is more than they take."""
    median = milliseconds(times.measured_step_ms or 0.0)
    if times.placebo_ms is not None and times.placebo_ms >= (times.measured_step_ms or 0.0):
        return (
            f"without a profiler a step takes {median} in the median, and a few steps in a row differ from that by up "
            f"to {milliseconds(times.placebo_ms)}"
        )
    mean = milliseconds(times.long_steps.mean_step_ms if times.long_steps is not None else 0.0)
    return f"without a profiler a step takes {median} in the median and {mean} in the mean, most of it in a few steps"


def _why(times: StepTimes, cost_ms: float) -> str:
    if _is_within(times, cost_ms):
        return _no_more(times)
    return "which no profiling makes them" if cost_ms < 0 else "more than recording can make them"


def _is_within(times: StepTimes, cost_ms: float) -> bool:
    """Tell whether profiled steps are no further off than such steps lie apart anyway."""
    return times.placebo_ms is not None and abs(cost_ms) <= times.placebo_ms


def _no_more(times: StepTimes) -> str:
    spread = f" (± {milliseconds(times.placebo_ms)})" if times.placebo_ms is not None else ""
    return f"no more than such steps differ anyway{spread}"
