"""Both sides of the same ranks: a side that holds the traces of some alone says nothing of what the others do.

A rank that is late is unlike the mean of all: laid beside that, what it does would seem to have changed.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.compare.measurement import Measurement, ranks_in_all

#: More ranks are not named one by one.
_MOST_NAMED = 8


def of_ranks_held(baseline: Measurement, other: Measurement) -> tuple[Measurement, Measurement, list[str]]:
    """Return both sides with the ranks alone that all windows of both have, and what is to be said of it."""
    windows = [*baseline.windows, *other.windows]
    ranks = ranks_in_all(windows)
    if not ranks or not (baseline.windows and other.windows) or all(len(one.ranks) == len(ranks) for one in windows):
        return baseline, other, []
    named = ", ".join(map(str, ranks[:_MOST_NAMED])) + (" …" if len(ranks) > _MOST_NAMED else "")
    which = f"rank{'s' if len(ranks) > 1 else ''} {named}"
    note = f"only of {which} both sides have traces: the parts of the step are compared of {which} alone"
    return _of(baseline, ranks), _of(other, ranks), [note]


def _of(side: Measurement, ranks: Sequence[int]) -> Measurement:
    return replace(side, repeats=[
        replace(repeat, windows=[
            replace(
                window,
                ranks={rank: window.ranks[rank] for rank in ranks},
                steps={rank: window.steps[rank] for rank in ranks if rank in window.steps},
            )
            for window in repeat.windows
        ])
        for repeat in side.repeats
    ])  # fmt: skip
