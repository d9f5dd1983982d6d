"""What people give for traces and is none is called what it is, with what to do instead."""

import gzip
import shutil
import zipfile
from pathlib import Path

import pytest

from scalescope.cli import front_door
from scalescope.records.outputs.sweep_logs import is_log

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(
    ("names", "what", "advice"),
    [
        (["a.nsys-rep", "b.nsys-rep"], "2 reports of Nsight Systems (a.nsys-rep, …)", "torch.profiler"),
        (["a.ncu-rep"], "a report of Nsight Compute (a.ncu-rep)", "tells no step"),
        (["model.pt", "config.json"], "a file of weights, or a checkpoint (model.pt)", "folder of traces"),
        (
            ["step_1/model.safetensors", "step_2/model.safetensors"],
            "2 files of weights or checkpoints",
            "profile_steps",
        ),
        (["report.html"], "a page for a browser (report.html)", "give what it was made of"),
        (
            ["offline-run-1/run-1.wandb", "offline-run-1/files.json"],
            "a record of W&B",
            "no traces; give the run folder",
        ),
        (["traces.zip"], "an archive (traces.zip)", "unpack it"),
        (["events.out.tfevents.1.host"], "TensorBoard's curves", "*.pt.trace.json"),
    ],
)
@pytest.mark.parametrize("verb", ["analyze", "report", "whatif", "perfetto", "compare"])
def test_a_folder_of_something_else_is_told_what_it_holds(
    verb: str, names: list[str], what: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}" if name.endswith(".json") else "x")
    assert front_door.main([verb, *[str(tmp_path)] * (2 if verb == "compare" else 1)]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path} holds no traces but {what}" in said and advice in said and len(said.splitlines()) == 1


def test_a_file_that_is_something_else_is_told_so_by_name_or_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (page := tmp_path / "page").write_text("<!doctype html><html></html>")
    with zipfile.ZipFile(archive := tmp_path / "sent", "w") as file:
        file.writestr("rank0.json", "{}")
    for path, what in (
        (page, "a page for a browser"),
        (archive, "an archive"),
        (DATA / "nccl_tests" / "plain.txt", "a log of nccl-tests or rccl-tests"),
    ):
        assert front_door.main(["analyze", str(path)]) == 2
        assert f"{path} is no trace but {what}" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["analyze", "report", "compare", "import"])
@pytest.mark.parametrize("name", ["sweep.md", "notes"])
def test_a_page_that_tells_of_a_log_is_none(
    verb: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = (DATA / "nccl_tests" / "plain.txt").read_text()
    page = tmp_path / name
    page.write_text(f"# nccl-tests\n\nWhat it prints of two H200s:\n\n```\n{log}```\n")
    words = [str(page)] * (2 if verb == "compare" else 1) + ["--out", str(tmp_path / "out")] * (verb == "import")
    assert front_door.main([verb, *words]) == 2
    said = capsys.readouterr().err
    reads_logs = verb in ("compare", "import")
    assert "no trace but a log" not in said and not (tmp_path / "out").exists()
    assert "is a page of text, and no log" in said if reads_logs else name == "notes" or "a page of text" in said


def test_the_documentation_of_logs_is_no_log_and_every_recorded_one_is() -> None:
    docs = Path(__file__).parents[1] / "docs"
    assert not [page for page in docs.rglob("*.md") if is_log(page.read_bytes())]
    logs = [*(DATA / "nccl_tests").iterdir(), *(DATA / "nccl_tests_h200x2").iterdir()]
    assert [log.name for log in logs if not is_log(log.read_bytes())] == ["refused.txt"]


def test_traces_beside_and_below_other_files_are_still_read_or_pointed_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.pt").write_text("x")
    (below := tmp_path / "prof").mkdir()
    trace = gzip.decompress((DATA / "gpt_ddp_n1" / "rank0.json.gz").read_bytes())
    (below / "mine.json").write_bytes(trace)
    assert front_door.main(["analyze", str(tmp_path)]) == 2
    assert f"did you mean {below}?" in capsys.readouterr().err
    runs = [shutil.copytree(DATA / "runs_v0.1" / "script", tmp_path / "runs" / name) for name in "ABSC"]
    (tmp_path / "runs" / "notes").mkdir()
    assert front_door.main(["analyze", str(tmp_path / "runs")]) == 2
    assert f"name one of the 4 folders in it that do, as {runs[0]}, {runs[1]} or " in capsys.readouterr().err
    shutil.rmtree(runs[3])
    assert front_door.main(["analyze", str(tmp_path / "runs")]) == 2
    assert f"did you mean {runs[0]}, {runs[1]} or {runs[2]}?" in capsys.readouterr().err, "a run counts once"
    shutil.copy(tmp_path / "model.pt", below)
    assert front_door.main(["analyze", str(below)]) == 0
