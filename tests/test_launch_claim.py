"""A run folder is one job's at a time: a second one that goes on with it is told so, and doubles nothing."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from scalescope.cli import sweep
from scalescope.launch import claim as claims
from scalescope.launch.claim import claim, release
from scalescope.launch.compose import compose_job
from scalescope.launch.freeze import Plan, plan_job
from scalescope.records.errors import UserError

HOLD = (
    "import sys, time, pathlib; from scalescope.launch.claim import claim\n"
    "claim(pathlib.Path(sys.argv[1])); print(1, flush=True); time.sleep(60)"
)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    words = ["launch.device=cpu", "launch.ranks=2", f"runs={tmp_path}", "name=one"]
    return plan_job(sweep.verb(), compose_job("sweep", words))


def test_a_folder_that_another_process_writes_is_refused_until_that_is_gone(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_PATIENCE_S", 0.3)
    folder = plan.make_folder()
    release(folder.path)
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(folder.path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "1\n"
    before = folder.read_info()
    with pytest.raises(UserError, match="another job is writing"):
        replace(plan, resume=True).make_folder()
    assert folder.read_info() == before, "what the other job says of itself stays"
    other.kill()
    other.wait()
    replace(plan, resume=True).make_folder()
    release(folder.path)


def test_a_job_that_is_just_going_is_waited_for(plan: Plan) -> None:
    folder = plan.make_folder()
    release(folder.path)
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(folder.path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "1\n"
    since = time.monotonic()
    subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {other.pid}"])
    claim(folder.path)
    assert 0.3 < time.monotonic() - since < 4
    other.wait()
    release(folder.path)


def test_the_same_process_may_ask_again_and_a_place_without_locks_keeps_nobody_out(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plan.make_folder()
    claim(folder.path)
    release(folder.path)
    claim(tmp_path / "nowhere")

    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    claim(folder.path)
    release(folder.path)
