"""Calls of one operator and one kernel that have more to do than others: a step's 72 µs products and its 172 µs ones.

By their grids, where those differ; else by how long they take: a call that takes 1.5 times as long as the next shorter
one is of another size. Only where both sides have as many sizes is the n-th of one taken for the n-th of the other, so
that a side that is slower throughout keeps its sizes.
"""

from collections.abc import Sequence

from scalescope.scaling.compare.kernels.operators import Call

_LONGER = 1.5


def size_classes(here: Sequence[Call], there: Sequence[Call]) -> tuple[list[int], list[int]]:
    """Return each call's size among those of its operator and kernel, counted from 0; all 0 where sizes do not tell."""
    classes = [0] * len(here), [0] * len(there)
    groups: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for side, calls in enumerate((here, there)):
        for at, call in enumerate(calls):
            groups.setdefault((call.token, call.main.name), ([], []))[side].append(at)
    for members in groups.values():
        own = [[calls[at] for at in places] for calls, places in zip((here, there), members, strict=True)]
        found = _by_grid(own) or [_by_duration(side) for side in own]
        if own[0] and own[1] and max(found[0]) != max(found[1]):
            continue
        for side, places in enumerate(members):
            for at, size in zip(places, found[side], strict=True):
                classes[side][at] = size
    return classes


def _by_grid(sides: Sequence[Sequence[Call]]) -> list[list[int]] | None:
    grids = {call.main.blocks for side in sides for call in side}
    if None in grids or len(grids) < 2:
        return None
    order = {blocks: at for at, blocks in enumerate(sorted(blocks for blocks in grids if blocks is not None))}
    # another batch launches other grids: sizes in common are what tells calls apart
    shared = [{call.main.blocks for call in side} for side in sides]
    if all(shared) and shared[0] != shared[1] and not shared[0] & shared[1]:
        return [_ranked([order[call.main.blocks] for call in side if call.main.blocks is not None]) for side in sides]
    return [[order[call.main.blocks] for call in side if call.main.blocks is not None] for side in sides]


def _ranked(values: Sequence[int]) -> list[int]:
    order = {value: at for at, value in enumerate(sorted(set(values)))}
    return [order[value] for value in values]


def _by_duration(calls: Sequence[Call]) -> list[int]:
    classes = [0] * len(calls)
    size, before = 0, 0.0
    for at in sorted(range(len(calls)), key=lambda at: calls[at].us):
        size += 0.0 < before * _LONGER < calls[at].us
        before = calls[at].us
        classes[at] = size
    return classes
