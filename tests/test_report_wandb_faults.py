"""A W&B that fails, and a job that does: neither costs the other, and who is concerned is told."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scalescope.records.folder import RunFolder
from scalescope.records.rows import EndedBy, RunStatus
from scalescope.report.sinks.background import Background
from scalescope.report.sinks.wandb import WandbSink
from tests import disks
from tests.report_samples import write_run
from tests.train_runs import SMALL_GPT, ranks_of, start, train_in_world, wait_for_rows
from tests.wandb_runs import ROOT, options
from tests.wandb_transactions import find_transactions, history, read_records, summary


@pytest.mark.job
def test_a_wandb_that_cannot_be_reached_does_not_stop_the_job(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", 1)
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.report_samples import step_rows\n"
        "from scalescope.records.sink import Sinks\n"
        "from scalescope.report.sinks.wandb import WandbSink\n"
        f"options = {options(mode='online', init_timeout_s=3, finish_timeout_s=3)!r}\n"
        f"sinks = Sinks([WandbSink(**options, dir={str(folder.path)!r})])\n"
        "sinks.start({}, 'r')\n"
        "for row in step_rows(1): sinks.log(row)\n"
        "sinks.close('done'); print('the job went on')\n"
    )
    environment = {**os.environ, "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "0" * 40}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True,
                          timeout=60, check=True)  # fmt: skip
    assert "the job went on" in done.stdout
    assert "WandbSink failed and is left out from here on" in done.stderr


@pytest.mark.job
def test_a_killed_wandb_process_does_not_stop_the_job(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", 1)
    script = (
        "import os, sys, time; sys.path.insert(0, '.')\n"
        "from tests.report_samples import step_rows\n"
        "from scalescope.records.sink import Sinks\n"
        "from scalescope.report.sinks.wandb import WandbSink\n"
        f"options = {options(finish_timeout_s=2)!r}\n"
        f"sinks = Sinks([WandbSink(**options, dir={str(folder.path)!r})])\n"
        "sinks.start({}, 'r')\n"
        "print('started', flush=True); sys.stdin.readline()\n"
        "for row in step_rows(1, 100): sinks.log(row); time.sleep(0.01)\n"
        "sinks.close('done'); print('the job went on', flush=True); os._exit(0)\n"
    )
    job = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert job.stdout is not None and job.stdout.readline().strip() == "started"
    for child in children(job.pid):
        os.kill(child, signal.SIGKILL)
    out, _ = job.communicate("go\n", timeout=60)
    assert "the job went on" in out and job.returncode == 0


@pytest.mark.job
@pytest.mark.parametrize("moment", ["at the begin", "at the end"])
def test_a_frozen_wandb_process_holds_the_job_up_for_no_longer_than_it_may(moment: str, tmp_path: Path) -> None:
    """The library itself waits for it for ever, in `init` and when Python ends."""
    folder = write_run(tmp_path / "r", 1)
    script = (
        "import os, signal, sys, threading, time; from pathlib import Path\n"
        "from tests.report_samples import step_rows\n"
        "from tests.test_report_wandb_faults import children\n"
        "from scalescope.records.sink import Sinks\n"
        "from scalescope.report.sinks.wandb import WandbSink\n"
        "def services():\n"
        "    named = lambda pid: Path(f'/proc/{pid}/cmdline').read_bytes().split(bytes(1))[0]\n"
        "    return [pid for pid in children(os.getpid()) if named(pid).endswith(b'wandb-core')]\n"
        "def freeze(ended):\n"
        "    while not ended.wait(0.001):\n"
        "        if found := services(): return os.kill(found[0], signal.SIGSTOP)\n"
        f"options = {options(init_timeout_s=3, finish_timeout_s=3)!r}\n"
        f"sinks, ended = Sinks([WandbSink(**options, dir={str(folder.path)!r})]), threading.Event()\n"
        f"if {moment!r} == 'at the begin': threading.Thread(target=freeze, args=(ended,), daemon=True).start()\n"
        "began = time.monotonic(); sinks.start({}, 'r')\n"
        "for row in step_rows(1): sinks.log(row)\n"
        f"if {moment!r} == 'at the end': began = time.monotonic(); freeze(ended)\n"
        "sinks.close('done'); print(time.monotonic() - began, services(), flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
    held_s, _, left = done.stdout.partition(" ")
    assert float(held_s) < 20 and left == "[]\n"
    assert "WandbSink failed and is left out from here on (W&B" in done.stderr and "did not answer" in done.stderr
    assert "Traceback" not in done.stderr


def children(pid: int) -> list[int]:
    """Return the process's direct children, as Linux lists them."""
    return [
        int(text) for task in Path(f"/proc/{pid}/task").iterdir() for text in (task / "children").read_text().split()
    ]


