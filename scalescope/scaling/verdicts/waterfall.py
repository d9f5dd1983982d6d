"""Where the step's growth from one rank count to another went: the difference of the ranks' mean parts, in ms a step.

Compute's share is split further: the same kernel (by name and ordinal in the step), taking longer, is inflation;
kernels that one of the runs does not have are more (or less) work.
"""

from collections.abc import Sequence
from fractions import Fraction

import msgspec

from scalescope.scaling.answer_rows import PARTS, WaterfallPart
from scalescope.scaling.rank.kernels import KernelTable
from scalescope.scaling.rank.partition import Partition
from scalescope.scaling.study_answer import Waterfall
from scalescope.scaling.verdicts.inflation import KernelPair, growth_by_kind, match_kernels

#: At least this share of the first run's compute must be in the second too, by name and ordinal, for a split to mean
#: anything. What the second run computes beyond that is more work, however much.
MATCHED_SHARE = 0.8

#: A kernel is smaller where those that both runs have take so much less in the one that has more of them; and what it
#: has besides of such is told to be no work where it takes so much of the compute.
_SMALLER, _PIECES = Fraction(3, 4), Fraction(1, 20)

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
    *,
    same_work: bool = True,
) -> Waterfall:
    """Return the waterfall between two runs, each given as (world size, mean step, its ranks' kernels).

    `same_work`: the same kernel has as much to do in both. In strong scaling it has less, and how much longer it takes
    for its work is not told: compute stays in one piece.
    """
    small_size, before, small_kernels = small
    large_size, after, large_kernels = large
    changes = [new - old for old, new in zip(before.parts, after.parts, strict=True)]
    split = compute_split(small_kernels, large_kernels) if same_work else None
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
        kinds=[] if split is None else growth_by_kind(small_kernels, large_kernels),
    )


def compute_split(small: Sequence[KernelTable], large: Sequence[KernelTable]) -> tuple[Fraction, Fraction] | None:
    """Return how much of the compute's growth is inflation and how much more work, in ns a step; they add up to it.

    None where too few of the small run's kernels are in the large one to tell (another model, other kernels chosen for
    another shape), or one run has more of them that are smaller (a batch in pieces): their number is then no work.
    """
    pairs = match_kernels(small, large)
    total = sum((pair.before.share * pair.before.time for pair in pairs), Fraction(0))
    matched = sum((pair.before.share * pair.before.time for pair in pairs if pair.after.share), Fraction(0))
    if total == 0 or matched < MATCHED_SHARE * total or _in_pieces(pairs) > _PIECES * total:
        return None
    return sum((pair.inflation for pair in pairs), Fraction(0)), sum((pair.more_work for pair in pairs), Fraction(0))


def _in_pieces(pairs: Sequence[KernelPair]) -> Fraction:
    """Return what kernels take that one run has more of, and smaller ones of the same names than the other's, ns."""
    sums: dict[str, list[Fraction]] = {}
    for pair in pairs:
        both = min(pair.before.share, pair.after.share)
        own = sums.setdefault(pair.name, [Fraction(0)] * 4)
        for at, one in enumerate((pair.before, pair.after)):
            own[at] += both * one.time
            own[2 + at] += (one.share - both) * one.time
    return sum((own[2 + at] for own in sums.values() for at in (0, 1) if own[at] < _SMALLER * own[1 - at]), Fraction(0))
