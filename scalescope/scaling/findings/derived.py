"""What analysis.json says beside the findings and is made of them: stragglers, and advice."""

import re
import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.answer import Advice, RunAnalysis, Straggler
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.finding.codes import EVENS_OUT, HIDES_TRANSFER, TELLS_MORE, Cure
from scalescope.scaling.finding.figures import LOADER_WORKERS
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding.kinds import do_workers_rest, is_lost_in_noise, is_within_noise
from scalescope.scaling.finding.order import (
    are_little_at_most,
    behind_sure_gains,
    behind_what_is_known,
    behind_what_is_launched,
    worth_leading,
    worth_telling,
)
from scalescope.scaling.finding.sizes import as_bound, evened_out
from scalescope.scaling.findings.bounds.beside_untold import without_untold
from scalescope.scaling.findings.of_rows.core_waits import with_core_waits
from scalescope.scaling.findings.of_rows.late_rank import with_late_rank
from scalescope.scaling.findings.of_rows.loads_by_turns import with_loads_by_turns, without_turns_of_one
from scalescope.scaling.findings.of_rows.locked_loading import without_locked_loading
from scalescope.scaling.findings.of_rows.long_steps import with_long_steps
from scalescope.scaling.findings.of_rows.not_late import without_ranks_in_time
from scalescope.scaling.findings.of_rows.off_cpu import OFF_CPU, with_off_cpu
from scalescope.scaling.findings.of_rows.on_cores import add_on_cores
from scalescope.scaling.findings.of_rows.own_thread import with_own_threads
from scalescope.scaling.findings.of_rows.own_workers import cores_waited_for, with_own_workers, within_their_workers
from scalescope.scaling.findings.of_rows.recurring import without_recurring
from scalescope.scaling.findings.of_rows.timed_loading import with_timed_loading, within_timed_loading
from scalescope.scaling.findings.of_rows.waiting_rank import without_waiting_ranks
from scalescope.scaling.findings.prices.sound import all_sound
from scalescope.scaling.findings.shares import mean_step_ms
from scalescope.scaling.verdicts.experts import with_experts
from scalescope.scaling.verdicts.now_and_then import with_now_and_then
from scalescope.scaling.verdicts.pipeline import rows_as_run, with_bubbles

#: The frameworks whose settings our cures name.
CURED = ("torch", "jax")
_MOST = 3
#: What needs cores: loading in processes of their own, which compute there what ranks computed before, and threads that
#: move data meanwhile.
_ON_CORES: tuple[Cure, ...] = ("load_ahead", "name_loading", "prepare_ahead", *HIDES_TRANSFER)

#: The kernels that torch.compile makes, by the names that it gives them.
_OF_INDUCTOR = re.compile(r"triton_[a-z]+_fused")


def is_compiled(run: RunAnalysis) -> bool:
    """Return whether torch.compile made a run's step: by its run folder, or the names of the kernels that it makes.

    The names alone miss a step whose longest kernels are a library's or Triton's of somebody's own.
    """
    return run.compiled or any(_OF_INDUCTOR.match(row.name) for row in run.kernels)


def keep(analysis: RunAnalysis, findings: Sequence[Finding]) -> None:
    """Put findings into an analysis, and what follows from them."""
    step_ms = mean_step_ms(analysis, "window")
    as_run, splits = step_as_run(analysis)
    loaded = within_timed_loading(within_their_workers(findings, analysis), analysis)
    told = with_bubbles(
        with_experts(loaded, analysis.experts, step_ms),
        rows_as_run(analysis.pipelines, splits), as_run.value,
        on_cpus=analysis.activity == "cpu",
    )  # fmt: skip
    told = with_long_steps(with_now_and_then(told, analysis, _room_ms(analysis)), analysis)
    told = without_locked_loading(without_turns_of_one(told, analysis), analysis)
    told = with_late_rank(with_timed_loading(told, analysis), analysis)
    told = with_loads_by_turns(told, analysis)
    told = without_recurring(without_ranks_in_time(told, analysis), analysis)
    told = with_own_threads(with_core_waits(without_waiting_ranks(told, analysis), analysis), analysis)
    told = with_off_cpu(with_own_workers(told, analysis), analysis)
    if not are_little_at_most(told, step_ms, on_cpus=analysis.activity == "cpu"):
        told = [one for one in told if one.code != "nothing"]
    if analysis.activity == "cpu":
        waits = analysis.step_times.core_waits if analysis.step_times is not None else None
        waited_ms = max(waits.profiled_ms, default=0.0) if waits is not None else 0.0
        told = behind_what_is_known(told, step_ms, waited_ms)
    else:
        told = behind_what_is_launched(told)
    told = all_sound(told, _longest_ms(analysis))
    fitted = [_fitted(one, analysis) for one in worth_telling(told, on_cpus=analysis.activity == "cpu")]
    fitted = led(behind_sure_gains(without_untold(fitted)))
    analysis.findings = fitted
    analysis.stragglers = stragglers_of(fitted)
    analysis.advice = advice_of(fitted)
    add_on_cores(analysis)


def _room_ms(analysis: RunAnalysis) -> float | None:
    """Return what devices do not compute for of a step that is given, ms; None where none is, or hosts compute."""
    as_run = analysis.as_run
    step, splits = step_as_run(analysis)
    if as_run is None or as_run.untraced_by != "given" or analysis.activity != "gpu" or not splits:
        return None
    return step.value - max(one.compute_ms for one in splits)


