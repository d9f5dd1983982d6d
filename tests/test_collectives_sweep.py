"""A sweep on real processes: what its rows hold, and that every planned point has exactly one."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from scalescope.collectives.operations import OPERATIONS
from scalescope.collectives.plan import PlannedPoint
from scalescope.records.rows import SweepRow
from tests.collectives_runs import finish, folder_of, planned, points_of, rows_of, start, sweep_in_world
from tests.made_once import made_once

QUICK = ("min_iterations=5", "budget_s=0.002", "warmup_iterations=1", "percentile_iterations=3")
AXES = (
    f"operations=[{','.join(OPERATIONS)}]",
    "sizes=[8B,40KiB,4096GiB]",
    "dtypes=[float32,bfloat16,float8_e4m3fn]",
    "modes=[in_place,out_of_place]",
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[SweepRow], str]:
    """Every operation and mode over 2 and 3 of three ranks, in one launch."""

    def make(runs: Path) -> None:
        code, said = finish(start(runs, "all", 3, *AXES, *QUICK), within_s=90)
        assert code == 0, said
        (runs / "said.txt").write_text(said)

    runs = made_once(tmp_path_factory, "swept", make)
    return runs, rows_of(runs, "all"), (runs / "said.txt").read_text()


@pytest.mark.job
def test_every_planned_point_is_exactly_one_row(swept: tuple[Path, list[SweepRow], str]) -> None:
    _, rows, _ = swept
    assert points_of(rows) == planned(3, *AXES)


@pytest.mark.job
def test_all_operations_of_all_sizes_and_modes_are_right_in_every_element(
    swept: tuple[Path, list[SweepRow], str],
) -> None:
    _are_right(swept[1])


def test_all_operations_are_right_in_every_element(tmp_path: Path) -> None:
    axes = (AXES[0], "sizes=[40KiB]", AXES[2], "modes=[in_place,out_of_place]", "group_sizes=[3]")
    code, said = sweep_in_world(tmp_path, "right", 3, *axes, *QUICK)
    assert code == 0, said
    _are_right(rows_of(tmp_path, "right"))


def _are_right(rows: list[SweepRow]) -> None:
    measured = [row for row in rows if row.status == "measured"]
    assert {row.operation for row in measured} == set(OPERATIONS)
    assert all(row.wrong == 0 for row in measured if OPERATIONS[row.operation].moves_data)
    for row in measured:
        if row.dtype in ("float32", "bfloat16"):
            continue
        assert row.dtype == "none" or not OPERATIONS[row.operation].facts.reduces


@pytest.mark.job
def test_a_sweep_that_can_measure_nothing_fails_with_the_reason_and_keeps_its_rows(tmp_path: Path) -> None:
    for more in ((), ("resume=true",)):
        code, said = sweep_in_world(tmp_path, "none", 2, "sizes=[8B,64B]", "algorithm=Ring", *QUICK, *more)
        assert code == 3, said
        reason = "no point of the sweep could be measured: gloo cannot be told an algorithm, a protocol or channels"
        assert reason in said and "Traceback" not in said
        info = folder_of(tmp_path, "none").read_info()
        assert (info.status, info.message) == ("failed", reason)
        assert [row.status for row in rows_of(tmp_path, "none")] == ["not_available", "not_available"]


@pytest.mark.job
def test_a_sweep_that_measured_some_points_is_fine_and_still_is_with_nothing_left_to_do(tmp_path: Path) -> None:
    argv = ("sizes=[8B]", "modes=[in_place,out_of_place]", *QUICK)
    for more in ((), ("resume=true",)):
        code, said = finish(start(tmp_path, "some", 2, *argv, *more), within_s=90)
        assert code == 0, said
        assert folder_of(tmp_path, "some").read_info().status == "done"
        assert [row.status for row in rows_of(tmp_path, "some")] == ["measured", "not_available"]


@pytest.mark.job
def test_what_cannot_run_is_a_row_with_its_reason(swept: tuple[Path, list[SweepRow], str]) -> None:
    _, rows, _ = swept
    reasons = {(row.operation, row.mode, row.dtype): row.reason for row in rows if row.status == "not_available"}
    assert reasons["all_to_all", "in_place", "float32"] == (
        "all_to_all needs a buffer to send from and another to receive into"
    )
    assert reasons["all_reduce", "out_of_place", "float32"] == "torch.distributed's all_reduce works in place only"
    assert "gloo" in (reasons["all_reduce", "in_place", "float8_e4m3fn"] or "")
    assert all(row.reason for row in rows if row.status != "measured")


@pytest.mark.job
def test_bus_bandwidth_follows_from_size_and_time(swept: tuple[Path, list[SweepRow], str]) -> None:
    _, rows, _ = swept
    for row in rows:
        if row.status != "measured":
            continue
        low, high = row.interval_us or (0, 0)
        assert row.time_us and low <= row.time_us <= high and row.iterations >= 2 and row.stopped_by
        assert row.issued_by == "python"  # as torch.distributed's calls are in training
        assert row.time_min_us and row.time_p50_us and row.time_max_us
        assert row.time_min_us <= row.time_p50_us <= row.time_max_us
        if row.operation == "all_reduce":
            n = row.group_size
            assert row.bus_gb_s == pytest.approx(row.bytes / row.time_us / 1e3 * 2 * (n - 1) / n)
        if row.operation == "barrier":
            assert row.bytes == 0 and row.bus_gb_s is None and row.wrong is None


@pytest.mark.job
def test_progress_is_a_line_a_row_where_there_is_no_terminal(swept: tuple[Path, list[SweepRow], str]) -> None:
    _, rows, said = swept
    lines = [line for line in said.splitlines() if line.strip()[:1].isdigit()]
    assert len(lines) >= len(rows)
    assert "busbw" in said and "\x1b[" not in said


@pytest.mark.job
def test_going_on_with_other_settings_is_refused(swept: tuple[Path, list[SweepRow], str]) -> None:
    runs, _, _ = swept
    code, said = finish(start(runs, "all", 3, *AXES, *QUICK, "resume=true", "seed=7"), within_s=60)
    assert code == 2 and "seed: 7" in said and "another config" in said


@pytest.mark.job
def test_a_size_that_does_not_fit_is_a_row_and_the_sweep_goes_on(swept: tuple[Path, list[SweepRow], str]) -> None:
    _, rows, _ = swept
    huge = [row for row in rows if row.bytes > 1 << 40]
    assert huge and {row.status for row in huge} == {"out_of_memory"}
    assert rows.index(huge[0]) < rows.index([row for row in rows if row.status == "measured"][-1])


def test_a_row_and_its_point_are_the_same_key() -> None:
    for point in planned(4, "operations=[reduce,send_recv,barrier]", "sizes=[8B]"):
        row = point.row(status="measured", time_us=1.0)
        assert PlannedPoint.of(msgspec.json.decode(msgspec.json.encode(row), type=SweepRow)) == point


@pytest.mark.job
def test_what_waits_on_the_host_is_captured_by_no_graph(tmp_path: Path) -> None:
    """On a GPU a capture that fails leaves its stream and torch's allocator behind, so it is not tried."""
    axes = ("operations=[barrier,all_reduce]", "sizes=[8B]", "execution=[graph,eager]")
    code, said = sweep_in_world(tmp_path, "graphs", 2, *axes, *QUICK)
    assert code == 0, said
    reported = {(row.operation, row.execution): row.reason or row.status for row in rows_of(tmp_path, "graphs")}
    assert "waits on the host" in reported.pop(("barrier", "graph")) and "run on CPUs" in reported.pop(
        ("all_reduce", "graph")
    )
    assert reported == {("barrier", "eager"): "measured", ("all_reduce", "eager"): "measured"}


