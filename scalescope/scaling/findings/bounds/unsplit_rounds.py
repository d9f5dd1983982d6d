"""Many collectives of figures of one rank alone, of several: waits for the others, or rounds of messages: a bound.

Without the others' traces no collective is in the replay, as nobody knows when its partners came. But how many there
are, how little they carry, and for how long the rank does nothing else meanwhile stands in the one trace that is there.
"""

import statistics
from collections import Counter
from collections.abc import Iterator

import numpy as np

from scalescope.records.operations import MOVE_NO_DATA, PAIRWISE
from scalescope.scaling.finding.figures import MAY_WAIT
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import WORTH_SAYING, Candidate, Scene
from scalescope.scaling.findings.detectors.small_collectives import chosen_steps
from scalescope.scaling.findings.shares import mean_step_ms
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.trace.intervals import Intervals, covered_before, intervals, union

#: Losses, norms, counts, statistics of batches: so many bytes are no layer's gradients.
_FIGURES_BYTES = 1 << 10
#: Of fewer a step, as of a loss that is reduced, it is most likely another rank that is waited for.
_MANY = 8


def unsplit_rounds(scene: Scene) -> Iterator[Candidate]:
    """Yield the bound where one rank's trace, of several ranks, has many collectives of figures in each step."""
    analysis, records = scene.analysis, scene.replayer.records
    if len(analysis.ranks) != 1 or analysis.world_size < 2 or len(records) != 1 or not scene.may_wait_unseen:
        return
    (record,) = records.values()
    held: dict[int, list[RankCollective]] = {number: [] for number in chosen_steps(scene)}
    for one in record.collectives:
        if one.step in held and _is_of_figures(one):
            held[one.step].append(one)
    if not held or min(map(len, held.values())) < _MANY:
        return
    profiled_ms = mean_step_ms(analysis, "exposed_unsplit", set(held))
    whole_ms = scene.share_ms("exposed_unsplit")
    bare = [_bare_ms(record, own) for own in held.values()]
    share = min(1.0, whole_ms / profiled_ms) if profiled_ms else 0.0
    lost = [min(whole_ms, share * ms * (1 - 1 / len(own))) for ms, own in zip(bare, held.values(), strict=True)]
    ms = statistics.fmean(lost)
    if ms < WORTH_SAYING * scene.step_ms:
        return
    small = [one for own in held.values() for one in own]
    operation, _ = Counter(one.operation or "" for one in small).most_common(1)[0]
    yield Candidate(
        code="small_collectives",
        gain_ms=(ms, 0.0, max(lost)),
        evidence=(
            EvidenceRow(kind="figure", name="collectives", calls=len(small) / len(held)),
            EvidenceRow(kind="figure", name="median_bytes", value=statistics.median(one.bytes or 0 for one in small)),
            EvidenceRow(kind="activity", name=operation, ms=statistics.fmean(bare)),
            EvidenceRow(kind="figure", name=MAY_WAIT, value=float(analysis.world_size - 1)),
        ),
        remedy=Remedy(cure="profile_others"),
        at_most=True,
    )


def _is_of_figures(one: RankCollective) -> bool:
    return 0 < (one.bytes or 0) <= _FIGURES_BYTES and one.operation not in MOVE_NO_DATA | PAIRWISE


def _bare_ms(record: RankRecord, collectives: list[RankCollective]) -> float:
    """Return for how long the rank computes nothing around collectives, until the next operator, ms: what hands them
    over, the exchange with its waiting, and what it takes to be woken again.
    """
    kinds = np.array(record.kind, np.int64) == COMPUTE
    starts, ends = np.array(record.start, np.int64)[kinds], np.array(record.end, np.int64)[kinds]
    computing = union(Intervals(starts, ends))
    idle = Intervals(computing.ends[:-1], computing.starts[1:])
    running = union(intervals([(one.start, one.end) for one in collectives]))
    within = covered_before(running, idle.ends) > covered_before(running, idle.starts)
    return float((idle.ends - idle.starts)[within].sum()) / 1e6
