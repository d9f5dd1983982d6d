"""Faults made from outside, by signals, mounts and ports: what the job's end looks like, how soon, and what is left."""

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
from tests.collectives_runs import await_rows, finish, process_of, rows_of
from tests.collectives_runs import start as start_sweep
from tests.faults import FAULTS, PAGE, Fault, page_with_table
from tests.processes import await_that, catches, command_of, descendants, environment_of
from tests.train_runs import FAST, SMALL_GPT, ranks_of, start, train, wait_for, wait_for_rows

BIN = Path(sys.executable).parent
ENDLESS = (*SMALL_GPT, "data=python_stdlib", "profiler=none", "warmup_steps=2", "steps=100000", "launch.step_limit_s=3")

long = pytest.mark.long


def end_of(fault: Fault, job: subprocess.Popen[str], folder: RunFolder, since: float) -> str:
    """Await a job's end and assert what every fault's has in common; returns what run.json and the command said."""
    try:
        out, err = job.communicate(timeout=fault.within_s + 60)
    finally:
        if job.poll() is None:
            job.kill()
    elapsed_s = time.monotonic() - since
    message = (folder.read_info().message or "") if (folder.path / "run.json").is_file() else ""
    said = f"{message}\n{err}{out}"
    assert job.returncode == fault.exit_code, said
    assert elapsed_s < fault.within_s, f"{elapsed_s:.0f} s\n{said}"
    assert fault.says in said
    return said


def steps_of(folder: RunFolder) -> list[int]:
    return [row.step for row in folder.read_steps()]


def hurt(job: subprocess.Popen[str], rank: int, number: signal.Signals) -> float:
    """Send a rank of a running job a signal, and return when."""
    os.kill(process_of(job, rank), number)
    return time.monotonic()


