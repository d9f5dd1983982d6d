"""What is to be known beside a verdict's headline: throughput, windows, late ranks, how good its traces are."""

from collections.abc import Sequence

from scalescope.records.console import counted
from scalescope.report.drawing.numbers import (
    capitalized,
    factor,
    milliseconds,
    percent,
    rate,
)
from scalescope.report.sentences import (
    sentence,
)
from scalescope.report.steadiness import unlike_sentence
from scalescope.report.text import findings as finding_text
from scalescope.report.text.codes.evidence import rare_steps_of
from scalescope.report.text.codes.table import so_few_show, which_are_long
from scalescope.report.text.growing import growing_rates
from scalescope.report.text.late.together import provided
from scalescope.report.text.recurring import (
    is_told,
    pace,
)
from scalescope.report.views import (
    devices,
    of_what,
)
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import StepTimes
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.figures import INPUTS, LARGER_IN, ROUNDS
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.kinds import is_lost_in_noise, is_within_noise
from scalescope.scaling.finding.order import weight

#: A rank that costs less than this share of the costliest finding is in the table of them, and not named once more.
_WORTH_NAMING = 0.25

#: Undisturbed runs' mean steps are off their medians by less, in 58 of 60 runs on two cores.
_APART = 0.05

#: What one host does, which others may do, or wait for.
_OF_ITS_HOST: tuple[Code, ...] = ("host_stall", "host_starved", "data_loading")


def of_mean(times: StepTimes) -> float | None:
    """Return what all steady steps did a second over what the median one does; None where that is as much."""
    if times.measured_step_ms is None or not times.measured_mean_ms:
        return None
    pace = times.measured_step_ms / times.measured_mean_ms
    return pace if abs(1 / pace - 1) > _APART else None


def _without_long(a_second: float, times: StepTimes) -> str:
    """Return the throughput of the typical step, which is the one as run; where most steps wait for a batch, and so the
    median one does, that of steps without what the long ones take longer.
    """
    waiting = times.long_steps is not None and times.long_steps.cause == "loading"
    if waiting and abs(times.between_long - 1) > _APART:
        return f"{rate(a_second * times.between_long)} without what these take longer"
    return _typical(a_second, times)


def _typical(a_second: float, times: StepTimes) -> str:
    """Return the throughput of the typical step, and how long that is."""
    return f"{rate(a_second)} in a typical one ({milliseconds(times.measured_step_ms or 0.0)})"


def rare_sentences(run: RunAnalysis) -> list[str]:
    """Return which few steps are far longer than all others, where something else comes first: they are in the mean
    step, which nobody sees in what is told of a typical one.
    """
    rare = next((one for one in run.findings[1:] if rare_steps_of(one) is not None), None)
    long = rare_steps_of(rare) if rare is not None else None
    if rare is None or long is None:
        return []
    mean = f"{milliseconds(rare.ms or 0.0)} a step in the mean"
    return [f"{which_are_long(rare, long)}: {mean}. {capitalized(so_few_show(rare))}."]


def throughput_sentences(run: RunAnalysis) -> list[str]:
    done = run.throughput
    if done is None and run.model is None:
        return []  # traces of anybody's job: nobody expects one
    if done is None:
        return ["Its throughput is not known: there are no steady steps outside the profiler's window."]
    a_second, unit = (done.tokens_per_s, "tokens") if done.tokens_per_s else (done.samples_per_s, of_what(done))
    text = f"It does {rate(a_second)} {unit}/s"
    times = run.step_times
    overall = a_second * (times.overall if times is not None else 1.0)
    if run.growing is not None:
        text = growing_rates(run, a_second, unit) or text
    elif run.recurring is not None and is_told(run):
        text += f" between the longer steps, {rate(pace(run.recurring) * overall)} with them"
    elif times is not None and times.long_steps is not None:
        of_all = f"all steps: {milliseconds(times.long_steps.mean_step_ms)} in the mean"  # no length of the long ones
        text = f"It does {rate(overall)} {unit}/s, long steps included ({of_all}), and {_without_long(a_second, times)}"
    elif times is not None and (mean := of_mean(times)) is not None:
        each = f"{milliseconds(times.measured_mean_ms or 0.0)} each, in the mean"
        of_all = f"It does {rate(a_second * mean)} {unit}/s over all steady steps ({each})"
        text = f"{of_all}, and {_typical(a_second, times)}"
    elif times is not None and run.as_run is not None and run.as_run.step_ms == times.measured_step_ms:
        text += f", {milliseconds(times.measured_step_ms or 0.0)} a step as run"  # which a first sentence need not tell
    text = f"{text}, {percent(done.mfu)} MFU" if done.mfu is not None else text
    return [f"{text}{_by_what_was_told(run)}."]


