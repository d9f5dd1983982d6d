"""Faults in the middle of training: killed, stopped and hanging ranks, restarts, and what the job then keeps."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scalescope.records.errors import ExitCode
from scalescope.records.folder import RunFolder
from tests.collectives_runs import finish, process_of
from tests.faults import FAULTS
from tests.faults_running import BIN, ENDLESS, SHORT, STOPPED_AT_END, Running, begin, end_of, hurt, steps_of
from tests.processes import await_that, catches, command_of, descendants
from tests.train_runs import FAST, SMALL_GPT, start, train, wait_for, wait_for_rows


@pytest.fixture
def running(tmp_path: Path) -> tuple[subprocess.Popen[str], RunFolder]:
    """A training job of two ranks that has written rows."""
    job = start(tmp_path, "one", 2, *ENDLESS)
    wait_for_rows(tmp_path / "one" / "steps.jsonl", 8)
    return job, RunFolder(tmp_path / "one")


@pytest.mark.long
def test_ranks_whose_launcher_is_killed_end(running: Running) -> None:
    job, folder = running
    ranks = [process_of(job, rank) for rank in (0, 1)]
    since = time.monotonic()
    job.kill()
    fault = FAULTS["launcher_killed"]
    while any(Path(f"/proc/{rank}").exists() for rank in ranks):
        assert time.monotonic() < since + fault.within_s, "ranks stay behind"
        time.sleep(0.1)
    end_of(fault, job, folder, since)
    assert folder.read_info().status == "failed" and len(steps_of(folder)) >= 8


@pytest.mark.long
def test_a_rank_stopped_at_its_end_is_ended(tmp_path: Path) -> None:
    job = begin(tmp_path, STOPPED_AT_END.format(variable="RANK"), *SHORT)
    await_that((tmp_path / "stopped").exists)
    folder = RunFolder(tmp_path / "one")
    end_of(FAULTS["stopped_at_end"], job, folder, time.monotonic())
    assert folder.read_info().status == "done" and steps_of(folder) == list(range(12))


@pytest.mark.job
def test_a_rank_stopped_in_mid_step_is_named(running: Running) -> None:
    job, folder = running
    stopped = process_of(job, 1)
    said = end_of(FAULTS["stopped_in_step"], job, folder, hurt(job, 1, signal.SIGSTOP))
    assert f"rank 1 (process {stopped} on {socket.gethostname()}) is stopped" in said and "rank 0 arrived" in said
    assert folder.read_info().status == "failed"
    assert len(steps_of(folder)) >= 8 and steps_of(folder) == list(range(len(steps_of(folder))))
    assert "train_step" in (folder.logs / "rank0.hang.txt").read_text()
    assert not Path(f"/proc/{stopped}").exists(), "a stopped rank does not stay behind"
    analysed = subprocess.run(
        [sys.executable, "-m", "scalescope", "analyze", str(folder.path)], capture_output=True, text=True, check=False
    )
    assert "Flight record: " in analysed.stdout and "all_reduce of" in analysed.stdout, analysed.stderr
    assert "train/strategies/base.py" in analysed.stdout, "the line that called it"


@pytest.mark.long
def test_a_rank_killed_in_mid_step(running: Running) -> None:
    job, folder = running
    killed = process_of(job, 1)
    said = end_of(FAULTS["killed_in_step"], job, folder, hurt(job, 1, signal.SIGKILL))
    assert f"rank 1 (process {killed} on {socket.gethostname()}) has died" in said
    assert folder.read_info().status == "failed"
    assert len(steps_of(folder)) >= 8 and steps_of(folder) == list(range(len(steps_of(folder))))
    assert (folder.flight_recorder / "rank0.pickle").stat().st_size > 0


@pytest.mark.long
def test_a_killed_rank_is_started_again_and_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    argv = (
        *SMALL_GPT,
        "data=python_stdlib",
        "profiler=none",
        "warmup_steps=2",
        "steps=120",
        "checkpoint_every=20",
    )
    undisturbed, done = train(tmp_path, "undisturbed", 2, *argv)
    assert done.returncode == 0, done.stderr
    job, folder = start(tmp_path, "one", 2, *argv, "launch.max_restarts=1"), RunFolder(tmp_path / "one")
    wait_for(folder.checkpoints / "step-40")
    end_of(FAULTS["restarted"], job, folder, hurt(job, 1, signal.SIGKILL))
    rows = folder.read_steps()
    assert folder.read_info().status == "done" and folder.read_info().message is None
    assert [row.step for row in rows] == list(range(120)) and {row.attempt for row in rows} == {0, 1}
    assert [row.loss for row in rows] == [row.loss for row in undisturbed.read_steps()]


@pytest.mark.long
def test_torchruns_own_restart_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    torchrun = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2", "--max-restarts=1", "-m", "scalescope"]
    argv = (*FAST, *SMALL_GPT, "data=python_stdlib", "profiler=none", "warmup_steps=2", "steps=120")
    job = subprocess.Popen([*torchrun, "train", f"runs={tmp_path}", *argv, "checkpoint_every=20"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    await_that(lambda: any(tmp_path.glob("*/checkpoints/step-40")))
    hurt(job, 1, signal.SIGKILL)
    out, err = job.communicate(timeout=100)
    (path,) = tmp_path.iterdir()
    assert job.returncode == 0, err + out
    assert steps_of(RunFolder(path)) == list(range(120)) and RunFolder(path).read_info().attempt == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "moment", ["while it composes", "as the ranks begin", "while the ranks load", "while it trains"]
)
def test_a_request_to_stop_is_obeyed_whenever_it_comes(moment: str, tmp_path: Path) -> None:
    job, folder = start(tmp_path, "one", 2, *ENDLESS), RunFolder(tmp_path / "one")
    if moment == "while it composes":
        await_that(lambda: catches(job.pid, signal.SIGUSR1))  # Python itself has loaded
    elif moment == "while it trains":
        wait_for_rows(folder.steps, 8)
    else:
        await_that(lambda: any(b"--frozen" in command_of(pid) for pid in descendants(job.pid)))
        time.sleep(0.5 if moment == "while the ranks load" else 0)
    since = time.monotonic()
    job.send_signal(signal.SIGUSR1)
    end_of(FAULTS["preempted"], job, folder, since)
    assert folder.read_info().status == "preempted"
    assert (folder.checkpoints / f"step-{len(steps_of(folder))}").is_dir()


@pytest.mark.long
def test_a_rank_0_that_is_killed_with_the_store_it_serves_is_named(tmp_path: Path) -> None:
    """Ranks that no launcher looks after, as somebody's own script starts them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [sys.executable, "-m", "scalescope", "train", f"runs={tmp_path}", "name=one", *FAST, *ENDLESS]
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(argv, env={**os.environ, **world, "RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE,
                         text=True)
        for rank in ("0", "1")
    ]  # fmt: skip
    folder = RunFolder(tmp_path / "one")
    wait_for_rows(folder.steps, 8)
    ranks[0].kill()
    ranks[0].communicate()
    _, said = ranks[1].communicate(timeout=60)
    info = folder.read_info()
    assert (ranks[1].returncode, info.status, info.ended_by) == (ExitCode.RUN_FAILED, "failed", "lost_rank"), said
    assert (info.message or "").startswith(f"rank 0 (process {ranks[0].pid} on {socket.gethostname()}) has died"), said
    assert len(steps_of(folder)) >= 8 and steps_of(folder) == list(range(len(steps_of(folder))))


