"""From answers to plain sentences with figures: what a reader should know before any chart. Pure functions."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from scalescope.records.rows import SweepRow
from scalescope.report.as_run import contradiction, is_likely
from scalescope.report.drawing.numbers import (
    capitalized,
    factor,
    listing,
    milliseconds,
    percent,
    rate,
)
from scalescope.report.drawing.parts import ALL, Part
from scalescope.report.panels.advice import advice_sentence
from scalescope.report.panels.insitu import in_situ_sentence
from scalescope.report.panels.lost import lost_sentence
from scalescope.report.panels.projection import expectation_sentence
from scalescope.report.sentences import (
    PERFECT,
    WORTH_SAYING,
    Level,
    Verdict,
    level_of,
    loss_sentence,
    sentence,
    sweep_verdict,
)
from scalescope.report.shares import EXPOSED_COMMUNICATION
from scalescope.report.steadiness import unlike_sentence
from scalescope.report.text import findings as finding_text
from scalescope.report.text.cures import cure_text
from scalescope.report.text.fusing import best_to_do
from scalescope.report.text.growing import growing_advice, growing_clause, growing_rates
from scalescope.report.text.longer import longer_sentence, usual_sentences
from scalescope.report.text.mixed import mixed_sentence
from scalescope.report.text.recurring import (
    is_told,
    leads,
    pace,
    recorded_of,
    recurring_advice,
    recurring_clause,
    recurring_sentence,
)
from scalescope.report.text.scaling_loss import largest_part, loss_before, loss_clause
from scalescope.report.text.unexplained import unexplained_loss
from scalescope.report.views import (
    activities,
    devices,
    grew_within_noise,
    in_tokens,
    lacking_ranks,
    of_what,
    points_of,
    rank_names,
    run_label,
    series_names,
    spoken_of,
    waterfall_steps,
)
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.finding import Finding, is_of_steady_steps, is_within_noise, weight
from scalescope.scaling.findings.derived import is_compiled
from scalescope.scaling.findings.shares import bounded_means
from scalescope.scaling.study_answer import ScalingPoint, StudyAnalysis, Waterfall
from scalescope.scaling.verdicts.step_rows.doubt import is_doubtful
from scalescope.scaling.verdicts.step_rows.steady import slowed_by_profiling

_MEASURE_AGAIN = "measure again on a quiet machine, or in more windows (the profiler's repeat)"
_PROFILE_AGAIN = "profile again, later or for more steps: what these profiled steps wait for, the measured ones do not"

_PROFILE_ALL = "profile every rank, in the same steps{which}: only together do their traces tell who waits for whom"
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
#: What cannot be split into wait and transfer is partly transfer, and no loss: so many times a finding it comes first.
_OUTWEIGHS = 2.0
#: A rank that costs less than this share of the costliest finding is in the table of them, and not named once more.
_WORTH_NAMING = 0.25
#: More ranks than this are not named once more.
_FEW_RANKS = 8


def study_verdicts(
    study: StudyAnalysis, runs: Sequence[RunAnalysis], sweep_rows: Sequence[SweepRow] = ()
) -> list[Verdict]:
    """Return a verdict a series, then one for the sweep where there is one; never an empty list."""
    verdicts = [_series_verdict(study, name, runs) for name in series_names(study)]
    if not verdicts:
        verdicts = [run_verdict(run) for run in runs]
    if sweep_rows:
        verdicts.append(sweep_verdict(sweep_rows))
    why = tuple(sentence(reason) for reason in study.reasons)
    return verdicts or [Verdict(study.name, "unknown", "This study holds no analysed run yet.", why)]


def run_verdict(run: RunAnalysis) -> Verdict:
    """Return what one run's traces say: what costs its step most, where the rest of it goes, and what to do.

    Of a folder that mixes windows or jobs that comes first.
    """
    stepless = run.steps_by is None and run.ranks and run.quality.verdict != "unusable"
    own = _stepless_verdict(run) if stepless else _step_verdict(run)
    if run.quality.mixed is None:
        return own
    whose = run_label(run) + spoken_of(run)
    lacks = bool(lacking_ranks(run))
    return replace(
        own,
        level="unknown",
        headline=f"{whose}: {mixed_sentence(run.quality.mixed, lacks_ranks=lacks)}",
        sentences=(f"By itself: {own.headline.removeprefix(f'{whose}: ')}", *own.sentences),
        advice=f"{_PROFILE_ALL.format(which=_which_ranks(run))}." if lacks else own.advice,
    )


def _step_verdict(run: RunAnalysis) -> Verdict:
    label, whose = run_label(run), run_label(run) + spoken_of(run)
    explained: list[str] = []
    advice = lead = ""
    level: Level = "unknown"
    if run.ranks and run.quality.verdict != "unusable":
        ranks = step_as_run(run)[1] if run.as_run is not None else bounded_means(run)
        window = statistics.fmean(rank.window_ms for rank in ranks)
        means = [(part, statistics.fmean(rank.part_ms(part.key) for rank in ranks)) for part in ALL]
        compute = means[0][1] / window if window else 0.0
        level = level_of(compute)
        lost = sorted(((part, ms) for part, ms in means[1:] if ms > 0), key=lambda item: -item[1])
        found = [f"{milliseconds(ms)} {part.name}" for part, ms in lost if ms >= WORTH_SAYING * (window - means[0][1])]
        share = f"{percent(compute)} of the {milliseconds(window)} step is compute"
        if is_likely(run) and run.findings:
            share = f"If recording costs what it usually does, {share}"
        rest = f"{milliseconds(window - means[0][1])} are not"
        unseen = _unseen_wait(run, lost)
        if run.findings and not (unseen and _is_outweighed(run.findings[0], lost[0][1])):
            unseen = ""
            shares = f"{share}; {listing(found)}." if found else f"{share}."
            told, doubtful = finding_text.headline_of_all(run.findings, window, run.world_size, shares)
            lead = "" if told.endswith(shares) else unexplained_loss(run, window, compute, lost)
            headline = f"{whose}: {lead}{told}"
            level = "unknown" if run.findings[0].code == "profiler_cost" else level
            explained += [] if told.endswith(shares) else [shares]
            explained += [doubtful] if doubtful else []
        else:
            headline = f"{whose}: {share}; {unseen or f'{rest}.'}"
            explained += [f"That is {listing(found)}."] if found else []
            beside = [finding_text.line(one) for one in run.findings[:1] if one.ms is not None]
            explained += [f"What these traces tell: {one}." for one in beside]
        if run.longer is not None:
            headline = f"{whose}: {longer_sentence(run.longer)} {headline.removeprefix(f'{whose}: ')}"
            explained += usual_sentences(run)
        if run.recurring is not None and is_told(run) and not leads(run):
            explained.append(recurring_sentence(run, run.recurring))
        doubt = False
        if (against := contradiction(run)) and run.as_run is not None and run.as_run.untraced_by == "given":
            level = "unknown"  # all that is said of the step as run rests on what was given
            explained.insert(0, f"By the traces: {headline.removeprefix(f'{whose}: ')}")
            headline = f"{whose}: {against}"
        elif doubt := is_doubtful(run):
            level = "unknown"
            headline = (
                f"{whose}: the machine was unsteady. Of the profiled steps alone: {headline.removeprefix(f'{whose}: ')}"
            )
            explained[:0] = [capitalized(against)] if against else []
        elif against:
            explained.append(capitalized(against))
        odd = run.unpriced is not None and run.unpriced.code == "other_steps"
        if odd or run.quality.unknown_collectives or run.quality.lossy_ranks or run.quality.several_devices:
            level = "unknown"
        if run.recurring is not None and leads(run):
            level = "unknown"  # a few profiled steps hold none of it, or too much
            whole = headline.removeprefix(f"{whose}: ")
            recorded = capitalized(recorded_of(run, run.recurring))
            explained.insert(0, f"{recorded}. {capitalized(whole) if doubt else f'Of the profiled steps: {whole}'}")
            headline = f"{whose}: {recurring_clause(run.recurring)}."
        if run.growing is not None:
            level = "unknown"  # no step is like another
            whole = headline.removeprefix(f"{whose}: ")
            of_steps = not doubt and (run.recurring is None or not leads(run)) and run.growing.known_by == "rows"
            explained.insert(0, f"Of the profiled steps: {whole}" if of_steps else capitalized(whole))
            headline = f"{whose}: {growing_clause(run.growing)}."
        if lost and 1 - compute > 0.02:
            advice = f"{_remedy(lost[0][0], run)}."
        best = _best_advice(run, advice, bool(unseen))
        beyond = lead and advice and not best.startswith(advice)  # without another remedy it is the same
        advice = f"{advice.removesuffix('.')}; beyond that, {best}" if beyond else best
        if run.recurring is not None and leads(run):
            advice = f"{recurring_advice(run.recurring)}; of the profiled steps: {advice}"
        if run.growing is not None:
            advice = f"{growing_advice(run.growing)}; of the profiled steps: {advice}"
    else:
        headline, explained, advice = _without_parts(run, whose)
    notes: list[str] = [lost_sentence(run)] if run.lost else []
    notes += _throughput_sentences(run)
    notes += _window_sentences(run)
    notes += _straggler_sentences(run, run.findings[:1])
    notes += _quality_sentences(run)
    return Verdict(label, level, headline, tuple(explained), advice, tuple(notes), _cautions([run]))


def _without_parts(run: RunAnalysis, whose: str) -> tuple[str, list[str], str]:
    """Return the first sentence, those after it and what to do of a run whose traces do not say where its time goes: of
    what its rows tell.
    """
    explained: list[str] = []
    told = advice = ""
    if run.findings and is_of_steady_steps(run.findings[0]):
        told = finding_text.headline(run.findings[0], 0.0, run.world_size)
        advice = _best_advice(run, "", False)
    if run.recurring is not None and is_told(run):
        if leads(run):
            told, advice = f"{recurring_clause(run.recurring)}.", f"{recurring_advice(run.recurring)}."
        else:
            explained.append(recurring_sentence(run, run.recurring))
    if run.growing is not None:
        explained[:0] = [capitalized(told)] if told else []
        told, advice = f"{growing_clause(run.growing)}.", f"{growing_advice(run.growing)}."
    if not told and run.quality.unprofiled:
        told = "no step was profiled (profiler=none), so nothing tells where its time goes."
    return f"{whose}: {told or 'the traces do not say where its time goes.'}", explained, advice


def _is_outweighed(finding: Finding, unsplit_ms: float) -> bool:
    """Tell whether far more may be waiting for ranks without a trace than the costliest finding comes to."""
    return finding.ms is not None and unsplit_ms > _OUTWEIGHS * weight(finding)


def _unseen_wait(run: RunAnalysis, lost: Sequence[tuple[Part, float]]) -> str:
    """Return what is most of what a step loses, where that may be waiting for ranks without a trace; else ""."""
    lacking = lacking_ranks(run)
    if not lacking or not lost or lost[0][0].key != "exposed_unsplit":
        return ""
    # split or not: with a rank whose trace is cut off it is split in the steps that are left of it
    spent = milliseconds(sum(ms for part, ms in lost if part.key in EXPOSED_COMMUNICATION))
    return f"{spent} are communication; whether ranks wait for {rank_names(lacking)} in it, these traces cannot tell."


def _stepless_verdict(run: RunAnalysis) -> Verdict:
    """Return what traces say in which nothing tells steps: shares of what was recorded, and no step's time."""
    label = run_label(run)
    window = sum(rank.window_ms for rank in run.ranks)
    shares = [(part, sum(rank.part_ms(part.key) for rank in run.ranks) / window if window else 0.0) for part in ALL]
    compute = shares[0][1]
    lost = sorted(((part, share) for part, share in shares[1:]), key=lambda item: -item[1])
    told = [f"{percent(share)} {part.name}" for part, share in lost if share >= WORTH_SAYING * (1 - compute) > 0]
    recorded = milliseconds(window / len(run.ranks))
    headline = (
        f"{label}{spoken_of(run)}: no steps in the trace. Of the {recorded} recorded, {percent(compute)} is compute."
    )
    explained = (f"The rest is {listing(told)}.",) if told else ()
    remedy = _remedy(lost[0][0], run) if lost and 1 - compute > 0.02 else ""
    advice = f"{remedy}." if remedy else ""
    doubts = _cautions([run])
    return Verdict(label, level_of(compute), headline, explained, advice, doubts, doubts)


