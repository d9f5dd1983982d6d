"""How evenly experts are loaded, by the all-to-alls that carry tokens to them and back, and what waits for the fullest.

An all-to-all of a group is uneven where its members receive, or send, different amounts. Tokens on their way to experts
show in what is received, on their way back in what is sent: of each call the more uneven side counts as the load. The
load's imbalance is the fullest rank's share times the number of ranks: 1 where all have as much.

While the fullest rank computes, the others wait for it in the all-to-all that brings tokens back, as far as that is
exposed and seen in these collectives. Balanced experts compute as much in all: the tokens that leave the fullest rank
are then the others' work. So what the imbalance costs is the wait of the mean rank, of which the fullest is one that
does not wait: of two ranks half of what the other waits.
"""

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise

from scalescope.records.operations import EXCHANGES
from scalescope.records.statistics import half_of_mean
from scalescope.scaling.answer_rows import ExpertRow
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.ranks.matching import Match
from scalescope.scaling.ranks.summary import RankSummary
from scalescope.scaling.trace.intervals import clip, intersect, intervals, length, union

#: A group whose fullest rank has so much more than the mean is uneven.
UNEVEN = 1.05
#: What the imbalance costs is at least this share of the step, else it is no finding.
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
    waits = [_exposed_waits(rank, calls, summaries, ready) for rank in load if rank != fullest]
    lost = [sum(step) / len(load) for step in zip(*filter(None, waits), strict=False)]
    half = half_of_mean(lost) if len(lost) > 1 else 0.0
    gain = statistics.fmean(lost) if lost else 0.0
    steps = max(1, max(_steps(summaries[rank]) for rank in load))
    return ExpertRow(
        group=group,
        rank=fullest,
        imbalance=load[fullest] * len(load) / whole,
        share=load[fullest] / whole,
        bytes_by_rank={rank: size / steps for rank, size in load.items()},
        calls=len(calls) / steps,
        wait_ms=gain * len(load) / len(waits),
        gain_ms=gain,
        gain_low_ms=max(0.0, gain - half),
        gain_high_ms=gain + half,
    )


def _steps(summary: RankSummary) -> int:
    return len(summary.shares.windows) if summary.shares is not None else 0


def _exposed_waits(
    rank: int,
    calls: Sequence[Match],
    summaries: Mapping[int, RankSummary],
    ready: Mapping[int, Mapping[int, int]],
) -> list[float]:
    """Return how long a rank's exposed waiting in these calls is in each step, ms."""
    summary = summaries[rank]
    if summary.shares is None:
        return []
    indices = [match.members[rank] for match in calls]
    spans = [(summary.collectives[at].start, ready[rank][at]) for at in indices if at in ready.get(rank, {})]
    exposed = intersect(summary.shares.exposed, union(intervals(spans)))
    edges = summary.shares.windows.edges.tolist()
    return [length(clip(exposed, begin, end)) / 1e6 for begin, end in pairwise(edges)]


def with_experts(findings: Sequence[Finding], experts: Sequence[ExpertRow], step_ms: float) -> list[Finding]:
    """Return findings with those of uneven experts, which take the place of what they make one rank do."""
    uneven = [row for row in experts if step_ms and row.gain_ms >= _WORTH_SAYING * step_ms]
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
        ms=row.gain_ms,
        low_ms=row.gain_low_ms,
        high_ms=row.gain_high_ms,
        fraction=row.gain_ms / step_ms,
        evidence=(EvidenceRow(kind="figure", name="tokens", share=row.share, value=row.imbalance),),
        remedy=Remedy(cure="balance_experts"),
        backed="measured",
    )
