"""Whether a run's profiled steps stand for those that it ran: where they do not, its traces' shares need not hold."""

import math
import statistics

from scalescope.records.steps.unevenness import BY_FRESH_PAGES, UNLIKE
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import StepTimes
from scalescope.scaling.finding.codes import COMPUTED_BY_ALL, Code
from scalescope.scaling.finding.figures import LATE, LOOPS_WAIT, STEADY_STEPS
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding.kinds import (
    MOST_OF_WAITS,
    do_workers_rest,
    is_certain,
    is_known,
    is_now_and_then,
    is_of_steady_steps,
    is_within_noise,
)

#: Of the measured step: a step as run that is so near is the same one.
_APART = 0.02
#: Of the mean step: what long steps take of it beside a typical one, from which on the typical one is the smaller part;
#: and of what a cause is seen to take: what the machine may have made of it.
_MOST = 0.5
#: Of so many steps of ranks the shortest takes this share of the mean, where all load alike.
_STEPS_ALIKE, _ALIKE = 4, 0.75


#: Launches that a rank makes beyond the others', values that hosts read one by one, what all compute at length, or a
#: mode that all are in: no machine's doing, however unsteady.
_COUNTED: tuple[Code, ...] = ("own_work", "debug_mode", "element_reads", *COMPUTED_BY_ALL)
#: What a host does at one place in every profiled step. Who waits for a core does so anywhere: a place has no more of
#: it than its rank has in all.
_AT_A_PLACE: tuple[Code, ...] = ("host_stall", "data_loading", "more_work", "recompilation", "synchronising")


def is_doubtful(run: RunAnalysis) -> bool:
    """Tell whether the machine was unsteady, and may have made what was found first: that is to be measured again."""
    sure = any(is_beyond_unsteadiness(run, one) for one in run.findings[:1])
    return was_unsteady(run) and not sure and not leaves_nothing_to_doubt(run)


def leaves_nothing_to_doubt(run: RunAnalysis) -> bool:
    """Tell whether an unsteady machine can have made nothing of what was found first, since that is nothing.

    Ranks on CPUs, whose profiled steps are the longer ones: what costs the others something is in these as well.
    """
    if run.activity != "cpu" or run.findings[:1] == [] or run.findings[0].code != "nothing":
        return False
    told, measured = told_usual_ms(run), run.step_times.measured_step_ms if run.step_times is not None else None
    return told is not None and measured is not None and told >= measured and not contradict(run)


def is_beyond_unsteadiness(run: RunAnalysis, finding: Finding) -> bool:
    """Tell whether a cause is there for sure, however long the steps were: the machine cannot have made most of it."""
    if makes_steps_differ(finding):
        return True
    if not is_of_the_job(finding) or is_now_and_then(finding):
        return False
    if finding.code in _COUNTED or is_certain(finding) or _loads_alike(run, finding):
        return True
    return _made_by_machine_ms(run, finding.rank) < _MOST * _seen_ms(finding)


def makes_steps_differ(finding: Finding) -> bool:
    """Tell whether a cause makes steps differ by itself, and is priced by all steady ones, whatever profiled ones took:
    threads of the job's own that take turns on its cores.
    """
    return (finding.low_ms or 0.0) > 0 and any(row.name == LOOPS_WAIT for row in finding.evidence)


def _loads_alike(run: RunAnalysis, finding: Finding) -> bool:
    """Tell whether every profiled step of every rank that loads data does so for about as long: no machine's doing."""
    if finding.code != "data_loading":
        return False
    spent = [
        one.idle_data_ms for one in run.steps if not one.open_ended and one.rank in (ranks_of(finding) or (one.rank,))
    ]
    return len(spent) >= _STEPS_ALIKE and min(spent) >= _ALIKE * statistics.fmean(spent) > 0


def is_of_the_job(finding: Finding) -> bool:
    """Tell whether a finding costs something for sure that hosts short of cores do not look like."""
    bound = finding.at_most and finding.code not in COMPUTED_BY_ALL  # these are seen to be computed in each step
    if finding.ms is None or bound or (finding.low_ms or 0.0) <= 0 or is_within_noise(finding):
        return False
    return finding.code in (*_COUNTED, *_AT_A_PLACE) or is_certain(finding)


def _seen_ms(finding: Finding) -> float:
    """Return what the cause is seen to take of a step beyond the others', whatever of that is felt, ms."""
    rows = [row for row in finding.evidence if row.ms is not None and row.name not in (STEADY_STEPS, LATE)]
    return max((row.ms - (row.others_ms or 0.0) for row in rows if row.ms is not None), default=finding.ms or 0.0)