def _remedy(part: Part, run: RunAnalysis) -> str:
    """Return what may help a run against a part."""
    return part.remedy_for(run.activity, trains=run.trains, framework=run.framework, compiled=is_compiled(run))


def _series_verdict(study: StudyAnalysis, series: str, runs: Sequence[RunAnalysis]) -> Verdict:
    points = points_of(study, series)
    kinds = activities(runs)
    if not points:
        return Verdict(series, "unknown", f"{series}: no throughput was measured.", ())
    first, last = points[0], points[-1]
    of_series = [run for point in points for run in runs if run.name == point.run]
    kind = kinds.get(last.run)
    sentences: list[str] = []
    notes: list[str] = []
    advice = ""
    if len(points) == 1:
        done = _throughput(last, points)
        headline = f"{series}: {devices(last.world_size, kind)} do {done}; there is no other count to compare with."
        level: Level = "unknown"
    else:
        of_one = "one" if first.world_size == 1 else devices(first.world_size, kind)
        headline = (
            f"{series}: {devices(last.world_size, kind)} do {factor(last.speedup)} the work of {of_one}: "
            f"{percent(last.efficiency)} {last.scaling} scaling efficiency."
        )
        level = level_of(last.efficiency)
        if last.efficiency > PERFECT:
            level = "unknown"
            notes.append(
                "More than perfect scaling means that the smaller run was slower than it need be, or that the machine "
                "had other work: measure again on a quiet machine before believing it."
            )
        falls = [fall for fall in study.waterfall if fall.series == series and fall.to_world_size == last.world_size]
        largest = next((run for run in of_series if run.name == last.run), None)
        unsteady = is_unsteady_series(study, series, runs)
        if unsteady:
            headline = f"{series}: the machine was unsteady. {headline.partition(': ')[2]}"
            level = "unknown"
        if falls and last.scaling == "weak":
            sentences.append(loss_sentence(falls[0]))
            advice = _advice(falls[0], kind, of_series)
        elif last.scaling == "strong":
            ideal = first.step_ms * first.world_size / last.world_size
            sentences.append(
                f"A step takes {milliseconds(last.step_ms)} where {milliseconds(ideal)} would be a perfect split "
                f"of {milliseconds(first.step_ms)}."
            )
        else:
            sentences.append("Where the loss goes is not known: there are no analysed traces at both counts.")
        if unsteady:
            advice = f"{_MEASURE_AGAIN}."
        elif largest is not None:
            remedy, advice = advice, _best_advice(largest, advice)
            most = largest_part(falls[0], waterfall_steps(falls[0])) if falls and last.scaling == "weak" else None
            if most is not None and not grew_within_noise(falls[0]):
                headline = f"{headline.removesuffix('.')}; {loss_clause(falls[0], *most)}."
                advice = loss_before(falls[0], *most, largest, remedy, advice)
        if last.samples_per_s is not None:
            notes.append(f"Together they do {_throughput(last, points)}.")
    notes += _outlook_sentences(study, series, of_series)
    if last.mfu is not None:
        notes.append(f"Each reaches {percent(last.mfu)} of its data-sheet peak (MFU).")
    for run in of_series:
        notes += _window_sentences(run)
        notes += _straggler_sentences(run)
        notes += _quality_sentences(run)
    ends = (
        of_series[-1:]
        if not of_series or _window_sentences(of_series[-1])
        else list(filter(is_doubtful, of_series[:1]))
    )
    return Verdict(series, level, headline, tuple(sentences), advice, tuple(notes), _cautions(of_series, alike=ends))


