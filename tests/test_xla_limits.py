"""Profiles of XLA that hold more than they should, or less, or nobody's numbers: what they cost, and what is said."""

import tracemalloc
from pathlib import Path

import pytest

from scalescope.records.errors import UserError
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.trace.sources import find_sources
from scalescope.scaling.trace.xla import trace_json
from scalescope.scaling.trace.xla.hlo import collectives_of
from scalescope.scaling.trace.xla.xplane import read_xplane
from tests import xspace
from tests.trace_json import unpacked

DATA = Path(__file__).parent / "data" / "jax_h200x2"


def kernel_plane(device: int, begin: int = 0) -> xspace.Plane:
    plane = xspace.Plane(f"/device:GPU:{device}", begin=begin)
    for at in (1_001, 2_003):
        plane.add("Stream #7(Compute)", "fusion", at, 500, correlation_id=at)
    return plane


def write(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path


def peak_of_reading(path: Path) -> int:
    tracemalloc.start()
    read_xplane(path, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_operands_written_one_by_one_take_no_copies_of_those_before() -> None:
    """400,000 of them, 1.2 MB, copied one by one would be 640 GB to move: beyond the time any test has."""
    operands = xspace.member(36, 1) * 400_000
    reduces = xspace.instruction("all-reduce.1", "all-reduce", xspace.shape(11, 8), 2) + operands
    given = xspace.instruction("fusion.1", "fusion", xspace.shape(11, 8), 1)
    computation = xspace.member(5, 1) + xspace.member(2, given) + xspace.member(2, reduces)
    proto = xspace.member(1, xspace.member(3, computation))
    ((name, found),) = collectives_of(proto, 0, len(proto))
    assert name == "all-reduce.1" and found.in_elements == 3_200_000


def test_a_clique_that_many_events_join_is_kept_once(tmp_path: Path) -> None:
    host = xspace.Plane("/host:CPU")
    members = ",".join(map(str, range(500, 1_000)))
    for run in range(200):
        key = f"devices=500:[{members}]; run={run}"
        host.add("thread", "AcquireGpuClique", run, 1, clique_key=key, device=run)
    path = write(tmp_path / "one.xplane.pb", host.written(), kernel_plane(0).written())
    assert peak_of_reading(path) < 200 << 10  # 16 kB each were 3.2 MB
    assert len({id(one) for found in read_xplane(path, 0).cliques.values() for one in found}) == 1


def test_cliques_beyond_what_any_job_has_are_left_out_and_said(tmp_path: Path) -> None:
    host = xspace.Plane("/host:CPU")
    for number in range(1_100):
        host.add("thread", "AcquireGpuClique", number, 1, clique_key=f"devices=2:[0,{number + 1}]", device=0)
    found = read_xplane(write(tmp_path / "one.xplane.pb", host.written(), kernel_plane(0).written()), 0)
    assert len(found.cliques[0]) == 1_024
    assert [reason for reason in found.damage if "more than 1,024 cliques" in reason]


def test_a_profile_of_more_devices_than_a_process_has_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "one.xplane.pb", *(kernel_plane(device).written() for device in range(1_025)))
    with pytest.raises(UserError, match="holds 1,025 devices, and no process has more than 1,024"):
        explain_traces(find_sources(path), "", jobs=1)


@pytest.mark.parametrize(
    ("empty", "said"),
    [(b"\x1a\x00", "lines"), (b"\x32\x00", "lines"), (b"\x22\x02\x12\x00", "names")],
    ids=["lines", "own statistics", "names"],
)
def test_what_is_empty_takes_no_memory_without_end(
    tmp_path: Path, empty: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalescope.scaling.trace.xla.xplane._MOST_PARTS", 1_000)
    monkeypatch.setattr("scalescope.scaling.trace.xla.xplane._MOST_NAMES", 1_000)
    body = xspace.member(2, "/device:GPU:0") + empty * 20_000
    path = write(tmp_path / "one.xplane.pb", xspace.member(1, body))
    assert peak_of_reading(path) < 512 << 10
    assert any(said in reason for reason in read_xplane(path, 0).damage)


def test_an_event_has_only_so_many_statistics(tmp_path: Path) -> None:
    event = xspace.member(1, 1) + b"\x22\x00" * 50_000
    line = xspace.member(2, "Stream #1(Compute)") + xspace.member(4, event)
    named = xspace.member(4, xspace.member(1, 1) + xspace.member(2, xspace.member(2, "kernel")))
    path = write(tmp_path / "one.xplane.pb", xspace.member(1, xspace.member(2, "/device:GPU:0")
                 + xspace.member(3, line) + named))  # fmt: skip
    assert peak_of_reading(path) < 512 << 10
    assert any("statistics of an event" in reason for reason in read_xplane(path, 0).damage)


def test_events_that_the_profiler_dropped_are_no_good_profile(tmp_path: Path) -> None:
    whole = (DATA / "vm.xplane.pb").read_bytes()
    said = "Detected GPU events dropped on vm: Profiler has collected 7 driver events and 9 others.\n" + "x" * 9999
    path = write(tmp_path / "vm.xplane.pb", whole, xspace.member(3, said))
    quality = explain_traces(find_sources(path), "", jobs=1).analysis.quality
    assert quality.verdict == "degraded"
    (reason, *_) = [one for one in quality.reasons if "Detected GPU events dropped on vm" in one]
    assert "\n" not in reason and len(reason) < 600
    assert read_trace(path, 0).cut_off
    path = write(tmp_path / "vm.xplane.pb", whole, xspace.member(2, "CUPTI is not what was built for"))
    trace = read_trace(path, 0)
    assert trace.damage == ["the profiler said: CUPTI is not what was built for"] and not trace.cut_off


def test_a_json_as_long_as_xla_writes_is_taken_for_one_that_lost_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = DATA / "vm.trace.json.gz"
    events = sum(event.get("ph") == "X" for event in unpacked(source)["traceEvents"])
    monkeypatch.setattr(trace_json, "_XLA_WRITES", events + 1)
    assert not read_trace(source, 0).damage
    monkeypatch.setattr(trace_json, "_XLA_WRITES", events)
    trace = read_trace(source, 0)
    assert trace.cut_off and "give the .xplane.pb" in trace.damage[0]


def test_devices_stand_by_their_numbers(tmp_path: Path) -> None:
    write(tmp_path / "one.xplane.pb", *(kernel_plane(device).written() for device in range(11)))
    assert [one.device for one in find_sources(tmp_path)] == list(range(11))


def test_absolute_times_stay_exact(tmp_path: Path) -> None:
    """As floats of µs they are multiples of 0.25 µs."""
    begin = 1_700_000_000_123_456_789
    path = write(tmp_path / "one.xplane.pb", kernel_plane(0, begin).written())
    trace = read_trace(path, 0)
    base = trace.header.base_ns
    assert [base + start for start in trace.activities.start.tolist()] == [begin + 1_001, begin + 2_003]
    assert (trace.activities.end - trace.activities.start).tolist() == [500, 500]
