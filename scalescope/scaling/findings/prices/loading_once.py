"""Loading of all ranks beside that of one of them: what each is seen to lose, so that no lost time is told twice.

Workers go on while their rank waits for another one, so a replay lets them be as slow as that one's: it gives one
rank's loading back with that of all ranks alone. But what all ranks load for is in each one's records, and no step
loses more to it than the longest of them takes, for which the others wait. What all of it brings beyond that is the
named rank's, which loads for longer; how much of that comes back by mending it alone is what its interval begins with.
"""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from scalescope.records.statistics import half_of_mean
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.replay.ranks.side_by_side import Floats


def each_loaded_once(scene: Scene, gains: Sequence[Gain]) -> list[Gain]:
    """Return the gains with all ranks' loading at no more than is seen, and the rest as the late one's."""
    loading = [one for one in gains if one.candidate.code == "data_loading" and one.candidate.seen is None]
    everyone = next((one for one in loading if one.candidate.rank is None), None)
    if everyone is None or everyone.ms <= 0:
        return list(gains)
    alone = [one for one in loading if one.candidate.rank is not None]
    if not (alone or scene.replayer.on_cpu):
        return list(gains)  # a known step may have more of it than the profiled ones show
    named = {rank for one in alone for rank in one.candidate.late}
    longest_ms = longest_loading_ms(scene, tuple(rank for rank in scene.side.ranks if rank not in named))
    if not longest_ms:
        return list(gains)
    most_ms = sum(longest_ms) / len(longest_ms)
    ms = min(everyone.ms, most_ms)
    high_ms = max(ms, min(everyone.high_ms, most_ms + half_of_mean(longest_ms)))
    changed = {id(everyone): replace(everyone, ms=ms, low_ms=everyone.low_ms * ms / everyone.ms, high_ms=high_ms)}
    rest_ms, known_ms = everyone.ms - ms, sum(max(0.0, one.ms) for one in alone)
    for one in alone:
        share = max(0.0, one.ms) / known_ms if known_ms > 0 else 1 / len(alone)
        more = rest_ms * share
        changed[id(one)] = replace(
            one, ms=one.ms + more, high_ms=one.high_ms + max(more, share * (everyone.high_ms - ms))
        )
    return [changed.get(id(one), one) for one in gains]


def longest_loading_ms(scene: Scene, ranks: Sequence[int] = ()) -> list[float]:
    """Return for how long that of the ranks loads in each step that does so longest, ms: as recorded, or as run where
    that is longer in the mean. Of `ranks`, or, where none is left, of the one that loads shortest.
    """
    side = scene.side
    as_run = np.array(
        [[float(side.launches[rank, step].data_ns.sum()) for step in side.steps] for rank in side.ranks], np.float64
    )
    tables = [as_run] if as_run.size else []
    for cause in scene.host or ():
        if cause.code == "data_loading" and cause.rank is None and len(cause.by_rank_ns) == len(side.ranks):
            tables.append(np.array(cause.by_rank_ns, np.float64))
    rows = [side.ranks.index(rank) for rank in ranks]
    found = [_longest(table, rows) / 1e6 for table in tables if table.size]
    longest = max(found, key=lambda own: float(own.mean()), default=None)
    return longest.tolist() if longest is not None else []


def _longest(table: Floats, rows: Sequence[int]) -> Floats:
    longest: Floats = table[list(rows)].max(axis=0) if rows else table.min(axis=0)
    return longest
