"""What loading costs at most, and at least, where a job's own rows tell how long its hosts are in their loaders.

A window of a few steps begins with batches that were made ahead of it, and recording slows what takes them over: it
shows less loading than there is, or more.
"""

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import CoreWaits, LoadingInSteps
from scalescope.scaling.finding.figures import (
    CORES_WAITED_FOR,
    LOADED,
    MAY_BE_OTHERS,
    MAY_BE_OTHERS_UP_TO,
    STEADY_STEPS,
    WORKERS_CORES,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import (
    is_now_and_then,
    is_of_one_step,
    is_of_resting_workers,
    is_of_steady_steps,
)
from scalescope.scaling.finding.order import own_ms, ranked, reordered
from scalescope.scaling.findings.prices.may_go import may_go_ms
from scalescope.scaling.findings.shares import bounded_means
from scalescope.scaling.rank.loading_names import is_known_loader

#: Rows tell of all that a trace calls loading where their hosts loaded for so much of it in the profiled steps.
_ALL_OF_IT = 0.8
#: What all hosts load for in all steps is told where it is so much of the mean step.
_SHARE = 0.05
#: What tells of a finding that its workers rest.
_OF_RESTING = ("ranks", WORKERS_CORES, CORES_WAITED_FOR)
#: Less than so much of its cost is no other figure.
_AS_MUCH = 0.01


def within_timed_loading(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return findings in which loading costs no more than hosts wait for it in all steps, and for cores meanwhile.

    Of a healthy loop, whose workers share two cores with two ranks, *loading data costs 10.5 ms (3.2 ms to 16.7 ms)*
    was told by what all turns of operators may be, of which its rows allow for 4 ms in the loaders and 9 for cores.
    """
    times = analysis.step_times
    if times is None or times.loading is None or not _is_all(times.loading, analysis):
        return list(findings)
    told = [_within(one, times.loading, times.core_waits) for one in findings]
    return reordered(told) if any(one is not own for one, own in zip(told, findings, strict=True)) else told


def _is_all(loading: LoadingInSteps, analysis: RunAnalysis) -> bool:
    """Tell whether rows have all that traces call loading."""
    traced = {one.rank: one.idle_data_ms for one in bounded_means(analysis)}
    told = dict(enumerate(loading.profiled_ms))
    return bool(told) and all(told.get(rank, 0.0) >= _ALL_OF_IT * ms for rank, ms in traced.items())


def _within(one: Finding, loading: LoadingInSteps, waits: CoreWaits | None) -> Finding:
    if one.code != "data_loading" or one.ms is None or one.high_ms is None or one.ranks or is_of_steady_steps(one):
        return one
    named = [row.name for row in one.evidence if row.kind == "annotation"]
    if is_now_and_then(one) or not named or not all(map(is_known_loader, named)):
        return one
    # a rank's own loading costs no step more than it takes, and all ranks' no more than the longest
    mean_ms = statistics.fmean(loading.by_rank_ms) if one.rank is None else loading.by_rank_ms[one.rank]
    most_ms = loading.longest_ms if one.rank is None else mean_ms
    half_ms = loading.longest_high_ms - loading.longest_ms
    own, more_ms, more_high_ms = own_ms(one), one.ms - own_ms(one), may_go_ms(one)
    own_high_ms = one.high_ms - more_high_ms
    known_ms = min(own, most_ms)
    known_high_ms = max(known_ms, min(own_high_ms, most_ms + half_ms))
    if waits is not None and _is_one_thread_a_rank(one):
        more_high_ms = min(more_high_ms, waits.ms)
        more_ms = min(more_ms, more_high_ms / 2)
    ms, high_ms = known_ms + more_ms, known_high_ms + more_high_ms
    if ms > (1 - _AS_MUCH) * one.ms and high_ms > (1 - _AS_MUCH) * one.high_ms:
        return one
    kept = [row for row in one.evidence if row.name not in (MAY_BE_OTHERS, MAY_BE_OTHERS_UP_TO, LOADED)]
    if own < one.ms:
        kept.append(EvidenceRow(kind="figure", name=MAY_BE_OTHERS, ms=more_ms))
        kept.append(EvidenceRow(kind="figure", name=MAY_BE_OTHERS_UP_TO, ms=more_high_ms))
    kept.append(EvidenceRow(kind="figure", name=LOADED, ms=mean_ms, value=float(loading.steps)))
    fraction = None if one.fraction is None or not one.ms else one.fraction * ms / one.ms
    low_ms = None if one.low_ms is None else min(one.low_ms, ms)
    return replace(one, ms=ms, low_ms=low_ms, high_ms=high_ms, fraction=fraction, evidence=tuple(kept))


def _is_one_thread_a_rank(one: Finding) -> bool:
    """Tell whether each rank computes with its loop's thread alone, whose waits for a core rows tell."""
    told = {row.name: row.value for row in one.evidence if row.kind == "figure"}
    return told.get("threads") is not None and told.get("threads") == told.get("ranks")


def with_timed_loading(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return findings with what all hosts load for in all steps, where the window shows less of it than that.

    Of hosts that compute: those that launch for a device may load meanwhile. While a window is made ready workers make
    batches ahead, and in its few steps these are taken: of loading for half of each step *8.7 ms of the only step that
    is recorded whole* was told. Of workers that a window tells to rest the same holds here.
    """
    loading = analysis.step_times.loading if analysis.step_times is not None else None
    if loading is None or analysis.activity != "cpu" or not loading.steps or not analysis.ranks:
        return list(findings)
    if loading.shortest_low_ms < _SHARE * loading.mean_step_ms:
        return list(findings)
    known = [one for one in findings if one.code == "data_loading" and one.ms is not None]
    if any((one.high_ms or 0.0) >= loading.shortest_low_ms for one in known if not is_of_one_step(one)):
        return list(findings)
    remedy = next((one.remedy for one in known if one.remedy is not None), None)
    rest_of_them = next((one for one in known if is_of_resting_workers(one)), None)
    found = Finding(
        code="data_loading",
        ms=statistics.fmean(loading.by_rank_ms),
        low_ms=loading.shortest_low_ms,
        high_ms=loading.longest_high_ms,
        fraction=statistics.fmean(loading.by_rank_ms) / loading.mean_step_ms,
        evidence=(
            EvidenceRow(
                kind="figure", name=LOADED, ms=statistics.fmean(loading.by_rank_ms), value=float(loading.steps)
            ),
            EvidenceRow(kind="figure", name=STEADY_STEPS, ms=loading.mean_step_ms),
            *(row for row in (rest_of_them.evidence if rest_of_them else ()) if row.name in _OF_RESTING),
        ),
        remedy=remedy or Remedy(cure="load_faster" if analysis.worker_times else "load_ahead"),
        backed="measured",
    )
    nothing = [one for one in findings if one.code == "nothing" and rest_of_them is not None]
    rest = [one for one in findings if one not in known and one.code != "nothing"]
    unpriced = [one for one in rest if one.ms is None]
    return [*nothing, *ranked([found, *(one for one in rest if one.ms is not None)]), *unpriced]
