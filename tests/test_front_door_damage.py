"""Damaged files cost a line and exit 2; a defect of ours a line that asks for a report, and exit 3."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope.cli import front_door
from scalescope.records.folder import RunFolder
from scalescope.report.drawing.numbers import rate
from scalescope.scaling.sweeps.nccl_tests_log import read_log
from tests.fuzz.subjects import said_by
from tests.report_samples import write_study, write_sweep

DATA = Path(__file__).resolve().parent / "data"


_SWALLOWED = """
import os, signal, sys
from scalescope.cli import front_door

def loads(argv):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        pass
    raise ImportError("cannot load module more than once per process")

front_door._answer = loads
sys.argv = ["scalescope", "train"]
sys.exit(front_door.main())
"""


def test_ctrl_c_that_something_swallows_while_it_loads_is_an_interruption(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SWALLOWED]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert (done.returncode, done.stderr) == (3, "scalescope: interrupted\n")
    assert not list(tmp_path.iterdir())


def test_a_defect_is_one_line_with_its_traceback_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: list[str]) -> int:
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr(front_door, "_answer", fails)
    code, said = said_by(["doctor"])
    assert code == 3 and said.count("\n") == 1
    assert said.startswith(
        "scalescope: this is a defect of scalescope: ZeroDivisionError: of nothing; please report it"
    )
    kept = Path(said.strip().rpartition(" and ")[2])
    assert "in fails" in kept.read_text()
    kept.unlink()


@pytest.mark.parametrize("damage", [b"{", b"[" * 200_000, b'{"model": 7}', b"\xff\xfe", b""])
def test_a_bad_facts_json_costs_its_run_and_not_the_study(damage: bytes, tmp_path: Path) -> None:
    study = write_study(tmp_path / "study")
    hurt, *others = [child for child in study.read_children() if (child.path / "facts.json").is_file()]
    (hurt.path / "facts.json").write_bytes(damage)
    code, said = said_by(["analyze", str(study.path)])
    answer = json.loads(study.analysis.read_text())
    assert code == 0, said
    assert any(reason.startswith(f"{hurt.path.name} is left out: ") for reason in answer["reasons"])
    assert all((other.path / "analysis.json").is_file() for other in others)
    assert said_by(["report", str(study.path), "--html", str(tmp_path / "report.html")])[0] == 0


@pytest.mark.parametrize("row", [b"{}\n", b'{"operation": "\xff"}\n', b"[" * 200_000 + b"\n"])
def test_a_bad_row_of_a_sweep_is_named_with_its_line(row: bytes, tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep")
    sweep.sweep.write_bytes(row + sweep.sweep.read_bytes())
    code, said = said_by(["compare", str(sweep.path), str(sweep.path)])
    assert code == 2 and said.startswith(f"scalescope: {sweep.sweep}:1: ") and said.count("\n") == 1, said


@pytest.mark.parametrize(
    "change", [("time", "tiem"), ("type", "tpye"), ("    -1 ", "   -1! "), ("8             2", "9" * 400 + "  2")]
)
def test_a_log_with_a_column_too_few_is_no_traceback(change: tuple[str, str], tmp_path: Path) -> None:
    log = tmp_path / "all_reduce.txt"
    text = (DATA / "nccl_tests" / "plain.txt").read_text()
    assert change[0] in text
    log.write_text(text.replace(*change))
    code, said = said_by(["import", str(log), "--out", str(tmp_path / "out")])
    assert code in (0, 2) and "defect" not in said, said


def test_a_deep_json_log_is_no_traceback(tmp_path: Path) -> None:
    log = tmp_path / "all_reduce.json"
    log.write_text("[" * 200_000)
    code, said = said_by(["import", str(log), "--out", str(tmp_path / "out")])
    assert code == 2 and said.count("\n") == 1, said


def test_a_figure_without_bounds_is_still_written() -> None:
    assert rate(float("inf")) and rate(1e308)
    assert read_log((DATA / "nccl_tests" / "plain.txt").read_text(), "all_reduce.txt").rows


def test_a_pipe_in_a_file_s_place_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep")
    sweep.sweep.unlink()
    os.mkfifo(sweep.sweep)
    code, said = said_by(["compare", str(sweep.path), str(sweep.path)])
    assert code == 2 and "is no file but a pipe" in said
    assert RunFolder(sweep.path).read_info().kind == "sweep"


def test_a_log_without_a_result_is_refused_and_leaves_no_folder(tmp_path: Path) -> None:
    """Found by fuzzing: an empty list of results was a traceback, and an empty sweep was left."""
    log = tmp_path / "all_reduce.json"
    document = json.loads((DATA / "nccl_tests" / "json.json").read_text())
    log.write_text(json.dumps({**document, "results": []}))
    code, said = said_by(["import", str(log), "--out", str(tmp_path / "out")])
    assert code == 2 and "there is no result in it" in said and not (tmp_path / "out").exists()
