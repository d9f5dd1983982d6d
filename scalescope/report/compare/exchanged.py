"""Operators, or kernels, that a step runs in place of others: a loop over tensors in place of one call for all of them.

What such a step has less of, and what it has more of, may be parts of two kinds, of which noise may hide either: it is
no gain that the one is gone, as long as the other does its work.
"""

from collections.abc import Sequence

import msgspec

from scalescope.report.drawing.numbers import listing
from scalescope.scaling.compare.answer import Comparison, PartChange

#: So many calls a step more, or fewer, and such a share of all that are counted, are worth a word.
_CALLS, _SHARE = 16, 0.02
#: So many names at most, which make up so much of either: what is exchanged for many others is another program.
_NAMES, _MOST = 3, 0.8


class Exchanged(msgspec.Struct, frozen=True):
    """What a step of OTHER runs in place of what: names, most calls first, with how many a step."""

    gained: tuple[tuple[str, int], ...]
    lost: tuple[tuple[str, int], ...]
    kinds: frozenset[str]  # of which it runs fewer

    @property
    def calls(self) -> int:
        """How many more calls a step has in OTHER."""
        return sum(calls for _, calls in self.gained) - sum(calls for _, calls in self.lost)


def exchanged(answer: Comparison) -> Exchanged | None:
    """Return what is run in place of what, of kinds whose calls each step of a side has alike; None for nothing."""
    works = {one.name: one.work for one in answer.parts if one.work is not None}
    if all(work.baseline_calls == work.other_calls for work in works.values()):
        return None
    more: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for one in answer.kernels:
        if one.kind in works:
            for name, calls in ((one.baseline_name, -one.baseline_calls), (one.other_name, one.other_calls)):
                if name is not None:
                    more[name] = more.get(name, 0.0) + calls
                    kinds[name] = one.kind
    changed = [(name, round(calls)) for name, calls in more.items()]
    gained = _most([(name, calls) for name, calls in changed if calls > 0])
    lost = _most([(name, -calls) for name, calls in changed if calls < 0])
    if not gained or not lost:
        return None
    fewer = {kinds[name] for name, _ in lost if works[kinds[name]].other_calls < works[kinds[name]].baseline_calls}
    found = Exchanged(tuple(gained), tuple(lost), frozenset(fewer))
    whole = sum(max(work.baseline_calls, work.other_calls) for work in works.values())
    return found if abs(found.calls) >= max(_CALLS, _SHARE * whole) else None


def _most(names: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the names with most calls, most first, where they make up most of all; none where they do not."""
    first = sorted(names, key=lambda one: (-one[1], one[0]))[:_NAMES]
    return first if sum(calls for _, calls in first) >= _MOST * sum(calls for _, calls in names) else []


def in_place_of(answer: Comparison, here: str, there: str) -> str:
    """Return what a step runs in place of what, in a sentence without full stop; "" for nothing."""
    if (found := exchanged(answer)) is None:
        return ""
    names = [name for name, _ in (*found.gained, *found.lost)]
    what = "operators" if all("::" in name and "(" not in name for name in names) else "kernels"
    gained, lost = (listing([f"{name} ({calls:,})" for name, calls in row]) for row in (found.gained, found.lost))
    how_many = f"{abs(found.calls):,} {'more' if found.calls > 0 else 'fewer'} {what}"
    return f"In {there} a step runs {how_many} than in {here}: {gained} in place of {lost}"


def is_replaced(part: PartChange, found: Exchanged | None) -> bool:
    """Tell whether a part is shorter for what other calls do in its place."""
    return found is not None and part.name in found.kinds and part.change_ms < 0
