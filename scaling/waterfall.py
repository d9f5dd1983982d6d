"""Where the step's growth from one rank count to another went: the difference of the ranks' mean parts, in ms a step.

Compute's share is split further: the same kernel (by name and ordinal in the step), taking longer, is inflation;
kernels that one of the runs does not have are more (or less) work.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from scaling.answer import PARTS, Waterfall, WaterfallPart
from scaling.kernels import KernelTable
from scaling.partition import Partition

#: At least this share of the first run's compute must be in the second too, by name and ordinal, for a split to mean
#: anything. What the second run computes beyond that is more work, however much.
MATCHED_SHARE = 0.8

_NS = Fraction(1, 1_000_000)


class MeanStep(msgspec.Struct, frozen=True):
    """A run's mean step over ranks and steps, in ns, exact: the window and the parts in the order of PARTS."""

    window: Fraction
    parts: tuple[Fraction, ...]


def mean_step(ranks: Sequence[Sequence[Partition]]) -> MeanStep:
    """Return the mean over ranks of each rank's mean over its steps. Raises ValueError without any step."""
    profiled = [steps for steps in ranks if steps]
    if not profiled:
        raise ValueError("no profiled step")
    means = []
    for steps in profiled:
        columns = zip(*((step.window, *step.parts) for step in steps), strict=True)
        means.append([Fraction(sum(column), len(steps)) for column in columns])
    window, *parts = (sum(column, Fraction(0)) / len(profiled) for column in zip(*means, strict=True))
    return MeanStep(window, tuple(parts))


def waterfall(
    series: str,
    small: tuple[int, MeanStep, Sequence[KernelTable]],
    large: tuple[int, MeanStep, Sequence[KernelTable]],
) -> Waterfall:
    """Return the waterfall between two runs, each given as (world size, mean step, its ranks' kernels)."""
    small_size, before, small_kernels = small
    large_size, after, large_kernels = large
    changes = [new - old for old, new in zip(before.parts, after.parts, strict=True)]
    split = compute_split(small_kernels, large_kernels)
    return Waterfall(
        series=series,
        from_world_size=small_size,
        to_world_size=large_size,
        from_step_ms=float(before.window * _NS),
        to_step_ms=float(after.window * _NS),
        growth_ms=float((after.window - before.window) * _NS),
        parts=[WaterfallPart(part=part, ms=float(change * _NS)) for part, change in zip(PARTS, changes, strict=True)],
        compute_inflation_ms=None if split is None else float(split[0] * _NS),
        compute_more_work_ms=None if split is None else float(split[1] * _NS),
    )


def compute_split(small: Sequence[KernelTable], large: Sequence[KernelTable]) -> tuple[Fraction, Fraction] | None:
    """Return how much of the compute's growth is inflation and how much more work, in ns a step; they add up to it.

    None where too few of the small run's kernels are in the large one to tell (another model, other kernels chosen for
    another shape).
    """
    before, after = _mean_kernels(small), _mean_kernels(large)
    common = before.keys() & after.keys()
    total = sum((presence * time for presence, time in before.values()), Fraction(0))
    matched = sum((before[key][0] * before[key][1] for key in common), Fraction(0))
    if total == 0 or matched < MATCHED_SHARE * total:
        return None
    inflation = more = Fraction(0)
    for key in before.keys() | after.keys():
        (old_share, old), (new_share, new) = before.get(key, _ABSENT), after.get(key, _ABSENT)
        both = min(old_share, new_share)
        inflation += both * (new - old)
        more += (new_share - both) * new - (old_share - both) * old
    return inflation, more


_ABSENT = (Fraction(0), Fraction(0))


def _mean_kernels(ranks: Sequence[KernelTable]) -> Mapping[tuple[str, int], tuple[Fraction, Fraction]]:
    """Return of each kernel the share of (rank, step) pairs in which it runs, and its mean time there, in ns.

    Each rank counts alike, however many steps its trace holds, as in the mean step.
    """
    tables = [table for table in ranks if table.steps]
    presence: dict[tuple[str, int], Fraction] = {}
    time: dict[tuple[str, int], Fraction] = {}
    for table in tables:
        for key, kernel in table.items():
            presence[key] = presence.get(key, Fraction(0)) + Fraction(kernel.steps, table.steps * len(tables))
            time[key] = time.get(key, Fraction(0)) + Fraction(kernel.total_ns, table.steps * len(tables))
    return {key: (presence[key], time[key] / presence[key]) for key in presence}
