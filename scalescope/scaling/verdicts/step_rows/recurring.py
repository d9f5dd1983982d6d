"""Steps that are longer every so often: validation, a checkpoint, a log, the last micro-batch of several.

A profiler's window of a few steps holds one of them, or none, and shares of it say nothing of how often they come. The
rows of all steps do. Each step is laid beside those around it, since a machine's speed drifts; and a rank's time beside
the others' in the same step, since what holds all up alike is none of what one rank does at a step's end.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from scalescope.records.rows import StepRow
from scalescope.records.statistics import half_of_mean, is_beyond_chance
from scalescope.scaling.answer_rows import StepSplit
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.verdicts.step_rows.regular import LEAST_TIMES, StepSeries, beside_neighbours, regular

#: Longer by less than this share is not worth a word.
_LEAST_SHARE = 0.1
#: So much of it on one rank alone is that rank's.
_MOST = 0.5
#: A loop that is held up for so many times what steps of one period cost does so at another one, too.
_MORE = 1.2
#: What a loop did once tells nothing of how often it does.
_LEAST_HELD = 2
#: Of fewer unprofiled steps nobody can tell how far the next one is off.
_LEAST_UNPROFILED = 2
#: The latest steps tell.
_MOST_STEPS = 3000
#: A stretch of fewer steps tells nothing of their neighbours.
_LEAST_STRETCH = 4


def recurring_steps(rows: Sequence[StepRow], profiled: Sequence[StepRow] = ()) -> RecurringSteps | None:
    """Return which of a job's unprofiled steps, in order, are longer every so often; None where none are.

    Profiled ones tell with them which these are, beside one another, and nothing of how long any is.
    """
    rows = [row for row in rows if row.step_ms][-_MOST_STEPS:]
    found, held = _of_one_period(rows, profiled), _held_loop(rows)
    return held if held is not None and (found is None or held.mean_ms > _MORE * found.mean_ms) else found


def _held_loop(rows: Sequence[StepRow]) -> RecurringSteps | None:
    """Return what a loop saves and validates between steps at no one period: before each, seldom, or at two of them."""
    held = [row for row in rows if row.saving_ms or row.validating_ms]
    if len(held) < _LEAST_HELD:
        return None
    saving_ms, validating_ms = (_mean_of(own) for own in ([row.saving_ms for row in held],
                                                          [row.validating_ms for row in held]))  # fmt: skip
    each = [max(row.loop_ms) - max(row.step_ms) for row in held]
    longer, half = statistics.fmean(each), half_of_mean(each)
    others = [row for row in rows if not (row.saving_ms or row.validating_ms)]
    usual = statistics.median(row.length_ms for row in others or rows)
    if longer < _LEAST_SHARE * usual:
        return None
    return RecurringSteps(
        every=1,
        phase=0,
        phases=[0],
        rank=None,
        longer_ms=longer,
        longer_low_ms=max(0.0, longer - half),
        longer_high_ms=longer + half,
        usual_ms=usual,
        mean_ms=longer * len(held) / len(rows),
        saving_ms=saving_ms,
        validating_ms=validating_ms,
        held=len(held),
        of=len(rows),
    )


def _of_one_period(rows: Sequence[StepRow], profiled: Sequence[StepRow]) -> RecurringSteps | None:
    stretches = _stretches(rows, [row for row in profiled if row.step_ms and rows and row.step >= rows[0].step])
    ranks = min((len(row.step_ms) for one in ([rows], stretches) for stretch in one for row in stretch), default=0)
    if not ranks or len(rows) < 2 * LEAST_TIMES:
        return None
    numbers = np.array([row.step for row in rows])
    timed = [_Timed.of(stretch, ranks) for stretch in stretches]
    times = np.array([row.loop_ms[:ranks] for row in rows])
    lengths = np.array([row.length_ms for row in rows])
    told = np.array([row.step for stretch in stretches for row in stretch])
    beside = np.concatenate([beside_neighbours(one.loop) for one in timed]) if timed else np.empty((0, ranks))
    found = regular(list(_series(timed, told, beside)), _LEAST_SHARE * float(np.median(lengths)))
    if found is None or not _is_often_enough(numbers, told, found):
        return None
    every, phase = found
    excess = _excess(told % every, beside, found)
    late = _late(told % every, beside, excess, found)
    long = np.flatnonzero(late.any(axis=1))
    rest = ~np.isin(numbers % every, long)
    if not rest.any():  # ranks that take turns in a short period: nobody's steps are as usual
        return None
    usual = float(np.median(lengths[rest]))
    if excess[phase].max() < _LEAST_SHARE * usual:
        return None
    first, rank = _begun(late, phase)
    whose = np.flatnonzero(late.any(axis=0)).tolist() if rank is None else [rank]
    each = _longer_each(numbers, times, excess, late, whose)
    entered = _entered([*rows, *profiled], found)
    # in the mean, or one that takes twice as long now and then would not count in what they cost
    longer, half = statistics.fmean(each), half_of_mean(each)
    return RecurringSteps(
        every=every,
        phase=first,
        phases=long.tolist(),
        rank=_by_itself(timed, told, found, longer) if rank is None else rank,
        longer_ms=longer,
        longer_low_ms=max(0.0, longer - half),
        longer_high_ms=longer + half,
        usual_ms=usual,
        mean_ms=longer / every,
        saving_ms=_mean_of([row.saving_ms for row in rows if row.step % every == phase]),
        validating_ms=_mean_of([row.validating_ms for row in rows if row.step % every == phase]),
        loading_ms=min(longer, _longer_loading_ms(rows, found)),
        loader_entered=entered is not None,
        workers_started=entered or 0,
    )


def _is_often_enough(unprofiled: NDArray[np.int64], told: NDArray[np.int64], found: tuple[int, int]) -> bool:
    """Tell whether so many unprofiled steps are of the phase found that they tell how much longer such ones are; fewer
    do where profiled ones, which come as regularly, make them one more than are needed, or all are where a loop that
    counts from 0 or from 1 has what it does every so often: by chance few are.
    """
    every, phase = found
    own, all_told = (int(np.count_nonzero(numbers % every == phase)) for numbers in (unprofiled, told))
    needed = LEAST_TIMES + (phase not in (0, every - 1))
    return own >= LEAST_TIMES or (own >= _LEAST_UNPROFILED and all_told >= needed)


def _mean_of(times: Sequence[Sequence[float]]) -> float:
    """Return the mean of steps' longest ranks, ms, for which the others wait; one that was not timed had none."""
    return statistics.fmean(max(one, default=0.0) for one in times)


