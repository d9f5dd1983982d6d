"""What is said of two runs whose ranks take other shares of a step's samples: no factor makes their steps alike."""

from collections.abc import Sequence

from scalescope.records.console import counted
from scalescope.report.drawing.numbers import listing
from scalescope.scaling.answer_rows import SamplesOfSteps

#: More ranks that differ are not told one by one.
_MOST_RANKS = 4


def by_rank(samples: Sequence[int]) -> str:
    """Return how many samples each rank's step takes: `11 on rank 0 and 8 on rank 1`."""
    least, most = min(samples), max(samples)
    if least == most:
        return f"{most:,} on each rank" if len(samples) > 1 else f"{most:,}"
    if len(samples) > _MOST_RANKS:
        return f"{least:,} to {most:,} a rank"
    return listing([f"{own:,} on rank {rank}" for rank, own in enumerate(samples)])


def other_shares(samples: SamplesOfSteps) -> str:
    """Return which shares ranks take on both sides, without a full stop."""
    return f"{by_rank(samples.other)}, for {by_rank(samples.baseline)}"


def as_they_are(samples: SamplesOfSteps) -> str:
    """Return that steps of such ranks are compared as they are, and why, without a full stop."""
    there, here = samples.in_all
    if there == here:
        whole = f"a step takes {counted(here, 'sample')} in all on both sides, shared out otherwise"
    else:
        whole = f"a step takes {counted(here, 'sample')} in all here and {there:,} there, shared out otherwise"
    return f"{whole}: steps are compared as they are, not a sample, as they wait for the rank that has most to do"
