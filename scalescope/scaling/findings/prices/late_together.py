"""Several late ranks in one step: it waits for the latest, so that one of them hides what another one costs.

Of two ranks that are late alike, mending either one brings nothing, and mending both brings all of it. Where they are
late by the same cause that is one finding, of both. A rank that is later than another costs what it is later by, since
the step waits for the other one then; and the other costs what is left, once the first is mended. So late ranks are
taken out one after another, the latest first. Whoever brings less than the next one would be ahead of it for no good
reason: those are late together, and only all of them bring what they cost.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import AlsoLate, EvidenceRow, Order, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene, gained_ms
from scalescope.scaling.findings.containment import in_order, least_to_say_ms, removals_of
from scalescope.scaling.findings.hosts.by_chance import may_be_chance
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.replay.change import Change

#: What ranks bring together beyond what each brings alone, as a share of it, for them to hide each other.
_HIDDEN = 0.1
#: Ranks are late alike where each is late by so much of what the latest of them is.
_ALIKE = 0.75
#: Causes that are at no place and have no name by which two of them would be the same.
_NAMELESS: tuple[Code, ...] = (
    "more_work", "slower_compute", "throttled", "data_loading", "host_starved", "synchronising", "copies",
)  # fmt: skip


class _Unit(NamedTuple):
    """What is mended at once: the causes of one rank, or of several ranks alike."""

    ranks: tuple[int, ...]
    causes: list[Candidate]
    alone_ms: float  # what taking it out brings by itself
    last_ms: float  # what it brings once all others are out: by how much it is late


class _Block(NamedTuple):
    """Units that are late together, behind those that are later."""

    units: list[_Unit]
    ms: float  # what taking them out brings then
    so_far_ms: float  # with all that are later


def alike_as_one(scene: Scene, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates, of ranks that are late together those of the same cause as one."""
    late = [one for one in candidates if _is_late(scene, one)]
    found = list(candidates)
    ranks = sorted({rank for one in late for rank in one.late})
    for block in _blocks(scene, _units(scene, late, [(rank,) for rank in ranks])):
        by_rank = {unit.ranks[0]: unit for unit in block.units}
        for same in _same_causes([one for unit in block.units for one in unit.causes]):
            late_ms = [_late_ms(one, same, by_rank[one.late[0]]) for one in same]
            alike = [one for one, ms in zip(same, late_ms, strict=True) if ms >= _ALIKE * max(late_ms)]
            if 1 < len(alike) < len(scene.side.ranks):
                merged = _as_one(scene, alike)
                found = [merged if one is alike[0] else one for one in found
                         if one is alike[0] or not _is_in(alike, one)]  # fmt: skip
    return found


def _late_ms(one: Candidate, same: Sequence[Candidate], unit: _Unit) -> float:
    """Return by how much a rank is late for a cause: by what it does, where that is known of all, else as replayed."""
    if all(cause.evidence and cause.evidence[0].ms is not None for cause in same):
        return (one.evidence[0].ms or 0.0) - (one.evidence[0].others_ms or 0.0)
    return unit.last_ms


def latest_first(scene: Scene, gains: Sequence[Gain]) -> list[Gain]:
    """Return what candidates bring, of several late ranks as they are mended one after another, the latest first."""
    late = [one for one in gains if _is_late(scene, one.candidate) and one.ms > 0 and not one.candidate.at_most]
    causes = [one.candidate for one in late]
    blocks = _blocks(scene, _units(scene, causes, list(dict.fromkeys(one.late for one in causes))))
    whole = blocks[-1].so_far_ms if blocks else 0.0
    if whole <= 0:
        return list(gains)
    # what the profiled steps gain is known as it is as run by what was dealt out
    times = sum(one.ms for one in late) / whole
    changed: dict[int, Gain] = {}
    ordered: list[Gain] = []
    for block in blocks:
        own = [one for one in late if any(_is_in(unit.causes, one.candidate) for unit in block.units)]
        dealt = times * block.ms / sum(one.ms for one in own)
        for one in own:
            unit = next(unit for unit in block.units if _is_in(unit.causes, one.candidate))
            told = replace(one.candidate, also_late=_also_late(unit, block, blocks, times))
            changed[id(one)] = _times(replace(one, candidate=told), dealt)
        ordered += sorted((changed[id(one)] for one in own), key=lambda one: -one.ms)
    return [*ordered, *(one for one in gains if id(one) not in changed)]