def test_a_row_that_wandb_chokes_on_is_told_at_the_next_call() -> None:
    work = Background("W&B")
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise OSError("disk full")

    work.do(fail)
    assert failed.wait(5)
    time.sleep(0.05)
    with pytest.raises(OSError, match="disk full"):
        work.do(lambda: None)


def test_calls_are_done_in_bursts_and_the_end_waits_for_no_pause() -> None:
    work = Background("W&B", pause_s=60)
    first = threading.Event()
    done: list[int] = []
    work.do(first.set)
    assert first.wait(5)
    time.sleep(0.2)
    for call in range(10):
        work.do(partial(done.append, call))
    time.sleep(0.1)
    assert done == [], "what comes in a pause waits for its end"
    work.finish(5)
    assert done == list(range(10))


def test_a_stuck_service_is_given_up() -> None:
    work = Background("W&B")
    release = threading.Event()

    def stuck() -> None:
        release.wait(10)

    work.do(stuck)
    with pytest.raises(TimeoutError, match=r"did not answer within 0\.2 s"):
        work.finish(0.2)
    release.set()


@pytest.mark.job
def test_a_failed_job_sends_an_alert_and_its_small_files(tmp_path: Path) -> None:
    """A real job, from its first step to the loss that ends it."""
    overrides = ["steps=12", "profiler=none", "optimizer.learning_rate=1e30", "optimizer.gradient_clip=null"]
    folder, done = train_in_world(tmp_path, "nan", 1, *SMALL_GPT, *overrides, "logger=wandb")
    assert done.returncode != 0 and "wandb leet" in done.stdout, done.stderr
    records = list(read_records(find_transactions(folder.path)))
    assert history(records)[0]["train/step"] == 0 and summary(records)["status"] == "failed"
    (alert,) = (record.alert for record in records if record.HasField("alert"))
    assert (alert.title, alert.level) == ("Failed: nan", "ERROR") and "the loss is nan at step" in alert.text
    (artifact,) = (record.artifact for record in records if record.artifact.type == "run-files")
    files = {entry.path: Path(entry.local_path) for entry in artifact.manifest.contents if entry.digest}
    assert files.keys() == {"run.json", "config.yaml", "facts.json", "steps.jsonl"}
    assert json.loads(files["run.json"].read_text())["status"] == "failed", "the folder as it stood at the end"
    assert files["steps.jsonl"].read_text() == folder.steps.read_text()


@pytest.mark.parametrize(
    ("status", "ended_by", "title"),
    [
        ("failed", "hang", "Hang: r"),
        ("failed", "lost_rank", "Lost rank: r"),
        ("failed", None, "Failed: r"),
        ("interrupted", None, "Interrupted: r"),
        ("done", None, None),
        ("preempted", None, None),
    ],
)
def test_the_alert_says_what_ended_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: RunStatus, ended_by: EndedBy | None, title: str | None
) -> None:
    folder = write_run(tmp_path / "r", 1)
    message = "has died, timed out, hangs: words that nobody reads"
    folder.set_status(status, message, ended_by)
    sent: list[dict[str, str]] = []

    class Run:
        dir = str(tmp_path / "r/files")
        summary: dict[str, Any] = {}

        def alert(self, **alert: str) -> None:
            sent.append(alert)

        def finish(self, exit_code: int) -> None: ...

    sink = WandbSink(**options(), dir=str(folder.path))
    sink._run, sink._background = Run(), Background("W&B")
    monkeypatch.setattr("wandb.teardown", lambda: None)
    sink.close(status)
    assert [(alert["title"], alert["text"]) for alert in sent] == ([(title, message)] if title else [])


