"""What a job did outside the profiler's window: its steady steps, beside those that were profiled."""

import statistics
from collections.abc import Sequence
from itertools import takewhile

import msgspec

from scalescope.records.rows import StepRow
from scalescope.records.statistics import median_of_known
from scalescope.records.steps.longer_recorded import LongerRecorded, longer_recorded
from scalescope.records.steps.unevenness import UNLIKE, difference, half_of_median, percentile
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import (
    GrowingSteps,
    LateInSteps,
    LongSteps,
    RecurringSteps,
    StepsApart,
    StepTimes,
    Throughput,
)
from scalescope.scaling.verdicts.step_rows.apart import steps_apart
from scalescope.scaling.verdicts.step_rows.core_waits import core_waits
from scalescope.scaling.verdicts.step_rows.growing import add_part, growing_rows, without_growth
from scalescope.scaling.verdicts.step_rows.host_times import host_times
from scalescope.scaling.verdicts.step_rows.late import last_in_steps, late_rank
from scalescope.scaling.verdicts.step_rows.later import ranks_in_steps
from scalescope.scaling.verdicts.step_rows.loading import loading_in_steps
from scalescope.scaling.verdicts.step_rows.long_steps import long_steps
from scalescope.scaling.verdicts.step_rows.recurring import recurring_steps, with_epochs_of_traces
from scalescope.scaling.verdicts.step_rows.uneven import uneven_steps

#: So many steps right behind a window may be of batches that were made meanwhile, where they take less than this share
#: of the shortest of as many others at least.
_IN_STOCK, _FAR_SHORTER = 8, 0.9


def slowed_by_profiling(analysis: RunAnalysis) -> bool:
    """Tell whether a device's profiled steps are much longer than the measured ones.

    Profiling slows the host: what a device waits for then is no loss of the job's. (Where the host computes it slows
    everything alike.)
    """
    times = analysis.step_times
    if times is None or times.profiling_overhead_fraction is None or analysis.activity != "gpu" or times.unsteady:
        return False
    return times.profiling_overhead_fraction >= UNLIKE


def rows_of_answer(analysis: RunAnalysis, rows: Sequence[StepRow]) -> Sequence[StepRow]:
    """Return the rows that an answer is of: all, or those of the steps that had become longer."""
    if analysis.longer is None:
        return rows
    level = analysis.longer.step_ms * analysis.longer.level_ms
    chosen = [row for row in rows if row.step >= analysis.longer.since]
    # until they are nearer the level before again
    back = [at for at, row in enumerate(chosen) if row.phase == "steady" and row.step_ms and row.length_ms**2 < level]
    for first, second, third in zip(back, back[1:], back[2:], strict=False):
        if third == first + 2 == second + 1:
            return chosen[:first]
    return chosen


class MeasuredSteps(msgspec.Struct, frozen=True):
    """The steps whose median is a job's measured step, with what was set apart for that."""

    steady: Sequence[StepRow]  # without those that are longer every so often, and as if none grew
    every: Sequence[StepRow]  # those, too
    growing: GrowingSteps | None
    recurring: RecurringSteps | None
    long: LongSteps | None


def measured_steps(rows: Sequence[StepRow], recorded: Sequence[int] = (), met: Sequence[StepRow] = ()) -> MeasuredSteps:
    """Return the steps that tell a job's measured step; of steps that grow, as they are near those that were recorded.

    All steady ones that no profiler records are, but for such as are longer every so often, and for no loader's sake
    but that it is entered anew: making batches faster shortens none of those. `met`: recorded steps that long ones may
    be among.
    """
    steady: Sequence[StepRow] = _without_batches_in_stock(rows)
    profiled = [row for row in rows if row.phase == "profile"]
    often, recurring = recurring_steps(steady, profiled), None
    growing = growing_rows([row for row in steady if not _is_one_of(often, row.step)])
    if growing is not None:
        steady = without_growth(steady, growing, statistics.fmean(recorded or [row.step for row in steady]))
        met = ()
    long, every = long_steps(steady, met), steady
    if long is None or long.cause is None or (often is not None and often.loader_entered):
        recurring = often if growing is None else recurring_steps(steady, profiled)
        steady = [row for row in steady if not _is_one_of(recurring, row.step)]
        long = long_steps(steady, [row for row in met if not _is_one_of(recurring, row.step)])
    return MeasuredSteps(steady, every, growing, recurring, long)