def _longer_loading_ms(rows: Sequence[StepRow], found: tuple[int, int]) -> float:
    """Return how much longer hosts are in their loaders there than in a typical other step.

    By the rank that is longest; nothing where a row does not tell it.
    """
    every, phase = found
    if not all(row.loading_ms for row in rows):
        return 0.0
    there = [max(row.loading_ms) for row in rows if row.step % every == phase]
    others = [max(row.loading_ms) for row in rows if row.step % every != phase]
    return max(0.0, statistics.fmean(there) - statistics.median(others)) if there and others else 0.0


def _entered(rows: Sequence[StepRow], found: tuple[int, int]) -> int | None:
    """Return how many workers a rank's loader starts that is entered anew in each of these steps and in no other; None
    where it is not so, or rows do not tell.
    """
    every, phase = found
    there = [row.workers_started for row in rows if row.step % every == phase]
    if not there or not all(there) or any(row.workers_started for row in rows if row.step % every != phase):
        return None
    return min(max(one) for one in there)


def with_epochs_of_traces(found: RecurringSteps | None, steps: Sequence[StepSplit]) -> RecurringSteps | None:
    """Return steps that recur with that a loader is entered anew there, where traces of the profiled ones among them
    tell it, and rows do not: each rank asks once more for a batch than in any other step, since an epoch ends there.
    """
    if found is None or found.loader_entered or not found.loading_ms:
        return found
    whole = [one for one in steps if not one.open_ended]
    asked = {True: [one.batches for one in whole if found.begins_in(one.step)],
             False: [one.batches for one in whole if not found.begins_in(one.step)]}  # fmt: skip
    usual = set(asked[False])
    if len(usual) != 1 or None in usual or not asked[True]:
        return found
    more = usual.pop() or 0
    entered = all(count == more + 1 for count in asked[True])
    return msgspec.structs.replace(found, loader_entered=True) if entered else found


def longer_at(rows: Sequence[StepRow], like: RecurringSteps) -> list[float]:
    """Return by how much each of these steps is longer than those around it at the phases of another run's, ms.

    As `recurring_steps` measures its own: what a run without such steps, or with fewer, has in their place.
    """
    ranks = min((len(row.step_ms) for row in rows), default=0)
    rows = [row for row in rows if row.step_ms][-_MOST_STEPS:]
    if like.every == 1:
        return []
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


