"""What a job's own rows say of cores that its ranks wait for: more of the step than a few profiled ones show."""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.records.steps.core_waits import WAITS_FOR_CORES
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import CoreWaits
from scalescope.scaling.finding import BOUND_CORES, OWN_THREAD, STEADY_STEPS, Cure, EvidenceRow, Finding, Remedy
from scalescope.scaling.finding_order import ranked, weight
from scalescope.scaling.findings.prices.may_go import without_others

#: Evidence that ranks, ready to run, wait for a core: `ms` in the mean of `value` steady steps, of who waits most.
RUN_DELAY = "run_delay"
#: What is known of who takes turns on the cores says more than for how long ranks wait for them.
_KNOWN: frozenset[Cure] = frozenset({"fewer_threads", "cheaper_workers"})


def is_wait_for_cores(finding: Finding) -> bool:
    """Tell whether a finding is what ranks wait for cores in steady steps, which says nothing against other causes."""
    return any(row.name == RUN_DELAY for row in finding.evidence)


def with_core_waits(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return the findings with what ranks wait for cores in all steady steps, where that is much of them.

    In place of what the profiled ones show of the same, unless that costs more.
    """
    waits = analysis.step_times.core_waits if analysis.step_times is not None else None
    if waits is None or analysis.activity != "cpu":
        return list(findings)
    own = _finding(waits)
    same = [one for one in findings if _is_the_same(one)]
    costlier = any(_is_known(one) or (one.rank == own.rank and weight(one) >= weight(own)) for one in same)
    if costlier or not _is_worth_it(waits):
        return [_with_threads(one, waits) if one in same else one for one in findings]
    # the turns that a loader's workers may take are among what is waited for
    others = [without_others(one) for one in findings if one not in same and one.code != "nothing"]
    unpriced = [one for one in others if one.ms is None]
    return [*ranked([own, *(one for one in others if one.ms is not None)]), *unpriced]


def _is_worth_it(waits: CoreWaits) -> bool:
    """Tell whether ranks wait for more than the job's own threads make them, and in all stretches of the run."""
    return waits.ms >= WAITS_FOR_CORES * waits.mean_step_ms and waits.low_ms > 0


def _is_the_same(one: Finding) -> bool:
    cure = one.remedy.cure if one.remedy is not None else None
    return one.code == "host_starved" and (cure != "free_interpreter" or is_wait_for_cores(one))


def _is_known(one: Finding) -> bool:
    return one.remedy is not None and one.remedy.cure in _KNOWN


def _with_threads(one: Finding, waits: CoreWaits) -> Finding:
    """Return a finding with what is known of the threads that share its cores."""
    known = {row.name for row in one.evidence}
    told = [*_threads(waits), *(_binding(waits) if one.rank == waits.rank else [])]
    remedy = one.remedy
    if one.rank == waits.rank and waits.bound_cores is not None and remedy is not None and remedy.cure == "free_cores":
        remedy = replace(remedy, cure="more_cores_for_rank")
    return replace(one, remedy=remedy, evidence=(*one.evidence, *(row for row in told if row.name not in known)))


def _threads(waits: CoreWaits) -> list[EvidenceRow]:
    told = (("threads", waits.threads), ("cores", waits.cores))
    return [EvidenceRow(kind="figure", name=name, value=float(count)) for name, count in told if count is not None]


def _binding(waits: CoreWaits) -> list[EvidenceRow]:
    """Return to how many of its host's cores the rank is bound that waits alone, where that makes it wait."""
    bound = waits.bound_cores
    return [] if bound is None else [EvidenceRow(kind="figure", name=BOUND_CORES, value=float(bound))]


def _finding(waits: CoreWaits) -> Finding:
    figures = [*_threads(waits), *_binding(waits)]
    alone: Cure = "core_for_rank" if waits.bound_cores is None else "more_cores_for_rank"
    remedy = Remedy(cure="free_cores" if waits.rank is None else alone)
    if waits.own_thread_takes_turns:  # what is ready to run waits for a core, and never for the interpreter's lock
        remedy = Remedy(cure="core_for_thread")
        figures.append(
            EvidenceRow(kind="figure", name=f"{OWN_THREAD} {waits.own_thread}", value=waits.own_thread_cores)
        )
    if waits.has_too_many_threads and waits.cores is not None:
        remedy = Remedy(cure="fewer_threads", size=float(max(1, waits.cores // max(1, len(waits.profiled_ms)))))
    return Finding(
        code="host_starved",
        rank=waits.rank,
        ms=waits.ms,
        low_ms=waits.low_ms,
        high_ms=waits.high_ms,
        fraction=waits.ms / waits.mean_step_ms,
        evidence=(
            EvidenceRow(kind="figure", name=RUN_DELAY, ms=waits.ms, value=float(waits.steps)),
            EvidenceRow(kind="figure", name=STEADY_STEPS, ms=waits.mean_step_ms),
            *figures,
        ),
        remedy=remedy,
        backed="measured",
    )
