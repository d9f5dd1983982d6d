"""Where `scalescope demo` writes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from scalescope.cli import demo, study
from scalescope.cli.show import Asked, show
from scalescope.records.folder import RunFolder
from scalescope.report.sinks import wandb_study

DATA = Path(__file__).parent / "data"


def test_the_demo_goes_where_it_is_told_and_puts_an_earlier_one_there_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`scalescope demo runs=/scratch` wrote into ./runs/demo without a word."""
    seen: list[list[str]] = []

    def run(argv: list[str], put_aside: Callable[[], None], *, briefly: bool) -> int:
        seen.append(argv)
        put_aside()
        return 0

    monkeypatch.setattr(study, "run", run)
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/demo", "elsewhere/demo"):
        (tmp_path / folder).mkdir(parents=True)
    assert demo.run(["runs=elsewhere"]) == 0
    assert [one for one in seen[0] if one.startswith("runs=")][-1] == "runs=elsewhere"
    assert (tmp_path / "runs/demo").exists()
    assert not (tmp_path / "elsewhere/demo").exists()
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1


def test_the_demo_ends_with_its_table_its_first_sentences_and_where_the_report_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verdicts and tables came twice: behind all that the study says came the first of it once more."""
    monkeypatch.chdir(tmp_path)

    def run(argv: list[str], put_aside: Callable[[], None], *, briefly: bool) -> int:
        shutil.copytree(DATA / "runs_v0.1" / "study", tmp_path / "runs" / "demo")
        show(Asked([Path("runs/demo")], points_were_shown=True, briefly=briefly))
        return 0

    monkeypatch.setattr(study, "run", run)
    assert demo.run([]) == 0
    said = capsys.readouterr().out
    ends = ("efficiency", "gpt_tiny: ", "all_reduce reaches", "runs/demo/report.html", "scalescope analyze")
    places = [said.index(text) for text in ends]
    assert places == sorted(places) and len(said.splitlines()) < 30
    assert all(said.count(text) == 1 for text in ("weak scaling efficiency", "speedup", "all_reduce reaches"))
    assert "(B)" not in said and "the step's growth" not in said


def test_a_study_shows_the_points_of_its_sweep_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stand there already, a line each as they were measured."""
    shutil.copytree(DATA / "runs_v0.1" / "study", tmp_path / "study")
    for shown in (False, True):
        show(Asked([tmp_path / "study"], points_were_shown=shown))
        said = capsys.readouterr().out
        assert ("(elements)" in said) != shown
        assert said.count("all_reduce reaches") == said.count("weak scaling efficiency") == 1


def test_the_demo_draws_no_pictures_for_wandb_and_a_study_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its last word the demo ran for eight seconds more: for images of what its page shows."""
    drawn: list[bool] = []
    shutil.copytree(DATA / "runs_v0.1" / "study", tmp_path / "study")

    class Sink:
        def __init__(self, **_: object) -> None: ...
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_, **__: None

        def log_values(self, values: Callable[[], dict[str, object]], _: dict[str, object]) -> None:
            drawn.append(any(key.startswith("pictures/") for key in values()))

    monkeypatch.setattr(wandb_study, "WandbSink", Sink)
    monkeypatch.setattr(wandb_study, "_native_charts", lambda _: {})
    monkeypatch.setattr(wandb_study, "wandb_table", lambda table: table)
    monkeypatch.setattr(wandb_study, "_pictures", lambda *_: {"pictures/scaling-1": "drawn"})
    for pictures in (True, False):
        wandb_study.log_study(RunFolder(tmp_path / "study"), {}, pictures=pictures)
    assert drawn == [True, False]
