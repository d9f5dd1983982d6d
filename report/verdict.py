"""From answers to plain sentences with figures: what a reader should know before any chart. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from records.rows import SweepRow
from report.advice import advice_sentence
from report.lost import lost_sentence
from report.numbers import READS_AS_ZERO_MS, factor, figure, listing, microseconds, milliseconds, percent, rate, size
from report.panels_insitu import in_situ_sentence
from report.panels_projection import expectation_sentence
from report.parts import ALL, Part
from report.views import activities, devices, in_tokens, points_of, run_label, series_names, waterfall_steps
from scaling.answer import RunAnalysis, ScalingPoint, StudyAnalysis, Waterfall
from scaling.steady import UNLIKE, slowed_by_profiling

Level = Literal["good", "fair", "poor", "unknown"]

#: Parts of a loss below this share are not worth a reader's sentence.
_WORTH_SAYING = 0.05
_GOOD, _FAIR = 0.9, 0.7
_PERFECT = 1.05
_PROFILE_AGAIN = "profile again, later or for more steps: what these profiled steps wait for, the measured ones do not"
#: Smaller calls measure latency: no share of a link's rate.
_FILLS_A_LINK = 2**20


@dataclass(frozen=True)
class Verdict:
    """One subject's verdict: a headline, the sentences that explain it, and what may help most."""

    subject: str
    level: Level
    headline: str
    sentences: tuple[str, ...] = ()
    advice: str = ""

    @property
    def text(self) -> str:
        return " ".join(
            [self.headline, *self.sentences, *([f"What may help most: {self.advice}"] if self.advice else [])]
        )


def study_verdicts(
    study: StudyAnalysis, runs: Sequence[RunAnalysis], sweep_rows: Sequence[SweepRow] = ()
) -> list[Verdict]:
    """Return a verdict a series, then one for the sweep where there is one; never an empty list."""
    verdicts = [_series_verdict(study, name, runs) for name in series_names(study)]
    if not verdicts:
        verdicts = [run_verdict(run) for run in runs]
    if sweep_rows:
        verdicts.append(sweep_verdict(sweep_rows))
    why = tuple(_sentence(reason) for reason in study.reasons)
    return verdicts or [Verdict(study.name, "unknown", "This study holds no analysed run yet.", why)]


def run_verdict(run: RunAnalysis) -> Verdict:
    """Return what one run's traces say: how much of a step computes, what is lost to what, and who is to blame."""
    label = run_label(run)
    sentences: list[str] = []
    advice = ""
    level: Level = "unknown"
    if run.ranks and run.quality.verdict != "unusable":
        steps = sum(rank.steps for rank in run.ranks) or 1
        window = sum(rank.window_ms for rank in run.ranks) / steps
        means = [(part, sum(rank.part_ms(part.key) for rank in run.ranks) / steps) for part in ALL]
        compute = means[0][1] / window if window else 0.0
        level = _level(compute)
        headline = (
            f"{label}: {percent(compute)} of the {milliseconds(window)} step is compute; "
            f"{milliseconds(window - means[0][1])} are not."
        )
        lost = sorted(((part, ms) for part, ms in means[1:] if ms > 0), key=lambda item: -item[1])
        told = [f"{milliseconds(ms)} {part.name}" for part, ms in lost if ms >= _WORTH_SAYING * (window - means[0][1])]
        if told:
            sentences.append(f"That is {listing(told)}.")
        if lost and 1 - compute > 0.02:
            advice = f"{lost[0][0].remedy_for(run.activity)}."
        advice = _best_advice(run, advice)
    else:
        headline = f"{label}: the traces do not say where its time goes."
    if run.lost:
        sentences.append(lost_sentence(run))
    sentences += _throughput_sentences(run)
    sentences += _window_sentences(run)
    sentences += _straggler_sentences(run)
    sentences += _quality_sentences(run)
    return Verdict(label, level, headline, tuple(sentences), advice)


