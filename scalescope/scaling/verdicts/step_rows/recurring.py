"""Steps that are longer every so often: validation, a checkpoint, a log, the last micro-batch of several.

A profiler's window of a few steps holds one of them, or none, and shares of it say nothing of how often they come. The
rows of all steps do. Every period and every phase of it is tried; what tells one from chance is how unlikely it is that
longest steps lie that regularly.
"""

import math
import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scalescope.records.rows import StepRow
from scalescope.records.statistics import half_of_mean
from scalescope.scaling.answer_steps import RecurringSteps

#: Longer by less than this share is not worth a word.
_LEAST_SHARE = 0.1
#: A period is seen at least so often.
_LEAST_TIMES = 3
#: So unlikely is it that as many steps are as long, as regularly, by chance, of all periods and phases tried.
_CHANCE = 1e-3
#: Of the other steps no more are as long: a machine has hiccups.
_HICCUPS = 0.1
#: The latest steps tell.
_MOST_STEPS = 3000


def recurring_steps(rows: Sequence[StepRow]) -> RecurringSteps | None:
    """Return which of a job's unprofiled steps, in order, are longer every so often; None where none are."""
    ranks = min((len(row.step_ms) for row in rows), default=0)
    rows = [row for row in rows if row.step_ms][-_MOST_STEPS:]
    if not ranks or len(rows) < 2 * _LEAST_TIMES:
        return None
    numbers = np.array([row.step for row in rows])
    times = np.array([row.step_ms[:ranks] for row in rows])
    # what one rank does at a step's end the others wait for in the next: each rank's own series has it once
    found = next((one for rank in dict.fromkeys((0, ranks - 1)) if (one := _regular(numbers, times[:, rank]))), None)
    if found is None:
        return None
    every, phase = found
    excess = _excess(numbers % every, times, found)
    # one rank's longer step may be another's next one
    late = excess > excess[phase].max() / 2
    long = np.flatnonzero(late.any(axis=1))
    rest = ~np.isin(numbers % every, long)
    if not rest.any():  # ranks that take turns in a short period: nobody's steps are as usual
        return None
    usual = float(np.median(times[rest].max(axis=1)))
    if excess.max() < _LEAST_SHARE * usual:
        return None
    first, rank = _begun(late, phase)
    whose = np.flatnonzero(late.any(axis=0)).tolist() if rank is None else [rank]
    each = _longer_each(numbers, times, excess, late, whose)
    # in the mean, or one that takes twice as long now and then would not count in what they cost
    longer, half = statistics.fmean(each), half_of_mean(each)
    return RecurringSteps(
        every=every,
        phase=first,
        phases=long.tolist(),
        rank=rank,
        longer_ms=longer,
        longer_low_ms=max(0.0, longer - half),
        longer_high_ms=longer + half,
        usual_ms=usual,
        mean_ms=longer / every,
    )


def longer_at(rows: Sequence[StepRow], like: RecurringSteps) -> list[float]:
    """Return by how much each of these steps is longer than those around it at the phases of another run's, ms.

    As `recurring_steps` measures its own: what a run without such steps, or with fewer, has in their place.
    """
    ranks = min((len(row.step_ms) for row in rows), default=0)
    rows = [row for row in rows if row.step_ms][-_MOST_STEPS:]
    numbers = np.array([row.step for row in rows], np.int64)
    if not ranks or not np.isin(numbers % like.every, like.phases).any():
        return []
    times = np.array([row.step_ms[:ranks] for row in rows])
    whose = [like.rank] if like.rank is not None and like.rank < ranks else list(range(ranks))
    late = np.zeros((like.every, ranks), bool)
    late[like.phases] = True
    excess = np.full((like.every, ranks), -math.inf)
    excess[like.phase] = 0.0  # the phase that begins it, whatever other steps do here
    return _longer_each(numbers, times, excess, late, whose)


