"""The fields of events in C and in Python: what C takes Python takes, too, and to the same columns."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from scalescope.scaling.trace import columns, reader
from scalescope.scaling.trace.events import EXACT_FLOAT_US, Args, decode_events
from scalescope.scaling.trace.fields import compiled
from scalescope.scaling.trace.fields.fields import Fields, fields_of
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import Trace

DATA = Path(__file__).parent / "data"
TRACES = sorted(path for name in ("gpt_ddp_compile_n4", "resnet50_ddp_n1") for path in (DATA / name).glob("rank0*.gz"))
WORDS = ("phase", "category", "name", "thread_word")
NUMBERS = ("thread", "external", "correlation", "stream", "device", "blocks", "talks")

needs_c = pytest.mark.skipif(
    not compiled.is_built(), reason="C is not built here: scalescope was not installed, or without a C compiler"
)


def in_python(array: bytes, far: bool) -> Fields:
    return fields_of(decode_events(array, far))


def words(fields: Fields, column: str) -> list[str]:
    """A column's strings, of spans and metadata."""
    return [fields.strings[at] for at in getattr(fields, column)[rows_of(fields)].tolist()]


def rows_of(fields: Fields) -> Ints:
    kinds = np.array([word in ("X", "M") for word in fields.strings], bool)
    return np.flatnonzero(kinds[fields.phase])


def agrees(array: bytes) -> bool:
    """Whether C takes the text. Then it must be what Python makes of it."""
    found = compiled.read_fields(array)
    if found is None:
        return False
    told = in_python(array, found.farthest >= EXACT_FLOAT_US * 1000)
    assert found.count == told.count
    rows = rows_of(found)
    for column in WORDS:
        assert words(found, column) == words(told, column), column
    for column in NUMBERS:
        np.testing.assert_array_equal(getattr(found, column)[rows], getattr(told, column), column)
    timed = np.ones(told.start.size, bool) if told.usable is None else told.usable
    np.testing.assert_array_equal(found.start[rows[timed]], told.start[timed])
    np.testing.assert_array_equal(found.end[rows[timed]], told.end[timed])
    spans = [row for row, phase in enumerate(words(told, "phase")) if phase == "X"]
    assert timed[spans].all(), "what has no time that can be one is Python's to count"
    decoded, expected = found.events(rows), told.events(np.arange(told.start.size))
    assert [(one.tid, one.args) for one in decoded] == [(one.tid, one.args) for one in expected]
    assert found.shapes(rows) == told.shapes(np.arange(told.start.size))
    return True


def array_of(path: Path) -> bytes:
    text = gzip.decompress(path.read_bytes())
    start = text.index(b"[", text.index(b'"traceEvents"'))
    return text[start : text.rindex(b"\n  ]") + len(b"\n  ]")]


@needs_c
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.parent.name)
def test_c_takes_what_kineto_writes_and_reads_the_same(path: Path) -> None:
    assert agrees(array_of(path))


def contents(trace: Trace) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in structs.asdict(trace).items():
        if isinstance(value, Struct) and name != "header":
            found |= {f"{name}.{field}": column.tolist() for field, column in structs.asdict(value).items()}
        else:
            found[name] = value
    return found


