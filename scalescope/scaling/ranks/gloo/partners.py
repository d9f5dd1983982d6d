"""Who sends to whom, where no record says: gloo's sends and receives name no partner without recorded shapes.

What a group's ranks do tells it where one way fits. A pipeline's stages talk to those before and behind them: what a
stage receives for its backward pass, and what it sends after a forward one, is of the stage behind it. A server talks
to each of the others, which talk to it alone, and to them in their order. A way fits where each rank receives as often
a step as the other one sends to it, and nothing is through before it was sent.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from scalescope.records.operations import PAIRWISE
from scalescope.scaling.rank.collective import SEND_HELD_UP_NS, RankCollective

#: The ranks of a group of two are each other's partners, which their own traces tell.
_FEWEST = 3

#: A rank's transfers of one group, each with the place of its partner in it; None where that is not told.
_Partners = list[tuple[RankCollective, int]]
_Group = Mapping[int, Sequence[RankCollective]]  # by place


def name_partners(collectives: Mapping[int, Sequence[RankCollective]]) -> None:
    """Give sends and receives without a partner theirs, in place, where one way alone fits the ranks of a group."""
    groups: dict[tuple[str, tuple[int, ...]], dict[int, list[RankCollective]]] = {}
    for rank, own in collectives.items():
        for one in own:
            if one.operation in PAIRWISE and one.group is not None and rank in one.group_ranks:
                place = one.group_ranks.index(rank)
                groups.setdefault((one.group, one.group_ranks), {}).setdefault(place, []).append(one)
    for (_, ranks), by_place in groups.items():
        transfers = [one for own in by_place.values() for one in own]
        if len(ranks) < _FEWEST or any(
            one.goes is None or one.source is not None or one.destination is not None for one in transfers
        ):
            continue
        for own in by_place.values():
            own.sort(key=lambda one: one.start)
        ways = [way for way in _ways(by_place, len(ranks)) if _fits(way)]
        if len(ways) == 1 and len(by_place) == len(ranks):
            _name(ways[0])


def _ways(group: _Group, size: int) -> list[dict[int, _Partners]]:
    """Return who may talk to whom: stages in a row, and a server with each of the others."""
    found = [_as_stages(group, size)]
    hubs = [hub for hub in range(size) if size > _FEWEST or hub != 1]  # the middle one of three is a row's
    return [*found, *(_as_server(group, size, hub) for hub in hubs)]


def _as_stages(group: _Group, size: int) -> dict[int, _Partners]:
    def partner(place: int, one: RankCollective) -> int:
        if place in (0, size - 1):
            return 1 if place == 0 else size - 2
        return place + 1 if one.goes != one.of_backward else place - 1

    return _with(group, partner)


def _as_server(group: _Group, size: int, hub: int) -> dict[int, _Partners]:
    """Return a server's partners: the others in turn, sends and receives each for themselves."""
    others = [place for place in range(size) if place != hub]
    made: Counter[tuple[int | None, bool | None]] = Counter()

    def partner(place: int, one: RankCollective) -> int:
        if place != hub:
            return hub
        key = (one.step, one.goes)
        made[key] += 1
        return others[(made[key] - 1) % len(others)]

    return _with(group, partner)


def _with(group: _Group, partner: Callable[[int, RankCollective], int]) -> dict[int, _Partners]:
    return {place: [(one, partner(place, one)) for one in own] for place, own in group.items()}


def _fits(way: Mapping[int, _Partners]) -> bool:
    """Tell whether each rank receives what the other one sends: as often in most steps, and never before."""
    pairs = {(place, other) for place, own in way.items() for _, other in own}
    for place, other in pairs | {(other, place) for place, other in pairs}:
        sent = [one for one, to in way.get(place, ()) if to == other and one.goes]
        received = [one for one, of in way.get(other, ()) if of == place and not one.goes]
        if _each_step(sent) != _each_step(received) or abs(len(sent) - len(received)) > _each_step(sent):
            return False
        if len(sent) == len(received) and any(
            two.end + SEND_HELD_UP_NS < one.start for one, two in zip(sent, received, strict=True)
        ):
            return False
    return True


def _each_step(transfers: Sequence[RankCollective]) -> int:
    counts = Counter(one.step for one in transfers if one.step is not None)
    return statistics.mode(counts.values()) if counts else 0


def _name(way: Mapping[int, _Partners]) -> None:
    for place, own in way.items():
        for one, other in own:
            one.source, one.destination = (place, other) if one.goes else (other, place)
