"""The compute kernels (or, on a CPU, operators) of a step, each with its own share of the step's compute time.

So that kernels of two runs can be laid side by side (same name, same ordinal in the step), the union of the compute
time is dealt out: an instant that several kernels share belongs to the one that started first. The shares of a step
add up to its compute exactly. Of each share it is told how much of it which collectives ran beside.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np

from scalescope.scaling.rank.partition import Windows
from scalescope.scaling.trace.intervals import Intervals, Ints, covered_before, distinct, intersect
from scalescope.scaling.trace.kernel_kinds import kind_of
from scalescope.scaling.trace.trace import Ids

Kernel = tuple[str, int]  # its name, and how many of that name stand before it in the step


class KernelTime(NamedTuple):
    """One kernel of the step over a rank's steps: in how many it ran, and its shares' sum, in ns."""

    steps: int
    total_ns: int


class KernelTable(msgspec.Struct, frozen=True):
    """One rank's compute kernels by (name, ordinal of that name in the step). In columns: a study keeps one a rank."""

    steps: int  # of the rank
    names: tuple[str, ...]
    name: Ids  # index into `names`
    ordinal: Ids
    ran: Ids  # in how many steps
    time: Ints  # ns, the sum over the steps
    labels: tuple[str, ...]  # kinds of collectives, such as `all_reduce float32`
    overlap: Ints  # (kernels, labels): of `time`, how long such collectives ran meanwhile, ns
    placed: dict[Kernel, str] | None = None  # the kinds of kernels whose place tells them; None: nobody looked

    @property
    def total_ns(self) -> int:
        """The compute time of all steps, in ns."""
        return int(self.time.sum())

    def overlaps(self) -> Iterator[tuple[Kernel, list[int]]]:
        """Yield each kernel with the time that each label's collectives ran beside it, in ns."""
        columns = zip(self.name.tolist(), self.ordinal.tolist(), self.overlap.tolist(), strict=True)
        for name, ordinal, overlap in columns:
            yield (self.names[name], ordinal), overlap

    def items(self) -> Iterator[tuple[Kernel, KernelTime]]:
        """Yield each kernel with its time."""
        columns = zip(self.name.tolist(), self.ordinal.tolist(), self.ran.tolist(), self.time.tolist(), strict=True)
        for name, ordinal, ran, time in columns:
            yield (self.names[name], ordinal), KernelTime(ran, time)

    def by_name(self) -> Iterator[tuple[str, KernelTime]]:
        """Yield each name with the time of all its kernels, in the order of `names`."""
        ran, time = np.zeros((2, len(self.names)), np.int64)
        np.add.at(ran, self.name, self.ran)
        np.add.at(time, self.name, self.time)
        yield from zip(self.names, map(KernelTime, ran.tolist(), time.tolist()), strict=True)

    def by_kind(self) -> Iterator[tuple[str, str, KernelTime]]:
        """Yield each name, as often as it has kinds, with the kind and the time of all its kernels of that."""
        apart: dict[tuple[str, str], list[int]] = {}
        known = self.placed or {}
        for key, kind in known.items():
            apart.setdefault((key[0], kind), [0, 0])
        for key, own in self.items() if apart else ():
            if key in known:
                sums = apart[key[0], known[key]]
                sums[0] += own.steps
                sums[1] += own.total_ns
        for name, whole in self.by_name():
            of_name = {kind: KernelTime(*sums) for (one, kind), sums in apart.items() if one == name}
            ran, ns = (sum(own[at] for own in of_name.values()) for at in (0, 1))
            if whole.steps > ran or not of_name:
                of_name[kind_of(name)] = KernelTime(whole.steps - ran, whole.total_ns - ns)
            for kind, time in of_name.items():
                yield name, kind, time

    def kind(self, kernel: Kernel) -> str:
        """Return what a kernel of the table is for."""
        return (self.placed or {}).get(kernel) or kind_of(kernel[0])

    def row_kinds(self) -> list[str]:
        """Return what each row's kernel is for."""
        kinds = [kind_of(name) for name in self.names]
        found = [kinds[name] for name in self.name.tolist()]
        if self.placed:
            keys = zip(self.name.tolist(), self.ordinal.tolist(), strict=True)
            for row, (name, ordinal) in enumerate(keys):
                found[row] = self.placed.get((self.names[name], ordinal), found[row])
        return found


NO_OVERLAP: Mapping[str, Intervals] = MappingProxyType({})

#: What a kernel that runs on from the step before has of this one.
CARRIED = "(kernels of the step before)"


