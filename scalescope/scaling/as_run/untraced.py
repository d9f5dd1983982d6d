"""Steps that were not traced: as the user gives them, as a run's own rows tell, or as traces do in their headers.

Of a run's steps those count that were run near the window, on such batches as its own. Once CUPTI has been attached it
stays, and steps go on being slower (24.4 ms before a window, 27.6 to 33.6 after it): so the steps before the first
window are the ones, and those after it only where they are no slower, or where there are none before.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.scaling.as_run.calibrate import Untraced
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.rank.record import RankRecord

#: So many steps on each side of a window tell what a step takes there.
_NEAR_STEPS = 20
#: Fewer tell nothing of their spread.
_LEAST_STEPS = 3
#: What a step is known to be, where it is given as one number.
_GIVEN_SPREAD = 0.01
#: Half of a median's 95% interval, in quartile ranges over the root of the count (McGill, Tukey and Larsen, 1978).
_NOTCH = 1.57
#: A step takes no less than this, and no more, in ms.
_LEAST_MS, _MOST_MS = 1e-3, 1e7


def given_steps(step_ms: Sequence[float], paths: Sequence[Path]) -> dict[Path, Untraced]:
    """Return each path's step as the user gives it. Raises UserError where a number is none, or there are too many."""
    for one in step_ms:
        if not math.isfinite(one) or not _LEAST_MS <= one <= _MOST_MS:
            raise UserError(f"--step-ms {one:g}: a step takes {_LEAST_MS:g} to {_MOST_MS:g} ms; give it in ms")
    if step_ms and len(step_ms) != len(paths):
        raise UserError(f"--step-ms is given {len(step_ms)} times for {len(paths)} paths; give one for each, in order")
    return {path: Untraced(_as_given(one), "given") for path, one in zip(paths, step_ms, strict=False)}


def untraced_of_run(path: Path) -> Untraced | None:
    """Return the untraced step near a run's last window, by its own rows; None where it has none, or too few."""
    folder = RunFolder(path)
    if not folder.steps.is_file():
        return None
    try:
        rows = folder.read_steps()
    except (UserError, msgspec.DecodeError):
        return None  # the analysis says so itself
    profiled = [row.step for row in rows if row.phase == "profile"]
    return untraced_near(rows, max(profiled)) if profiled else None


def untraced_near(rows: Sequence[StepRow], last: int) -> Untraced | None:
    """Return the untraced step around the windows that end with a step; None where too few steps tell."""
    attached = min(row.step for row in rows if row.phase == "profile")
    times = [(row.step, max(row.step_ms)) for row in rows if row.phase == "steady" and row.step_ms]
    before = [ms for step, ms in times if step < attached][-_NEAR_STEPS:]
    after = [ms for step, ms in times if step > last][:_NEAR_STEPS]
    if len(before) < _LEAST_STEPS:
        chosen = after
    elif len(after) >= _LEAST_STEPS and statistics.median(after) in _interval(before):
        chosen = before + after
    else:
        chosen = before
    return Untraced(_interval(chosen), "steps") if len(chosen) >= _LEAST_STEPS else None


def untraced_of_traces(records: Mapping[int, RankRecord]) -> Untraced | None:
    """Return the untraced step that the traces tell in their header, that of the slowest rank; None where they do not.

    A single number stands for itself; of fewer than three no spread is told.
    """
    reported = [
        _interval(good) if len(good) >= _LEAST_STEPS else _as_given(statistics.median(good))
        for one in records.values()
        if (good := [ms for ms in one.untraced_ms if math.isfinite(ms) and _LEAST_MS <= ms <= _MOST_MS])
    ]
    return Untraced(max(reported, key=lambda step: step.value), "metadata") if reported else None


def _as_given(step_ms: float) -> Interval:
    return Interval(step_ms, step_ms * (1 - _GIVEN_SPREAD), step_ms * (1 + _GIVEN_SPREAD))


def _interval(times: Sequence[float]) -> Interval:
    """Return the median of some steps with its 95% interval."""
    middle = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4)
    half = max(_NOTCH * (high - low) / math.sqrt(len(times)), 0.001 * middle)
    return Interval(middle, middle - half, middle + half)
