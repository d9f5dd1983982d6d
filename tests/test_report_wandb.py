"""What W&B got is read back from its transaction file: history, tables, the traces, and nothing that is secret."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from launch.run import _end
from launch.world import World
from records.folder import RunFolder
from records.rows import RunStatus, StepRow
from records.sink import Sinks
from report.background import Background
from report.dashboard import write_dashboard
from report.wandb import WandbSink, log_study
from scaling.answer import Straggler, write_answer
from tests.report_samples import run_answer, step_rows, sweep_rows, write_run, write_study
from tests.train_runs import SMALL_GPT, train_in_world
from tests.wandb_transactions import config, find_transactions, history, read_records, summary

ROOT = Path(__file__).parent.parent
SECRET = "planted-4f1c-secret"


def options(**changes: Any) -> dict[str, Any]:
    """Return conf/logger/wandb.yaml's own arguments."""
    node: dict[str, Any] = yaml.safe_load((ROOT / "conf/logger/wandb.yaml").read_text())["wandb"]
    assert node.pop("_target_") == "report.wandb.WandbSink"
    return {**node, "system_metrics": False, **changes}


def write_traces(folder: RunFolder, sizes: dict[int, int]) -> None:
    folder.traces.mkdir()
    for rank, size in sizes.items():
        events = {"traceEvents": [{"name": "x" * size, "ph": "X", "ts": 1, "dur": 1}]}
        with gzip.open(folder.trace_of(rank, 10), "wt") as out:
            json.dump(events, out)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, list[Any]]:
    """A train run of four ranks with a sweep's points, logged by the real W&B, offline."""
    os.environ["DATABASE_PASSWORD"] = SECRET
    os.environ["WANDB_API_KEY"] = SECRET.ljust(40, "0")
    folder = write_run(tmp_path_factory.mktemp("wandb") / "gpt-n4", 4, "study-7")
    write_traces(folder, {0: 100, 1: 200, 2: 6_000_000, 3: 300})
    sink = WandbSink(**options(artifact_limit_mb=2.0), dir=str(folder.path), group="study-7", job_type="train",
                     run_name="gpt-n4")  # fmt: skip
    sinks = Sinks([sink])
    sinks.start({"model": {"name": "gpt_small"}, "strategy": {"kind": "ddp"}, "seed": 1337}, "gpt-n4")
    for row in [*step_rows(4), *sweep_rows()]:
        sinks.log(row)
    sinks.artifact(folder.traces)
    sinks.close("done")
    del os.environ["DATABASE_PASSWORD"], os.environ["WANDB_API_KEY"]
    return folder, list(read_records(find_transactions(folder.path)))


def test_every_step_is_a_row_of_history_on_its_own_axis(logged: tuple[RunFolder, list[Any]]):
    _, records = logged
    rows = [row for row in history(records) if "train/step" in row]
    assert [row["train/step"] for row in rows] == list(range(40))
    expected = step_rows(4)[20]
    assert rows[20]["train/step_ms"] == pytest.approx(max(expected.step_ms))
    assert rows[20]["train/tokens_per_s"] == pytest.approx(expected.tokens_per_s)
    assert rows[20]["wall/loss"] == rows[20]["train/loss"] == pytest.approx(expected.loss)
    assert sum(rows[20]["train/rank_step_ms.values"]) == 4
    assert "train/validation_loss" not in rows[20], "what was not measured is not logged"
    axes = {record.metric.glob_name: record.metric.step_metric for record in records if record.HasField("metric")}
    assert axes["train/*"] == "train/step" and axes["wall/*"] == "train/wall_s"
    assert axes["sweep/all_reduce-4-float32/*"] == "sweep/bytes"


def test_the_run_has_its_config_group_tags_and_headline_figures(logged: tuple[RunFolder, list[Any]]):
    _, records = logged
    run = next(record.run for record in records if record.HasField("run"))
    assert (run.run_group, run.job_type, run.display_name, run.project) == ("study-7", "train", "gpt-n4", "scalescope")
    assert set(run.tags) == {"gpt_small", "ddp", "4 ranks", "NVIDIA H200", "nccl"}
    assert config(records)["seed"] == 1337 and config(records)["scalescope"]["world_size"] == 4
    headline = summary(records)
    assert headline["status"] == "done" and headline["mfu"] == pytest.approx(0.431)
    assert headline["best_busbw_gb_s"] == pytest.approx(356.5) and headline["step_ms"] == pytest.approx(67.6, abs=0.3)
    assert headline["sweep/points.nrows"] == 85