def _made_by_machine_ms(run: RunAnalysis, rank: int | None) -> float:
    """Return what a rank waited for cores in its profiled steps, or the one that did so most, ms of the mean one.

    Without end where nothing tells: then steps of other lengths may be for anything.
    """
    times = run.step_times
    waits = times.core_waits.profiled_ms if times is not None and times.core_waits is not None else []
    if not waits:
        return math.inf
    return waits[rank] if rank is not None and rank < len(waits) else max(waits)


def was_unsteady(run: RunAnalysis) -> bool:
    """Tell whether profiled steps are unlike the measured ones for no recording's sake: the machine was unsteady.

    Not where the job's own loaders' workers have the ranks' cores: a quiet machine has them, too.
    """
    return _differ(run) and not have_workers_the_cores(run)


def differ_by_workers(run: RunAnalysis) -> bool:
    """Tell whether steps differ so for the turns that loaders' workers take on the ranks' cores."""
    return _differ(run) and have_workers_the_cores(run)


def have_workers_the_cores(run: RunAnalysis) -> bool:
    """Tell whether loaders' workers keep the cores full on which the ranks compute, by what a run noted of them.

    They do not rest, use half of what the ranks wait for and more, and that is why steps differ: else something else
    makes them differ as well.
    """
    waits = run.step_times.core_waits if run.step_times is not None else None
    if run.activity != "cpu" or not run.cores_full or run.step_times is None or waits is None:
        return False
    apart, used = run.step_times.apart, sum(one.cores for one in run.worker_times)
    waited = waits.cores_a_rank * run.world_size
    is_why = apart is None or apart.is_by_core_waits
    return is_why and used >= MOST_OF_WAITS * waited and not do_workers_rest(used, run.world_size, waited)


def _differ(run: RunAnalysis) -> bool:
    """Tell whether profiled steps are unlike the measured ones, for no recording's sake and for nothing that is told.

    Not where the costliest finding is what makes steps differ, nor where they are alike before and after the window,
    and longer in it.
    """
    times = run.step_times
    if run.growing is not None or any(is_of_steady_steps(one) and not one.at_most for one in run.findings[:1]):
        return False  # what makes its steps differ is known
    if is_longer_recorded(run):
        return False  # those before and after the window agree: it made its own longer
    if any(map(is_known, run.findings[:1])):  # … unless others had the cores in the profiled steps alone, by no row
        return is_of_other_steps(run) and _waited_for_cores_no_longer(run)
    if times is None:
        return _is_of_other_steps_than_headers(run)
    if run.recurring is not None and any(run.recurring.has(one.step) for one in run.steps):
        return False  # the window met one of those that are longer every so often
    often = run.recurring is not None and run.recurring.every > 1  # a validation every so often is told as such
    if not often and scatter(times):
        return True
    if _is_slowed_by_its_records(run):
        return False
    return (times.unsteady and (is_unlike(run) or contradict(run))) or is_of_other_steps(run)


def is_longer_recorded(run: RunAnalysis) -> bool:
    """Tell whether recorded steps are longer for being recorded: those before and after the window agree."""
    times = run.step_times
    return times is not None and times.longer_recorded is not None and not scatter(times)


def _is_slowed_by_its_records(run: RunAnalysis) -> bool:
    """Tell whether ranks on CPUs took longer in the profiled steps alone, and waited for cores there no longer.

    What a window records takes memory amid the job's activations, whose pages are then fresh ones in each step
    (benchmarks/page_faults.py counts them): recording's doing, which no record tells.
    """
    told, measured = told_usual_ms(run), run.step_times.measured_step_ms if run.step_times is not None else None
    if run.activity != "cpu" or told is None or measured is None:
        return False
    return measured <= told <= (1 + BY_FRESH_PAGES) * measured and _waited_for_cores_no_longer(run)


def _waited_for_cores_no_longer(run: RunAnalysis) -> bool:
    """Tell whether ranks waited for cores in their profiled steps for no longer than in the others, by their rows."""
    waits = run.step_times.core_waits if run.step_times is not None else None
    return waits is not None and bool(waits.profiled_ms) and statistics.fmean(waits.profiled_ms) <= waits.high_ms


def scatter(times: StepTimes) -> bool:
    """Tell whether steps differ by more than a step takes, so that a few profiled ones stand for no others.

    Stretches of as many as were profiled do, or steps that are longer for no cause that is timed take most of the mean.
    """
    far = times.placebo_ms is not None and times.measured_step_ms is not None
    if far and (times.placebo_ms or 0.0) >= (times.measured_step_ms or 0.0):
        return True
    long = times.long_steps
    return long is not None and long.cause is None and long.ms >= _MOST * long.mean_step_ms


