"""The one scale of recording's cost at which the replayed step is as long as the untraced one.

The more recording costs, the shorter is the step without it, down to what the devices take: so the scale is found by
bisection on the replay, and a step that its devices bound does not move at any scale. Then the scale is not known, and
need not be: the step as run is the same at all of them.
"""

import math
import statistics
from collections import Counter
from typing import Literal

import msgspec

from scalescope.records.steps.unevenness import BY_FRESH_PAGES
from scalescope.scaling.as_run.at_power import MOST_SLOWER, at_power_ns
from scalescope.scaling.as_run.recording import RecordingTerms
from scalescope.scaling.as_run.replays import HIGHEST_SCALE, NEAR, Replays
from scalescope.scaling.as_run.untraced_step import Untraced
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.host_cost import (
    HostCost,
    Recording,
)
from scalescope.scaling.replay.simulate import (
    simulate_steps,
)

Source = Literal["steps", "given", "metadata", "range", "not_needed"]
Reason = Literal["not_reached", "untraced_longer"]

#: A step that no recording's cost moves by more than this share is its devices'.
_MOVES = 0.005
#: One that was given is hit as near as its digits tell it: as another one it would be read as another step.
AS_GIVEN = 0.0002
#: So far from what the replay can reach, an untraced step is told to be out of its reach.
_OUT_OF_REACH = 0.02
#: Devices take up to this share longer, too, while they are recorded (0.3 to 2.2% on H200, whatever they run), and
#: their clocks drift by as much either way: the same job's steps, of 16.1 ms in one second, took 16.5 in another.
ON_DEVICES = 0.025
#: Recording writes down when each activity begins and ends, on the device itself: of steps that their devices bound, on
#: H200, 0.1 to 0.9 µs an activity, most in graphs. Part of it lies in the activities' own times.
EACH_ACTIVITY_NS = 700.0
#: Beside the one at the highest scale; most are there after one or two.
_MOST_REPLAYS = 10
#: Of devices' paces that are tried.
_MOST_PACES = 3
#: Operators are no quicker than so many times as long as recorded: what a step is longer by beyond that, others make.
_QUICKEST = 0.3
#: Of paces of operators that are tried.
_MOST_OPERATORS = 6


class Calibration(msgspec.Struct, frozen=True):
    """What recording costs, and the step without it, ns."""

    recording: Recording
    step_ns: Interval
    source: Source
    reason: Reason | None = None
    spent_ns: Interval | None = None  # what recording costs, where its terms tell, and not the untraced step
    slowed_ns: float = 0.0  # what operators took longer beside that, a step, and which is taken off them


def calibrate(
    graph: Graph,
    traced_ns: float,
    cost: HostCost,
    terms: RecordingTerms,
    untraced: Untraced | None,
    known: Replays | None = None,
    *,
    held_up: bool = False,
) -> Calibration:
    """Return the scale at which the step of a graph as traced, which replays as `traced_ns`, is the untraced one.

    Without an untraced step the terms' own range gives a range. `known`: replays of the same graph at the same cost.
    `held_up`: the traces tell of something that holds hosts up. Raises RunError where the replay stalls.
    """
    replays = (known or Replays(graph, cost)).of_another(traced_ns)
    if untraced is not None:
        replays = _as_quick_as(replays, untraced.step_ms)
        traced_ns = replays.at(0.0)
    if traced_ns - replays.from_trace(HIGHEST_SCALE) <= _MOVES * traced_ns:
        return _not_needed(replays, terms, traced_ns, untraced)
    if untraced is None:
        return _range(replays, terms)
    return _fit(replays, terms, untraced, traced_ns, replays.at(HIGHEST_SCALE), held_up=held_up)


