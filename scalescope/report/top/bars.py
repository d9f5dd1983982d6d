"""Where a step goes, as bars of one scale: as profiled, and as run; of a study, on each of its rank counts."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from scalescope.report.as_run.recording import of_other_steps
from scalescope.report.as_run.shown import (
    differs,
    differs_by_noise,
    is_likely,
    is_shown_alone,
    is_shown_as_profiled,
    name_of_step,
    named_length_ms,
    shown_efficiency,
    shown_step,
    step_of_job,
)
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import listing, milliseconds, percent, rank_list
from scalescope.report.page import Bar, Bars, Stretch
from scalescope.report.panels.compute_lines import waits_in_compute
from scalescope.report.replayed import beside_all, fewer_replayed, without_recording
from scalescope.report.steadiness import AS_MEASURED, beside_measured
from scalescope.report.text.findings import beside_waits
from scalescope.report.text.late.rank import LateRank, late_rank, splits_of
from scalescope.report.text.recurring import is_told
from scalescope.report.text.waits.on_cores import waits_within
from scalescope.report.views import devices
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import Split
from scalescope.scaling.as_run.step import a_step, step_as_run
from scalescope.scaling.finding.finding import ranks_of
from scalescope.scaling.finding.kinds import is_within_noise

#: More rank counts than these are not drawn: the smallest, and the largest ones.
_MOST_COUNTS = 4
#: Whose a run's bar is that is no single rank's.
_MEAN_RANK = "mean rank"
#: The steps that are replayed differ from all profiled ones by more than this share: then that is said.
_OTHERS = 0.1
#: A stretch below this share of the longest bar is not drawn, and has no entry of its own in the legend.
_SEEN = 0.002


def run_bars(run: RunAnalysis) -> Bars | None:
    """Return the mean rank's step, as profiled and, where that is another, as run; None where the traces tell none.

    Where what is said first names ranks, their own step and the others' stand below it: the mean of a rank that is late
    and of those that wait for it is no rank's.

    Where the steps that its parts are of read longer or shorter than the one that is told, it is that one, cut by their
    shares: one length of one step.
    """
    if not run.ranks or run.quality.verdict == "unusable":
        return None
    whose = _MEAN_RANK if len(run.ranks) > 1 else ""
    bars = _bars_of(run, whose)
    told_ms, late = _told_ms(run, bars), late_rank(run)
    another = told_ms is not None and _is_another(told_ms, bars)
    own_ms = named_length_ms(run, _length(bars)) if len(bars) == 1 else _length(bars)
    # one length, to the last digit; ms of it would be others than those of the parts in the table
    shares = another or milliseconds(own_ms) != milliseconds(_length(bars))
    scale = (told_ms if another and told_ms else own_ms if shares else _length(bars)) / (_length(bars) or 1.0)
    splits = _scaled(splits_of(run) if late is not None else bars[-1][1], scale)
    given = [(whose, _scaled(bars[-1][1], scale))] if shares else [(who, _scaled(one, scale)) for who, one in bars]
    if late is not None:
        late = replace(late, ms=scale * late.ms)
    if late is not None and late.in_all is not None and shares:
        told = late.in_all.share * scale * _length(bars)
        splits, given = _at_told(splits, late, told), [(whose, _at_told(given[0][1], late, told))]
        late = replace(late, ms=told)
    apart = _apart(splits, late.ranks if late is not None else named_ranks(run))
    drawn = _cut_by_shares(given, apart) if shares else _drawn(given, apart)
    drawn = replace(drawn, notes=[*_of_others(run), *_measured([(run, "", bars)])])
    if late is not None:
        return _with_late_rank(drawn, late, apart, _longest(given, apart), shares=shares)
    longest, drawn = _longest(given, apart), _with_waits(drawn, run)
    return replace(drawn, bars=[*drawn.bars, *(_bar(who, own, longest, shares=shares) for who, own in apart)])


def named_ranks(run: RunAnalysis) -> tuple[int, ...]:
    """Return the ranks that the first sentence names for sure: of what comes first, or of what is said beside it."""
    said = [*run.findings[:1], beside_waits(run.findings)]
    sure = [one for one in said if one is not None and one.rank is not None and not is_within_noise(one)]
    return ranks_of(sure[0]) if sure else ()


def series_bars(runs: Sequence[RunAnalysis]) -> Bars | None:
    """Return the steps of a series, ascending by rank count; None where no run tells where its steps go."""
    known = [run for run in runs if run.ranks and run.steps_by is not None and run.quality.verdict != "unusable"]
    known.sort(key=lambda run: run.world_size)
    chosen = known if len(known) <= _MOST_COUNTS else [known[0], *known[1 - _MOST_COUNTS :]]
    if not chosen:
        return None
    profiled = not all(differs(run) or _is_as_profiled(run) for run in chosen)  # bars of one drawing are of like steps
    by_run = [
        (run, where, _as_profiled(run, where) if profiled else _bars_of(run, where))
        for run in chosen
        for where in [devices(run.world_size, run.activity)]
    ]
    which = _which_steps(chosen, profiled=profiled)
    notes = [*_measured(by_run, profiled=profiled)]
    told = [(where, bars, told_ms) for run, where, bars in by_run if (told_ms := _told_ms(run, bars)) is not None]
    if len(told) < len(by_run) or not any(_is_another(told_ms, bars) for _, bars, told_ms in told):
        notes = [f"Bars are {which}", *notes] if which else notes
        return replace(_drawn([bar for _, _, bars in by_run for bar in bars]), notes=notes)
    cut = [(where, _scaled(bars[-1][1], told_ms / _length(bars))) for where, bars, told_ms in told]
    lengths = listing([f"{milliseconds(_length(bars))} on {where}" for where, bars, _ in told])
    if not profiled and all(step_of_job(run) for run in chosen):
        return replace(_cut_by_shares(cut), notes=notes)  # which say how long those are
    beside = without_recording(chosen[-1]) if profiled else ""
    recording = f"{'with' if profiled else 'without'} recording{f'; {beside}' if beside else ''}"
    of_them = f"The profiled steps, whose shares are drawn, take {lengths} {recording}."
    return replace(_cut_by_shares(cut), notes=[of_them, *notes])


#: What stands beside each bar, and each rank's parts of its step.
_Given = Sequence[tuple[str, Sequence[Split]]]


def _length(bars: _Given) -> float:
    """Return how long the step of the last bar is, ms."""
    return _mean_ms(bars[-1][1])


def _told_ms(run: RunAnalysis, bars: _Given) -> float | None:
    """Return the one length that is told of a run's step, ms: the measured one.

    None where it is not measured, or no length is all steps', or where the step is drawn both as profiled and as run.
    """
    if run.step_times is None or run.steps_by is None or len(bars) > 1 or not _length(bars):
        return None
    if run.growing is not None or (run.recurring is not None and is_told(run)):
        return None
    return run.step_times.measured_step_ms


def _is_another(told_ms: float, bars: _Given) -> bool:
    """Tell whether that is another length than the drawn step's."""
    return abs(_length(bars) - told_ms) > AS_MEASURED * told_ms