def _regular(numbers: NDArray[np.int64], times: NDArray[np.float64]) -> tuple[int, int] | None:
    """Return the period and the phase whose steps are the longest of all most surely; None where that may be chance."""
    count = len(times)
    place = np.empty(count, np.int64)
    place[np.argsort(times, kind="stable")] = np.arange(count)
    periods = range(2, count // _LEAST_TIMES + 1)
    tried = math.log(sum(periods) or 1)
    found: list[tuple[float, int, int]] = []
    for every in periods:
        phases = numbers % every
        sizes = np.bincount(phases, minlength=every)
        lowest = np.full(every, count)
        np.minimum.at(lowest, phases, place)
        as_long = count - lowest  # those of the phase, and others
        candidates = (sizes >= _LEAST_TIMES) & (sizes < count) & (as_long - sizes <= _HICCUPS * (count - sizes))
        for phase in np.flatnonzero(candidates).tolist():
            size = int(sizes[phase])
            chance = tried + _log_choose(int(as_long[phase]), size) - _log_choose(count, size)
            if chance < math.log(_CHANCE):
                found.append((chance, every, phase))
    for _, every, phase in sorted(found):
        own = numbers % every == phase
        if np.median(times[own]) > (1 + _LEAST_SHARE) * np.median(times[~own]):
            return every, phase
    return None


def _log_choose(of: int, some: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)


def _excess(phases: NDArray[np.int64], times: NDArray[np.float64], found: tuple[int, int]) -> NDArray[np.float64]:
    """Return by how much each rank's steps of each phase are longer than those that are not of the one found."""
    every, phase = found
    usual = np.median(times[phases != phase], axis=0)
    excess = np.zeros((every, times.shape[1]))
    for at in range(every):
        own = times[phases == at]
        if len(own):
            excess[at] = np.median(own, axis=0) - usual
    return excess


def _longer_each(
    numbers: NDArray[np.int64],
    times: NDArray[np.float64],
    excess: NDArray[np.float64],
    late: NDArray[np.bool_],
    ranks: Sequence[int],
) -> list[float]:
    """Return by how much each of the longer steps is longer than those around it, in the mean of these ranks.

    Their mean, as the longer one's is: steps have hiccups, which a mean has and a median has not, so that one less the
    other is too large. Those around it, since a machine's speed drifts. And several ranks', since the one with the
    largest difference has it by chance where all are longer together.
    """
    every = len(excess)
    rest = np.isin(numbers % every, np.flatnonzero(late.any(axis=1)), invert=True)
    found: dict[int, list[float]] = {}
    for rank in ranks:
        phase, own = int(excess[:, rank].argmax()), times[:, rank]
        # a pause of a second between them is none of theirs: no step there counts for more than a typical longer one
        usual = np.minimum(own, np.median(own[numbers % every == phase]))
        around = (numbers - phase + every // 2) // every  # each step between is beside one longer step
        slots = np.unique(around, return_inverse=True)[1]
        counts = np.bincount(slots, weights=rest)
        means = np.bincount(slots, weights=rest * usual) / np.maximum(counts, 1)
        means[counts == 0] = usual[rest].mean()
        for at in np.flatnonzero(numbers % every == phase).tolist():
            found.setdefault(int(numbers[at]) // every, []).append(float(own[at] - means[slots[at]]))
    return [statistics.fmean(values) for values in found.values()]


def _begun(late: NDArray[np.bool_], phase: int) -> tuple[int, int | None]:
    """Return the phase that begins it, and the one rank whose steps are longer there while the others' are in the next.

    None where all ranks' are, or several's. `late`: by phase and rank, whose steps are longer.
    """
    every, ranks = late.shape
    for at in ((phase - 1) % every, phase):
        here, after = late[at], late[(at + 1) % every]
        if every > 2 and here.sum() == 1 and ranks > 1 and after[~here].all() and not after[here].any():
            return at, int(np.flatnonzero(here)[0])
    return phase, None
