"""Steps far longer than the others, now and then, outside every window: what a few profiled steps hardly ever meet.

A loader that makes batches slower than the job takes them lets it run on what it made ahead, and then stand still: most
steps are as short as ever, and their median says nothing of it. A job's own rows time every step, and how long its
hosts were in their loaders.

Where a loop does something else at no one period (a validation when the loss asks for it, a save when told to), its
steps stand far apart from all others, and no wait for a core is in them: then they are told of hosts that compute, too.

Of one or two such places nobody knows how often they come, nor that they come again: they are in the mean step all the
same. So they are told where they are far longer and nothing of the run's own explains them, and may cost nothing. What
a window met as well, and is as long, is one of them: of a job of 44 steps that validates in two, one of them recorded,
the other alone is too little to be told.
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
#: … and so many times longer, and so much of the mean step, where a window met such a one, too: twice is no hiccup.
_FAR_TWICE, _TWICE_SHARE = 0.75, 0.03
#: So many steps behind warm-up or a window are such that a job makes ready in, and are none of those.
_READY = 2
#: What a scheduler takes now and then is shorter, ms: of steps of a fifth of one, 0.05.
_LEAST_EACH_MS = 1.0
#: Stretches whose means tell how far the mean is known; of fewer steps a stretch the long ones' own number does.
_STRETCHES, _LEAST_STRETCH = 6, 8


def long_steps(steady: Sequence[StepRow], met: Sequence[StepRow] = ()) -> LongSteps | None:
    """Return what the long ones of steady steps, in order, cost in the mean; None where that is next to nothing.

    `met`: recorded ones, which may be among those that are too few to tell how often they come.
    """
    lengths = [row.length_ms for row in steady]
    if len(lengths) < 2 * _LEAST:
        return None
    typical, hardly_loading = statistics.median(lengths), _while_hardly_loading(steady)
    found = _beyond(steady, min(typical, hardly_loading), met)
    # steps in which hosts hardly load are a yardstick for those that wait for batches alone: others of a job whose pace
    # varies are the quick ones by chance
    waits = found is not None and found.cause == "loading"
    return found if waits or typical <= hardly_loading else _beyond(steady, typical, met)


def _beyond(steady: Sequence[StepRow], typical: float, met: Sequence[StepRow]) -> LongSteps | None:
    """Return what steps cost that are long beside a typical one, ms."""
    lengths = [row.length_ms for row in steady]
    excess = [length - typical if length > _LONG * typical else 0.0 for length in lengths]
    count = sum(ms > 0 for ms in excess)
    mean, mean_step = statistics.fmean(excess), statistics.fmean(lengths)
    half = _half(excess)
    if mean < _SHARE * mean_step or sum(excess) < _LEAST_EACH_MS * count:
        return None
    if count < _LEAST:
        return _at_few_places(steady, typical, met)
    rank, share = _share_in(steady, excess, [row.loading_ms for row in steady], min, _LOADS_ALONE)
    by_loading = share >= _EXPLAINED
    if not by_loading and (apart := _standing_apart(steady, excess)) is not None:
        return apart
    if mean <= half:
        return None if by_loading else _at_few_places(steady, typical, met)
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


def _at_few_places(steady: Sequence[StepRow], typical: float, met: Sequence[StepRow]) -> LongSteps | None:
    """Return steps that are far longer at one or two places, which may cost nothing; None where none are.

    Neither where the run had just begun or been recorded, nor at its end; and where it is known that none of them
    waited for a core, nor for its batch. With those that a window met, which alone tell nothing of the others.
    """
    excess = _alike([row.length_ms - typical for row in steady])
    places, longest = _places(excess), max(excess)
    if not _are_few(excess, places) or longest < _FAR_TWICE * typical:
        return None
    if (
        not _are_apart(steady, excess)
        or any(not _is_amid(steady, at) for at in places)
        or _are_explained(steady, excess)
    ):
        return None
    also = _as_long(met, _ALIKE * longest, _FAR_TWICE * typical)
    if not any(also):
        few = _at_places(steady, excess, places, (0.0, share_95(len(places), len(steady))[1]))
        return few if few.ms >= _FEW_SHARE * few.mean_step_ms and longest >= _FAR * typical else None
    # recorded steps beside one another: recording makes all of them longer, and that is none of it
    usual = statistics.median(row.length_ms for row in met)
    each = [*(ms for ms in excess if ms), *(row.length_ms - usual for row, ms in zip(met, also, strict=True) if ms)]
    of, count = len(steady) + len(met), len(places) + len(_places(also))
    profiled = [met[at].step for at in _places(also)]
    rank, share = _share_in(steady, excess, [row.own_ms for row in steady], statistics.median)
    found = LongSteps(
        count=count,
        each_ms=sum(each) / count,
        ms=sum(each) / of,
        low_ms=0.0,
        high_ms=sum(each) / count * share_95(count, of)[1],
        mean_step_ms=typical + sum(each) / of,
        rank=rank if share >= _EXPLAINED else None,
        at=sorted([*(steady[at].step for at in places), *profiled]),
        profiled=profiled,
        of=of,
    )
    return found if found.ms >= _TWICE_SHARE * found.mean_step_ms else None


def _alike(excess: Sequence[float]) -> list[float]:
    """Return by how much steps are longer that are as long as the longest one; 0 for any other."""
    least = _ALIKE * max(excess)
    return [ms if ms >= least and ms > 0 else 0.0 for ms in excess]


def _as_long(met: Sequence[StepRow], *least_ms: float) -> list[float]:
    """Return by how much recorded steps, in order, are longer than those beside them that are as long as some of the
    job's own, for no core's sake and no batch's; 0 for any other.
    """
    if len(met) < 2 * _LEAST:
        return []
    usual = statistics.median(row.length_ms for row in met)
    excess = _alike([row.length_ms - usual for row in met])
    few = _are_few(excess, _places(excess)) and max(excess) >= max(least_ms)
    return excess if few and _are_apart(met, excess) and not _are_explained(met, excess) else [0.0] * len(met)


def _are_few(excess: Sequence[float], places: Sequence[int]) -> bool:
    rows = sum(ms > 0 for ms in excess)
    return 0 < len(places) < _LEAST and rows <= _ROWS_A_PLACE * len(places)


def _are_explained(rows: Sequence[StepRow], excess: Sequence[float]) -> bool:
    """Tell whether steps are longer for what they wait for cores, or batches; or whether nothing tells the former."""
    if not all(row.run_delay_ms for row in rows):
        return True
    times = [[row.run_delay_ms for row in rows], [row.loading_ms for row in rows]]
    return any(_share_in(rows, excess, one, statistics.median)[1] >= _ALONE for one in times)


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
