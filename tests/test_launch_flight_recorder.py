"""What a rank that leaves keeps of torch's flight recorders: one for NCCL, in builds for CUDA, and one for gloo."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from scalescope.launch.watch import flight_recorder
from scalescope.records.folder import RunFolder
from scalescope.scaling.verdicts.flight import read_flight, read_plain


def recorder(group: str, description: str, *states: bool) -> Callable[[], bytes]:
    """Return what torch's dump would: calls of one group, each with whether it has ended."""
    entries = [
        {"process_group": (group, description), "collective_seq_id": number, "profiling_name": "gloo:all_reduce",
         "state": "scheduled", "retired": ended, "input_sizes": [[120_576]], "input_dtypes": ["Float"]}
        for number, ended in enumerate(states, start=1)
    ]  # fmt: skip
    groups = {group: {"name": group, "desc": description, "ranks": "[0, 1]"}} if entries else {}
    dump: dict[str, object] = {"version": "2.10", "pg_config": groups, "pg_status": {}}
    return lambda: pickle.dumps(dump | ({"entries": entries} if entries else {}), protocol=2)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what this build's recorders hold; None where it has none of that name."""

    def hold(nccl: Callable[[], bytes] | None, host: Callable[[], bytes] | None) -> None:
        for name, dump in (("_dump_nccl_trace", nccl), ("_dump_fr_trace", host)):
            monkeypatch.delattr(torch._C._distributed_c10d, name, raising=False)
            if dump is not None:
                monkeypatch.setattr(torch._C._distributed_c10d, name, dump, raising=False)

    return hold


GLOO = recorder("0", "default_pg", True, True, False)
HANGS = ("group 0 (default_pg): every rank recorded called collective number 3, all_reduce of 120,576 float; it did "
         "not end on rank 0")  # fmt: skip


def test_a_build_for_cuda_keeps_what_a_job_over_gloo_hangs_in(library: Callable[..., None], tmp_path: Path) -> None:
    """Told wrongly: nothing of the third all_reduce, of 120,576 elements. NCCL's recorder, which holds no call of such
    a job, was kept instead, on every build for CUDA."""
    library(recorder("0", "default_pg"), GLOO)
    flight_recorder.keep(RunFolder(tmp_path), 0)
    (last,), said = read_flight(RunFolder(tmp_path), world_size=2)
    assert said == ["no flight record of rank 1: stopped or dead before it could be kept", HANGS]
    assert (last.number, last.ended) == (3, False)


def test_a_job_over_nccl_that_hangs_in_a_group_over_gloo(library: Callable[..., None], tmp_path: Path) -> None:
    """Told wrongly: that all had ended. The group over gloo, in whose second call the rank stood, was left out."""
    library(recorder("0", "default_pg", True, True), recorder("1", "undefined", True, False))
    flight_recorder.keep(RunFolder(tmp_path), 0)
    last, said = read_flight(RunFolder(tmp_path), world_size=1)
    assert [line.partition(":")[0] for line in said if "did not end on rank 0" in line] == ["group 1"]
    assert [(one.group, one.number, one.ended) for one in last] == [
        ("group 0 (default_pg)", 2, True), ("group 1", 2, False)
    ]  # fmt: skip
    kept = read_plain((RunFolder(tmp_path).flight_recorder / "rank0.pickle").read_bytes())
    assert kept["pg_config"].keys() == {"0", "1"} and kept["version"] == "2.10"


def test_a_build_without_cuda_has_one_recorder(library: Callable[..., None], tmp_path: Path) -> None:
    library(None, GLOO)
    flight_recorder.keep(RunFolder(tmp_path), 0)
    assert (RunFolder(tmp_path).flight_recorder / "rank0.pickle").read_bytes() == GLOO()


def test_a_build_without_a_recorder_keeps_nothing(library: Callable[..., None], tmp_path: Path) -> None:
    library(None, None)
    flight_recorder.keep(RunFolder(tmp_path), 0)
    assert not RunFolder(tmp_path).flight_recorder.exists()
