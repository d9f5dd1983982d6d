"""Traces that somebody made to hurt: reading takes bounded time and memory, and ends with words."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from isal import igzip

from scalescope.records.operations import canonical_operation
from scalescope.scaling.trace.families import is_communication_kernel, operation_of_kernel
from scalescope.scaling.trace.kernel_kinds import kind_of
from scalescope.scaling.trace.kernel_names import capped, short_name
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.verdicts.top_kernels import kernel_label

MB = 1_000_000
EVENT = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}'


@pytest.mark.parametrize(
    "unit", ["A", "a_", "_", "{", "{}", "<", "aten::", "cudnn", "miopen", "ck::", "cutlass__a", "reduce_", "aiter::",
             "elementwise_kernel", "triton_poi_fused_t", "{{{{a}", "(", "backward1", " ", "Kernel<"],
)  # fmt: skip
def test_no_name_takes_long(unit: str) -> None:
    name = unit * (60_000 // len(unit))
    began = time.process_time()
    for shown in (capped(name), capped(name + "!"), capped("triton_" + name)):
        for look in (
            kind_of,
            kernel_label,
            short_name,
            is_communication_kernel,
            canonical_operation,
            operation_of_kernel,
        ):
            look(shown)
    assert time.process_time() - began < 2, "one took 29 s"


def test_names_are_as_long_as_libraries_write_them(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    names = ["A" * 60_000, "B" * 4096, "x" * 60_000 + "_tail"]
    events = [{"ph": "X", "cat": "kernel", "name": name, "ts": 1, "dur": 1} for name in names]
    path.write_text(json.dumps({"traceEvents": events}))
    found = read_trace(path).names
    assert max(map(len, found)) <= 4096 and found[1] == names[1] and found[2].endswith("x_tail")


READS = """
import sys, time
from pathlib import Path
from scalescope.records.errors import UserError
from scalescope.scaling.trace.reader import read_trace
began = time.process_time()
try:
    print(read_trace(Path(sys.argv[1])).events, end=" ")
except UserError as error:
    print("refused", end=" ")
# its own peak: what getrusage tells begins with the process that forked it
peak_kb = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(time.process_time() - began, peak_kb)
"""
BOMBS = {
    "blanks behind the events": (b'{"traceEvents":[' + EVENT + b"]", b" ", "1"),
    "blanks between the events": (b'{"traceEvents":[' + EVENT, b" ", "1"),
    "blanks inside of an event": (b'{"traceEvents":[' + EVENT + b",{", b" ", "1"),
    "blanks before the events": (b"{", b" ", "refused"),
    "commas": (b'{"traceEvents":[' + EVENT, b",", "1"),
    "a name without end": (b'{"traceEvents":[' + EVENT + b',{"name":"', b"\\", "1"),
    "brackets": (b'{"traceEvents":[' + EVENT + b',{"ph":"X","args":', b"[", "1"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_that_unpacks_into_much_takes_little_memory(bomb: str, tmp_path: Path) -> None:
    begin, unit, events = BOMBS[bomb]
    unpacked_mb, most_mb = (400, 650) if bomb == "brackets" else (200, 200)  # where a scan looks at 8 MiB of them
    path = tmp_path / "rank0.json.gz"
    with igzip.open(path, "wb", compresslevel=1) as file:
        file.write(begin)
        for _ in range(unpacked_mb):
            file.write(unit * MB)
    done = subprocess.run([sys.executable, "-c", READS, str(path)], capture_output=True, text=True, timeout=300,
                          check=True)  # fmt: skip
    found, took_s, peak_kb = done.stdout.split()
    assert found == events, done.stderr
    assert int(peak_kb) < 1000 * most_mb, f"{int(peak_kb) // 1000} MB"
    assert float(took_s) < 30


@pytest.mark.parametrize("where", ["args", "dims", "header", "pid"])
def test_brackets_within_brackets_are_no_traceback(where: str, tmp_path: Path) -> None:
    deep = "[" * 200_000 + "]" * 200_000
    event = {"ph": "X", "cat": "cpu_op", "name": "c10d::broadcast_", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}
    text = json.dumps({"traceEvents": [event, {**event, "args": {"Input Dims": "HERE"}}]})
    replaced = {
        "args": text.replace('{"Input Dims": "HERE"}', deep),
        "dims": text.replace('"HERE"', f'{deep}, "Concrete Inputs": {deep}, "Input type": {deep}'),
        "header": text.replace('{"traceEvents"', f'{{"distributedInfo": {deep}, "traceEvents"'),
        "pid": text.replace('"pid": 1', f'"pid": {deep}'),
    }[where]
    path = tmp_path / "rank0.json"
    path.write_text(replaced)
    trace = read_trace(path)
    assert trace.events + trace.invalid_events == 2
    if where == "header":
        assert trace.damage == ["its header does not decode"]


def test_a_byte_order_mark_damages_no_header(tmp_path: Path) -> None:
    """Editors and converters on Windows write one."""
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": 3}, "traceEvents": [json.loads(EVENT)]}), "utf-8-sig")
    trace = read_trace(path)
    assert trace.header.distributed.rank == 3 and trace.damage == []


@pytest.mark.parametrize("base", [2**63 - 1, 10**400, -1, 1e300])
def test_a_clock_base_that_cannot_be_is_left_out(base: float, tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": base, "traceEvents": [json.loads(EVENT)]}))
    trace = read_trace(path)
    assert trace.header.base_ns == 0 and trace.damage == ["its header does not decode"]
