"""Ranks that compute with more threads than there are cores: the run tells so, and that is the cause."""

import shutil
from pathlib import Path

import pytest

from scalescope.records.environment import core_list, cores_of
from scalescope.records.folder import RunFolder
from scalescope.records.rows import Device, Environment, RunInfo, Versions
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.findings.cores import CoreShare, core_share

JOB = Path(__file__).parent / "data" / "cpu_threads_n2"


def info(*ranks: Device, variables: dict[str, str] | None = None) -> RunInfo:
    found = RunInfo("train", "r", "done", 0.0, devices=list(ranks))
    found.environment = Environment("a", "Linux", "EPYC", 2, Versions("0", "3"), variables or {})
    return found


def rank(number: int, threads: int | None, cores: str | None, host: str = "a") -> Device:
    return Device(number, host, "cpu", "EPYC", threads=threads, cores=cores)


def test_threads_and_cores_are_counted_a_host() -> None:
    assert core_share(info(rank(0, 8, "0-1"), rank(1, 8, "0-1"))) == CoreShare(2, 16, 2)
    assert core_share(info(rank(0, 2, "0-1"), rank(1, 2, "2-3"))) == CoreShare(2, 4, 4), "each has its own"
    assert core_share(info(rank(0, 2, "0-1", "a"), rank(1, 2, "0-1", "b"))) == CoreShare(1, 2, 2)
    assert core_share(info(Device(0, "a", "cuda", "H200"))) is None


def test_older_runs_tell_by_the_variable_of_which_torch_takes_no_more_than_there_are_cores() -> None:
    old = (rank(0, None, None), rank(1, None, None))
    assert core_share(info(*old, variables={"OMP_NUM_THREADS": "8"})) == CoreShare(2, 4, 2)
    assert core_share(info(*old)) is None
    assert core_share(info(*old, variables={"OMP_NUM_THREADS": "four"})) is None


@pytest.mark.parametrize("launcher", ["mpi", "slurm"])
def test_older_runs_whose_ranks_may_each_have_had_their_own_cores_tell_nothing(launcher: str) -> None:
    """mpirun binds each of two ranks to a core: the first one's is not what both share."""
    bound = info(rank(0, None, None), rank(1, None, None), variables={"OMP_NUM_THREADS": "2"})
    bound.launcher = launcher
    assert core_share(bound) is None


def test_older_runs_tell_nothing_of_hosts_that_nobody_looked_at() -> None:
    elsewhere = info(rank(0, None, None, "b"), rank(1, None, None, "b"), variables={"OMP_NUM_THREADS": "2"})
    assert core_share(elsewhere) is None


@pytest.mark.parametrize("cores", [[0], [0, 1, 2, 3, 8], [1, 3, 5]])
def test_cores_are_listed_as_linux_does(cores: list[int]) -> None:
    assert cores_of(core_list(cores)) == cores


def test_what_is_no_list_has_no_cores() -> None:
    assert cores_of("") == cores_of("0-x") == cores_of("-1") == []
    assert cores_of("²") == cores_of("1-²") == cores_of("9" * 5000) == []  # digits, but no number


def verdict_of(path: Path, threads: int) -> tuple[RunAnalysis, str]:
    folder = RunFolder.create(path, "train", "what: job\n")
    ran = folder.read_info()
    ran.status, ran.world_size = "done", 2
    ran.devices = [rank(0, threads, "0-1"), rank(1, threads, "0-1")]
    folder.write_info(ran)
    shutil.copytree(JOB, folder.traces)
    (analysis,) = analyze([path], jobs=1)
    assert isinstance(analysis, RunAnalysis)
    return analysis, run_verdict(analysis).text


def test_two_ranks_of_two_threads_on_two_cores_are_told_and_no_rank_is_slower(tmp_path: Path) -> None:
    """Truth: with OMP_NUM_THREADS=8, of which torch takes 2, a step of 40 ms; with 1, of 2.3."""
    analysis, text = verdict_of(tmp_path / "over", 2)
    first = analysis.findings[0]
    assert (first.code, first.rank) == ("host_starved", None) and first.remedy is not None
    assert first.remedy.cure == "fewer_threads" and first.remedy.size == 1
    assert "starved hosts cost at least 3.6 ms" in text
    assert "the ranks compute with 4 threads on 2 cores, which take turns" in text
    assert "compute with no more threads than there are cores" in text
    assert all(one.rank is None for one in analysis.findings)


def test_as_many_threads_as_cores_are_no_cause(tmp_path: Path) -> None:
    analysis, text = verdict_of(tmp_path / "even", 1)
    assert all(one.remedy is None or one.remedy.cure != "fewer_threads" for one in analysis.findings)
    assert "take turns" not in text
