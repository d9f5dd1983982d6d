"""A pipe or a device where a file should be is refused or left out, and neither waited for nor read for ever."""

import os
import shutil
import time
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from scalescope.report.drawing import panel
from tests.faults import FAULTS
from tests.fuzz.subjects import said_by
from tests.report_samples import write_run

DATA = Path(__file__).resolve().parent / "data"
PLACES = ("run.json", "config.yaml", "facts.json", "steps.jsonl", "sweep.jsonl", "analysis.json",
          "traces/rank0.10.pt.trace.json.gz", "traces/rank1.10.pt.trace.json.gz",
          "flight_recorder/rank0.pickle")  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A failed run of two ranks, with traces."""
    run = write_run(tmp_path_factory.mktemp("whole") / "run", 2)
    run.traces.mkdir()
    for rank, trace in enumerate(sorted((DATA / "cpu_threads_n2").glob("rank*.gz"))):
        shutil.copy(trace, run.trace_of(rank, 10))
    run.flight_recorder.mkdir()
    run.set_status("failed", "rank 1 has died")
    return run


@pytest.mark.timeout(180)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_what_is_no_file_holds_nobody_up(
    kind: str, place: str, whole: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "a device":  # charts take half of the time, and read no file
        monkeypatch.setattr(panel, "can_draw", lambda: False)
    run = Path(shutil.copytree(whole.path, tmp_path / "run"))
    at = run / place
    at.unlink(missing_ok=True)
    if kind == "a pipe":
        os.mkfifo(at)
    elif kind == "a folder":
        at.mkdir()
    else:
        at.symlink_to("/dev/zero" if kind == "a device" else "/nowhere")
    packed = str(tmp_path / "all.json.gz")
    since = time.monotonic()
    for words in (["analyze", str(run)], ["compare", str(run), str(run)], ["perfetto", str(run), "--out", packed]):
        code, said = said_by(words)
        assert code in (0, 2, 3) and "this is a defect" not in said, (words[0], said)
        assert code == 0 or said.count("\n") <= 3, said
    assert time.monotonic() - since < FAULTS["no_file"].within_s
