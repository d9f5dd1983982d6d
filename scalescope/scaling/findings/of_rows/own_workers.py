"""Waits for cores beside loaders' workers, as far as a run noted what these use: they may be who has the cores.

So may other child processes of the ranks: no worker's batches are to be made cheaper for those.
"""

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import CoreWaits
from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.figures import (
    CORES_WAITED_FOR,
    LOADER_WORKERS,
    MAY_BE_OTHERS,
    MAY_BE_OTHERS_UP_TO,
    OTHER_CHILD,
    WORKERS_CORES,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import (
    BUSY_WORKER,
    HARDLY_WORKS,
    MOST_OF_WAITS,
    is_now_and_then,
    is_of_resting_workers,
)
from scalescope.scaling.finding.order import LITTLE, own_ms, reordered, weight
from scalescope.scaling.findings.of_rows.core_waits import is_wait_for_cores
from scalescope.scaling.findings.prices.may_go import may_go_ms
from scalescope.scaling.findings.shares import mean_step_ms
from scalescope.scaling.rank.annotations.loading import from_workers

#: Evidence that a rank's (`value`) loader workers may have the cores that are waited for: `ms` is what its loading
#: costs.
WORKERS_MAY_HAVE = "workers_may_have"
#: Cures of waits of which nobody known has the cores.
_UNKNOWN: frozenset[Cure] = frozenset({"free_cores", "core_for_rank"})
#: Workers that use less than this share of the cores that ranks wait for are no word worth.
_SOME_OF_IT = 0.2
#: Loading that costs so much of what is waited for leads: the one is sure, and the other may be its doing.
_LEADS = 0.25


def waits_for_workers(finding: Finding) -> bool:
    """Tell whether what one rank waits for is batches that worker processes make."""
    row = next((one for one in finding.evidence if one.kind == "annotation"), None)
    return finding.code == "data_loading" and finding.rank is not None and row is not None and from_workers(row.name)


def within_their_workers(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return findings in which loading costs no more than its workers can take of cores that ranks compute on.

    Where a run noted what its child processes used, a worker makes a rank wait for a core for as long at most. Ranks
    wait for each other: in the mean a step is longer by what one rank's workers use, at most by what all ranks' do.
    What hosts stand still for beyond that is somebody else's.

    Of workers that rest it costs what hosts are in their loaders for, and no more: batches have to be made by somebody,
    and those that make them have cores for less than that of the time. Of a healthy loop that idled for its batches for
    3.5 ms, *loading data costs 6.1 ms (1.9 ms to 9.2 ms)* was told, with what its workers (0.04 of a core each) did.
    """
    used = {one.rank: one.cores for one in analysis.worker_times}
    if not used or any(one.rank not in used for one in analysis.ranks):
        return list(findings)
    step_ms = mean_step_ms(analysis, "window")
    of_one, of_all = statistics.fmean(used.values()), sum(used.values())
    # *make the batches of the loaders' workers cheaper* was advised of two that used 0.02 of a core
    suspects = findings if _are_at_work(analysis) else [_of_others(one) for one in findings]
    waited = cores_waited_for(analysis)
    told = [_within(one, of_one * step_ms, of_all * step_ms, of_all, waited) for one in suspects]
    return reordered(told) if any(one is not own for one, own in zip(told, findings, strict=True)) else told


def _of_others(one: Finding) -> Finding:
    """Return a finding of hosts that stand still for a core as somebody else's than the loaders' workers."""
    if one.code != "host_starved" or one.remedy is None or one.remedy.cure != "cheaper_workers":
        return one
    rest = tuple(row for row in one.evidence if row.name != LOADER_WORKERS)
    return replace(one, evidence=rest, remedy=replace(one.remedy, cure="free_cores"))


def _within(one: Finding, likely_ms: float, most_ms: float, cores: float, waited: float) -> Finding:
    """Return a finding of loaders whose workers compute on the ranks' cores, within what these use a step."""
    waits = next((row.ms for row in one.evidence if row.name == LOADER_WORKERS), None)
    shared = any(row.name == "cores" for row in one.evidence)
    told = any(row.name == WORKERS_CORES for row in one.evidence)
    if one.code != "data_loading" or waits is None or not shared or told or one.ms is None or one.high_ms is None:
        return one
    own, own_high = own_ms(one), max(own_ms(one), one.high_ms - may_go_ms(one))  # waiting for batches, which is sure
    used = [EvidenceRow(kind="figure", name=WORKERS_CORES, value=cores)]
    if waited:
        used.append(EvidenceRow(kind="figure", name=CORES_WAITED_FOR, value=waited))
    rest = tuple(row for row in one.evidence if row.name not in (MAY_BE_OTHERS, MAY_BE_OTHERS_UP_TO))
    found = replace(one, evidence=(*rest, *used))
    if is_of_resting_workers(found):
        share = None if one.fraction is None or not one.ms else one.fraction * own / one.ms
        low = None if one.low_ms is None else min(one.low_ms, own)
        # of a healthy loop *more loader workers* was advised, which made its step of 121 ms 9 to 14 ms longer
        cure = Remedy(cure="hand_over_less")
        return replace(found, ms=own, low_ms=low, high_ms=own_high, fraction=share, remedy=cure)
    ms = max(own, min(one.ms, waits + likely_ms))
    high = max(own_high + ms - own, min(one.high_ms, waits + most_ms))
    share = None if one.fraction is None or not one.ms else one.fraction * ms / one.ms
    rows = [
        EvidenceRow(kind="figure", name=MAY_BE_OTHERS, ms=ms - own),
        EvidenceRow(kind="figure", name=MAY_BE_OTHERS_UP_TO, ms=high - own_high),
    ]
    return replace(one, ms=ms, high_ms=high, fraction=share, evidence=(*rest, *rows, *used))


def with_own_workers(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return findings of ranks that lack cores with the loaders' workers that have them, where a run noted so, or with
    another child process that has.

    Of workers that rest as one finding tells, none tells that they have the ranks' cores: *make the batches of the
    loaders' workers cheaper* stood before *the loader's workers rest*.
    """
    told = _with_slow_workers([_beside_child(one, analysis) for one in findings], analysis)
    if any(is_of_resting_workers(one) for one in told):
        return told
    return [_beside_workers(one, analysis) for one in told]


def _with_slow_workers(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return findings of waits for cores with the rank whose loader's workers may have these, which then comes first.

    A worker that its rank waits for is behind, and never rests: where it computes it has a core all the while. With it
    more threads compute than there are cores. Whether it computes, or waits for files, no trace tells. The run does,
    where it noted what the ranks' child processes used: who waits for files has no core.
    """
    times = analysis.step_times
    waits = times.core_waits if times is not None else None
    starved = next((one for one in findings if is_wait_for_cores(one) and _is_nobodys(one)), None)
    slow = next((one for one in findings if _sets_the_pace(one)), None)
    if starved is None or slow is None or waits is None or not _are_too_many(waits):
        return list(findings)
    if starved.rank not in (None, slow.rank):
        return list(findings)
    own = next((one for one in analysis.worker_times if one.rank == slow.rank), None)
    if own is not None and own.waiting is not None and own.cores + own.waiting < HARDLY_WORKS:
        return list(findings)
    rows = [EvidenceRow(kind="figure", name=WORKERS_MAY_HAVE, ms=slow.ms, value=float(slow.rank or 0))]
    if own is not None and own.cores >= BUSY_WORKER:
        rows.append(EvidenceRow(kind="figure", name=WORKERS_CORES, value=own.cores))
    evidence = (*(one for one in starved.evidence if one.name not in (WORKERS_MAY_HAVE, WORKERS_CORES)), *rows)
    told = [replace(one, evidence=evidence) if one is starved else one for one in findings]
    if weight(slow) < _LEADS * weight(starved):
        return told
    at = findings.index(starved)
    return told if at > findings.index(slow) else [*told[:at], slow, *(one for one in told[at:] if one is not slow)]


def _beside_workers(one: Finding, analysis: RunAnalysis) -> Finding:
    """Return a finding of ranks that lack cores with what the loaders' workers use of these, where it is some of it.

    A core that a worker has for as long makes one rank wait at a time. Where that is most of what ranks wait, less work
    in the workers is what gives the cores back. Of those that rest nothing is said.
    """
    told = any(row.name == WORKERS_MAY_HAVE for row in one.evidence)
    if one.code != "host_starved" or not _is_nobodys(one) or not one.ms or told or not _are_at_work(analysis):
        return one
    used, waited = sum(own.cores for own in analysis.worker_times), _waited_cores(one, analysis)
    share = used / waited if waited else 0.0
    if share < _SOME_OF_IT:
        return one
    rest = tuple(row for row in one.evidence if row.name != WORKERS_CORES)
    found = replace(one, evidence=(*rest, EvidenceRow(kind="figure", name=WORKERS_CORES, value=used)))
    return replace(found, remedy=Remedy(cure="cheaper_workers")) if share >= MOST_OF_WAITS else found


def _beside_child(one: Finding, analysis: RunAnalysis) -> Finding:
    """Return a finding of ranks that lack cores with the busiest child process that is no worker, where what it uses
    is some of what they wait for; on its rank's host, where it may be on another one.
    """
    children = [own for own in analysis.child_times if (analysis.hosts or 1) == 1 or own.rank == one.rank]
    told = any(row.name.startswith(f"{OTHER_CHILD} ") for row in one.evidence)
    if one.code != "host_starved" or not _is_nobodys(one) or not one.ms or told or not children:
        return one
    busiest = max(children, key=lambda own: own.cores)
    if busiest.cores < _SOME_OF_IT * _waited_cores(one, analysis):
        return one
    row = EvidenceRow(
        kind="figure", name=f"{OTHER_CHILD} {busiest.name}", value=busiest.cores, calls=float(busiest.rank)
    )
    return replace(one, evidence=(*one.evidence, row))


def _waited_cores(one: Finding, analysis: RunAnalysis) -> float:
    """Return how many cores the ranks of a finding wait for, in the mean."""
    times = analysis.step_times
    waits = times.core_waits if times is not None else None
    waits_ms, step_ms = (0.0, mean_step_ms(analysis, "window")) if waits is None else (waits.ms, waits.mean_step_ms)
    ranks = analysis.world_size if one.rank is None else analysis.hosts or 1
    return max(one.ms or 0.0, waits_ms) * ranks / step_ms if step_ms else 0.0


def cores_waited_for(analysis: RunAnalysis) -> float:
    """Return how many cores all ranks together wait for in steady steps, in the mean; 0 where nothing tells it."""
    waits = analysis.step_times.core_waits if analysis.step_times is not None else None
    return 0.0 if waits is None else waits.cores_a_rank * analysis.world_size


def _are_at_work(analysis: RunAnalysis) -> bool:
    """Tell whether the ranks' workers compute, or would if they had a core, and do not rest beside their batches."""
    wanted = [own.cores + (own.waiting or 0.0) for own in analysis.worker_times]
    return bool(wanted) and statistics.fmean(wanted) >= HARDLY_WORKS


def _is_nobodys(one: Finding) -> bool:
    return one.remedy is not None and one.remedy.cure in _UNKNOWN


def _sets_the_pace(one: Finding) -> bool:
    """Tell whether one rank's loader workers are sure to hold the step up, by more than a little."""
    sure = one.ms is not None and (one.low_ms or 0.0) > 0 and not one.at_most and not is_now_and_then(one)
    return sure and waits_for_workers(one) and (one.fraction or 0.0) >= LITTLE


def _are_too_many(waits: CoreWaits) -> bool:
    """Tell whether the ranks' threads and one worker beside them are more than the cores that they may run on."""
    return waits.threads is not None and waits.cores is not None and waits.threads + 1 > waits.cores
