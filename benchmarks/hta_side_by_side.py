"""HolisticTraceAnalysis's figures beside ours, on the same traces: compute time and overlap, a rank.

    python benchmarks/hta_side_by_side.py ~/hta/bin/python tests/data/gpt_ddp_n2 …

The interpreter is one that has HTA. HTA rounds each kernel's start up and its end down to whole µs, so it loses 1 µs a
kernel on average; the last two columns are ours with that same rounding, which is what its figures must equal.
"""

import json
import subprocess
import sys
from pathlib import Path

from scaling.intervals import Intervals, intersect, length, union
from scaling.reader import read_trace
from scaling.sources import find_sources
from scaling.timeline import COMMUNICATION, COMPUTE, build_timeline

HTA = """
import json, sys
from hta.trace_analysis import TraceAnalysis
files = {rank: path for rank, path in enumerate(sys.argv[1:])}
analysis = TraceAnalysis(trace_files=files)
times = analysis.get_temporal_breakdown(visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False)
print("HTA" + json.dumps([times["compute_time(us)"].tolist(), overlap["comp_comm_overlap_pctg"].fillna(0).tolist()]))
"""


def ours(path: Path, rounded: bool) -> tuple[float, float]:
    """Return compute time in µs and overlap in % of what the steps launched, exact or as HTA rounds."""
    timeline = build_timeline(read_trace(path))
    start, end = timeline.start, timeline.end
    if rounded:
        start, end = -(-start // 1000) * 1000, end // 1000 * 1000
    sets = []
    for kind in (COMPUTE, COMMUNICATION):
        chosen = (timeline.kind == kind) & (timeline.step >= 0)
        sets.append(union(Intervals(start[chosen], end[chosen])))
    compute, communication = sets
    hidden = length(intersect(compute, communication))
    return length(compute) / 1e3, 100 * hidden / max(1, length(communication))


def main() -> None:
    python, *folders = sys.argv[1:]
    for folder in folders:
        paths = [source.path for source in find_sources(Path(folder))]
        done = subprocess.run(
            [python, "-c", HTA, *(str(path.resolve()) for path in paths)], capture_output=True, text=True, check=True
        )
        line = next(line for line in done.stdout.splitlines() if line.startswith("HTA"))
        compute, overlap = json.loads(line.removeprefix("HTA"))
        for rank, path in enumerate(paths):
            exact, rounded = ours(path, False), ours(path, True)
            print(
                f"{Path(folder).name:22} rank {rank}  HTA {compute[rank]:9.0f} µs {overlap[rank]:6.2f}%"
                f"  ours {exact[0]:11.1f} µs {exact[1]:6.2f}%  as HTA rounds {rounded[0]:9.0f} µs {rounded[1]:6.2f}%"
            )


if __name__ == "__main__":
    main()