def sweep_verdict(rows: Sequence[SweepRow]) -> Verdict:
    """Return what the collectives reach: the best bandwidth beside its ceiling, the shortest time, what went wrong."""
    measured = [row for row in rows if row.bus_gb_s is not None and row.time_us is not None]
    headlines: list[str] = []
    level: Level = "unknown"
    for operation in dict.fromkeys(row.operation for row in measured):
        of_it = [row for row in measured if row.operation == operation]
        group = max(row.group_size for row in of_it)
        best = max((row for row in of_it if row.group_size == group), key=lambda row: row.bus_gb_s or 0.0)
        fastest = min((row for row in of_it if row.group_size == group), key=lambda row: row.time_us or 0.0)
        text = f"{operation} reaches {rate(best.bus_gb_s or 0)} GB/s busbw at {size(best.bytes)} on {group} ranks"
        if best.ceiling_gb_s and best.bytes >= _FILLS_A_LINK:
            share = (best.bus_gb_s or 0.0) / best.ceiling_gb_s
            assumed = f" ({best.ceiling_assumes})" if best.ceiling_assumes else ""
            text += f", {percent(share)} of the {rate(best.ceiling_gb_s)} GB/s that the links allow{assumed}"
            level = _level(share, good=0.7, fair=0.4) if level == "unknown" else level
        headlines.append(f"{text}; its shortest call takes {microseconds(fastest.time_us or 0.0)}.")
    sentences: list[str] = []
    if not headlines:
        headlines = ["No point of the sweep was measured."]
    if wrong := sum(row.wrong or 0 for row in rows):
        level = "poor"
        sentences.append(f"{figure(wrong, 0)} elements of the results were wrong: no figure of such a call counts.")
    if unchecked := sum(row.wrong is None for row in measured):
        sentences.append(f"{_of_points(unchecked, len(measured))} measured without checking the result.")
    if missing := [row for row in rows if row.time_us is None]:
        reasons = list(dict.fromkeys(row.reason or row.status.replace("_", " ") for row in missing))
        more = f" and {len(reasons) - 3} more reasons" if len(reasons) > 3 else ""
        sentences.append(f"{_of_points(len(missing), len(rows))} not measured: {'; '.join(reasons[:3])}{more}.")
    return Verdict("sweep", level, headlines[0], (*headlines[1:], *sentences))


def loss_sentence(fall: Waterfall) -> str:
    """Return where a step's growth went, largest part first; what became shorter is said as given back."""
    span = f"{milliseconds(fall.from_step_ms)} to {milliseconds(fall.to_step_ms)} in the traces"
    grown = fall.growth_ms
    if grown < READS_AS_ZERO_MS:
        return f"The profiled step did not grow ({span})."
    steps = sorted(waterfall_steps(fall), key=lambda step: -step[1])
    more = [(part, ms) for part, ms in steps if ms / grown >= _WORTH_SAYING]
    back = [f"{milliseconds(-ms)} {part.name}" for part, ms in reversed(steps) if -ms / grown >= _WORTH_SAYING]
    returned = f"; {listing(back)} came back" if back else ""
    if more and more[0][1] > grown:
        # no share of a whole: parts that grew and parts that shrank make up for each other
        told = listing([f"{milliseconds(ms)} {part.name}" for part, ms in more])
        return f"A step grew by {milliseconds(grown)} ({span}): {told}{returned}."
    told = _shares([(part, ms / grown) for part, ms in more])
    return f"Of the {milliseconds(grown)} by which a step grew ({span}), {told}{returned}."


def _series_verdict(study: StudyAnalysis, series: str, runs: Sequence[RunAnalysis]) -> Verdict:
    points = points_of(study, series)
    kinds = activities(runs)
    if not points:
        return Verdict(series, "unknown", f"{series}: no throughput was measured.", ())
    first, last = points[0], points[-1]
    of_series = [run for run in runs if run.name in {point.run for point in points}]
    kind = kinds.get(last.run)
    sentences: list[str] = []
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
        level = _level(last.efficiency)
        if last.efficiency > _PERFECT:
            level = "unknown"
            sentences.append(
                "More than perfect scaling means that the smaller run was slower than it need be, or that the machine "
                "had other work: measure again on a quiet machine before believing it."
            )
        falls = [fall for fall in study.waterfall if fall.series == series and fall.to_world_size == last.world_size]
        if falls and last.scaling == "weak":
            sentences.append(loss_sentence(falls[0]))
            advice = _advice(falls[0], kind)
        elif last.scaling == "strong":
            ideal = first.step_ms * first.world_size / last.world_size
            sentences.append(
                f"A step takes {milliseconds(last.step_ms)} where {milliseconds(ideal)} would be a perfect split "
                f"of {milliseconds(first.step_ms)}."
            )
        else:
            sentences.append("Where the loss goes is not known: there are no analysed traces at both counts.")
        largest = next((run for run in of_series if run.name == last.run), None)
        if largest is not None:
            advice = _best_advice(largest, advice)
        sentences.append(f"Together they do {_throughput(last, points)}.")
    sentences += _outlook_sentences(study, series, of_series)
    if last.mfu is not None:
        sentences.append(f"Each reaches {percent(last.mfu)} of its data-sheet peak (MFU).")
    for run in of_series:
        sentences += _window_sentences(run)
        sentences += _straggler_sentences(run)
        sentences += _quality_sentences(run)
    return Verdict(series, level, headline, tuple(sentences), advice)


