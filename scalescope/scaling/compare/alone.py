"""Causes that are sure in the runs of one side and none in the other's, where the step as a whole does not tell.

A step's change holds all that two runs differ by; a cause is seen by itself, in the steps that it is in. So a sleep of
a tenth of the step may be sure where the step, beside other processes, is not known to a fifth.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from msgspec.structs import replace

from scalescope.records.errors import UserError
from scalescope.records.statistics import NORMAL_95
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import RecurringChange
from scalescope.scaling.compare.answer import Comparison, FoundAlone, Side
from scalescope.scaling.compare.measurement import KEYS, Measurement
from scalescope.scaling.compare.spread import least_spread_of, spread_of
from scalescope.scaling.compare.windows import kind_bounds
from scalescope.scaling.finding.codes import COMPUTED_BY_ALL, Code
from scalescope.scaling.finding.figures import BARRIERS, OBJECTS
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding.kinds import is_of_one_step
from scalescope.scaling.finding.order import is_trifle_of_a_host
from scalescope.scaling.findings.candidate import share_ms
from scalescope.scaling.findings.of_rows.core_waits import is_wait_for_cores
from scalescope.scaling.findings.shares import mean_step_ms
from scalescope.scaling.rank.kernels import KernelTable
from scalescope.scaling.trace.kernel_kinds import COPIES, ELEMENTWISE, KINDS
from scalescope.scaling.verdicts.reference import (
    SURELY_TOLD,
    beside_reference,
    is_counted,
    is_not_in_reference,
    may_cost_ms,
    parts_of,
)
from scalescope.scaling.verdicts.step_rows.doubt import is_beyond_unsteadiness, is_of_the_job, was_unsteady

AnalysisOf = Callable[[Path], RunAnalysis]
RankKernels = Mapping[int, KernelTable]
CallsOfKinds = Sequence[tuple[int, int]]  # in the order of KINDS, what a step has at least and at most
RankCalls = Mapping[int, CallsOfKinds]
MoreCalls = Mapping[str, float]  # so many calls a step one side has beyond the other, by operation

#: More runs are not analysed for it: repeats tell how runs differ, and each takes as long as `analyze` does.
_MOST_RUNS = 6
#: Of these no cause is known, or none that is the job's.
_NO_CAUSE: tuple[Code, ...] = ("unsteady", "nothing", "profiler_cost")
#: Causes that are all there is of a part of the step: the other side has as much of one as it has of the part, though
#: nothing is told of it there.
_WHOLE_PARTS: dict[Code, str] = {"data_loading": "idle_data", "copies": "exposed_memory"}
#: A part is longer by this share of what the cause costs, or the other side has the cause as well; and so is the
#: number of exchanges.
_MOST = 0.5
#: Causes that are all ranks' own code, which is found where there is much of it alone: what is left of one, or is there
#: without its operators, is told of nobody. It is gone where on each rank most of its calls are.
_OWN_CODE: tuple[Code, ...] = ("unfused_optimizer", "updates_by_hand", "unfused_normalisation")
_MADE_OF = (ELEMENTWISE, COPIES)
_MOST_GONE = 0.75
#: Causes whose exchanges are counted: they are there, and not on the other side, whatever a machine makes of a step. A
#: small bucket is needed where it is sent: what it costs beyond a larger one a machine may have made.
_EXCHANGES: tuple[Code, ...] = ("small_collectives", "needless_collectives")
_NONE_MORE: MoreCalls = {}
_OF_OBJECTS = "_object"  # behind what the operation is called that exchanges their bytes


def found_alone(
    answer: Comparison, baseline: Measurement, other: Measurement, analysis_of: AnalysisOf
) -> list[FoundAlone]:
    """Return what is sure in every run of one side, and none in any of the other's; of the costlier side first.

    `answer`: the sides' comparison, which tells how long a step is, and what is counted.
    """
    sides = (baseline, other)
    if (own := _analysed(sides, analysis_of)) is None:
        return []
    names: tuple[Side, Side] = ("baseline", "other")
    found = [
        FoundAlone(side=name, finding=one)
        for name, mine, theirs, by in zip(names, own, reversed(own), (sides, (other, baseline)), strict=True)
        for one in _in_all(mine, theirs, more_calls=_more_calls(answer, name))
        if _is_of_longer_part(one, answer.step_ms, *by) and _is_own_code_gone(one, *map(_calls_in, by))
    ]
    sides_own = [[one for one in found if one.side == name] for name in names]
    return _merged(*sides_own)


def _merged(here: Sequence[FoundAlone], there: Sequence[FoundAlone]) -> list[FoundAlone]:
    """Return both sides' causes, the costlier one's first: of one side in the order in which its own analysis has them,
    which weighs how sure they are, so that no two answers of one run begin with different ones.
    """
    told, rest = [], [list(here), list(there)]
    while all(rest):
        told.append(max(rest, key=lambda own: own[0].finding.ms or 0.0).pop(0))
    return [*told, *rest[0], *rest[1]]


def first_of_longer(
    baseline: Measurement, other: Measurement, longer: Side, analysis_of: AnalysisOf
) -> list[FoundAlone]:
    """Return what the analysis of every run of the longer side finds first, where no run of the other side has that:
    a fault that is counted, or what is sure of it; of steps whose change is beyond noise.
    """
    if (own := _analysed((baseline, other), analysis_of)) is None:
        return []
    mine, theirs = own if longer == "baseline" else own[::-1]
    first = mine[0].findings[0]
    sides = (baseline, other) if longer == "baseline" else (other, baseline)
    found = [one for one in _in_all(mine, theirs, counted=True) if _is_own_code_gone(one, *map(_calls_in, sides))]
    return [
        FoundAlone(side=longer, finding=one, like_ms=_like_ms(one, theirs)) for one in found[:1] if _is_same(one, first)
    ]


def _like_ms(finding: Finding, runs: Sequence[RunAnalysis]) -> float | None:
    """Return what these runs' own causes of a code may cost, whatever makes them; None where they have none."""
    return max((may_cost_ms(one) for run in runs for one in run.findings if one.code == finding.code), default=None)