def while_loading(job: subprocess.Popen[str], rank: int, number: signal.Signals) -> float:
    """Send a rank a signal as soon as there is a process of it, seconds before it can join the others."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            return hurt(job, rank, number)
        except AssertionError:
            time.sleep(0.02)
    raise TimeoutError("the ranks never began")


@pytest.fixture
def running(tmp_path: Path) -> tuple[subprocess.Popen[str], RunFolder]:
    """A training job of two ranks that has written rows."""
    job = start(tmp_path, "one", 2, *ENDLESS)
    wait_for_rows(tmp_path / "one" / "steps.jsonl", 8)
    return job, RunFolder(tmp_path / "one")


Running = tuple[subprocess.Popen[str], RunFolder]


def test_the_page_shows_what_the_tests_assert() -> None:
    page = PAGE.read_text()
    assert page == page_with_table(page), "python tests/faults.py writes it anew"
    assert len(FAULTS) >= 40
    for fault in FAULTS.values():
        file, _, name = fault.proven_by.partition("::")
        assert f"def {name}(" in (PAGE.parent.parent / file).read_text(), fault.proven_by


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


@long
def test_a_rank_killed_before_it_joins(tmp_path: Path) -> None:
    job, folder = start(tmp_path, "one", 2, *ENDLESS), RunFolder(tmp_path / "one")
    end_of(FAULTS["killed_before_init"], job, folder, while_loading(job, 1, signal.SIGKILL))
    assert folder.read_info().status == "failed"


@long
def test_a_rank_stopped_before_it_joins(tmp_path: Path) -> None:
    job, folder = start(tmp_path, "one", 2, *ENDLESS, "launch.init_limit_s=8"), RunFolder(tmp_path / "one")
    end_of(FAULTS["stopped_before_init"], job, folder, while_loading(job, 1, signal.SIGSTOP))
    assert (folder.read_info().status, folder.read_info().world_size) == ("failed", 2)
    assert (folder.logs / "rank0.hang.txt").stat().st_size > 0


@long
def test_a_rank_0_stopped_before_there_is_a_folder_is_named(tmp_path: Path) -> None:
    """Inside a world that somebody else made, rank 0 composes the config, and the others wait for it."""
    torchrun = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2", "-m", "scalescope", "train"]
    job = subprocess.Popen([*torchrun, f"runs={tmp_path}", *FAST, *ENDLESS, "launch.init_limit_s=8"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    since = while_loading(job, 0, signal.SIGSTOP)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 1 and time.monotonic() - since < 40, said
    assert "joining the job did not return within 8 s; rank 0 never joined" in said
    assert list(tmp_path.iterdir()) == []


@long
def test_a_rank_killed_in_mid_step(running: Running) -> None:
    job, folder = running
    killed = process_of(job, 1)
    said = end_of(FAULTS["killed_in_step"], job, folder, hurt(job, 1, signal.SIGKILL))
    assert f"rank 1 (process {killed} on {socket.gethostname()}) has died" in said
    assert folder.read_info().status == "failed"
    assert len(steps_of(folder)) >= 8 and steps_of(folder) == list(range(len(steps_of(folder))))
    assert (folder.flight_recorder / "rank0.pickle").stat().st_size > 0


@pytest.fixture
def sweeping(tmp_path: Path) -> tuple[subprocess.Popen[str], RunFolder]:
    """A sweep of two ranks that has written a row and is inside all-reduces of 64 MiB for long."""
    job = start_sweep(tmp_path, "one", 2, "sizes=[8B,64MiB]", "budget_s=20", "min_iterations=1000")
    await_rows(job, tmp_path, "one", least=1)
    time.sleep(2)  # the second point is at work, and has been for long
    return job, RunFolder(tmp_path / "one")


def assert_first_row_alone_is_kept(folder: RunFolder) -> None:
    assert [(row.bytes, row.status) for row in rows_of(folder.path.parent, folder.path.name)] == [(8, "measured")]


@long
def test_a_rank_killed_in_a_collective(sweeping: Running) -> None:
    job, folder = sweeping
    end_of(FAULTS["killed_in_collective"], job, folder, hurt(job, 1, signal.SIGKILL))
    assert_first_row_alone_is_kept(folder)
    assert folder.read_info().status == "failed"


@long
def test_a_launchers_sigterm_that_follows_a_death_does_not_hide_it(sweeping: Running) -> None:
    """A launcher ends the ranks that are left as soon as it sees one die: sooner than these have said why."""
    job, folder = sweeping
    survivor = process_of(job, 0)
    since = hurt(job, 1, signal.SIGKILL)
    os.kill(survivor, signal.SIGTERM)
    end_of(FAULTS["killed_in_collective"], job, folder, since)
    assert folder.read_info().status == "failed"


@long
def test_a_sweep_that_is_asked_to_end_in_a_collective(sweeping: Running) -> None:
    job, folder = sweeping
    ranks = [process_of(job, rank) for rank in (0, 1)]
    since = time.monotonic()
    job.send_signal(signal.SIGTERM)
    end_of(FAULTS["terminated_in_collective"], job, folder, since)
    assert_first_row_alone_is_kept(folder)
    assert folder.read_info().status == "interrupted"
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)


@long
def test_a_rank_stopped_outside_the_group_at_work_is_named(tmp_path: Path) -> None:
    """Nobody in that group waits for it, and the group goes on for longer than this may take."""
    axes = ("sizes=[8B,64MiB]", "group_sizes=[2,3]", "budget_s=60", "min_iterations=3000", "hang_limit_s=2")
    job, folder = start_sweep(tmp_path, "one", 3, *axes), RunFolder(tmp_path / "one")
    await_rows(job, tmp_path, "one", least=1)
    bystander = process_of(job, 2)
    said = end_of(FAULTS["stopped_outside_group"], job, folder, hurt(job, 2, signal.SIGSTOP))
    assert f"rank 2 (process {bystander} on {socket.gethostname()}) is stopped" in said
    assert "waiting for the turn of ranks [0, 1]" in said and "every rank arrived" not in said
    assert_first_row_alone_is_kept(folder)
    assert not Path(f"/proc/{bystander}").exists(), "a stopped rank does not stay behind"


def mpirun() -> str:
    return str(BIN / "mpirun")


needs_mpirun = pytest.mark.skipif(
    not (BIN / "mpirun").exists(), reason="no MPICH beside this Python: pip install mpich"
)


@long
@needs_mpirun
def test_a_stopped_rank_0_that_serves_the_store(tmp_path: Path) -> None:
    argv = [mpirun(), "-n", "2", str(BIN / "scalescope"), "train", f"runs={tmp_path}", "name=one", *FAST, *ENDLESS]
    job = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    folder = RunFolder(tmp_path / "one")
    wait_for_rows(folder.steps, 8)
    (rank0,) = [pid for pid in descendants(job.pid) if b"PMI_RANK=0" in environment_of(pid)]
    os.kill(rank0, signal.SIGSTOP)
    end_of(FAULTS["rank0_stopped"], job, folder, time.monotonic())
    assert folder.read_info().status == "failed" and len(steps_of(folder)) >= 8
    assert not Path(f"/proc/{rank0}").exists()


@long
@needs_mpirun
def test_a_rank_that_is_interrupted_while_mpi_brings_the_ranks_together_ends(tmp_path: Path) -> None:
    """At a usual exit, MPI would wait for the other rank, which waits for this one."""
    late = "import os, pathlib, time\nwhile os.environ.get('PMI_RANK') == '1' and not pathlib.Path('go').exists():\n"
    (tmp_path / "sitecustomize.py").write_text(f"{late}    time.sleep(0.05)\n")
    argv = [mpirun(), "-n", "2", str(BIN / "scalescope"), "train", f"runs={tmp_path}", "name=one", *FAST, *ENDLESS]
    job = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                           env={**os.environ, "PYTHONPATH": str(tmp_path)})  # fmt: skip

    def meeting() -> list[int]:
        ranks = [pid for pid in descendants(job.pid) if b"PMI_RANK=0" in environment_of(pid)]
        return [pid for pid in ranks if "libmpi" in Path(f"/proc/{pid}/maps").read_text()]

    await_that(lambda: bool(meeting()))
    time.sleep(0.5)  # the library is there: it waits
    os.kill(meeting()[0], signal.SIGINT)
    (tmp_path / "go").touch()
    _, said = job.communicate(timeout=100)
    assert job.returncode == ExitCode.RUN_FAILED and "scalescope: interrupted" in said, said


@long
@needs_mpirun
def test_ranks_do_not_wait_for_one_that_ends_before_it_comes_to_mpi(tmp_path: Path) -> None:
    """MPICH's mpirun waits with them, as long as no rank has died by a signal."""
    (tmp_path / "sitecustomize.py").write_text("import os\nif os.environ.get('PMI_RANK') == '1': os._exit(3)\n")
    argv = [mpirun(), "-n", "2", str(BIN / "scalescope"), "train", f"runs={tmp_path}", "name=one", *FAST, *ENDLESS]
    job = subprocess.run([*argv, "launch.init_limit_s=8"], capture_output=True, text=True, timeout=100, check=False,
                         env={**os.environ, "PYTHONPATH": str(tmp_path)})  # fmt: skip
    assert job.returncode != 0 and "in _mpi_master" in job.stderr, job.stderr
    assert not (tmp_path / "one").exists()


