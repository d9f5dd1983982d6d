"""Ranks that lack a core, or whose host stands still for one, in words: for how long, and who has them."""

from scalescope.records.console import counted
from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.text.codes.evidence import host_does, in_all_steps, is_of_several, row_of
from scalescope.report.text.codes.host_places import lock_waits
from scalescope.scaling.finding.figures import (
    BOUND_CORES,
    CORES_BY_TURNS,
    LOADER_WORKERS,
    LOCK_WAITS,
    LOOPS_WAIT,
    OTHER_CHILD,
    OWN_THREAD,
    WORKERS_CORES,
)
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.of_rows.core_waits import COMES_BACK, SINCE_STEP, is_wait_for_cores
from scalescope.scaling.findings.of_rows.own_workers import WORKERS_MAY_HAVE

#: Shorter waits for batches are no word worth, ms.
_A_WORD_MS = 0.5
#: Interruptions of which so many lie between two operators may be waits for the interpreter's lock.
_MOSTLY = 0.5


def _waits_for_cores(finding: Finding) -> str:
    """Return that ranks wait for cores, since when, and what is known of who has them."""
    since = row_of(finding, SINCE_STEP)
    told = _who_has_cores(finding)
    if since is None or since.value is None:
        return told
    then, before = milliseconds(since.ms or 0.0), milliseconds(since.others_ms or 0.0)
    if (since.ms or 0.0) < (since.others_ms or 0.0):
        return f"until step {since.value:.0f} {told}: {before} a step, and {then} since"
    return f"since step {since.value:.0f} {told}: {then} a step, and {before} before"


def _who_has_cores(finding: Finding) -> str:
    """Return that ranks wait for cores, and what is known of who has them."""
    threads, cores = row_of(finding, "threads"), row_of(finding, "cores")
    waiting = host_does(finding, "could run, and wait", "could run, and waits")
    used = row_of(finding, WORKERS_CORES)
    others = "which other processes, loaders' workers or own threads have"
    if used is not None and used.value is not None:
        others = f"which the loaders' workers ({used.value:.2f} of one), other processes or own threads have"
    own_alone = "which the job's own other threads alone may have: then no quiet machine helps, only more cores may"
    own = next((row for row in finding.evidence if row.name.startswith(f"{OWN_THREAD} ")), None)
    if own is not None and own.value is not None:
        name, whose = own.name.removeprefix(OWN_THREAD).strip(), "a rank's" if finding.rank is None else "its"
        text = f"{waiting} for a core; a Python thread of {whose} own process, {name}, uses {own.value:.2f} of one"
        if threads is None or cores is None or threads.value is None or cores.value is None:
            return f"{text} beside the loop"
        return f"{text} beside {_computing(threads.value, cores.value)}{_bound_to_these(finding)}"
    if child := _child(finding):
        count, number = _threads_on_cores(finding)
        beside = f" beside {_computing(count, number)}" if count and number else ""
        return f"{waiting} for a core, of which {child}{beside}{_bound_to_these(finding)}"
    if threads is None or cores is None or threads.value is None or cores.value is None:
        if _is_by_workers(finding) and used is not None and used.value is not None:
            return f"{waiting} for a core, of which the loaders' workers use {used.value:.2f}"
        return f"{waiting} for a core, {own_alone if finding.at_most and used is None else others}"
    count = round(threads.value)
    compute = f"{counted(count, 'thread')} compute{'s' * (count == 1)} on {counted(round(cores.value), 'core')}"
    if threads.value > cores.value:
        return f"{waiting} for a core: {compute}{_bound_to_these(finding)}"
    if bound := _bound(finding):
        these = "that one" if bound == 1 else "those"
        return (
            f"{waiting} for a core: rank {finding.rank} is bound to {bound} of the "
            f"{counted(round(cores.value), 'core')} on which {counted(count, 'thread')} compute, and other processes "
            f"or the job's own other threads have {these}"
        )
    if (slow := row_of(finding, WORKERS_MAY_HAVE)) is not None and slow.value is not None:
        both = milliseconds((finding.ms or 0.0) + (slow.ms or 0.0))
        workers = f"rank {slow.value:.0f}'s loader workers"
        have = f"which {workers} have as long as they compute"
        if used is not None and used.value is not None:
            have = f"of which {workers} use {used.value:.2f}"
        return f"{waiting} for a core, {have} ({compute} beside them): faster batches there may bring back both, {both}"
    if _is_by_workers(finding) and used is not None and used.value is not None:
        return f"{waiting} for a core, of which the loaders' workers use {used.value:.2f} ({compute} beside them)"
    return f"{waiting} for a core, {own_alone if finding.at_most and used is None else others} ({compute})"


def _child(finding: Finding) -> str:
    """Return which other process a rank started uses how much of a core; "" where none is known."""
    row = next((row for row in finding.evidence if row.name.startswith(f"{OTHER_CHILD} ")), None)
    if row is None or row.value is None or row.calls is None:
        return ""
    name = row.name.removeprefix(OTHER_CHILD).strip()
    return f"{name}, a child process of rank {row.calls:.0f} that is no loader's worker, uses {row.value:.2f}"


def _is_by_workers(finding: Finding) -> bool:
    """Tell whether the loaders' workers have most of the cores that ranks wait for."""
    return finding.remedy is not None and finding.remedy.cure == "cheaper_workers"


