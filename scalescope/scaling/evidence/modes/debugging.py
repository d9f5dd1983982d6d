"""What a host does that is for debugging alone: torch's anomaly detection, and launches that wait for their kernels.

Anomaly detection looks for NaN behind each node of the backward pass, and keeps for each operator of the forward pass
where in the source it was called, which takes Python tens of microseconds. The looks are operators of their own; what
the stacks take shows in operators that do nothing else: views.

With CUDA_LAUNCH_BLOCKING=1 a call that launches a kernel returns when that is through. Otherwise hardly any does.
"""

import msgspec
import numpy as np

from scalescope.scaling.evidence.host_timeline import HostTimeline
from scalescope.scaling.rank.launches import is_kernel_launch
from scalescope.scaling.rank.timeline import COMPUTE, Timeline
from scalescope.scaling.trace.families import ENGINE_FRAMES

PerStep = tuple[int, ...]

_LOOKS = "aten::isnan"
#: What looking takes, directly in the engine's frame around a node.
_PARTS = frozenset({_LOOKS, "aten::any", "aten::_is_any_true", "aten::is_nonzero", "aten::item"})
_VIEWS = frozenset(f"aten::{name}" for name in ("view", "t", "transpose", "permute", "unsqueeze", "squeeze", "select",
                                                "expand", "unflatten"))  # fmt: skip
#: What a view takes anyway, ns.
_VIEW_NS = 5_000
#: Fewer views tell nothing.
_FEW = 5
#: Looked at behind so many of the nodes, and so many a step, it is torch itself.
_BEHIND, _MANY = 0.5, 10
#: So many of the launches wait for their kernels where all do: the last of a burst may end beside its call by chance.
_WAIT = 0.95
#: What a launch takes where it does not wait, ns.
_LAUNCH_NS = 5_000


class Debugging(msgspec.Struct, frozen=True, kw_only=True):
    """What is there of it on one rank, in every step. Tuples have a value a step."""

    looks: PerStep = ()  # for NaN; empty where it does not look
    looks_ns: PerStep = ()
    stacks_ns: PerStep = ()  # what it takes about to keep where operators were called
    blocking: PerStep = ()  # launches that wait for their kernels; empty where launches do not
    blocking_ns: PerStep = ()  # by how much shorter steps would be at most if host and device did not take turns


def debugging(host: HostTimeline, device: Timeline | None) -> Debugging | None:
    """Return what a host does that is for debugging; None where there is nothing of it."""
    found = _anomaly_detection(host)
    if (blocking := _blocking(host, device)) is not None:
        found = msgspec.structs.replace(found or Debugging(), blocking=blocking[0], blocking_ns=blocking[1])
    return found


def _anomaly_detection(host: HostTimeline) -> Debugging | None:
    operators = host.operators
    if _LOOKS not in host.names or (operators.name == host.names.index(_LOOKS)).sum() < _MANY * len(host):
        return None
    names = [host.names[name] for name in operators.name.tolist()]
    spans = zip(operators.start.tolist(), operators.end.tolist(), operators.thread.tolist(), names, strict=True)
    step_of = host.step_of(operators.start).tolist()
    looks, looks_ns, nodes = ([0] * len(host) for _ in range(3))
    views: list[int] = []
    open_on: dict[int, list[tuple[int, str]]] = {}
    for (start, end, thread, name), step in zip(spans, step_of, strict=True):
        around = open_on.setdefault(thread, [])
        while around and around[-1][0] <= start:
            around.pop()
        if step >= 0:
            framed = bool(around) and around[-1][1].startswith(ENGINE_FRAMES)
            if framed and name in _PARTS:
                looks[step] += name == _LOOKS
                looks_ns[step] += end - start
            elif name.startswith(ENGINE_FRAMES) and "AccumulateGrad" not in name:
                nodes[step] += 1
            elif name in _VIEWS and not around:
                views.append(end - start)
        around.append((end, name))
    if not all(count >= max(_BEHIND * of, _MANY) for count, of in zip(looks, nodes, strict=True)):
        return None
    each = max(0, int(np.median(views)) - _VIEW_NS) if len(views) >= _FEW else 0
    return Debugging(looks=tuple(looks), looks_ns=tuple(looks_ns), stacks_ns=tuple(each * count for count in nodes))


def _blocking(host: HostTimeline, device: Timeline | None) -> tuple[PerStep, PerStep] | None:
    if device is None:
        return None
    launching = np.array([is_kernel_launch(name) for name in host.names], bool)
    calls = host.calls.of(launching[host.calls.name]) if len(host.calls) else host.calls
    rows = np.flatnonzero((device.kind == COMPUTE) & (device.launch >= 0))
    if rows.size < _MANY or not len(calls):
        return None
    # an activity of the device knows its launch by the time alone
    at = np.minimum(np.searchsorted(calls.start, device.launch[rows]), len(calls) - 1)
    known = calls.start[at] == device.launch[rows]
    rows, at = rows[known], at[known]
    if rows.size < _MANY or (calls.end[at] >= device.end[rows]).mean() < _WAIT:
        return None
    step = host.step_of(calls.start[at])
    inside = step >= 0
    count, kernel_ns, call_ns = np.zeros((3, len(host)), np.int64)
    np.add.at(count, step[inside], 1)
    np.add.at(kernel_ns, step[inside], (device.end - device.start)[rows[inside]])
    np.add.at(call_ns, step[inside], (calls.end - calls.start)[at[inside]])
    if not (count > 0).all():
        return None
    step_ns = np.diff(host.edges)
    alone = np.maximum(kernel_ns, step_ns - call_ns + _LAUNCH_NS * count)
    return tuple(count.tolist()), tuple(np.maximum(step_ns - alone, 0).tolist())
