"""The run folder keeps what was measured, whatever happens to the process that writes it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from scalescope.records.console import as_typed
from scalescope.records.environment import allowed_variables
from scalescope.records.errors import UserError
from scalescope.records.files import DamagedFile, RowWriter, read_rows, write_atomic
from scalescope.records.folder import RunFolder, find_runs
from scalescope.records.rows import StepRow, SweepRow, TrainFacts
from scalescope.records.sink import Sinks
from tests import disks


def _row(step: int, attempt: int = 0, ms: float = 10.0) -> StepRow:
    return StepRow(step=step, phase="steady", step_ms=[ms], samples_per_s=1.0, attempt=attempt)


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    with RowWriter(tmp_path / "steps.jsonl") as writer:
        for step in range(5):
            writer.append(_row(step))
    assert list(read_rows(tmp_path / "steps.jsonl", StepRow)) == [_row(step) for step in range(5)]


def test_a_torn_last_line_is_left_out_and_never_grown_onto(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    with RowWriter(path) as writer:
        writer.append(_row(0))
        writer.append(_row(1))
    path.write_bytes(path.read_bytes()[:-7])
    assert [row.step for row in read_rows(path, StepRow)] == [0]
    with RowWriter(path) as writer:
        writer.append(_row(2))
    assert [row.step for row in read_rows(path, StepRow)] == [0, 2]


def test_a_bad_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    with RowWriter(path) as writer:
        writer.append(_row(0))
    path.write_bytes(path.read_bytes() + b'{"step": "x"}\n' + msgspec.json.encode(_row(2)) + b"\n")
    with pytest.raises(DamagedFile, match=r"steps\.jsonl:2"):
        list(read_rows(path, StepRow))


def test_a_killed_writer_loses_no_finished_row(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    code = (
        "import sys, os, signal\nfrom pathlib import Path\nfrom scalescope.records.files import RowWriter\n"
        "from scalescope.records.rows import StepRow\nwriter = RowWriter(Path(sys.argv[1]))\n"
        "for step in range(100):\n"
        "    writer.append(StepRow(step=step, phase='steady', step_ms=[1.0], samples_per_s=1))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], timeout=200, check=False)
    assert done.returncode == -9
    assert len(list(read_rows(path, StepRow))) == 100


def test_a_full_disk_keeps_the_rows_before_it(tmp_path: Path) -> None:
    with disks.mounted(tmp_path, "64k") as full:
        if not full:
            pytest.skip(disks.NONE)
        path = tmp_path / "steps.jsonl"
        writer = RowWriter(path)
        with pytest.raises(OSError, match=r"[Ss]pace|fit"):
            for step in range(10_000):
                writer.append(_row(step))
        written = [row.step for row in read_rows(path, StepRow)]
        assert written == list(range(len(written))) and len(written) > 100
        with pytest.raises(OSError, match="space"):
            write_atomic(tmp_path / "run.json", b"x" * 100_000)
        assert not (tmp_path / "run.json").exists()
        assert [child.name for child in tmp_path.iterdir()] == ["steps.jsonl"]
        writer.close()


def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_atomic(path, "old")
    with pytest.raises(TypeError):
        write_atomic(path, 3)  # type: ignore[arg-type]
    assert path.read_text() == "old"


def test_of_a_step_done_twice_the_last_attempt_counts(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "train", "steps: 3\n")
    with folder.step_writer() as writer:
        for row in (_row(0), _row(1, ms=10.0), _row(1, attempt=1, ms=20.0), _row(2, attempt=1)):
            writer.append(row)
    assert [(row.step, row.attempt) for row in folder.read_steps()] == [(0, 0), (1, 1), (2, 1)]


def test_a_name_is_never_reused(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", "train", "")
    with pytest.raises(UserError, match="exists already"):
        RunFolder.create(tmp_path / "run", "train", "")


def test_an_unwritable_place_is_one_clear_error_with_nothing_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the run folder"):
        RunFolder.create(tmp_path / "file" / "runs" / "run", "train", "")
    assert [child.name for child in tmp_path.iterdir()] == ["file"]


def test_runs_are_found_below_a_study(tmp_path: Path) -> None:
    study = RunFolder.create(tmp_path / "study", "study", "")
    for name in ("b", "a"):
        RunFolder.create(study.path / name, "train", "", study="study")
    assert [run.path.name for run in find_runs(tmp_path)] == ["study", "a", "b"]
    assert [run.path.name for run in study.read_children()] == ["a", "b"]


def test_secrets_are_not_captured() -> None:
    kept = {"NCCL_DEBUG": "INFO", "SLURM_JOB_ID": "3", "OMP_NUM_THREADS": "4", "GPU_MAX_HW_QUEUES": "2"}
    named = ("NCCL_SECRET", "NCCL_NET_AUTH_TOKEN", "RCCL_OF_TOMORROW", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    left = ("WANDB_API_KEY", "AWS_SECRET", "SLURM_JWT", "OMP_PASSWORD", "SLURM_JOB_SECRET", "SLURM_JOB_USER",
            "SLURM_JOB_ACCOUNT")  # fmt: skip
    found = allowed_variables({**kept, **dict.fromkeys((*named, *left), "hunter2")})
    assert found == {**kept, **dict.fromkeys(named, "(set; its value is not kept)")}


def test_a_failing_sink_is_reported_once_and_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken:
        def start(self, config: object, run_id: str) -> None: ...
        def log(self, row: object) -> None:
            raise ConnectionError("no route")

        def artifact(self, path: object) -> None: ...
        def close(self, status: object) -> None: ...

    class Kept(Broken):
        rows = 0

        def log(self, row: object) -> None:
            self.rows += 1

    kept = Kept()
    sinks = Sinks([Broken(), kept])
    for step in range(3):
        sinks.log(_row(step))
    assert kept.rows == 3
    assert capsys.readouterr().err.count("no route") == 1


def test_a_failed_run_folder_takes_no_neighbour_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: str) -> None:
        (tmp_path / "runs" / "neighbour").mkdir()  # another job starts at the same moment
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scalescope.records.folder.write_atomic", full)
    with pytest.raises(UserError, match="No space left"):
        RunFolder.create(tmp_path / "runs" / "mine", "train", "")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["neighbour"]


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(tmp_path: Path) -> None:
    """In a process without the right to override modes: root has it."""
    study = RunFolder.create(tmp_path / "study", "study", "x: 1")
    run = RunFolder.create(study.path / "run", "train", "steps: 1")
    run.traces.mkdir()
    run.path.chmod(0o555)
    argv = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-all"] if os.geteuid() == 0 else []
    if argv and shutil.which(argv[0]) is None:
        pytest.skip("NOT TESTED: root may write everywhere, and there is no setpriv here to give that up")
    code = f"from scalescope.cli import front_door; raise SystemExit(front_door.main(['analyze', {str(study.path)!r}]))"
    argv += [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    run.path.chmod(0o755)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert f"{run.path} cannot be written" in done.stderr and f"traces alone: {run.traces}" in done.stderr


def test_a_path_is_printed_as_one_types_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert as_typed(tmp_path / "runs" / "a") == "runs/a"
    assert as_typed(tmp_path / "mit Ä b") == "'mit Ä b'"
    assert as_typed(Path("/elsewhere/a b")) == "'/elsewhere/a b'"


def test_sweep_rows_of_earlier_versions_keep_their_transport(tmp_path: Path) -> None:
    row = {"operation": "all_reduce", "bytes": 8, "dtype": "float32", "group_size": 2, "status": "measured"}
    (tmp_path / "sweep.jsonl").write_text(json.dumps({**row, "path": "direct"}, separators=(",", ":")) + "\n")
    (read,) = read_rows(tmp_path / "sweep.jsonl", SweepRow)
    assert read.transport == "direct"


@pytest.mark.parametrize(
    ("config", "origin", "dataset"),
    [
        ("model:\n  kind: gpt\ndata:\n  kind: image_folder\nstrategy:\n  kind: ddp\n", "job", "image_folder"),
        ("what: mine\nstrategy: ddp\n", "script", None),
        ("what: mine\nstrategy: script\n", "script", None),
    ],
)
def test_who_wrote_the_loop_of_an_older_run_is_taken_from_its_config(
    tmp_path: Path, config: str, origin: str, dataset: str | None
) -> None:
    folder = RunFolder.create(tmp_path / "r", "train", config)
    folder.write_facts(TrainFacts("m", "ddp", "bf16", 1, 1.0, "", 1))
    facts = folder.read_facts()
    assert facts is not None and (facts.origin, facts.dataset) == (origin, dataset)
    folder.write_facts(TrainFacts("m", "ddp", "bf16", 1, 1.0, "", 1, origin="script"))
    facts = folder.read_facts()
    assert facts is not None and facts.origin == "script"


def test_a_runs_end_keeps_what_ended_it(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "r", "train", "")
    folder.set_status("failed", "it hangs, says the watch", "hang")
    assert folder.read_info().ended_by == "hang"
    folder.set_status("failed", "something hangs, timed out, has died")
    assert folder.read_info().ended_by == "failure"
    folder.set_status("done")
    assert folder.read_info().ended_by is None
