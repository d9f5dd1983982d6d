"""HolisticTraceAnalysis's figures beside ours, on the same traces: compute, communication and overlap, a rank.

    python benchmarks/hta_side_by_side.py ~/hta/bin/python tests/data/gpt_ddp_n2 …

The interpreter is one that has HTA. Where the two differ, these differences of method say why, and the last column is
ours with all of them, which is what HTA's figure must equal:

* HTA rounds each kernel's start up and its end down to whole µs, so it loses 1 µs a kernel on average; a kernel that
  spans no whole µs gets a negative duration, and is taken off the sum where it stands alone.
* HTA takes every event with a `stream` argument for a kernel. Inductor's Triton launches are such: operators of the
  host (`cpu_op`) that name the stream they launch on.
"""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE, Timeline, build_timeline
from scalescope.scaling.trace.intervals import Intervals, Ints, intersect, length, union
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.trace.sources import find_sources

HTA = """
import json, sys
from hta.trace_analysis import TraceAnalysis
from hta.utils.utils import get_kernel_type, merge_kernel_intervals
analysis = TraceAnalysis(trace_files={rank: path for rank, path in enumerate(sys.argv[1:])})
times = analysis.get_temporal_breakdown(visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False)
names = analysis.t.symbol_table.get_sym_table()
communication = []
for trace in analysis.t.traces.values():
    kinds = trace["name"].map(lambda name: get_kernel_type(names[name]))
    merged = merge_kernel_intervals(trace[trace["stream"].ne(-1) & kinds.eq("COMMUNICATION")].copy())
    communication.append(float((merged["end"] - merged["ts"]).sum()))
print("HTA" + json.dumps([times["compute_time(us)"].tolist(), communication,
                          overlap["comp_comm_overlap_pctg"].fillna(0).tolist()]))
"""


class Figures(NamedTuple):
    """Of one rank: times in µs, overlap in % of the communication."""

    compute: float
    communication: float
    overlap: float

    def __str__(self) -> str:
        return f"{self.compute:11.1f} {self.communication:10.1f} {self.overlap:6.2f}%"


def exact(timeline: Timeline) -> Figures:
    """Return ours, of what the steps launched."""
    sets = []
    for kind in (COMPUTE, COMMUNICATION):
        chosen = (timeline.kind == kind) & (timeline.step >= 0)
        sets.append(union(Intervals(timeline.start[chosen], timeline.end[chosen])))
    compute, communication = sets
    return _figures(compute, communication, 1e3)


def as_hta_counts(timeline: Timeline, base_ns: int, operators: Intervals) -> Figures:
    """Return ours with HTA's rounding and merging, and with host operators that name a stream counted as compute."""
    sets = []
    for kind, more in ((COMPUTE, operators), (COMMUNICATION, None)):
        chosen = (timeline.kind == kind) & (timeline.step >= 0)
        start, end = timeline.start[chosen] - base_ns, timeline.end[chosen] - base_ns
        if more is not None:
            start, end = np.concatenate((start, more.starts)), np.concatenate((end, more.ends))
        sets.append(_merged(-(-start // 1000), end // 1000))
    compute, communication = sets
    return _figures(compute, communication, 1)


def _figures(compute: Intervals, communication: Intervals, unit: float) -> Figures:
    whole = length(communication)
    hidden = length(intersect(compute, communication))
    return Figures(length(compute) / unit, whole / unit, 100 * hidden / max(1, whole))


def _merged(start: Ints, end: Ints) -> Intervals:
    """Merge as HTA does: negative durations are merged, too, and count as such."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    if not start.size:
        return Intervals(start, end)
    reach = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    groups = np.flatnonzero(first)
    return Intervals(start[groups], np.maximum.reduceat(end, groups))


def streaming_operators(path: Path) -> tuple[Intervals, dict[str, int]]:
    """Return the host's operators that carry a `stream` and how many of each name; ns of the file's clock."""
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    steps = [
        event["ts"] for event in events if re.match(r"ProfilerStep#\d+$", event.get("name", "")) and "dur" in event
    ]
    found = [
        event
        for event in events
        if event.get("cat") == "cpu_op" and "stream" in event.get("args", {}) and event["ts"] >= min(steps, default=0)
    ]
    starts = np.array([round(event["ts"] * 1000) for event in found], np.int64)
    ends = starts + np.array([round(event["dur"] * 1000) for event in found], np.int64)
    counts: dict[str, int] = {}
    for event in found:
        counts[event["name"]] = counts.get(event["name"], 0) + 1
    return Intervals(starts, ends), counts


def main() -> None:
    python, *folders = sys.argv[1:]
    print(f"{'':30} {'compute µs':>11} {'comm. µs':>10} overlap")
    for folder in folders:
        paths = [source.path for source in find_sources(Path(folder))]
        done = subprocess.run(
            [python, "-c", HTA, *(str(path.resolve()) for path in paths)], capture_output=True, text=True, check=True
        )
        line = next(line for line in done.stdout.splitlines() if line.startswith("HTA"))
        theirs = list(zip(*json.loads(line.removeprefix("HTA")), strict=True))
        for rank, path in enumerate(paths):
            trace = read_trace(path)
            timeline = build_timeline(trace)
            operators, names = streaming_operators(path)
            label = f"{Path(folder).name} rank {rank}"
            print(f"{label:24} HTA   {Figures(*theirs[rank])}")
            print(f"{'':24} ours  {exact(timeline)}")
            print(f"{'':24} as HTA{as_hta_counts(timeline, trace.header.base_ns, operators)}")
            if names:
                most = max(names, key=lambda name: names[name])
                print(f"{'':24} {sum(names.values())} operators with a stream, such as {names[most]} × {most}, "
                      f"{length(union(operators)) / 1e3:.0f} µs")  # fmt: skip


if __name__ == "__main__":
    main()