def _is_late(scene: Scene, one: Candidate) -> bool:
    return one.rank is not None and bool(one.removals) and one.seen is None and not may_be_chance(scene, one)


def _is_in(causes: Sequence[Candidate], one: Candidate) -> bool:
    return any(one is other for other in causes)


def _times(gain: Gain, times: float) -> Gain:
    return replace(gain, ms=times * gain.ms, low_ms=times * gain.low_ms, high_ms=times * gain.high_ms)


def _units(scene: Scene, causes: Sequence[Candidate], ranks: Sequence[tuple[int, ...]]) -> list[_Unit]:
    """Return the causes by the ranks that have them; none where those do not hide each other."""
    by_ranks = {one: [cause for cause in causes if cause.late == one] for one in ranks}
    if len(by_ranks) < 2:
        return []
    alone = {one: Change(without=removals_of(own)) for one, own in by_ranks.items()}
    rest = {one: Change(without=removals_of(in_order(causes, [cause for cause in causes if not _is_in(own, cause)])))
            for one, own in by_ranks.items()}  # fmt: skip
    everything = Change(without=removals_of(causes))
    scene.replayer.work_out([everything, *alone.values(), *rest.values()], quick=True, near=True)
    whole = gained_ms(scene.replayer, everything)
    units = [
        _Unit(one, own, gained_ms(scene.replayer, alone[one]), whole - gained_ms(scene.replayer, rest[one]))
        for one, own in by_ranks.items()
    ]
    if sum(unit.alone_ms for unit in units) >= (1 - _HIDDEN) * whole:
        return []
    told = [unit for unit in units if unit.last_ms >= min(least_to_say_ms(scene, one) for one in unit.causes)]
    return told if len(told) > 1 else []


def _blocks(scene: Scene, units: Sequence[_Unit]) -> list[_Block]:
    """Return units as they are late, the latest first; together, those of which one brings less than the next."""
    ordered = sorted(units, key=lambda unit: (-unit.last_ms, unit.ranks))
    causes = [one for unit in units for one in unit.causes]
    chain = [
        Change(without=removals_of(in_order(causes, [one for unit in ordered[: at + 1] for one in unit.causes])))
        for at in range(len(ordered))
    ]
    scene.replayer.work_out(chain, quick=True, near=True)
    blocks: list[_Block] = []
    before = 0.0
    for unit, change in zip(ordered, chain, strict=True):
        so_far = max(gained_ms(scene.replayer, change), before)
        block = _Block([unit], so_far - before, so_far)
        while blocks and blocks[-1].ms < block.ms:
            last = blocks.pop()
            block = _Block([*last.units, *block.units], last.ms + block.ms, so_far)
        blocks.append(block)
        before = so_far
    return blocks


def _also_late(unit: _Unit, block: _Block, blocks: Sequence[_Block], times: float) -> AlsoLate | None:
    """Return which ranks are late beside a unit's, where what those cost hides what it does, or the other way round."""
    at = next(at for at, one in enumerate(blocks) if one is block)
    beside = [other for other in block.units if other is not unit]
    if beside:
        return _told(unit, beside, "together", block.so_far_ms, times)
    if at and unit.alone_ms < (1 - _HIDDEN) * block.ms:
        return _told(unit, [other for one in blocks[:at] for other in one.units], "after", block.so_far_ms, times)
    following = blocks[at + 1].units if at + 1 < len(blocks) else []
    hidden = [other for other in following if other.alone_ms < (1 - _HIDDEN) * blocks[at + 1].ms]
    return _told(unit, hidden, "first", blocks[at + 1].so_far_ms, times) if hidden else None


