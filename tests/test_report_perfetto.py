"""The Perfetto file holds every rank's events on one clock, under names that say the rank, with waits marked."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scalescope.records.errors import UserError
from scalescope.report.perfetto import Packed, base_ns, write_perfetto
from scalescope.scaling.analyze import analyze_run
from scalescope.scaling.answer import Straggler
from tests.trace_json import unpacked

DATA = Path(__file__).parent / "data" / "gpt_ddp_n2"
PHASES = {"B", "E", "X", "i", "I", "M", "s", "t", "f", "C", "b", "e", "n", "P"}


def load(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return events


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Packed, list[dict[str, Any]]]:
    answer = analyze_run(DATA)
    marked = msgspec.structs.replace(answer, stragglers=[Straggler(rank=1, lost_ms=8.0, verdict="slower compute")])
    done = write_perfetto(DATA, tmp_path_factory.mktemp("perfetto") / "all.json.gz", marked)
    return done, load(done.path)


def processes(events: list[dict[str, Any]]) -> dict[int, str]:
    return {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}


def test_no_event_of_any_rank_is_lost(packed: tuple[Packed, list[dict[str, Any]]]) -> None:
    done, events = packed
    names = processes(events)
    for rank in (0, 1):
        original = load(DATA / f"rank{rank}.json.gz")
        kept = [event for event in original if event["ph"] != "M"]
        own = {pid for pid, name in names.items() if name.startswith(f"rank {rank} ·") and "collectives" not in name}
        ours = [event for event in events if event["pid"] in own and event["ph"] != "M"]
        assert done.events[rank] == len(kept) == len(ours) and done.unreadable[rank] == 0
        assert Counter(event["name"] for event in ours) == Counter(event["name"] for event in kept)
        assert sum(event.get("dur", 0) for event in ours) == pytest.approx(sum(event.get("dur", 0) for event in kept))


def test_it_is_valid_trace_event_json(packed: tuple[Packed, list[dict[str, Any]]]) -> None:
    _, events = packed
    for event in events:
        assert event["ph"] in PHASES and isinstance(event["name"], str)
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert 0 <= event["pid"] < 2**31 and 0 <= event["tid"] < 2**32
        assert event["ph"] == "M" or event["ts"] > 0
        assert event["ph"] != "X" or event["dur"] >= 0
        assert event["ph"] not in ("s", "f") or isinstance(event["id"], int)


def test_processes_are_named_by_rank_and_none_is_shared(packed: tuple[Packed, list[dict[str, Any]]]) -> None:
    _, events = packed
    names = processes(events)
    assert {"rank 0 · CPU", "rank 0 · GPU 0", "rank 1 · CPU", "rank 1 · GPU 1", "rank 0 · collectives"} <= set(
        names.values()
    )
    assert not any("GPU 5" in name for name in names.values()), "devices that did nothing are left out"
    used = {event["pid"] for event in events if event["ph"] == "X"}
    assert used <= set(names)
    order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    by_rank = [sorted(order[pid] for pid, name in names.items() if name.startswith(f"rank {rank}")) for rank in (0, 1)]
    assert by_rank[0][-1] < by_rank[1][0]


def test_every_flow_that_starts_in_a_rank_stays_there(packed: tuple[Packed, list[dict[str, Any]]]) -> None:
    _, events = packed
    names = processes(events)
    starts: dict[tuple[str, int], int] = {}
    for event in events:
        if event["ph"] == "s":
            assert (event["cat"], event["id"]) not in starts, "one id, one arrow"
            starts[event["cat"], event["id"]] = event["pid"]
    crossing = 0
    for event in events:
        if event["ph"] == "f" and (event["cat"], event["id"]) in starts:
            there = names[starts[event["cat"], event["id"]]].split(" · ")[0]
            here = names[event["pid"]].split(" · ")[0]
            assert (there == here) == (event["cat"] != "awaited")
            crossing += event["cat"] == "awaited"
    assert crossing > 10, "arrows from the rank that was awaited"


def test_a_collectives_ends_line_up_within_the_clocks_residual(packed: tuple[Packed, list[dict[str, Any]]]) -> None:
    _, events = packed
    names = processes(events)
    ends: dict[str, list[float]] = {}
    for event in events:
        if event.get("cat") == "collective" and event["name"].startswith("all_reduce"):
            ends.setdefault(names[event["pid"]], []).append(event["ts"] + event["dur"])
    first, second = (sorted(ends[f"rank {rank} · collectives"]) for rank in (0, 1))
    assert len(first) > 30
    apart = sorted(min(abs(end - other) for other in second) for end in first)
    assert apart[len(apart) // 2] < 50, "one host: tens of microseconds"


def test_waiting_and_transfer_fill_each_collective(packed: tuple[Packed, list[dict[str, Any]]]) -> None:
    _, events = packed
    marks = [event for event in events if event.get("cat") == "collective"]
    parts = sum(event["dur"] for event in marks if event["name"].startswith(("wait for", "transfer")))
    whole = [event for event in marks if event["name"].startswith("all_reduce")]
    matched = sum(event["dur"] for event in whole)
    assert 0.9 * matched < parts <= matched * 1.000001, "all but collectives cut off at the window's edge are split"


def test_a_straggler_is_marked_on_its_own_rank(packed: tuple[Packed, list[dict[str, Any]]]) -> None:
    _, events = packed
    (mark,) = (event for event in events if event.get("cat") == "straggler")
    assert processes(events)[mark["pid"]] == "rank 1 · collectives" and "slower compute" in mark["name"]


def test_traces_with_other_bases_and_broken_events_come_onto_one_clock(tmp_path: Path) -> None:
    """The second rank's times count from 50 ms later, and one of its names holds a raw newline."""
    own = DATA.parent / "cpu_ddp_n2"
    for rank in (0, 1):
        text = gzip.decompress((own / f"rank{rank}.3.pt.trace.json.gz").read_bytes())
        if rank == 1:
            base = base_ns(own / "rank1.3.pt.trace.json.gz")
            assert base > 10**18
            text = text.replace(str(base).encode(), str(base - 5 * 10**7).encode())
            text = text.replace(b'"name": "aten::add_"', b'"name": "aten::\nadd_"', 1)
            assert b"aten::\nadd_" in text
        (tmp_path / f"rank{rank}.json").write_bytes(text)
    done = write_perfetto(tmp_path)
    assert done.path == tmp_path / "perfetto.json.gz" and done.unreadable == {0: 0, 1: 0}
    events = load(done.path)
    names = processes(events)
    starts = {
        rank: min(e["ts"] for e in events if e["ph"] == "X" and names[e["pid"]] == f"rank {rank} · CPU")
        for rank in (0, 1)
    }
    assert starts[0] - starts[1] == pytest.approx(5e4, abs=1e4)


def test_a_file_that_is_no_trace_and_a_time_that_is_none_cost_the_others_nothing(tmp_path: Path) -> None:
    source = DATA / "rank0.json.gz"
    trace = unpacked(source)
    timed = [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
    for event, nonsense in zip(timed, ("abc", None, [1]), strict=False):
        event["ts"] = nonsense
    (tmp_path / "rank0.json").write_bytes(msgspec.json.encode(trace))
    (tmp_path / "rank1.json").write_text('{"results": []}')
    done = write_perfetto(tmp_path)
    assert done.unreadable == {0: 3} and done.events[0] > 30_000
    assert any("rank1.json is no Kineto trace" in reason for reason in done.reasons)


def test_a_bundle_goes_where_it_is_wanted_or_says_why_it_cannot(tmp_path: Path) -> None:
    assert write_perfetto(DATA, tmp_path / "new" / "folder" / "all.json.gz").path.is_file()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file/all\.json\.gz: .*give another file by --out"):
        write_perfetto(DATA, tmp_path / "file" / "all.json.gz")
