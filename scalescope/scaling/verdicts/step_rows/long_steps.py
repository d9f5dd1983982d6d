"""Steps far longer than the others, now and then, outside every window: what a few profiled steps hardly ever meet.

A loader that makes batches slower than the job takes them lets it run on what it made ahead, and then stand still: most
steps are as short as ever, and their median says nothing of it. A job's own rows time every step, and how long its
hosts were in their loaders.
"""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from scalescope.records.rows import StepRow
from scalescope.records.statistics import NORMAL_95, half_of_mean
from scalescope.scaling.answer_steps import LongSteps

#: So many times as long as a typical one is a long step; of fewer of them nothing is told, nor of a smaller share of
#: the mean step.
_LONG = 1.25
_LEAST = 3
_SHARE = 0.03
#: Long steps of which loading is such a share are loading's; so much of it on one rank alone is that rank's.
_EXPLAINED = 0.6
_ALONE = 0.5
#: Stretches whose means tell how far the mean is known; of fewer steps a stretch the long ones' own number does.
_STRETCHES, _LEAST_STRETCH = 6, 8


def long_steps(steady: Sequence[StepRow]) -> LongSteps | None:
    """Return what the long ones of steady steps, in order, cost in the mean; None where that is next to nothing."""
    lengths = [row.length_ms for row in steady]
    if len(lengths) < 2 * _LEAST:
        return None
    typical = min(statistics.median(lengths), _while_hardly_loading(steady))
    excess = [length - typical if length > _LONG * typical else 0.0 for length in lengths]
    count = sum(ms > 0 for ms in excess)
    mean, mean_step = statistics.fmean(excess), statistics.fmean(lengths)
    half = _half(excess)
    if count < _LEAST or mean < _SHARE * mean_step or mean <= half:
        return None
    rank, share = _loading(steady, excess)
    by_loading = share >= _EXPLAINED
    return LongSteps(
        count=count,
        each_ms=sum(excess) / count,
        ms=mean,
        low_ms=mean - half,
        high_ms=mean + half,
        mean_step_ms=mean_step,
        cause="loading" if by_loading else None,
        rank=rank if by_loading else None,
    )


def _while_hardly_loading(steady: Sequence[StepRow]) -> float:
    """Return the median of the steps in which hosts are least in their loaders: where half of all wait, theirs is not
    the step without waiting.
    """
    if not all(row.loading_ms for row in steady):
        return math.inf
    order = sorted(steady, key=lambda row: max(row.loading_ms))
    return statistics.median(row.length_ms for row in order[: max(_LEAST, len(order) // 10)])


def _half(excess: Sequence[float]) -> float:
    """Return half of the 95% interval of the mean: by stretches, since long steps come at intervals; of few by their
    number.
    """
    if len(excess) < _STRETCHES * _LEAST_STRETCH:
        return NORMAL_95 * math.sqrt(sum(ms * ms for ms in excess)) / len(excess)
    edges = [round(at * len(excess) / _STRETCHES) for at in range(_STRETCHES + 1)]
    return half_of_mean([statistics.fmean(excess[first:end]) for first, end in pairwise(edges)])


def _loading(steady: Sequence[StepRow], excess: Sequence[float]) -> tuple[int | None, float]:
    """Return the rank that alone is in its loader for longer in long steps, None where several are; and the share of
    what those take longer that loading takes.
    """
    ranks = min((len(row.loading_ms) for row in steady), default=0)
    if not ranks:
        return None, 0.0
    usual = [min(row.loading_ms[rank] for row in steady) for rank in range(ranks)]
    # what a rank waits for longer than its step grows was waited for before, or beside it
    loaded = [
        sum(min(max(0.0, row.loading_ms[rank] - usual[rank]), ms) for row, ms in zip(steady, excess, strict=True))
        for rank in range(ranks)
    ]
    most = max(range(ranks), key=lambda rank: loaded[rank])
    others = max((ms for rank, ms in enumerate(loaded) if rank != most), default=None)
    together = sum(
        min(max(max(0.0, own - often) for own, often in zip(row.loading_ms, usual, strict=False)), ms)
        for row, ms in zip(steady, excess, strict=True)
    )
    alone = others is not None and others < _ALONE * loaded[most]
    whole = sum(excess)
    return (most if alone else None), together / whole if whole else 0.0