def kernel_table(
    spans: Intervals,
    name: Ints,
    compute: Intervals,
    windows: Windows,
    names: list[str],
    communication: Mapping[str, Intervals] = NO_OVERLAP,
) -> KernelTable:
    """Return the shares of kernels (spans ascending by start, and their names' indices) in the disjoint `compute`.

    `communication`: when collectives run, disjoint, by the label of their kind.
    """
    start, end = spans
    layers = [intersect(compute, one) for one in communication.values()]
    # what of each kernel no earlier one covers
    reach = np.maximum.accumulate(end) if end.size else end
    own = np.minimum(np.maximum(start, np.concatenate((start[:1], reach[:-1]))), end)
    words: dict[str, int] = {}
    word_of = np.array([words.setdefault(one, len(words)) for one in names], np.int64)
    carried = words.setdefault(CARRIED, len(words))
    parts = [np.zeros((5, 0), np.int64)]
    for step in range(len(windows)):
        left, right = int(windows.edges[step]), int(windows.edges[step + 1])
        first = int(np.searchsorted(reach, left, side="right"))
        until = int(np.searchsorted(start, right))
        here = first + np.flatnonzero(end[first:until] > left)
        begun = start[here] >= left
        word, ordinal = np.full(here.size, carried), np.zeros(here.size, np.int64)
        word[begun], ordinal[begun] = word_of[name[here[begun]]], _ordinals(name[here[begun]])
        from_, until_ = np.clip(own[here], left, right), np.clip(end[here], left, right)
        parts.append(np.stack([np.full(here.size, step), word, ordinal, from_, until_]))
    *ran, from_, until_ = np.concatenate(parts, axis=1)
    shares = [covered_before(layer, until_) - covered_before(layer, from_) for layer in (compute, *layers)]
    return _table(len(windows), tuple(words), tuple(communication), ran, shares)


def longest_beyond(
    spans: Intervals, name: Ints, compute: Intervals, windows: Windows, names: Sequence[str]
) -> dict[int, tuple[str, int]]:
    """Return by a step's number the kernels of which name take most beyond its median over the steps, and what, ns.

    What of them lies in the disjoint `compute` counts: an operator may wait for another rank.
    """
    start, end = spans
    step = np.searchsorted(windows.edges, start, side="right") - 1
    inside = np.flatnonzero((step >= 0) & (step < len(windows)))
    words, word = np.unique(name[inside], return_inverse=True)
    taken = np.zeros((len(windows), words.size), np.int64)
    own = covered_before(compute, end[inside]) - covered_before(compute, start[inside])
    np.add.at(taken, (step[inside], word), own)
    if not taken.size:
        return {}
    beyond = taken - np.sort(taken, axis=0)[(len(windows) - 1) // 2]
    most = beyond.argmax(axis=1)
    return {windows.numbers[at]: (names[int(words[one])], int(beyond[at, one])) for at, one in enumerate(most.tolist())}


def placed(
    kernels: Iterable[tuple[int, float, str]], edges: Sequence[float], kinds: Mapping[int, str]
) -> dict[Kernel, str]:
    """Return the kinds of a step's kernels that their place tells, in most of the steps that have them.

    `kernels`: a step's and the next ones', as their number, begin and name, ascending by begin; `edges`: of the steps;
    `kinds`: by number.
    """
    found: dict[Kernel, Counter[str | None]] = {}
    before: Counter[str] = Counter()
    step = 0
    for number, begin, name in kernels:
        now = bisect_right(edges, begin)
        if not 0 < now < len(edges):
            continue
        if now != step:
            step = now
            before.clear()
        found.setdefault((name, before[name]), Counter())[kinds.get(number)] += 1
        before[name] += 1
    usual = ((key, *told.most_common(1)[0]) for key, told in found.items())
    return {key: kind for key, kind, times in usual if kind is not None and 2 * times > found[key].total()}


def placed_in_all(tables: Iterable[KernelTable]) -> dict[Kernel, str] | None:
    """Return the kinds that places tell in all of these tables that have such a kernel; None where one was not looked
    at.
    """
    found: dict[Kernel, set[str]] = {}
    for table in tables:
        if table.placed is None:
            return None
        for key, _ in table.items():
            found.setdefault(key, set()).add(table.placed.get(key, ""))
    return {key: kind for key, (kind, *others) in found.items() if kind and not others}


def _ordinals(names: Ints) -> Ints:
    """Return of each kernel how many of its name stand before it."""
    order = np.argsort(names, kind="stable")
    new = np.ones(names.size, bool)
    new[1:] = np.diff(names[order]) != 0
    place = np.arange(names.size)
    found = np.empty(names.size, np.int64)
    found[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    return found


def _table(
    windows: int, words: tuple[str, ...], labels: tuple[str, ...], ran: Sequence[Ints], shares: Sequence[Ints]
) -> KernelTable:
    """Return the table of kernels that ran: step, word and ordinal of each, its share, and a share of each label."""
    step, word, ordinal = ran
    keys = word * (int(ordinal.max(initial=0)) + 1) + ordinal
    _, first, of_row = np.unique(keys, return_index=True, return_inverse=True)
    sums = np.zeros((len(shares), first.size), np.int64)
    for total, share in zip(sums, shares, strict=True):
        np.add.at(total, of_row, share)
    steps = np.bincount(distinct(of_row * windows + step) // max(windows, 1), minlength=first.size)
    order = np.argsort(first)  # as they come first
    numbers: dict[str, int] = {}
    return KernelTable(
        steps=windows,
        name=np.array([numbers.setdefault(words[one], len(numbers)) for one in word[first[order]].tolist()], np.int32),
        names=tuple(numbers),
        ordinal=ordinal[first[order]].astype(np.int32),
        ran=steps[order].astype(np.int32),
        time=sums[0, order],
        labels=labels,
        overlap=sums[1:, order].T.copy(),
    )
