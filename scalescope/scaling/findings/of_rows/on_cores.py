"""How much of what counts as compute the ranks do on a core: on CPUs an operator that waits for one runs on, too.

A trace has an operator's begin and end, and nothing of who had the core between them. A rank's own rows tell how long
it waited for one in the whole step, and what of that does not fit into the rest of the step was in compute.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.scaling.answer import Efficiency, RunAnalysis
from scalescope.scaling.answer_rows import Split
from scalescope.scaling.finding.codes import TOO_MANY_THREADS, Cure
from scalescope.scaling.finding.figures import CORES_BY_TURNS
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.kinds import is_lost_in_noise
from scalescope.scaling.findings.of_rows.core_waits import is_wait_for_cores

#: What mends waits for cores that the ranks compute on; a loader's workers are waited for by themselves, too.
_FOR_CORES: frozenset[Cure] = frozenset(
    {"free_cores", "core_for_rank", "more_cores_for_rank", "core_for_thread", *TOO_MANY_THREADS}
)
#: An efficiency that is less by no more than this is told alone.
_WORTH_SAYING = 0.01


@dataclass(frozen=True)
class WaitInStep:
    """What a rank waits for a core in the mean step whose parts are told."""

    rank: int
    ms: float


def waits_in_step(analysis: RunAnalysis, ranks: Sequence[Split]) -> list[WaitInStep]:
    """Return what each of these ranks waits for a core, in steps of their windows; nothing where its rows do not tell.

    It is the share that it waits of the profiled steps: without recording these are a little shorter, waits included.
    """
    waits = analysis.step_times.core_waits if analysis.step_times is not None else None
    if waits is None or analysis.activity != "cpu":
        return []
    profiled = {one.rank: one.window_ms / one.steps for one in analysis.ranks if one.steps}
    known = [one for one in ranks if one.rank < len(waits.profiled_ms) and profiled.get(one.rank)]
    return [
        WaitInStep(one.rank, one.window_ms * min(1.0, waits.profiled_ms[one.rank] / profiled[one.rank]))
        for one in known
    ]


def add_on_cores(analysis: RunAnalysis) -> None:
    """Say of a run's efficiencies what is left of them without waits for cores, where a finding is of such waits."""
    as_run = analysis.as_run
    told: list[tuple[Efficiency | None, Sequence[Split]]] = [(analysis.efficiency, analysis.ranks)]
    if as_run is not None:
        told.append((as_run.efficiency, as_run.ranks))
    for efficiency, ranks in told:
        if efficiency is not None:
            most = _on_cores_at_most(analysis, efficiency.parallel, ranks)
            efficiency.on_cores_at_most = most
            efficiency.on_cores_at_least = (
                None if most is None else _at_least(analysis, efficiency.parallel, ranks, most)
            )


def _on_cores_at_most(analysis: RunAnalysis, parallel: float, ranks: Sequence[Split]) -> float | None:
    found = [one for one in analysis.findings if _is_for_cores(one)] if analysis.activity == "cpu" else []
    if not found:
        return None
    most = min([_by_rows(analysis, ranks, parallel), *(1 - _takes_for_sure(one) for one in found)])
    return max(0.0, most) if parallel - most > _WORTH_SAYING else None


def _is_for_cores(one: Finding) -> bool:
    cure = one.remedy.cure if one.remedy is not None else None
    turns = is_wait_for_cores(one) or any(row.name == CORES_BY_TURNS for row in one.evidence)
    is_for = cure in _FOR_CORES or (cure == "cheaper_workers" and turns)
    return one.code == "host_starved" and is_for and not is_lost_in_noise(one)


def _by_rows(analysis: RunAnalysis, ranks: Sequence[Split], parallel: float) -> float:
    """Return the share of these ranks' time in which they compute, less what they are sure to wait for cores in it."""
    waits = {one.rank: one.ms for one in waits_in_step(analysis, ranks)}
    window = sum(one.window_ms for one in ranks)
    if not window:
        return parallel
    lost = sum(max(0.0, waits.get(one.rank, 0.0) - (one.window_ms - one.compute_ms)) for one in ranks)
    return parallel - lost / window


def _at_least(analysis: RunAnalysis, parallel: float, ranks: Sequence[Split], most: float) -> float | None:
    """Return the share in which these ranks compute on a core if all that they wait for one lies in compute.

    None where nothing tells it of all of them, or it is no less than what is left at most.
    """
    waits = waits_in_step(analysis, ranks)
    window = sum(one.window_ms for one in ranks)
    if not window or len(waits) < len(ranks):
        return None
    computing = {one.rank: one.compute_ms for one in ranks}
    least = max(0.0, parallel - sum(min(one.ms, computing[one.rank]) for one in waits) / window)
    return least if most - least > _WORTH_SAYING else None


def _takes_for_sure(one: Finding) -> float:
    """Return the share of the profiled step that turns on cores take for sure: without them all compute fits into the
    rest. Threads that a loop waits for wait for cores as well, which its own rows do not tell.
    """
    turns = one.remedy is not None and one.remedy.cure in TOO_MANY_THREADS
    turns = turns or any(row.name == CORES_BY_TURNS for row in one.evidence)
    if not turns or one.at_most or not one.ms or one.fraction is None:
        return 0.0
    return one.fraction * min(1.0, (one.low_ms or 0.0) / one.ms)
