"""The reading half as a library: what the command line prints, as typed values. Nothing is written unless said.

Paths are run folders, studies, sweeps, folders of traces or trace files, as text or pathlib's. A path that holds none
of what is asked for, or holds it damaged, is a UserError that says what to do. Nothing here loads torch.
"""

from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import RunInfo, StepRow, SweepRow, TrainFacts
from scalescope.scaling import analyze as reading
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.predict import open_as_run, predict
from scalescope.scaling.as_run.untraced import given_steps
from scalescope.scaling.compare.answer import Comparison
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.compare.gate import parse
from scalescope.scaling.costs.answer import CostAnswer, cost_answer
from scalescope.scaling.costs.model import CostModel, NotKnown
from scalescope.scaling.costs.points import Launch, read_launches
from scalescope.scaling.costs.topology import Topology
from scalescope.scaling.found import without_found
from scalescope.scaling.projection.outlook import Outlook
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.load import find_targets
from scalescope.scaling.replay.whatif.prediction import WhatIf
from scalescope.scaling.study_answer import StudyAnalysis
from scalescope.scaling.trace import reader
from scalescope.scaling.trace.trace import Trace

Location = str | PathLike[str]


class Run(msgspec.Struct, frozen=True):
    """What a run folder holds, but for its traces."""

    info: RunInfo
    facts: TrainFacts | None  # of training runs
    steps: list[StepRow]  # a row a step; of one that was done twice, the last attempt
    sweep: list[SweepRow]  # a row a planned point, measured or with its reason


class Study(msgspec.Struct, frozen=True):
    """A study's analysis, and that of each of its training runs."""

    analysis: StudyAnalysis
    runs: list[RunAnalysis]


def read_trace(path: Location, device: int | None = None) -> Trace:
    """Return one rank's trace as columns of integers, times in ns; as far as the file goes.

    `device`: which one of a profile of XLA (jax.profiler's) that holds several, each a rank. Raises UserError where the
    file is no trace or cannot be opened, or holds several devices and none is said.
    """
    return reader.read_trace(Path(path), device)


def read_run(path: Location) -> Run:
    """Return what a run folder of training or of a sweep says of itself. Raises UserError where it is none."""
    folder = RunFolder.open(Path(path))
    try:
        return Run(folder.read_info(), folder.read_facts(), folder.read_steps(), folder.read_sweep())
    except (msgspec.DecodeError, OSError) as error:
        raise UserError(f"{path}: {error}") from error


def read_sweep(path: Location) -> list[SweepRow]:
    """Return the rows of a sweep: a run folder, a study, a sweep.jsonl, or a log of nccl-tests or rccl-tests.

    Raises UserError where there are none.
    """
    return [row for launch in read_launches(Path(path)) for row in launch.rows]


def analyze(
    path: Location | Sequence[Location],
    *,
    against: Sequence[Location] = (),
    sweeps: Sequence[Location] = (),
    step_ms: float | None = None,
    jobs: int | None = None,
) -> RunAnalysis:
    """Return the analysis of a training run, a folder of traces, or trace files: what its analysis.json holds.

    `against`: undisturbed runs of the same job on as many ranks, for `lost`. `sweeps`: sweeps of the same devices, for
    `in_situ`. `step_ms`: the step without a profiler, where no run folder tells it. `jobs`: processes that read; None:
    as many as pay off. Raises UserError for a path without traces or with those of several jobs, and for a study or a
    sweep.
    """
    paths = _paths(path)
    for one in paths:
        if kind := _kind(one):
            raise UserError(f"{one} is a {kind}; {_OTHERWISE[kind]}")
    answers = reading.analyze(
        paths, jobs, references=[Path(one) for one in against], outlook=Outlook(_launches(sweeps)),
        untraced=given_steps([step_ms] if step_ms is not None else [], paths), write=False,
    )  # fmt: skip
    if len(answers) > 1:
        raise UserError(f"these are traces of {len(answers)} jobs ({', '.join(answer.name for answer in answers)}); "
                        "analyze() takes those of one")  # fmt: skip
    (answer,) = answers
    assert isinstance(answer, RunAnalysis)  # only studies have another
    return answer


