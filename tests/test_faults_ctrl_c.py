"""Ctrl-C at known moments of a job's life: the processes say where they are, and wait there for the signal."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from tests.faults import FAULTS
from tests.faults_running import ENDLESS, end_of, steps_of
from tests.processes import await_that, catches, command_of, descendants, pending
from tests.train_runs import FAST, start, wait_for_rows

ROOT = Path(__file__).resolve().parent.parent

# each Python of the job loads this as it begins; `here` is called at the moment, and returns when SIGINT has come: it
# is pending where it is blocked, and ends the process, or raises in it, where it is not
AT_A_MOMENT = """
import os, pathlib, signal, sys, time
FOLDER = pathlib.Path(__file__).parent
def here():
    (FOLDER / f"rank{os.environ['RANK']}.there").touch()
    until = time.monotonic() + 120
    while signal.SIGINT not in signal.sigpending() and time.monotonic() < until:
        time.sleep(0.02)
class Loading:
    def find_spec(self, name, path=None, target=None):
        if name == MOMENT:
            sys.meta_path.remove(self)
            here()
if "RANK" in os.environ and "--frozen" in sys.orig_argv:
    here() if MOMENT == "python" else sys.meta_path.insert(0, Loading())
"""

# the launcher interrupts itself as it is about to start its second rank
BETWEEN_RANKS = """
import os, signal, sys
started = []
def look(event, arguments):
    if event == "subprocess.Popen" and "--frozen" in map(str, arguments[1]):
        started.append(event)
        if len(started) == 2:
            os.kill(os.getpid(), signal.SIGINT)
if "RANK" not in os.environ:
    sys.addaudithook(look)
"""


def begin(runs: Path, beside: str) -> "subprocess.Popen[str]":
    """Start a training job whose Pythons load `beside` as they begin."""
    (runs / "sitecustomize.py").write_text(beside)
    words = ["train", "launch.ranks=2", f"runs={runs}", "name=one", *FAST, *ENDLESS]
    return subprocess.Popen(
        [sys.executable, "-m", "scalescope", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": f"{runs}:{ROOT}"},
    )  # fmt: skip


def assert_interrupted(job: "subprocess.Popen[str]", folder: RunFolder, since: float, ranks: list[int]) -> None:
    said = end_of(FAULTS["interrupted"], job, folder, since)
    assert "Traceback" not in said and "KeyboardInterrupt" not in said, said
    logs = "".join(path.read_text() for path in folder.path.glob("logs/**/*.log"))
    assert "Traceback" not in logs, logs
    assert not (folder.path / "run.json").exists() or folder.read_info().status == "interrupted", said
    await_that(lambda: not any(command_of(rank) for rank in ranks), 10)  # what is dead and not yet buried has none


@pytest.mark.long
@pytest.mark.parametrize("moment", ["python", "torch", "scalescope.launch.run", "scalescope.train.job"])
def test_ctrl_c_while_ranks_load_ends_the_job_as_interrupted(moment: str, tmp_path: Path) -> None:
    """Before anything of ours runs, in torch's import, before a rank joins, and after."""
    job = begin(tmp_path, f"MOMENT = {moment!r}\n{AT_A_MOMENT}")
    await_that(lambda: all((tmp_path / f"rank{rank}.there").exists() for rank in (0, 1)))
    since, ranks = time.monotonic(), descendants(job.pid)
    job.send_signal(signal.SIGINT)
    assert_interrupted(job, RunFolder(tmp_path / "one"), since, ranks)


@pytest.mark.long
def test_a_signal_to_launcher_and_ranks_alike_is_no_failure(tmp_path: Path) -> None:
    """As a batch system ends a job: ranks that load die of it at once, and the launcher sees that first."""
    job = begin(tmp_path, f"MOMENT = 'torch'\n{AT_A_MOMENT}")
    await_that(lambda: all((tmp_path / f"rank{rank}.there").exists() for rank in (0, 1)))
    since, ranks = time.monotonic(), descendants(job.pid)
    for pid in (job.pid, *ranks):
        os.kill(pid, signal.SIGTERM)
    assert_interrupted(job, RunFolder(tmp_path / "one"), since, ranks)


@pytest.mark.long
def test_ctrl_c_between_the_starts_of_two_ranks_leaves_none_behind(tmp_path: Path) -> None:
    job = begin(tmp_path, BETWEEN_RANKS)
    ranks: set[int] = set()
    while job.poll() is None:
        ranks |= {pid for pid in descendants(job.pid) if b"--frozen" in command_of(pid)}
        time.sleep(0.02)
    assert_interrupted(job, RunFolder(tmp_path / "one"), time.monotonic(), list(ranks))


@pytest.mark.long
def test_ctrl_c_while_it_composes_ends_the_job(tmp_path: Path) -> None:
    job = start(tmp_path, "one", 2, *ENDLESS)
    await_that(lambda: catches(job.pid, signal.SIGUSR1))
    since = time.monotonic()
    job.send_signal(signal.SIGINT)
    assert_interrupted(job, RunFolder(tmp_path / "one"), since, [])


@pytest.mark.long
def test_ctrl_c_while_it_trains_keeps_every_row(tmp_path: Path) -> None:
    job, folder = start(tmp_path, "one", 2, *ENDLESS), RunFolder(tmp_path / "one")
    wait_for_rows(folder.steps, 8)
    since, ranks = time.monotonic(), descendants(job.pid)
    job.send_signal(signal.SIGINT)
    assert_interrupted(job, folder, since, ranks)
    assert len(steps_of(folder)) >= 8 and steps_of(folder) == list(range(len(steps_of(folder))))


@pytest.mark.long
def test_a_second_ctrl_c_ends_ranks_at_once(tmp_path: Path) -> None:
    """Ranks that are stopped hear nothing: without it, torchrun's engine gives them half a minute."""
    job, folder = start(tmp_path, "one", 2, *ENDLESS), RunFolder(tmp_path / "one")
    wait_for_rows(folder.steps, 8)
    ranks = [pid for pid in descendants(job.pid) if b"--frozen" in command_of(pid)]
    for rank in ranks:
        os.kill(rank, signal.SIGSTOP)
    job.send_signal(signal.SIGINT)
    await_that(lambda: all(pending(rank, signal.SIGINT) for rank in ranks))  # its launcher has told them
    time.sleep(0.4)  # one that comes sooner may be the first once more, from a wrapper
    since = time.monotonic()
    job.send_signal(signal.SIGINT)
    said = end_of(FAULTS["interrupted_twice"], job, folder, since)
    assert folder.read_info().status == "interrupted", said
    assert not any(command_of(rank) for rank in ranks)
    assert steps_of(folder) == list(range(len(steps_of(folder))))
