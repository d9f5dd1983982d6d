"""The public ROCm traces of AMD's TraceLens, read by us, beside what TraceLens's own reports say of the same files.

    git clone https://github.com/AMD-AGI/TraceLens && (cd TraceLens && git lfs pull)
    python benchmarks/public_rocm_traces.py TraceLens

Its tests hold traces of MI210, MI300X and MI355X, and reports of most of them as tables (`…/gpu_timeline.csv`). For
each: what its kernels are, and how many lost the call that launched them; then compute, exposed communication, exposed
copies and idle in ms: ours, ours with TraceLens's rules, and TraceLens's, which the former must equal within rounding.
These rules differ from ours:

* a kernel without the call that launched it (one launched before recording began) is left out;
* a memset is compute;
* a copy that ROCm 7.1 records as a kernel (`__amd_rocclr_copyBuffer…`, `MEMORY_COPY_…`) is a copy;
* communication is what has `nccl` or `rccl` in its name, or is one of a list of custom collectives. MSCCL++'s kernels
  (`mscclpp…`, `allreduce7…`) have neither, and count as compute there.

Nothing of TraceLens's is part of this repository. Exit code 1 where a figure differs.
"""

import argparse
import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE, COPY, Mask, Timeline, build_timeline
from scalescope.scaling.trace.intervals import Intervals, Ints, difference, length, union
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.trace.trace import KERNEL, MEMSET, Trace

_KEYS = ("computation_time", "exposed_comm_time", "exposed_memcpy_time", "idle_time")
_NEAR_MS = 2e-3  # a µs at either end of the window, and one for the sums
_COPY_KERNEL = re.compile(r"MEMORY_COPY_|__amd_rocclr_copy", re.IGNORECASE)
_REPORTS = ("{stem}_perf_report_csvs", "perf_csvs")


class Figures(NamedTuple):
    """Of one trace, in ms."""

    compute: float
    communication: float
    copies: float
    idle: float

    def __str__(self) -> str:
        return "".join(f"{figure:14.6f}" for figure in self)


def reported(trace: Path) -> Figures | None:
    """Return TraceLens's figures of a trace, where it has a report of it."""
    stem = trace.name.removesuffix(".gz").removesuffix(".json")
    for pattern in _REPORTS:
        path = trace.parent / pattern.format(stem=stem) / "gpu_timeline.csv"
        if path.is_file():
            with path.open(newline="") as file:
                rows = {row["type"]: float(row["time ms"]) for row in csv.DictReader(file)}
            return Figures(*(rows[key] for key in _KEYS))
    return None


def ours(timeline: Timeline) -> Figures:
    """Return what we count, over everything that the file holds."""
    return _figures(timeline, timeline.kind, np.ones(timeline.kind.size, bool))


def as_tracelens_counts(trace: Trace, timeline: Timeline) -> Figures:
    """Return ours with TraceLens's rules."""
    order = np.argsort(trace.activities.start, kind="stable")
    raw = trace.activities.kind[order]
    names = [trace.names[name] for name in timeline.name.tolist()]
    kind = timeline.kind.copy()
    kind[raw == MEMSET] = COMPUTE
    copies = np.array([_COPY_KERNEL.match(name) is not None for name in names], bool)
    kind[(raw == KERNEL) & copies] = COPY
    named = np.array([re.search("nccl|rccl", name, re.IGNORECASE) is not None for name in names], bool)
    kind[(raw == KERNEL) & (timeline.kind == COMMUNICATION) & ~named] = COMPUTE
    return _figures(timeline, kind, timeline.linked if timeline.linked.any() else ~timeline.linked)


def _figures(timeline: Timeline, kind: Ints, counted: Mask) -> Figures:
    def of(which: int) -> Intervals:
        chosen = counted & (kind == which)
        return union(Intervals(timeline.start[chosen], timeline.end[chosen]))

    compute, communication, copies = of(COMPUTE), of(COMMUNICATION), of(COPY)
    busy = union(compute, communication, copies)
    whole = int(timeline.end[counted].max() - timeline.start[counted].min())
    alone = difference(difference(copies, compute), communication)
    exposed = difference(communication, compute)
    parts = (length(compute), length(exposed), length(alone), whole - length(busy))
    return Figures(*(part / 1e6 for part in parts))


def find_traces(checkout: Path) -> Iterator[Path]:
    """Yield the traces of a checkout; git-lfs's pointers, where nobody pulled them, are skipped with a word."""
    for path in sorted((checkout / "tests" / "traces").rglob("*.json.gz")):
        if path.read_bytes()[:2] != b"\x1f\x8b":
            print(f"{path.relative_to(checkout)}: not here (git lfs pull)", file=sys.stderr)
        elif "capture_traces" not in path.parts:
            yield path


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a checkout of AMD-AGI/TraceLens, or of its tests/traces alone")
    checkout = parser.parse_args().checkout
    wrong = compared = 0
    print(f"{'':68}{'compute':>14}{'communication':>14}{'copies':>14}{'idle':>14}   ms")
    for path in find_traces(checkout):
        trace = read_trace(path)
        timeline = build_timeline(trace)
        if not timeline.start.size:
            continue
        device = next((each.known_name for each in trace.header.devices), "?") or "nameless"
        print(f"{path.relative_to(checkout / 'tests/traces')}: {device}, {_about(trace, timeline)}")
        print(f"{'ours':>68}{ours(timeline)}")
        theirs, same = reported(path), as_tracelens_counts(trace, timeline)
        if theirs is None:
            continue
        compared += 1
        apart = max(abs(one - other) for one, other in zip(theirs, same, strict=True))
        wrong += apart > _NEAR_MS
        print(f"{'by its rules':>68}{same}")
        print(f"{'TraceLens':>68}{theirs}   {'equal' if apart <= _NEAR_MS else f'DIFFERS by {apart:.3f} ms'}")
    print(f"{compared} traces compared, {wrong} differ")
    return int(wrong > 0 or not compared)


def _about(trace: Trace, timeline: Timeline) -> str:
    kernels = trace.activities.kind == KERNEL
    chosen = np.unique(timeline.name[timeline.kind == COMMUNICATION]).tolist()
    names = sorted({trace.names[name].partition("(")[0].removeprefix("void ")[:40] for name in chosen})
    count = int((timeline.kind == COMMUNICATION).sum())
    lost = 1 - float(timeline.linked.mean())
    communication = f"{count} of communication ({', '.join(names[:3])})" if count else "none of communication"
    return f"{int(kernels.sum())} kernels, {communication}; {lost:.1%} without the call that launched them"


if __name__ == "__main__":
    raise SystemExit(main())
