"""A window that was opened since steps had become longer is told by itself: a mean with the others would halve it."""

import shutil
import statistics
from pathlib import Path

import msgspec
import pytest

from scalescope.records.folder import RunFolder
from scalescope.records.steps.recording import LongerFacts, RecordingFacts, UntracedSteps, WindowFacts
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze_run
from scalescope.scaling.answer import Quality, Replay, RunAnalysis
from scalescope.scaling.answer_steps import LongerSteps
from scalescope.scaling.finding.finding import Finding, Remedy
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.run import add_run_folder
from scalescope.scaling.windows import add
from scalescope.scaling.windows.add import add_findings_of_windows
from scalescope.scaling.windows.kinds import by_kind
from tests.report_samples import run_answer, step_rows, write_run

DATA = Path(__file__).parent / "data"
LONGER = LongerFacts(since=60, step_ms=72.1, level_ms=33.9)


def window(first: int) -> Explained:
    """Return a window of three steps."""
    analysis = run_answer("run", 2)
    moved = first - min(step.step for step in analysis.steps)
    analysis.steps = [msgspec.structs.replace(step, step=step.step + moved) for step in analysis.steps]
    return Explained(analysis, {}, {}, records={0: None})  # type: ignore[dict-item]


def told(first: int, beside_ms: float, longer: LongerFacts | None = None) -> WindowFacts:
    beside = UntracedSteps(median_ms=beside_ms, spread_ms=1.0, count=20)
    return WindowFacts(steps=[first, first + 1, first + 2], before=beside, after=beside, longer=longer)


def folder_with(path: Path, *windows: WindowFacts) -> RunFolder:
    folder = write_run(path, 2)
    folder.write_recording(RecordingFacts(windows=list(windows)))
    return folder


def firsts(windows: list[Explained]) -> list[int]:
    return [min(step.step for step in one.analysis.steps) for one in windows]


def test_windows_are_told_apart_by_why_they_were_opened_and_by_the_steps_beside_them(tmp_path: Path) -> None:
    facts = [told(22, 34.0), told(45, 33.5), told(113, 72.0, LONGER), told(150, 71.0), told(190, 34.5)]
    folder = folder_with(tmp_path / "run", *facts)
    windows = [window(one.steps[0]) for one in facts]
    chosen, usual, longer = by_kind(folder.path, windows)
    assert firsts(chosen) == [113, 150] and firsts(usual) == [22, 45] and longer == LONGER


def test_planned_windows_alone_are_of_one_kind(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "run", told(22, 34.0), told(113, 72.0))
    chosen, usual, longer = by_kind(folder.path, [window(22), window(113)])
    assert firsts(chosen) == [22, 113] and usual == [] and longer is None
    assert by_kind(tmp_path, [window(22)])[2] is None, "plain traces"


def test_what_longer_steps_show_is_not_halved_by_the_windows_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Finding(code="host_stall", rank=1, ms=40.3, low_ms=26.0, high_ms=54.0, backed="replay",
                   remedy=Remedy(cure="look_at_host"))  # fmt: skip
    even = Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="replay")

    def found(_: Path, analyses: list[RunAnalysis], *__: object) -> None:
        first = min(step.step for step in analyses[0].steps)
        analyses[0].findings = [late if first > LONGER.since else even]
        analyses[0].replay = Replay(traced_ms=70.0, replayed_ms=70.0, error=0.0, unexplained_ms=0.0, faithful=True)

    monkeypatch.setattr(add, "add_findings", found)
    folder = folder_with(tmp_path / "run", told(22, 34.0), told(113, 72.0, LONGER))
    slow, usual = window(113), window(22)
    slow.analysis.longer = LongerSteps(since=60, step_ms=72.1, level_ms=33.9, usual_windows=1)
    add_findings_of_windows(folder.path, msgspec.structs.replace(slow, usual=usual), [])
    assert [(one.code, one.ms) for one in slow.analysis.findings] == [("host_stall", 40.3)]
    assert [one.code for one in slow.analysis.longer.usual] == ["nothing"]
    verdict = run_verdict(slow.analysis)
    assert "since step 60 steps take 72.1 ms where 33.9 ms were usual. Of these: rank 1 costs 40.3 ms" in (
        verdict.headline
    )
    assert any(text.startswith("Before: nothing between the ranks is wrong") for text in verdict.sentences)


def test_longer_steps_are_held_against_their_own_rows(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 2)
    rows = step_rows(2, 200)
    folder.steps.unlink()
    with folder.step_writer() as writer:
        for row in rows:
            ms = 70.0 if 60 <= row.step < 150 else 34.0
            writer.append(msgspec.structs.replace(row, phase="steady", step_ms=[ms, ms]))
    analysis = RunAnalysis(name="r", world_size=2, activity="cpu", quality=Quality(verdict="good"))
    add_run_folder(analysis, folder)
    assert analysis.step_times is not None and analysis.step_times.measured_step_ms == statistics.median([34.0])
    analysis.longer = LongerSteps(since=60, step_ms=70.0, level_ms=34.0)
    add_run_folder(analysis, folder)
    assert analysis.step_times.measured_step_ms == 70.0 and analysis.step_times.measured_steps == 90


def test_a_window_that_is_alone_is_told_by_why_it_was_opened(tmp_path: Path) -> None:
    """The job was to record nothing but what becomes longer (profiler.wait beyond its end)."""
    shutil.copytree(DATA / "runs_v0.1" / "train", run := tmp_path / "train")
    assert analyze_run(run).longer is None
    longer = LongerFacts(since=10, step_ms=47.3, level_ms=20.0)
    RunFolder(run).write_recording(RecordingFacts(windows=[WindowFacts(steps=[11, 12], longer=longer)]))
    analysis = analyze_run(run)
    assert analysis.longer is not None and analysis.longer.usual_windows == 0
    assert "since step 10 steps take 47.3 ms where 20.0 ms were usual." in run_verdict(analysis).headline