@pytest.mark.long
def test_a_rank_that_hangs_in_its_own_code_is_told_from_those_that_wait_for_it(tmp_path: Path) -> None:
    """Its process lives and gives signs of life: the places tell, since no collective does."""
    tokens = tmp_path / "data.bin"
    tokens.write_bytes(b"".join(number.to_bytes(2, "little") for number in range(256)) * 2048)
    hang = tmp_path / "sitecustomize.py"  # the data set hangs on rank 1 from the fortieth batch on
    hang.write_text(
        "import os, sys, threading\n"
        "if os.environ.get('RANK') == '1':\n"
        "    import scalescope.train.loader as loader\n"
        "    inner, count = loader.split_tokens, [0]\n"
        "    def split(rows):\n"
        "        count[0] += 1\n"
        "        if count[0] == 40:\n"
        "            threading.Event().wait()\n"
        "        return inner(rows)\n"
        "    loader.split_tokens = split\n"
    )
    checkout = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{checkout}"}
    argv = [sys.executable, "-m", "scalescope", "train", "launch.ranks=2", f"runs={tmp_path}", "name=one", *FAST]
    data = ("data=tokens", f"data.path={tokens}", "data.validation_samples=0")
    job = subprocess.Popen([*argv, *ENDLESS, *data], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True)  # fmt: skip
    code, said = finish(job, within_s=90)
    message = RunFolder(tmp_path / "one").read_info().message or ""
    assert code == ExitCode.RUN_FAILED, said
    assert "rank 1 did not arrive: at loading the batch of step 39" in message and "rank 0 arrived" in message
    assert "sitecustomize" in (tmp_path / "one/logs/rank1.hang.txt").read_text(), "its stack says where it hangs"
    kept = steps_of(RunFolder(tmp_path / "one"))  # rows are exchanged every few steps, with both ranks' times
    assert len(kept) >= 20 and kept == list(range(len(kept)))
