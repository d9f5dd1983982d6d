"""A name out of a stranger's file moves no cursor and changes no colour; a run's name leads nowhere else."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope.launch.freeze import folder_below
from scalescope.records.console import clean
from scalescope.records.errors import UserError
from tests.fuzz.subjects import said_by
from tests.report_samples import write_sweep

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\rall is well"


def test_cleaning_leaves_text_and_takes_what_a_terminal_obeys() -> None:
    assert clean("a\tb\n· 3 µs → ok") == "a\tb\n· 3 µs → ok"
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(clean(HOSTILE)) and "all is well" in clean(HOSTILE)


def test_nothing_that_a_verb_prints_carries_an_escape(tmp_path: Path) -> None:
    traces = tmp_path / "tra\x1b[31mces"
    traces.mkdir()
    event = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "args": {"stream": 7, "device": 0}}
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 1, "dur": 1000, "pid": 1, "tid": 1}
    events = [step, {**event, "name": HOSTILE, "ts": 10, "dur": 500}]
    with gzip.open(traces / "rank0.1.pt.trace.json.gz", "wt") as file:
        json.dump({"traceEvents": events, "deviceProperties": [{"id": 0, "name": HOSTILE}]}, file)
    sweep = write_sweep(tmp_path / "sweep")
    row = json.loads(sweep.sweep.read_text().splitlines()[0])
    sweep.sweep.write_text(json.dumps({**row, "dtype": HOSTILE, "operation": HOSTILE}) + "\n")
    for argv in (["analyze", str(traces)], ["compare", str(sweep.path), str(sweep.path)], ["analyze", HOSTILE]):
        _, said = said_by(argv)
        assert said and not {"\x1b", "\x07", "\x9b", "\u202e"} & set(said), repr(said)


def test_a_terminal_still_gets_its_colours(tmp_path: Path) -> None:
    script = (
        "from scalescope.records.console import cleaned_console\n"
        "from scalescope.report.terminal.console import make_console\n"
        "with cleaned_console(): make_console().print('[red]x\\x1b[2Jy[/red]')\n"
    )
    checkout = str(Path(__file__).resolve().parent.parent)
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color", "PYTHONPATH": checkout}
    environment.pop("NO_COLOR", None)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert "\x1b[31m" in done.stdout and "\x1b[2J" not in done.stdout


@pytest.mark.parametrize("name", ["../esc", "/etc/esc", "a/../../esc", "..", "."])
def test_a_name_that_leads_out_of_runs_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lies outside of"):
        folder_below(str(tmp_path / "runs"), name)


def test_a_name_inside_of_runs_is_taken(tmp_path: Path) -> None:
    assert folder_below(str(tmp_path), "a") == tmp_path.resolve() / "a"
