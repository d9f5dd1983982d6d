"""Steps that were not traced: as the user gives them, as a run's own rows tell, or as traces do in their headers.

Of a run's steps those count that were run near a window, on such batches as its own. Once CUPTI has been attached it
stays, and steps go on being slower (24.4 ms before a window, 27.6 to 33.6 after it): so the steps before the first
window are the ones, and those beside a later one, or after it, only where they are no slower, or where there are none
before. Where hosts compute nothing is attached, and the nearest are the ones.

How far the step may be from theirs, their own unevenness says: by so much do stretches of them as long as the window
lie off their median, 95 times of 100.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from scalescope.records.console import counted
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.records.steps.longer_recorded import longer_recorded
from scalescope.records.steps.recording import UntracedSteps, untraced_steps, window_facts
from scalescope.scaling.as_run.untraced_step import Untraced
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.verdicts.step_rows.growing import growing_rows, without_growth
from scalescope.scaling.verdicts.step_rows.steady import MeasuredSteps, measured_steps

#: What a step is known to be, where it is given as one number.
_GIVEN_SPREAD = 0.01
#: Nor is any step known better than this.
_LEAST_HALF = 0.001
#: A step takes no less than this, and no more, in ms.
_LEAST_MS, _MOST_MS = 1e-3, 1e7


def given_steps(step_ms: Sequence[float], paths: Sequence[Path]) -> dict[Path, Untraced]:
    """Return each path's step as the user gives it. Raises UserError where a number is none, or there are too many.

    Trace files alone are one run, whose step is put at the first of them.
    """
    for one in step_ms:
        if not math.isfinite(one) or not _LEAST_MS <= one <= _MOST_MS:
            raise UserError(f"--step-ms {one:g}: a step takes {_LEAST_MS:g} to {_MOST_MS:g} ms; give it in ms")
    files = len(paths) if len(paths) > 1 and all(path.is_file() for path in paths) else 0
    if files and len(step_ms) > 1:
        given = f"{counted(len(step_ms), 'step')} for {counted(files, 'trace file')}"
        raise UserError(f"--step-ms gives {given}, which are one run together; give one step")
    if step_ms and not files and len(step_ms) != len(paths):
        given = f"{counted(len(step_ms), 'step')} for {counted(len(paths), 'path')}"
        raise UserError(f"--step-ms gives {given}; give one for each, in order")
    return {path: Untraced(_as_given(one), "given") for path, one in zip(paths, step_ms, strict=False)}


def untraced_of_run(path: Path, steps: Sequence[int] | None = None) -> Untraced | None:
    """Return the untraced step near a run's window that recorded these steps, by its own rows; of none, its last one.

    None where there are too few rows beside it. Where no window is meant, it knows what all steady steps take, too: of
    several windows each is told at the pace of its own neighbours, or only slow ones would be told at another one.
    """
    folder = RunFolder(path)
    if not folder.steps.is_file():
        return None
    try:
        rows = folder.read_steps()
        on_cpu = any(one.kind == "cpu" for one in folder.read_info().devices)
    except (UserError, msgspec.DecodeError):
        return None  # the analysis says so itself
    alone = steps is None
    if steps is None:
        steps = _last_window(rows)
    near = untraced_near(rows, steps, lingers=not on_cpu) if steps else None
    if near is None:
        return near
    own = measured_steps(rows, steps)
    apart = longer_recorded(own.steady, _recorded(folder, rows, steps, own)) if on_cpu and own.growing is None else None
    near = msgspec.structs.replace(near, recurring=own.recurring, agrees=apart is not None)
    steady = [row.length_ms for row in own.steady]
    return msgspec.structs.replace(near, job_ms=statistics.median(steady)) if alone and steady else near


def _recorded(folder: RunFolder, rows: Sequence[StepRow], steps: Sequence[int], own: MeasuredSteps) -> list[StepRow]:
    """Return the rows of a window without the steps that were thrown away, and those that are longer every so often."""
    try:
        facts = folder.read_recording()
    except UserError:
        facts = None  # the analysis says so itself
    kept = {step for window in (facts.windows if facts is not None else ()) for step in window.steps}
    chosen = [row for row in rows if row.step in set(steps) and row.phase == "profile"]
    chosen = [row for row in chosen if row.step in kept] or chosen
    return [row for row in chosen if own.recurring is None or not own.recurring.has(row.step)] or chosen


def _last_window(rows: Sequence[StepRow]) -> list[int]:
    """Return the steps of the last window, those thrown away among them."""
    found: list[int] = []
    for row in reversed(rows):
        if row.phase == "profile":
            found.insert(0, row.step)
        elif found:
            break
    return found


def untraced_near(rows: Sequence[StepRow], steps: Sequence[int], *, lingers: bool = True) -> Untraced | None:
    """Return the untraced step around the window that recorded these steps; None where too few steps tell.

    `lingers`: what a window leaves behind may slow the steps after it.
    """
    rows = _as_near(rows, steps)
    own = window_facts(rows, steps)
    clean = own.before if own.first else _before_all_windows(rows, len(steps))
    return _chosen(clean if lingers else None, [own.after] if own.first and lingers else [own.before, own.after])


def _as_near(rows: Sequence[StepRow], steps: Sequence[int]) -> Sequence[StepRow]:
    """Return rows of steps that grow as they would be near these."""
    growing = growing_rows([row for row in rows if row.phase == "steady" and row.step_ms])
    return rows if growing is None else without_growth(rows, growing, statistics.fmean(steps))


def _before_all_windows(rows: Sequence[StepRow], length: int) -> UntracedSteps | None:
    first = next((row.step for row in rows if row.phase == "profile"), None)
    return None if first is None else window_facts(rows, range(first, first + length)).before


def _chosen(clean: UntracedSteps | None, beside: Sequence[UntracedSteps | None]) -> Untraced | None:
    """Return what steps that nothing slows tell, with those beside the window that are like them."""
    found = [one for one in beside if one is not None]
    if clean is not None:
        found = [clean, *(one for one in found if one is not clean and one.median_ms in _interval(clean))]
    return Untraced(_joined(found), "steps") if found else None


def _interval(steps: UntracedSteps) -> Interval:
    half = max(steps.spread_ms, _LEAST_HALF * steps.median_ms)
    return Interval(steps.median_ms, max(0.0, steps.median_ms - half), steps.median_ms + half)


def _joined(found: Sequence[UntracedSteps]) -> Interval:
    """Return the step that stretches of steps tell together: where they differ, the window may be like any of them."""
    count = sum(one.count for one in found)
    middle = sum(one.count * one.median_ms for one in found) / count
    half = math.sqrt(sum(one.count * _interval(one).half ** 2 for one in found) / count)
    medians = [one.median_ms for one in found]
    return Interval(middle, max(0.0, min(middle - half, *medians)), max(middle + half, *medians))


def untraced_of_traces(records: Mapping[int, RankRecord]) -> Untraced | None:
    """Return the untraced step that the traces tell in their header, that of the slowest rank; None where they do not.

    A single number stands for itself; of fewer than three no spread is told.
    """
    found = [step for one in records.values() if (step := _of_header(one)) is not None]
    return Untraced(max(found, key=lambda step: step.value), "metadata") if found else None


def another_of_its_own(given: Untraced | None, own: Untraced | None) -> Interval | None:
    """Return a job's own untraced step where one is given in its place that it cannot be; None where that may be it."""
    if given is None or own is None or given.source != "given":
        return None
    apart = given.step_ms.high < own.step_ms.low or given.step_ms.low > own.step_ms.high
    return own.step_ms if apart else None


def _of_header(record: RankRecord) -> Interval | None:
    """Return the untraced step of one rank's header: what our own measuring wrote there, else what anybody did."""
    own = record.own.window
    if own is not None:
        before, after = _plausible(own.before), _plausible(own.after)
        lingers = own.first and record.activity != "cpu"
        found = _chosen(before, [after]) if lingers else _chosen(None, [before, after])
        if found is not None:
            return found.step_ms
    good = [ms for ms in record.own.untraced_step_ms if math.isfinite(ms) and _LEAST_MS <= ms <= _MOST_MS]
    if not good:
        return None
    steps = untraced_steps(good, 1)
    return _interval(steps) if steps is not None else _as_given(statistics.median(good))


def _plausible(steps: UntracedSteps | None) -> UntracedSteps | None:
    """Return a header's steps unless they can be none: it may be damaged."""
    if steps is None or not _LEAST_MS <= steps.median_ms <= _MOST_MS or not 0 <= steps.spread_ms <= _MOST_MS:
        return None
    return steps if steps.count > 0 else None


def _as_given(step_ms: float) -> Interval:
    return Interval(step_ms, step_ms * (1 - _GIVEN_SPREAD), step_ms * (1 + _GIVEN_SPREAD))