def test_the_traces_are_an_artifact_of_type_profile_up_to_the_size_cap(logged: tuple[RunFolder, list[Any]]):
    folder, records = logged
    artifact = next(record.artifact for record in records if record.artifact.type == "profile")
    files = {entry.path: entry for entry in artifact.manifest.contents}
    assert set(files) == {f"rank{rank}.10.pt.trace.json" for rank in (0, 1, 3)}
    assert json.loads(Path(files["rank1.10.pt.trace.json"].local_path).read_text())["traceEvents"][0]["dur"] == 1
    assert all(entry.digest for entry in files.values())
    assert json.loads(artifact.metadata)["left_in_place"] == [str(folder.trace_of(2, 10))]
    assert folder.trace_of(2, 10).exists(), "what is too large stays in the run folder"
    assert not (folder.path / "wandb/traces/rank2.10.pt.trace.json").exists()


def test_what_stays_in_place_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = write_run(tmp_path / "r", 1)
    write_traces(folder, {0: 5_000_000})
    sink = WandbSink(**options(artifact_limit_mb=1.0, expand_traces=False), dir=str(folder.path))
    sink._room_bytes = 100  # the packed trace is small
    sink.start({}, "r")
    sink.artifact(folder.traces)
    sink.close("done")
    assert "W&B gets no copy of 1 of 1 files" in capsys.readouterr().err


def test_no_secret_of_the_environment_is_in_any_file(logged: tuple[RunFolder, list[Any]]):
    folder, _ = logged
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert len(files) > 8
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    names = {path.name for path in files}
    assert not names & {"wandb-metadata.json", "requirements.txt", "output.log", "diff.patch"}


@pytest.fixture(scope="module")
def logged_study(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, list[Any]]:
    study = write_study(tmp_path_factory.mktemp("wandb") / "h200")
    guilty = [Straggler(rank=2, steps_last=3, lost_ms=8.1, verdict="its own delay")]
    answer = msgspec.structs.replace(run_answer("gpt_small-n4", 4), stragglers=guilty)
    write_answer(study.path / "gpt_small-n4" / "analysis.json", answer)
    log_study(study, options())
    return study, list(read_records(find_transactions(study.path)))


def test_a_study_has_one_analysis_run_with_tables_charts_and_an_alert(logged_study: tuple[RunFolder, list[Any]]):
    study, records = logged_study
    tables = {}
    (row,) = history(records)
    folder = find_transactions(study.path).parent / "files"
    for key in row:
        if key.endswith("._type") and row[key] == "table-file":
            name = key.removesuffix("._type")
            tables[name] = json.loads((folder / row[f"{name}.path"]).read_text())
    assert {"study/efficiency", "study/waterfall", "study/partition", "study/collectives", "study/sweep",
            "study/step_times", "study/kernels"} <= set(tables)  # fmt: skip
    partition = tables["study/partition"]
    assert len(partition["data"]) == 1 + 2 + 4
    at = {name: index for index, name in enumerate(partition["columns"])}
    parts = [name for name in at if name.startswith(("compute_", "exposed_", "idle_"))]
    for cells in partition["data"]:
        assert sum(cells[at[part]] for part in parts) == pytest.approx(cells[at["window_ms"]])
    assert tables["study/sweep"]["data"][-1][-1] == "out_of_memory: 17.2 GB do not fit twice"
    images = [key for key in row if key.startswith("pictures/") and row[key] == "image-file"]
    assert len(images) == 16 and all((folder / row[key.replace("._type", ".path")]).exists() for key in images)
    shown = config(records)["_wandb"].get("visualize") or summary(records)
    assert any("charts/throughput" in key for key in [*row, *shown])
    headline = summary(records)
    assert headline["gpt_small/efficiency"] == pytest.approx(0.943, abs=1e-3)
    assert "4 GPUs do 3.77× the work of one" in headline["verdict"]
    (alert,) = (record.alert for record in records if record.HasField("alert"))
    assert alert.title == "Straggler: rank 2" and "its own delay" in alert.text
    run = next(record.run for record in records if record.HasField("run"))
    assert (run.run_group, run.job_type) == ("h200", "analysis")