def _not_needed(replays: Replays, terms: RecordingTerms, step: float, untraced: Untraced | None) -> Calibration:
    starts = replays.starts[HIGHEST_SCALE]
    scale = terms.scale_from(0.0)
    if untraced is None:
        quickest = replays.with_quicker_copies(1.0)
        least = step if quickest is replays else min(step, quickest.from_trace(HIGHEST_SCALE))
        recording = Recording(replays.cost, scale, starts, copies_high=quickest.copies)
        step_ns = Interval(step, _on_devices(replays, least), step * (1 + ON_DEVICES))
        return Calibration(recording, step_ns, "not_needed")
    recording = Recording(replays.cost, scale, starts, copies=replays.copies, copies_high=replays.copies)
    untraced_ms = untraced.step_ms
    return Calibration(recording, _covering(step, untraced_ms), "not_needed", _why_off(step, untraced_ms))


def _why_off(step_ns: float, untraced_ms: Interval) -> Reason | None:
    """Return why a step cannot be the untraced one, where it cannot."""
    if step_ns > untraced_ms.high * 1e6 * (1 + _OUT_OF_REACH):
        return "not_reached"
    return "untraced_longer" if step_ns < untraced_ms.low * 1e6 * (1 - _OUT_OF_REACH) else None


def _range(replays: Replays, terms: RecordingTerms) -> Calibration:
    longest, step, shortest = (replays.at(scale) for scale in (terms.low, terms.likely, terms.high))
    same = longest - shortest <= _MOVES * longest
    quickest = replays.with_quicker_copies(1.0)
    if quickest is not replays:
        shortest = min(shortest, quickest.at(terms.high))
    recording = replays.recording(Interval(terms.likely, terms.low, terms.high), copies_high=quickest.copies)
    longest = min(max(step, longest) + _unexplained(replays.graph), max(replays.at(0.0), longest))
    low = min(step, shortest)
    at_devices = low <= replays.at(HIGHEST_SCALE) * (1 + NEAR)
    low = _on_devices(replays, low) if at_devices else low * (1 - ON_DEVICES)
    step_ns = Interval(step, low, longest * (1 + ON_DEVICES))
    return Calibration(recording, step_ns, "not_needed" if same else "range")


def _as_quick_as(replays: Replays, untraced_ms: Interval) -> Replays:
    """Return replays whose copies of pageable memory are as quick as an untraced step tells, of one that is shorter
    than all that recording can cost makes it. They are no quicker than the window's quickest.
    """
    goal, shortest = 1e6 * untraced_ms.value, replays.from_trace(HIGHEST_SCALE)
    if shortest <= goal * (1 + NEAR):
        return replays
    quickest = replays.with_quicker_copies(1.0)
    if quickest is replays or (gained := shortest - quickest.from_trace(HIGHEST_SCALE)) <= 0:
        return replays
    found = replays.with_quicker_copies(min(1.0, (shortest - goal) / gained))
    return found.of_another(found.from_trace(0.0))


def _on_devices(replays: Replays, step_ns: float) -> float:
    """Return how short a step that its devices bound may be without recording, ns: at their own pace, whatever their
    clocks do, and without writing down what they run.
    """
    written = 0.0 if replays.cost.inside.size else _written_down(replays.graph)
    return step_ns - math.hypot(ON_DEVICES * step_ns, written)


def _written_down(graph: Graph) -> float:
    """Return what writing down a step's activities takes a device, ns, on the rank that has most of them."""
    of_ranks = Counter(node.rank for node in graph.activities if node.step >= 0)
    return EACH_ACTIVITY_NS * max(of_ranks.values(), default=0) / max(1, len(graph.step_numbers))


def _unexplained(graph: Graph) -> float:
    """Return how long a step waits, ns, for what the traces do not show: with or without recording."""
    return max(graph.unexplained_ns.values(), default=0.0) / max(1, len(graph.step_numbers))


