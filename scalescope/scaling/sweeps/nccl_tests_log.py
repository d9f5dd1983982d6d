"""nccl-tests' and rccl-tests' output as sweep rows: text of all versions, JSON, CSV. Torch-free.

Their text has a header that names its columns, which decides how a line is read: versions differ in `root`, `#wrong`
or `error`, `-I` adds per-iteration columns, `-S` a timestamp, `-C` calls the time `cputime`; rccl-tests can leave
the out-of-place half out. JSON is nccl-tests' `-J` (versions 1 to 3) or rccl-tests' list of records; CSV is
rccl-tests' table of the same records. Nothing but the figures is taken: their JSON holds the whole environment.

A log that was cut is read up to the cut, and says so.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.outputs.sweep_logs import is_named_as_page, quotes
from scalescope.records.rows import Device, SweepRow
from scalescope.scaling.sweeps.names import REDUCING, dtype_of, operation_of

_MOST_BYTES, _MOST_RANKS = 1 << 60, 1 << 20  # beyond them it is a damaged number
_PROGRAM = re.compile(r"\b(\w+)_perf\b")
_VERSION = re.compile(r"^# nccl-tests version (\S+)", re.MULTILINE)
_RANK = re.compile(r"^#\s+Rank\s+(\d+)(?:\s+Group\s+(\d+))?", re.MULTILINE)
_DEVICE = re.compile(r"^#\s+Rank\s+(\d+)\b.*?\bon\s+(\S+)\s+device\s+\S+\s+\[[^\]]*\]\s+(\S.*?)\s*$", re.MULTILINE)
_SETTINGS = re.compile(r"^# nThread (\d+) nGpus (\d+) .*?\biters: (\d+) agg iters: (\d+)", re.MULTILINE)
_GRAPH = re.compile(r"\bgraph: (\d+)")
_START = re.compile(r"^# (?:nccl-tests version|Collective test starting|nThread) ")
_TIMES = ("time", "cputime")
#: Half of a pair of surrogates, as JSON escapes it: no text, and no file could hold it.
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
                        r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}")  # fmt: skip
#: What comes of a column that is missing, a word for a number, a list for a table.
_NOT_AS_WRITTEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration, RecursionError)
_END = "# Avg bus bandwidth"


@dataclass
class Log:
    """What a log held: its rows, and where it was cut or could not be read."""

    rows: list[SweepRow] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)  # of its largest run; none where it does not tell


@dataclass(frozen=True)
class _Test:
    """What one run of a program says of all its rows."""

    operation: str
    group_size: int
    execution: str
    iterations: int
    source: str
    backend: str


def read_log(text: str, name: str, operation: str | None = None) -> Log:
    """Return the rows of a log; `name` is its file's, and `operation` says what older logs do not.

    Raises UserError where the text is no log of theirs, or does not tell the operation.
    """
    try:
        return _read(text, name, operation)
    except _NOT_AS_WRITTEN as error:
        said = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:80]}"
        raise UserError(f"{name} is not as nccl-tests or rccl-tests write a log ({said})") from error


def _read(text: str, name: str, operation: str | None) -> Log:
    if is_named_as_page(name):
        raise _quoted(name)
    start = text.lstrip()[:1]
    if start in ("{", "["):
        return _read_json(text, name, operation)
    if text.lstrip().partition("\n")[0].count(",") >= 6:
        return _read_records(csv.DictReader(io.StringIO(text)), name, operation)
    return _read_text(text, name, operation)


def _quoted(name: str) -> UserError:
    return UserError(f"{name} is a page of text, and no log of nccl-tests or rccl-tests; give the log itself")


def _read_text(text: str, name: str, operation: str | None) -> Log:
    if quotes(text.encode(errors="replace")):
        raise _quoted(name)
    log = Log()
    for part in _tests_of(text):
        kind: Literal["cuda", "rocm"] = "rocm" if "rccl-tests" in part else "cuda"
        devices = [Device(int(rank), host, kind, name) for rank, host, name in _DEVICE.findall(part)]
        log.devices = max(log.devices, devices, key=len)
        layout: list[str] = []
        halves: list[str] = []
        test: _Test | None = None
        for line in part.splitlines(keepends=True):
            fields = line.lstrip("# ").split()
            if line.startswith("#") and "in-place" in line:
                halves = re.findall(r"out-of-place|in-place", line)
            elif line.startswith("#") and fields[:2] == ["size", "count"]:
                layout = fields
            elif layout and re.match(r"\s*\d+\s+\d+\s+[a-z]", line):
                test = test or _test_of(part, name, operation)
                _read_line(log, test, layout, halves, line)
        if layout and _END not in part:
            log.faults.append(f"{name} ends before nccl-tests' own end: it is read up to the cut")
    if not log.rows:
        raise UserError(f"{name} holds no table of nccl-tests or rccl-tests: a line '# size count type …' and rows")
    return log


def _tests_of(text: str) -> Iterator[str]:
    """Yield each program's part of a log that may hold several."""
    part: list[str] = []
    seen_table = False
    for line in text.splitlines(keepends=True):
        if seen_table and _START.match(line):
            yield "".join(part)
            part, seen_table = [], False
        seen_table = seen_table or line.split()[1:3] == ["size", "count"]
        part.append(line)
    yield "".join(part)


