"""A trace is read the same however it was written, and as far as it goes where it is broken."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from isal import igzip

from scalescope.records.errors import UserError
from scalescope.scaling.ranks.summary import summarise
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.columns import Columns
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.trace.sources import find_sources
from scalescope.scaling.trace.trace import Trace
from tests import oracle
from tests.trace_json import unpacked

DATA = Path(__file__).parent / "data"
SMALL = DATA / "cpu_ddp_n2" / "rank0.3.pt.trace.json.gz"
GPU = DATA / "gpt_ddp_compile_n4" / "rank0.json.gz"


@pytest.fixture(scope="module")
def native() -> bytes:
    return bytes(igzip.decompress(GPU.read_bytes()))


@pytest.fixture(scope="module")
def parsed(native: bytes) -> dict[str, Any]:
    content: dict[str, Any] = msgspec.json.decode(native)
    return content


@pytest.fixture(scope="module")
def resnet() -> dict[str, Any]:
    content: dict[str, Any] = unpacked(DATA / "resnet50_ddp_n4" / "rank0.json.gz")
    return content


@pytest.fixture(scope="module")
def whole() -> Trace:
    return read_trace(GPU)


def write(folder: Path, content: bytes, name: str = "rank0.json") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def dumped(content: object, indent: int | None) -> bytes:
    """Return what `json.dumps` returns, which indents in Python and not in C."""
    text = json.dumps(content).encode()
    return text if indent is None else msgspec.json.format(text, indent=indent)


def assert_same(one: Trace, other: Trace) -> None:
    """Compare two traces; the numbers of names and of described collectives depend on how blocks were cut."""
    assert one.events == other.events and one.header == other.header
    for kind in ("activities", "runtime", "operators", "annotations"):
        left, right = getattr(one, kind), getattr(other, kind)
        for column in ("start", "end", "correlation", "external"):
            assert np.array_equal(getattr(left, column), getattr(right, column))
        assert [one.names[name] for name in left.name] == [other.names[name] for name in right.name]
    assert described(one) == described(other)


def described(trace: Trace) -> list[dict[Any, Any]]:
    rows = enumerate(trace.activities.communication.tolist())
    return [
        {row: trace.communications[index] for row, index in found}
        for found in (
            ((row, index) for row, index in rows if index >= 0),
            trace.operator_communication.items(),
            trace.annotation_communication.items(),
        )
    ]


def test_times_are_the_files_own_digits_in_integer_nanoseconds(whole: Trace) -> None:
    events = oracle.load(GPU)["traceEvents"]
    kernels = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert whole.activities.start.tolist() == [oracle.ns(event["ts"]) for event in kernels]
    lengths = whole.activities.end - whole.activities.start
    assert lengths.tolist() == [oracle.ns(event["dur"]) for event in kernels]
    assert whole.events == len(events)
    assert whole.header.distributed.world_size == 4 and whole.header.devices[0].name == "NVIDIA H200"


@pytest.mark.parametrize("indent", [None, 1, 2, 4])
@pytest.mark.parametrize("order", ["as it was", "header last"])
def test_a_trace_that_another_program_wrote_again_is_read_the_same(
    tmp_path: Path, parsed: dict[str, Any], whole: Trace, indent: int | None, order: str
) -> None:
    content = dict(parsed)
    if order == "header last":
        content = {"traceEvents": content.pop("traceEvents"), **content}
    assert_same(read_trace(write(tmp_path, dumped(content, indent))), whole)


def test_the_rewritten_trace_has_separators_that_the_native_one_has_not(native: bytes) -> None:
    compact = json.dumps(msgspec.json.decode(native), separators=(",", ":")).encode()
    assert b"\n  },\n  {" in native and b"\n" not in compact


def test_compact_text_without_any_newline_and_gzip_under_a_plain_name_are_read_too(
    tmp_path: Path, native: bytes, whole: Trace
) -> None:
    compact = json.dumps(msgspec.json.decode(native), separators=(",", ":")).encode()
    assert_same(read_trace(write(tmp_path, compact)), whole)
    assert_same(read_trace(write(tmp_path, igzip.compress(native, 1), "rank0.pt.trace.json")), whole)
    halves = igzip.compress(native[: len(native) // 2]) + igzip.compress(native[len(native) // 2 :])
    assert_same(read_trace(write(tmp_path, halves, "rank0.json.gz")), whole)


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path, native: bytes, whole: Trace) -> None:
    events = json.dumps(msgspec.json.decode(native)["traceEvents"]).encode()
    trace = read_trace(write(tmp_path, events))
    assert trace.events == whole.events and len(trace.activities) == len(whole.activities)


@pytest.mark.parametrize("share", [0.02, 0.35, 0.7, 0.999])
@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_trace_gives_every_event_before_the_cut_and_says_so(
    tmp_path: Path, native: bytes, share: float, packed: bool
) -> None:
    if packed:
        content = GPU.read_bytes()
        path = write(tmp_path, content[: int(len(content) * share)], "rank0.json.gz")
    else:
        cut = native[: int(len(native) * share)]
        path = write(tmp_path, cut)
        complete = cut[cut.index(b'"traceEvents"') :].count(b"\n  },")
    trace = read_trace(path)
    assert trace.damage and trace.invalid_events == 0
    if packed:
        assert trace.events > 0 or share < 0.1
    else:
        assert trace.events == complete
    if len(trace.activities):
        summary = summarise(path)
        assert (summary.shares is None) == (summary.evidence.whole_steps == 0), "without a whole step there is no mean"


def test_faults_that_kineto_is_known_for_are_mended_and_cost_no_other_event(
    tmp_path: Path, native: bytes, whole: Trace
) -> None:
    faults = [
        b'"ph": "X", "cat": "cpu_op", "name": "a\nname\x01 on \x0b lines", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0',
        b'"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "args": {"est": inf, "x": -nan}',
        b'"ph": "X", "cat": "cpu_op", "name": "back\\slash \\q", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0',
        b'"ph": "X", "cat": "cpu_op", "name": "no utf-8 \xff\xfe", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0',
        b'"ph": "X", "cat": "kernel", "name": "k2", "pid": 0, "tid": 7, "ts": 5, "dur": 1, "args": {"stream": [1]}',
    ]
    hopeless = b'"ph": "X", "cat": "cpu_op", "name": "unclosed, "pid": 1'
    added = b"".join(b"\n  {\n    " + fault + b"\n  }," for fault in [*faults, hopeless])
    at = native.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    trace = read_trace(write(tmp_path, native[:at] + added + native[at:]))
    assert trace.events == whole.events + len(faults)
    assert trace.mended_events == len(faults) and trace.invalid_events == 1
    assert len(trace.activities) == len(whole.activities) + 2
    analysis = explain_traces(find_sources(tmp_path), "x", 1).analysis
    assert analysis.quality.verdict == "degraded"
    assert any("1 event is no valid JSON" in reason for reason in analysis.quality.reasons)


def test_a_damaged_event_is_found_without_reading_each_one_by_itself(
    tmp_path: Path, native: bytes, whole: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    add = Columns.add

    def counted(columns: Columns, array: bytes) -> None:
        sizes.append(len(array))
        add(columns, array)

    monkeypatch.setattr(Columns, "add", counted)
    for text in (native, json.dumps(msgspec.json.decode(native)).encode()):
        middle = text.index(b'"ph": "X"', len(text) // 2)
        trace = read_trace(write(tmp_path, text[:middle] + b'"ph": no JSON' + text[middle + 9 :]))
        assert (trace.events, trace.invalid_events) == (whole.events - 1, 1)
    assert whole.events > 10_000 and len(sizes) < 200


def test_an_event_name_that_holds_the_separator_is_one_event(tmp_path: Path, native: bytes, whole: Trace) -> None:
    tricky = b'\n  {\n    "ph": "X", "cat": "cpu_op", "name": "a\n  },\n  {b", "pid": 1, "tid": 1, "ts": 1.0\n  },'
    at = native.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    trace = read_trace(write(tmp_path, native[:at] + tricky + native[at:]))
    assert trace.events == whole.events + 1 and trace.invalid_events == 0


def test_microseconds_since_1970_with_a_fraction_keep_their_nanoseconds(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": "TS", "dur": "DUR", "args": {"stream": 7}}
    ]
    text = json.dumps({"traceEvents": events}).replace('"TS"', "1712345678901234.567").replace('"DUR"', "0.001")
    activities = read_trace(write(tmp_path, text.encode())).activities
    assert activities.start.tolist() == [1712345678901234567] and activities.end.tolist() == [1712345678901234568]


def test_a_file_that_is_no_trace_gets_one_clear_line(tmp_path: Path) -> None:
    for content in (b"", b"{}", b"hello", b'{"schema": 1}', b"\x1f\x8bno gzip", b"[1, 2]"):
        path = write(tmp_path, content)
        with pytest.raises(UserError, match=r"is no Kineto trace"):
            read_trace(path)


@pytest.mark.parametrize("seed", range(40))
def test_cut_flipped_and_reordered_traces_never_crash(tmp_path: Path, seed: int) -> None:
    """Whatever comes out adds up; a file in which nothing is left to read is refused in one line."""
    dice = random.Random(seed)
    content = bytearray(igzip.decompress(SMALL.read_bytes()))
    match seed % 4:
        case 0:
            content = content[: dice.randrange(len(content))]
        case 1:
            for _ in range(dice.randrange(1, 200)):
                content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        case 2:
            for _ in range(dice.randrange(1, 8)):
                start = dice.randrange(len(content))
                del content[start : start + dice.randrange(3_000)]
        case 3:
            text = msgspec.json.decode(content)
            dice.shuffle(text["traceEvents"])
            for event in dice.sample(text["traceEvents"], 200):
                event.pop(dice.choice(list(event)), None)
                event[dice.choice(("ts", "dur", "args", "name", "tid"))] = dice.choice((None, -5, "x", [], 1e300, {}))
            content = bytearray(dumped(text, dice.choice((None, 1))))
    name = "rank0.json"
    if seed % 8 >= 4:
        packed = bytearray(igzip.compress(bytes(content), 1))
        packed[dice.randrange(20, len(packed))] ^= 0xFF
        content, name = packed, "rank0.json.gz"
    path = write(tmp_path, bytes(content), name)
    try:
        explained = explain_traces(find_sources(path), "fuzzed", 1)
    except UserError:
        return
    for steps in explained.partitions.values():
        assert all(sum(part.parts) == part.window for part in steps)
    assert explained.analysis.quality.verdict != "good" or seed % 4 in (1, 3)


@pytest.mark.parametrize("seed", range(20))
def test_events_of_a_gpu_with_nonsense_in_their_fields_never_crash(
    tmp_path: Path, resnet: dict[str, Any], seed: int
) -> None:
    dice = random.Random(seed)
    trace = dict(resnet)
    events = copy.deepcopy(dice.sample(trace["traceEvents"], dice.choice((5, 100, 4000))))
    for event in dice.sample(events, len(events) // 3):
        args = event.get("args", {})
        nonsense: object = dice.choice(
            (None, -1, 0, 2**63, 2**64, 1e308, "", "7", [], [1], {}, True, "nccl:all_reduce", "[0, 1]")
        )
        target = args if args and dice.random() < 0.7 else event
        target[dice.choice(list(target))] = nonsense
    if seed % 3 == 0:
        trace["distributedInfo"] = dice.choice((None, [], {"rank": "x"}, {"world_size": 2**62, "rank": 0}))
    path = write(tmp_path, dumped(trace | {"traceEvents": events}, dice.choice((None, 1))))
    explained = explain_traces(find_sources(path), "fuzzed", 1)
    for steps in explained.partitions.values():
        assert all(sum(part.parts) == part.window and min(part.parts) >= 0 for part in steps)
