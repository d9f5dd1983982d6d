"""Damaged files cost a line and exit 2; a defect of ours a line that asks for a report, and exit 3."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from scalescope.cli import front_door
from scalescope.records.folder import RunFolder
from scalescope.report.drawing import panel
from scalescope.report.drawing.numbers import rate
from scalescope.scaling.sweeps.nccl_tests_log import read_log
from tests.fuzz.subjects import said_by
from tests.report_samples import write_study, write_sweep
from tests.trace_json import unpacked

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
def test_a_bad_facts_json_costs_its_run_and_not_the_study(
    damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if damage != b"{":  # charts of the other runs take most of the time
        monkeypatch.setattr(panel, "can_draw", lambda: False)
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


def rewritten(folder: Path, without: tuple[str, ...]) -> Path:
    """Write a job of one GPU whose trace lacks some categories of events."""
    trace = unpacked(DATA / "gpt_ddp_n1" / "rank0.json.gz")
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("cat") not in without]
    folder.mkdir(exist_ok=True)
    (folder / "rank0.json").write_bytes(msgspec.json.encode(trace))
    return folder


@pytest.mark.parametrize("verb", ["analyze", "report"])
def test_traces_that_tell_nothing_are_said_to_and_end_with_2(verb: str, tmp_path: Path) -> None:
    """They ended with 0, so that no script could tell them from an answer."""
    folder = rewritten(tmp_path / "x", ("kernel", "gpu_memcpy", "gpu_memset"))
    code, said = said_by([verb, str(folder)])
    line = said.strip().splitlines()[-1]
    assert code == 2 and "x: the traces do not say where the time goes: rank 0: rank0.json: the job ran on a " in line
    assert line.startswith("scalescope: ") and "ProfilerActivity.CUDA" in line
    assert said_by([verb, str(DATA / "gpt_ddp_n1"), "--html", str(tmp_path / "y.html")])[0] == 0


def test_a_rank_without_its_device_leaves_the_others_to_be_told_alone(tmp_path: Path) -> None:
    """Half of all launches had no kernel, though one rank's were all there: nothing was told."""
    for rank in (0, 1):
        (source,) = (DATA / "gpt8_ddp_delay4ms_rank1_n2").glob(f"rank{rank}*.json.gz")
        trace = unpacked(source)
        device = ("kernel", "gpu_memcpy", "gpu_memset") if rank else ()
        trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("cat") not in device]
        (tmp_path / f"rank{rank}.json").write_bytes(msgspec.json.encode(trace))
    code, said = said_by(["analyze", str(tmp_path)])
    assert code == 0 and "2 GPUs, rank 0 alone (the trace of rank 1 is not whole): 96" in said


def test_two_that_do_not_compare_end_with_2() -> None:
    """It was 0: *compare BEFORE AFTER && deploy* deployed."""
    code, said = said_by(["compare", str(DATA / "gpt_ddp_n2"), str(DATA / "gather_sm_n2")])
    assert code == 2 and "are not comparable" in said


def test_a_window_in_which_nothing_ran_is_no_step(tmp_path: Path) -> None:
    """A schedule without repeat=1 opens again behind the last step, and writes over the file: *0.0% of the 0.03 ms step
    is compute* was told, and *larger batches*.
    """
    mark = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 5.0, "dur": 30.0}
    for rank in (0, 1):
        about = {"backend": "gloo", "rank": rank, "world_size": 2}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"distributedInfo": about, "traceEvents": [mark]}))
    code, said = said_by(["analyze", str(tmp_path)])
    assert code == 2 and "the traces do not say where its time goes" in said
    assert "nothing ran in its steps" in said and "schedule(…, repeat=1)" in said


def test_a_file_that_holds_its_events_twice_is_refused(tmp_path: Path) -> None:
    """*Nothing between the ranks is wrong* was told of a rank that was delayed, beside a warning of NumPy's."""
    for rank in (0, 1):
        (source,) = (DATA / "gpt8_ddp_delay4ms_rank1_n2").glob(f"rank{rank}*.json.gz")
        trace = unpacked(source)
        trace["traceEvents"] *= 2
        (tmp_path / f"rank{rank}.json").write_bytes(msgspec.json.encode(trace))
    code, said = said_by(["analyze", str(tmp_path)])
    assert code == 2 and "rank0.json holds its events more than once" in said and said.count("\n") == 1


def test_an_empty_file_is_said_to_be_and_a_whatif_says_why_it_has_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").touch()
    code, said = said_by(["analyze", str(tmp_path)])
    assert code == 2 and "rank0.json is no Kineto trace: it is empty" in said
    folder = rewritten(tmp_path / "x", ("kernel", "gpu_memcpy", "gpu_memset"))
    code, said = said_by(["whatif", str(folder)])
    assert code == 2 and "is not replayed: rank 0: rank0.json: the job ran on a device" in said