def _scaled(splits: Sequence[Split], scale: float) -> list[Split]:
    """Return ranks' steps, so many times as long, cut by the same shares."""
    lengths = ("window", *(part.key for part in parts.ALL))
    return [
        msgspec.structs.replace(one, **{f"{key}_ms": scale * getattr(one, f"{key}_ms") for key in lengths})
        for one in splits
    ]


def _at_told(splits: Sequence[Split], late: LateRank, told_ms: float) -> list[Split]:
    """Return ranks' steps in which what a late rank alone does takes what all steps tell, and the others wait for that;
    the rest is squeezed into what is left, by its shares.

    The profiled steps of a rank whose workers were late found batches ready: a bar of their shares drew 11% of the step
    below a sentence of 32%.
    """
    changed = []
    for one in splits:
        wait = "exposed_unsplit" if one.exposed_unsplit_ms > one.exposed_wait_ms else "exposed_wait"
        part = late.part if one.rank in late.ranks else wait
        rest_ms = one.window_ms - min(late.ms, one.part_ms(part))
        scale = max(0.0, one.window_ms - told_ms) / rest_ms if rest_ms > 0 else 0.0
        lengths = {f"{other.key}_ms": scale * one.part_ms(other.key) for other in parts.ALL}
        lengths[f"{part}_ms"] = told_ms + scale * max(0.0, one.part_ms(part) - late.ms)
        changed.append(msgspec.structs.replace(one, **lengths))
    return changed


def _which_steps(runs: Sequence[RunAnalysis], *, profiled: bool) -> str:
    """Return of which steps a series' bars are where sentences are, or the bars themselves, of those replayed alone."""
    if not any(is_shown_alone(run) and fewer_replayed(run) is not None for run in runs):
        return ""
    if profiled:
        last = runs[-1]
        own = statistics.fmean(one.window_ms / max(one.steps, 1) for one in last.ranks)
        beside = beside_all(last, own)
        return f"means of all profiled steps.{f' {beside}' if beside else ''}"
    return "of the profiled steps whose end a next one tells, all but a window's last."