def is_unsteady_series(study: StudyAnalysis, series: str, runs: Sequence[RunAnalysis]) -> bool:
    """Tell whether the machine was unsteady while a series that has points was measured: its traces' growth contradicts
    the measured one, or its smallest or largest run's profiled steps the measured ones.
    """
    points = points_of(study, series)
    grown = [one for one in study.waterfall if one.series == series and one.to_world_size == points[-1].world_size]
    ends = {points[0].run, points[-1].run}
    return any(fall.unsteady for fall in grown) or any(is_doubtful(run) for run in runs if run.name in ends)


def _advice(fall: Waterfall, activity: str | None, runs: Sequence[RunAnalysis]) -> str:
    """Return what helps against the largest part of a growth that is worth a word."""
    if grew_within_noise(fall):
        return ""
    worst, ms = max(waterfall_steps(fall), key=lambda step: step[1])
    framework = next((run.framework for run in runs), "torch")
    remedy = worst.remedy_for(activity, framework=framework, compiled=any(is_compiled(run) for run in runs))
    return f"{remedy}." if fall.growth_ms > 0.01 * fall.from_step_ms and ms > 0 and remedy else ""


def _best_advice(run: RunAnalysis, remedy: str, unseen: bool = False) -> str:
    """Return what to do about a run's costliest finding; without any the remedy, with what the replay says of it.

    `unseen`: most of what it loses may be waiting for ranks without a trace.
    """
    if run.findings and run.findings[0].code == "profiler_cost" and run.findings[0].remedy is not None:
        return f"{cure_text(run.findings[0].remedy)}."
    first = finding_text.first_to_do(run.findings)
    unsplit = unseen or (run.unpriced is not None and run.unpriced.code == "unsplit" and not run.findings)
    if run.unpriced is not None and run.unpriced.code == "several_devices":
        turns = any(one.by_turns for one in run.quality.several_devices)
        return f"{_WORK_AT_ONCE if turns else _ONE_EACH}."
    if run.unpriced is not None and run.unpriced.code == "other_steps":
        return f"{_SAME_STEPS}."
    if run.quality.unknown_collectives:
        return f"{_NAME_LIBRARY}."
    if run.quality.lossy_ranks and (first is None or run.unpriced is not None):
        return f"{_PROFILE_LESS}."
    if unsplit or (first is None and run.quality.left_out_ranks):
        return f"{_PROFILE_ALL.format(which=_which_ranks(run))}."
    if is_doubtful(run):
        alone = f"; of the profiled steps alone: {best_to_do(run, first)}" if first is not None else ""
        return f"{_MEASURE_AGAIN}{alone}."
    if first is not None:
        return f"{finding_text.more_steps(run.findings)}{best_to_do(run, first)}."
    if run.advice and run.advice[0].what:  # schema 1
        return f"{advice_sentence(run.advice[0])}."
    if slowed_by_profiling(run) and not _knows_as_run(run):
        return f"{_PROFILE_AGAIN}."
    if run.findings and run.findings[0].remedy is not None:
        return f"{cure_text(run.findings[0].remedy)}; {finding_text.todo_elsewhere(run.findings[0])}."
    if remedy and run.replay is not None and run.replay.faithful:
        return f"{remedy} No setting that the replay can try is sure to bring 0.5% of the step."
    return remedy


