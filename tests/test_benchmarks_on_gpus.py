"""The benchmarks for GPUs are run one by one, each once, as far as the time goes; their commands are such as exist."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope.cli import sweep, train
from scalescope.launch.compose import compose_job, typed
from scalescope.launch.config import register
from scalescope.launch.studies.outline import outline_study
from scalescope.launch.studies.run import plan_study
from scalescope.scorecard import config as scorecard_config
from scalescope.scorecard.config import ScorecardConfig
from scalescope.train import checks

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import on_gpus  # noqa: E402 - the folder is no package
from on_gpus import PIECES, Piece, run, side_by_side  # noqa: E402

ARGV: dict[str, object] = {
    "gpus": 2, "counts": "[1,2]", "ends": "[1,2]", "several": "[2]", "groups": "2",
    "nccl_tests": "build", "mpi_tests": "", "mpirun": "mpirun", "nccl_library": "libnccl.so.2", "nanogpt": None,
    "root": "",
}  # fmt: skip


def say(name: str, argv: str, seconds: float = 1.0, one_gpu: bool = False, least_gpus: int = 1) -> Piece:
    return Piece(name, f"{sys.executable} -c '{argv}'", seconds, one_gpu, least_gpus)


def test_what_ran_is_not_run_again_and_what_does_not_fit_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces = [say("one", "print(1)"), say("two", "raise SystemExit(3)"), say("long", "print(3)", seconds=100)]
    assert run(pieces, ARGV, tmp_path, limit_s=50) == 1
    said = capsys.readouterr().out
    assert "one: exit code 0" in said and "two: exit code 3" in said and "long: left for another call" in said
    assert (tmp_path / "one.log").read_text() == "1\n"
    assert run(pieces, ARGV, tmp_path, limit_s=200) == 0
    assert capsys.readouterr().out.startswith("long: exit code 0")


def test_pieces_for_one_gpu_each_have_their_own(tmp_path: Path) -> None:
    see = 'import os; print(os.environ["CUDA_VISIBLE_DEVICES"])'
    pieces = [say(name, see, one_gpu=True) for name in "abc"]
    assert [len(group) for group in side_by_side([*pieces, say("all", see)], gpus=2)] == [1, 2, 1]
    assert run(pieces, ARGV, tmp_path, limit_s=50) == 0
    assert [(tmp_path / f"{name}.log").read_text() for name in "abc"] == ["0\n", "1\n", "0\n"]


@pytest.mark.job
def test_a_piece_that_hangs_is_ended_with_all_below_it_and_begun_anew_where_only_the_minutes_were_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank below it is stopped, and its folder is there, as after a hang."""
    leave = f"from pathlib import Path; Path({str(tmp_path)!r}, name, str(time.time())).parent.mkdir()"
    hang = (
        "import os, signal, subprocess, sys, time; name = sys.argv[1]; " + leave + "; "
        'rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True); '
        "print(rank.pid, flush=True); os.kill(rank.pid, signal.SIGSTOP); time.sleep(600)"
    )
    code = tmp_path / "hang.py"
    code.write_text(hang)
    pieces = [Piece("hangs", f"{sys.executable} {code} hangs", 3)]
    assert run(pieces, ARGV, tmp_path, limit_s=4) == 1
    assert "hangs: ended with the minutes; the next call begins it anew" in capsys.readouterr().out
    rank = Path("/proc", (tmp_path / "hangs.log").read_text().strip(), "stat")
    assert not rank.exists() or rank.read_text().rpartition(")")[2].split()[0] == "Z"  # a container's init may not reap
    assert (tmp_path / "hangs").is_dir()

    monkeypatch.setattr(on_gpus, "START_S", -2.0)
    assert run(pieces, ARGV, tmp_path, limit_s=60) == 1  # its folder has given way, or it would have failed at once
    assert "hangs: exit code ended, since it took too long" in capsys.readouterr().out
    assert run(pieces, ARGV, tmp_path, limit_s=60) == 0 and capsys.readouterr().out == ""


def test_what_needs_two_gpus_is_left_out_where_there_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = [piece for piece in PIECES if piece.least_gpus == 1]
    assert {piece.name for piece in alone} == {
        "study", "scorecard", "precisions", "images", "profiling", "logging", "gpt", "resnet",
    }  # fmt: skip
    assert run([say("pair", "print(1)", least_gpus=2)], {**ARGV, "gpus": 1}, tmp_path, limit_s=50) == 0
    assert capsys.readouterr().out == "pair: left out, it needs 2 GPUs\n"


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.name)
def test_no_path_leads_through_a_folder_that_may_not_be_there(piece: Piece) -> None:
    assert "/../" not in piece.command


def test_a_piece_without_what_it_needs_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([Piece("gpt", "never {nanogpt}", 1)], ARGV, tmp_path, limit_s=50) == 0
    assert capsys.readouterr().out == "gpt: left out, no --nanogpt\n"


@pytest.mark.job
@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.name)
def test_every_command_is_one_that_there_is(piece: Piece, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options are known to the script that it names, and its settings to the verb's config."""
    monkeypatch.setattr(checks, "usable_cores", lambda: 10_000)  # as fast as the GPUs that the command is for
    argv = shlex.split(piece.command.format(out=tmp_path / piece.name, **{**ARGV, "nanogpt": "checkout"}))
    scripts = [word for word in argv if word.endswith(".py") and "benchmarks" in word]
    if scripts:
        known = subprocess.run(
            [sys.executable, scripts[0], "--help"], capture_output=True, text=True, timeout=200, check=True
        ).stdout
        options = [word.partition("=")[0] for word in argv[argv.index(scripts[0]) :] if word.startswith("--")]
        assert all(option in known for option in options), known
    else:
        verb, *rest = argv[argv.index("scalescope") + 1 :]
        register()
        if verb == "study":
            assert plan_study(outline_study(rest, train.verb(), sweep.verb())).jobs
        else:
            scorecard_config.register()
            schemas = {"train": train.verb().schema, "sweep": sweep.verb().schema, "scorecard": ScorecardConfig}
            assert typed(compose_job(verb, rest), schemas[verb])
