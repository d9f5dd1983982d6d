"""Interruptions: a host that does not get on where it otherwise does, now here, now there.

A thread that shares its core with others is taken off it for milliseconds, and one that waits for the interpreter's
lock for as long as another holds it. That happens anywhere: a place that took microseconds in the other steps takes
milliseconds in this one. A stall that a program makes itself comes back at the same place in every step, and is not
counted here.
"""

import msgspec
import numpy as np

from scalescope.scaling.evidence.gaps import Located

#: A stretch is an interruption from this length on, ns, and from so many times what its place takes in most steps.
SHORTEST_NS = 300_000
_TIMES = 3
#: With fewer steps it cannot be told what a place usually takes.
_LEAST_STEPS = 3


class Interruptions(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's interruptions. Tuples have a value a step."""

    ns: tuple[int, ...]  # beyond what the places usually take
    count: tuple[int, ...]
    longest_ns: int
    places: int  # at which there are any
    inside_operators: float  # the share of them in which an operator is open: not between two, where Python runs


def interruptions(stretches: Located, steps: int) -> Interruptions | None:
    """Return the interruptions among stretches in which nothing recorded begins or ends; None where there are none."""
    if steps < _LEAST_STEPS or not stretches.place.size:
        return None
    length = stretches.ends - stretches.starts
    longest = np.zeros((int(stretches.place.max()) + 1, steps), np.int64)
    np.maximum.at(longest, (stretches.place, stretches.step), length)
    usual = np.median(longest, axis=1).astype(np.int64)[stretches.place]
    rows = np.flatnonzero((length >= SHORTEST_NS) & (length >= _TIMES * usual))
    if not rows.size:
        return None
    ns = np.zeros(steps, np.int64)
    np.add.at(ns, stretches.step[rows], (length - usual)[rows])
    return Interruptions(
        ns=tuple(ns.tolist()),
        count=tuple(np.bincount(stretches.step[rows], minlength=steps).tolist()),
        longest_ns=int(length[rows].max()),
        places=int(np.unique(stretches.place[rows]).size),
        inside_operators=float(stretches.inside[rows].mean()),
    )
