"""What chance makes of ranks on cores that others use: what a rank may seem to have, and what hides what it has.

A rank that loses its core while another one is late hides that one's cause: of that step, taking the cause out brings
nothing. In the next step it is the late rank that loses its core, and taking the cause out brings all of it. So a few
profiled steps say little of what a cause brings as run. How much that is at least, and at most, can be said all the
same. Without anything that chance held up, it brings what it takes, `c`, or less. With it, where no rank is held up
more often than another, it brings between `c` and its share among the ranks: of what `c` grows by, the step gains that
where its rank is the last one, which is so in one of as many steps as there are ranks, or in more.
"""

import math
import statistics
from collections.abc import Sequence

from scalescope.records.statistics import half_of_mean, is_beyond_chance
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.findings.candidate import BY_CHANCE, Candidate, Scene, gained_ms
from scalescope.scaling.findings.containment import in_order, removals_of
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal, What

#: By so many times the typical step's a rank is later in one of them, whatever made it longer still: that it was held
#: up for more once makes it no less sure of the others.
_NO_MORE = 2.0
#: What a cause brings in the mean of first and last is known no worse than so many times what it brings first.
_WIDER = 2.0
#: So many steps tell by how much they differ.
_LEAST_SPREAD = 3
#: By so much longer, as a share, all operators of one rank took than those of the other in windows of 2 to 7 steps that
#: nothing disturbed: of 41 windows of five scripts, on two cores, 7 had a rank that did so in nearly all steps,
#: by 5% to 15% in the mean.
_ALIKE_WITHIN = 0.15
#: A host that launches for a device stands still by chance where less than this share of a step is left of it, in the
#: mean, without the step that has most: of undisturbed hosts one was interrupted for 2.7 ms in one of five steps of 26.
_LEAST_REST = 0.01
#: What takes time out of a host between its launches: of two such causes of one rank the one takes out the other's.
_BETWEEN: tuple[What, ...] = ("host", "gaps", "pause")

#: What takes out of ranks what others' use of their cores made of them.
Disturbances = tuple[Removal, ...]


def may_be_chance(scene: Scene, candidate: Candidate) -> bool:
    """Tell whether a rank is later than the others by no more than their steps differ by anyway.

    What is taken out of a step is what a rank takes longer, launch by launch: of two ranks alike on cores that others
    use, too, each has much of it, and never less than none. Only where a rank is later in the sum of a step, and so in
    nearly all of them, it is that rank; and the more ranks, and causes, there are to find one, the likelier chance is.
    A host that launches for a device has a core of its own, and is late for what it does; but where it stands still now
    here and now there, one such stretch in one of a few steps is no share of a core.
    """
    if not scene.replayer.on_cpu:
        rest_ms = sum(candidate.beyond_ms) - max(candidate.beyond_ms, default=0.0)
        few = len(candidate.beyond_ms) > 1 and rest_ms < _LEAST_REST * len(candidate.beyond_ms) * scene.step_ms
        return candidate.code == "host_starved" and few
    if not candidate.beyond_ms:
        return False
    if (half := half_of_one_window(scene, candidate)) is not None and half >= 1:
        return True
    looked_at = len(scene.side.ranks) * len(BY_CHANCE)
    most = _NO_MORE * statistics.median(candidate.beyond_ms)
    capped = [min(ms, most) for ms in candidate.beyond_ms] if most > 0 else candidate.beyond_ms
    return not (is_beyond_chance(candidate.beyond_ms, looked_at) or is_beyond_chance(capped, looked_at))


def half_of_one_window(scene: Scene, candidate: Candidate) -> float | None:
    """Return within what share of itself slower compute is known by profiled steps alone; None where more tells of it.

    Who has a core, and at which pace, stays so for longer than a step: those of one window are one draw of it, whose
    mean is known no better than a step, nor than ranks alike differ. Where the job's other steps have each rank's own
    time, these tell.
    """
    times = scene.analysis.step_times
    if not scene.replayer.on_cpu or candidate.code != "slower_compute" or not candidate.beyond_ms:
        return None
    if times is not None and any(one.rank == candidate.rank for one in times.ranks):
        return None
    alike = _ALIKE_WITHIN / candidate.longer_by if candidate.longer_by > 0 else 0.0
    if len(candidate.beyond_ms) < _LEAST_SPREAD:
        return alike or None
    mean = statistics.fmean(candidate.beyond_ms)
    half = half_of_mean(candidate.beyond_ms) * math.sqrt(len(candidate.beyond_ms))
    return max(half / mean, alike) if mean > 0 else 1.0


def as_usual(scene: Scene, candidates: Sequence[Candidate], told: Sequence[Interval]) -> list[Interval]:
    """Return what candidates bring in the job's usual step, ms, given what they bring in the profiled ones.

    Those that one rank has in each step, beside others that compute on cores, and that no chance makes; the others as
    they are given.
    """
    sure = [one for one in candidates if one.rank is not None and one.seen is None and not may_be_chance(scene, one)]
    if not scene.replayer.on_cpu or len(scene.side.ranks) < 2 or not sure:
        return list(told)
    chance = removals_of([one for one in candidates if may_be_chance(scene, one)])
    freely = {
        id(one): _beyond(scene, sure, one, _disturbances(scene, sure, one, chance))
        for one in sure
        if one.in_each_ms and all(removal.what != "slow" for removal in one.removals)
    }
    there = _how_disturbed(scene, chance)
    return [
        _between(
            one,
            interval,
            free,
            dealt=_as_it_was(scene, one) if chance else None,
            there=there,
            ranks=len(scene.side.ranks),
        )
        if (free := freely.get(id(one))) is not None
        else interval
        for one, interval in zip(candidates, told, strict=True)
    ]


