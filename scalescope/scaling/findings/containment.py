"""Which cause goes with which: what taking one out takes out, too, and in what order they are then taken out.

What all ranks have in common holds what one of them has beyond that; a copy that the host waits for is a copy and a
wait. What all of them bring together has to be dealt out with that in mind (`pricing`).
"""

from collections.abc import Sequence

from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.figures import GARBAGE
from scalescope.scaling.finding.kinds import is_counted
from scalescope.scaling.findings.candidate import WORTH_SAYING, Candidate, Scene, gained_ms
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal

#: What holds one host up.
_OF_ONE_HOST: tuple[Code, ...] = ("host_stall", "host_starved", "data_loading")
#: Of these, what is no launching where all hosts have it.
_NO_LAUNCHING: tuple[Code, ...] = ("host_stall", "data_loading")
#: What the records of a host name, beside operators, that no interruption makes.
_RECORDED: tuple[Code, ...] = ("recompilation", "allocation")


def without_contained(scene: Scene, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates without those that go with another one: what they bring, that one brings, and more.

    A copy that the host waits for is a copy and a wait. Dealt out between the two, neither had its size; and which one
    is meant, the one tells without which some of it stays.
    """
    left = list(candidates)
    priced = [one for one in candidates if one.removals and one.seen is None]
    pairs = [(part, whole) for part in priced for whole in priced if part is not whole]
    alone = {one.removals: Change(without=one.removals) for one in priced}
    both = {(one.removals, other.removals): Change(without=removals_of(in_order(priced, [one, other])))
            for one, other in pairs}  # fmt: skip
    scene.replayer.work_out(list(dict.fromkeys([*alone.values(), *both.values()])), quick=True, near=True)
    for part, whole in pairs:
        if sum(one is part or one is whole for one in left) < 2:
            continue  # one of them has gone with another already, and takes nothing with it
        if _holds(whole, part) or _holds(part, whole):
            continue
        if part.code != "synchronising" and is_counted(part.evidence):
            continue  # it is there, whatever hides behind it or it behind; a wait may be for what is another cause
        if part.rank is not None and whole.rank is None:
            continue  # what one rank has and the others do not is no part of what all of them do
        least = least_to_say_ms(scene, part)
        by_part, by_whole = (gained_ms(scene.replayer, alone[one.removals]) for one in (part, whole))
        by_both = gained_ms(scene.replayer, both[part.removals, whole.removals])
        adds = by_both - by_part >= least
        if _is_recorded(part, whole) and by_part >= least and by_both - by_part < by_part:
            left = [one for one in left if one is not whole]  # most of what it would bring is what was recorded
        elif by_part >= least > by_both - by_whole and (adds or _is_one_cause(whole, part)):
            left = [one for one in left if one is not part]
    return left


def _is_recorded(part: Candidate, whole: Candidate) -> bool:
    """Whether a host's own records name one cause of its gaps, and the other is that it is interrupted: whatever that
    takes out of its gaps, it makes no host compile, and none collect garbage.
    """
    recorded = part.code in _RECORDED or any(row.name == GARBAGE for row in part.evidence)
    return recorded and whole.code == "host_starved" and part.rank == whole.rank is not None


def _is_one_cause(copies: Candidate, waits: Candidate) -> bool:
    """Whether two candidates are one rank's copies and its waits for them, either of which takes out the other."""
    return (copies.code, waits.code) == ("copies", "synchronising") and copies.rank == waits.rank is not None


def held_by(candidates: Sequence[Candidate], one: Candidate) -> tuple[Removal, ...]:
    """Return what is taken out before a candidate, which would go with it."""
    return removals_of([other for other in candidates if _holds(one, other)])


def first_and_last(candidates: Sequence[Candidate], one: Candidate) -> tuple[tuple[Change, Change], ...]:
    """Return what is taken out before, and with, a candidate where it goes as early as it can, and as late."""
    inside = [other for other in candidates if _holds(one, other)]
    later = [other for other in candidates if _holds(other, one)]
    rest = [other for other in candidates if other is not one and other not in later]
    return tuple(
        (Change(without=removals_of(before)), Change(without=removals_of(in_order(candidates, [*before, one]))))
        for before in (inside, rest)
    )


def _holds(whole: Candidate, part: Candidate) -> bool:
    """Whether taking out what is of all ranks takes out what is of one rank, too; or what a host does longer, stalls
    that it has in some steps.
    """
    if lets_show(whole, part):
        return True
    if part.seen is not None:
        return any(one.what in ("host", "gaps") and one.rank in (None, part.rank) for one in whole.removals)
    everywhere = {removal.what for removal in whole.removals if removal.rank is None and removal.what != "pause"}
    if "host" in everywhere:  # whatever a host takes longer, gaps among it
        everywhere.add("gaps")
    return part is not whole and bool(part.removals) and all(
        removal.rank is not None and removal.what in everywhere for removal in part.removals
    )  # fmt: skip


def lets_show(whole: Candidate, part: Candidate) -> bool:
    """Whether all hosts wait for their devices, and so cannot run ahead of what holds one of them up.

    Without the waits the others would hide it, and without it they would wait for next to nothing: either cure takes
    out the same time. What one rank has and the others do not is the cause then, and the waits are how it shows. So is
    what all hosts do, or wait for, where that is a batch or nothing at all that is recorded.
    """
    everyone_waits = whole.code == "synchronising" and whole.rank is None
    is_cause = part.code in _OF_ONE_HOST and (part.rank is not None or part.code in _NO_LAUNCHING)
    return everyone_waits and is_cause and bool(part.removals)


def least_to_say_ms(scene: Scene, candidate: Candidate) -> float:
    """Return what a candidate must bring at least to be worth saying, ms a step."""
    return min(WORTH_SAYING, candidate.least_share) * scene.step_ms


def removals_of(candidates: Sequence[Candidate]) -> tuple[Removal, ...]:
    """Return all that takes the candidates out, each once."""
    return tuple(dict.fromkeys(removal for one in candidates for removal in one.removals))


def in_order(candidates: Sequence[Candidate], chosen: Sequence[Candidate]) -> list[Candidate]:
    """Return the chosen ones as they stand among all: the same change is then worked out once."""
    return [one for one in candidates if any(one is other for other in chosen)]
