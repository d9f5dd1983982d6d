"""Operators, or kernels, that a step runs in place of others: a loop over tensors in place of one call for all of them.

What such a step has less of, and what it has more of, may be parts of two kinds, of which noise may hide either: it is
no gain that the one is gone, as long as the other does its work.
"""

from collections.abc import Collection, Mapping

import msgspec

from scalescope.report.drawing.numbers import listing
from scalescope.scaling.compare.answer import Comparison, PartChange

#: So many calls a step more, or fewer, and such a share of all that are counted, are worth a word.
_CALLS, _SHARE = 16, 0.02
#: So many names at most, which make up so much of either: what is exchanged for many others is another program.
_NAMES, _MOST = 3, 0.8
#: What does the same takes no longer than so many times, either way: beside a loop, a call that fills a tensor is none.
_AS_LONG = 10.0


class Exchanged(msgspec.Struct, frozen=True):
    """What a step of OTHER runs in place of what: names, most calls first, with how many a step."""

    gained: tuple[tuple[str, int], ...]
    lost: tuple[tuple[str, int], ...]
    kinds: frozenset[str]  # of what is fewer calls: one for many tensors, in place of which many stand, or the reverse

    @property
    def calls(self) -> int:
        """How many more calls a step has in OTHER."""
        return sum(calls for _, calls in self.gained) - sum(calls for _, calls in self.lost)


class _Named(msgspec.Struct):
    """The kernels of one name: their kind, and calls and µs a step on both sides."""

    kind: str
    calls: list[float]
    us: list[float]

    @property
    def more(self) -> int:
        return round(self.calls[1] - self.calls[0])


def exchanged(answer: Comparison) -> Exchanged | None:
    """Return what is run in place of what, where every step of a side has as many calls; None for nothing.

    Only of kinds of which the two have another number: other convolutions are a library's choice. What is replaced is
    all gone from the side that runs the other, and took about as long.
    """
    works = {one.name: one.work for one in answer.parts if one.work is not None}
    differ = {kind for kind, work in works.items() if work.baseline_calls != work.other_calls}
    named = _by_name(answer, differ)
    gained, lost = (_most({name: one for name, one in named.items() if one.more * sign > 0}) for sign in (1, -1))
    if not gained or not lost:
        return None
    calls = [sum(abs(named[name].more) for name in row) for row in (gained, lost)]
    fewer, at = (lost, 1) if calls[0] > calls[1] else (gained, 0)
    took, takes = (sum(abs(named[name].us[1] - named[name].us[0]) for name in row) for row in (gained, lost))
    alike = took <= _AS_LONG * takes and takes <= _AS_LONG * took
    if not alike or any(round(named[name].calls[at]) for name in fewer):
        return None
    whole = sum(max(work.baseline_calls, work.other_calls) for work in works.values())
    if abs(calls[0] - calls[1]) < max(_CALLS, _SHARE * whole):
        return None
    kinds = {named[name].kind for name in fewer}
    sign = 1 if fewer is gained else -1
    return Exchanged(
        tuple((name, named[name].more) for name in gained),
        tuple((name, -named[name].more) for name in lost),
        frozenset(kind for kind in kinds if sign * (works[kind].other_calls - works[kind].baseline_calls) > 0),
    )


def _by_name(answer: Comparison, kinds: Collection[str]) -> dict[str, _Named]:
    found: dict[str, _Named] = {}
    for one in answer.kernels:
        if one.kind not in kinds:
            continue
        sides = (
            (one.baseline_name, one.baseline_calls, one.baseline_us),
            (one.other_name, one.other_calls, one.other_us),
        )
        for at, (name, calls, us) in enumerate(sides):
            if name is not None:
                own = found.setdefault(name, _Named(one.kind, [0.0, 0.0], [0.0, 0.0]))
                own.calls[at] += calls
                own.us[at] += us
    return found


def _most(named: Mapping[str, _Named]) -> list[str]:
    """Return the names with most calls, most first, where they make up most of all; none where they do not."""
    first = sorted(named, key=lambda name: (-abs(named[name].more), name))[:_NAMES]
    of_first, whole = (sum(abs(named[name].more) for name in names) for names in (first, named))
    return first if of_first >= _MOST * whole else []


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
    """Tell whether a part is shorter for what many other calls do in place of one, or longer for what one does again:
    the same part of a comparison and of its reverse.
    """
    return found is not None and part.name in found.kinds and part.change_ms * found.calls < 0
