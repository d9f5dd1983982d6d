"""Flight records: what the ranks called last, where they part, and that a record can run nothing.

Those in data/flight_records_h200x2 are NCCL's own, of two ranks on two H200s (torch 2.11, 50 entries): `healthy` as a
job dumped them itself, the others as the watchdog left them when a collective had hung for 10 s. Of the paths in them
the one that leads to torch's installation is cut.
"""

import os
import pickle
from pathlib import Path

import pytest

from scalescope.cli.analyze import run as analyze_verb
from scalescope.records.folder import RunFolder
from scalescope.scaling.verdicts.flight import read_flight, read_plain, read_records


def entry(number: int, operation: str = "all_reduce", ended: bool = True) -> dict[str, object]:
    """One call, as torch 2.13 records it."""
    frames = [
        {"name": "all_reduce", "filename": "/site/torch/distributed/distributed_c10d.py", "line": 3000},
        {"name": "train", "filename": "/home/me/my_job.py", "line": 42},
    ]
    return {
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number,
        "p2p_seq_id": 0, "op_id": number, "profiling_name": f"nccl:{operation}", "time_created_ns": 1,
        "input_sizes": [[4, 256]], "input_dtypes": ["Float"], "output_sizes": [[4, 256]], "output_dtypes": ["Float"],
        "state": "completed" if ended else "started", "retired": ended, "timeout_ms": 600000, "is_p2p": False,
        "frames": frames,
    }  # fmt: skip


def folder_with(tmp_path: Path, records: dict[int, list[dict[str, object]]]) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.flight_recorder.mkdir()
    for rank, entries in records.items():
        dump = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": entries}
        (folder.flight_recorder / f"rank{rank}.pickle").write_bytes(pickle.dumps(dump, protocol=2))
    return folder


def test_a_rank_that_never_called_a_collective_is_named_with_the_line_the_others_came_from(tmp_path: Path) -> None:
    records = {0: [entry(1), entry(2), entry(3, ended=False)], 1: [entry(1), entry(2)], 2: [entry(1), entry(2)]}
    last, (line,) = read_flight(folder_with(tmp_path, records), world_size=3)
    assert line == (
        "group 0 (default_pg): ranks 1, 2 never called collective number 3; rank 0 came to number 3, "
        "all_reduce of 1,024 float, called from /home/me/my_job.py:42 (train)"
    )
    assert [(one.rank, one.number, one.ended) for one in last] == [(0, 3, False), (1, 2, True), (2, 2, True)]


def test_a_collective_that_all_called_and_some_did_not_end(tmp_path: Path) -> None:
    _, (line,) = read_flight(folder_with(tmp_path, {0: [entry(5)], 1: [entry(5, ended=False)]}), world_size=2)
    assert "every rank recorded called collective number 5" in line and "did not end on rank 1" in line


def test_ranks_that_called_different_collectives(tmp_path: Path) -> None:
    records = {0: [entry(1), entry(2)], 1: [entry(1), entry(2, "all_gather")]}
    _, (line,) = read_flight(folder_with(tmp_path, records), world_size=2)
    assert "different collectives as number 2: rank 0 all_reduce" in line and "rank 1 all_gather" in line


def test_a_rank_without_a_record_is_missed(tmp_path: Path) -> None:
    _, said = read_flight(folder_with(tmp_path, {0: [entry(1)]}), world_size=2)
    assert said == ["no flight record of rank 1: stopped or dead before it could be kept"]


def test_a_good_run_has_nothing_to_say(tmp_path: Path) -> None:
    assert read_flight(RunFolder(tmp_path), world_size=2) == ([], [])


def records(folder: Path, names: str, of_ranks: dict[int, list[dict[str, object]]]) -> Path:
    """A folder as torch's watchdog leaves it, of a job of four ranks that nobody recorded for us."""
    folder.mkdir()
    for rank, entries in of_ranks.items():
        dump = {"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
                "pg_status": {}, "entries": entries}  # fmt: skip
        (folder / names.format(rank)).write_bytes(pickle.dumps(dump, protocol=2))
    return folder


