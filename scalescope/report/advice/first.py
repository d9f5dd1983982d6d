"""What to do first about a run: the remedy of its costliest finding, or what its traces lack to name one.

In a study, what its step grew by comes before that. A page's first card and its section on advice say the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.report.advice.unsteady import in_more_windows, measure_again
from scalescope.report.drawing.numbers import milliseconds, percent, rank_names
from scalescope.report.sentences import WORTH_SAYING
from scalescope.report.text import findings as finding_text
from scalescope.report.text.codes.evidence import is_of_several
from scalescope.report.text.cures.words import cure_text
from scalescope.report.text.fusing import best_to_do
from scalescope.report.text.listed import bare_transfer
from scalescope.report.text.scaling.scaling_loss import cuts_advice, cuts_cost_ms, loss_before
from scalescope.report.text.waits.growth import waits_advice
from scalescope.report.views import (
    grew_within_noise,
    lacking_ranks,
    waterfall_steps,
)
from scalescope.scaling.answer import Advice, RunAnalysis
from scalescope.scaling.finding.codes import TOO_MANY_THREADS, Cure
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.order import weight
from scalescope.scaling.findings.derived import is_compiled
from scalescope.scaling.study_answer import GrownCoreWaits, Waterfall
from scalescope.scaling.verdicts.step_rows.doubt import is_doubtful
from scalescope.scaling.verdicts.step_rows.steady import slowed_by_profiling

_PROFILE_AGAIN = "profile again, later or for more steps: what these profiled steps wait for, the measured ones do not"
PROFILE_ALL = "profile every rank, in the same steps{which}: only together do their traces tell who waits for whom"
_PROFILE_LESS = "profile again, for fewer steps at a time: the profiler lost activity, as where its buffers overflow"
_ONE_EACH = "profile one process a device: only so is each device's own idle time told"
_WORK_AT_ONCE = (
    "let the devices work at once: each idles while another has its turn; a process a device with a copy or a shard of "
    "the model (DDP, FSDP), or micro-batches through a pipeline"
)
_SAME_STEPS = "profile every rank in the same steps, and let each call the profiler's step() at the same place"
_NAME_LIBRARY = (
    "profile with the communication library that torch.distributed has (NCCL, RCCL), or add this one's kernels to "
    "scalescope's table of families: what waits in them is told only then"
)
#: What is done on all ranks, whichever one it is to tell more of.
_AGAIN: tuple[Cure, ...] = ("profile_longer", "measure_again")
#: More ranks than this are not named once more.
_FEW_RANKS = 8


@dataclass(frozen=True)
class BestAdvice:
    """What to do first, in words, and by what it is that."""

    text: str
    is_remedy: bool = False  # against the largest part: nothing else is known
    on_rank: int | None = None  # where it begins with what one rank alone is to do
    finding: Finding | None = None  # what it is to mend, where it says nothing else


def best_advice(run: RunAnalysis, remedy: str, unseen: bool = False) -> BestAdvice:
    """Return what to do about a run's costliest finding; without any the remedy, with what the replay says of it.

    `unseen`: most of what it loses may be waiting for ranks without a trace.
    """
    first = finding_text.first_to_do(run.findings)
    if run.findings and run.findings[0].code == "profiler_cost" and run.findings[0].remedy is not None:
        return BestAdvice(f"{cure_text(run.findings[0].remedy)}.")
    unsplit = unseen or (run.unpriced is not None and run.unpriced.code == "unsplit" and not run.findings)
    if run.unpriced is not None and run.unpriced.code == "several_devices":
        turns = any(one.by_turns for one in run.quality.several_devices)
        return BestAdvice(f"{_WORK_AT_ONCE if turns else _ONE_EACH}.")
    if run.unpriced is not None and run.unpriced.code == "other_steps":
        return BestAdvice(f"{_SAME_STEPS}.")
    if run.quality.unknown_collectives:
        return BestAdvice(f"{_NAME_LIBRARY}.")
    if (run.quality.lossy_ranks or run.quality.incomplete_ranks) and (first is None or run.unpriced is not None):
        return BestAdvice(f"{_PROFILE_LESS}.")
    if unsplit or (first is None and run.quality.left_out_ranks):
        return BestAdvice(f"{PROFILE_ALL.format(which=which_ranks(run))}.")
    if is_doubtful(run):
        if first is not None and first.remedy is not None and first.remedy.cure in TOO_MANY_THREADS:
            # the job's own threads are why steps differ, on a machine as quiet as any
            return BestAdvice(f"{cure_text(first.remedy)}; then {measure_again([run])}.", finding=first)
        alone = f". Of the profiled steps alone: {best_to_do(run, first)}" if first is not None else ""
        return BestAdvice(f"{measure_again([run])}{alone}.")
    if first is not None and _tells_of_waits(run.findings[0]) and first.code == "host_bound":
        return BestAdvice(f"{_where_it_goes(run.findings[0], run)}.")
    if first is not None and run.findings[0].code == "nothing":
        if _is_same_cure(run.findings[0], first):
            return BestAdvice(f"{best_to_do(run, first)}.", finding=first)
        both = [_where_it_goes(run.findings[0], run), best_to_do(run, first)]
        sent = bare_transfer(run.findings[0])
        if sent is not None and (first.ms or 0.0) > (sent.ms or 0.0):  # as they are listed
            both.reverse()
        return BestAdvice(f"{'; beyond that, '.join(both)}.", finding=first)
    if first is not None:
        beside = _beside(run.findings) if first is run.findings[0] else None
        besides = (
            f"; beside that, {_on_rank(beside, first)}{finding_text.todo(beside, run)}" if beside is not None else ""
        )
        told = f"{best_to_do(run, first, more=True)}{besides}."
        return BestAdvice(told, on_rank=begins_on(run.findings, first), finding=first)
    if run.advice and run.advice[0].what:  # schema 1
        return BestAdvice(f"{advice_sentence(run.advice[0])}.")
    if slowed_by_profiling(run) and not _knows_as_run(run):
        return BestAdvice(f"{_PROFILE_AGAIN}.")
    if run.findings and run.findings[0].remedy is not None:
        return BestAdvice(f"{_where_it_goes(run.findings[0], run)}.")
    if remedy and run.replay is not None and run.replay.faithful:
        tried = "No setting that the replay can try is sure to bring 0.5% of the step."
        return BestAdvice(f"{remedy} {tried}", is_remedy=True)
    return BestAdvice(remedy, is_remedy=True)


def _beside(findings: Sequence[Finding]) -> Finding | None:
    """Return what is to be done something about beside what comes first: what the first sentence names beside it."""
    return finding_text.beside_what_it_sends(findings) or finding_text.beside_waits(findings)


def _on_rank(beside: Finding, first: Finding) -> str:
    """Return on which one rank something is to be done, before that, where what comes first is not done there."""
    return f"on rank {beside.rank}, " if beside.rank is not None and beside.rank != first.rank else ""


def begins_on(findings: Sequence[Finding], first: Finding) -> int | None:
    """Return the one rank on which the advice about the `first` finding begins; None where it is for several, or steps
    are to be profiled again, or more of them before.
    """
    again = first.remedy is not None and first.remedy.cure in _AGAIN
    return None if first.ranks or again or finding_text.more_steps(findings) else first.rank


def remedy_of_growth(fall: Waterfall, runs: Sequence[RunAnalysis]) -> str:
    """Return what helps against the largest part of a growth that is worth a word; "" where none is. `runs`: those of
    its series.
    """
    if grew_within_noise(fall):
        return ""
    worst, ms = max(waterfall_steps(fall), key=lambda step: step[1])
    activity = next((run.activity for run in reversed(runs)), None)
    framework = next((run.framework for run in runs), "torch")
    compiled = any(is_compiled(run) for run in runs)
    hosts = max((run.hosts for run in runs if run.hosts is not None), default=None)
    remedy = worst.remedy_for(activity, framework=framework, compiled=compiled, hosts=hosts)
    return f"{remedy}." if fall.growth_ms > 0.01 * fall.from_step_ms and ms > 0 and remedy else ""


def first_of_series(run: RunAnalysis, fall: Waterfall | None, runs: Sequence[RunAnalysis]) -> str:
    """Return what to do first about a run that a study's step grew to; `fall`: that growth, where it is weak scaling's;
    `runs`: those of its series.
    """
    remedy = remedy_of_growth(fall, runs) if fall is not None else ""
    best = best_advice(run, remedy)
    if fall is not None and fall.core_waits is not None and not is_doubtful(run) and not _knows_who(best):
        return _before_traces(fall, fall.core_waits, run, runs, best)
    return _of_traces(run, fall, runs, remedy, best)


def _before_traces(
    fall: Waterfall, waits: GrownCoreWaits, run: RunAnalysis, runs: Sequence[RunAnalysis], best: BestAdvice
) -> str:
    """Return what to do first where all steps tell that ranks wait longer for cores: about these, unless a finding is
    sure to cost more. Their traced parts hold the same waits, so that what brings both is no sum.
    """
    cores = waits_advice(waits, run)
    if grew_within_noise(fall):
        rest = f"{cores}. To tell what else the step grew by, measure {in_more_windows(runs)}."
        return f"{rest} Whatever that is: {best.text}" if _is_sure(best.finding) and not _is_same(best) else rest
    then = "" if _is_same(best) else _of_traces(run, fall, runs, remedy_of_growth(fall, runs), best)
    if not then:
        return f"{cores}."
    if best.finding is not None and _is_sure(best.finding) and weight(best.finding) > waits.ms:
        return f"{then.removesuffix('.')}; beside that, {cores}."
    return f"{cores}; beyond that{'' if _is_sure(best.finding) else ', and perhaps in part the same'}, {then}"


def _is_same(best: BestAdvice) -> bool:
    """Tell whether the largest run's own advice is about what its ranks wait for cores, too."""
    return best.finding is not None and best.finding.code == "host_starved"


