"""analysis.json of a study, typed: what only its runs together say. And the files that hold answers of either kind.

Conventions are those of answer.py, which has what a run's own answer holds.
"""

from pathlib import Path
from typing import Literal

import msgspec

from scalescope.records.files import write_atomic
from scalescope.records.folder import RunFolder
from scalescope.scaling.answer import SCHEMA, RunAnalysis, read_as
from scalescope.scaling.answer_rows import WaterfallPart
from scalescope.scaling.costs.answer import CostAnswer
from scalescope.scaling.projected import Projection
from scalescope.scaling.step_timeline import write_timeline


class ScalingPoint(msgspec.Struct, kw_only=True):
    """One model at one rank count, against the smallest count of its series."""

    series: str  # model, with what else tells series apart
    model: str
    world_size: int
    scaling: Literal["weak", "strong"]
    run: str  # the run's folder name
    step_ms: float
    samples_per_s: float | None  # None of plain traces, which do not tell it
    tokens_per_s: float | None
    speedup: float  # of throughput, over the smallest count
    efficiency: float  # speedup / (world_size / smallest world_size)
    compute_factor: float | None  # mean compute of the reference over mean compute here (weak)
    parallel_factor: float | None  # parallel efficiency here over the reference's
    mfu: float | None = None


class KindGrowth(msgspec.Struct, kw_only=True):
    """By how much the kernels of one kind grew from one rank count to another, in ms a step of the mean rank."""

    kind: str
    from_ms: float
    to_ms: float
    inflation_ms: float  # the same kernels, by name and place in the step, slower
    more_work_ms: float  # kernels that only one of the runs has
    inflation_beside_ms: float  # of the inflation, that of kernels with a collective beside them
    beside_ms: dict[str, float]  # of `to_ms`, how long which collectives ran meanwhile


class GrownCoreWaits(msgspec.Struct, frozen=True, kw_only=True):
    """By how much longer ranks are ready to run and wait for a core: by the rows of all steps that are measured."""

    ms: float  # of the mean rank, in the mean step; 95% below
    low_ms: float
    high_ms: float
    from_ms: float  # what it waits for on the smaller count, and on the larger one
    to_ms: float
    from_steps: int  # that tell it
    to_steps: int
    ranks: int | None = (
        None  # of the larger run's host with most threads a core, what these compute with, and its cores
    )
    threads: int | None = None
    cores: int | None = None


class Waterfall(msgspec.Struct, kw_only=True):
    """Where the step's growth from one rank count to another went; the parts add up to the growth exactly."""

    series: str
    from_world_size: int
    to_world_size: int
    from_step_ms: float  # from the traces' windows
    to_step_ms: float
    growth_ms: float
    parts: list[WaterfallPart]
    measured_growth_ms: float | None = None  # of the step outside the profiler's windows
    measured_growth_low_ms: float | None = None  # … its 95% interval, by those of both medians
    measured_growth_high_ms: float | None = None
    noise_ms: float | None = None  # the two lie no further apart on a machine that runs evenly, 95 times of 100
    unsteady: bool = False  # they do, and recording cannot be why
    compute_inflation_ms: float | None = None  # of the compute part: the same kernels, slower
    compute_more_work_ms: float | None = None  # of the compute part: kernels the smaller run does not have
    only_larger_cut: bool = False  # the larger run's compiled graph is cut at gradient buckets, the smaller's is whole
    core_waits: GrownCoreWaits | None = None  # None: rows do not tell, or it is noise or little of the measured growth
    kinds: list[KindGrowth] = []  # of the compute part, kernel kind by kernel kind; empty where kernels do not match


class TriedAdvice(msgspec.Struct, kw_only=True):
    """Advice that was followed in one more run: what was expected beside what came, in ms a step (positive: gained)."""

    base: str  # the run that the advice was for, by folder name
    run: str
    what: str
    overrides: list[str]
    expected_ms: float
    expected_low_ms: float
    expected_high_ms: float
    at_most: bool
    at_least: bool = False
    measured_ms: float | None  # from the steady steps of both; None where one has none
    measured_low_ms: float | None = None
    measured_high_ms: float | None = None
    base_step_ms: float | None = None
    run_step_ms: float | None = None


class MeasuredAgain(msgspec.Struct, kw_only=True):
    """How a series is measured again in more windows, with steps enough for them."""

    series: str
    overrides: list[str]  # of a study: its own, but for windows, steps and counts


class StudyAnalysis(msgspec.Struct, kw_only=True):
    """What only the whole study can say."""

    schema: int = SCHEMA
    kind: Literal["study"] = "study"
    name: str
    runs: list[str] = []  # folder names; each holds its own analysis.json
    efficiency: list[ScalingPoint] = []
    waterfall: list[Waterfall] = []
    costs: CostAnswer | None = None  # the cost model of the sweeps
    projection: Projection | None = None
    tried: list[TriedAdvice] = []  # advice that was followed, expected beside measured
    again: list[MeasuredAgain] = []  # of series that more windows would tell more of, where the study keeps its jobs
    reasons: list[str] = []  # why something above is missing, and how each of `unfinished` ended
    unfinished: list[str] | None = None  # runs that had not ended as done when this was made; None in older files


Answer = RunAnalysis | StudyAnalysis


def write_answer(path: Path, answer: Answer) -> None:
    """Write analysis.json whole, and a run's timeline beside it. Raises OSError."""
    write_atomic(path, msgspec.json.format(msgspec.json.encode(without_timeline(answer))))
    if isinstance(answer, RunAnalysis):
        write_timeline(RunFolder(path.parent).timeline, answer.timeline)


def without_timeline(answer: Answer) -> Answer:
    """Return an answer as it stands in analysis.json."""
    if isinstance(answer, StudyAnalysis) or answer.timeline is None:
        return answer
    return msgspec.structs.replace(answer, timeline=None)


def read_study_answer(path: Path) -> StudyAnalysis:
    """Return a study's analysis.json. Raises UserError where it is missing or of another schema."""
    return read_as(path, StudyAnalysis)
