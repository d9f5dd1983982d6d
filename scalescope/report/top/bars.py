"""Where a step goes, as bars of one scale: as profiled, and as run; of a study, on each of its rank counts."""

import statistics
from collections.abc import Sequence

from scalescope.report.as_run import (
    differs,
    differs_by_noise,
    is_likely,
    is_shown_alone,
    name_of_step,
    of_other_steps,
    step_of_job,
)
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import milliseconds, percent, rank_list
from scalescope.report.page import Bar, Bars, Stretch
from scalescope.report.replayed import beside_all, fewer_replayed
from scalescope.report.steadiness import beside_measured
from scalescope.report.text.late.rank import LateRank, late_rank, splits_of
from scalescope.report.text.recurring import is_told
from scalescope.report.views import devices
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import Split
from scalescope.scaling.as_run.step import a_step, step_as_run

#: More rank counts than these are not drawn: the smallest, and the largest ones.
_MOST_COUNTS = 4
#: The steps that are replayed differ from all profiled ones by more than this share: then that is said.
_OTHERS = 0.1
#: A stretch below this share of the longest bar is not drawn, and has no entry of its own in the legend.
_SEEN = 0.002


def run_bars(run: RunAnalysis) -> Bars | None:
    """Return the mean rank's step, as profiled and, where that is another, as run; None where the traces tell none."""
    if not run.ranks or run.quality.verdict == "unusable":
        return None
    bars = _bars_of(run, "")
    drawn = _drawn(bars)
    drawn = Bars(drawn.bars, drawn.legend, f"{drawn.title}{_of_others(run)}{_measured([(run, '', bars)])}")
    late = late_rank(run)
    return drawn if late is None else _with_late_rank(drawn, late, splits_of(run))


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
    drawn = _drawn([bar for _, _, bars in by_run for bar in bars])
    title = f"{drawn.title}{_which_steps(chosen, profiled=profiled)}{_measured(by_run, profiled=profiled)}"
    return Bars(drawn.bars, drawn.legend, title)


def _which_steps(runs: Sequence[RunAnalysis], *, profiled: bool) -> str:
    """Return of which steps a series' bars are where sentences are, or the bars themselves, of those replayed alone."""
    if not any(is_shown_alone(run) and fewer_replayed(run) is not None for run in runs):
        return ""
    if profiled:
        last = runs[-1]
        own = statistics.fmean(one.window_ms / max(one.steps, 1) for one in last.ranks)
        beside = beside_all(last, own)
        return f" Bars are means of all profiled steps.{f' {beside}' if beside else ''}"
    return " Bars are of the profiled steps that can be replayed, all but a window's last."


def _measured(
    by_run: Sequence[tuple[RunAnalysis, str, Sequence[tuple[str, Sequence[Split]]]]], *, profiled: bool = False
) -> str:
    """Return what the steps took without a profiler, where the bars nearest to them are of other lengths; else "".

    `profiled`: those are of the steps as profiled.
    """
    nearest = [
        (run, where, statistics.fmean(one.window_ms for one in bars[-1][1]), differs(run) and not profiled)
        for run, where, bars in by_run
        if run.steps_by is not None
    ]
    told = beside_measured(nearest)
    return f" {told}" if told else ""


def _of_others(run: RunAnalysis) -> str:
    """Return that what is said of the step as run is of other steps than those that are drawn as profiled; else ""."""
    told = of_other_steps(run, "the profiled bar", _OTHERS)
    beside = run.step_times is not None and bool(step_of_job(run))  # which says it, and stands behind this
    if is_shown_alone(run) and not beside and (fewer := fewer_replayed(run)) is not None:
        told = f"Of the {fewer.of} profiled steps it is of the {fewer.steps} that can be replayed."
    return f" {told}" if told else ""


def _with_late_rank(drawn: Bars, late: LateRank, splits: Sequence[Split]) -> Bars:
    """Return the bars with the late rank's own step and the others', in which they wait for what is hatched in its."""
    others = [one for one in splits if one.rank not in late.ranks]
    named = f"rank {others[0].rank}" if len(others) == 1 else f"the other {len(others)}, mean"
    late_ones = [one for one in splits if one.rank in late.ranks]
    whose = rank_list(late.ranks)
    longest = max(statistics.fmean(one.window_ms for one in own) for own in (late_ones, others)) or 1.0
    alone = Stretch(
        f"{100 * late.ms / longest:.3f}",
        f"repeating-linear-gradient(45deg,var(--ink) 0 2px,var({parts.BY_KEY[late.part].variable}) 2px 6px)",
        f"{whose} alone {milliseconds(late.ms)}",
    )
    bars = [_bar(f"{whose}, late", late_ones, longest, late, alone), _bar(named, others, longest)]
    does = "does" if len(late.ranks) == 1 else "do"
    title = f"{drawn.title} Hatched: what {whose} alone {does}, while the others come to wait."
    return Bars([*drawn.bars, *bars], [*drawn.legend, alone], title)


def _bars_of(run: RunAnalysis, where: str) -> list[tuple[str, list[Split]]]:
    """Return what stands beside each bar, and each rank's parts of one step."""
    profiled = [a_step(one, max(one.steps, 1)) for one in run.ranks]
    if run.steps_by is None:
        return [(where or "all that was recorded", profiled)]
    if _is_as_profiled(run):
        return [(_label(where, "as profiled and as run"), profiled)]
    if not differs(run):
        return _as_profiled(run, where)
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


def _drawn(given: Sequence[tuple[str, Sequence[Split]]]) -> Bars:
    longest = max(statistics.fmean(one.window_ms for one in ranks) for _, ranks in given) or 1.0
    bars = [_bar(label, ranks, longest) for label, ranks in given]
    label = given[-1][0]
    found = {part: [statistics.fmean(one.part_ms(part.key) for one in own) for _, own in given] for part in parts.ALL}
    legend = [
        Stretch("", f"var({part.variable})", f"{part.name} {milliseconds(own[-1])}")
        for part, own in found.items()
        if max(own) >= _SEEN * longest
    ]
    whose = f" Figures: {label}." if len(given) > 1 else ""
    return Bars(bars, legend, f"Where the mean rank's step goes.{whose}")


def _bar(
    label: str, ranks: Sequence[Split], longest: float, late: LateRank | None = None, alone: Stretch | None = None
) -> Bar:
    """Return the mean of some ranks' steps as a bar; of a late rank, with what it does `alone` first."""
    window = statistics.fmean(one.window_ms for one in ranks)
    stretches = [alone] if alone is not None else []
    for part in parts.ALL:
        ms = statistics.fmean(one.part_ms(part.key) for one in ranks)
        if late is not None and part.key == late.part:
            ms -= late.ms
        if ms >= _SEEN * longest:
            told = f"{part.name}: {milliseconds(ms)}, {percent(ms / window if window else 0.0)}"
            stretches.append(Stretch(f"{100 * ms / longest:.3f}", f"var({part.variable})", told))
    return Bar(label, milliseconds(window), stretches)