def _test_of(text: str, name: str, operation: str | None) -> _Test:
    ranks = [(int(match[1]), match[2] or "0") for match in _RANK.finditer(text)]
    settings = _SETTINGS.search(text)
    if ranks:
        group_size = sum(group == ranks[0][1] for _, group in ranks)
    elif settings:
        group_size = int(settings[1]) * int(settings[2])
    else:
        raise UserError(f"{name} does not say how many ranks there were: its head with '#  Rank 0 …' is missing")
    graph = _GRAPH.search(text)
    version = _VERSION.search(text)
    rccl = "rccl-tests" in text
    return _Test(
        operation=_operation(text, name, operation),
        group_size=group_size,
        execution="graph" if graph and int(graph[1]) > 0 else "eager",
        iterations=int(settings[3]) * int(settings[4]) if settings else 0,
        source="rccl-tests" if rccl else f"nccl-tests {version[1]}" if version else "nccl-tests",
        backend="rccl" if rccl else "nccl",
    )


def _operation(text: str, name: str, operation: str | None) -> str:
    if operation is not None:
        return operation
    for source in (text, name):
        for match in _PROGRAM.finditer(source):
            if (found := operation_of(match[1])) is not None:
                return found
    stem = re.split(r"[.\-]", name)[0]
    if (found := operation_of(stem)) is not None:
        return found
    raise UserError(f"{name} does not say which collective it is of; add --operation all_reduce (or the like)")