def _advice(fall: Waterfall, activity: str | None) -> str:
    """Return what helps against the largest part of a growth that is worth a word."""
    worst, ms = max(waterfall_steps(fall), key=lambda step: step[1])
    remedy = worst.remedy_for(activity)
    return f"{remedy}." if fall.growth_ms > 0.01 * fall.from_step_ms and ms > 0 and remedy else ""


def _best_advice(run: RunAnalysis, remedy: str) -> str:
    """Return a run's best advice; without any the remedy, with what the replay says of it."""
    if run.advice:
        return f"{advice_sentence(run.advice[0])}."
    if slowed_by_profiling(run):
        return f"{_PROFILE_AGAIN}."
    if remedy and run.replay is not None and run.replay.faithful:
        return f"{remedy} No setting that the replay can try is sure to bring 0.5% of the step."
    return remedy


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
    if done is None:
        return ["Its throughput is not known: there are no steady steps outside the profiler's window."]
    text = (
        f"It does {rate(done.tokens_per_s)} tokens/s"
        if done.tokens_per_s
        else f"It does {rate(done.samples_per_s)} samples/s"
    )
    return [f"{text}, {percent(done.mfu)} MFU." if done.mfu is not None else f"{text}."]


def _window_sentences(run: RunAnalysis) -> list[str]:
    """Return a warning where the profiled steps are not like the measured ones, so that shares of them may mislead."""
    times = run.step_times
    if times is None or times.profiling_overhead_fraction is None or abs(times.profiling_overhead_fraction) < UNLIKE:
        return []
    more = "longer" if times.profiling_overhead_fraction > 0 else "shorter"
    return [
        f"On {devices(run.world_size, run.activity)} the profiled steps are "
        f"{percent(abs(times.profiling_overhead_fraction), 0)} {more} than the measured ones: "
        "what the traces show may not be what the throughput shows."
    ]


def _straggler_sentences(run: RunAnalysis) -> list[str]:
    where = devices(run.world_size, run.activity)
    return [
        f"Rank {guilty.rank} of {where} costs the others {milliseconds(guilty.lost_ms)} of exposed wait a step: "
        f"{_sentence(guilty.verdict)}"
        for guilty in run.stragglers
    ]


def _quality_sentences(run: RunAnalysis) -> list[str]:
    if run.quality.verdict == "good":
        return []
    reasons = "; ".join(run.quality.reasons) or "no reason was given"
    return [f"The traces of {devices(run.world_size, run.activity)} are {run.quality.verdict}: {_sentence(reasons)}"]


def _throughput(point: ScalingPoint, points: Sequence[ScalingPoint]) -> str:
    if in_tokens(points) and point.tokens_per_s is not None:
        return f"{rate(point.tokens_per_s)} tokens/s"
    return f"{rate(point.samples_per_s)} samples/s"


def _shares(shares: Sequence[tuple[Part, float]]) -> str:
    """Return `60% are slower compute, 25% exposed transfer and 15% exposed wait`."""
    if not shares:
        return "no part makes up as much as a twentieth"
    first, *others = ((percent(share, 0), part.name) for part, share in shares)
    return listing([f"{first[0]} are {first[1]}", *(f"{share} {name}" for share, name in others)])


def _of_points(count: int, of: int) -> str:
    return f"{count} of {of} points {'was' if count == 1 else 'were'}"


def _level(share: float, good: float = _GOOD, fair: float = _FAIR) -> Level:
    return "good" if share >= good else "fair" if share >= fair else "poor"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