def _which_ranks(run: RunAnalysis) -> str:
    """Return which ranks are to be profiled once more, after a comma; "" where none lacks, or too many to name."""
    lacking = lacking_ranks(run)
    if not 0 < len(lacking) <= _FEW_RANKS:
        return ""
    return f", {rank_names(lacking)} {'whole' if run.quality.left_out_ranks else 'too'}"


def _knows_as_run(run: RunAnalysis) -> bool:
    """Tell whether what recording cost is taken out of what is said: then it need not be measured again."""
    return run.as_run is not None and bool(run.as_run.ranks) and run.as_run.source != "range"


def _outlook_sentences(study: StudyAnalysis, series: str, runs: Sequence[RunAnalysis]) -> list[str]:
    """Return what the sweep says: of the largest run's collectives, and of more GPUs."""
    sentences = []
    largest = max(runs, key=lambda run: run.world_size, default=None)
    if largest is not None and any(row.efficiency is not None for row in largest.in_situ):
        sentences.append(in_situ_sentence(largest))
    if study.projection is not None:
        expected = expectation_sentence(
            [one for one in study.projection.points if one.series == series], largest.activity if largest else None
        )
        sentences += [expected] if expected else []
    return sentences


def _throughput_sentences(run: RunAnalysis) -> list[str]:
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
        text = (
            f"It does {rate(overall)} {unit}/s, long steps included, and {rate(a_second * times.between_long)} in a "
            "typical one"
        )
    return [f"{text}, {percent(done.mfu)} MFU." if done.mfu is not None else f"{text}."]