def _as_it_was(scene: Scene, one: Candidate) -> Interval:
    """Return what a candidate alone brings in the profiled steps, as others disturbed them."""
    found = scene.replayer.predict(Change(without=one.removals), near=True)
    ms = -(found.change_ms or 0.0)
    return Interval(ms, -(found.high_ms or 0.0), max(ms, -(found.low_ms or 0.0)))


def _between(
    one: Candidate, told: Interval, undisturbed: Interval, *, dealt: Interval | None, there: float, ranks: int
) -> Interval:
    """Return what a candidate brings as run, of what it brings in the profiled steps and in undisturbed ones.

    `dealt`: what disturbs the profiled steps was dealt out beside it, and it alone brings this there. Where that is
    more than without the disturbance, nothing was hidden by it: a rank that waits for this one, and for its core since
    this one's threads have it, does so for the same cause. `there`: how much of the disturbance the job's other steps
    have as well, 0 to 1. It falls on one rank as often as on another: half of what it hid here, it does not there.
    """
    free = dealt if dealt is not None and dealt.value > undisturbed.value else undisturbed
    # dealt out beside what disturbs the steps, it has half of what that hides of it: as they were, they lacked all
    hidden = max(0.0, free.value - told.value) if dealt else 0.0
    usual = told.value if dealt else (told.value + free.value) / 2
    low = max(min(told.low, undisturbed.value, free.value) - hidden, free.low / ranks)
    high = max(told.high, free.high)
    high = min(
        high, max(undisturbed.high, free.value, told.value, *one.in_each_ms)
    )  # no more than it takes where it takes most
    low = min(low, high)
    value = free.value - there * (free.value - usual)
    return Interval(min(max(value, low), high), low, high)


def _beyond(scene: Scene, sure: Sequence[Candidate], one: Candidate, disturbed: Disturbances) -> Interval | None:
    """Return what a candidate brings where nothing disturbs the ranks; None where no replay tells, or it is nothing."""
    replayer = scene.replayer
    calm = Change(without=disturbed)
    rest = removals_of(in_order(sure, [other for other in sure if other is not one]))
    pairs = [
        (Change(without=(*disturbed, *before)), Change(without=(*disturbed, *before, *one.removals)))
        for before in ((), rest)
    ]
    replayer.work_out([change for pair in pairs for change in pair if change.without], quick=True, near=True)
    value = statistics.fmean(
        gained_ms(replayer, after) - (gained_ms(replayer, before) if before.without else 0.0) for before, after in pairs
    )
    alone = pairs[0][1]
    replayer.work_out([*([calm] if disturbed else []), alone], near=True)
    found = replayer.predict(alone, beyond=calm if disturbed else None, near=True)
    if found.change_ms is None or found.low_ms is None or found.high_ms is None or found.change_ms >= 0 or value <= 0:
        return None
    around = as_far_off(value, Interval(-found.change_ms, -found.high_ms, -found.low_ms))
    low = around.low
    if (mean := statistics.fmean(one.in_each_ms)) > 0:
        # it takes so much in each of the steps, whichever of them feels it
        low = max(low, value * min(one.in_each_ms) / mean)
    return Interval(value, max(0.0, low), around.high)


def as_far_off(value: float, alone: Interval) -> Interval:
    """Return what a cause brings in the mean of first and last, ms, as far off as what it brings alone.

    Where that is next to nothing, no share of it tells how far off the mean may be.
    """
    times = min(max(value / alone.value, 1.0), _WIDER)
    return Interval(value, value - times * (alone.value - alone.low), value + times * (alone.high - alone.value))


def _disturbances(scene: Scene, sure: Sequence[Candidate], one: Candidate, chance: Sequence[Removal]) -> Disturbances:
    """Return what makes the other ranks compute as a candidate's does, and takes out of them what chance may have made.

    Where others have the ranks' cores for as long on each, nothing that they do hides what one of them has beyond that.
    """
    own = {
        (rank, what)
        for other in sure
        for removal in other.removals
        for rank in (other.late if removal.rank is None else (removal.rank,))
        for what in _alike(removal.what)
    }
    own |= {(rank, "slow") for rank in one.late}
    slow = [Removal("slow", rank) for rank in scene.side.ranks]
    return tuple(removal for removal in dict.fromkeys((*slow, *chance)) if (removal.rank, removal.what) not in own)


def _alike(what: What) -> tuple[What, ...]:
    return _BETWEEN if what in _BETWEEN else (what,)


def _how_disturbed(scene: Scene, chance: Disturbances) -> float:
    """Return how much of what disturbs the profiled steps the job's other steps have, 0 to 1, by how long they are."""
    known, profiled = scene.replayer.known_ns, scene.replayer.base_ns
    if known is None or known.value >= profiled or not chance:
        return 1.0
    calm = profiled - 1e6 * gained_ms(scene.replayer, Change(without=chance))
    return min(max((known.value - calm) / (profiled - calm), 0.0), 1.0) if calm < profiled else 1.0