def _longest_ms(analysis: RunAnalysis) -> float:
    """Return the longest of what is known as the run's step, ms: of those profiled, as run, and the job's own."""
    times, as_run = analysis.step_times, analysis.as_run
    own = [times.measured_step_p95_ms, times.measured_high_ms] if times is not None else []
    untraced = [as_run.untraced_ms.high] if as_run is not None and as_run.untraced_ms is not None else []
    known = [ms for ms in (*own, *untraced) if ms is not None]
    return max(mean_step_ms(analysis, "window"), step_as_run(analysis)[0].high, *known, 0.0)


def led(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with the one first that leads, where noise may have made those before it.

    So their order is the one in which they are to be mended, whoever reads them: a page, a terminal, a program.
    """
    lead = worth_leading(findings) if findings and is_lost_in_noise(findings[0]) else None
    return list(findings) if lead is None else [lead, *(one for one in findings if one is not lead)]


def _fitted(finding: Finding, analysis: RunAnalysis) -> Finding:
    """Return a finding whose remedy says for which job it is, so that it can be told in words that fit.

    Of a framework whose settings no cure of ours knows, findings have none.
    """
    if finding.remedy is None:
        return finding
    if analysis.framework not in CURED:
        return replace(finding, remedy=None)
    compiled = is_compiled(analysis)
    # what one rank has more of than the others is most often to be spread over all of them
    cure = finding.remedy.cure
    spread = finding.code == "more_work" and cure in EVENS_OUT and analysis.world_size > 1
    lacks_cores = analysis.cores_full and analysis.activity == "cpu" and _needs_cores(finding, analysis)
    # compiled it is already, and no key of ours replays CUDA graphs; nor does one make room for workers
    useless = (compiled and cure == "compile") or (lacks_cores and cure not in HIDES_TRANSFER)
    remedy = replace(
        finding.remedy,
        size=float(analysis.world_size) if spread else finding.remedy.size,
        overrides=() if useless else finding.remedy.overrides,
        on_cpu=analysis.activity == "cpu",
        backend=analysis.backend,
        inference=not analysis.trains,
        jax=analysis.framework == "jax",
        compiled=compiled,
        alone=analysis.world_size == 1 or len(analysis.ranks) == 1,
        origin=analysis.origin,
        one_host=analysis.hosts == 1,
        lacks_cores=lacks_cores,
    )
    return replace(finding, remedy=remedy)


def _needs_cores(finding: Finding, analysis: RunAnalysis) -> bool:
    """Tell whether what mends a finding takes cores: not what would load meanwhile and waits for files, or a network.

    More workers do where those there are compute: a run noted what these use, or else they are seen to take turns with
    the ranks' threads.
    """
    cure = finding.remedy.cure if finding.remedy is not None else None
    if cure in _ON_CORES:
        return all(row.name != OFF_CPU for row in finding.evidence)
    if cure != "load_faster" or finding.code != "data_loading":
        return False
    of_ranks = ranks_of(finding)
    wanted = [
        one.cores + (one.waiting or 0.0) for one in analysis.worker_times if one.rank in (of_ranks or (one.rank,))
    ]
    if wanted:
        a_rank = cores_waited_for(analysis) / analysis.world_size
        return not do_workers_rest(statistics.fmean(wanted), 1, a_rank)
    return any(row.name == LOADER_WORKERS for row in finding.evidence)


def stragglers_of(findings: Sequence[Finding]) -> list[Straggler]:
    """Return the ranks that findings name for sure, most costly first."""
    found: dict[int, Straggler] = {}
    for one in findings:
        if one.ms is None or is_within_noise(one):
            continue
        for rank in ranks_of(one):
            if rank in found:
                found[rank].lost_ms += one.ms
            else:
                found[rank] = Straggler(rank=rank, ranks=list(one.ranks), lost_ms=one.ms, code=one.code)
    return sorted(found.values(), key=lambda straggler: -straggler.lost_ms)


def advice_of(findings: Sequence[Finding]) -> list[Advice]:
    """Return the remedies of the costliest findings, best first, with what they bring: nothing where they tell more."""
    brought = [_brings_nothing(one) if _tells_more(one) else _brings(evened_out(one) or one) for one in findings]
    return [
        Advice(
            code=one.code,
            rank=one.rank,
            ranks=list(one.ranks),
            cure=one.remedy.cure,
            overrides=list(one.remedy.overrides),
            gain_ms=one.ms,
            low_ms=one.low_ms,
            high_ms=one.high_ms,
            fraction=one.fraction or 0.0,
            at_most=one.at_most,
            at_least=one.at_least,
        )
        for one in brought
        if one.remedy is not None and one.ms is not None and one.low_ms is not None and one.high_ms is not None
    ][:_MOST]


def _tells_more(finding: Finding) -> bool:
    return finding.remedy is not None and finding.remedy.cure in TELLS_MORE


def _brings(finding: Finding) -> Finding:
    return as_bound(finding) if finding.remedy is not None and finding.remedy.lacks_cores else finding


def _brings_nothing(finding: Finding) -> Finding:
    nothing = None if finding.ms is None else 0.0
    return replace(finding, ms=nothing, low_ms=nothing, high_ms=nothing, fraction=0.0)