def _read_line(log: Log, test: _Test, layout: Sequence[str], halves: Sequence[str], line: str) -> None:
    """Add the rows of one line: out of place, in place, or both."""
    fields = line.split()
    first = next(index for index, word in enumerate(layout) if word in _TIMES)
    width = next((index for index, word in enumerate(layout[first + 1 :], 1) if word in _TIMES), len(layout) - first)
    if layout[-1] == "timestamp" and layout.count("timestamp") == 1:
        width = min(width, len([word for word in layout[first:] if word != "timestamp"]))
    fixed = dict(zip(layout[:first], fields[:first], strict=False))
    figures = fields[first:]
    expected = list(halves) or ["out-of-place", "in-place"]
    groups = [figures[at : at + width] for at in range(0, len(expected) * width, width)]
    groups = [group for group in groups if len(group) == width]
    if not line.endswith("\n"):  # cut: a half counts only where something follows it
        groups = groups[: (len(figures) - 1) // width]
        log.faults.append(f"its last line is cut: {line.strip()!r}")
    elif len(groups) == 1 and len(expected) == 2:  # a replayed trace leaves the out-of-place half blank
        expected = ["in-place"]
    for half, group in zip(expected, groups, strict=False):
        named = dict(zip(layout[first : first + width], group, strict=True))
        time_us = named.get("time") or named.get("cputime")
        wrong = named.get("#wrong") or named.get("error")
        log.rows.append(
            _row(
                test,
                size=int(fixed["size"]),
                dtype=fixed["type"],
                reduction=fixed.get("redop"),
                root=fixed.get("root"),
                mode="in_place" if half == "in-place" else "out_of_place",
                time_us=_number(time_us),
                alg_gb_s=_number(named.get("algbw")),
                bus_gb_s=_number(named.get("busbw")),
                wrong=_number(wrong) if "#wrong" in named else None,
                time_min_us=_number(named.get("i_min")),
                time_max_us=_number(named.get("i_max")),
                time_p99_us=_number(named.get("i_p99")),
            )
        )


def _row(
    test: _Test,
    size: int,
    dtype: str,
    reduction: str | None,
    root: str | None,
    mode: str,
    time_us: float | None,
    alg_gb_s: float | None,
    bus_gb_s: float | None,
    wrong: float | None,
    **spread: float | None,
) -> SweepRow:
    if not (0 <= size <= _MOST_BYTES and 1 <= test.group_size <= _MOST_RANKS):
        raise ValueError(f"{size} bytes on {test.group_size} ranks")
    row = SweepRow(
        operation=test.operation,
        bytes=size,
        dtype=dtype_of(dtype),
        group_size=test.group_size,
        status="measured" if time_us is not None else "failed",
        reason=None if time_us is not None else "the log has no time here",
        reduction=reduction if test.operation in REDUCING else None,
        root=None if root is None or int(root) < 0 else int(root),
        mode=mode,
        execution=test.execution,
        transport="direct",
        ranks=list(range(test.group_size)),
        time_us=time_us,
        alg_gb_s=alg_gb_s,
        bus_gb_s=bus_gb_s,
        wrong=None if wrong is None else int(wrong),
        iterations=test.iterations,
        backend=test.backend,
        source=test.source,
    )
    return msgspec.structs.replace(row, **spread)


def _read_json(text: str, name: str, operation: str | None) -> Log:
    text = _HALF_PAIR.sub(r"\\ufffd", text)
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        return _read_cut_json(text, name, operation)
    if isinstance(document, list):
        return _read_records(document, name, operation)
    log = Log(rows=list(_json_rows(document, name, operation)), devices=_json_devices(document))
    if "errors" in document and document["errors"] not in ([], [""]):
        log.faults.append(f"{name} ended with an error of the library: {document['errors'][0]}")
    return log


def _read_cut_json(text: str, name: str, operation: str | None) -> Log:
    """Read a JSON log whose end is missing: its head as far as it goes, and every whole result."""
    decoder = json.JSONDecoder()
    head: dict[str, Any] = {"results": []}
    for key in ("args", "config"):
        if (at := text.find(f'"{key}":')) >= 0:
            try:
                head[key], _ = decoder.raw_decode(text, at + len(key) + 3)
            except json.JSONDecodeError:
                continue
    at = text.find('"results":[')
    at += len('"results":[') if at >= 0 else 0
    while at and text[at : at + 1] == "{":
        try:
            result, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            break
        head["results"].append(result)
        at += text[at : at + 1] == ","
    rows = list(_json_rows(head, name, operation))
    if not rows:
        raise UserError(f"{name} is JSON that ends before its first result")
    return Log(rows, [f"{name} is cut: it is read up to result {len(head['results'])}"])


def _json_devices(document: Mapping[str, Any]) -> list[Device]:
    """Return the devices of all ranks: the list has the first of each process, whose others are of the same host."""
    config = document.get("config", {})
    each = _ranks_per_process(config)
    return [
        Device(int(one.get("rank", at * each)) + own, str(one.get("hostname", "")), "cuda", str(one["device_info"]))
        for at, one in enumerate(config.get("devices") or [])
        if one.get("device_info")
        for own in range(each)
    ]


def _ranks_per_process(config: Mapping[str, Any]) -> int:
    return max(1, int(config.get("nthreads", 1))) * max(1, int(config.get("ngpus", 1)))


def _json_rows(document: Mapping[str, Any], name: str, operation: str | None) -> Iterator[SweepRow]:
    config = document.get("config", {})
    devices = config.get("devices") or []
    group = devices[0].get("group", 0) if devices else 0
    processes = sum(device.get("group", 0) == group for device in devices)
    test = _Test(
        operation=_operation(" ".join(map(str, document.get("args", []))), name, operation),
        group_size=max(1, processes) * _ranks_per_process(config),
        execution="graph" if int(config.get("graph", 0)) > 0 else "eager",
        iterations=int(config.get("iterations", 0)) * int(config.get("aggregated_iterations", 1)),
        source=f"nccl-tests JSON {document.get('version', '')}".rstrip(),
        backend="nccl",
    )
    for result in document.get("results", []):
        for mode in ("out_of_place", "in_place"):
            half = result.get(mode)
            if half is None:
                continue
            spread = result.get(f"{mode}_per_iter") or {}
            yield _row(
                test,
                size=int(result["size"]),
                dtype=str(result["type"]),
                reduction=result.get("redop"),
                root=result.get("root"),
                mode=mode,
                time_us=_number(half.get("time", half.get("cpu_time"))),
                alg_gb_s=_number(half.get("alg_bw")),
                bus_gb_s=_number(half.get("bus_bw")),
                wrong=_number(half.get("nwrong")),
                time_min_us=_number(spread.get("min_us")),
                time_max_us=_number(spread.get("max_us")),
                time_p50_us=_number(spread.get("p50_us")),
                time_p95_us=_number(spread.get("p95_us")),
                time_p99_us=_number(spread.get("p99_us")),
            )


def _read_records(records: Sequence[Mapping[str, Any]] | Any, name: str, operation: str | None) -> Log:
    """Read rccl-tests' records, one a size and mode, whatever the case of their names."""
    log = Log()
    for record in records:
        named = {str(key).strip().lower().lstrip("#"): value for key, value in record.items() if key is not None}
        if "size" not in named or any(value is None for value in named.values()):
            log.faults.append(f"{name}: a record is cut and left out")
            continue
        found = operation or operation_of(str(named.get("name", "")))
        test = _Test(
            operation=found or _operation("", name, None),
            group_size=int(named.get("ranks", 0)) * int(named.get("gpusperrank", 1)),
            execution="eager",
            iterations=0,
            source="rccl-tests",
            backend="rccl",
        )
        log.rows.append(
            _row(
                test,
                size=int(named["size"]),
                dtype=str(named["type"]),
                reduction=str(named.get("redop", "none")),
                root=str(named["root"]) if "root" in named else None,
                mode="in_place" if str(named.get("inplace", "0")).lower() in ("1", "true") else "out_of_place",
                time_us=_number(named.get("time")),
                alg_gb_s=_number(named.get("algbw")),
                bus_gb_s=_number(named.get("busbw")),
                wrong=_number(named.get("wrong")),
            )
        )
    if not log.rows:
        raise UserError(f"{name} holds no records of rccl-tests: size, type, inPlace, time, algBw, busBw")
    return log


def _number(text: object) -> float | None:
    """Return a figure, or None for what they print where there is none."""
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
