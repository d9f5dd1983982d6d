"""Models that are updated in turn, each after a backward pass of its own, as a generator and a discriminator are.

One round of them is a step of the job. What tells is the backward pass before each update: it is of other nodes than
that before the last update, and of the same as a round ago. What a loop does besides, as validating, has none.
"""

from collections.abc import Sequence

import numpy as np

from scalescope.scaling.rank.loading_names import STRONG, says_loading
from scalescope.scaling.trace.families import ENGINE_FRAMES
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import Trace

#: So many rounds, and the one that the trace begins in, are a habit.
_ROUNDS = 2


def ends_of_rounds(trace: Trace, start: Ints, end: Ints) -> Ints | None:
    """Return when the last update of each round ends; None where every update is like the one before it.

    `start` and `end` are the updates', ascending. Where more than one of a round begins with a batch, each is a step.
    """
    passes = _backward_passes(trace, end[:-1], start[1:])
    # an update without a backward pass of its own goes with the one before it
    own = [at for at, one in enumerate(passes) if one]
    turns = _turns([passes[at] for at in own])
    if turns is None:
        return None
    begins, ends = start[np.array(own) + 1], end[[*own, end.size - 1]]
    fetched = _fetches(trace, ends[:-1], begins)
    batches = [int(fetched[turn::turns].sum()) for turn in range(turns)]
    if np.count_nonzero(batches) > 1:
        return None
    longest = [float((begins - ends[:-1])[turn::turns].mean()) for turn in range(turns)]
    first = int(np.argmax(batches if any(batches) else longest))
    rounds: Ints = ends[first::turns]
    return rounds


def _turns(passes: Sequence[bytes]) -> int | None:
    """Return how many models take turns by their backward passes; None where they do not, or too few rounds tell."""
    turns = next((at for at, one in enumerate(passes) if at and one == passes[0]), 0)
    if turns < 2 or len(passes) < _ROUNDS * turns or len(set(passes[:turns])) < turns:
        return None
    return turns if all(one == other for one, other in zip(passes, passes[turns:], strict=False)) else None


def _backward_passes(trace: Trace, begin: Ints, end: Ints) -> list[bytes]:
    """Return for each stretch what tells its backward pass from others, how often each node ran; empty without one."""
    engine = np.array([name.startswith(ENGINE_FRAMES) for name in trace.names], bool)
    operators = trace.operators
    nodes = np.flatnonzero(engine[operators.name]) if len(operators) else np.empty(0, np.int64)
    nodes = nodes[np.argsort(operators.start[nodes], kind="stable")]
    names = operators.name[nodes]
    first, last = (np.searchsorted(operators.start[nodes], at) for at in (begin, end))
    return [np.sort(names[one:other]).tobytes() for one, other in zip(first, last, strict=True)]


def _fetches(trace: Trace, begin: Ints, end: Ints) -> Ints:
    """Return how many batches are fetched in each stretch, as far as annotations tell."""
    spans = trace.annotations
    loads = np.array([says_loading(name) == STRONG for name in trace.names], bool)
    at = np.sort(spans.start[loads[spans.name]]) if len(spans) else np.empty(0, np.int64)
    return np.searchsorted(at, end) - np.searchsorted(at, begin)