@needs_c
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.parent.name)
def test_a_trace_is_the_same_without_c(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_c = contents(reader.read_trace(path))
    monkeypatch.setattr(columns, "read_fields", lambda array: None)
    assert contents(reader.read_trace(path)) == with_c


RAW = rb"""
0 -0 7 -7 01 1. - 1.0 1.5 1.25 1.125 1.0625 -1.001 1e3 1e400 999999999999999999 9999999999999999999
-9223372036854775808 1700000000000000.123 8796093022207.999 8796093022208.001 4000000000000000 999999999999
1000000000000 nan NaN Infinity null true tru [] [1,2] [1,] [65536,65536,65536] [2147483648,2147483647] [-1] {}
{"a":[1,{"b":null}]} {"a":1,} {1:2} "" "X" "M" "s" "12" "aten::mm" "thread_name" "kernel" "cpu_op" "a\"b" "a\/b" "a/b"
"\u0041" "A" "\u00e9" "\ud83d\ude00" "\ud800" "\udc00" "\q" "unended
""".split()
RAW += ['"é"'.encode(), b'"\xff"', b'"\x01"', b'"\x00"', b'"\x7f"']
RAW += [b"[" * depth + b"]" * depth for depth in (31, 33, 3000)]
ARGUMENTS = [one.encode_name for one in structs.fields(Args)]
ARGUMENTS += ["block", "", "\\u0073tream", "é"]
SPACE = st.sampled_from([b"", b" ", b"\n    ", b"\t\r\n"])
PLAIN = st.one_of(
    st.integers(-(10**18) + 1, 10**18 - 1).map(lambda number: b"%d" % number),
    st.integers(-(4 * 10**18), 4 * 10**18).map(lambda ns: b"%d.%03d" % (ns // 1000, ns % 1000)),
    st.text(max_size=12).map(lambda text: json.dumps(text).encode()),
    st.text(max_size=12).map(lambda text: json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.floats(allow_nan=True).map(lambda number: json.dumps(number).encode()),
)
VALUES = st.one_of(st.sampled_from(RAW), PLAIN)
#: What profilers write, so that C takes most of it and what it takes is looked at.
USUAL = {
    "ph": st.sampled_from([b'"X"', b'"M"', b'"i"']),
    "cat": st.sampled_from([b'"kernel"', b'"cpu_op"', b'"caf\xc3\xa9"']),
    "name": st.sampled_from([b'"aten::mm"', b'"a\\u003cb\\/c"', b'"thread_name"']),
    "pid": st.sampled_from([b"0", b'"python"']),
    "tid": st.sampled_from([b"7", b'"7"', b'"stream 7"']),
    "ts": st.integers(-(10**15), 8 * 10**15).map(lambda ns: b"%d.%03d" % (ns // 1000, ns % 1000)),
    "dur": st.integers(0, 10**12).map(lambda ns: b"%d.%03d" % (ns // 1000, ns % 1000)),
}
NUMBER = st.integers(-1, 10**12).map(lambda number: b"%d" % number)


@st.composite
def objects(draw: st.DrawFn, usual: dict[str, st.SearchStrategy[bytes]], keys: list[str]) -> bytes:
    parts = [(key, draw(value)) for key, value in usual.items() if draw(st.integers(0, 9))]
    odd = draw(st.lists(st.tuples(st.sampled_from(keys), VALUES), max_size=2)) if draw(st.booleans()) else []
    space = draw(SPACE)
    pairs = [b'"%s"%s:%s%s%s' % (key.encode(), space, space, value, space) for key, value in parts + odd]
    return b"{" + space + (b"," + space).join(pairs) + b"}"


EVENTS = objects(USUAL, ["args", "id", "bp", *USUAL])
ARGS = objects(dict.fromkeys(("External id", "correlation", "stream", "device", "Seq"), NUMBER), ARGUMENTS)


@st.composite
def arrays(draw: st.DrawFn) -> bytes:
    events = []
    for _ in range(draw(st.integers(0, 4))):
        event = draw(EVENTS)
        if draw(st.booleans()):
            event = event[:-1] + (b", " if len(event.strip(b"{} \t\r\n")) else b"") + b'"args": ' + draw(ARGS) + b"}"
        events.append(event)
    return b"[" + draw(SPACE) + (draw(SPACE) + b",").join(events) + draw(SPACE) + b"]"


@needs_c
@settings(max_examples=400, deadline=None)
@given(arrays())
def test_what_c_takes_python_takes_to_the_same_columns(array: bytes) -> None:
    if agrees(array):
        found = compiled.read_fields(array)
        assert found is not None and len(json.loads(array.decode("utf-8", "replace"))) == found.count


@needs_c
@settings(max_examples=300, deadline=None)
@given(arrays(), st.data())
def test_damaged_text_is_left_to_python_or_read_as_python_reads_it(array: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(array)))
    byte = data.draw(st.sampled_from([b"", b'"', b"\\", b"{", b"}", b"]", b",", b"\x00", b"\x80", b"9", b"."]))
    agrees(array[:at] + byte + array[at + 1 :])
    agrees(array[:at])


@needs_c
def test_a_real_event_cut_anywhere_is_left_to_python() -> None:
    event = (
        b'[{"ph": "X", "cat": "kernel", "name": "a\\"b", "pid": 0, "tid": 7, "ts": 1.500, "dur": 2.001, '
        b'"args": {"grid": [2, 3], "x": [{}]}}]'
    )
    assert agrees(event)
    assert not any(agrees(event[:at]) for at in range(len(event)))
    assert not any(agrees(event[:at] + b"\x00" + event[at:]) for at in range(len(event) + 1))


@needs_c
def test_more_strings_than_anybody_writes_are_left_to_python() -> None:
    many = b",".join(b'{"ph": "X", "name": "kernel number %d", "ts": 1, "dur": 1}' % number for number in range(40_000))
    assert compiled.read_fields(b"[" + many + b"]") is None
    assert compiled.read_fields(b"[" + b",".join([b"{}"] * 1000) + b"]") is None, "no event is so short"


def test_times_that_need_more_digits_than_a_float_has_are_exact_after_a_block_of_others() -> None:
    near = b'[{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1.001, "dur": 0.001}]'
    far = b'[{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1700000000000000.123, "dur": 0.001}]'
    exact = columns.Columns()
    exact.add(far)
    assert exact._operators.columns()[0].tolist() == [1_700_000_000_000_000_123]
    mixed, plain = columns.Columns(), columns.Columns()
    for text in (near, far):
        mixed.add(text)
        plain.add_events(decode_events(text, False))
    assert mixed._operators.columns()[0].tolist() == plain._operators.columns()[0].tolist(), "the first block decides"


@pytest.mark.parametrize("at_us", ["1700000000000000.123", "-9503523469440.019", "-1700000000000000.123"])
def test_times_far_on_either_side_of_the_clocks_zero_are_exact_in_c_and_python(
    at_us: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f'[{{"ph": "X", "cat": "cpu_op", "name": "a", "ts": {at_us}, "dur": 0.001}}]'.encode()
    for read in (compiled.read_fields, lambda array: None):
        monkeypatch.setattr(columns, "read_fields", read)
        found = columns.Columns()
        found.add(text)
        assert found._operators.columns()[0].tolist() == [int(at_us.replace(".", ""))]


def test_columns_take_half_the_space_until_a_number_needs_the_whole() -> None:
    event = '{"ph": "X", "cat": "cpu_op", "name": "a", "tid": %d, "ts": 1, "dur": 1, "args": {"External id": %d}}'
    grown = columns.Columns()
    for thread, external in ((7, 1), (1 << 40, 2), (-8, (1 << 31) - 1)):
        grown.add(f"[{event % (thread, external)}]".encode())
    spans = grown._operators.spans()
    assert spans.thread.tolist() == [7, 1 << 40, -8] and spans.external.tolist() == [1, 2, (1 << 31) - 1]
    assert [column.dtype for column in (spans.start, spans.thread, spans.external)] == [np.int64, np.int64, np.int32]