def _knows_who(best: BestAdvice) -> bool:
    """Tell whether that advice knows who has the cores (Python's threads, a loader's workers), or what binds a rank."""
    remedy = best.finding.remedy if best.finding is not None and _is_same(best) else None
    return remedy is not None and remedy.cure not in ("free_cores", "core_for_rank", *TOO_MANY_THREADS)


def _of_traces(
    run: RunAnalysis, fall: Waterfall | None, runs: Sequence[RunAnalysis], remedy: str, best: BestAdvice
) -> str:
    if fall is not None and is_untold_loss(fall):
        tells = f"measure {in_more_windows(runs)}: that tells what the step grew by."
        return f"{tells} Whatever that is: {best.text}" if _is_sure(best.finding) else tells
    if fall is None or grew_within_noise(fall):
        return best.text
    steps = waterfall_steps(fall)
    told = loss_before(fall, steps, run, remedy=remedy, best=best.text, finding=best.finding)
    cuts_ms = cuts_cost_ms(fall)
    return told if cuts_ms is None else cuts_advice(cuts_ms, told, run)


def is_untold_loss(fall: Waterfall) -> bool:
    """Tell whether a growth that is worth a word is hidden by noise: against what nobody knows nothing is advised."""
    grown_ms = fall.measured_growth_ms if fall.measured_growth_ms is not None else fall.growth_ms
    return grew_within_noise(fall) and grown_ms > WORTH_SAYING * (fall.from_step_ms + grown_ms)


