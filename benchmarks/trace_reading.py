"""How long analysing traces takes, and how much memory: scalescope, and HolisticTraceAnalysis if it is installed.

    python benchmarks/trace_reading.py               5, 50, 511 and 1,022 MB, made by repeating a real trace; four ranks
    python benchmarks/trace_reading.py --mb 511 --hta ~/hta/bin/python     with HTA on the same file, in the same run

The trace repeats `tests/data/gpt_ddp_n1`, each time with later times, other correlations and further steps, so that it
is what a profiler would have written over more steps. The four ranks are `tests/data/gpt_ddp_compile_n4`. What is run
is `scalescope analyze`, replay and advice included, in a process of its own; time is from the shell's side (imports
included), memory is the peak resident size of that process.
"""

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "tests" / "data" / "gpt_ddp_n1" / "rank0.json.gz"

FOUR_RANKS = SOURCE.parent.parent / "gpt_ddp_compile_n4"

_NUMBERS = re.compile(
    rb'("ts": )(\d+)(?=\.\d{3})|("correlation": |"External id": |"id": (?=\d+, "pid"))(\d+)|(ProfilerStep#)(\d+)'
)

SCALESCOPE = """
import sys
from scalescope.cli.front_door import main
sys.argv.insert(1, "analyze")
sys.exit(main())  # as the command does: told its words, it leaves the process's settings alone
"""

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
print(analysis.get_temporal_breakdown(visualize=False).to_string())
"""


def make(target: Path, megabytes: int) -> Path:
    """Write a trace of about this size (uncompressed, 10^6 bytes) and return its path."""
    text = gzip.decompress(SOURCE.read_bytes())
    start = text.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    end = text.rindex(b"\n  ],")
    events = text[start:end]
    repeats = max(1, round((megabytes * 1e6 - start) / len(events)))
    with gzip.open(target, "wb", compresslevel=6) as file:
        file.write(text[:start])
        for repeat in range(repeats):
            file.write(b"," if repeat else b"")
            file.write(_shifted(events, repeat))
        file.write(text[end:])
    return target


def _shifted(events: bytes, repeat: int) -> bytes:
    """Return the events as a later window would hold them: 150 ms on, with numbers of their own."""

    def shift(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return b"%s%d" % (match[1], int(match[2]) + repeat * 149_300)
        if match[3]:
            return b"%s%d" % (match[3], int(match[4]) + repeat * 1_000_000)
        return b"%s%d" % (match[5], int(match[6]) + repeat * 3)

    return _NUMBERS.sub(shift, events) if repeat else events


def measure(code: str, trace: Path, python: str = sys.executable) -> dict[str, object]:
    """Run one reader in a process of its own; return seconds from the shell's side, peak MB, and what it printed."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [python, "-c", code, str(trace)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    printed, complaint = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    if status != 0:
        return {"failed": complaint.strip().splitlines()[-1] if complaint.strip() else f"status {status}"}
    # on a machine that others use too, processor time says more than the clock
    cpu = usage.ru_utime + usage.ru_stime
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "peak_mb": round(usage.ru_maxrss * 1024 / 1e6),
        "says": printed.strip(),
    }


def fastest(traces: Path, repeats: int) -> dict[str, object]:
    """Return the fastest of some runs of `scalescope analyze`; what it says, by its first line."""
    runs = [measure(SCALESCOPE, traces) for _ in range(repeats)]
    best = min(runs, key=lambda run: run.get("seconds", 1e9))  # type: ignore[arg-type,return-value]
    return {**best, "says": str(best.get("says", "")).partition("\n")[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, nargs="+", default=[5, 50, 511, 1022], help="sizes, uncompressed")
    parser.add_argument("--hta", metavar="PYTHON", help="measure HolisticTraceAnalysis too, with this interpreter")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the fastest counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({"reader": "scalescope", "ranks": 4, **fastest(FOUR_RANKS, options.repeats)}), flush=True)
        for size in sorted(options.mb):
            trace = make(Path(folder) / "rank0.json.gz", size)
            row = {"reader": "scalescope", "mb": size, "gz_mb": round(trace.stat().st_size / 1e6, 1)}
            print(json.dumps({**row, **fastest(trace, options.repeats)}), flush=True)
        if options.hta:
            print(json.dumps({"reader": "hta", "mb": size, **measure(HTA, trace, options.hta)}), flush=True)


if __name__ == "__main__":
    main()
