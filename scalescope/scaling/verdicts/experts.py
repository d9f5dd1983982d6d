"""How evenly experts are loaded, by the all-to-alls that carry tokens to them and back, and what waits for the fullest.

An all-to-all of a group is uneven where its members receive, or send, different amounts. Tokens on their way to experts
show in what is received, on their way back in what is sent: of each call the more uneven side counts as the load. The
load's imbalance is the fullest rank's share times the number of ranks: 1 where all have as much.

While the fullest rank computes, the others wait for it in the all-to-all that brings tokens back: what of that is
exposed is what the imbalance costs, as far as it is seen in these collectives.
"""

import statistics
from collections.abc import Mapping, Sequence

from scalescope.records.operations import EXCHANGES
from scalescope.scaling.answer_rows import ExpertRow
from scalescope.scaling.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.ranks.matching import Match
from scalescope.scaling.ranks.summary import RankSummary
from scalescope.scaling.trace.intervals import intersect, intervals, length, union

#: A group whose fullest rank has so much more than the mean is uneven.
UNEVEN = 1.05
#: What waits for it costs at least this share of the step, else it is no finding.
_WORTH_SAYING = 0.008
#: What else is found of the rank that has most tokens, and is the same cause.
_SAME_CAUSE = ("more_work", "slower_compute", "unsteady")

_Loads = dict[int, int]  # by rank, bytes


def expert_rows(
    summaries: Mapping[int, RankSummary], matches: Sequence[Match], ready: Mapping[int, Mapping[int, int]]
) -> list[ExpertRow]:
    """Return a row for each group whose all-to-alls are uneven, most uneven first.

    `ready`: by rank and its collective's index, when its data could move.
    """
    loads: dict[str, _Loads] = {}
    calls: dict[str, list[Match]] = {}
    for match in matches:
        load = _load_of(match, summaries)
        if load is None:
            continue
        sums = loads.setdefault(match.group, dict.fromkeys(load, 0))
        for rank, size in load.items():
            sums[rank] = sums.get(rank, 0) + size
        calls.setdefault(match.group, []).append(match)
    rows = [_row(group, load, calls[group], summaries, ready) for group, load in loads.items() if sum(load.values())]
    return sorted((row for row in rows if row.imbalance >= UNEVEN), key=lambda row: -row.imbalance)


def _load_of(match: Match, summaries: Mapping[int, RankSummary]) -> _Loads | None:
    """Return the bytes that each member has of a call inside the steps; None where it is none, or they are not told."""
    rank, index = next(iter(match.members.items()))
    if match.missing is not None or summaries[rank].collectives[index].operation not in EXCHANGES:
        return None
    members = {rank: summaries[rank].collectives[index] for rank, index in match.members.items()}
    if any(one.step is None for one in members.values()) or len(members) < 2:
        return None
    sides = [side for name in ("sent", "received") if (side := _side(members, name)) is not None]
    return max(sides, key=lambda side: max(side.values()) / (sum(side.values()) or 1), default=None)


def _side(members: Mapping[int, RankCollective], name: str) -> _Loads | None:
    found = {rank: getattr(one, name) for rank, one in members.items()}
    return None if any(size is None for size in found.values()) else found


def _row(
    group: str,
    load: _Loads,
    calls: Sequence[Match],
    summaries: Mapping[int, RankSummary],
    ready: Mapping[int, Mapping[int, int]],
) -> ExpertRow:
    fullest = max(load, key=lambda rank: (load[rank], -rank))
    whole = sum(load.values())
    waits = [_exposed_wait(rank, calls, summaries, ready) for rank in load if rank != fullest]
    steps = max(1, max(_steps(summaries[rank]) for rank in load))
    return ExpertRow(
        group=group,
        rank=fullest,
        imbalance=load[fullest] * len(load) / whole,
        share=load[fullest] / whole,
        bytes_by_rank={rank: size / steps for rank, size in load.items()},
        calls=len(calls) / steps,
        wait_ms=statistics.fmean(waits),
    )


def _steps(summary: RankSummary) -> int:
    return len(summary.shares.windows) if summary.shares is not None else 0


def _exposed_wait(
    rank: int,
    calls: Sequence[Match],
    summaries: Mapping[int, RankSummary],
    ready: Mapping[int, Mapping[int, int]],
) -> float:
    """Return how long a rank's exposed waiting in these calls is, ms a step."""
    summary = summaries[rank]
    if summary.shares is None:
        return 0.0
    indices = [match.members[rank] for match in calls]
    spans = [(summary.collectives[at].start, ready[rank][at]) for at in indices if at in ready.get(rank, {})]
    exposed = length(intersect(summary.shares.exposed, union(intervals(spans))))
    return exposed / max(1, _steps(summary)) / 1e6


def with_experts(findings: Sequence[Finding], experts: Sequence[ExpertRow], step_ms: float) -> list[Finding]:
    """Return findings with those of uneven experts, which take the place of what they make one rank do."""
    uneven = [row for row in experts if step_ms and row.wait_ms >= _WORTH_SAYING * step_ms]
    if not uneven:
        return list(findings)
    full = {row.rank for row in uneven}
    others = [one for one in findings if not (one.rank in full and one.code in _SAME_CAUSE) and one.code != "nothing"]
    others = [one for one in others if one.code != "expert_imbalance"]
    return [*(_finding(row, step_ms) for row in uneven), *others]


def _finding(row: ExpertRow, step_ms: float) -> Finding:
    return Finding(
        code="expert_imbalance",
        rank=row.rank,
        ms=row.wait_ms,
        low_ms=row.wait_ms,
        high_ms=row.wait_ms,
        fraction=row.wait_ms / step_ms,
        evidence=(EvidenceRow(kind="figure", name="tokens", share=row.share, value=row.imbalance),),
        remedy=Remedy(cure="balance_experts"),
        backed="measured",
    )
