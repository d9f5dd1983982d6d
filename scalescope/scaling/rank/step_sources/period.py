"""Steps by the period of the kernels' sequence, where nothing names any: a loop that runs the same kernels in order.

A kernel that runs once a step (an embedding, a loss) recurs at one distance, and nothing runs more seldom: a single
pass through a network of equal layers has no period, since its embedding runs once. Where all that ran is one long
sequence twice, embedding and all, it is two steps: two calls of a model that generates text.
"""

import numpy as np

from scalescope.scaling.rank.step_sources.steps import Steps, numbered
from scalescope.scaling.rank.step_sources.work import Work, makes_steps
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.kernel_kinds import OPTIMISER, kind_of
from scalescope.scaling.trace.trace import Trace

#: Occurrences of what runs most seldom; fewer are no recurrence.
_LEAST = 3
#: By so much may distances differ: one kernel more or less, such as a loss that is read back.
_TOLERANCE = 0.02
#: Fewer kernels than this repeat by chance.
_LEAST_KERNELS = 8
#: Nor do so many, in the same order from the first to the last, run just twice by chance.
_LEAST_TWICE = 100


def by_period(trace: Trace, work: Work) -> Steps | None:
    """Return the steps that the kernels' sequence repeats; None where it does not."""
    names, first, counts = np.unique(work.name, return_index=True, return_counts=True)
    if names.size and int(counts.min()) == 2:
        return _twice(work)
    if not names.size or int(counts.min()) < _LEAST:
        return None
    seldom = names[counts == counts.min()]
    anchor = int(seldom[np.argmin(first[counts == counts.min()])])
    at = np.flatnonzero(work.name == anchor)
    distance = np.diff(at)
    period = int(np.median(distance))
    if period < _LEAST_KERNELS or (abs(distance - period) > _TOLERANCE * period).any():
        return None
    at = at + _behind_the_optimiser(trace, work.name[at[0] : at[1]])
    at = at[at < work.name.size]
    rest = work.name.size - int(at[-1])
    whole = at if rest >= (1 - _TOLERANCE) * period else at[:-1]
    bounds = np.append(whole, min(int(whole[-1]) + period, work.name.size)) if whole.size == at.size else at
    start = work.launch[bounds[:-1]]
    end = np.append(start[1:], work.launch[bounds[-1] - 1])
    if start.size < 2 or not (np.diff(start) > 0).all() or not makes_steps(work, start, int(end[-1])):
        return None
    return numbered(start, end, None, "period")


def _twice(work: Work) -> Steps | None:
    """Return the two steps of a sequence that runs twice, and nothing else does; None where it is no such sequence."""
    period = work.name.size // 2
    if period < _LEAST_TWICE or 2 * period != work.name.size or (work.name[:period] != work.name[period:]).any():
        return None
    start = work.launch[[0, period]]
    end = np.array([start[1], work.launch[-1]], np.int64)
    return numbered(start, end, None, "period") if start[0] < start[1] else None


def _behind_the_optimiser(trace: Trace, names: Ints) -> int:
    """Return where in a period the optimiser's last kernel has run: a step begins behind it; 0 where there is none."""
    kinds = [kind_of(trace.names[name]) == OPTIMISER for name in names.tolist()]
    return max((at + 1 for at, is_optimiser in enumerate(kinds) if is_optimiser), default=0)