def _fit(
    replays: Replays, terms: RecordingTerms, untraced: Untraced, traced_ns: float, shortest: float, *, held_up: bool
) -> Calibration:
    untraced_ms = untraced.step_ms
    if _terms_tell_more(replays, terms, untraced, traced_ns, shortest):
        slowed = replays.at(terms.likely)
        spent = Interval(
            *(max(0.0, traced_ns - one) for one in (slowed, replays.at(terms.low), replays.at(terms.high)))
        )
        replays = _at_pace_of_job(replays, terms, untraced)
        step = replays.at(terms.likely)
        recording = replays.recording(Interval(terms.likely, terms.low, terms.high))
        # by more than any cost of recording they contradict the traces as ever
        why = _why_off(min(step, max(shortest, 1e6 * untraced_ms.value)), untraced_ms)
        return Calibration(
            recording, _covering(step, untraced_ms), untraced.source, why, spent, max(0.0, slowed - step)
        )
    least, most = (min(max(1e6 * one, 0.0), traced_ns) for one in (untraced_ms.low, untraced_ms.high))
    # from here on its devices bound the step, as far as their own pace is known
    drift = NEAR / 2 if replays.cost.inside.size else ON_DEVICES
    goal, at_device = 1e6 * untraced_ms.value, shortest * (1 + drift)
    slower = at_device
    if not replays.cost.inside.size and not held_up:  # what holds a host up explains a longer step better
        slower = max(at_device, at_power_ns(replays.graph, replays.at(terms.likely), goal))
    if replays.copies:  # whose pace was fitted to it
        at_device = shortest * (1 + NEAR / 2)
    # nor is a step that its devices bound so much longer than them, however little is known how long it is
    fitted = least > slower or (not replays.cost.inside.size and goal > MOST_SLOWER * shortest)
    if not fitted:  # hosts are not blamed for what devices differ by themselves
        scale = _beyond(replays, terms, max(most, at_device if replays.copies else slower), max(goal, at_device), most)
        paced = _at_pace(replays, scale.value, min(goal, slower))
        fitted = paced.devices > MOST_SLOWER * replays.devices  # not by so much: something holds hosts up
        replays = replays if fitted else paced
    if fitted:
        near = AS_GIVEN if untraced.source == "given" else NEAR
        value = _solve(replays, min(untraced_ms.value * 1e6, traced_ns), terms.likely, near)
        low, high = replays.scale_for(most, value), replays.scale_for(least, value)
        scale = Interval(value, min(low, value), max(high, value))
    step = replays.at(scale.value)
    why = _why_off(step, untraced_ms)
    recording = replays.recording(scale, fitted=fitted and why is None)
    return Calibration(recording, _covering(step, untraced_ms), untraced.source, why)


def _terms_tell_more(
    replays: Replays, terms: RecordingTerms, untraced: Untraced, traced_ns: float, shortest: float
) -> bool:
    """Tell whether ranks on CPUs know what recording costs by its terms, and not by untraced steps.

    Those differ by more on shared cores. What they differ by would pass for the cost where they happen to be the
    shorter ones, and never where they are the longer ones: over several windows the step as run would be shorter than
    the mean of the traced ones and of the untraced ones alike. So the job's own steps tell the cost only where they
    are known better than the terms leave it open: by how much a window's steps are longer for another reason, they
    tell all the same. A step that was given is what it is.
    """
    least, most = 1e6 * untraced.step_ms.low, 1e6 * untraced.step_ms.high
    if not replays.cost.inside.size:
        return False
    if untraced.source != "given" and most - least > replays.at(terms.low) - replays.at(terms.high):
        return True
    if untraced.agrees and most < replays.at(terms.high):
        return True  # no cost of recording is what the window's steps are longer by
    return least < traced_ns < most and (shortest > least or replays.at(terms.high) > least)


