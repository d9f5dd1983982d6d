"""How long a job's ranks were ready to run, and waited for a core, by its own rows: of steps without a profiler.

A step that ranks wait for each other in is as much longer as the rank that waits most for its core: of 100 runs beside
another process, steps that waited 1 ms more were 0.8 to 1.3 ms longer. Waits of one rank may lie behind those of
another all the same, so that what the mean rank waits for is what the step is sure to lose. Where one rank waits and
the others hardly do, that mean tells how many others there are, and no more. Sure is then by how much its waits put off
the moment at which the last rank first waits for the others.
"""

import statistics
from collections.abc import Sequence, Set

import numpy as np

from scalescope.records.rows import StepRow
from scalescope.records.steps.core_waits import WAITS_FOR_CORES, waited_ms, without_waits_ms
from scalescope.scaling.answer_steps import CoresTaken, CoreWaits
from scalescope.scaling.verdicts.step_rows.late import half_by_stretches

#: Of fewer steps nothing is told.
_LEAST = 8
#: A rank is named whose waits are so many times those of any other.
_ALONE = 2.0
#: A level is of so many steps at least, and so many of them wait longer than as many of the other one's.
_LEAST_LEVEL, _OF_A_LEVEL = 5, 0.9


def core_waits(steady: Sequence[StepRow], rows: Sequence[StepRow], profiled: Set[int]) -> CoreWaits | None:
    """Return what ranks wait for cores in steady steps, in order; None where not all of them tell it.

    `profiled`: the steps, of all `rows`, that the answer's figures are of.
    """
    told = _telling(steady)
    if told is None or len(told) < _LEAST:
        return None
    ranks = {len(row.run_delay_ms) for row in told}
    most = [waited_ms(row) or 0.0 for row in told]
    by_rank = _means(told)
    ms, usual = statistics.fmean(most), statistics.fmean(by_rank)
    mean_step = statistics.fmean(row.length_ms for row in told)
    recorded = [row for row in rows if row.step in profiled and len(row.run_delay_ms) in ranks]
    since = _since([*told, *recorded])
    half = _half(most, told, since)
    ascending = sorted(by_rank)
    alone = len(by_rank) > 1 and ascending[-1] >= _ALONE * ascending[-2]
    held_up = _held_up_ms(told) if alone else []
    low = usual - half
    if held_up:
        low = max(low, statistics.fmean(held_up) - _half(held_up, told, since))
    return CoreWaits(
        ms=ms,
        low_ms=min(max(0.0, low), ms),
        high_ms=min(ms + half, mean_step),
        mean_step_ms=mean_step,
        steps=len(told),
        rank=by_rank.index(ascending[-1]) if alone else None,
        held_up_ms=statistics.fmean(held_up) if held_up else None,
        profiled_ms=_means(recorded),
        since=since,
    )


def _since(rows: Sequence[StepRow]) -> CoresTaken | None:
    """Return from which step on ranks wait for cores far longer, or less, than before; None where they do alike.

    Others came, or went, and stayed. Nearly all steps on one side wait longer than nearly all on the other, by however
    much: who shares a core with another waits for 30 ms in one step and for 100 in the next. Steps that wait now and
    then have no such place.
    """
    in_order = sorted(rows, key=lambda row: row.step)
    waits = np.array([waited_ms(row) or 0.0 for row in in_order])
    if len(waits) < 2 * _LEAST_LEVEL:
        return None
    at = max(
        range(_LEAST_LEVEL, len(waits) - _LEAST_LEVEL + 1),
        key=lambda at: at * (len(waits) - at) * (waits[:at].mean() - waits[at:].mean()) ** 2,
    )
    before, after = float(np.median(waits[:at])), float(np.median(waits[at:]))
    step_ms = statistics.median(row.length_ms for row in in_order)
    if abs(after - before) < WAITS_FOR_CORES * step_ms:
        return None
    less, more = (waits[:at], waits[at:]) if before < after else (waits[at:], waits[:at])
    if float((more > np.quantile(less, _OF_A_LEVEL)).mean()) < _OF_A_LEVEL:
        return None
    return CoresTaken(step=in_order[at].step, before_ms=before, after_ms=after)


def _half(values: Sequence[float], told: Sequence[StepRow], since: CoresTaken | None) -> float:
    """Return half of the 95% interval of the mean of what steady steps tell; where waits came and stayed, without that,
    which is no chance. What went again need not come back: by that the mean is as unsure as by any other stretch.
    """
    if since is None or since.after_ms < since.before_ms:
        return half_by_stretches(values)
    later = [row.step >= since.step for row in told]
    level = {
        one: statistics.fmean(ms for ms, is_later in zip(values, later, strict=True) if is_later == one)
        for one in set(later)
    }
    return half_by_stretches([ms - level[one] for ms, one in zip(values, later, strict=True)])


def _held_up_ms(told: Sequence[StepRow]) -> list[float]:
    """Return by how much sooner the last rank would first wait for the others in each step, without its waits for a
    core before that, ms; nothing where not all steps tell it.
    """
    if not all(len(row.own_ms) == len(row.own_run_delay_ms) == len(row.run_delay_ms) for row in told):
        return []
    return [max(row.own_ms) - max(without_waits_ms(row)) for row in told]


def waits_of_mean_rank(steady: Sequence[StepRow]) -> list[float] | None:
    """Return what the mean rank waits for a core in each of these steps, ms; None where not all of them tell it."""
    told = _telling(steady)
    return None if told is None else [statistics.fmean(_waits(row)) for row in told]


def _telling(steady: Sequence[StepRow]) -> list[StepRow] | None:
    """Return steps that all tell what the same ranks wait for cores; None where one of them does not, or none is."""
    told = [row for row in steady if row.synchronised and row.run_delay_ms]
    alike = len({len(row.run_delay_ms) for row in told}) == 1
    return told if alike and len(told) == len(steady) else None


def _waits(row: StepRow) -> list[float]:
    """Return what each rank waits for a core in a step, ms: no longer than it, whatever a file says."""
    return [min(max(0.0, ms), row.length_ms) for ms in row.run_delay_ms]


def _means(rows: Sequence[StepRow]) -> list[float]:
    """Return what each rank waits for a core in the mean step, ms; nothing of no rows."""
    return [statistics.fmean(own) for own in zip(*map(_waits, rows), strict=True)]
