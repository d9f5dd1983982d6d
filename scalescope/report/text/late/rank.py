"""The rank that the others wait for, to be drawn: what it alone does, and which part of its step that is."""

from dataclasses import dataclass

from scalescope.report.text.of_step import with_one_basis
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import Split
from scalescope.scaling.as_run.step import a_step, step_as_run
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.figures import LATE, STEADY_STEPS
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding.kinds import is_within_noise
from scalescope.scaling.findings.of_rows.core_waits import is_wait_for_cores

#: In which part of a step what one rank alone does lies, by the finding that names it.
_PART: dict[Code, str] = {
    "own_work": "compute",
    "more_work": "compute",
    "slower_compute": "compute",
    "throttled": "compute",
    "data_loading": "idle_data",
    "host_stall": "idle_launch",
    "host_starved": "idle_launch",
    "synchronising": "idle_launch",
    "recompilation": "idle_launch",
    "allocation": "idle_launch",
    "copies": "exposed_memory",
}


@dataclass(frozen=True)
class InAll:
    """What a rank costs by all of a job's steps where the profiled ones show it to do so much more or less: which share
    of a step that is, and of how many steps."""

    share: float
    steps: int


@dataclass(frozen=True)
class LateRank:
    """The rank that is late, or several alike, what the first finding says that each does beyond the others, ms a step,
    and which part that is of.
    """

    ranks: tuple[int, ...]  # several that do the same
    code: Code
    part: str
    ms: float
    activities: tuple[str, ...]  # kernels that it alone runs
    in_all: InAll | None = None  # what all steps tell that it costs, where that is another length


def late_rank(run: RunAnalysis) -> LateRank | None:
    """Return the rank that a run's first sentence names for sure; None where it names none, or nobody waits."""
    first = next(iter(run.findings), None)
    if first is None or first.rank is None or first.code not in _PART or is_within_noise(first):
        return None
    if is_wait_for_cores(first):
        return None  # which is in all of its parts
    splits = splits_of(run)
    ranks = ranks_of(first)
    own = [one for one in splits if one.rank in ranks]
    if not own or len(splits) <= len(own):
        return None
    part = _PART[first.code]
    ms = min(_extra_ms(first), *(one.part_ms(part) for one in own))
    names = tuple(row.name for row in first.evidence if row.kind == "activity") if first.code == "own_work" else ()
    # what it computes longer is not what mending that saves
    in_all = _in_all(with_one_basis(run, first)[0], ms) if part != "compute" else None
    return LateRank(ranks, first.code, part, ms, names, in_all) if ms > 0 else None


def _in_all(finding: Finding, ms: float) -> InAll | None:
    """Return what all steps tell that a cause costs where what the profiled ones show of it, `ms`, is none such."""
    row = next((row for row in finding.evidence if row.name == LATE), None)
    if row is None or row.value is None or not finding.fraction or finding.low_ms is None or finding.high_ms is None:
        return None
    return None if finding.low_ms <= ms <= finding.high_ms else InAll(finding.fraction, round(row.value))


def splits_of(run: RunAnalysis) -> list[Split]:
    """Return each rank's parts of a step: as run where that is known, else as profiled."""
    known = step_as_run(run)[1] if run.as_run is not None and run.as_run.ranks else []
    return list(known) or [a_step(one, max(one.steps, 1)) for one in run.ranks]


def _extra_ms(finding: Finding) -> float:
    """Return what the evidence says that the rank takes beyond the others, ms; without any, what it costs."""
    rows = [row for row in finding.evidence if row.ms is not None and row.name not in (LATE, STEADY_STEPS)]
    compared = [row.ms - (row.others_ms or 0.0) for row in rows if row.ms is not None]
    return max(sum(compared), 0.0) or (finding.ms or 0.0)
