"""The rank that the others wait for, by all of a job's steps: how long it is by itself in each, beside them.

A loader that stalls is late by nothing in one step and by a second in the next, and a window of three steps sizes it by
chance. The job's own rows have how long each rank goes on until it first waits for the others, and how long of that
others had its core, which is none of its doing.
"""

import statistics
from collections.abc import Sequence
from itertools import pairwise

from scalescope.records.rows import StepRow
from scalescope.records.statistics import half_of_mean, is_beyond_chance
from scalescope.scaling.answer_steps import LastInSteps, LateInSteps

#: Of fewer steps with every rank's own time nothing is told, nor of a rank that is late by a smaller share of the step.
LEAST_STEPS = 8
_SHARE = 0.05
#: So much of it on one rank alone is that rank's.
_ALONE = 0.5
#: Stretches whose means tell how far the mean is known, of so many steps at least.
_STRETCHES, _LEAST_STRETCH = 6, 4


def late_rank(steady: Sequence[StepRow]) -> LateInSteps | None:
    """Return which rank alone the others wait for in steady steps, in order, and for how long in the mean."""
    marked = [row for row in steady if len(row.own_ms) > 1 and row.synchronised]
    ranks = min((len(row.own_ms) for row in marked), default=0)
    whole = sum(row.length_ms for row in marked)
    if len(marked) < LEAST_STEPS or not whole > 0:
        return None
    late = [statistics.fmean(_late_ms(row, rank) for row in marked) for rank in range(ranks)]
    rank = max(range(ranks), key=lambda one: late[one])
    others = max(ms for one, ms in enumerate(late) if one != rank)
    # not every step's own times are marked where steps are short: those that are tell their share of a step
    share = (late[rank] - others) * len(marked) / whole
    lengths = [row.length_ms for row in steady if row.synchronised]
    mean_step = statistics.fmean(lengths)
    if share < _SHARE or others > _ALONE * late[rank]:
        return None
    if not is_beyond_chance([_late_at_least_ms(row, rank) for row in marked], ranks):
        return None  # hosts that share their cores are late by turns, and each of the ranks was looked at
    half = share * half_by_stretches(lengths)
    if len(marked) == len(lengths):
        half = half_by_stretches([_late_ms(row, rank) for row in marked])
    if half >= share * mean_step:
        return None
    # cores that others have make what it does beyond them longer, or hide it: so far the interval reaches
    saved_ms, with_waits_ms = (
        share * mean_step * _saved(own, rank) / late[rank]
        for own in ([_net_ms(row) for row in marked], [row.own_ms for row in marked])
    )
    return LateInSteps(
        rank=rank,
        ms=share * mean_step,
        saved_ms=saved_ms,
        saved_low_ms=max(0.0, min(saved_ms - half, with_waits_ms)),  # known no better than what the rank is late by
        saved_high_ms=min(max(saved_ms + half, with_waits_ms), mean_step),
        low_ms=share * mean_step - half,
        high_ms=min(share * mean_step + half, mean_step),
        mean_step_ms=mean_step,
        steps=len(lengths),
        delays_known=all(row.run_delay_ms for row in marked),
    )


def last_in_steps(steady: Sequence[StepRow]) -> LastInSteps | None:
    """Return by how much each step's last rank is later than their mean, where what ranks wait for cores is known."""
    marked = [row for row in steady if len(row.own_ms) > 1 and row.synchronised and row.run_delay_ms]
    if len(marked) < max(LEAST_STEPS, sum(row.synchronised for row in steady)):
        return None
    later = [max(own) - statistics.fmean(own) for own in map(_net_ms, marked)]
    ms, half = statistics.fmean(later), half_by_stretches(later)
    mean_step = statistics.fmean(row.length_ms for row in marked)
    return LastInSteps(
        ms=ms,
        low_ms=max(0.0, ms - half),
        high_ms=min(ms + half, mean_step),
        mean_step_ms=mean_step,
        steps=len(marked),
    )


def _late_ms(row: StepRow, rank: int) -> float:
    """Return how long after all others a rank is ready in a step, but for what each waited for a core."""
    return max(0.0, later_ms(_net_ms(row), rank))


def later_ms(own: Sequence[float], rank: int) -> float:
    """Return the same of ranks' own times, below 0 where another rank is ready after it."""
    return own[rank] - max(ms for one, ms in enumerate(own) if one != rank)


def _net_ms(row: StepRow) -> list[float]:
    """Return each rank's own time in a step without what it waited for a core."""
    delays = _own_delays(row) or _delays(row)
    return [max(0.0, ms - max(0.0, delay)) for ms, delay in zip(row.own_ms, delays, strict=True)]


def _saved(own: Sequence[Sequence[float]], rank: int) -> float:
    """Return by how much steps would be shorter, in the mean, if a rank took as long as the others do in the mean.

    By ranks' own times in each step. Of ranks that are alike one is the last in each, by chance, and the others wait
    for it: that stays.
    """
    others = (statistics.fmean(ms for one, ms in enumerate(row) if one != rank) for row in own)
    excess = max(0.0, statistics.fmean(row[rank] for row in own) - statistics.fmean(others))
    later = [later_ms(row, rank) for row in own]
    return statistics.fmean(max(0.0, ms) - max(0.0, ms - excess) for ms in later)


def _late_at_least_ms(row: StepRow, rank: int) -> float:
    """Return how long after all others a rank is ready in a step, at least; below 0 where it may be ready before one.

    Where waits for cores are known of the whole step alone, and a rank's own time ends where it first turns to the
    others: all of this rank's may have been before that, and of the others' what does not fit behind it.
    """
    if known := _own_delays(row):
        least, most = known, known
    else:
        least = most = _delays(row)
        least = [max(0.0, delay) - max(0.0, row.length_ms - ms) for ms, delay in zip(row.own_ms, least, strict=True)]
    own = max(0.0, row.own_ms[rank] - max(0.0, most[rank]))
    return own - max(ms - max(0.0, least[one]) for one, ms in enumerate(row.own_ms) if one != rank)


def _own_delays(row: StepRow) -> list[float]:
    return row.own_run_delay_ms if len(row.own_run_delay_ms) == len(row.own_ms) else []


def _delays(row: StepRow) -> list[float]:
    return row.run_delay_ms if len(row.run_delay_ms) == len(row.own_ms) else [0.0] * len(row.own_ms)


def half_by_stretches(values: Sequence[float]) -> float:
    """Return half of the 95% interval of the mean, by stretches: neighbours may take turns."""
    if len(values) < _STRETCHES * _LEAST_STRETCH:
        return half_of_mean(values)
    edges = [round(at * len(values) / _STRETCHES) for at in range(_STRETCHES + 1)]
    return half_of_mean([statistics.fmean(values[first:end]) for first, end in pairwise(edges)])
