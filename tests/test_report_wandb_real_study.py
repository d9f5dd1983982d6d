"""A study as a user runs it, on two CPU ranks: what its W&B runs hold, and that the dashboard names no more."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scalescope.records.folder import RunFolder
from scalescope.report.dashboard import write_dashboard
from scalescope.report.report_data import read_report_data
from scalescope.report.sinks.wandb_study import study_tables
from tests.made_once import made_once
from tests.wandb_transactions import config, find_transactions, history, read_records, summary

pytestmark = pytest.mark.job

ROOT = Path(__file__).resolve().parent.parent
SECRET = "planted-9d2e-secret"
TRAINED = ("gpt_tiny-ddp-n1", "gpt_tiny-ddp-n2")
STUDY = (
    "model=gpt_tiny model.layers=1 model.width=32 model.context=32 model.batch_size=2 precision=fp32 steps=10 "
    "data=python_stdlib warmup_steps=1 validate_every=5 profiler.warmup=1 profiler.active=2 launch.device=cpu "
    "name=study launch.threads_per_rank=1 gpu_counts=[1,2] sweep.sizes=[4KiB,64KiB] sweep.operations=[all_reduce] "
    "logger=wandb"
).split()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return RunFolder(made_once(tmp_path_factory, "wandb_study", _log_study) / "runs" / "study")


def _log_study(folder: Path) -> None:
    secrets = {"WANDB_API_KEY": SECRET.ljust(40, "0"), "DATABASE_PASSWORD": SECRET, "HF_TOKEN": SECRET,
               "AWS_SECRET_ACCESS_KEY": SECRET, "SLURM_JWT": SECRET}  # fmt: skip
    done = subprocess.run(
        [Path(sys.executable).parent / "scalescope", "study", *STUDY], cwd=folder, env={**os.environ, **secrets},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "wandb sync" in line)
    own, _, jobs = line.rpartition("; its jobs: ")
    assert jobs == "runs/study/*/wandb/offline-run-*" and "*" not in own, "one path, and one pattern of three jobs"


def records_of(folder: Path) -> list[Any]:
    return list(read_records(find_transactions(folder)))


def artifacts(records: list[Any]) -> dict[str, dict[str, Path]]:
    """Return the files of each type of artifact; a file without a digest is none."""
    found: dict[str, dict[str, Path]] = {}
    for record in records:
        if record.HasField("artifact"):
            files = {entry.path: Path(entry.local_path) for entry in record.artifact.manifest.contents if entry.digest}
            assert len(files) == len(record.artifact.manifest.contents)
            found.setdefault(record.artifact.type, {}).update(files)
    return found


@pytest.mark.parametrize("name", TRAINED)
def test_a_training_run_holds_its_config_every_step_its_summary_and_its_files(study: RunFolder, name: str) -> None:
    folder = RunFolder(study.path / name)
    records = records_of(folder.path)
    frozen = yaml.safe_load(folder.config.read_text())
    logged = config(records)
    assert {key: logged[key] for key in frozen} == frozen
    rows = [row for row in history(records) if "train/step" in row]
    steps = folder.read_steps()
    assert [row["train/step"] for row in rows] == [step.step for step in steps] == list(range(10))
    for row, step in zip(rows, steps, strict=True):
        assert row["train/step_ms"] == pytest.approx(step.length_ms)
        assert row["wall/loss"] == row["train/loss"] == pytest.approx(step.loss)
        assert row["train/wall_s"] == pytest.approx((step.unix_s or 0) - (steps[0].unix_s or 0))
        assert row.get("train/validation_loss") == step.validation_loss
    axes = {record.metric.glob_name: record.metric.step_metric for record in records if record.HasField("metric")}
    assert axes["train/*"] == "train/step" and axes["wall/*"] == "train/wall_s"
    assert summary(records)["status"] == "done" and summary(records)["samples_per_s"] > 0
    kinds = artifacts(records)
    assert len(kinds["profile"]) == folder.read_info().world_size
    assert all(json.loads(path.read_text())["traceEvents"] for path in kinds["profile"].values())
    files = kinds["run-files"]
    assert files.keys() == {"run.json", "config.yaml", "facts.json", "steps.jsonl"}
    assert json.loads(files["run.json"].read_text())["status"] == "done", "the folder as it stood at the end"
    run = next(record.run for record in records if record.HasField("run"))
    assert (run.run_group, run.job_type, run.display_name) == ("study", "train", name)


def test_the_sweep_is_a_curve_against_size_and_a_table(study: RunFolder) -> None:
    records = records_of(study.path / "sweep")
    points = [row for row in history(records) if "sweep/bytes" in row]
    measured = RunFolder(study.path / "sweep").read_sweep()
    key = "sweep/all_reduce-2-float32/busbw_gb_s"
    assert [(row["sweep/bytes"], row[key]) for row in points] == [
        (row.bytes, pytest.approx(row.bus_gb_s)) for row in measured
    ]
    axes = {record.metric.glob_name: record.metric.step_metric for record in records if record.HasField("metric")}
    assert axes["sweep/all_reduce-2-float32/*"] == "sweep/bytes"
    assert summary(records)["sweep/points.nrows"] == len(measured) == 2


def test_the_analysis_holds_the_studys_tables_and_charts(study: RunFolder) -> None:
    records = records_of(study.path)
    (row,) = history(records)
    files = find_transactions(study.path).parent / "files"
    tables = study_tables(read_report_data(study))
    assert {"study/efficiency", "study/waterfall", "study/partition", "study/sweep"} <= tables.keys()
    for key, table in tables.items():
        shown = json.loads((files / row[f"{key}.path"]).read_text())
        assert shown["columns"] == [column.key for column in table.columns]
        assert shown["data"] == [list(cells) for cells in table.rows], key
    pictures = [key for key in row if key.startswith("pictures/") and row[key] == "image-file"]
    assert len(pictures) > 10
    assert all((files / row[key.replace("._type", ".path")]).stat().st_size > 5_000 for key in pictures)
    shown = [*row, *(config(records)["_wandb"].get("visualize") or {}), *summary(records)]
    for chart in ("charts/throughput/gpt_tiny", "charts/efficiency", "charts/busbw/all_reduce"):
        assert any(chart in key for key in shown)
    assert set(artifacts(records)["run-files"]) == {"run.json", "config.yaml", "analysis.json", "report.html"}


def test_no_secret_of_the_environment_is_in_any_file_of_the_study(study: RunFolder) -> None:
    files = [path for path in study.path.rglob("*") if path.is_file()]
    assert len(files) > 60
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_the_dashboard_names_only_what_the_runs_log(study: RunFolder, tmp_path: Path) -> None:
    of_runs = [records_of(folder) for folder in (study.path, study.path / "sweep", *(study.path / n for n in TRAINED))]
    known = {key.removesuffix("._type") for records in of_runs for row in history(records) for key in row}
    known |= {key for records in of_runs for key in summary(records)}
    only_on_gpus = {"mfu", "train/mfu", "train/joules_per_sample"}  # a CPU has no known peak, and may count no energy
    done = write_dashboard(tmp_path, "team", "scaling")
    for path in (done.workspace, done.report):
        model = json.loads(Path(path).read_text())
        named, patterns = named_metrics(model)
        assert len(named) > 25 and named - known <= only_on_gpus
        assert len(patterns) == 2
        assert all(any(re.fullmatch(pattern, key) for key in known) for pattern in patterns)
        for panel in panels_of(model):
            assert panel["viewType"] in ("Markdown Panel", "Run Comparer") or any(named_metrics(panel)), panel
            grouped = panel["config"].get("groupBy")
            if grouped is not None:
                root, _, leaf = grouped.partition(".value.")
                assert leaf in config(of_runs[-1])[root], "a chart groups by what the runs' configs hold"
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


def test_a_study_without_wandbs_package_says_so_once_before_its_first_job(tmp_path: Path) -> None:
    """Not once a job, and of W&B's run of the analysis as well: five times the same line of a study of four jobs."""
    (tmp_path / "sitecustomize.py").write_text("import sys\n\nsys.modules['wandb'] = None\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "scalescope", "study", *STUDY, "gpu_counts=[1]", "with_sweep=false", "steps=4",
         "profiler=none"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert said.count("wandb is not installed; pip install wandb, or logger=none") == 1
    assert said.index("is not installed") < said.index("[1/1]")