def doing_of(
    baseline: Measurement, other: Measurement, change: RecurringChange, analysis_of: AnalysisOf
) -> Finding | None:
    """Return what every run's window shows the steps that recur to do, of OTHER, or of the baseline where it alone has
    them; None where one does not.
    """
    side = other if change.other_every is not None else baseline
    own = _analysed((side,), analysis_of)
    known = [run.recurring.doing if run.recurring is not None else None for run in own[0]] if own else []
    told = [one for one in known if one is not None]
    alike = len(told) == len(known) and all(_is_same(one, told[0]) for one in told)
    return told[0] if told and alike else None


def doing_beside(change: RecurringChange | None, run: RunAnalysis) -> RecurringChange | None:
    """Return what steps that recur cost with what the run's window shows its own to do; a reference's stay untold."""
    if change is None or change.other_every is None or run.recurring is None:
        return change
    return replace(change, doing=run.recurring.doing)


def _analysed(sides: Sequence[Measurement], analysis_of: AnalysisOf) -> list[list[RunAnalysis]] | None:
    """Return the sides' runs, analysed; None where they are many, or have no traces."""
    repeats = [one for side in sides for one in side.repeats]
    if len(repeats) > _MOST_RUNS or not all(one.windows for one in repeats):
        return None
    try:
        found = [[analysis_of(one.path) for one in side.repeats] for side in sides]
    except UserError:
        return None
    return found if all(run.findings for own in found for run in own) else None


def _lack_ranks(runs: Sequence[RunAnalysis]) -> bool:
    return any(run.quality.missing_ranks or run.quality.left_out_ranks for run in runs)


def _in_all(
    mine: Sequence[RunAnalysis],
    theirs: Sequence[RunAnalysis],
    *,
    counted: bool = False,
    more_calls: MoreCalls = _NONE_MORE,
) -> list[Finding]:
    """Return the first run's causes that every run of its side has, and no run of the other.

    `counted`: also those that are counted, though no more than a bound is known of their cost. `more_calls`: exchanges
    that this side has beyond the other. None where a run of the other lacks a rank's trace: that rank may
    have the same.
    """
    if _lack_ranks(theirs):
        return []
    references = [run.findings for run in theirs]
    alone = [
        [
            one
            for one in beside_reference(run.findings, references)
            if not (one.code in COMPUTED_BY_ALL and _may_be_there(one, theirs))
            and not _is_trifle(run, one)
            and _is_told(run, one, counted=counted, more_calls=more_calls)
        ]
        for run in mine
    ]
    return [one for one in alone[0] if all(any(_is_same(one, other) for other in own) for own in alone[1:])]


def _is_trifle(run: RunAnalysis, finding: Finding) -> bool:
    return run.activity == "cpu" and is_trifle_of_a_host(finding, mean_step_ms(run, "window"))


