"""Why the machine was unsteady while a series or a run was measured, as far as rows of steps tell; or why not."""

from collections.abc import Sequence

from scalescope.records.console import counted
from scalescope.report.drawing.numbers import listing, milliseconds, percent
from scalescope.report.steadiness import OWN_WORKERS
from scalescope.report.views import devices
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import StepsApart
from scalescope.scaling.verdicts.step_rows.doubt import have_workers_the_cores

_UNTOLD = "Why steps differ so from one to the next cannot be told"
#: Of fewer steps without a profiler, a slow moment is a good part.
_MANY = 20


def cause_of_unsteadiness(runs: Sequence[RunAnalysis]) -> str:
    """Return that the machine was unsteady, in a clause, and what made it so where that is told: the job's own workers
    make no machine unsteady.
    """
    by_waits = _by_waits(_told(runs))
    if by_waits and _is_by_workers(by_waits):
        return OWN_WORKERS
    return f"the machine was unsteady{': ranks waited for cores' if by_waits else ''}"


def why_unsteady(runs: Sequence[RunAnalysis]) -> str:
    """Return in a sentence why steps differ so. `runs`: those of a series' ends whose do."""
    told = _told(runs)
    if by_waits := _by_waits(told):
        waits = listing([f"{milliseconds(apart.waits_ms)} on {_on(run)}" for run, apart in by_waits])
        return _waited(waits, by_workers=_is_by_workers(by_waits))
    if told:
        (run, first), *others = told
        shares = [f"{_only(first.by_core_waits)} of the differences on {_on(run)}"]
        shares += [f"{_only(apart.by_core_waits)} on {_on(run)}" for run, apart in others]
        why = f"waits for a core explain {listing(shares)}"
    elif any(run.activity == "cpu" for run in runs):
        why = "rows of too few steps tell how long ranks waited for a core"
    else:
        why = "nothing tells what else used the machine"
    return f"{_UNTOLD}: {why}{_few(runs)}."


def why_one_is_unsteady(run: RunAnalysis) -> str:
    """Return the same of one run, on whatever it ran; "" where its rows do not tell what its steps differ by, or what
    came once in them is most of that, and told.
    """
    apart = _apart(run)
    if apart is None or run.once is not None:
        return ""
    if apart.is_by_core_waits:
        return _waited(milliseconds(apart.waits_ms))
    return f"{_UNTOLD}: waits for a core explain {_only(apart.by_core_waits)} of the differences{_few([run])}."


def _only(share: float) -> str:
    """Return a share that is not most of something; none is said that reads as 0%."""
    told = percent(share, 0)
    return "hardly any" if told == percent(0.0, 0) else f"only {told}"


def _waited(how_long: str, *, by_workers: bool = False) -> str:
    whose = "Its own loaders' workers" if by_workers else "Other processes, or the job's own other threads,"
    return f"Why: steps differ by how long a rank waited for a core, {how_long} in the mean. {whose} had it."


def _is_by_workers(by_waits: Sequence[tuple[RunAnalysis, StepsApart]]) -> bool:
    return all(have_workers_the_cores(run) for run, _ in by_waits)


def _few(runs: Sequence[RunAnalysis]) -> str:
    """Return how few steps were measured, where a slow moment is a good part of them; "" where they are many."""
    counts = [run.step_times.measured_steps for run in runs if run.step_times is not None]
    if not counts or min(counts) >= _MANY:
        return ""
    return f"; {counted(min(counts), 'measured step')} are few, too"


def _told(runs: Sequence[RunAnalysis]) -> list[tuple[RunAnalysis, StepsApart]]:
    return [(run, apart) for run in runs if (apart := _apart(run)) is not None]


def _by_waits(told: Sequence[tuple[RunAnalysis, StepsApart]]) -> list[tuple[RunAnalysis, StepsApart]]:
    return [(run, apart) for run, apart in told if apart.is_by_core_waits]


def _apart(run: RunAnalysis) -> StepsApart | None:
    return run.step_times.apart if run.step_times is not None else None


def _on(run: RunAnalysis) -> str:
    return devices(run.world_size, run.activity)
