"""What W&B got is read back from its transaction file: history, tables, the traces, and nothing that is secret."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.records.sink import Sinks
from scalescope.report.sinks.wandb import WandbSink
from tests.report_samples import step_rows, sweep_rows, write_run
from tests.wandb_runs import options, write_traces
from tests.wandb_transactions import config, find_transactions, history, read_records, summary

SECRET = "planted-4f1c-secret"


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
    own_ms = [30.0, 31.0, 36.0, 30.5]  # rank 2 comes last
    for row in [*(msgspec.structs.replace(one, own_ms=own_ms) for one in step_rows(4)), *sweep_rows()]:
        sinks.log(row)
    sinks.artifact(folder.traces)
    sinks.close("done")
    del os.environ["DATABASE_PASSWORD"], os.environ["WANDB_API_KEY"]
    return folder, list(read_records(find_transactions(folder.path)))


def test_every_step_is_a_row_of_history_on_its_own_axis(logged: tuple[RunFolder, list[Any]]) -> None:
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
    assert axes["live/*"] == "train/step"
    assert axes["train/*"] == "train/step" and axes["wall/*"] == "train/wall_s"
    assert axes["sweep/all_reduce-4-float32/*"] == "sweep/bytes"


def test_who_comes_last_and_where_windows_are_open_is_logged_live(logged: tuple[RunFolder, list[Any]]) -> None:
    rows = [row for row in history(logged[1]) if "train/step" in row]
    assert {row["live/last_rank"] for row in rows} == {2}
    assert rows[20]["live/late_ms"] == pytest.approx(36.0 - 30.5), "behind the lower of the two in the middle"
    assert sum(rows[20]["live/rank_own_ms.values"]) == 4
    assert [row["train/step"] for row in rows if row["live/recorded"]] == list(range(10, 15))


def test_the_run_has_its_config_group_tags_and_headline_figures(logged: tuple[RunFolder, list[Any]]) -> None:
    _, records = logged
    run = next(record.run for record in records if record.HasField("run"))
    assert (run.run_group, run.job_type, run.display_name, run.project) == ("study-7", "train", "gpt-n4", "scalescope")
    assert set(run.tags) == {"gpt_small", "ddp", "4 ranks", "NVIDIA H200", "nccl"}
    assert config(records)["seed"] == 1337 and config(records)["scalescope"]["world_size"] == 4
    headline = summary(records)
    assert headline["status"] == "done" and headline["mfu"] == pytest.approx(0.431)
    assert headline["best_busbw_gb_s"] == pytest.approx(356.5) and headline["step_ms"] == pytest.approx(67.6, abs=0.3)
    assert headline["sweep/points.nrows"] == 85


def test_the_traces_are_an_artifact_of_type_profile_up_to_the_size_cap(logged: tuple[RunFolder, list[Any]]) -> None:
    folder, records = logged
    artifact = next(record.artifact for record in records if record.artifact.type == "profile")
    files = {entry.path: entry for entry in artifact.manifest.contents}
    assert set(files) == {f"rank{rank}.10.pt.trace.json" for rank in (0, 1, 3)}
    assert json.loads(Path(files["rank1.10.pt.trace.json"].local_path).read_text())["traceEvents"][0]["dur"] == 1
    assert all(entry.digest for entry in files.values())
    assert json.loads(artifact.metadata)["left_in_place"] == [str(folder.trace_of(2, 10))]
    assert folder.trace_of(2, 10).exists(), "what is too large stays in the run folder"
    assert not (folder.path / "wandb/traces/rank2.10.pt.trace.json").exists()


def test_what_stays_in_place_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "r", 1)
    write_traces(folder, {0: 5_000_000})
    sink = WandbSink(**options(artifact_limit_mb=0.0001, expand_traces=False), dir=str(folder.path))
    sink.start({}, "r")
    sink.artifact(folder.traces)
    sink.close("done")
    assert "W&B gets no copy of 1 of 1 files" in capsys.readouterr().err


def test_no_secret_of_the_environment_is_in_any_file(logged: tuple[RunFolder, list[Any]]) -> None:
    folder, _ = logged
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert len(files) > 8
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    names = {path.name for path in files}
    assert not names & {"wandb-metadata.json", "requirements.txt", "output.log", "diff.patch"}


@pytest.mark.quiet
def test_logging_a_step_costs_the_job_next_to_nothing(tmp_path: Path) -> None:
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


def test_a_mode_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose offline, online or disabled"):
        WandbSink(**options(mode="ofline"), dir=str(tmp_path))


def test_a_requeued_job_goes_on_in_the_same_wandb_run(tmp_path: Path) -> None:
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
