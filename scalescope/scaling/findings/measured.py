"""Findings of a run that nobody replays: who the others wait for, step by step, and what that rank does meanwhile.

What it costs is the exposed wait that is measured, which is a part of what the others lose: their compute is slower
while collectives wait, and that is seen only against another run, or in a replay. Loading for which nothing runs is
measured as it is, on all ranks or on one that the others wait for: it needs no replay, whatever else is noisy.
"""

import statistics
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise

from msgspec.structs import replace

from scalescope.records.statistics import half_of_mean, is_beyond_chance
from scalescope.scaling.evidence.interruptions import LONGEST_TURN_NS
from scalescope.scaling.finding.codes import Code, Cure
from scalescope.scaling.finding.figures import BESIDES, IN_STEPS, INPUTS
from scalescope.scaling.finding.finding import AlsoLate, EvidenceRow, Finding, Order, Remedy, ranks_of
from scalescope.scaling.finding.kinds import is_now_and_then
from scalescope.scaling.finding.order import ranked
from scalescope.scaling.findings.candidate import MOST_STEPS, Seen
from scalescope.scaling.rank.partition import Partition
from scalescope.scaling.verdicts.stragglers import DOING, Late, bounded_only

#: Ranks are late alike where each is late by so much of what the latest of them is.
_ALIKE = 0.75
#: The share of a step that loading takes at least to be told.
_WORTH = 0.01

_CURES: dict[Code, Cure] = {
    "own_work": "look_at_rank",
    "more_work": "even_out",
    "slower_compute": "look_at_device",
    "data_loading": "load_ahead",
    "copies": "copy_ahead",
    "host_stall": "look_at_host",
    "unsteady": "measure_again",
}


def measured_findings(late: Sequence[Late], step_ms: float, *, ranks: int = 1, on_cpu: bool = False) -> list[Finding]:
    """Return a finding for each late rank, in their order; `on_cpu`: the ranks compute on cores that others may use."""
    surely = [not on_cpu or _is_sure(one.beyond_ms, ranks) for one in late]
    told = [
        (one, _finding(one, step_ms, surely=sure))
        for one, sure in zip(late, surely, strict=True)
        if sure or not one.unawaited  # chance makes a rank longer, and this one nobody waits for
    ]
    if len(told) < 2 or not all(one.hides for one, _ in told):
        return [one for _, one in told]
    return _one_after_another(told, step_ms)


def _one_after_another(told: Sequence[tuple[Late, Finding]], step_ms: float) -> list[Finding]:
    """Return the findings of ranks that hide each other, the latest first: those alike as one, and of others what each
    brings once those that are later are mended. Where a later one would bring less than the next, they are late
    together, and what all bring is dealt out among them.
    """
    groups: list[list[tuple[Late, Finding]]] = []
    for late, one in told:
        same = next((own for own in groups if all(_is_alike(other, (late, one)) for other in own)), None)
        if same is None:
            groups.append([(late, one)])
        else:
            same.append((late, one))
    merged = [_as_one([one for _, one in own]) for own in groups]
    late_ms = [one.ms or 0.0 for one in merged]
    later_by = [ms - following for ms, following in zip(late_ms, [*late_ms[1:], 0.0], strict=True)]
    together = any(ms < following for ms, following in pairwise(later_by))
    shares = [sum(ms / (at + 1) for at, ms in enumerate(later_by) if at >= own) for own in range(len(merged))]
    found = []
    for at, one in enumerate(merged):
        last = at + 1 == len(merged)
        beside = [own for own in range(len(merged)) if own != at and (together or last or own == at + 1)]
        ranks = sorted({rank for own in beside for rank in ranks_of(merged[own])} - set(ranks_of(one)))
        if not ranks:
            found.append(one)
            continue
        order: Order = "together" if together else "after" if last else "first"
        also = AlsoLate(
            ranks=tuple(ranks),
            order=order,
            alone_ms=later_by[0] if at == 0 else 0.0,
            together_ms=late_ms[0],
            alike=all(_does_alike(groups[at], groups[own]) for own in beside),
        )
        found.append(replace(_less(one, shares[at] if together else later_by[at], step_ms), also_late=also))
    return found


