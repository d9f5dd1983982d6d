"""How many kernels of a kind a step launches, and what those take that one side has more of.

How long a kernel takes is noise from run to run; how many of them a step launches is the program's own doing, the same
in every step. So where each side launches the same number in every recorded step of every window, and the two numbers
differ, more (or less) is done: that is no matter of intervals. On a CPU a kernel is an operator of the loop's thread.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from scalescope.scaling.compare.answer import CountedWork, PartChange
from scalescope.scaling.compare.measurement import Measurement
from scalescope.scaling.trace.kernel_kinds import KINDS, OF_PLACES

#: Steps that are recorded at different times match in all but so little.
_EXCHANGED = 0.1


def rank_with_other_work(baseline: Measurement, other: Measurement) -> int | None:
    """Return the rank whose steps alone launch another number of kernels; None where no rank's do, or several ranks'.

    Of the kinds that every rank launches the same number of in all of its steps.
    """
    changed: set[int] = set()
    for kind in range(len(KINDS)):
        before, after = (_by_rank(side, kind) for side in (baseline, other))
        if len(before) > 1 and before.keys() == after.keys() and None not in (*before.values(), *after.values()):
            changed |= {rank for rank, count in before.items() if count != after[rank]}
    return changed.pop() if len(changed) == 1 else None


def _by_rank(side: Measurement, kind: int) -> dict[int, int | None]:
    """Return how many kernels of a kind each rank launches a step; None where its steps differ."""
    found: dict[int, set[int | None]] = {}
    for window in side.windows:
        for rank, calls in window.calls.items():
            found.setdefault(rank, set()).add(calls[kind])
    return {rank: counts.pop() if len(counts) == 1 else None for rank, counts in found.items()}


def with_work(
    parts: Sequence[PartChange],
    baseline: Measurement,
    other: Measurement,
    alone_us: Mapping[str, tuple[float, float]],
    rank: int | None = None,
    resized: Collection[str] = (),
) -> list[PartChange]:
    """Return the parts, each kernel kind with its kernels' number on both sides, where every step says the same.

    `alone_us`, `resized`: see Matched; `rank`: see rank_with_other_work.
    """
    # where both sides have kernels of their own, those were exchanged for others, maybe of another kind (a compiled
    # step): how much more is done is not told by their time. Where kernels' places tell what they are for, another kind
    # is another thing that is done
    whole = _sign(*(sum(us[at] for us in alone_us.values()) for at in (0, 1)))
    by_place = any(window.has_placed for side in (baseline, other) for window in side.windows)
    signs = {name: _sign(*us) for name, us in alone_us.items() if by_place and name in OF_PLACES}
    return [
        msgspec.structs.replace(
            part,
            work=_sized(
                part,
                _work(part, (baseline, other), alone_us.get(part.name, (0.0, 0.0)), signs.get(part.name, whole), rank),
                smaller=part.name in resized,
            ),
        )
        for part in parts
    ]


def _sign(fewer: float, more: float) -> int:
    """Return 1 where OTHER alone does more, -1 where it does less, 0 where kernels were exchanged for others."""
    return 1 if fewer <= _EXCHANGED * more else -1 if more <= _EXCHANGED * fewer else 0


def _sized(part: PartChange, work: CountedWork | None, *, smaller: bool) -> CountedWork | None:
    """Return a part's work, of no time where its calls got smaller, or would be more than the part can have changed."""
    if work is None or work.baseline_calls == work.other_calls:
        return work
    own = work.rank is None or work.rank == part.rank
    beyond = work.change_ms is not None and own and not part.low_ms <= work.change_ms <= part.high_ms
    if not smaller and not beyond:
        return work
    return CountedWork(
        baseline_calls=work.baseline_calls, other_calls=work.other_calls, rank=work.rank, resized=smaller
    )


def _work(
    part: PartChange, sides: tuple[Measurement, Measurement], alone: tuple[float, float], sign: int, rank: int | None
) -> CountedWork | None:
    """Return a part's work; `alone`: µs, see Matched; `sign`: 1 where OTHER does more, -1 where less, 0: not told."""
    before, after = (_counted(side, part, rank) for side in sides)
    rank = rank if part.rank != rank else None  # else the part says it
    if before is None or after is None:
        return None
    if (after - before) * sign <= 0 or alone[sign < 0] or not alone[sign > 0]:
        return CountedWork(baseline_calls=before, other_calls=after, rank=rank if before != after else None)
    # what makes the kernels of a kind take longer in one run than in another makes these do so, by the same share
    ms, longest = (alone[1] - alone[0]) / 1e3, max(part.baseline_ms, part.other_ms)
    share = (part.high_ms - part.low_ms) / 2 / longest if longest > 0 else 1.0
    half = abs(ms) * min(1.0, share)
    return CountedWork(
        baseline_calls=before, other_calls=after, change_ms=ms, low_ms=ms - half, high_ms=ms + half, rank=rank
    )


def _counted(side: Measurement, part: PartChange, rank: int | None) -> int | None:
    """Return how many kernels of a kind a step launches on `rank`, else on the part's, else on each; None where steps
    differ.

    By a slow window of few steps another rank may seem to be the one that the others wait for: what is counted is sure.
    """
    of_rank = rank if rank is not None else part.rank
    if part.name not in KINDS:
        return None
    kind = KINDS.index(part.name)
    found = {
        calls[kind]
        for window in side.windows
        for one, calls in window.calls.items()
        if of_rank is None or one == of_rank
    }
    return found.pop() if len(found) == 1 else None