def _bound(finding: Finding) -> int:
    """Return to how many of its host's cores the rank is bound; 0 where it may run on all that the others may."""
    row = row_of(finding, BOUND_CORES)
    return round(row.value) if row is not None and row.value is not None and finding.rank is not None else 0


def _bound_to_these(finding: Finding) -> str:
    """Return the binding, to stand behind how many threads compute on the cores; "" where none makes the rank wait."""
    bound = _bound(finding)
    return f", and rank {finding.rank} is bound to {bound} of these" if bound else ""


def _computing(threads: float, cores: float) -> str:
    """Return what computes on a host's cores, beside which another thread takes turns."""
    count = round(threads)
    return f"the {counted(count, 'thread')} that compute{'s' * (count == 1)} on {counted(round(cores), 'core')}"


def _threads_on_cores(finding: Finding) -> tuple[int, int]:
    """Return with how many threads the ranks of a host compute, and on how many cores; (0, 0) where nothing tells."""
    threads, cores = row_of(finding, "threads"), row_of(finding, "cores")
    if threads is None or cores is None or threads.value is None or cores.value is None:
        return 0, 0
    return round(threads.value), round(cores.value)


def _who_has(finding: Finding, cores: str) -> str:
    """Return who has a host's cores meanwhile, as far as that is known: no trace says whose threads they are."""
    remedy = finding.remedy
    if remedy is None or remedy.alone:
        return f"other threads have {cores}, of other processes or of the job itself"
    if child := _child(finding):
        return f"{child} of a core, and other threads have {cores}, too"
    moving = {"gloo": "gloo's", "mpi": "MPI's"}.get(remedy.backend or "", "those that move its data")
    threads, number = _threads_on_cores(finding)
    if bound := _bound(finding):
        others = "where the job's other threads and other processes may run, too"
        return f"rank {finding.rank} is bound to {bound} of {counted(number, 'core')}, {others}"
    used = row_of(finding, WORKERS_CORES)
    workers = (
        f"the loaders' workers, which use {used.value:.2f} of a core"
        if used is not None and used.value is not None
        else ""
    )
    if threads >= number > 0:
        compute = f"{counted(threads, 'thread')} compute{'s' * (threads == 1)} on {counted(number, 'core')}"
        if workers and _is_by_workers(finding):
            return f"{compute}, where {workers}, take turns with them"
        who = f"{workers}, and its other threads ({moving})" if workers else f"other threads ({moving}, a loader's)"
        return f"{compute}, where the job's {who.removeprefix('the ')} take turns with them, and other processes may"
    if workers:
        return f"{workers}, have {cores}{'' if _is_by_workers(finding) else f', or other threads ({moving}) have'}"
    return f"other threads have {cores}, of other processes or the job's own ({moving}, a loader's)"


def starved(finding: Finding) -> str:
    if is_wait_for_cores(finding):
        return _waits_for_cores(finding)
    threads, cores = _threads_on_cores(finding)
    if threads > cores > 0:
        told = f"the ranks compute with {counted(threads, 'thread')} on {counted(cores, 'core')}, which take turns"
        loops = row_of(finding, LOOPS_WAIT)
        if loops is None or loops.ms is None:
            return told
        loop = f"a rank's own loop, ready to run, waits {milliseconds(loops.ms)} for a core"
        low, _, high = COMES_BACK
        tries = f"in tries {low:g} to {high:g} times such waits came back with one thread a rank"
        return f"{told}: {loop}, and {tries} (none beside other busy processes)"
    if (waits := row_of(finding, LOCK_WAITS)) is not None:
        return lock_waits(finding, waits) + in_all_steps(finding)
    if (turns := row_of(finding, CORES_BY_TURNS)) is not None and turns.ms is not None:
        whose, which = ("a rank's", "their") if finding.rank is None else ("its", "its")
        return (
            f"a few of {whose} operators, now here and now there, take {milliseconds(turns.ms)} a step longer than at "
            f"their shortest, and the rest as long as ever: {_who_has(finding, f'{which} cores')}"
        )
    row, off = row_of(finding, "host_ms"), row_of(finding, "interruptions")
    if off is not None and off.ms is not None:
        whose, which = host_does(finding, "stand", "stands"), "their" if is_of_several(finding) else "its"
        beside = f" (the others' {milliseconds(off.others_ms)})" if off.others_ms is not None else ""
        workers = row_of(finding, LOADER_WORKERS)
        waits_ms = (workers.ms or 0.0) if workers is not None else 0.0
        late = f", and wait {milliseconds(waits_ms)} for batches" if waits_ms >= _A_WORD_MS else ""
        # where Python runs, it may wait for the interpreter as well
        lock = (
            "; or another thread holds the interpreter's lock"
            if (off.share or 0.0) >= _MOSTLY and workers is None
            else ""
        )
        who = _who_has(finding, f"{which} cores")
        if workers is not None:
            who = f"other threads have {which} cores, perhaps those of their own loaders' worker processes"
        return f"{whose} still for {milliseconds(off.ms)} a step{beside}, now here and now there{late}: {who}{lock}"
    if row is None or row.ms is None or row.others_ms is None:
        return "all that its host does takes longer than on the others"
    return (
        f"its host takes {milliseconds(row.ms)} for the launches that take the others' {milliseconds(row.others_ms)}: "
        "its cores or its interpreter are shared"
    )