def _measured(by_run: Sequence[tuple[RunAnalysis, str, _Given]], *, profiled: bool = False) -> list[str]:
    """Return what the steps took without a profiler, where those that are drawn are of other lengths; else nothing.

    `profiled`: those are of the steps as profiled.
    """
    nearest = [
        (run, where, _length(bars), differs(run) and not profiled)
        for run, where, bars in by_run
        if run.steps_by is not None
    ]
    told = beside_measured(nearest)
    return [told] if told else []


def _of_others(run: RunAnalysis) -> list[str]:
    """Return that what is said of the step as run is of other steps than those that are drawn as profiled, if it is."""
    told = of_other_steps(run, "the profiled bar", _OTHERS)
    beside = run.step_times is not None and bool(step_of_job(run))  # which says it, and stands behind this
    if is_shown_alone(run) and not beside and (fewer := fewer_replayed(run)) is not None:
        told = f"Parts are those of {fewer.of_which}."
    return [told] if told else []


def _with_late_rank(drawn: Bars, late: LateRank, apart: _Given, longest: float, *, shares: bool) -> Bars:
    """Return the bars with the late rank's own step and the others', in which they wait for what is hatched in its.

    `shares`: parts are told by these.
    """
    (whose, own), (those, others) = apart
    alone = Stretch(
        f"{100 * late.ms / longest:.3f}",
        f"repeating-linear-gradient(45deg,var(--ink) 0 2px,var({parts.BY_KEY[late.part].variable}) 2px 6px)",
        f"{whose} alone {percent(late.ms / _mean_ms(own), 0) if shares else milliseconds(late.ms)}",
    )
    bars = [
        _bar(f"{whose}, late", own, longest, late, alone, shares=shares),
        _bar(those, others, longest, shares=shares),
    ]
    does, costs = ("does", "costs") if len(late.ranks) == 1 else ("do", "cost")
    title = f"{drawn.title} Hatched: what {whose} alone {does}, while the others come to wait."
    if late.in_all is not None and shares:
        title = (
            f"The step as run, measured. Hatched: what {whose} alone {costs} by all {late.in_all.steps} steps, for "
            "which the others wait; all else is cut by its shares of the profiled steps, which do not show that."
        )
    elif late.in_all is not None:
        title = f"{title} All {late.in_all.steps} steps tell that it costs {percent(late.in_all.share, 0)} of one."
    return Bars([*drawn.bars, *bars], [*drawn.legend, alone], title, drawn.notes)


def _with_waits(drawn: Bars, run: RunAnalysis) -> Bars:
    """Return the bars with what of compute waits for a core hatched: operators run on meanwhile."""
    share, (factors, _) = waits_in_compute(run), shown_efficiency(run)
    if share < _SEEN or factors is None:
        return drawn
    compute = f"var({parts.BY_KEY['compute'].variable})"
    colour = f"repeating-linear-gradient(45deg,var(--surface) 0 2px,{compute} 2px 6px)"
    bars = []
    for bar in drawn.bars:
        whole = sum(float(one.weight) for one in bar.stretches)
        stretches = []
        for one in bar.stretches:
            waits = min(float(one.weight), share * whole) if one.colour == compute else 0.0
            if not waits:
                stretches.append(one)
                continue
            told = f"compute that waits for a core: {waits_within(factors)}"
            rest = replace(one, weight=f"{float(one.weight) - waits:.3f}")
            stretches += [rest, Stretch(f"{waits:.3f}", colour, told)]
        bars.append(replace(bar, stretches=stretches))
    waiting = Stretch("", colour, f"of the compute, {waits_within(factors, 0)} of the step waits for a core")
    legend = [said for one in drawn.legend for said in ([one, waiting] if one.colour == compute else [one])]
    return replace(drawn, bars=bars, legend=legend)


def _apart(splits: Sequence[Split], ranks: Sequence[int]) -> _Given:
    """Return some ranks' steps and the others', with whose they are; nothing where they are all or none of these."""
    own = [one for one in splits if one.rank in ranks]
    others = [one for one in splits if one.rank not in ranks]
    if not own or not others:
        return []
    those = f"rank {others[0].rank}" if len(others) == 1 else f"the other {len(others)}, mean"
    return [(rank_list([one.rank for one in own]), own), (those, others)]