def _at_pace_of_job(replays: Replays, terms: RecordingTerms, untraced: Untraced) -> Replays:
    """Return replays whose operators are as quick as in the job's own steps, where the window's typical one is longer.

    What a window records takes memory amid the activations, whose pages are fresh ones in each step: operators that
    fill them take longer. A step longer than the typical one stays so. Own steps that differ by more tell nothing,
    unless those right before and after the window agree.
    """
    beside, own = untraced.step_ms, 1e6 * untraced.pace_ms
    if beside.half > BY_FRESH_PAGES * beside.value and not untraced.agrees:
        return replays
    slowed = replays.at(terms.likely)
    steps = [statistics.fmean(of_ranks) for of_ranks in zip(*simulate_steps(replays.graph).values(), strict=False)]
    typical = statistics.median(steps) - (replays.at(0.0) - slowed)
    if typical > (1 + BY_FRESH_PAGES) * 1e6 * beside.value and not untraced.agrees:
        return replays
    # the typical one becomes as long as the shorter of both, and the mean no shorter than one of the job's own
    mean = own + 1e6 * untraced.longer_ms
    if (longer := min(typical - min(own, 1e6 * beside.value), slowed - mean)) <= NEAR / 2 * own:
        return replays
    quickest, slowest, short, long = _QUICKEST, 1.0, math.nan, longer  # by so much the step is then too short, or long
    for _ in range(_MOST_OPERATORS):
        along = 0.5 if math.isnan(short) else long / (long + short)
        times = slowest + along * (quickest - slowest)
        found = replays.with_quicker_operators(times)
        left = found.at(terms.likely) - (slowed - longer)
        if abs(left) <= NEAR / 2 * own:
            break
        if left > 0:
            slowest, long = times, left
        else:
            quickest, short = times, -left
    return found


def _at_pace(replays: Replays, scale: float, goal: float) -> Replays:
    """Return replays with devices that are slower than recorded where only so the step is as long as the goal, ns."""
    if replays.cost.inside.size:  # ranks on CPUs: their hosts are their devices
        return replays
    paced, times = replays, 1.0
    for _ in range(_MOST_PACES):
        step = paced.at(scale)
        if step >= goal * (1 - NEAR / 4):
            break
        times *= goal / step  # not all of a step is its devices', so it takes more than one
        paced = replays.on_slower_devices(times)
    return paced


def _beyond(replays: Replays, terms: RecordingTerms, most_ns: float, likely_ns: float, untraced_ns: float) -> Interval:
    """Return the scales at which the hosts take no longer than a step that its devices bound.

    All that such a step tells is a least scale: how far ahead of their devices the hosts are, only the terms
    themselves do. But the step at the likeliest scale is no longer than the untraced one is, `likely_ns`, however far
    that one's interval reaches. And no host takes longer for its own calls than the untraced step at its longest,
    `untraced_ns`, whatever pace devices have.
    """
    least = replays.least_scale_for(most_ns, terms.likely)
    if not replays.cost.inside.size:
        least = max(least, replays.scale_of_hosts(untraced_ns) or 0.0)
    found = terms.scale_from(least)
    value = max(found.value, replays.least_scale_for(likely_ns, terms.likely))
    return Interval(*(min(one, HIGHEST_SCALE) for one in (value, found.low, max(found.high, value))))


def _solve(replays: Replays, goal: float, likely: float, near: float) -> float:
    """Return a replayed scale at which the step is `near` the goal, ns, as a share of it.

    The first guess needs no replay: where the hosts bound the step, it is as long as what the slowest host's own calls
    take. From there on a line through the replayed steps on both sides of the goal tells the next scale; where the
    upper one is its devices' already, the step does not lie on that line, and the scale is halved.
    """
    if replays.at(0.0) <= goal * (1 + near):
        return 0.0
    low, high = 0.0, HIGHEST_SCALE
    tried = replays.scale_of_hosts(goal) or likely
    for _ in range(_MOST_REPLAYS):
        step = replays.at(tried)
        if abs(step - goal) <= near * goal:
            return tried
        low, high = (tried, high) if step > goal else (low, tried)
        longer, shorter = replays.at(low), replays.at(high)
        along = (longer - goal) / (longer - shorter) if longer > shorter else 0.5
        at_devices = shorter <= replays.at(HIGHEST_SCALE) * (1 + NEAR)
        tried = (low + high) / 2 if at_devices else low + (high - low) * min(max(along, 0.05), 0.95)
    return min((low, high), key=lambda scale: abs(replays.at(scale) - goal))


def _covering(step_ns: float, untraced_ms: Interval) -> Interval:
    """Return a replayed step with an interval that holds it and what was told, ns."""
    return Interval(step_ns, min(step_ns, untraced_ms.low * 1e6), max(step_ns, untraced_ms.high * 1e6))
