"""scalescope as a library: what docs/reference.md promises of it holds, and nothing private is needed."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import assert_type

import msgspec
import pytest

import scalescope
from scalescope.cli import front_door
from scalescope.records.folder import RunFolder
from scalescope.records.rows import SweepRow
from scalescope.scaling.answer import RunAnalysis, read_run_answer
from scalescope.scaling.study_answer import Answer, StudyAnalysis, read_study_answer, without_timeline

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
_EXAMPLES = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE | re.DOTALL)
_FUNCTIONS = sorted(name for name in scalescope.__all__ if name[0].islower())
_IMPORTED = [set(re.findall(r"^from scalescope import (.*)$", text, re.MULTILINE)[0].split(", ")) for text in _EXAMPLES]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with runs of every kind, and traces of two GPUs."""
    shutil.copytree(DATA / "runs_v0.1", tmp_path / "runs")
    shutil.copytree(DATA / "gpt_ddp_n2", tmp_path / "traces")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("example", _EXAMPLES, ids=["+".join(sorted(names)) for names in _IMPORTED])
def test_every_example_in_the_reference_runs(example: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(example.splitlines()) <= 12
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    exec(compile(example, "reference.md", "exec"), {"__name__": "__main__"})
    if "profile_steps" in example:
        (run,) = (path.parent for path in (folder / "runs").glob("*/run.json") if path not in before)
        assert len(RunFolder(run).read_steps()) == 10
    else:
        assert len(capsys.readouterr().out.splitlines()) > 0
        new = {path for path in folder.rglob("*") if path not in before}
        assert new == ({folder / "study.html"} if "write_report" in example else set())
        assert all(path.stat().st_mtime_ns == time for path, time in before.items() if path.is_file()), "only read"


def test_every_function_has_an_example_and_is_in_the_reference() -> None:
    assert set(_FUNCTIONS) <= set().union(*_IMPORTED)
    text = (ROOT / "docs" / "reference.md").read_text()
    assert all(f"**`{name}(" in text for name in _FUNCTIONS)


def test_everything_public_is_there_lazily_and_nothing_else() -> None:
    assert set(scalescope.__all__) <= set(dir(scalescope))
    for name in scalescope.__all__:
        assert getattr(scalescope, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'analyse'"):
        scalescope.analyse  # type: ignore[attr-defined]  # noqa: B018


def test_it_answers_what_the_command_line_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, study = scalescope.analyze("runs/train"), scalescope.analyze_study(Path("runs/study"))
    # `make lint` fails where a type checker sees anything else, such as Any
    (
        assert_type(run, RunAnalysis),
        assert_type(study.analysis, StudyAnalysis),
        assert_type(study.runs, list[RunAnalysis]),
    )
    assert_type(scalescope.read_sweep("runs/sweep"), list[SweepRow])
    assert front_door.main(["analyze", "runs/train"]) == 0 and front_door.main(["analyze", "runs/study"]) == 0
    assert same(run, read_run_answer(folder / "runs/train/analysis.json"))
    assert same(study.analysis, read_study_answer(folder / "runs/study/analysis.json"))
    for answer in study.runs:
        assert same(answer, read_run_answer(folder / "runs/study" / answer.name / "analysis.json"))


def same(one: Answer, other: Answer) -> bool:
    return msgspec.json.encode(without_timeline(one)) == msgspec.json.encode(without_timeline(other))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: scalescope.analyze("runs/study"), "runs/study is a study; analyze_study"),
        (lambda: scalescope.analyze("runs/sweep"), "runs/sweep is a sweep; .*read_sweep"),
        (lambda: scalescope.analyze("nowhere"), "nowhere does not exist"),
        (lambda: scalescope.analyze_study("runs/train"), r"runs/train is a train run; analyze\(\) takes it"),
        (lambda: scalescope.read_sweep("runs/train"), "runs/train holds no sweep"),
        (lambda: scalescope.read_run("nowhere"), "nowhere does not exist"),
        (lambda: scalescope.compare("runs/sweep", "nowhere"), "nowhere: there is no such folder or file"),
        (lambda: scalescope.what_if("runs/sweep"), "runs/sweep is a sweep"),
        (lambda: scalescope.write_report("traces"), "traces is no run folder"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(call: Callable[[], object], says: str, folder: Path) -> None:
    with pytest.raises(scalescope.UserError, match=says):
        call()


def test_reading_with_another_sweep_leaves_the_folder_as_it_was(folder: Path) -> None:
    assert scalescope.analyze("runs/train", sweeps=["runs/sweep"]).in_situ is not None
    assert (
        RunFolder(folder / "runs/train").analysis.read_bytes() == (DATA / "runs_v0.1/train/analysis.json").read_bytes()
    )
