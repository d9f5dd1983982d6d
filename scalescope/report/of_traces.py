"""What a page shows of plain traces, which lie in no run folder: the answers are all there is."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from scalescope.records.folder import RunFolder
from scalescope.records.rows import RunInfo
from scalescope.report.report_data import ReportData, RunData
from scalescope.report.text.beside import beside_sentences
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.study_answer import Answer, StudyAnalysis


def data_of_traces(answers: Sequence[Answer], name: str) -> ReportData:
    """Return what a page is made of: the runs' answers and, where there is one, what compares them."""
    study = next((one for one in answers if isinstance(one, StudyAnalysis)), None)
    runs = [_run(one) for one in answers if isinstance(one, RunAnalysis)]
    notes = beside_sentences([one for one in answers if isinstance(one, RunAnalysis)])
    now = datetime.now().timestamp()
    info = RunInfo(kind="study" if study is not None else "train", name=name, status="done", started_unix_s=now)
    return ReportData(RunFolder(Path(name)), info, study=study, runs=runs, notes=notes, of_traces=True)


def _run(answer: RunAnalysis) -> RunData:
    info = RunInfo(kind="train", name=answer.name, status="done", started_unix_s=0.0, world_size=answer.world_size)
    return RunData(RunFolder(Path(answer.name)), info, None, [], answer, None, "")
