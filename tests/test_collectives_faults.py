"""What ends a sweep early, one after another on one sweep: no row is lost or doubled, and the end comes soon."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collectives_runs import await_rows, finish, folder_of, planned, points_of, process_of, rows_of, start

LONG = ("sizes=8B..64KiB x2", "group_sizes=[2,3]", "budget_s=0.15", "percentile_iterations=2", "hang_limit_s=2")


def test_killed_stopped_and_interrupted_a_sweep_keeps_its_rows_and_finishes(tmp_path: Path) -> None:
    kept = []

    job = start(tmp_path, "one", 3, *LONG)
    await_rows(job, tmp_path, "one", least=3)
    os.kill(process_of(job, rank=1), signal.SIGKILL)
    code, said = finish(job, within_s=20)
    kept.append(rows_of(tmp_path, "one"))
    assert code == 3 and "what was measured" in said
    assert len(kept[0]) >= 3 and all(row.status == "measured" for row in kept[0])
    assert folder_of(tmp_path, "one").read_info().status == "failed"

    job = start(tmp_path, "one", 3, *LONG, "resume=true")
    await_rows(job, tmp_path, "one", least=len(kept[0]) + 2)
    stopped = process_of(job, rank=1)
    os.kill(stopped, signal.SIGSTOP)
    code, said = finish(job, within_s=30)
    kept.append(rows_of(tmp_path, "one"))
    assert code == 3, said
    message = folder_of(tmp_path, "one").read_info().message or ""
    assert f"rank 1 (process {stopped} on" in message and "does not respond" in message
    assert "all_reduce of" in message and "over ranks [0, 1]" in message and "within 2 s" in message
    assert kept[1][-1].status == "failed" and kept[1][-1].reason == message
    assert (tmp_path / "one" / "logs" / "rank0.hang.txt").stat().st_size > 0
    assert (tmp_path / "one" / "flight_recorder" / "rank0.pickle").stat().st_size > 0
    assert not Path(f"/proc/{stopped}").exists(), "a stopped rank does not stay behind"

    job = start(tmp_path, "one", 3, *LONG, "resume=true")
    await_rows(job, tmp_path, "one", least=len(kept[1]) + 2)
    os.killpg(job.pid, signal.SIGINT)  # as Ctrl-C in a terminal: everyone in the foreground gets it
    code, said = finish(job, within_s=20)
    kept.append(rows_of(tmp_path, "one"))
    assert code == 3, said
    assert folder_of(tmp_path, "one").read_info().status == "interrupted"

    code, said = finish(start(tmp_path, "one", 3, *LONG, "resume=true"), within_s=60)
    assert code == 0, said
    rows = rows_of(tmp_path, "one")
    for earlier in kept:
        assert rows[: len(earlier)] == earlier
    assert points_of(rows) == planned(3, *LONG)
    assert sorted({row.attempt for row in rows}) == [0, 1, 2, 3]
    assert folder_of(tmp_path, "one").read_info().status == "done"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that is full after a few rows."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "scalescope-test", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a file system needs root")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_keeps_whole_rows_and_room_lets_it_go_on(small_disk: Path) -> None:
    job = start(small_disk, "full", 2, *LONG[:1], "group_sizes=[2]", *LONG[2:])
    await_rows(job, small_disk, "full", least=2)
    fill = small_disk / "somebody-elses"
    with fill.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    started = time.monotonic()
    code, said = finish(job, within_s=60)
    assert code == 3 and time.monotonic() - started < 40, said
    assert "No space left" in said
    kept = rows_of(small_disk, "full")
    assert len(kept) >= 2 and all(row.status == "measured" for row in kept)

    fill.unlink()
    code, said = finish(start(small_disk, "full", 2, *LONG[:1], "group_sizes=[2]", *LONG[2:], "resume=true"), 60)
    assert code == 0, said
    rows = rows_of(small_disk, "full")
    assert rows[: len(kept)] == kept
    assert points_of(rows) == planned(2, *LONG[:1], "group_sizes=[2]")