def _may_be_there(finding: Finding, runs: Sequence[RunAnalysis]) -> bool:
    """Tell whether runs of which it is not told may have what all ranks compute alike: that is from a share of the step
    on, so a step that is a little shorter has it as well.
    """
    return any((finding.ms or 0.0) < SURELY_TOLD * mean_step_ms(run, "window") for run in runs)


def causes_come(run: RunAnalysis) -> list[Finding]:
    """Return which of a run's causes its reference has not, for sure, in the order that the run has them by itself:
    beside a reference that is told first, as that is what was asked, and nothing else changes places.

    As a comparison of both begins: none where another part changed for sure by more than the first of them costs.
    """
    more = _more_calls_beside(run)
    sure = [one for one in run.findings if _is_told(run, one, more_calls=more) and not _is_trifle(run, one)]
    own = [one for one in sure if one.also_late is None and not is_of_one_step(one)]
    if not own or not run.lost:
        return []
    first = own[0]
    often = run.lost[0].recurring
    besides = [abs(part.change_ms) for part in run.lost[0].sure_parts if part.part not in parts_of(first)]
    besides += [abs(often.change_ms)] if often is not None and often.differs else []
    return [] if max(besides, default=0.0) > (first.ms or 0.0) else own


def causes_gone(
    run: RunAnalysis, references: Sequence[RunAnalysis], here: RankKernels, there: Sequence[RankKernels]
) -> list[Finding]:
    """Return what is sure in every reference's steps, and not in the run's: what was mended; as the reference's
    own analysis orders them.

    `here`, `there`: the run's kernels, and each reference's.
    """
    more = {operation: -calls for operation, calls in _more_calls_beside(run).items()}
    told = _in_all(references, [run], more_calls=more)
    sure = [one for one in told if one.also_late is None and not is_of_one_step(one)]
    gone = [one for one in beside_parts(sure, [run]) if is_not_in_reference(one)]
    left, *had = ({rank: kind_bounds(table) for rank, table in own.items()} for own in (here, *there))
    return [one for one in gone if all(_is_own_code_gone(one, own, left) for own in had)]


def _is_own_code_gone(finding: Finding, mine: RankCalls, theirs: RankCalls) -> bool:
    """Tell whether on each rank most of the calls of a job's own code are no more there; of other causes always."""
    if finding.code not in _OWN_CODE:
        return True
    own = _calls_of(finding)
    kinds = {*KINDS} & {*parts_of(finding), *_MADE_OF}
    fewer = [_fewer(kinds, mine[rank], theirs[rank]) for rank in mine.keys() & theirs.keys()]
    return bool(fewer) and own > 0 and all(one >= _MOST_GONE * own for one in fewer)


def _fewer(kinds: Collection[str], mine: CallsOfKinds, theirs: CallsOfKinds) -> int:
    """Return how many calls of these kinds a step has beyond the other's at least, whichever steps are compared: some
    do more every so often. Copies that differ from step to step are let alone.
    """
    pairs = [(kind, mine[at], theirs[at]) for at, kind in enumerate(KINDS) if kind in kinds]
    return sum(
        least - most
        for kind, (least, ours), (others, most) in pairs
        if kind != COPIES or (least == ours and others == most)
    )


def _calls_in(side: Measurement) -> RankCalls:
    """Return how often a step calls each kind, by rank, in the first window of a side's first run."""
    windows = side.first.windows
    return windows[0].call_bounds if windows else {}


def _more_calls(answer: Comparison, side: Side) -> MoreCalls:
    """Return how many exchanges of an operation a step of this side has beyond the other's."""
    sign = 1 if side == "other" else -1
    return {
        one.operation or "": sign * (one.other - one.baseline) for one in answer.amounts if one.amount == "collectives"
    }


def _more_calls_beside(run: RunAnalysis) -> MoreCalls:
    """Return how many exchanges of an operation a run's step has beyond its reference's."""
    return {one.operation: one.other_calls - one.baseline_calls for loss in run.lost[:1] for one in loss.other_calls}


def beside_parts(findings: Sequence[Finding], references: Sequence[RunAnalysis]) -> list[Finding]:
    """Return findings beside references with what these may lose to the same, where a cause is all there is of a part,
    or is what ranks wait for cores: as much as they have of that, though it is no finding there.
    """
    found = []
    for one in findings:
        if one.reference_ms is not None:
            theirs_ms = max((_has_besides_ms(one, run) for run in references), default=0.0)
            one = replace(one, reference_ms=max(one.reference_ms, theirs_ms))
        found.append(one)
    return found