def _is_sure(finding: Finding | None) -> bool:
    """Tell whether a finding costs something for sure, whatever its step grew by."""
    return finding is not None and finding.code != "nothing" and not finding.at_most and (finding.low_ms or 0.0) > 0


def advice_sentence(advice: Advice) -> str:
    """Return an advice of schema 1, which holds its words, as a sentence with its figures."""
    if advice.at_most:
        gain = f"at most {milliseconds(advice.gain_ms)} a step, {percent(advice.fraction)}"
    else:
        gain = (
            f"{milliseconds(advice.gain_ms)} a step ({milliseconds(advice.low_ms)} to {milliseconds(advice.high_ms)}), "
            f"{percent(advice.fraction)}"
        )
    how = f" with {' '.join(advice.overrides)}" if advice.overrides else ""
    return f"{advice.what}{how}: {gain}"


def _tells_of_waits(finding: Finding) -> bool:
    """Tell whether what is to be done about a step is to find out whom its ranks wait for."""
    return finding.code == "nothing" and finding.remedy is not None and finding.remedy.cure == "profile_longer"


def _is_same_cure(one: Finding, other: Finding) -> bool:
    """Tell whether both are mended by the same: then it is said once, with what it brings."""
    return one.remedy is not None and other.remedy is not None and one.remedy.cure == other.remedy.cure


def _where_it_goes(finding: Finding, run: RunAnalysis) -> str:
    """Return what helps where no cause is found: about what the first sentence says that the step goes to, with how
    much that is where it is transfer.
    """
    told = f"{cure_text(finding.remedy, is_of_several(finding))}; " if finding.remedy is not None else ""
    if (sent := bare_transfer(finding)) is not None:
        told = f"{finding_text.todo(sent, run)}; "
    return f"{told}{finding_text.todo_elsewhere(finding)}"


def which_ranks(run: RunAnalysis) -> str:
    """Return which ranks are to be profiled once more, after a comma; "" where none lacks, or too many to name."""
    lacking = lacking_ranks(run)
    if not 0 < len(lacking) <= _FEW_RANKS:
        return ""
    return f", {rank_names(lacking)} {'whole' if run.quality.left_out_ranks else 'too'}"


def _knows_as_run(run: RunAnalysis) -> bool:
    """Tell whether what recording cost is taken out of what is said: then it need not be measured again."""
    return run.as_run is not None and bool(run.as_run.ranks) and run.as_run.source != "range"
