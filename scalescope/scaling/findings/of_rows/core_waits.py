"""What a job's own rows say of cores that its ranks wait for: more of the step than a few profiled ones show."""

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.records.steps.core_waits import WAITS_FOR_CORES
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import CoreWaits
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.codes import TOO_MANY_THREADS, Code, Cure
from scalescope.scaling.finding.figures import (
    BOUND_CORES,
    IN_EVERY_STEP,
    IN_STEPS,
    LATE_RANK,
    LOOPS_WAIT,
    MAY_BE_OTHERS,
    OWN_THREAD,
    STEADY_STEPS,
    WAITED_THERE,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import is_certain
from scalescope.scaling.finding.order import ranked, weight
from scalescope.scaling.findings.candidate import WORTH_SAYING
from scalescope.scaling.findings.detectors.oversubscribed import fewer_threads
from scalescope.scaling.findings.prices.may_go import without_others

#: Evidence that ranks, ready to run, wait for a core: `ms` in the mean of `value` steady steps, of who waits most.
RUN_DELAY = "run_delay"
#: … and from which step on (`value`) they do so, where that changed: for `ms` then, and for `others_ms` before.
SINCE_STEP = "since_step"
#: Evidence where nothing is found on CPUs: whether ranks wait for cores, which count as compute, nothing tells.
UNTOLD_CORES = "waits_for_cores_untold"
#: What is known of who takes turns on the cores says more than for how long ranks wait for them: threads that are
#: counted, or workers that are there, where no run noted what these use.
_KNOWN: frozenset[Cure] = frozenset(TOO_MANY_THREADS)
_BY_WORKERS: Cure = "cheaper_workers"

#: What of one rank shows that it waits for cores: operators that take longer, and a host that stands still.
_SHOW_WAITS: frozenset[Code] = frozenset(("slower_compute", "host_stall"))

#: Steps are longer for waits for cores that are so much of what they take longer.
_WHY_LONGER = 0.5
#: Where threads are so many times as many as the cores, and one a rank is to be left, what loops wait for a core tells
#: what they cost.
_TIMES_THE_CORES = 2
#: So many times what the loops waited came back with one thread a rank: the least, the middle and the most of 15 tries
#: of nine jobs computed with both in turns (four networks, two ranks of 2 to 8 threads, two cores), 0.26 to 1.67, half
#: of them 0.39 to 1.03. It is less as other threads compute meanwhile, and more as loops spin for those without a core.
#: Beside processes that had more than half of the cores -0.9 to 0.2 times as much did, of an MLP by 4 and 8 threads a
#: rank, which then have more of them than one has; by 2, 0.8 to 1.3 times.
COMES_BACK = (0.25, 0.66, 1.67)
#: Up to so much of the step without its waits the job's own other threads make its loops wait, where these have all the
#: cores: of 60 runs of two ranks on two cores 0.16 at most, and of one of ten small all-reduces a step 0.21, to which a
#: core for each rank brought nothing back. Beside another process it was 0.25 to 1.4.
_BY_OWN_THREADS = 0.21


def is_wait_for_cores(finding: Finding) -> bool:
    """Tell whether a finding is what ranks wait for cores in steady steps, which says nothing against other causes."""
    return any(row.name == RUN_DELAY for row in finding.evidence)


def with_core_waits(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return the findings with what ranks wait for cores in all steady steps, where that is much of them.

    In place of what the profiled ones show of the same, unless that costs more.
    """
    waits = analysis.step_times.core_waits if analysis.step_times is not None else None
    findings = [_as_known(one, untold=waits is None and analysis.activity == "cpu") for one in findings]
    if waits is None or analysis.activity != "cpu":
        return findings
    findings = [one for one in findings if not _is_of_own_threads(one, waits)]
    own = _finding(waits)
    same = [one for one in findings if _is_the_same(one)]
    own_ms = (own.ms or 0.0) if own.at_most else weight(own)  # of waits that may be the job's own, all are told
    counted = _are_all_counted(waits, analysis)
    costlier = any(
        _is_known(one, analysis)
        or (one.rank == own.rank and weight(one) >= _as_much(own, own_ms, one) and not (counted and one.at_least))
        for one in same
    )
    if costlier or not _is_worth_it(waits):
        return _as_weighed(findings, [_with_threads(one, waits) if one in same else one for one in findings])
    # the turns that a loader's workers may take are among what is waited for
    others = [without_others(one) for one in findings if one not in same and one.code != "nothing"]
    others = [one for one in others if not _are_its_waits(one, own)]
    others = [left for one in others if (left := _beyond_waits(one, own, waits)) is not None]
    return _priced_first([own, *others])


def _are_all_counted(waits: CoreWaits, analysis: RunAnalysis) -> bool:
    """Tell whether ranks compute on no thread beside their loops: then what these wait for a core is all of it, and
    what operators take beyond their shortest is no lower bound of more.
    """
    return waits.threads is not None and 0 < waits.threads * (analysis.hosts or 1) <= analysis.world_size


def _as_known(one: Finding, *, untold: bool) -> Finding:
    """Return what says that nothing is found with whether waits for cores are unknown, which count as compute."""
    if one.code != "nothing":
        return one
    rest = tuple(row for row in one.evidence if row.name != UNTOLD_CORES)
    return replace(one, evidence=(*rest, EvidenceRow(kind="figure", name=UNTOLD_CORES)) if untold else rest)


def _as_weighed(before: Sequence[Finding], told: list[Finding]) -> list[Finding]:
    """Return findings in their order, or by what they weigh where that is known anew of one of them."""
    anew = any(weight(one) != weight(other) for one, other in zip(before, told, strict=True))
    return _priced_first(told) if anew else told


def _priced_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings by what they cost; behind them those of which that cannot be told."""
    priced = ranked([one for one in findings if one.ms is not None])
    return [*priced, *(one for one in findings if one.ms is None)]


def _is_worth_it(waits: CoreWaits) -> bool:
    """Tell whether ranks wait for more than the job's own threads make them, and in all stretches of the run."""
    return waits.ms >= WAITS_FOR_CORES * waits.mean_step_ms and waits.low_ms > 0


def _is_of_own_threads(one: Finding, waits: CoreWaits) -> bool:
    """Tell whether a rank's host stands still now and then by no more than the job's own threads make it, where all
    steps tell that it waits for a core no longer than that, nor far longer than the others: nobody disturbs it.
    """
    free = one.remedy is not None and one.remedy.cure in ("free_cores", "core_for_rank")
    still = any(row.name == "interruptions" for row in one.evidence)
    if one.code != "host_starved" or one.rank is None or not (free and still) or _is_worth_it(waits):
        return False
    return (one.ms or 0.0) <= _by_own_threads_ms(waits)


def _is_the_same(one: Finding) -> bool:
    cure = one.remedy.cure if one.remedy is not None else None
    return one.code == "host_starved" and (cure != "free_interpreter" or is_wait_for_cores(one))


def _are_its_waits(one: Finding, own: Finding) -> bool:
    """Tell whether some of the profiled steps are longer for nothing but the waits for cores that all steps tell of."""
    rows = {row.name: row for row in one.evidence}
    long, waited, whose = rows.get(IN_STEPS), rows.get(WAITED_THERE), rows.get(LATE_RANK)
    if one.code != "unsteady" or long is None or waited is None or not long.ms:
        return False
    theirs = own.rank is None or whose is None or whose.value == own.rank
    return theirs and (waited.ms or 0.0) >= _WHY_LONGER * long.ms


def _is_of_threads(one: Finding) -> bool:
    """Tell whether a finding is of the job's own threads that take turns, and one a rank is to be left of them."""
    cured = one.remedy is not None and one.remedy.cure in TOO_MANY_THREADS and one.remedy.size == 1
    return cured and one.rank is None and one.at_least


def _as_much(own: Finding, own_ms: float, one: Finding) -> float:
    """Return from what cost on profiled steps show more than all steps do: beyond the latter's bounds where the job's
    workers are to blame, as these are named by what they use, whichever steps tell of the waits.
    """
    by_workers = one.remedy is not None and one.remedy.cure == _BY_WORKERS
    return max(own_ms, own.high_ms or 0.0) if by_workers else own_ms


def _is_known(one: Finding, analysis: RunAnalysis) -> bool:
    cure = one.remedy.cure if one.remedy is not None else None
    return cure in _KNOWN or (cure == _BY_WORKERS and not analysis.worker_times)


def _beyond_waits(one: Finding, own: Finding, waits: CoreWaits) -> Finding | None:
    """Return a finding without what a rank's waits for cores, told already, explain of it; None where that is all.

    Who waits for a core in an operator has it take longer, and between two its host stands still: that is how the waits
    show, and no second cause. Where all ranks wait, one shows what it waits for longer than the others. What is longer
    without exception, even where nobody waits, is one of its own; and so is what a host stands still for at one place
    in every step, which waits, that come anywhere, do not do.
    """
    if one.code not in _SHOW_WAITS or one.rank is None or is_certain(one):
        return one
    if any(row.name == IN_EVERY_STEP for row in one.evidence):
        return one
    if one.ms is None or one.low_ms is None or one.high_ms is None:
        return one
    if own.rank is None:
        longer = _longer_than_others_ms(waits, one.rank)
        told = Interval(longer, longer, longer)
    elif own.rank != one.rank or own.ms is None or one.code != "slower_compute":
        return one
    else:
        told = Interval(own.ms, own.low_ms or 0.0, own.high_ms or own.ms)
    ms = one.ms - told.value
    if ms < WORTH_SAYING * waits.mean_step_ms:
        return None
    fraction = None if one.fraction is None else one.fraction * ms / one.ms
    low, high = max(0.0, one.low_ms - told.high), one.high_ms - told.low
    return replace(one, ms=ms, low_ms=low, high_ms=high, fraction=fraction)


def _longer_than_others_ms(waits: CoreWaits, rank: int) -> float:
    """Return for how much longer a rank waits for cores in the profiled steps than the others do in the mean, ms."""
    others = [ms for at, ms in enumerate(waits.profiled_ms) if at != rank]
    if rank >= len(waits.profiled_ms) or not others:
        return 0.0
    return max(0.0, waits.profiled_ms[rank] - statistics.fmean(others))


def _with_threads(one: Finding, waits: CoreWaits) -> Finding:
    """Return a finding with what is known of the threads that share its cores."""
    known = {row.name for row in one.evidence}
    told = [*_threads(waits), *(_binding(waits) if one.rank == waits.rank else [])]
    remedy = one.remedy
    if one.rank == waits.rank and waits.bound_cores is not None and remedy is not None and remedy.cure == "free_cores":
        remedy = replace(remedy, cure="more_cores_for_rank")
    found = replace(one, remedy=remedy, evidence=(*one.evidence, *(row for row in told if row.name not in known)))
    return _by_loops(found, waits) if _is_of_threads(one) and _are_many(waits) else found


def _are_many(waits: CoreWaits) -> bool:
    return waits.ms > 0 and (waits.threads or 0) >= _TIMES_THE_CORES * (waits.cores or 1)


def _by_loops(one: Finding, waits: CoreWaits) -> Finding:
    """Return what the job's own threads by turns cost, by what loops wait for a core by the kernel's account.

    Each operator meets some turns, the shortest as well: what a trace shows beyond that is mostly little of the cost,
    and now and then more than it. It is no end of it, and the middle where it is more.
    """
    most = max(waits.mean_step_ms, one.ms or 0.0)
    low, middle, high = (min(times * waits.ms, most) for times in COMES_BACK)
    ms = max(middle, one.ms or 0.0)
    fraction = ms / waits.mean_step_ms if not (one.fraction and one.ms) else one.fraction * ms / one.ms
    loops = EvidenceRow(kind="figure", name=LOOPS_WAIT, ms=waits.ms, value=float(waits.steps))
    return replace(
        one,
        ms=ms,
        low_ms=low,
        high_ms=max(ms, high, one.high_ms or 0.0),
        fraction=min(1.0, fraction),
        evidence=(*(row for row in one.evidence if row.name != LOOPS_WAIT), loops),
        backed="measured",
        at_least=False,
    )


def _threads(waits: CoreWaits) -> list[EvidenceRow]:
    told = (("threads", waits.threads), ("cores", waits.cores))
    return [EvidenceRow(kind="figure", name=name, value=float(count)) for name, count in told if count is not None]


def _binding(waits: CoreWaits) -> list[EvidenceRow]:
    """Return to how many of its host's cores the rank is bound that waits alone, where that makes it wait."""
    bound = waits.bound_cores
    return [] if bound is None else [EvidenceRow(kind="figure", name=BOUND_CORES, value=float(bound))]


def _since(waits: CoreWaits) -> list[EvidenceRow]:
    """Return from which step on they wait longer, or less, for how long then and before."""
    since = waits.since
    if since is None:
        return []
    return [EvidenceRow(kind="figure", name=SINCE_STEP, value=since.step, ms=since.after_ms, others_ms=since.before_ms)]


def _by_own_threads_ms(waits: CoreWaits) -> float:
    """Return up to what the job's own other threads, such as those that move its data, make all ranks wait, ms.

    Nothing where cores are left for them, where it is known who has the cores, and of one rank alone: they would make
    the others wait as well.
    """
    left = waits.threads is not None and waits.cores is not None and waits.threads < waits.cores
    known = waits.has_too_many_threads or waits.own_thread_takes_turns or waits.since is not None
    if waits.rank is not None or left or known:
        return 0.0
    return _BY_OWN_THREADS * max(0.0, waits.mean_step_ms - waits.ms)


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
        ranks = max(1, len(waits.profiled_ms))
        remedy = fewer_threads(waits.threads or ranks + 1, ranks, waits.cores)
    # what is waited for behind the last rank's first wait for the others may hold the step up, or lie behind transfer:
    # neither end is likelier
    ms = waits.ms if waits.held_up_ms is None else (max(waits.low_ms, min(waits.held_up_ms, waits.ms)) + waits.ms) / 2
    own_ms = _by_own_threads_ms(waits)
    low = max(0.0, waits.low_ms - own_ms)
    may_be_own = own_ms > 0 and low <= 0
    if may_be_own:
        figures.append(EvidenceRow(kind="figure", name=MAY_BE_OTHERS, ms=min(own_ms, ms)))
    found = Finding(
        code="host_starved",
        rank=waits.rank,
        ms=ms,
        low_ms=low,
        high_ms=ms if may_be_own else waits.high_ms,
        fraction=ms / waits.mean_step_ms,
        evidence=(
            EvidenceRow(kind="figure", name=RUN_DELAY, ms=waits.ms, value=float(waits.steps)),
            EvidenceRow(kind="figure", name=STEADY_STEPS, ms=waits.mean_step_ms),
            *_since(waits),
            *figures,
        ),
        remedy=remedy,
        backed="measured",
        at_most=may_be_own,
    )
    if waits.rank is not None or remedy.cure not in TOO_MANY_THREADS or remedy.size != 1 or not _are_many(waits):
        return found
    return _by_loops(replace(found, ms=None, high_ms=None, fraction=None), waits)
