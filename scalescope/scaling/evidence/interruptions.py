"""Interruptions: a host that does not get on where it otherwise does, now here, now there.

A thread that shares its core with others is taken off it for milliseconds, and one that waits for the interpreter's
lock for as long as another holds it. That happens anywhere: a place that took microseconds in the other steps takes
milliseconds in this one. A stall that a program makes itself comes back at the same place in every step, and is not
counted here.

The lock has a length of its own. A thread that computes in Python keeps it until it is asked for it, and a waiting one
asks once in a switch interval: so such waits last that interval and the moment that the other takes to let go, at all
places alike. A scheduler's turns last what its ticks do, and a C function that holds the lock lets nobody ask.
"""

import msgspec
import numpy as np

from scalescope.scaling.evidence.gaps import Located
from scalescope.scaling.trace.intervals import Ints

#: A stretch is an interruption from this length on, ns, and from so many times what its place takes in most steps.
SHORTEST_NS = 300_000
_TIMES = 3
#: Python's switch interval unless a program sets another, ns; a wait for it is up to so much longer, with the moment
#: that the other thread takes to let go.
SWITCH_INTERVAL_NS, _LETS_GO_NS = 5_000_000, 500_000
#: Stretches are such waits where so many are as long, at so many places, and fewer a little shorter or longer than
#: that: of lengths that are anything, three times as many would be. Turns on a core last 4 ms and its multiples.
_LEAST_WAITS, _LEAST_PLACES = 6, 3
_ABOUT_NS = 4_400_000, 6_500_000
#: Turns that a scheduler gives to others are no longer, ns.
LONGEST_TURN_NS = 20_000_000
#: With fewer steps it cannot be told what a place usually takes.
_LEAST_STEPS = 3


class Interruptions(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's interruptions. Tuples have a value a step."""

    ns: tuple[int, ...]  # beyond what the places usually take
    count: tuple[int, ...]
    longest_ns: int
    places: int  # at which there are any
    inside_operators: float  # the share of them in which an operator is open: not between two, where Python runs


class LockWaits(msgspec.Struct, frozen=True):
    """Stretches as long as Python's switch interval: another thread of the process holds the interpreter's lock."""

    ns: tuple[int, ...]  # a step
    count: tuple[int, ...]


def lock_waits(stretches: Located, steps: int) -> LockWaits | None:
    """Return the stretches that last as long as waits for the interpreter's lock do; None where that tells nothing.

    An operator that computes lets go of the lock, and wants it back behind its end: what lasts so long in it is work.
    """
    between = ~np.asarray(stretches.computes, bool)
    length = np.where(between, stretches.ends - stretches.starts, 0)
    about = (length >= _ABOUT_NS[0]) & (length < _ABOUT_NS[1])
    waits = (length >= SWITCH_INTERVAL_NS) & (length < SWITCH_INTERVAL_NS + _LETS_GO_NS)
    found = int(waits.sum())
    if found < _LEAST_WAITS or 2 * found <= about.sum():
        return None
    if np.unique(stretches.place[waits]).size < _LEAST_PLACES:
        return None  # a program that sleeps for so long does so at its own place
    ns = np.zeros(steps, np.int64)
    np.add.at(ns, stretches.step[waits], length[waits])
    count = np.bincount(stretches.step[waits], minlength=steps)
    return LockWaits(tuple(ns.tolist()), tuple(count.tolist()))


def interruptions(stretches: Located, steps: int) -> Interruptions | None:
    """Return the interruptions among stretches in which nothing recorded begins or ends; None where there are none."""
    if steps < _LEAST_STEPS or not stretches.place.size:
        return None
    length = stretches.ends - stretches.starts
    longest = np.zeros((int(stretches.place.max()) + 1, steps), np.int64)
    np.maximum.at(longest, (stretches.place, stretches.step), length)
    usual = np.median(longest, axis=1).astype(np.int64)[stretches.place]
    return _beyond(stretches, steps, usual)


def interruptions_alone(stretches: Located, steps: int) -> Interruptions | None:
    """Return the interruptions of a host without others to compare it with; None where there are none.

    A host that is interrupted many times a step is so in most steps at a place to which it comes many times: there the
    typical one of all its stretches tells what the place takes. Work that is long once a step has few places.
    """
    if steps < _LEAST_STEPS or not stretches.place.size:
        return None
    length = stretches.ends - stretches.starts
    longest = np.zeros((int(stretches.place.max()) + 1, steps), np.int64)
    np.maximum.at(longest, (stretches.place, stretches.step), length)
    order = np.lexsort((length, stretches.place))
    begins = np.searchsorted(stretches.place[order], np.arange(longest.shape[0] + 1))
    middle = (begins[:-1] + begins[1:]) // 2
    typical = length[order][np.minimum(middle, length.size - 1)]  # of a place without stretches: read by none
    usual = np.minimum(np.median(longest, axis=1).astype(np.int64), typical)[stretches.place]
    return _beyond(stretches, steps, usual)


def _beyond(stretches: Located, steps: int, usual: Ints) -> Interruptions | None:
    """Return the stretches that are much longer than is usual at their places."""
    length = stretches.ends - stretches.starts
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


#: A wait that other processes make longer is still one up to so many switch intervals.
_MOST_INTERVALS = 4


def is_lock_wait(ns: float) -> bool:
    """Tell whether a host that waits for the interpreter's lock may stand still for so long because of that."""
    return SWITCH_INTERVAL_NS / 2 <= ns < _MOST_INTERVALS * SWITCH_INTERVAL_NS
