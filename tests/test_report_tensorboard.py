"""TensorBoard shows a run's scalars, and torch-tb-profiler every rank's trace, from the run folder as it is."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scalescope.records.folder import RunFolder
from scalescope.report.sinks.tensorboard import TensorBoardSink
from tests.report_samples import step_rows, sweep_rows, write_run

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data" / "cpu_ddp_n2"


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = write_run(tmp_path_factory.mktemp("tensorboard") / "gpt-n2", 2)
    folder.traces.mkdir()
    for rank in (0, 1):
        shutil.copy(DATA / f"rank{rank}.3.pt.trace.json.gz", folder.trace_of(rank, 10))
    node = yaml.safe_load((ROOT / "conf/logger/tensorboard.yaml").read_text())["tensorboard"]
    sink = TensorBoardSink(**node, dir=str(folder.path), group="s", job_type="train", run_name="gpt-n2")
    sink.start({}, "gpt-n2")
    for row in [*step_rows(2), *sweep_rows()]:
        sink.log(row)
    sink.artifact(folder.traces)
    sink.close("done")
    return folder


def test_every_step_is_a_scalar_event(logged: RunFolder) -> None:
    events = EventAccumulator(str(logged.path / "tensorboard"))
    events.Reload()
    losses = events.Scalars("train/loss")
    assert [event.step for event in losses] == list(range(40))
    assert losses[20].value == pytest.approx(step_rows(2)[20].loss) and losses[20].wall_time == pytest.approx(
        1.7e9 + 1.4
    )
    assert len(events.Scalars("train/validation_loss")) == 1, "what was not measured is not written"
    best = events.Scalars("sweep/all_reduce-4-float32/busbw_gb_s")[-1]
    assert (best.step, best.value) == (30, pytest.approx(356.5))


@pytest.mark.job
def test_the_plugin_returns_every_ranks_overview_operators_trace_and_communication(logged: RunFolder) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", str(logged.path), "--port", str(port),
         "--host", "127.0.0.1", "--load_fast=false"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        base = f"http://127.0.0.1:{port}/data/plugin/pytorch_profiler"
        runs = wait_for(f"{base}/runs", lambda answer: answer["runs"] and not answer["loading"])["runs"]
        assert runs == ["traces"]
        workers = get(f"{base}/workers?run=traces&view=Overview")
        assert workers == ["rank0", "rank1"]
        assert get(f"{base}/spans?run=traces&worker=rank0") == get(f"{base}/spans?run=traces&worker=All") == ["1"]
        for worker in workers:
            query = f"run=traces&worker={worker}&span=1"
            assert get(f"{base}/overview?{query}")["performance"]
            assert get(f"{base}/operation?{query}&group_by=Operation")
            trace = urllib.request.urlopen(f"{base}/trace?{query}", timeout=30).read()
            assert b"traceEvents" in trace or trace[:2] == b"\x1f\x8b"
        everyone = "run=traces&worker=All&span=1"
        assert set(get(f"{base}/distributed/overlap?{everyone}")["data"]["all"]) == {"rank0", "rank1"}
        assert get(f"{base}/distributed/waittime?{everyone}") and get(f"{base}/distributed/commops?{everyone}")
    finally:
        server.terminate()
        server.wait(20)


def get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.loads(answer.read())


def wait_for(address: str, done: Any) -> Any:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            if done(answer := get(address)):
                return answer
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.3)
    raise AssertionError(f"{address} did not come up")