def _has_besides_ms(finding: Finding, run: RunAnalysis) -> float:
    """Return what a run has of a cause that is told of another one, whether or not it is a finding there, ms."""
    if is_wait_for_cores(finding):
        waits = run.step_times.core_waits if run.step_times is not None else None
        return waits.ms if waits is not None else 0.0
    part = _WHOLE_PARTS.get(finding.code)
    return share_ms(run, part) if part is not None else 0.0


def _is_of_longer_part(finding: Finding, step_ms: float, mine: Measurement, theirs: Measurement) -> bool:
    """Tell whether the part of a step that a cause is all of is longer on its side, beyond noise, and by most of what
    the cause costs: a run may be told of what the other has nearly as much of, and which is no finding there.
    """
    part = _WHOLE_PARTS.get(finding.code)
    if part is None:
        return True
    more_ms, less_ms = _part_ms(mine, part, ranks_of(finding)), _part_ms(theirs, part, ())
    activity = mine.first.identity.activity
    share = float(spread_of([1.0] * len(KEYS), activity)[KEYS.index(part)])
    least_ms = NORMAL_95 * least_spread_of(step_ms, activity)
    # the part varies by a factor: how far either mean may be from its job's, towards the other's
    fall, rise = (math.exp(sign * NORMAL_95 * share / math.sqrt(len(side.repeats)))
                  for sign, side in ((-1, mine), (1, theirs)))  # fmt: skip
    noise_ms = math.hypot(max(more_ms * (1 - fall), least_ms), max(less_ms * (rise - 1), least_ms))
    return more_ms - less_ms >= max(_MOST * (finding.ms or 0.0), noise_ms)


def _part_ms(side: Measurement, part: str, ranks: Sequence[int]) -> float:
    """Return how long a part is in the mean step of these ranks; of none: of the rank that has most of it, ms."""
    at = KEYS.index(part)
    windows = [window.ranks for one in side.repeats for window in one.windows]
    own = {rank: fmean(w[rank][at] for w in windows if rank in w) for rank in {rank for w in windows for rank in w}}
    return (
        fmean(own[rank] for rank in ranks)
        if ranks and all(rank in own for rank in ranks)
        else max(own.values(), default=0.0)
    )


def _is_told(run: RunAnalysis, finding: Finding, *, counted: bool = False, more_calls: MoreCalls = _NONE_MORE) -> bool:
    """Tell whether a cause is the job's for sure, and not in the other side's runs, which have so many fewer calls."""
    if counted and is_counted(finding):
        return is_not_in_reference(finding)
    if finding.code in _NO_CAUSE or is_wait_for_cores(finding) or (finding.low_ms or 0.0) <= 0:
        return False
    if finding.code in _EXCHANGES and _are_counted(finding, more_calls):
        return is_not_in_reference(finding)
    by_machine = was_unsteady(run) and not is_beyond_unsteadiness(run, finding)
    by_others = run.activity == "cpu" and not is_of_the_job(finding)  # who have, or had, its cores
    return is_not_in_reference(finding) and not by_machine and not by_others


def _are_counted(finding: Finding, more_calls: MoreCalls) -> bool:
    """Tell whether most of the exchanges that a cause is are counted on its side alone: of each operation that its
    evidence names, else of any.
    """
    own = {_operation_of(row.name): row.calls for row in finding.evidence if row.calls and _operation_of(row.name)}
    if own:
        return all(more_calls.get(operation, 0.0) >= _MOST * calls for operation, calls in own.items())
    return max(more_calls.values(), default=0.0) >= _MOST * _calls_of(finding) > 0


def _operation_of(name: str) -> str:
    """Return which collective a row of evidence is of, for itself or for Python objects; "" where it is of none."""
    if name == BARRIERS:
        return "barrier"
    return name.removeprefix(OBJECTS).strip().partition(_OF_OBJECTS)[0] if name.startswith(OBJECTS) else ""


def _calls_of(finding: Finding) -> float:
    """Return of how many calls a step a cause is, by its evidence; 0 where that does not tell."""
    return max((row.calls or 0.0 for row in finding.evidence), default=0.0)


def _is_same(one: Finding, other: Finding) -> bool:
    return (one.code, one.rank, one.ranks) == (other.code, other.rank, other.ranks)
