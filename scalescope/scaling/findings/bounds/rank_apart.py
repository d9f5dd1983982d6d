"""A rank that does by far more of its own than the others, who wait meanwhile, where no replay prices it.

Where waits cannot be dealt out (groups that are not known, a window of one step), the parts of the step still tell: one
rank's host does nothing for 60 ms and the others' for 2, and they are in collectives for as much longer. What it costs
is no more than either.
"""

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.records.statistics import half_of_mean, largest_of_others
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import StepSplit
from scalescope.scaling.finding.codes import Code, Cure
from scalescope.scaling.finding.figures import IN_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy, ranks_of
from scalescope.scaling.finding.order import ranked, weight
from scalescope.scaling.findings.shares import bounded_steps, mean_step_ms

#: A rank is apart that has so many times as much of a part as any other's usual step, and more by so much of a step.
_TIMES, _SHARE = 2.0, 0.1
#: In how many of the steps.
_MOST_STEPS = 0.75
#: Of that, so much at least the others wait for longer than it does.
_WAITED = 0.5
#: What a rank does by itself, and what that is called and cured.
_PARTS: dict[str, tuple[Code, Cure]] = {
    "idle_launch": ("host_stall", "look_at_host"),
    "idle_data": ("data_loading", "load_ahead"),
    "compute": ("slower_compute", "look_at_rank"),
    "exposed_memory": ("copies", "copy_ahead"),
}
_WAITS = ("exposed_wait", "exposed_unsplit")


def with_ranks_apart(analysis: RunAnalysis, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with those of ranks apart, for what of the same rank was told as less than half of it."""
    found = list(findings)
    for one in ranks_apart(analysis):
        own = [other for other in found if one.rank in ranks_of(other) and other.ms is not None]
        if any(weight(other) >= weight(one) / 2 for other in own):
            continue
        place = next((other.evidence for other in own if other.code == one.code), ())  # it may say before what
        rows = [row for row in place if row.name.startswith("gap_before ")] if one.code == "host_stall" else []
        found = [
            other for other in found if other.code != "nothing" and (other.rank, other.code) != (one.rank, one.code)
        ]
        found.append(replace(one, evidence=(*(replace(row, ms=one.evidence[0].ms) for row in rows), *one.evidence)))
    return [*ranked([one for one in found if one.ms is not None]), *(one for one in found if one.ms is None)]


def ranks_apart(analysis: RunAnalysis) -> list[Finding]:
    """Return a finding for each rank that does far more of its own than any other, while the others wait."""
    by_rank: dict[int, list[StepSplit]] = {}
    for step in bounded_steps(analysis):
        by_rank.setdefault(step.rank, []).append(step)
    if len(by_rank) < 2:
        return []
    steps = min(map(len, by_rank.values()))
    whole = mean_step_ms(analysis, "window")
    found = []
    # the others' usual step: one of them may be held up in a single one
    usual = {
        part: [statistics.median(step.part_ms(part) for step in own[:steps]) for own in by_rank.values()]
        for part in _PARTS
    }
    most_of_others = {part: largest_of_others(each) for part, each in usual.items()}
    for place, (rank, own) in enumerate(by_rank.items()):
        for part, (code, cure) in _PARTS.items():
            most = most_of_others[part][place]
            mine = [step.part_ms(part) for step in own[:steps]]
            beyond = [one - most for one in mine]
            apart = sum(ms >= _SHARE * whole and one >= _TIMES * most for ms, one in zip(beyond, mine, strict=True))
            if apart < _MOST_STEPS * steps:
                continue
            others = [theirs for other, theirs in by_rank.items() if other != rank]
            waited = [
                statistics.fmean(_waited(theirs[at]) for theirs in others) - _waited(own[at]) for at in range(steps)
            ]
            cost = [min(pair) for pair in zip(beyond, waited, strict=True)]
            if statistics.fmean(cost) >= _WAITED * statistics.fmean(beyond):
                row = EvidenceRow(kind="figure", name=part, ms=statistics.fmean(mine), others_ms=most)
                found.append(_finding(code, cure, rank, row, cost, statistics.fmean(beyond), whole))
    return ranked(found)


def _waited(step: StepSplit) -> float:
    return sum(step.part_ms(part) for part in _WAITS)


def _finding(
    code: Code, cure: Cure, rank: int, row: EvidenceRow, cost: Sequence[float], most_ms: float, step_ms: float
) -> Finding:
    ms = statistics.fmean(cost)
    alone = len(cost) == 1  # of one step nobody can tell what is usual
    half = ms if alone else half_of_mean(cost)
    often = (EvidenceRow(kind="figure", name=IN_STEPS, ms=row.ms, calls=1.0, value=1.0),) if alone else ()
    return Finding(
        code=code,
        rank=rank,
        ms=ms,
        low_ms=max(0.0, ms - half),
        high_ms=min(max(most_ms, ms + (0.0 if alone else half)), step_ms),
        fraction=ms / step_ms,
        evidence=(row, *often),
        remedy=Remedy(cure=cure),
        backed="bound",
    )
