"""The table of others' traces: what is told and withheld of each file, and kinds held against operators."""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import public_traces  # noqa: E402


def test_each_file_has_a_row(tmp_path: Path) -> None:
    """Files of our own, placed as a copy of a repository would be."""
    place = tmp_path / "somebody+traces" / "tests"
    place.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "data" / "gather_ce_n2" / "rank0.json.gz", place / "rank0.json.gz")
    (place / "notes.json").write_text("{}")
    (place / "execution_details.json").write_text("{}")
    refused, row = (public_traces.row_of(path, tmp_path) for path in public_traces.files_of(tmp_path))
    assert refused.read.startswith("refused")
    assert row.name == "somebody/traces/tests/rank0.json.gz"
    assert row.read == "degraded, gpu" and row.steps == "3 by profiler"
    assert row.told.endswith("1.7 ms step") and row.withheld.startswith("wait and transfer apart, balance")
    assert row.other is not None and row.other < 0.01
    assert "| somebody/traces/tests/rank0.json.gz | degraded, gpu | 3 by profiler |" in public_traces.markdown([row])


def test_kinds_are_held_against_the_operators_that_launched_them(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "data" / "gather_ce_n2" / "rank0.json.gz", tmp_path / "rank0.json.gz")
    assert list(public_traces.disagreements(tmp_path)) == []
