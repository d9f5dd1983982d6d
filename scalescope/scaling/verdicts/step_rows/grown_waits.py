"""By how much longer ranks wait for a core on the larger count, by all steps' own rows: no window need have met it.

A window is a few steps, whose growth noise may hide. Rows tell of every step how long its ranks were ready to run and
others had their cores, and what the mean rank waits for is what a step is sure to lose.
"""

import math
import statistics
from collections.abc import Sequence

import msgspec

from scalescope.records.rows import StepRow
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.study_answer import GrownCoreWaits, Waterfall
from scalescope.scaling.verdicts.step_rows.core_waits import waits_of_mean_rank
from scalescope.scaling.verdicts.step_rows.late import half_by_stretches
from scalescope.scaling.verdicts.step_rows.steady import measured_steps, rows_of_answer

#: Of fewer steady steps of either run nothing is told: the spread of four is hardly known.
_LEAST = 5
#: What is less of the measured growth is no cause to name; a growth that is less of the larger step, no loss.
_OF_GROWTH, _OF_STEP = 0.2, 0.05


class RunRows(msgspec.Struct, frozen=True):
    """A run's answer with its own rows of all steps."""

    analysis: RunAnalysis
    rows: Sequence[StepRow]


def grown_core_waits(fall: Waterfall, small: RunRows, large: RunRows) -> GrownCoreWaits | None:
    """Return by how much longer ranks wait for a core, where that is beyond noise and a good part of a measured growth.

    None where rows do not tell it, and where steps grow: those are of no one length. `fall`: with its measured growth.
    """
    before, after, grown_ms = _waits_ms(small), _waits_ms(large), fall.measured_growth_ms
    step_ms = large.analysis.step_times.measured_step_ms if large.analysis.step_times is not None else None
    if before is None or after is None or grown_ms is None or step_ms is None or grown_ms < _OF_STEP * step_ms:
        return None
    from_ms, to_ms = statistics.fmean(before), statistics.fmean(after)
    ms, half = to_ms - from_ms, math.hypot(half_by_stretches(before), half_by_stretches(after))
    if ms <= half or ms < _OF_GROWTH * grown_ms:
        return None
    return GrownCoreWaits(
        ms=ms,
        low_ms=ms - half,
        high_ms=ms + half,
        from_ms=from_ms,
        to_ms=to_ms,
        from_steps=len(before),
        to_steps=len(after),
    )


def _waits_ms(run: RunRows) -> list[float] | None:
    """Return what the mean rank waits for a core in each measured step, ms; None where not all of them tell it."""
    analysis = run.analysis
    if analysis.activity != "cpu" or analysis.growing is not None:
        return None
    measured = measured_steps(rows_of_answer(analysis, run.rows), [one.step for one in analysis.steps])
    waits = waits_of_mean_rank(measured.steady)
    return waits if waits is not None and len(waits) >= _LEAST else None