def are_unlike(times: StepTimes) -> bool:
    """Tell whether profiled steps are much longer or shorter than the measured ones."""
    return times.profiling_overhead_fraction is not None and abs(times.profiling_overhead_fraction) >= UNLIKE


def is_unlike(run: RunAnalysis) -> bool:
    """Tell whether the steps that are told of are much longer or shorter than the measured ones.

    Of ranks on CPUs those count that the figures are of: three steps' median may lie further off than their mean.
    """
    if run.step_times is None:
        return False
    measured, told = run.step_times.measured_step_ms, told_usual_ms(run)
    if run.activity != "cpu" or measured is None or told is None:
        return are_unlike(run.step_times)
    return abs(told - measured) >= UNLIKE * measured


def told_step_ms(run: RunAnalysis) -> float | None:
    """Return the profiled step at its own pace, ms: without recording where that is known."""
    if run.as_run is not None and run.as_run.ranks and run.as_run.profiled_ms is not None:
        return run.as_run.profiled_ms.value
    return run.step_times.window_step_ms if run.step_times is not None else None


def told_usual_ms(run: RunAnalysis) -> float | None:
    """Return the step that figures are of without what steps that recur make it longer by, ms.

    That is what the measured step, a median of those between, is to be held against.
    """
    told = told_step_ms(run)
    return None if told is None else told - longer_for_long_ones_ms(run)


def longer_for_long_ones_ms(run: RunAnalysis) -> float:
    """Return by how much the step that figures are of is longer for those in it that are longer every so often, ms.

    Or that came once, which the job's other steps have none of either.
    """
    steps, long = told_steps(run)
    often = run.recurring.longer_ms * long / steps if run.recurring is not None and steps else 0.0
    return often + (run.once.longer_ms(told_numbers(run)) if run.once is not None else 0.0)


def told_steps(run: RunAnalysis) -> tuple[int, int]:
    """Return how many steps figures are of, and how many of those are longer as one is every so often."""
    told, found = told_numbers(run), run.recurring
    return len(told), 0 if found is None else sum(found.begins_in(step) for step in told)


def told_numbers(run: RunAnalysis) -> list[int]:
    """Return which of the profiled steps figures are of."""
    told = sorted({one.step for one in run.steps})
    as_run = run.as_run
    if as_run is not None and as_run.ranks and as_run.steps and as_run.steps < len(told):
        within = [step for step in told if step + 1 in told]  # of an older answer: a window's last is not replayed
        told = as_run.step_numbers or (within if len(within) == as_run.steps else told)
    return told


def is_of_other_steps(run: RunAnalysis) -> bool:
    """Tell whether the profiled steps of ranks on CPUs, without recording, are none that the whole run had.

    By a tenth they are not, however uneven its steps. Where hosts compute, a window leaves nothing behind that would
    slow the steps after it.
    """
    as_run, times = run.as_run, run.step_times
    if run.activity != "cpu" or as_run is None or as_run.untraced_by != "steps" or as_run.profiled_ms is None:
        return False
    if times is None or times.measured_step_ms is None:
        return False
    measured, told, long = times.measured_step_ms, as_run.profiled_ms, longer_for_long_ones_ms(run)
    apart = abs(told.value - long - measured)
    if apart >= UNLIKE * measured:
        return True
    return apart > max(times.placebo_ms or 0.0, _APART * measured) and not told.low <= measured + long <= told.high


def _is_of_other_steps_than_headers(run: RunAnalysis) -> bool:
    """Tell whether ranks on CPUs were profiled in steps that are none of those which their traces' headers tell of.

    The same traces in their run's folder are called so, too, by its rows.
    """
    told = run.as_run
    if run.activity != "cpu" or told is None or told.untraced_by != "metadata" or told.untraced_ms is None:
        return False
    replayed, beside = told.parts_ms if told.ranks else None, told.untraced_ms
    if replayed is None or beside.low <= replayed.value <= beside.high:
        return False
    return abs(replayed.value - beside.value) >= UNLIKE * beside.value


def contradict(run: RunAnalysis) -> bool:
    """Tell whether a run's own steps are none that its traces can be of."""
    return run.as_run is not None and run.as_run.own_steps_contradict


def judge_steadiness(run: RunAnalysis) -> None:
    """Call traces no better than degraded whose steps do not stand for the others; once all is known of the run."""
    run.quality.unsteady = was_unsteady(run)
    if run.quality.unsteady and run.quality.verdict == "good":
        run.quality.verdict = "degraded"