def test_an_analysis_that_wandb_refuses_is_said_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    study = write_study(tmp_path / "h200")

    def refuse(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("wandb.init", refuse)
    log_study(study, options())
    assert "W&B has no analysis run (No space left on device)" in capsys.readouterr().err


def test_logging_a_step_costs_the_job_next_to_nothing(tmp_path: Path):
    folder = write_run(tmp_path / "r", 4)
    sink = WandbSink(**options(), dir=str(folder.path))
    sink.start({}, "r")
    rows = step_rows(4, 200)
    spent = []
    for row in rows:
        started = time.perf_counter()
        sink.log(row)
        spent.append(time.perf_counter() - started)
        time.sleep(0.002)
    sink.close("done")
    assert sorted(spent)[len(spent) // 2] < 0.0005, "half a millisecond is 1% of a 50 ms step"
    assert len(history(list(read_records(find_transactions(folder.path))))) == 200


def test_a_wandb_that_cannot_be_reached_does_not_stop_the_job(tmp_path: Path):
    folder = write_run(tmp_path / "r", 1)
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.report_samples import step_rows\n"
        "from records.sink import Sinks\n"
        "from report.wandb import WandbSink\n"
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


def test_a_killed_wandb_process_does_not_stop_the_job(tmp_path: Path):
    folder = write_run(tmp_path / "r", 1)
    script = (
        "import os, sys, time; sys.path.insert(0, '.')\n"
        "from tests.report_samples import step_rows\n"
        "from records.sink import Sinks\n"
        "from report.wandb import WandbSink\n"
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
    assert "the job went on" in out


def children(pid: int) -> list[int]:
    """Return the process's direct children, as Linux lists them."""
    return [
        int(text) for task in Path(f"/proc/{pid}/task").iterdir() for text in (task / "children").read_text().split()
    ]


def test_a_row_that_wandb_chokes_on_is_told_at_the_next_call():
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


def test_calls_are_done_in_bursts_and_the_end_waits_for_no_pause():
    work = Background("W&B", pause_s=60)
    first = threading.Event()
    done: list[int] = []
    work.do(first.set)
    assert first.wait(5)
    time.sleep(0.2)
    for call in range(10):
        work.do(lambda call=call: done.append(call))
    time.sleep(0.1)
    assert done == [], "what comes in a pause waits for its end"
    work.finish(5)
    assert done == list(range(10))


def test_a_stuck_service_is_given_up():
    work = Background("W&B")
    release = threading.Event()
    work.do(lambda: release.wait(10) and None)
    with pytest.raises(TimeoutError, match=r"did not answer within 0\.2 s"):
        work.finish(0.2)
    release.set()


def test_a_mode_that_is_none_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ValueError, match="choose offline, online or disabled"):
        WandbSink(**options(mode="ofline"), dir=str(tmp_path))


def test_a_requeued_job_goes_on_in_the_same_wandb_run(tmp_path: Path):
    folder = write_run(tmp_path / "r", 1)
    seen = []
    for attempt in range(2):
        sink = WandbSink(**options(), dir=str(folder.path))
        sink.start({}, "r")
        sink.log(StepRow(attempt, "steady", [1.0], 1.0, attempt=attempt))
        sink.close("preempted" if attempt == 0 else "done")
        path = max((folder.path / "wandb").glob("offline-run-*"), key=lambda path: path.stat().st_mtime_ns)
        seen.append(path.name.rsplit("-", 1)[1])
        shutil.rmtree(path)
    assert seen[0] == seen[1]


def test_the_dashboard_names_only_what_the_runs_log(
    logged: tuple[RunFolder, list[Any]], logged_study: tuple[RunFolder, list[Any]], tmp_path: Path
):
    rows = [row for records in (logged[1], logged_study[1]) for row in history(records)]
    known = {key.removesuffix("._type") for row in rows for key in row}
    known |= {key for records in (logged[1], logged_study[1]) for key in summary(records)}
    done = write_dashboard(tmp_path, "team", "scaling")
    for path in (done.workspace, done.report):
        model = json.loads(Path(path).read_text())
        named, patterns = named_metrics(model)
        assert len(named) > 25 and named <= known, named - known
        assert len(patterns) == 2
        assert all(any(re.fullmatch(pattern, key) for key in known) for pattern in patterns)
        for panel in panels_of(model):
            assert panel["viewType"] in ("Markdown Panel", "Run Comparer") or any(named_metrics(panel)), panel
            grouped = panel["config"].get("groupBy")
            if grouped is not None:
                root, _, leaf = grouped.partition(".value.")
                assert leaf in config(logged[1])[root], "a chart groups by what the runs' configs hold"
    names = [section["name"] for section in json.loads(Path(done.workspace).read_text())["spec"]["section"]
             ["panelBankConfig"]["sections"]]  # fmt: skip
    assert names == ["overview", "training", "collectives", "traces", "compare runs"]


def panels_of(model: Any) -> Iterator[dict[str, Any]]:
    for part in model if isinstance(model, list) else model.values() if isinstance(model, dict) else ():
        yield from panels_of(part)
    if isinstance(model, dict) and "viewType" in model:
        yield model


def named_metrics(model: Any) -> tuple[set[str], set[str]]:
    """Return every metric, axis, picture and table that a model's panels name, and the patterns among them."""
    named: set[str] = set()
    patterns: set[str] = set()
    if isinstance(model, list):
        found = [named_metrics(item) for item in model]
    elif isinstance(model, dict):
        if model.get("viewType") == "Weave":
            named |= set(re.findall(r'"val": "(study/[a-z_]+)"', json.dumps(model)))
        config = model.get("config") if "viewType" in model else None
        if isinstance(config, dict):
            named |= {*config.get("metrics", []), *config.get("mediaKeys", [])}
            named |= {config["xAxis"]} if "xAxis" in config and model["viewType"] == "Run History Line Plot" else set()
            patterns |= {config["metricRegex"]} if config.get("metricRegex") else set()
        found = [named_metrics(item) for item in model.values()]
    else:
        return set(), set()
    return named.union(*(one for one, _ in found)), patterns.union(*(two for _, two in found))


def test_a_job_that_leaves_at_once_has_everything_on_disk(tmp_path: Path):
    folder = write_run(tmp_path / "r", 1)
    script = (
        "import os, sys; sys.path.insert(0, '.')\n"
        "from tests.report_samples import step_rows\n"
        "from report.wandb import WandbSink\n"
        f"sink = WandbSink(**{options()!r}, dir={str(folder.path)!r})\n"
        "sink.start({}, 'r')\n"
        "for row in step_rows(1): sink.log(row)\n"
        "sink.close('failed'); os._exit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    line = next(line for line in done.stdout.splitlines() if "wandb sync" in line)
    offline = find_transactions(folder.path).parent
    assert f"`wandb leet {offline}`" in line and f"`wandb sync {offline}`" in line
    assert done.returncode == 3 and "wandb:" not in done.stdout + done.stderr
    records = list(read_records(find_transactions(folder.path)))
    assert len(history(records)) == 40 and summary(records)["status"] == "failed"
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [1]


def test_a_failed_job_sends_an_alert_and_its_small_files(tmp_path: Path):
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


def test_a_job_that_ends_well_gives_its_small_files_once_run_json_says_so(tmp_path: Path):
    folder = write_run(tmp_path / "r", 1)
    folder.set_status("running")
    seen: list[str] = []

    class Watching:
        def start(self, config: dict[str, Any], run_id: str) -> None: ...

        def log(self, row: msgspec.Struct) -> None: ...

        def artifact(self, path: Path) -> None:
            seen.append(f"{path.name}: {folder.read_info().status}")

        def close(self, status: str) -> None:
            seen.append(f"closed as {status}")

    _end(folder, World(rank=0, size=1, local_rank=0, local_size=1, source="test"), Sinks([Watching()]), "done")
    assert seen == ["r: done", "closed as done"]


@pytest.mark.parametrize(
    ("status", "message", "title"),
    [
        ("failed", "rank 3: Watchdog caught collective operation timeout: ran for 600000 ms", "Hang: r"),
        ("failed", "rank 0: DistBackendError: [gloo] Timed out waiting 60000ms for recv operation", "Hang: r"),
        ("interrupted", "interrupted from the keyboard", "Interrupted: r"),
        ("done", None, None),
        ("preempted", "asked to stop at step 7", None),
    ],
)
def test_the_alert_says_what_ended_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: RunStatus, message: str | None, title: str | None
):
    folder = write_run(tmp_path / "r", 1)
    folder.set_status(status, message)
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


def test_a_full_disk_under_wandb_does_not_stop_the_job(tmp_path: Path):
    """W&B writes to a disk that is full; the run folder, on another, has every row."""
    folder = write_run(tmp_path / "r", 1)
    full = folder.path / "wandb"
    full.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(full)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        pytest.skip("NOT TESTED: needs the right to mount a small tmpfs, so nobody saw W&B on a full disk")
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "from pathlib import Path\n"
        "from records.folder import RunFolder\n"
        "from records.sink import Sinks\n"
        "from report.wandb import WandbSink\n"
        "from tests.report_samples import step_rows\n"
        f"folder = RunFolder(Path({str(folder.path)!r})); folder.steps.unlink()\n"
        f"sinks = Sinks([WandbSink(**{options(finish_timeout_s=3)!r}, dir=str(folder.path))])\n"
        "sinks.start({}, 'r')\n"
        "with folder.step_writer() as rows:\n"
        "    for row in step_rows(1, 3000): rows.append(row); sinks.log(row)\n"
        "sinks.artifact(folder.path); sinks.close('done')\n"
        "print('the job went on', flush=True)\n"
    )
    try:
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=100,
                              check=False)  # fmt: skip
        assert shutil.disk_usage(full).free < 20_000, "the disk was really full"
        assert done.returncode == 0 and "the job went on" in done.stdout, done.stderr
        assert len(folder.read_steps()) == 3000
        assert "the disk of" in done.stderr and "is full" in done.stderr
    finally:
        subprocess.run(["umount", "-l", str(full)], check=True)
