"""What a folder holds for showing: a study, a train run alone or a sweep alone, read once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import RunInfo, StepRow, SweepRow, TrainFacts
from scalescope.records.scorecard.row import ScorecardRow
from scalescope.scaling.answer import RunAnalysis, read_run_answer
from scalescope.scaling.step_timeline import read_timeline
from scalescope.scaling.study_answer import Answer, StudyAnalysis, read_study_answer
from scalescope.scaling.verdicts.flight import read_flight


@dataclass(frozen=True)
class RunData:
    """One run folder. `answer` is None where its traces were not analysed; `reason` says why, or what it lacks."""

    folder: RunFolder
    info: RunInfo
    facts: TrainFacts | None
    steps: list[StepRow]
    answer: RunAnalysis | None
    reason: str | None
    config: str

    @property
    def name(self) -> str:
        return self.folder.path.name


@dataclass(frozen=True)
class ReportData:
    """Everything a report is made of. `notes` says what could not be read."""

    folder: RunFolder
    info: RunInfo
    study: StudyAnalysis | None = None
    runs: list[RunData] = field(default_factory=list)
    sweep: list[SweepRow] = field(default_factory=list)
    sweep_runs: list[RunData] = field(default_factory=list)
    scorecard: list[ScorecardRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    of_traces: bool = False  # of plain traces: there is no run folder

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def answers(self) -> list[RunAnalysis]:
        return [run.answer for run in self.runs if run.answer is not None]

    def by_series(self) -> dict[str, list[RunData]]:
        """Return the training runs of each series by rank count; a run of no series stands under its model's name."""
        series = {point.run: point.series for point in self.study.efficiency} if self.study else {}
        found: dict[str, list[RunData]] = {}
        for run in sorted(self.runs, key=lambda run: run.info.world_size or 0):
            model = run.facts.model if run.facts else run.answer.model if run.answer else None
            found.setdefault(series.get(run.name) or model or run.name, []).append(run)
        return found

    def series_of(self, answer: RunAnalysis) -> str:
        """Return the series under which `by_series` has a run, by its answer."""
        found = (name for name, runs in self.by_series().items() if answer.name in {run.name for run in runs})
        return next(found, answer.model or answer.name)


def read_report_data(folder: RunFolder, answers: Sequence[Answer] | None = None) -> ReportData:
    """Read a run folder and, of a study, its runs; `answers` take the place of what their analysis.json hold.

    A child that cannot be read is named in `notes` and left out, so that one broken run does not hide the others.
    Raises UserError where the folder itself is none.
    """
    info = folder.read_info()
    data = ReportData(folder, info)
    try:
        data.scorecard.extend(folder.read_scorecard())
    except (UserError, OSError, msgspec.DecodeError) as error:
        data.notes.append(f"the scorecard is left out: {error}")
    if info.kind == "scorecard":
        data.sweep_runs.append(_read_run(folder, None))  # for its environment and config; its jobs have theirs
        return data
    known = None if answers is None else {one.name: one for one in answers if isinstance(one, RunAnalysis)}
    for child in folder.read_children() if info.kind == "study" else [folder]:
        try:
            _add(data, child, known)
        except (UserError, OSError, msgspec.DecodeError) as error:
            data.notes.append(f"{child.path.name} is left out: {error}")
    if info.kind != "study":
        return data
    if answers is not None:
        return replace(data, study=next((one for one in answers if isinstance(one, StudyAnalysis)), None))
    try:
        study = read_study_answer(folder.analysis)
    except UserError as error:
        data.notes.append(f"the study as a whole is not analysed: {error}")
        return data
    return replace(data, study=study)


def _add(data: ReportData, folder: RunFolder, known: Mapping[str, RunAnalysis] | None) -> None:
    run = _read_run(folder, known)
    if run.info.status == "failed":
        where = f"{run.name} failed: " if data.info.kind == "study" else "The run failed: "
        data.notes.append(f"{where}{run.info.message or 'run.json names no reason'}")
        data.notes.extend(f"Flight record: {line}" for line in read_flight(folder, run.info.world_size)[1])
    rows = folder.read_sweep()
    if run.answer is not None and run.reason is not None:
        data.notes.append(f"the drawing of a step is left out: {run.reason}")
    if run.info.kind == "train":
        data.runs.append(run)
    if rows or run.info.kind == "sweep":
        data.sweep_runs.append(run)
        data.sweep.extend(rows)


def _read_run(folder: RunFolder, known: Mapping[str, RunAnalysis] | None) -> RunData:
    info = folder.read_info()
    answer, reason = (known or {}).get(folder.path.name), None
    if info.kind == "train" and known is None:
        try:
            answer = read_run_answer(folder.analysis)
            answer.timeline = read_timeline(folder.timeline)
        except UserError as error:
            reason = str(error)
    config = folder.config.read_text(encoding="utf-8", errors="replace") if folder.config.is_file() else ""
    return RunData(folder, info, folder.read_facts(), folder.read_steps(), answer, reason, config)
