"""Gradients that DDP exchanges in each of several backward passes of a step, where the last exchange would do.

That is counted, and so it is known whatever else a step loses. What surely goes with the needless exchanges is what
they leave bare, and the copies into their buckets and back. What they wait for may go as well, as far as each rank
waits for another one in turn; and as long as they run beside compute, they may take that time from it, or none.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

from scalescope.records.statistics import half_of_mean
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.figures import PASSES
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import is_interrupted_everywhere
from scalescope.scaling.finding.order import can_cost_ms, weight
from scalescope.scaling.findings.bounds.bare_transfer import shown
from scalescope.scaling.findings.bounds.rounds import OF_DDP
from scalescope.scaling.findings.candidate import WORTH_SAYING, may_wait_unseen, share_ms
from scalescope.scaling.findings.cores import CoreShare
from scalescope.scaling.findings.shares import bounded_steps, mean_step_ms
from scalescope.scaling.rank.records.backward_passes import backward_passes
from scalescope.scaling.rank.records.record import RankRecord

#: How gradients are cut is another matter, once they are exchanged no oftener than they need be.
_OF_BUCKETS: tuple[Code, ...] = ("small_buckets", "late_bucket")


def needless_exchanges(analysis: RunAnalysis, records: Mapping[int, RankRecord]) -> list[Finding]:
    """Return a finding where ranks on CPUs exchange gradients in several backward passes of a step; none elsewhere."""
    passes = backward_passes(records) if analysis.activity == "cpu" and not may_wait_unseen(analysis) else 1
    steps = {step.step for step in bounded_steps(analysis)}
    held = [one for one in analysis.collectives if one.step in steps]
    if passes < 2 or not held:
        return []
    step_ms = step_as_run(analysis)[0].value
    bare, needless = share_ms(analysis, "exposed_transfer"), 1 - 1 / passes
    surely = (bare + _in_buckets_ms(analysis, records)) * needless
    perhaps = _hidden_ms(analysis) * needless + _waits_in_turn_ms(analysis)
    middle = surely + perhaps / 2
    by_step = _bare_by_step_ms(analysis)
    # two steps tell next to nothing of how far others lie, and that each of them has as much as the one with the least
    off = min(half_of_mean(by_step), max(by_step) - min(by_step)) if by_step else 0.0
    half = math.hypot(perhaps / 2, off * needless)
    least, most = max(0.0, middle - half), middle + half
    if bare <= 0 or most < WORTH_SAYING * step_ms:
        return []
    rows = [*shown(held, len(steps), bare, step_ms), EvidenceRow(kind="figure", name=PASSES, calls=passes)]
    if sizes := [one.bytes for one in held if one.bytes is not None]:
        rows.append(EvidenceRow(kind="figure", name="median_bytes", value=statistics.median(sizes)))
    return [
        Finding(
            code="exposed_transfer",
            ms=least,
            low_ms=least,
            high_ms=most,
            fraction=least / step_ms,
            evidence=tuple(rows),
            remedy=Remedy(cure="exchange_once"),
            backed="bound",
            at_least=True,
        )
    ]


def without_what_goes_with(
    needless: Sequence[Finding], found: Sequence[Finding], cores: CoreShare | None
) -> list[Finding]:
    """Return findings without what needless exchanges may as well be the cause of.

    How they are cut costs less once they are gone. And where cores are full, the threads that move their data take
    turns with those that compute, on all ranks, for as long as they run: no second fault of the job.
    """
    most_ms = sum(map(can_cost_ms, needless))
    full = cores is not None and cores.threads >= cores.cores
    return [
        one
        for one in found
        if weight(one) >= most_ms or not (one.code in _OF_BUCKETS or (full and is_interrupted_everywhere(one)))
    ]


def _hidden_ms(analysis: RunAnalysis) -> float:
    """Return for how long collectives run beside compute, a step of the mean rank: as much they may take from that.

    A rank's figures are those of its whole window.
    """
    hidden = [one.communication_ms * (one.overlap_fraction or 0.0) / max(1, one.steps) for one in analysis.ranks]
    return statistics.fmean(hidden) if hidden else 0.0


def _waits_in_turn_ms(analysis: RunAnalysis) -> float:
    """Return for how long the rank that waits least does so, a step: no more of all waits can go with exchanges.

    A step takes no less than what its latest rank does without waiting, and that is the one which waits least.
    """
    of_step: dict[int, list[float]] = {}
    for one in bounded_steps(analysis):
        of_step.setdefault(one.step, []).append(one.exposed_wait_ms)
    least = statistics.fmean(map(min, of_step.values())) if of_step else math.inf
    return min(least, share_ms(analysis, "exposed_wait"))


def _bare_by_step_ms(analysis: RunAnalysis) -> list[float]:
    """Return what transfers leave bare in each step, of the mean rank: a few steps tell only roughly what all do."""
    of_step: dict[int, list[float]] = {}
    for one in bounded_steps(analysis):
        of_step.setdefault(one.step, []).append(one.exposed_transfer_ms)
    return [statistics.fmean(own) for own in of_step.values()]


def _in_buckets_ms(analysis: RunAnalysis, records: Mapping[int, RankRecord]) -> float:
    """Return what DDP's reducer takes to copy gradients into its buckets and back, a step of the mean rank.

    Without recording that is shorter, as all compute is.
    """
    found = []
    for record in records.values():
        begin, end = record.edges[0], record.edges[-1]
        own = [
            until - start
            for name, start, until in zip(record.name, record.start, record.end, strict=True)
            if name.startswith(OF_DDP) and begin <= start < end
        ]
        found.append(sum(own) / 1e6 / max(1, len(record.edges) - 1))
    profiled_ms = mean_step_ms(analysis, "compute")
    pace = min(1.0, share_ms(analysis, "compute") / profiled_ms) if profiled_ms else 1.0
    return statistics.fmean(found) * pace if found else 0.0
