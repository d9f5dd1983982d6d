"""One row a point in sweep.jsonl, also where the thread that watches gives up a point that comes back just then."""

import threading
from pathlib import Path

from scalescope.collectives.plan import PlannedPoint
from scalescope.collectives.row_recorder import RowRecorder
from scalescope.records.folder import RunFolder
from scalescope.records.sink import Sinks
from tests.collectives_runs import planned


def recorder_in(path: Path) -> tuple[RowRecorder, RunFolder]:
    folder = RunFolder(path)
    return RowRecorder(folder, Sinks(), attempt=3), folder


def points() -> list[PlannedPoint]:
    return planned(2, "sizes=[8B,64B]")


def test_a_point_that_came_back_is_not_given_up_as_well(tmp_path: Path) -> None:
    recorder, folder = recorder_in(tmp_path)
    one, _ = points()
    recorder.keep(one.row(status="measured", time_us=1.0))
    recorder.close(one.row(status="failed", reason="did not return"))
    assert [(row.status, row.attempt) for row in folder.read_sweep()] == [("measured", 3)]


def test_no_row_follows_the_one_that_was_given_up(tmp_path: Path) -> None:
    recorder, folder = recorder_in(tmp_path)
    one, other = points()
    recorder.close(one.row(status="failed", reason="did not return"))
    for point in (one, other):
        late = threading.Thread(target=recorder.keep, args=(point.row(status="measured", time_us=1.0),), daemon=True)
        late.start()
        late.join(0.2)
        assert late.is_alive(), "the working thread waits for the process's end"
    assert [(row.status, row.bytes) for row in folder.read_sweep()] == [("failed", 8)]