def _told(unit: _Unit, others: Sequence[_Unit], order: Order, together_ms: float, times: float) -> AlsoLate | None:
    ranks = tuple(sorted({rank for other in others for rank in other.ranks} - set(unit.ranks)))
    if not ranks:
        return None
    own = unit.causes[0]
    alike = all(any(_is_same(own, cause) for cause in other.causes) for other in others)
    return AlsoLate(
        ranks=ranks,
        order=order,
        alone_ms=max(0.0, times * unit.alone_ms),
        together_ms=times * together_ms,
        alike=alike,
    )


def _same_causes(causes: Sequence[Candidate]) -> list[list[Candidate]]:
    """Return the causes that are the same on several ranks, one of each rank."""
    found: list[list[Candidate]] = []
    for one in causes:
        alike = (own for own in found if _is_same(own[0], one))
        same = next((own for own in alike if all(one.late != other.late for other in own)), None)
        if same is None:
            found.append([one])
        else:
            same.append(one)
    return [own for own in found if len(own) > 1]


def _is_same(one: Candidate, other: Candidate) -> bool:
    """Tell whether two ranks have the same cause: the same kernel, or place, where a cause has one."""
    cures = [None if cause.remedy is None else cause.remedy.cure for cause in (one, other)]
    if one.code != other.code or cures[0] != cures[1]:
        return False
    if one.code in _NAMELESS or not one.evidence or not other.evidence:
        return True
    return one.evidence[0].name in _names(other) and other.evidence[0].name in _names(one)


def _names(cause: Candidate) -> set[str]:
    return {row.name for row in cause.evidence}


def _as_one(scene: Scene, causes: Sequence[Candidate]) -> Candidate:
    """Return one cause of several ranks, with what it is on each of them in the mean."""
    first = causes[0]
    ranks = tuple(sorted(rank for one in causes for rank in one.late))
    single = [Change(without=one.removals) for one in causes]
    scene.replayer.work_out(single, quick=True, near=True)
    surely = [one.surely or one.removals for one in causes] if any(one.surely for one in causes) else []
    in_each = [one.in_each_ms for one in causes]
    return replace(
        first,
        rank=ranks[0],
        ranks=ranks,
        one_ms=max(gained_ms(scene.replayer, one) for one in single),
        removals=removals_of(causes),
        surely=tuple(dict.fromkeys(removal for own in surely for removal in own)),
        beyond_ms=(),  # none of them is chance
        in_each_ms=tuple(max(step) for step in zip(*in_each, strict=False)) if all(in_each) else (),
        evidence=tuple(_in_the_mean(row, causes) for row in first.evidence if _is_of_all(row, causes)),
        remedy=of_one_line(causes),
        at_most=any(one.at_most for one in causes),
        at_least=any(one.at_least for one in causes),
        least_ms=min(one.least_ms for one in causes),
        least_share=min(one.least_share for one in causes),
    )


def of_one_line(causes: Sequence[Candidate]) -> Remedy | None:
    """Return the causes' remedy, with the function of the script that all of them lie in, or else with none."""
    remedies = [one.remedy for one in causes]
    lines = {None if one is None else one.line for one in remedies}
    return remedies[0] if remedies[0] is None or len(lines) == 1 else replace(remedies[0], line=None)


def _is_of_all(row: EvidenceRow, causes: Sequence[Candidate]) -> bool:
    return all(row.name in _names(one) for one in causes)


def _in_the_mean(row: EvidenceRow, causes: Sequence[Candidate]) -> EvidenceRow:
    rows = [next(other for other in one.evidence if other.name == row.name) for one in causes]
    line = row.line if len({one.line for one in rows}) == 1 else None
    return replace(row, line=line, **{field: _mean([getattr(one, field) for one in rows])
                           for field in ("ms", "others_ms", "calls", "share", "value")})  # fmt: skip


def _mean(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