def _window_sentences(run: RunAnalysis) -> list[str]:
    """Return a warning where the profiled steps are not like the measured ones, so that shares of them may mislead."""
    told = unlike_sentence(run, devices(run.world_size, run.activity))
    return [told] if told else []


def _straggler_sentences(run: RunAnalysis, said: Sequence[Finding] = ()) -> list[str]:
    """Return a sentence for each rank that costs the others time, but for what was said already."""
    where = devices(run.world_size, run.activity)
    least = _WORTH_NAMING * max((weight(one) for one in run.findings if one.ms is not None), default=0.0)
    named = [
        one
        for one in run.findings
        if one.rank is not None and one.ms is not None and one not in said and weight(one) >= least
    ]
    found = [f"Rank {one.rank} of {where} {_costs(one)}: {sentence(finding_text.because(one))}" for one in named]
    return found or [
        f"Rank {one.rank} of {where} costs the others {milliseconds(one.lost_ms)} of exposed wait a step: "
        f"{sentence(one.verdict)}"
        for one in run.stragglers
        if one.verdict  # schema 1
    ]


def _costs(finding: Finding) -> str:
    cost = finding_text.cost(finding)
    return f"may cost {cost} a step, or nothing" if is_within_noise(finding) else f"costs {cost} a step"


def _quality_sentences(run: RunAnalysis) -> list[str]:
    if run.quality.verdict == "good" or run.quality.unprofiled:
        return []
    if run.quality.unsteady and not run.quality.reasons:
        return []  # that the machine was unsteady is said by itself
    unsteady = ["the machine was unsteady"] if run.quality.unsteady else []
    reasons = "; ".join([*unsteady, *run.quality.reasons]) or "no reason was given"
    return [f"The traces of {devices(run.world_size, run.activity)} are {run.quality.verdict}: {sentence(reasons)}"]


def _cautions(runs: Sequence[RunAnalysis], alike: Sequence[RunAnalysis] | None = None) -> tuple[str, ...]:
    """Return what makes figures doubtful: traces that are not whole, and steps that are not alike.

    `alike`: the runs whose steps count for that; None: all.
    """
    unlike = [text for run in (runs if alike is None else alike) for text in _window_sentences(run)]
    return (*unlike, *(text for run in runs for text in _quality_sentences(run)))


def _throughput(point: ScalingPoint, points: Sequence[ScalingPoint]) -> str:
    if in_tokens(points) and point.tokens_per_s is not None:
        return f"{rate(point.tokens_per_s)} tokens/s"
    return f"{rate(point.samples_per_s or 0.0)} samples/s"
