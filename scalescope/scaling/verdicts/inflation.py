"""The same kernels in two runs, side by side: what took longer, what is new, and which collectives ran beside it.

A kernel is the same by its name and its ordinal in the step. Where it runs in fewer of the steps or ranks of one run,
only the part that both have counts as the same; the rest is more (or less) work.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec

from scalescope.scaling.rank.kernels import KernelTable, placed_in_all
from scalescope.scaling.study_answer import KindGrowth
from scalescope.scaling.trace.kernel_kinds import KINDS, kind_of

#: A kernel counts as having a collective beside it from this share of its time on.
_OVERLAPPED = Fraction(1, 20)


class MeanKernel(msgspec.Struct, frozen=True):
    """One kernel over a run's ranks and steps."""

    share: Fraction  # of the (rank, step) pairs in which it runs
    time: Fraction  # its mean time there, ns
    overlap: Mapping[str, Fraction]  # ns a step of the mean rank, by the label of what ran beside


_ABSENT = MeanKernel(Fraction(0), Fraction(0), {})


class KernelPair(msgspec.Struct, frozen=True):
    """One kernel in the smaller run and in the larger one; absent from one of them, its share there is 0."""

    name: str
    kind: str
    before: MeanKernel
    after: MeanKernel

    @property
    def inflation(self) -> Fraction:
        """How much longer it takes where both have it, ns a step."""
        return min(self.before.share, self.after.share) * (self.after.time - self.before.time)

    @property
    def more_work(self) -> Fraction:
        """What only one of the runs has of it, ns a step; negative where that is the smaller one."""
        both = min(self.before.share, self.after.share)
        return (self.after.share - both) * self.after.time - (self.before.share - both) * self.before.time

    @property
    def disturbed(self) -> bool:
        """Whether a collective runs beside it in the larger run."""
        return sum(self.after.overlap.values(), Fraction(0)) > _OVERLAPPED * self.after.share * self.after.time


def match_kernels(small: Sequence[KernelTable], large: Sequence[KernelTable]) -> list[KernelPair]:
    """Return all kernels of both runs, each of which is given by its ranks' tables.

    A kernel whose place tells that it is for another thing in one run than in the other is another kernel.
    """
    before, after = _mean_kernels(small), _mean_kernels(large)
    here, there = placed_in_all(small), placed_in_all(large)
    if here is None or there is None:
        here = there = {}  # what places tell of one run alone is no difference between both
    pairs = []
    for key in {**before, **after}:
        kinds = [placed.get(key) or kind_of(key[0]) for placed in (here, there)]
        if kinds[0] == kinds[1] or key not in before or key not in after:
            kind = kinds[0] if key in before else kinds[1]
            pairs.append(KernelPair(key[0], kind, before.get(key, _ABSENT), after.get(key, _ABSENT)))
        else:
            pairs.append(KernelPair(key[0], kinds[0], before[key], _ABSENT))
            pairs.append(KernelPair(key[0], kinds[1], _ABSENT, after[key]))
    return pairs


def growth_by_kind(small: Sequence[KernelTable], large: Sequence[KernelTable]) -> list[KindGrowth]:
    """Return the compute's growth by kernel kind, in ms a step of the mean rank; the kinds add up to it."""
    members: dict[str, list[KernelPair]] = {}
    for pair in match_kernels(small, large):
        members.setdefault(pair.kind, []).append(pair)
    return [_growth(kind, members[kind]) for kind in KINDS if kind in members]


def _growth(kind: str, pairs: Sequence[KernelPair]) -> KindGrowth:
    overlap: dict[str, Fraction] = {}
    for pair in pairs:
        for label, time in pair.after.overlap.items():
            overlap[label] = overlap.get(label, Fraction(0)) + time
    return KindGrowth(
        kind=kind,
        from_ms=_ms(pair.before.share * pair.before.time for pair in pairs),
        to_ms=_ms(pair.after.share * pair.after.time for pair in pairs),
        inflation_ms=_ms(pair.inflation for pair in pairs),
        more_work_ms=_ms(pair.more_work for pair in pairs),
        inflation_beside_ms=_ms(pair.inflation for pair in pairs if pair.disturbed),
        beside_ms={label: float(time) / 1e6 for label, time in overlap.items() if time},
    )


def _ms(times: Iterable[Fraction]) -> float:
    return float(sum(times, Fraction(0))) / 1e6


def _mean_kernels(ranks: Sequence[KernelTable]) -> Mapping[tuple[str, int], MeanKernel]:
    """Return each kernel's mean; each rank counts alike, however many steps its trace holds, as in the mean step."""
    tables = [table for table in ranks if table.steps]
    share: dict[tuple[str, int], Fraction] = {}
    time: dict[tuple[str, int], Fraction] = {}
    overlap: dict[tuple[str, int], dict[str, Fraction]] = {}
    for table in tables:
        weight = table.steps * len(tables)
        for key, kernel in table.items():
            share[key] = share.get(key, Fraction(0)) + Fraction(kernel.steps, weight)
            time[key] = time.get(key, Fraction(0)) + Fraction(kernel.total_ns, weight)
        for key, meanwhile in table.overlaps():
            for label, ns in zip(table.labels, meanwhile, strict=True):
                if ns:
                    of_key = overlap.setdefault(key, {})
                    of_key[label] = of_key.get(label, Fraction(0)) + Fraction(ns, weight)
    return {key: MeanKernel(share[key], time[key] / share[key], overlap.get(key, {})) for key in share}