def _without_batches_in_stock(rows: Sequence[StepRow]) -> list[StepRow]:
    """Return the steady steps, without those right behind a window that are far shorter than any other one.

    While traces were written a loader made batches ahead: until these are used up the job has no such steps.
    """
    behind: list[list[StepRow]] = []
    others: list[float] = []
    for row in rows:
        if row.phase == "profile":
            if not behind or behind[-1]:
                behind.append([])
        elif row.phase == "steady" and row.step_ms:
            if behind and len(behind[-1]) < _IN_STOCK:
                behind[-1].append(row)
            else:
                others.append(row.length_ms)
    least = min(others) if len(others) >= _IN_STOCK else 0.0
    stocked = [takewhile(lambda row: row.length_ms < _FAR_SHORTER * least, own) for own in behind]
    without = {row.step for own in stocked for row in own}
    return [row for row in rows if row.phase == "steady" and row.step_ms and row.step not in without]


def add_steps(analysis: RunAnalysis, rows: Sequence[StepRow]) -> None:
    """Add what steps.jsonl says: the steps outside the profiler's window beside those inside, and the throughput.

    Steps that are longer every so often, for no loader's sake, are told by themselves, and are in neither. Where steps
    grow, both are of steps as they are where the profiled ones were.
    """
    _add_core_waits(analysis, rows)
    measured = measured_steps(rows, [one.step for one in analysis.steps], _met(analysis, rows))
    steady = measured.steady
    analysis.growing = measured.growing
    analysis.recurring = with_epochs_of_traces(measured.recurring, analysis.steps)
    if analysis.growing is not None:
        add_part(analysis, steady)
    window = None
    profiled = [rank for rank in analysis.ranks if rank.steps]
    if profiled:
        window = statistics.fmean(rank.window_ms / rank.steps for rank in profiled)
    in_order = [row.length_ms for row in steady]
    times = sorted(in_order)
    found = difference(_profiled_ms(analysis, rows), in_order)
    median, half = statistics.median(times) if times else None, half_of_median(in_order)
    analysis.step_times = StepTimes(
        measured_step_ms=median,
        measured_low_ms=None if median is None else max(0.0, median - half),
        measured_high_ms=None if median is None else median + half,
        measured_mean_ms=statistics.fmean(times) if times else None,
        measured_step_p95_ms=percentile(times, 0.95) if times else None,
        measured_longest_ms=times[-1] if times else None,
        measured_steps=len(times),
        window_step_ms=window,
        profiling_overhead_ms=found.ms if found is not None else None,
        profiling_overhead_fraction=found.fraction if found is not None else None,
        placebo_ms=found.placebo_ms if found is not None else None,
        long_steps=measured.long,
        late=_late(analysis, measured.every, steady),
        last=last_in_steps(steady) if analysis.activity == "cpu" and analysis.growing is None else None,
        ranks=ranks_in_steps(steady) if analysis.activity == "cpu" and analysis.growing is None else [],
        core_waits=None if analysis.growing is not None else core_waits(measured.every, rows, _recorded(analysis)),
        uneven=None if analysis.growing is not None else uneven_steps(steady),
        apart=_apart(analysis, rows, steady),
        loading=None if analysis.growing is not None else loading_in_steps(steady, _of(rows, _recorded(analysis))),
        hosts=host_times(analysis.steps, rows) if analysis.activity == "cpu" else [],
        longer_recorded=_longer_recorded(analysis, rows, steady),
    )
    if not steady:
        return
    losses = [row.loss for row in rows if row.loss is not None]
    validation = [row.validation_loss for row in rows if row.validation_loss is not None]
    analysis.throughput = Throughput(
        samples_per_s=statistics.median(row.samples_per_s for row in steady),
        tokens_per_s=median_of_known(row.tokens_per_s for row in steady),
        mfu=median_of_known(row.mfu for row in steady),
        mfu_of_measured=median_of_known(row.mfu_of_measured for row in steady),
        memory_peak_bytes=max(
            (row.memory_peak_bytes for row in rows if row.memory_peak_bytes is not None), default=None
        ),
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
        first_validation_loss=validation[0] if validation else None,
        last_validation_loss=validation[-1] if validation else None,
        hfu=median_of_known(row.hfu for row in steady),
        hfu_of_measured=median_of_known(row.hfu_of_measured for row in steady),
        joules_per_sample=median_of_known(row.joules_per_sample for row in steady),
    )


