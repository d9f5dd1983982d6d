"""Ranks' files of two windows of one job, mixed: never joined as if they were of the same steps."""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.report.verdict import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.ranks.jobs import split_jobs
from scalescope.scaling.ranks.summary import read_rank
from scalescope.scaling.run import explain_run
from scalescope.scaling.trace.sources import find_sources

DATA = Path(__file__).parent / "data"


def mixed(
    folder: Path,
    name: str,
    *,
    later_s: float = 0.0,
    steps: int = 0,
    host: str = "",
    calls: int | None = None,
    absolute: bool = True,
) -> Path:
    """Write a job's two ranks, rank 1's window later and its steps and collectives with higher numbers."""
    folder.mkdir(exist_ok=True)
    for rank in (0, 1):
        (source,) = (DATA / name).glob(f"rank{rank}*.json.gz")
        trace = json.loads(gzip.decompress(source.read_bytes()))
        numbered = calls or 0 if rank == 1 else 0
        if host:
            trace["host_name"] = host
        if not absolute:
            del trace["baseTimeNanoseconds"]
        for event in trace["traceEvents"]:
            number = re.fullmatch(r"ProfilerStep#(\d+)", str(event.get("name")))
            if number is not None and rank == 1:
                event["name"] = f"ProfilerStep#{int(number[1]) + steps}"
            arguments = event.get("args", {})
            if calls is not None and "Collective name" in arguments:
                arguments["Seq"] = numbered = numbered + 1
        if rank == 1 and absolute:
            trace["baseTimeNanoseconds"] += int(later_s * 1e9)
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    return folder


def found_in(folder: Path) -> list[int]:
    """Return how many ranks each job or window of a folder has."""
    return [len(one.ranks) for one in split_jobs([(source, read_rank(source.path)) for source in find_sources(folder)])]


def test_two_windows_are_analysed_each_for_itself_and_named(tmp_path: Path) -> None:
    folder = mixed(tmp_path / "mixed", "gather_sm_n2", later_s=3, steps=10)
    answers = [one for one in analyze([folder], jobs=1) if isinstance(one, RunAnalysis)]
    assert [one.name for one in answers] == ["mixed, window 1 of 2", "mixed, window 2 of 2"]
    assert [[rank.rank for rank in one.ranks] for one in answers] == [[0], [1]]
    assert all(one.quality.reasons[0].startswith("the folder holds the traces of 2 windows") for one in answers)
    assert "window 1 of 2 · 2 GPUs, rank 0 alone (no trace of rank 1): " in run_verdict(answers[0]).headline


@pytest.mark.parametrize(
    ("shift", "jobs"),
    [
        ({}, [2]),
        ({"later_s": 3.0}, [2]),  # two hosts' clocks may differ by so much
        ({"later_s": 0.001, "steps": 10}, [2]),  # they overlap: the ranks count their steps otherwise
        ({"later_s": 3.0, "steps": 10}, [1, 1]),
        ({"later_s": 3.0, "host": "node1"}, [1, 1]),
        ({"later_s": 0.001, "host": "node1"}, [2]),
        ({"absolute": False}, [2]),
        ({"absolute": False, "steps": 10}, [1, 1]),
        ({"later_s": 30.0}, [1, 1]),
    ],
)
def test_what_tells_windows_apart(shift: dict[str, float], jobs: list[int], tmp_path: Path) -> None:
    assert found_in(mixed(tmp_path / "m", "gather_sm_n2", **shift)) == jobs  # type: ignore[arg-type]


def test_collectives_without_one_in_common_tell_windows_apart(tmp_path: Path) -> None:
    assert found_in(mixed(tmp_path / "same", "gather_sm_n2", later_s=3.0, calls=0)) == [2]
    assert found_in(mixed(tmp_path / "later", "gather_sm_n2", later_s=3.0, calls=100_000)) == [1, 1]


def test_a_run_folder_of_two_windows_is_refused_and_so_is_comparing_one(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", "train", "{}\n")
    mixed(run.path / "traces", "gather_sm_n2", later_s=3, steps=10)
    with pytest.raises(UserError, match=r"2 windows that have no step in common .*give those of one window"):
        explain_run(run.path)
    with pytest.raises(UserError, match="2 windows that have no step in common"):
        compare_paths([DATA / "gather_sm_n2"], [shutil.copytree(run.path / "traces", tmp_path / "traces")])


def test_windows_whose_ranks_exchange_nothing_in_any_group_of_both_are_not_joined(tmp_path: Path) -> None:
    """Two pipelines that one job ran after another, in steps of the same numbers: one rank's file of each."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for rank, case in enumerate(("gpipe_slow", "interleaved")):
        shutil.copy(DATA / "pipelines_h200x2" / case / f"rank{rank}.4.pt.trace.json.gz", folder)
    assert found_in(folder) == [1, 1]
    (first, _) = [one for one in analyze([folder], jobs=1) if isinstance(one, RunAnalysis)]
    assert "window 1 of 2 · 2 GPUs, rank 0 alone (no trace of rank 1): " in run_verdict(first).headline
    for case in ("gpipe_slow", "interleaved"):
        assert found_in(DATA / "pipelines_h200x2" / case) == [2]