def _stretches(rows: Sequence[StepRow], profiled: Sequence[StepRow]) -> list[list[StepRow]]:
    """Return stretches of steps in a row, profiled or not, whose neighbours are of one kind.

    Without a window's last step, which holds how traces are written. What else a profiler does at a window's ends is a
    hiccup, unless there are so many windows that it recurs as they do.
    """
    of_windows = {row.step for row in profiled}
    in_order = sorted([*rows, *profiled], key=lambda row: row.step)
    groups = [(one, list(group)) for one, group in groupby(in_order, key=lambda row: row.step in of_windows)]
    recur = sum(recorded for recorded, _ in groups) >= LEAST_TIMES
    found = [
        stretch[recur:-1] if recorded else stretch[recur and stretch[0].step - 1 in of_windows :]
        for recorded, stretch in groups
    ]
    return [stretch for stretch in found if len(stretch) >= _LEAST_STRETCH]


class _Timed(NamedTuple):
    """A stretch's times by step and rank, ms. `own`: None where not all were timed so."""

    loop: NDArray[np.float64]
    step: NDArray[np.float64]
    own: NDArray[np.float64] | None

    @classmethod
    def of(cls, stretch: Sequence[StepRow], ranks: int) -> "_Timed":
        own = np.array([row.own_ms[:ranks] for row in stretch]) if _own_known(stretch, ranks) else None
        step = np.array([row.step_ms[:ranks] for row in stretch])
        return cls(np.array([row.loop_ms[:ranks] for row in stretch]), step, own)


def _own_known(stretch: Sequence[StepRow], ranks: int) -> bool:
    return all(len(row.own_ms) >= ranks for row in stretch)


def _series(timed: Sequence[_Timed], numbers: NDArray[np.int64], beside: NDArray[np.float64]) -> Iterator[StepSeries]:
    """Return what may tell them: a rank's steps, and the same less the others', and its own time less theirs.

    What one rank does at a step's end the others wait for in the next: each rank's own series has it once.
    """
    ranks = beside.shape[1]
    own = [one.own for one in timed if one.own is not None]
    for rank in dict.fromkeys((0, ranks - 1)):
        yield StepSeries(numbers, beside[:, rank])
        if ranks < 2 or not timed:
            continue
        for kind in ([one.step for one in timed], own):
            if len(kind) == len(timed):
                later = [beside_neighbours(_beside_others(times, rank)) for times in kind]
                yield StepSeries(numbers, np.concatenate(later))


def _beside_others(times: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """Return a rank's time of each step less the others' median."""
    others: NDArray[np.float64] = np.median(np.delete(times, rank, axis=1), axis=1)
    return times[:, rank] - others


def _excess(phases: NDArray[np.int64], beside: NDArray[np.float64], found: tuple[int, int]) -> NDArray[np.float64]:
    """Return by how much each rank's steps of each phase are longer than those that are not of the one found."""
    every, phase = found
    usual = np.median(beside[phases != phase], axis=0)
    excess = np.zeros((every, beside.shape[1]))
    for at in range(every):
        own = beside[phases == at]
        if len(own):
            excess[at] = np.median(own, axis=0) - usual
    return excess


def _late(
    phases: NDArray[np.int64], beside: NDArray[np.float64], excess: NDArray[np.float64], found: tuple[int, int]
) -> NDArray[np.bool_]:
    """Return whose steps are longer at which phase: one rank's longer step may be another's next one.

    At any other phase a few steps may be longer by chance.
    """
    every, phase = found
    late: NDArray[np.bool_] = excess > excess[phase].max() / 2
    for at, rank in np.argwhere(late).tolist():
        if (at - phase) % every not in (0, 1, every - 1):
            late[at, rank] = is_beyond_chance(beside[phases == at, rank].tolist(), excess.size)
    return late


def _by_itself(
    timed: Sequence[_Timed], numbers: NDArray[np.int64], found: tuple[int, int], longer_ms: float
) -> int | None:
    """Return the rank that takes most of it before it first waits for the others; None where none does, or several."""
    every, phase = found
    own = [beside_neighbours(one.own) for one in timed if one.own is not None]
    if len(own) < len(timed) or own[0].shape[1] < 2:
        return None
    there = np.concatenate(own)[numbers % every == phase]
    ranks = there.shape[1]
    typical = np.median(there, axis=0)
    rank = int(typical.argmax())
    later = there[:, rank] - np.delete(there, rank, axis=1).max(axis=1)
    if np.median(later) < _MOST * max(longer_ms, float(typical[rank])):
        return None
    return rank if is_beyond_chance(later.tolist(), ranks) else None


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
