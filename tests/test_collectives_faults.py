"""What ends a sweep early, one after another on one sweep: no row is lost or doubled, and the end comes soon."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from scalescope.records.rows import SweepRow
from tests.collectives_runs import await_rows, finish, folder_of, planned, points_of, process_of, rows_of, start

# points for all the faults, however many are measured before a busy machine comes to make the next one
OPERATIONS = "operations=[all_reduce,all_gather,broadcast]"
LONG = ("sizes=8B..4MiB x2", OPERATIONS, "budget_s=0.15", "percentile_iterations=2", "hang_limit_s=2")


@pytest.mark.long
@pytest.mark.timeout(900)  # seven sweeps, one after another
def test_killed_stopped_interrupted_and_out_of_disk_a_sweep_keeps_its_rows_and_finishes(
    small_disk_or_folder: Path,
) -> None:
    disk = small_disk_or_folder
    kept: list[list[SweepRow]] = []

    def go_on(least: int = 2) -> subprocess.Popen[str]:
        job = start(disk, "one", 2, *LONG, *(["resume=true"] if kept else []))
        await_rows(job, disk, "one", least=least + (len(kept[-1]) if kept else 0))
        return job

    def end(job: subprocess.Popen[str], within_s: float) -> str:
        code, said = finish(job, within_s)
        kept.append(rows_of(disk, "one"))
        assert code == 3, said
        assert points_of(kept[-1]) == planned(2, *LONG)[: len(kept[-1])], "a point was lost or doubled"
        return said

    def status() -> tuple[str, str]:
        info = folder_of(disk, "one").read_info()
        return info.status, info.message or ""

    for signal_number, became in ((signal.SIGKILL, "has died"), (signal.SIGSTOP, "is stopped")):
        job = go_on()
        os.kill(writer := process_of(job, rank=0), signal_number)  # the rank that writes the rows
        assert "what was measured" in end(job, within_s=30)
        failed, message = status()
        assert failed == "failed" and f"rank 0 (process {writer} on" in message and became in message
        assert all(row.status == "measured" for row in kept[-1])
        assert not Path(f"/proc/{writer}").exists()

    job = go_on()
    stopped = process_of(job, rank=1)
    os.kill(stopped, signal.SIGSTOP)
    end(job, within_s=30)
    failed, message = status()
    assert failed == "failed" and f"rank 1 (process {stopped} on" in message and "is stopped, last heard" in message
    assert "over ranks [0, 1] did not return within 2 s" in message
    assert (kept[-1][-1].status, kept[-1][-1].reason) == ("failed", message)
    assert (disk / "one" / "logs" / "rank0.hang.txt").stat().st_size > 0
    assert (disk / "one" / "flight_recorder" / "rank0.pickle").stat().st_size > 0
    assert not Path(f"/proc/{stopped}").exists(), "a stopped rank does not stay behind"

    job = go_on()
    os.killpg(job.pid, signal.SIGINT)  # Ctrl-C in a terminal
    end(job, within_s=30)
    assert status()[0] == "interrupted"
    with (disk / "one" / "sweep.jsonl").open("ab") as file:
        file.write(b'{"operation":"all_re')  # a row that a killed process had begun

    if disk.is_mount():
        job = go_on()
        fill = disk / "somebody-elses"
        with fill.open("wb", buffering=0) as other, pytest.raises(OSError, match="No space left"):
            while True:
                other.write(b"x" * 4096)
        assert "No space left" in end(job, within_s=60)
        fill.unlink()

    code, said = finish(start(disk, "one", 2, *LONG, "resume=true"), within_s=180)
    assert code == 0, said
    rows = rows_of(disk, "one")
    for earlier in kept:
        assert rows[: len(earlier)] == earlier
    assert points_of(rows) == planned(2, *LONG)
    assert sorted({row.attempt for row in rows}) == list(range(len(kept) + 1))
    assert status()[0] == "done"


@pytest.mark.job
def test_a_size_that_one_rank_has_no_memory_for_is_a_row_and_the_sweep_goes_on(tmp_path: Path) -> None:
    # data and anonymous memory of rank 1 alone: what the machine has free would do for both ranks
    (tmp_path / "sitecustomize.py").write_text(
        "import os, resource\n"
        "if os.environ.get('RANK') == '1': resource.setrlimit(resource.RLIMIT_DATA, (5 << 29, 5 << 29))\n"
    )
    axes = ("sizes=[8B,64KiB,3GiB]", "operations=[all_reduce,all_gather]", "budget_s=0.01")
    code, said = finish(start(tmp_path, "one", 2, *axes, beside=tmp_path), within_s=60)
    assert code == 0, said
    rows = rows_of(tmp_path, "one")
    assert points_of(rows) == planned(2, *axes)
    for row in rows:
        assert row.status == ("out_of_memory" if row.bytes == 3 << 30 else "measured")
    assert {row.reason for row in rows if row.bytes == 3 << 30} == {f"{3 << 30} B do not fit into every rank's memory"}