def _is_alike(one: tuple[Late, Finding], other: tuple[Late, Finding]) -> bool:
    least, most = sorted((one[0].excess_ms, other[0].excess_ms))
    return one[0].rank != other[0].rank and _does_alike([one], [other]) and least >= _ALIKE * most


def _does_alike(one: Sequence[tuple[Late, Finding]], other: Sequence[tuple[Late, Finding]]) -> bool:
    return (one[0][0].code, one[0][0].kernel, one[0][0].part) == (
        other[0][0].code,
        other[0][0].kernel,
        other[0][0].part,
    )


def _as_one(findings: Sequence[Finding]) -> Finding:
    """Return the findings of ranks late alike as one: the latest of them, with what each does in the mean."""
    first = findings[0]
    if len(findings) < 2:
        return first
    ranks = tuple(sorted(rank for one in findings for rank in ranks_of(one)))
    own = [row for one in findings for row in one.evidence if row.name == first.evidence[0].name]
    mean = replace(first.evidence[0], ms=statistics.fmean(row.ms or 0.0 for row in own))
    one_ms = (first.ms or 0.0) - (findings[1].ms or 0.0)
    return replace(first, rank=ranks[0], ranks=ranks, one_ms=one_ms, evidence=(mean, *first.evidence[1:]))


def _less(finding: Finding, ms: float, step_ms: float) -> Finding:
    """Return a finding that costs no more than this of what its rank is late by, as others are late, too."""
    times = ms / finding.ms if finding.ms else 0.0
    return replace(
        finding,
        ms=ms,
        low_ms=times * (finding.low_ms or 0.0),
        high_ms=times * (finding.high_ms or 0.0),
        fraction=ms / step_ms,
    )


def with_loading(
    findings: Sequence[Finding],
    partitions: Mapping[int, Sequence[Partition]],
    open_ended: Set[int],
    step_ms: float,
    *,
    on_cpu: bool = False,
) -> list[Finding]:
    """Return findings with the loading that nothing hides, most costly first.

    What all ranks load at least makes each step so much longer. What one of them loads beyond the others, these wait
    for: in most steps, or in some, where a loader of several workers is slow now and then.
    """
    bounded = bounded_only(partitions, open_ended)
    count = min(map(len, bounded.values()), default=0)
    if not count or not step_ms:
        return list(findings)
    loads = {rank: [step.data / 1e6 for step in own[:count]] for rank, own in bounded.items()}
    together = [min(step) for step in zip(*loads.values(), strict=True)]
    found = []
    if statistics.fmean(together) >= _WORTH * step_ms:
        found.append(_loading(None, together, step_ms, surely=True))
    told = {rank for one in findings if one.code == "data_loading" for rank in ranks_of(one)}
    for rank in loads if len(loads) > 1 else ():
        others = [statistics.median(step) for step in zip(*(loads[one] for one in loads if one != rank), strict=True)]
        beyond = [own - other for own, other in zip(loads[rank], others, strict=True)]
        if rank not in told and statistics.fmean(beyond) >= _WORTH * step_ms:
            found.append(_loading(rank, beyond, step_ms, surely=not on_cpu or _is_sure(beyond, len(loads))))
    return ranked([*findings, *found])


def with_loading_now_and_then(priced: Sequence[Finding], measured: Sequence[Finding]) -> list[Finding]:
    """Return what a replay priced with the loading that one rank has in some steps alone, which is in no typical step.

    Where the replay knows of a loader, or of a host that stalls in those steps, it is told already.
    """
    told = {one.rank for one in priced if one.code == "data_loading" or is_now_and_then(one)}
    more = [
        one
        for one in measured
        if one.code == "data_loading" and one.rank is not None and is_now_and_then(one) and one.rank not in told
    ]
    if not more or None in told:
        return list(priced)
    return ranked([*(one for one in priced if one.code != "nothing"), *more])


