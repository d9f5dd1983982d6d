"""When the host compiles in a step, as Dynamo and Inductor annotate it themselves.

A steady compiled step looks its code up (`TorchDynamo Cache Lookup`) and calls it (`Torch-Compiled Region: 0/0`); it
compiles nothing.
"""

import re

import msgspec
import numpy as np

from scalescope.scaling.evidence.host_calls import LOADING_CODE
from scalescope.scaling.evidence.host_timeline import HostTimeline
from scalescope.scaling.trace.families import COMPILING
from scalescope.scaling.trace.intervals import EMPTY, Intervals, union

_REGION = re.compile(r"Torch-Compiled Region")


class Compilation(msgspec.Struct, frozen=True, kw_only=True):
    """What compiling takes. Tuples have a value a step."""

    ns: tuple[int, ...]
    count: tuple[int, ...]  # of stretches in which it compiles
    region: str  # the compiled region that runs next, in most cases; empty where none does
    code_loads: tuple[int, ...]  # calls that load a kernel's code onto the device


def compiling_stretches(host: HostTimeline) -> Intervals:
    """Return when the host compiles: a disjoint set in absolute ns."""
    found = []
    for spans in (host.operators, host.annotations):
        rows = host.named(COMPILING)[spans.name]
        if rows.any():
            found.append(spans.of(rows).intervals)
    return union(*found) if found else EMPTY


def compilation(host: HostTimeline, stretches: Intervals) -> Compilation | None:
    """Return what compiling takes, None where the steps compile nothing and load no code."""
    loads = host.named(LOADING_CODE)[host.calls.name]
    loaded = host.step_of(host.calls.start[loads])
    step = host.step_of(stretches.starts)
    inside = step >= 0
    if not inside.any() and not (loaded >= 0).any():
        return None
    ns = np.zeros(len(host), np.int64)
    np.add.at(ns, step[inside], (stretches.ends - stretches.starts)[inside])
    return Compilation(
        ns=tuple(ns.tolist()),
        count=tuple(np.bincount(step[inside], minlength=len(host)).tolist()),
        region=_region_after(host, stretches),
        code_loads=tuple(np.bincount(loaded[loaded >= 0], minlength=len(host)).tolist()),
    )


def _region_after(host: HostTimeline, stretches: Intervals) -> str:
    """Return the frame (`Torch-Compiled Region: 0`) of the compiled region that runs after most of the stretches."""
    regions = np.flatnonzero(host.named(_REGION)[host.operators.name])
    if not regions.size or not stretches.starts.size:
        return ""
    at = np.searchsorted(host.operators.start[regions], stretches.ends)
    names = [host.names[host.operators.name[regions[row]]].split("/")[0] for row in at.tolist() if row < regions.size]
    return max(sorted(set(names)), key=names.count) if names else ""
