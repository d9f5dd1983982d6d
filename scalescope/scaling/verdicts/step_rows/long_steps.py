"""Steps far longer than the others, now and then, outside every window: what a few profiled steps hardly ever meet.

A loader that makes batches slower than the job takes them lets it run on what it made ahead, and then stand still: most
steps are as short as ever, and their median says nothing of it. A job's own rows time every step, and how long its
hosts were in their loaders.

Where a loop does something else at no one period (a validation when the loss asks for it, a save when told to), its
steps stand far apart from all others, and no wait for a core is in them: then they are told of hosts that compute, too.

Of one or two such places nobody knows how often they come, nor that they come again: they are in the mean step all the
same. So they are told where they are far longer and nothing of the run's own explains them, and may cost nothing.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from scalescope.records.rows import StepRow
from scalescope.records.statistics import NORMAL_95, half_of_mean, share_95
from scalescope.scaling.answer_steps import LongSteps

#: So many times as long as a typical one is a long step; of fewer of them nothing is told, nor of a smaller share of
#: the mean step.
_LONG = 1.25
_LEAST = 3
_SHARE = 0.03
#: Long steps of which loading is such a share are loading's; one rank's, where others load for less than so much of
#: it: while they wait for that rank their own workers catch up, so that of two that are as slow one waits for most.
_EXPLAINED = 0.6
_LOADS_ALONE = 0.2
#: So much of other times on one rank alone is that rank's.
_ALONE = 0.5
#: Long steps stand apart where the shortest is so many times as far beyond a typical one as any other.
_APART = 2.0
#: One or two places are told where they are so many times a typical step longer, and so much of the mean step; the
#: shorter one is such a share of the longer one. What one rank does and the others wait for in the next step is in two.
_FAR, _FEW_SHARE, _ALIKE, _ROWS_A_PLACE = 1.0, 0.05, 0.5, 2
#: So many steps behind warm-up or a window are such that a job makes ready in, and are none of those.
_READY = 2
#: What a scheduler takes now and then is shorter, ms: of steps of a fifth of one, 0.05.
_LEAST_EACH_MS = 1.0
#: Stretches whose means tell how far the mean is known; of fewer steps a stretch the long ones' own number does.
_STRETCHES, _LEAST_STRETCH = 6, 8


def long_steps(steady: Sequence[StepRow]) -> LongSteps | None:
    """Return what the long ones of steady steps, in order, cost in the mean; None where that is next to nothing."""
    lengths = [row.length_ms for row in steady]
    if len(lengths) < 2 * _LEAST:
        return None
    typical, hardly_loading = statistics.median(lengths), _while_hardly_loading(steady)
    found = _beyond(steady, min(typical, hardly_loading))
    # steps in which hosts hardly load are a yardstick for those that wait for batches alone: others of a job whose pace
    # varies are the quick ones by chance
    waits = found is not None and found.cause == "loading"
    return found if waits or typical <= hardly_loading else _beyond(steady, typical)


def _beyond(steady: Sequence[StepRow], typical: float) -> LongSteps | None:
    """Return what steps cost that are long beside a typical one, ms."""
    lengths = [row.length_ms for row in steady]
    excess = [length - typical if length > _LONG * typical else 0.0 for length in lengths]
    count = sum(ms > 0 for ms in excess)
    mean, mean_step = statistics.fmean(excess), statistics.fmean(lengths)
    half = _half(excess)
    if mean < _SHARE * mean_step or sum(excess) < _LEAST_EACH_MS * count:
        return None
    if count < _LEAST:
        return _at_few_places(steady, typical)
    rank, share = _share_in(steady, excess, [row.loading_ms for row in steady], min, _LOADS_ALONE)
    by_loading = share >= _EXPLAINED
    if not by_loading and (apart := _standing_apart(steady, excess)) is not None:
        return apart
    if mean <= half:
        return None if by_loading else _at_few_places(steady, typical)
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


def _standing_apart(steady: Sequence[StepRow], excess: Sequence[float]) -> LongSteps | None:
    """Return long steps at several places that stand apart from all others, with whose they are; None where none do."""
    places = _places(excess)
    if len(places) < _LEAST or not _are_apart(steady, excess):
        return None
    if _share_in(steady, excess, [row.run_delay_ms for row in steady], statistics.median)[1] >= _ALONE:
        return None  # others had the cores
    return _at_places(steady, excess, places, share_95(len(places), len(steady)))


def _at_few_places(steady: Sequence[StepRow], typical: float) -> LongSteps | None:
    """Return steps that are far longer at one or two places, which may cost nothing; None where none are.

    Neither where the run had just begun or been recorded, nor at its end; and where it is known that none of them
    waited for a core, nor for its batch.
    """
    excess = [row.length_ms - typical for row in steady]
    least = _ALIKE * max(excess)
    excess = [ms if ms >= least and ms > 0 else 0.0 for ms in excess]
    places = _places(excess)
    rows = sum(ms > 0 for ms in excess)
    if not 0 < len(places) < _LEAST or rows > _ROWS_A_PLACE * len(places) or max(excess) < _FAR * typical:
        return None
    if not _are_apart(steady, excess) or any(not _is_amid(steady, at) for at in places):
        return None
    if not all(row.run_delay_ms for row in steady):
        return None
    explained = [[row.run_delay_ms for row in steady], [row.loading_ms for row in steady]]
    if any(_share_in(steady, excess, times, statistics.median)[1] >= _ALONE for times in explained):
        return None
    few = _at_places(steady, excess, places, (0.0, share_95(len(places), len(steady))[1]))
    return few if few.ms >= _FEW_SHARE * few.mean_step_ms else None


def _is_amid(steady: Sequence[StepRow], at: int) -> bool:
    """Tell whether a step is neither the last one nor right behind what is no steady step."""
    before = steady[max(0, at - _READY) : at + 1]
    return at < len(steady) - 1 and len(before) > _READY and before[0].step == steady[at].step - _READY


def _places(excess: Sequence[float]) -> list[int]:
    """Return where long steps begin.

    What one rank does at a step's end the others wait for in the next: steps in a row are one, and as long as all are
    in the mean of the ranks, of which each meets it once.
    """
    return [at for at, ms in enumerate(excess) if ms and not (at and excess[at - 1])]


def _are_apart(steady: Sequence[StepRow], excess: Sequence[float]) -> bool:
    others = [row.length_ms for row, ms in zip(steady, excess, strict=True) if not ms]
    return bool(others) and min(ms for ms in excess if ms) >= _APART * (max(others) - statistics.median(others))


def _at_places(
    steady: Sequence[StepRow], excess: Sequence[float], places: Sequence[int], shares: tuple[float, float]
) -> LongSteps:
    """Return what long steps at such places cost; `shares`: the interval of how many of the steps begin one."""
    usual = statistics.median(row.length_ms for row, ms in zip(steady, excess, strict=True) if not ms)
    whole = sum(row.length_ms - usual for row, ms in zip(steady, excess, strict=True) if ms)
    rank, share = _share_in(steady, excess, [row.own_ms for row in steady], statistics.median)
    each = whole / len(places)
    return LongSteps(
        count=len(places),
        each_ms=each,
        ms=whole / len(steady),
        low_ms=each * shares[0],
        high_ms=each * shares[1],
        mean_step_ms=statistics.fmean(row.length_ms for row in steady),
        rank=rank if share >= _EXPLAINED else None,
        at=[steady[at].step for at in places],
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


def _share_in(
    steady: Sequence[StepRow],
    excess: Sequence[float],
    times: Sequence[Sequence[float]],
    usually: Callable[[Sequence[float]], float],
    alone: float = _ALONE,
) -> tuple[int | None, float]:
    """Return the rank that alone has a time that is longer in long steps, None where several have; and its share.

    That is of what those steps take longer. `times`: of each step, by rank, ms; empty where nothing tells. `alone`: the
    others' are longer by less than so much of its.
    """
    ranks = min((len(one) for one in times), default=0)
    if not ranks:
        return None, 0.0
    usual = [usually([one[rank] for one in times]) for rank in range(ranks)]
    # what a rank waits for longer than its step grows was waited for before, or beside it
    beyond = [
        sum(min(max(0.0, one[rank] - usual[rank]), ms) for one, ms in zip(times, excess, strict=True))
        for rank in range(ranks)
    ]
    most = max(range(ranks), key=lambda rank: beyond[rank])
    others = max((ms for rank, ms in enumerate(beyond) if rank != most), default=None)
    together = sum(
        min(max(max(0.0, own - often) for own, often in zip(one, usual, strict=False)), ms)
        for one, ms in zip(times, excess, strict=True)
    )
    whole = sum(excess)
    return (most if others is not None and others < alone * beyond[most] else None), together / whole if whole else 0.0
