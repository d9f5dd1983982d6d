"""How many samples the steps of two runs take, and what that makes of laying them side by side.

The one home of that rule: `compare` and `--against` both go by it. Where each rank's share is so many times what it
was, all of the step's work is, and steps are scaled by just that. Where ranks' shares changed unlike, no factor is
fair: the step waits for the rank that has most to do, and for how long is what is to be found out.
"""

from collections.abc import Sequence

from scalescope.records.rows import TrainFacts
from scalescope.scaling.answer_rows import SamplesOfSteps
from scalescope.scaling.compare.measurement import Identity


def samples_of(facts: TrainFacts | None, ranks: int) -> tuple[int, ...]:
    """Return how many samples each rank's step takes; empty where nothing tells."""
    if facts is None:
        return ()
    return facts.samples_by_rank or (facts.samples_per_rank_step,) * max(1, ranks)


def samples_of_steps(here: Identity, there: Identity) -> SamplesOfSteps | None:
    """Return both sides' samples where they are not the same; None where they are, or one side does not tell."""
    before, after = here.samples_by_rank, there.samples_by_rank
    if not (before and after and all(before) and all(after)) or here.counts_batches or there.counts_batches:
        return None
    if _in_order(before) == _in_order(after) or (_are_even(before, after) and before[0] == after[0]):
        return None
    return SamplesOfSteps(baseline=before, other=after, rate=_rate(before, after))


def mean_samples(identity: Identity) -> float | None:
    """Return a rank's samples in the mean, exactly; None where nothing tells."""
    told = identity.samples_by_rank
    return sum(told) / len(told) if told else None


def least_samples(identity: Identity) -> int:
    """Return the samples of the rank that has the fewest; 1 where nothing tells."""
    return min(identity.samples_by_rank, default=1) or 1


def _rate(before: Sequence[int], after: Sequence[int]) -> float | None:
    """Return what OTHER's times are multiplied by; None where the ranks' shares are not all so many times as large.

    Which rank has which share is no matter of the step's: runs are laid side by side by shares, the fullest first.
    """
    if _are_even(before, after):
        return before[0] / after[0]
    pairs = list(zip(_in_order(before), _in_order(after), strict=False))
    alike = len(before) == len(after) and all(one * pairs[0][1] == other * pairs[0][0] for one, other in pairs)
    return pairs[0][0] / pairs[0][1] if alike else None


def _are_even(*sides: Sequence[int]) -> bool:
    return all(len(set(samples)) == 1 for samples in sides)


def _in_order(samples: Sequence[int]) -> list[int]:
    return sorted(samples, reverse=True)