def analyze_study(
    path: Location,
    *,
    sweeps: Sequence[Location] = (),
    gpus: Sequence[int] = (),
    topology: Topology | None = None,
    jobs: int | None = None,
) -> Study:
    """Return the analysis of a study and of its training runs: what their analysis.json files hold.

    `sweeps`: sweeps of the same devices beside the study's own. `gpus`: the counts to project to; none: the next two
    doublings. `topology`: the machine that those would be on. `jobs`: processes that read. Raises UserError where the
    path is no study, or holds no runs.
    """
    folder = RunFolder.open_study(Path(path), "analyze() takes it")
    outlook = Outlook(_launches(sweeps), tuple(gpus), topology)
    study, *runs = reading.analyze([folder.path], jobs, outlook=outlook, write=False)
    assert isinstance(study, StudyAnalysis)
    return Study(study, [run for run in runs if isinstance(run, RunAnalysis)])


def compare(
    baseline: Location | Sequence[Location],
    other: Location | Sequence[Location],
    *,
    fail_if: Sequence[str] = (),
    jobs: int | None = None,
) -> Comparison:
    """Return two measurements of anything side by side: whether OTHER is slower, by how much, and where it lies.

    Each is a run folder, a study, a sweep, a folder of traces or a log of nccl-tests; a folder that holds several of
    one kind, or several paths, are repeats. `fail_if`: limits such as "step>3%", whose outcome is in `gate`. `jobs`:
    processes that read. Raises UserError where one holds nothing that can be compared, and for a limit that is none.
    """
    limits = [parse(text) for text in fail_if]
    return compare_paths(_paths(baseline), _paths(other), limits, jobs, partial(reading.analyze_alone, jobs=jobs))


def cost_model(*sweeps: Location) -> CostModel:
    """Return what collectives take at any size and group size, fitted to launches of a sweep: `time_us(…)`.

    Raises UserError where the sweeps are not of one device, or hold nothing that a fit could use.
    """
    try:
        model = CostModel(list(_launches(sweeps)))
    except NotKnown as reason:
        raise UserError(str(reason)) from None
    if not model.measured:
        raise UserError(
            "the sweeps hold no point that a fit could use: eager, alone, the algorithm left to the library"
        )
    return model


def fit(*sweeps: Location) -> CostAnswer:
    """Return the fits of all operations of a sweep, with terms, points and their test, as a study's `costs` has them.

    Raises UserError as `cost_model` does.
    """
    return cost_answer(cost_model(*sweeps))


def what_if(path: Location, *changes: Change, step_ms: float | None = None) -> list[WhatIf]:
    """Return what changes would do to the step, each with its interval: of a study, its largest run of each job.

    Without changes, what each finding of the analysis costs, in their order. `step_ms`: the step without a profiler,
    where no run folder tells it. Raises UserError where there are no traces, or too many to replay.
    """
    targets = find_targets(Path(path))
    if not changes:
        return [without_found(one, step_ms) for one in targets]
    return [predict(one.name, open_as_run(one, step_ms), changes) for one in targets]


def write_report(path: Location, out: Location | None = None) -> Path:
    """Write report.html of a run folder or a study as it was last analysed, and return its path.

    `out`: another file than the folder's own. Raises UserError where there is no run folder, OSError where the page
    cannot be written.
    """
    from scalescope.report.html import write_report as write  # its charts need not be there for anything else

    return write(RunFolder.open(Path(path)), Path(out) if out is not None else None)


_OTHERWISE = {"study": "analyze_study() takes it", "sweep": "its rows are the answer: read_sweep() returns them",
              "scorecard": "its rows are the answer, in scorecard.jsonl"}  # fmt: skip


def _kind(path: Path) -> str | None:
    """Return what a folder is, if it is no training run."""
    kind = RunFolder(path).read_info().kind if (path / "run.json").is_file() else "train"
    return kind if kind != "train" else None


def _launches(paths: Sequence[Location]) -> tuple[Launch, ...]:
    return tuple(launch for path in paths for launch in read_launches(Path(path)))


def _paths(path: Location | Sequence[Location]) -> list[Path]:
    return [Path(path)] if isinstance(path, str | PathLike) else [Path(one) for one in path]
