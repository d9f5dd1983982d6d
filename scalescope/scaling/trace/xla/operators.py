"""Makes a trace, as Kineto's are, of a profile in which TensorFlow computed on the host: its operators, by type.

TensorFlow runs them on threads of its own, between the begin and the end of a step on the thread that called it. All
of them stand on that thread's timeline here: what runs beside another one counts once.
"""

import re
from pathlib import Path

from scalescope.scaling.trace.columns import Columns
from scalescope.scaling.trace.events import AnyEvent, Event
from scalescope.scaling.trace.header import Header
from scalescope.scaling.trace.trace import Trace
from scalescope.scaling.trace.xla.profile import Profile

#: `node:Type`, as TensorFlow's executor names the kernels that it runs.
_OPERATOR = re.compile(r"[^\s:]+:([A-Z_]\w{0,127})")
_THREAD = 1


def operator_type(name: str) -> str:
    """Return the type of the operator that an event of the host ran; empty where it is none."""
    match = _OPERATOR.fullmatch(name)
    return match[1] if match else ""


def trace_of_operators(profile: Profile, path: Path) -> Trace:
    """Return the trace of a rank that computed on its host."""
    events: list[AnyEvent] = [
        Event(ph="X", cat="cpu_op", name=one.type, tid=_THREAD, ts=one.start / 1000, dur=one.duration / 1000)
        for one in sorted(profile.operators, key=lambda one: one.start)
    ]
    events += [
        Event(ph="X", cat="user_annotation", name=f"ProfilerStep#{step.number}", tid=_THREAD, ts=step.start / 1000,
              dur=step.duration / 1000)
        for step in profile.steps
    ]  # fmt: skip
    columns = Columns()
    columns.add_events(events)
    columns.invalid_events += profile.invalid
    header = Header(base_ns=profile.base_ns, host=profile.host)
    trace = columns.trace(path, header, profile.damage, profile.cut_off)
    trace.framework = "tensorflow"
    return trace
