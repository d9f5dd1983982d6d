"""A study's analysis run in W&B, read back from its transaction file."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scalescope.records.folder import RunFolder
from scalescope.report.sinks.wandb_study import log_study
from scalescope.scaling.answer import Straggler
from scalescope.scaling.study_answer import write_answer
from tests.report_samples import run_answer, write_study
from tests.wandb_runs import options
from tests.wandb_transactions import config, find_transactions, history, read_records, summary

pytestmark = pytest.mark.job


@pytest.fixture(scope="module")
def logged_study(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, list[Any]]:
    study = write_study(tmp_path_factory.mktemp("wandb") / "h200")
    stragglers = [Straggler(rank=2, lost_ms=8.1, verdict="its own delay")]
    answer = msgspec.structs.replace(run_answer("gpt_small-n4", 4), stragglers=stragglers)
    write_answer(study.path / "gpt_small-n4" / "analysis.json", answer)
    log_study(study, options())
    return study, list(read_records(find_transactions(study.path)))


def test_a_study_has_one_analysis_run_with_tables_charts_and_an_alert(
    logged_study: tuple[RunFolder, list[Any]],
) -> None:
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
) -> None:
    study = write_study(tmp_path / "h200")

    def refuse(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("wandb.init", refuse)
    log_study(study, options())
    assert "W&B has no analysis run (No space left on device)" in capsys.readouterr().err