def with_most_ranks(priced: Sequence[Finding], measured: Sequence[Finding], ranks: int) -> list[Finding]:
    """Return what a replay priced with what most of the ranks are late for, as the others' waits tell.

    A replay holds a rank against the middle one of the others, which is late as well then.
    """
    told = {rank for one in priced for rank in ranks_of(one)}
    most = [one for one in measured if 2 * len(one.ranks) > ranks and one.at_least and not told & set(one.ranks)]
    return ranked([*(one for one in priced if one.code != "nothing"), *most]) if most else list(priced)


def _loading(rank: int | None, beyond_ms: Sequence[float], step_ms: float, *, surely: bool) -> Finding:
    """Return the finding of what is loaded in each step, or (`rank`) beyond what the others load."""
    mean = statistics.fmean(beyond_ms)
    long = [ms for ms in beyond_ms if ms >= _WORTH * step_ms and ms >= mean / 2]
    rows = [EvidenceRow(kind="annotation", name="loading", ms=mean)]
    half = half_of_mean(beyond_ms)
    low, high = (mean - half if surely else 0.0), min(mean + half, step_ms)
    if len(beyond_ms) == 1:  # of one step nobody can tell what is usual
        low = 0.0
        rows.append(EvidenceRow(kind="figure", name=IN_STEPS, ms=mean, calls=1.0, value=1.0))
    elif len(long) < MOST_STEPS * len(beyond_ms):
        # steps of two kinds: how often they come is what is uncertain, and not how long they are
        each = statistics.fmean(long)
        low, high = Seen(len(long), len(beyond_ms)).bounds(mean)
        if not surely and 1e6 * each <= LONGEST_TURN_NS:
            low = 0.0  # others on its cores may have held it up for so long
        rows.append(
            EvidenceRow(kind="figure", name=IN_STEPS, ms=each, calls=float(len(long)), value=float(len(beyond_ms)))
        )
    return Finding(
        code="data_loading",
        rank=rank,
        ms=mean,
        low_ms=max(0.0, low),
        high_ms=max(mean, high),
        fraction=mean / step_ms,
        evidence=tuple(rows),
        remedy=Remedy(cure="load_ahead"),
        backed="measured",
    )


def _is_sure(beyond_ms: Sequence[float], ranks: int) -> bool:
    return is_beyond_chance(beyond_ms, ranks * len(DOING))


def _finding(late: Late, step_ms: float, *, surely: bool) -> Finding:
    half = half_of_mean(late.lost_ms)
    middle = statistics.fmean(late.lost_ms)
    own = EvidenceRow(kind="activity" if late.kernel else "figure", name=late.kernel or late.part, ms=late.excess_ms)
    waited = EvidenceRow(kind="figure", name="exposed_wait_of_others", ms=middle, share=middle / step_ms)
    besides = (
        ()
        if not late.besides
        else (EvidenceRow(kind="figure", name=BESIDES, calls=float(late.besides), value=float(late.besides_known)),)
    )
    inputs = () if late.inputs is None else (EvidenceRow(kind="figure", name=INPUTS, value=late.inputs),)
    return Finding(
        code=late.code,
        rank=late.rank,
        ms=middle,
        low_ms=max(0.0, middle - half) if surely else 0.0,
        high_ms=max(middle, min(middle + half, step_ms)),
        fraction=middle / step_ms,
        evidence=(*inputs, own, *besides, waited) if late.excess_ms > 0 else (waited,),
        remedy=Remedy(cure=_CURES[late.code]),
        backed="measured",
        at_least=surely and middle > half,  # the others' slower compute comes to it
    )