@pytest.mark.parametrize("names", ["nccl_trace_rank_{}", "comm_lib_trace_rank_{}", "job7.rank{}.pkl"])
def test_anybodys_records_say_who_is_missing_from_what(
    names: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {0: [entry(1), entry(2, ended=False)], 1: [entry(1)]}
    assert analyze_verb([str(records(tmp_path / "dumps", names, made))]) == 0
    text = capsys.readouterr().out
    assert "no flight record of rank 2" in text
    assert "rank 1 never called collective number 2; rank 0 came to number 2, all_reduce of 1,024 float" in text
    assert "rank 0, group 0 (default_pg): last number 2" in text and "my_job.py:42" in text


def test_sizes_that_differ_where_they_must_not(tmp_path: Path) -> None:
    smaller = entry(2) | {"input_sizes": [[4, 128]]}
    _, said = read_records(
        records(tmp_path / "dumps", "nccl_trace_rank_{}", {0: [entry(2)], 1: [smaller], 2: [entry(2)]})
    )
    assert said == [
        "group 0 (default_pg): the ranks called different collectives as number 2: rank 0 all_reduce of 1,024 float, "
        "rank 1 all_reduce of 512 float, rank 2 all_reduce of 1,024 float"
    ]
    uneven = entry(2, "all_to_all") | {"input_sizes": [[4, 128]]}
    sound = {0: [entry(2, "all_to_all")], 1: [uneven], 2: [uneven]}
    assert read_records(records(tmp_path / "uneven", "nccl_trace_rank_{}", sound))[1] == []


class Harmful:
    """What a stranger may put into a run folder."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.mkdir, (str(self.proof),)


def test_a_record_that_would_run_code_is_refused_and_named(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, {0: [entry(1)]})
    (folder.flight_recorder / "rank1.pickle").write_bytes(pickle.dumps(Harmful(tmp_path / "proof")))
    _, said = read_flight(folder, world_size=2)
    assert not (tmp_path / "proof").exists()
    assert any("flight_recorder/rank1.pickle is left out: it wants to load posix.mkdir" in line for line in said)


@pytest.mark.parametrize("data", [b"", b"\x80\x02}q\x01(", b"hello", pickle.dumps([1, 2])[:-3], b"\x80\x05\x8c\xff"])
def test_a_damaged_record_is_said_to_be_damaged(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(pickle.UnpicklingError):
        read_plain(data)
    folder = folder_with(tmp_path, {0: [entry(1)]})
    (folder.flight_recorder / "rank1.pickle").write_bytes(data)
    assert any("rank1.pickle is left out" in line for line in read_flight(folder, world_size=2)[1])


REAL = Path(__file__).parent / "data" / "flight_records_h200x2"


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("missing", "rank 1 never called collective number 3; rank 0 came to number 3, all_reduce of 1,024 float, "
         "called from /opt/job/flight_job.py:61 (main)"),
        ("sizes", "the ranks called different collectives as number 3: rank 0 all_reduce of 4,096 float, rank 1 "
         "all_reduce of 2,048 float"),
        ("operations", "the ranks called different collectives as number 3: rank 0 all_reduce of 1,024 float, rank 1 "
         "all_gather of 1,024 float"),
    ],
)  # fmt: skip
def test_nccls_own_records_say_where_the_ranks_part(case: str, sentence: str) -> None:
    last, said = read_records(REAL / case)
    assert said == [f"group 0 (default_pg): {sentence}"]
    hanging = [(one.rank, one.group, one.number) for one in last if not one.ended]
    assert (
        hanging
        == {
            "missing": [(0, "group 0 (default_pg)", 3)],
            "sizes": [(0, "group 0 (default_pg)", 4)],
            "operations": [(0, "group 0 (default_pg)", 3), (1, "group 0 (default_pg)", 3)],
        }[case]
    )


def test_nccls_own_records_of_a_good_job_have_nothing_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    """Among its entries are a send and a receive that were handed over together, which alone never end."""
    assert analyze_verb([str(REAL / "healthy")]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("every rank recorded came as far as the others") and len(rows) == 4
    assert "rank 0, group 0 (default_pg): last number 4, barrier of 1 float, ended" in rows[0]
    assert "rank 0, group 1 (sharding): last number 3, reduce_scatter of 1,024 float, ended" in rows[1]


def real_entries(rank: int) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = read_plain((REAL / "healthy" / f"nccl_trace_rank_{rank}").read_bytes())[
        "entries"
    ]
    return entries


def test_sends_between_two_of_three_ranks_are_no_other_collective(tmp_path: Path) -> None:
    """Real entries: after broadcast number 3 two ranks exchange something, which has no number of its own."""
    of_ranks = {rank: real_entries(rank) for rank in (0, 1)}
    transfers = ("send", "recv", "coalesced")
    of_ranks[2] = [one for one in real_entries(0) if not str(one["profiling_name"])[5:].startswith(transfers)]
    assert len(of_ranks[2]) == len(of_ranks[0]) - 3
    assert read_records(records(tmp_path / "dumps", "nccl_trace_rank_{}", of_ranks))[1] == []


def test_sends_and_receives_that_did_not_end_are_named(tmp_path: Path) -> None:
    """The real entries up to the exchange, on a rank whose partner never came."""
    entries = real_entries(0)[:9]
    assert entries[-1]["profiling_name"] == "nccl:coalesced"
    stuck = [*entries[:-1], entries[-1] | {"state": "scheduled", "retired": False}]
    partner = real_entries(1)[:6]
    of_ranks = {0: stuck, 1: partner, 2: partner}
    _, said = read_records(records(tmp_path / "dumps", "nccl_trace_rank_{}", of_ranks))
    assert [line.partition(", called from")[0] for line in said] == [
        "rank 0, group 0 (default_pg): send 0->1 of 256 float did not end",
        "rank 0, group 0 (default_pg): recv 0<-1 of 256 float did not end",
    ]


def test_collectives_that_were_handed_over_together_are_told_by_the_first_of_them(tmp_path: Path) -> None:
    """As torch records two all-gathers in one `_coalescing_manager`: one number, and whether they ended after both."""
    gather = entry(2, "_all_gather_base", ended=False) | {"state": "scheduled"}
    together = entry(2, "coalesced") | {"input_sizes": [], "input_dtypes": []}
    sound = [entry(1), gather, gather, together]
    last, said = read_records(records(tmp_path / "dumps", "nccl_trace_rank_{}", dict.fromkeys(range(3), sound)))
    assert said == []
    assert {(one.operation, one.number, one.ended) for one in last} == {("all_gather", 2, True)}
