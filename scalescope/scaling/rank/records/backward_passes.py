"""In how many backward passes of a step DDP exchanges the same gradients, by what its host does.

Each forward pass is followed by as many all-reduces, and the optimizer steps once for all of them. What is then
exchanged are the same gradients, unless passes behind the first make as many anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from scalescope.records.operations import REDUCE_ON_ALL
from scalescope.scaling.rank.records.record import LAUNCH, RankRecord

#: What DDP calls its forward pass, of what the loop's thread does.
DDP_FORWARD = "DistributedDataParallel.forward"
_UPDATE = "Optimizer.step#"

#: What an all-reduce carries, bytes, where that is told.
Sizes = tuple[int | None, ...]


class Passes(NamedTuple):
    """What is exchanged in each of several backward passes of every step alike."""

    number: int
    sizes: Sizes  # of one pass, in order


def backward_passes(records: Mapping[int, RankRecord]) -> int:
    """Return in how many backward passes a step DDP exchanges the same gradients; 1 where that is not told."""
    found = exchanged_in_each(records)
    return found.number if found is not None else 1


def exchanged_in_each(records: Mapping[int, RankRecord]) -> Passes | None:
    """Return what DDP exchanges in each backward pass of a step; None where it does so in one, or that is not told."""
    found = {one for record in records.values() for one in _of_rank(record)}
    return found.pop() if len(found) == 1 else None


def accumulates(records: Mapping[int, RankRecord]) -> bool:
    """Tell whether each step adds gradients up before it exchanges them: of its forward passes under DDP the first ones
    are followed by new gradients, and the last one alone by all-reduces.
    """
    found = []
    for record in records.values():
        forwards = [begin for begin, _, name in record.phases if name == DDP_FORWARD]
        reduces = [at for at, _ in _handed_over(record)]
        for begin, end in pairwise(_edges(record)):
            own = [at for at in forwards if begin <= at < end]
            made = len(own) > 1 and any(own[0] <= at < own[-1] for at in record.new_gradients)
            found.append(made and not any(own[0] <= at < own[-1] for at in reduces))
    return bool(found) and all(found)


def _updates(record: RankRecord) -> list[int]:
    return [begun for begun, _, name in record.phases if name.startswith(_UPDATE)]


def _edges(record: RankRecord) -> list[int]:
    """Return where the host's steps begin and end. A device's are its own, behind it: its host's end with updates."""
    return record.edges if record.activity == "cpu" else _updates(record)


def _of_rank(record: RankRecord) -> Iterator[Passes | None]:
    """Yield what is exchanged in each pass of each step; None of one in which it is not the same."""
    forwards = [begun for begun, _, name in record.phases if name == DDP_FORWARD]
    updates, reduces = _updates(record), _handed_over(record)
    for begin, end in pairwise(_edges(record)):
        spans = list(pairwise([*(one for one in forwards if begin <= one < end), end]))
        each = [tuple(size for at, size in reduces if left <= at < right) for left, right in spans]
        same = len(each) > 1 and bool(each[0]) and all(one == each[0] for one in each)
        same = same and sum(begin <= one < end for one in updates) == 1
        yield Passes(len(each), each[0]) if same and not _are_of_several_models(record, spans) else None


def _handed_over(record: RankRecord) -> list[tuple[int, int | None]]:
    """Return when the host hands over each all-reduce, and what that carries."""
    if record.activity == "cpu":
        rows = [(one.start, one) for one in record.collectives]
    else:
        launches = [call for call in record.calls if call.kind == LAUNCH and record.collective[call.activity] >= 0]
        rows = [(call.start, record.collectives[record.collective[call.activity]]) for call in launches]
    return [(at, one.bytes) for at, one in rows if one.operation in REDUCE_ON_ALL]


def _are_of_several_models(record: RankRecord, spans: Sequence[tuple[int, int]]) -> bool:
    """Tell whether a pass behind the first makes about as many gradients that were not there as that one does."""
    made = [sum(left <= at < right for at in record.new_gradients) for left, right in spans]
    return made[0] > 0 and any(2 * one > made[0] for one in made[1:])
