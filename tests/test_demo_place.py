"""Where `scalescope demo` writes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from scalescope.cli import demo, study

DATA = Path(__file__).parent / "data"


def test_the_demo_goes_where_it_is_told_and_puts_an_earlier_one_there_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`scalescope demo runs=/scratch` wrote into ./runs/demo without a word."""
    seen: list[list[str]] = []

    def run(argv: list[str], put_aside: Callable[[], None]) -> int:
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
    """Behind them came the sweep's table and what other tools say at their end."""
    monkeypatch.chdir(tmp_path)

    def run(argv: list[str], put_aside: Callable[[], None]) -> int:
        shutil.copytree(DATA / "runs_v0.1" / "study", tmp_path / "runs" / "demo")
        print("what scrolls away")
        return 0

    monkeypatch.setattr(study, "run", run)
    assert demo.run([]) == 0
    said = capsys.readouterr().out.partition("what scrolls away")[2]
    places = [said.index(text) for text in ("efficiency", "gpt_tiny: ", "runs/demo/report.html", "scalescope analyze")]
    assert places == sorted(places) and len(said.splitlines()) < 24
