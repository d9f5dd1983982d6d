"""More threads that compute than cores: on CPUs each operator then waits for threads that have no core.

What threads take turns on is told by the run itself, not by its trace: how many threads each rank computes with, and
which cores it may run on. A parallel loop ends with its last thread, so a launch takes its own time and the turns of
others; it costs at least what each launch takes beyond its shortest one, on any rank in any step.
"""

from collections.abc import Iterator, Sequence

from scalescope.scaling.finding.codes import TOO_MANY_THREADS, Cure
from scalescope.scaling.finding.figures import LOADER_WORKERS
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.finding.kinds import is_by_turns, is_counted
from scalescope.scaling.findings.candidate import WORTH_A_LOOK, Candidate, Scene
from scalescope.scaling.replay.removal import Removal

#: What is done where the ranks' threads, or their loaders' workers, take turns on their cores.
_TURNS_ON_CORES: frozenset[Cure] = frozenset({*TOO_MANY_THREADS, "cheaper_workers"})


def oversubscribed(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where a host's ranks compute with more threads than they have cores."""
    cores = scene.cores
    if cores is None or not scene.replayer.on_cpu or cores.threads <= cores.cores:
        return
    yield Candidate(
        code="host_starved",
        removals=(Removal("uneven", ns=round(WORTH_A_LOOK * scene.step_ms * 1e6)),),
        evidence=(
            EvidenceRow(kind="figure", name="threads", value=float(cores.threads)),
            EvidenceRow(kind="figure", name="cores", value=float(cores.cores)),
        ),
        at_least=True,
        remedy=fewer_threads(cores.threads, cores.ranks, cores.cores),
    )


def fewer_threads(threads: int, ranks: int, cores: int) -> Remedy:
    """Return what mends so many threads, of so many ranks, on fewer cores: a rank that has one cannot do with less."""
    cure: Cure = "fewer_threads" if threads > ranks else "cores_for_ranks"
    return Remedy(cure=cure, size=float(max(1, cores // max(1, ranks))))


def without_its_symptoms(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates without what threads and processes that take turns make by themselves, where they do.

    On cores, or on the interpreter's lock: what the rank then computes more slowly is no cause of its own.
    """
    locked = {
        removal
        for one in candidates
        if one.remedy is not None and one.remedy.cure == "free_interpreter"
        for removal in one.removals
        if removal.what == "slow"
    }
    candidates = [
        one
        for one in candidates
        if not (one.code == "slower_compute" and one.removals and locked.issuperset(one.removals))
    ]
    turns = [one for one in candidates if _takes_turns(one)]
    if not any(one.code == "host_starved" or _is_interrupted(one) for one in turns):
        return candidates
    # workers that are short of cores, too, make batches late
    late = any(one.code == "host_starved" and one.remedy.cure == "cheaper_workers" for one in turns if one.remedy)
    return [one for one in candidates if not _is_symptom(one) and not (late and one.code == "data_loading")]


def _takes_turns(one: Candidate) -> bool:
    """Tell whether a candidate is of threads, or of loaders' workers, that take turns on the ranks' cores."""
    of_workers = one.code == "data_loading" and any(row.name == LOADER_WORKERS for row in one.evidence)
    return of_workers or (one.remedy is not None and one.remedy.cure in _TURNS_ON_CORES)


def _is_interrupted(one: Candidate) -> bool:
    """Tell whether hosts that wait for their workers also stand still for a core, now here and now there."""
    return any(row.name == "interruptions" for row in one.evidence)


def _is_symptom(one: Candidate) -> bool:
    if one.code == "host_starved":
        return one.remedy is None or one.remedy.cure not in _TURNS_ON_CORES
    if one.code == "slower_compute":
        return is_by_turns(one.evidence)
    if one.code == "alternating_load" and is_counted(one.evidence):
        return False
    return one.code in ("unsteady", "alternating_load") or (one.seen is not None and one.seen.steps == 1)