def _by_what_was_told(run: RunAnalysis) -> str:
    """Return by how many samples a rank its script had its throughput counted, where a rank's operators tell that it
    computes on more than the others; "" else. Longer samples, or more work inside of operators, are no larger batch.
    """
    told = run.throughput.told_a_rank if run.throughput is not None else None
    larger = next((one for one in run.findings if (one.code, one.ranks) == ("more_work", ()) and _times(one)), None)
    if not told or larger is None or run.world_size < 2:
        return ""
    more = (run.world_size - 1 + _times(larger)) / run.world_size
    return (
        f", by the {counted(told, 'sample')} a rank and step that the script told; rank {larger.rank} computes on "
        f"{factor(_times(larger))} as much data as the others, and if that is its batch, it does {factor(more)} as many"
    )


def _times(finding: Finding) -> float:
    """Return how many times the others' inputs a rank computes on, all alike; 0 where nothing tells."""
    names = {row.name.split()[0] for row in finding.evidence}
    if not names.isdisjoint((ROUNDS, LARGER_IN)) or any(row.kind == "operator" for row in finding.evidence):
        return 0.0
    return next((row.value or 0.0 for row in finding.evidence if row.name == INPUTS), 0.0)


def window_sentences(run: RunAnalysis) -> list[str]:
    """Return a warning where the profiled steps are not like the measured ones, so that shares of them may mislead."""
    told = unlike_sentence(run, devices(run.world_size, run.activity))
    return [told] if told else []


def untold_sentences(run: RunAnalysis) -> list[str]:
    """Return that it is not known of the other ranks, where one of several has a trace and its host costs most."""
    first = next(iter(run.findings), None)
    if len(run.ranks) != 1 or run.world_size < 2 or first is None or first.rank is not None:
        return []
    if first.code not in _OF_ITS_HOST:
        return []
    return ["Whether other ranks' hosts do so, too, or wait for this one, only their traces tell: record all ranks."]


def slowed_sentences(run: RunAnalysis) -> list[str]:
    """Return which steps of the window are left out since something slowed all hosts in them."""
    slowed = run.quality.slowed
    if slowed is None:
        return []
    all_hosts = "the host" if run.world_size == 1 else "every rank's host"
    return [
        f"{len(slowed.steps)} of the {slowed.of} profiled steps {_are(slowed.steps)} left out: "
        f"{all_hosts} took up to {slowed.times:.1f} times as long for everything, "
        f"{milliseconds(slowed.slowed_ms)} for {'such a step' if len(slowed.steps) > 1 else 'it'} and "
        f"{milliseconds(slowed.quiet_ms)} for one of the others.",
        "Other work on the machine does that, and threads of the job's own.",
    ]


def _are(steps: Sequence[int]) -> str:
    return "is" if len(steps) == 1 else "are"


def straggler_sentences(run: RunAnalysis, said: Sequence[Finding] = ()) -> list[str]:
    """Return a sentence for each rank that costs the others time, but for what was said already, and for what is no
    more than steps differ by: that is listed, and named as such.
    """
    where = devices(run.world_size, run.activity)
    least = _WORTH_NAMING * max((weight(one) for one in run.findings if one.ms is not None), default=0.0)
    named = [
        one
        for one in run.findings
        if one.rank is not None and one.ms is not None and one not in said and not is_lost_in_noise(one)
        if weight(one) >= least
    ]
    found = [
        f"{capitalized(finding_text.subject(one))} of {where} {_costs(one, run.findings)}: "
        f"{sentence(finding_text.because(one))}"
        for one in named
    ]
    return found or [
        f"Rank {one.rank} of {where} costs the others {milliseconds(one.lost_ms)} of exposed wait a step: "
        f"{sentence(one.verdict)}"
        for one in run.stragglers
        if one.verdict  # schema 1
    ]


def _costs(finding: Finding, findings: Sequence[Finding]) -> str:
    beside = finding_text.is_doubtful_beside(finding, findings)
    cost = finding_text.up_to(finding) if beside else finding_text.cost(finding)
    cost = f"{cost} a step{provided(finding)}"
    costs = "cost" if finding.ranks else "costs"
    return f"may cost {cost}, or nothing" if is_within_noise(finding) else f"{costs} {cost}"


def quality_sentences(run: RunAnalysis) -> list[str]:
    if run.quality.verdict == "good" or run.quality.unprofiled:
        return []
    if run.quality.unsteady and not run.quality.reasons:
        return []  # that the machine was unsteady is said by itself
    unsteady = ["the machine was unsteady"] if run.quality.unsteady else []
    reasons = "; ".join([*unsteady, *run.quality.reasons]) or "no reason was given"
    return [f"The traces of {devices(run.world_size, run.activity)} are {run.quality.verdict}: {sentence(reasons)}"]


def cautions_of(runs: Sequence[RunAnalysis], alike: Sequence[RunAnalysis] | None = None) -> tuple[str, ...]:
    """Return what makes figures doubtful: traces that are not whole, and steps that are not alike.

    `alike`: the runs whose steps count for that; None: all.
    """
    unlike = [text for run in (runs if alike is None else alike) for text in window_sentences(run)]
    return (*unlike, *(text for run in runs for text in quality_sentences(run)))
