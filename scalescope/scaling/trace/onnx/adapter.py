"""Makes a trace, as Kineto's are, of the profile that ONNX Runtime writes: its runs are steps, its nodes operators.

The file is a bare list of trace events: `cat` is Session (loading, model_run) or Node (`<node>_kernel_time`, with its
operator and the execution provider that ran it). A node's time is that of the call that ran it: what the processor
computed, where the CPU provider did, and what it took to launch where another one did.
"""

import re
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.scaling.trace.blocks import Blocks
from scalescope.scaling.trace.columns import Columns
from scalescope.scaling.trace.events import AnyEvent, Event
from scalescope.scaling.trace.header import Header
from scalescope.scaling.trace.splitting import scan
from scalescope.scaling.trace.trace import Trace

_BEGIN = re.compile(rb'\s*\[\s*\{\s*"cat"\s*:\s*"(?:Session|Node)"')
_HEAD_BYTES = 4096
_MOST_BYTES = 1 << 30
_ON_PROCESSOR = "CPUExecutionProvider"
_KERNEL_TIME = "_kernel_time"
_FARTHEST_US = 1e15


class _Args(msgspec.Struct):
    op_name: str = ""
    provider: str = ""


class _Event(msgspec.Struct):
    cat: str = ""
    name: str = ""
    tid: int = 0
    ts: float = -1.0
    dur: float = -1.0
    args: _Args = msgspec.field(default_factory=_Args)


_DECODER = msgspec.json.Decoder(_Event)


def is_onnx_profile(path: Path) -> bool:
    """Tell by a file's begin whether ONNX Runtime wrote it; not of one that cannot be opened."""
    try:
        with path.open("rb") as file:
            return _BEGIN.match(file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False


def read_onnx_profile(path: Path) -> Trace:
    """Return a profile's nodes as operators and its runs as steps, as far as the file goes.

    Raises UserError where it cannot be opened, holds no node, or more than one would record.
    """
    text, damage = _text(path)
    cut_off = bool(damage)
    columns = Columns()
    events: list[AnyEvent] = []
    elsewhere: dict[str, int] = {}
    runs = nodes = 0
    time_here = time_elsewhere = 0.0
    begin = text.find(b"[") + 1
    for start, end in scan(text[begin:]).events:
        try:
            one = _DECODER.decode(text[begin + start : begin + end])
        except (msgspec.DecodeError, UnicodeDecodeError):
            columns.invalid_events += 1
            continue
        if not 0 <= one.ts < _FARTHEST_US or not 0 <= one.dur < _FARTHEST_US:
            columns.invalid_events += 1
        elif one.cat == "Session" and one.name == "model_run":
            events.append(_span("user_annotation", f"ProfilerStep#{runs}", one))
            runs += 1
        elif one.cat == "Node" and one.name.endswith(_KERNEL_TIME):
            nodes += 1
            provider = one.args.provider
            if provider != _ON_PROCESSOR:
                elsewhere[provider] = elsewhere.get(provider, 0) + 1
                time_elsewhere += one.dur
            else:
                time_here += one.dur
            operator = one.args.op_name or one.name.removesuffix(_KERNEL_TIME)
            events.append(_span("cpu_op", f"{operator}[{provider.removesuffix('ExecutionProvider')}]", one))
    if not nodes:
        raise UserError(f"{path} is ONNX Runtime's, and holds no node: run the session between its begin and "
                        "end_profiling()")  # fmt: skip
    most_elsewhere = time_elsewhere > time_here
    if most_elsewhere:
        columns.unread.update(elsewhere)
        elsewhere = {}
    for provider, count in elsewhere.items():
        damage.append(f"{count:,} of {nodes:,} nodes ran on {provider}: their times are those of the host's calls, and "
                      "the device's are not in it")  # fmt: skip
    columns.add_events(events)
    trace = columns.trace(path, Header(), damage, cut_off)
    trace.framework = "onnxruntime"
    return trace


def _span(category: str, name: str, one: _Event) -> Event:
    return Event(ph="X", cat=category, name=name, tid=one.tid, ts=one.ts, dur=one.dur)


def _text(path: Path) -> tuple[bytes, list[str]]:
    """Return a file's text and what is wrong with it."""
    pieces, size = [], 0
    try:
        with Blocks(path) as blocks:
            for block in blocks:
                pieces.append(bytes(block))
                size += len(block)
                if size > _MOST_BYTES:
                    raise UserError(f"{path} is longer than {_MOST_BYTES >> 30} GiB; profile fewer runs")
            damage = [blocks.damage] if blocks.damage else []
    except OSError as error:
        raise UserError(f"cannot read the trace {path}: {error.strerror or error}") from error
    text = b"".join(pieces)
    if not damage and not text.rstrip().endswith(b"]"):
        damage.append("its event list has no end: the file is cut off")
    return text, damage