def _add_core_waits(analysis: RunAnalysis, rows: Sequence[StepRow]) -> None:
    """Add to the profiled steps what each rank waited for a core in them, where their rows tell."""
    waits = {row.step: row.run_delay_ms for row in rows if row.phase == "profile" and row.synchronised}
    for one in analysis.steps:
        told = waits.get(one.step, [])
        one.core_wait_ms = max(0.0, told[one.rank]) if one.rank < len(told) else None


def _late(analysis: RunAnalysis, every: Sequence[StepRow], steady: Sequence[StepRow]) -> LateInSteps | None:
    """Return whom the others wait for, by the steps of the kinds that the window met; of steps that grow, nobody."""
    if analysis.growing is not None:
        return None
    return late_rank(every if any(_recurs(analysis, one.step) for one in analysis.steps) else steady)


def _apart(analysis: RunAnalysis, rows: Sequence[StepRow], steady: Sequence[StepRow]) -> StepsApart | None:
    """Return how far steps, profiled ones among them, differ by waits for cores: where these are what computes."""
    if analysis.activity != "cpu" or analysis.growing is not None:
        return None
    recorded = _recorded(analysis)
    return steps_apart([*steady, *(row for row in rows if row.step in recorded and row.phase == "profile")])


def _longer_recorded(
    analysis: RunAnalysis, rows: Sequence[StepRow], steady: Sequence[StepRow]
) -> LongerRecorded | None:
    """Return by how much recorded steps are longer than those beside them; on devices a window slows those after it."""
    if analysis.activity != "cpu" or analysis.growing is not None:
        return None
    return longer_recorded(steady, [row for row in _of(rows, _recorded(analysis)) if row.phase == "profile"])


def _met(analysis: RunAnalysis, rows: Sequence[StepRow]) -> list[StepRow]:
    """Return the recorded steps but for the first and the last one of each window, which hold what a profiler does at
    its ends; none of devices, whose hosts recording slows now and then.
    """
    recorded = {one.step for one in analysis.steps} if analysis.activity == "cpu" else set()
    amid = {step for step in recorded if {step - 1, step + 1} <= recorded}
    return [row for row in _of(rows, amid) if row.phase == "profile" and row.step_ms]


def _profiled_ms(analysis: RunAnalysis, rows: Sequence[StepRow]) -> list[float]:
    """Return the recorded steps as the job's own clock timed them, as it timed the steady ones.

    Where it did not, by the traces: the mean rank's, without a last one that nothing bounds where there are others.
    """
    recorded = _recorded(analysis)
    if timed := [row.length_ms for row in rows if row.step in recorded and row.phase == "profile" and row.step_ms]:
        return timed
    steps: dict[int, list[float]] = {}
    for one in analysis.steps:
        if not one.open_ended or len(analysis.steps) == len(analysis.ranks):
            steps.setdefault(one.step, []).append(one.window_ms)
    return [statistics.fmean(own) for _, own in sorted(steps.items())]


def _recorded(analysis: RunAnalysis) -> set[int]:
    """Return the profiled steps: without those that are longer every so often, where there are others."""
    recorded = {one.step for one in analysis.steps}
    return {step for step in recorded if not _recurs(analysis, step)} or recorded


def _of(rows: Sequence[StepRow], steps: set[int]) -> list[StepRow]:
    return [row for row in rows if row.step in steps]


def _recurs(analysis: RunAnalysis, step: int) -> bool:
    """Tell whether a step is one of those that are longer every so often."""
    return _is_one_of(analysis.recurring, step)


def _is_one_of(found: RecurringSteps | None, step: int) -> bool:
    return found is not None and found.has(step)
