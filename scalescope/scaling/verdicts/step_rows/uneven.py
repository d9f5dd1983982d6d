"""Steady steps that are longer in one part of a run than in another: other processes came, or the job changed.

The median of all is known by the medians of stretches. Where these leave a tenth of it open, it is the length of no
step in particular, and a window's few may be like some of the steps and unlike others.

Of a run of few steps, which has no such stretches, two or more of a few steps each tell it where they have no length in
common: every step of one is longer than all of another, and by far.

A stretch is told by those of its steps that make it what it is: in a row, from the first to the last one beyond the
median of all. Recorded steps lie between steady ones, and are none of these.
"""

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from scalescope.records.rows import StepRow
from scalescope.records.steps.core_waits import waited_ms
from scalescope.records.steps.unevenness import STRETCHES, UNLIKE, half_of_median
from scalescope.scaling.answer_steps import SteadyStretch, UnevenSteps

#: Of shorter stretches the median is one step's chance.
_LEAST_STRETCH = 4
#: Of few steps, stretches that have no length in common differ by more than this share of the shorter's median.
_FAR_APART = 0.2


def uneven_steps(steady: Sequence[StepRow]) -> UnevenSteps | None:
    """Return the stretches of steady steps, in order, that are longest and shortest; None where all are about alike."""
    count = min(STRETCHES, len(steady) // _LEAST_STRETCH)
    if count < 2:
        return None
    lengths = [row.length_ms for row in steady]
    if count == STRETCHES and half_of_median(lengths) < UNLIKE * statistics.median(lengths):
        return None
    each = len(steady) // count
    rows = [steady[at * each : (at + 1) * each] for at in range(count)]
    longest, shortest = max(rows, key=_median_ms), min(rows, key=_median_ms)
    if count < STRETCHES and not _are_far_apart(longest, shortest):
        return None
    usual = statistics.median(lengths)
    return UnevenSteps(
        longest=_stretch(_beyond(longest, lambda row: row.length_ms > usual)),
        shortest=_stretch(_beyond(shortest, lambda row: row.length_ms < usual)),
    )


def _beyond(rows: Sequence[StepRow], is_beyond: Callable[[StepRow], bool]) -> Sequence[StepRow]:
    """Return the steps of a stretch, in a row, that make it longer or shorter: from the first such one to the last.

    Of a stretch that is cut by steps that are not steady ones, the piece that has most of them.
    """
    cuts = [at for at in range(1, len(rows)) if rows[at].step != rows[at - 1].step + 1]
    pieces = [rows[first:last] for first, last in pairwise((0, *cuts, len(rows)))]
    most = max(pieces, key=lambda piece: sum(map(is_beyond, piece)))
    told = [at for at, row in enumerate(most) if is_beyond(row)]
    return most[told[0] : told[-1] + 1] if told else rows


def _are_far_apart(long: Sequence[StepRow], short: Sequence[StepRow]) -> bool:
    """Tell whether every step of one stretch is longer than all of another, and the typical one far longer."""
    no_length_in_common = min(row.length_ms for row in long) > max(row.length_ms for row in short)
    return no_length_in_common and _median_ms(long) > (1 + _FAR_APART) * _median_ms(short)


def _median_ms(rows: Sequence[StepRow]) -> float:
    return statistics.median(row.length_ms for row in rows)


def _stretch(rows: Sequence[StepRow]) -> SteadyStretch:
    waits = [ms for row in rows if (ms := waited_ms(row)) is not None]
    return SteadyStretch(
        first=rows[0].step,
        last=rows[-1].step,
        ms=_median_ms(rows),
        run_delay_ms=statistics.fmean(waits) if len(waits) == len(rows) else None,
    )