@pytest.mark.job
def test_mpi_moves_host_buffers_with_the_same_checks(tmp_path: Path) -> None:
    axes = ("sizes=[8B,40KiB]", f"operations=[{','.join(OPERATIONS)}]", "dtypes=[float32,bfloat16]", "transport=mpi")
    command = [
        str(Path(sys.executable).parent / "mpirun"),
        "-n",
        "3",
        sys.executable,
        "-m",
        "scalescope",
        "sweep",
        "transport=mpi",
        "launch.backend=gloo",
        "launch.device=cpu",
    ]
    done = subprocess.run(
        [*command, f"runs={tmp_path}", "name=mpi", "logger=none", *axes[:3], *QUICK],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(tmp_path, "mpi")
    assert points_of(rows) == planned(3, *axes)
    measured = [row for row in rows if row.status == "measured"]
    assert {row.operation for row in measured} == set(OPERATIONS)
    assert all(row.wrong == 0 for row in measured if row.operation != "barrier")
    assert {row.reason for row in rows if row.status != "measured"} == {"MPI cannot reduce torch.bfloat16"}


@pytest.mark.job
def test_mpi_without_mpirun_says_what_to_do(tmp_path: Path) -> None:
    code, said = finish(start(tmp_path, "x", 2, "launch.backend=mpi"), within_s=30)
    assert code == 2 and "mpirun -n 4" in said and not (tmp_path / "x").exists()