@long
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


@long
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


@long
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


@long
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


@long
def test_a_launcher_that_is_ended_before_it_has_ranks_says_so_in_run_json(tmp_path: Path) -> None:
    job, folder = start(tmp_path, "one", 2, *ENDLESS), RunFolder(tmp_path / "one")
    wait_for(folder.path / "run.json")
    job.send_signal(signal.SIGTERM)
    _, said = job.communicate(timeout=60)
    assert (job.returncode, folder.read_info().status) == (ExitCode.RUN_FAILED, "interrupted"), said
    assert folder.read_info().message == "stopped by SIGTERM" and "Traceback" not in said


@long
def test_ranks_whose_launcher_is_killed_while_they_load_end(tmp_path: Path) -> None:
    """Nothing answers at the address where they were to meet; they would try until launch.init_limit_s is over."""
    job, folder = start(tmp_path, "one", 2, *ENDLESS), RunFolder(tmp_path / "one")
    await_that(lambda: len(ranks := ranks_of(job)) == 2 and all(b"--frozen" in command_of(rank) for rank in ranks))
    ranks = ranks_of(job)
    job.kill()
    await_that(lambda: not any(Path(f"/proc/{rank}").exists() for rank in ranks))
    info = folder.read_info()
    assert info.status == "failed" and "the launcher died while rank" in (info.message or "")


@long
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


@long
def test_a_job_that_nohup_keeps_outlives_its_terminal(tmp_path: Path) -> None:
    argv = (*SMALL_GPT, "data=python_stdlib", "profiler=none", "warmup_steps=2", "steps=100")
    command = ["nohup", sys.executable, "-m", "scalescope", "train", "launch.ranks=2", f"runs={tmp_path}", "name=one"]
    job = subprocess.Popen([*command, *FAST, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           start_new_session=True)  # fmt: skip
    wait_for_rows(tmp_path / "one" / "steps.jsonl", 1)
    os.killpg(job.pid, signal.SIGHUP)
    _, said = job.communicate(timeout=100)
    assert (job.returncode, RunFolder(tmp_path / "one").read_info().status) == (0, "done"), said


@long
def test_a_full_disk_ends_a_job_with_whole_rows(small_disk: Path) -> None:
    job, folder = start(small_disk, "one", 2, *ENDLESS), RunFolder(small_disk / "one")
    wait_for_rows(folder.steps, 8)
    with (small_disk / "somebody-elses").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 4096)
    end_of(FAULTS["disk_full"], job, folder, time.monotonic())
    assert len(steps_of(folder)) >= 8 and steps_of(folder) == list(range(len(steps_of(folder))))


@long
@needs_mpirun
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        argv = [
            "-env",
            "MASTER_ADDR",
            "127.0.0.1",
            "-env",
            "MASTER_PORT",
            str(port),
            str(BIN / "scalescope"),
            "train",
        ]
        job = subprocess.Popen([mpirun(), "-n", "2", *argv, f"runs={tmp_path}", "name=one", *FAST, *ENDLESS],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        said = end_of(FAULTS["port_taken"], job, RunFolder(tmp_path / "one"), time.monotonic())
    assert f"port {port} of this host" in said and "set MASTER_PORT to a free one" in said
    assert list(tmp_path.iterdir()) == []


@long
def test_an_unreachable_wandb_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    argv = (*SMALL_GPT, "data=python_stdlib", "profiler=none", "warmup_steps=2", "steps=30", "logger=wandb")
    limits = ("logger.wandb.mode=online", "logger.wandb.init_timeout_s=5", "logger.wandb.finish_timeout_s=5")
    since = time.monotonic()
    job, folder = start(tmp_path, "one", 2, *argv, *limits), RunFolder(tmp_path / "one")
    said = end_of(FAULTS["wandb_unreachable"], job, folder, since)
    assert folder.read_info().status == "done" and steps_of(folder) == list(range(30))
    assert "WandbSink failed and is left out" in said


@long
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