@pytest.mark.job
def test_a_job_whose_rank_0_is_killed_is_ended_and_told_by_who_started_it(tmp_path: Path) -> None:
    """Rank 0 holds the sink; the command that started it sends what it no longer can."""
    overrides = ["steps=100000", "profiler=none", "logger=wandb", "checkpoint_every=null"]
    job = start(tmp_path, "killed", 2, *SMALL_GPT, *overrides)
    folder = RunFolder(tmp_path / "killed")
    wait_for_rows(folder.steps, 3)
    os.kill(ranks_of(job)[0], signal.SIGKILL)
    _, said = job.communicate(timeout=100)
    assert job.returncode == 3 and folder.read_info().status == "failed", said
    files = sorted((folder.path / "wandb").glob("offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime)
    assert len({path.name for path in files}) == 1, "the same W&B run goes on"
    records = list(read_records(files[-1]))
    (alert,) = (record.alert for record in records if record.HasField("alert"))
    assert "rank 0" in alert.text and alert.level == "ERROR"
    assert summary(records)["status"] == "failed"
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [1]


@pytest.mark.job
def test_a_full_disk_under_wandb_does_not_stop_the_job(tmp_path: Path) -> None:
    """W&B writes to a disk that is full; the run folder, on another, has every row."""
    folder = write_run(tmp_path / "r", 1)
    full = folder.path / "wandb"
    full.mkdir()
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "from pathlib import Path\n"
        "from scalescope.records.folder import RunFolder\n"
        "from scalescope.records.sink import Sinks\n"
        "from scalescope.report.sinks.wandb import WandbSink\n"
        "from tests.report_samples import step_rows\n"
        f"folder = RunFolder(Path({str(folder.path)!r})); folder.steps.unlink()\n"
        f"sinks = Sinks([WandbSink(**{options(finish_timeout_s=3)!r}, dir=str(folder.path))])\n"
        "sinks.start({}, 'r')\n"
        "with folder.step_writer() as rows:\n"
        "    for row in step_rows(1, 3000): rows.append(row); sinks.log(row)\n"
        "sinks.artifact(folder.path); sinks.close('done')\n"
        "print('the job went on', flush=True)\n"
    )
    with disks.mounted(full, "256k") as small:
        if not small:
            pytest.skip(disks.NONE)
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=100,
                              check=False)  # fmt: skip
        assert shutil.disk_usage(full).free < 20_000, "the disk was really full"
        assert done.returncode == 0 and "the job went on" in done.stdout, done.stderr
        assert len(folder.read_steps()) == 3000
        assert "the disk of" in done.stderr and "is full" in done.stderr


def test_a_job_that_leaves_at_once_has_everything_on_disk(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", 1)
    script = (
        "import os, sys; sys.path.insert(0, '.')\n"
        "from tests.report_samples import step_rows\n"
        "from scalescope.report.sinks.wandb import WandbSink\n"
        f"sink = WandbSink(**{options()!r}, dir={str(folder.path)!r})\n"
        "sink.start({}, 'r')\n"
        "for row in step_rows(1): sink.log(row)\n"
        "sink.close('failed'); os._exit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    line = next(line for line in done.stdout.splitlines() if "wandb sync" in line)
    offline = find_transactions(folder.path).parent
    assert "`wandb leet`" in line and line.count(str(offline)) == 1
    assert done.returncode == 3 and "wandb:" not in done.stdout + done.stderr
    records = list(read_records(find_transactions(folder.path)))
    assert len(history(records)) == 40 and summary(records)["status"] == "failed"
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [1]
