"""Two jobs that go on with the same run at once: real ones, started together."""

import signal
import time
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from tests.faults import FAULTS
from tests.faults_running import ENDLESS, steps_of
from tests.processes import await_that
from tests.train_runs import start, wait_for_rows


@pytest.mark.long
def test_of_two_jobs_that_go_on_with_the_same_run_one_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "one")
    first = start(tmp_path, "one", 1, *ENDLESS)
    wait_for_rows(folder.steps, 4)
    first.send_signal(signal.SIGUSR1)
    assert first.communicate(timeout=120) and first.returncode == 75
    saved = len(steps_of(folder))

    since = time.monotonic()
    both = [start(tmp_path, "one", 1, *ENDLESS, "resume=true") for _ in range(2)]
    await_that(lambda: any(job.poll() is not None for job in both))  # the other one would go on for ever
    refused, other = sorted(both, key=lambda job: job.poll() is None)
    _, said = refused.communicate(timeout=10)
    assert refused.returncode == FAULTS["two_at_once"].exit_code and FAULTS["two_at_once"].says in said, said
    assert time.monotonic() - since < FAULTS["two_at_once"].within_s
    wait_for_rows(folder.steps, saved + 4)
    other.send_signal(signal.SIGUSR1)
    _, said = other.communicate(timeout=120)
    assert other.returncode == 75, said

    rows = folder.read_steps()
    assert [row.step for row in rows] == list(range(len(rows))) and len(rows) >= saved + 4
    lines = folder.steps.read_text().splitlines()
    assert len(lines) == len(rows), "no row is written twice, not even by another attempt"
    assert folder.read_info().status == "preempted" and folder.read_info().message is not None
