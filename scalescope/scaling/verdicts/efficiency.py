"""Parallel efficiency and its factors: the POP/TALP hierarchy from the ranks' partitions.

With U compute, W exposed wait, X exposed transfer, unsplit, M exposed copies, and T the rank-mean window of n ranks:

    parallel = ΣU / (nT) = load balance   mean U / max U
                         × serialisation  max U / max(U + W)
                         × transfer       max(U + W) / max(U + W + X + unsplit)
                         × memory         max(U + W + X + unsplit) / max A      A = U + W + X + unsplit + M
                         × orchestration  max A / T

The product telescopes, so it proves nothing by itself: each factor stands on the partition's own parts.
"""

from collections.abc import Sequence

from scalescope.scaling.answer import Efficiency
from scalescope.scaling.rank.partition import Partition

#: Windows of the same steps differ by microseconds.
_CONTRADICTION = 1.01


def efficiency_of(ranks: Sequence[Partition]) -> Efficiency | None:
    """Return the hierarchy over the ranks' windows, which hold the same steps.

    None without ranks or compute, and where a rank is active for longer than the mean window: then the windows are
    not of the same steps, and the factors would contradict themselves.
    """
    if not ranks or max(rank.compute for rank in ranks) == 0:
        return None
    n = len(ranks)
    window = sum(rank.window for rank in ranks) / n
    compute = max(rank.compute for rank in ranks)
    serial = max(rank.compute + rank.wait for rank in ranks)
    communicating = max(rank.compute + rank.wait + rank.transfer + rank.unsplit for rank in ranks)
    active = max(rank.compute + rank.wait + rank.transfer + rank.unsplit + rank.memory for rank in ranks)
    if active > _CONTRADICTION * window:
        return None
    total = sum(rank.compute for rank in ranks)
    return Efficiency(
        parallel=total / (n * window),
        load_balance=total / n / compute,
        serialisation=compute / serial,
        transfer=serial / communicating,
        memory=communicating / active,
        orchestration=active / window,
    )