def _longest(given: _Given, apart: _Given = ()) -> float:
    """Return how long the longest of the drawn steps is, ms, which all bars are drawn to."""
    return max(_mean_ms(ranks) for _, ranks in (*given, *apart)) or 1.0


def _mean_ms(ranks: Sequence[Split]) -> float:
    return statistics.fmean(one.window_ms for one in ranks)


def _bars_of(run: RunAnalysis, where: str) -> list[tuple[str, list[Split]]]:
    """Return what stands beside each bar, and each rank's parts of one step."""
    profiled = [a_step(one, max(one.steps, 1)) for one in run.ranks]
    if run.steps_by is None:
        return [(_label(where, "all that was recorded"), profiled)]
    if not differs(run):  # those that sentences are of, a figure of one length above
        which = "as profiled and as run" if _is_as_profiled(run) else "as profiled"
        return [(_label(where, which), (is_shown_as_profiled(run) and shown_step(run)) or profiled)]
    if is_shown_alone(run):
        return [(_label(where, name_of_step(run)), step_as_run(run)[1])]
    likely = "as run, likely" if is_likely(run) else "as run"
    return [(_label(where, "as profiled"), profiled), (_label(where, likely), step_as_run(run)[1])]


def _is_as_profiled(run: RunAnalysis) -> bool:
    """Tell whether a step as run is known to be the one as profiled."""
    known = run.as_run is not None and run.as_run.step_ms is not None and bool(run.as_run.ranks)
    if run.recurring is not None and is_told(run):
        return False  # a window that met a longer one is of other steps than the job's median
    return known and not differs(run) and not _of_others(run) and not differs_by_noise(run)


def _as_profiled(run: RunAnalysis, where: str) -> list[tuple[str, list[Split]]]:
    return [(_label(where, "as profiled"), [a_step(one, max(one.steps, 1)) for one in run.ranks])]


def _label(where: str, which: str) -> str:
    return ", ".join(filter(None, (where, which)))


def _drawn(given: _Given, apart: _Given = ()) -> Bars:
    """Return steps as bars, with the parts of the last one in ms; `apart`: what else is to be drawn to one scale."""
    whose = f" Figures: {given[-1][0]}." if len(given) > 1 else ""
    return _in_one_scale(given, f"Where the mean rank's step goes.{whose}", apart, shares=False)


def _cut_by_shares(given: _Given, apart: _Given = ()) -> Bars:
    """Return the measured steps as bars, cut by the shares of the profiled ones, which are of other lengths."""
    whose = f" Shares: {given[-1][0]}." if len(given) > 1 else ""
    title = f"The step as run, measured, cut by the shares that its parts have of the profiled steps.{whose}"
    return _in_one_scale(given, title, apart, shares=True)


def _in_one_scale(given: _Given, title: str, apart: _Given, *, shares: bool) -> Bars:
    longest = _longest(given, apart)
    bars = [_bar(label, ranks, longest, shares=shares) for label, ranks in given]
    whole = _length(given) or 1.0
    found = {part: [statistics.fmean(one.part_ms(part.key) for one in own) for _, own in given] for part in parts.ALL}
    sizes = {part: percent(own[-1] / whole, 0) if shares else milliseconds(own[-1]) for part, own in found.items()}
    legend = [
        Stretch("", f"var({part.variable})", f"{part.name} {sizes[part]}")
        for part, own in found.items()
        if max(own) >= _SEEN * longest
    ]
    return Bars(bars, legend, title)


def _bar(
    label: str,
    ranks: Sequence[Split],
    longest: float,
    late: LateRank | None = None,
    alone: Stretch | None = None,
    *,
    shares: bool = False,
) -> Bar:
    """Return the mean of some ranks' steps as a bar; of a late rank, with what it does `alone` first.

    `shares`: its parts are known by their shares alone.
    """
    window = statistics.fmean(one.window_ms for one in ranks)
    stretches = [alone] if alone is not None else []
    for part in parts.ALL:
        ms = statistics.fmean(one.part_ms(part.key) for one in ranks)
        if late is not None and part.key == late.part:
            ms -= late.ms
        if ms >= _SEEN * longest:
            share = percent(ms / window if window else 0.0)
            told = f"{part.name}: {share if shares else f'{milliseconds(ms)}, {share}'}"
            stretches.append(Stretch(f"{100 * ms / longest:.3f}", f"var({part.variable})", told))
    return Bar(label, milliseconds(window), stretches)
