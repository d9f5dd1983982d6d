"""nccl-tests and `scalescope sweep` on the same GPUs, in one sitting, interleaved: is a figure of ours theirs?

    python benchmarks/nccl_tests_side_by_side.py --nccl-tests ~/nccl-tests/build --sizes 8B..4GiB --out side_by_side

Needs a build of nccl-tests (`make` there; no MPI) and a machine with at least two GPUs. Every repeat runs, for each
operation and group size, nccl-tests with a thread a GPU (`-t N -g 1`), and then one sweep of ours over the same
operations, sizes and group sizes: directly, through torch.distributed, and both again as graphs. So a drift of clocks
or temperature meets both. What is compared is the median of the repeats.

Their in-place column is taken, but for operations that cannot work in place (all_to_all, send_recv). Ours is timed
with the host's clock, as theirs. --nccl-library makes nccl-tests load torch's own library, so that one library is
compared with itself (needs a build that links it dynamically, which is the default).

Writes OUT/theirs/*.txt, the sweep folders under OUT/ours, and OUT/table.md; prints the table and, at the end, whether
each claim holds.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))

from collectives.operations import OPERATIONS  # noqa: E402 - the checkout, without an installation
from collectives.sizes import format_size, parse_size  # noqa: E402
from records.folder import RunFolder  # noqa: E402

PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
    "all_to_all": "alltoall_perf",
    "send_recv": "sendrecv_perf",
    "gather": "gather_perf",
    "scatter": "scatter_perf",
}
GRAPH_LAUNCHES = 10
MIB = 1024**2
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)\s+(.*)$")


@dataclass(frozen=True)
class Cell:
    """What both sides measured: one operation at one size over one group, eager or as a graph."""

    operation: str
    group_size: int
    bytes: int
    execution: str


@dataclass
class Seconds:
    """How long each side took for all of its points, by repeat."""

    theirs: list[float]
    ours: dict[str, list[float]]


def main() -> int:
    options = _options()
    out = Path(options.out)
    (out / "theirs").mkdir(parents=True, exist_ok=True)
    theirs: dict[Cell, list[float]] = defaultdict(list)
    ours: dict[tuple[str, Cell], list[float]] = defaultdict(list)
    seconds = Seconds(theirs=[], ours=defaultdict(list))
    for repeat in range(options.repeats):
        spent = 0.0
        for operation in options.operations:
            for group_size in options.group_sizes:
                for execution in options.executions:
                    started = time.monotonic()
                    text = run_theirs(options, operation, group_size, execution)
                    spent += time.monotonic() - started
                    name = f"{operation}-n{group_size}-{execution}-{repeat}.txt"
                    (out / "theirs" / name).write_text(text)
                    for size, time_us in read_theirs(text, OPERATIONS[operation].natural_mode == "in_place"):
                        theirs[Cell(operation, group_size, size, execution)].append(time_us)
        seconds.theirs.append(spent)
        for path in options.paths:
            started = time.monotonic()
            folder = run_ours(options, out / "ours", f"{path}-{repeat}", path)
            seconds.ours[path].append(time.monotonic() - started)
            for row in folder.read_sweep():
                if row.time_us is not None:
                    cell = Cell(row.operation, row.group_size, row.bytes, row.execution)
                    ours[row.path, cell].append(row.time_us)
                else:
                    print(f"# {row.operation} {row.bytes} n={row.group_size} {row.path}: {row.status}: {row.reason}")
        print(f"# repeat {repeat + 1} of {options.repeats}: theirs {spent:.1f} s, "
              + ", ".join(f"{path} {took[-1]:.1f} s" for path, took in seconds.ours.items()), flush=True)  # fmt: skip
    lines = [*table(theirs, ours), "", *claims(theirs, ours, seconds)]
    (out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


def run_theirs(options: argparse.Namespace, operation: str, group_size: int, execution: str) -> str:
    """Run one program of nccl-tests and return what it printed."""
    first, last = options.sizes.split("..")
    command = [
        str(Path(options.nccl_tests) / PROGRAMS[operation]),
        *("-t", str(group_size), "-g", "1", "-b", str(parse_size(first)), "-e", str(parse_size(last)), "-f", "2"),
        *("-w", "5", "-n", "20", "-d", "float"),
        *(("-G", str(GRAPH_LAUNCHES)) if execution == "graph" else ()),
    ]
    environment = dict(os.environ)
    if options.nccl_library:
        folder = str(Path(options.nccl_library).parent)
        environment["LD_LIBRARY_PATH"] = f"{folder}:{environment.get('LD_LIBRARY_PATH', '')}"
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def read_theirs(text: str, in_place: bool) -> Iterator[tuple[int, float]]:
    """Yield (bytes, time in µs) of each row of nccl-tests' text."""
    for line in text.splitlines():
        match = _ROW.match(line)
        if match and int(match[1]) > 0:  # sizes too small for the group are cut to 0 there
            figures = match[6].split()  # out of place: time algbw busbw wrong; then the same in place
            yield int(match[1]), float(figures[4 if in_place else 0])


def run_ours(options: argparse.Namespace, runs: Path, name: str, path: str) -> RunFolder:
    """Run one sweep of ours over the same points and return its folder."""
    listed = {key: f"[{','.join(map(str, values))}]" for key, values in (
        ("operations", options.operations), ("group_sizes", options.group_sizes), ("execution", options.executions),
    )}  # fmt: skip
    command = [
        *(sys.executable, "-m", "scalescope", "sweep", f"runs={runs}", f"name={name}", "logger=none"),
        *(f"{key}={value}" for key, value in listed.items()),
        *(f"sizes={options.sizes} x2", f"path={path}", "clock=host", f"launch.ranks={max(options.group_sizes)}"),
        *options.overrides,
    ]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return RunFolder.open(runs / name)


def table(theirs: dict[Cell, list[float]], ours: dict[tuple[str, Cell], list[float]]) -> Iterator[str]:
    """Yield the table: median times, and how often theirs our bandwidth is (above 1: we are faster)."""
    paths = sorted({path for path, _ in ours})
    heads = [f"{path} µs | {path}/theirs" for path in paths]
    if set(paths) >= {"c10d", "direct"}:
        heads.append("dispatch µs")
    yield f"| operation | n | size | as | theirs µs | theirs busbw GB/s | {' | '.join(heads)} |"
    yield "|" + "---|" * (6 + 2 * len(paths) + ({"c10d", "direct"} <= set(paths)))
    for cell in sorted(theirs, key=lambda cell: (cell.operation, cell.execution, cell.group_size, cell.bytes)):
        their_us = statistics.median(theirs[cell])
        bus = OPERATIONS[cell.operation].bus_factor(cell.group_size) * cell.bytes / their_us / 1e3
        medians = {path: statistics.median(ours[path, cell]) for path in paths if (path, cell) in ours}
        figures = [
            f"{medians[path]:.2f} | {their_us / medians[path]:.3f}" if path in medians else "n/a | n/a"
            for path in paths
        ]
        if {"c10d", "direct"} <= medians.keys():
            figures.append(f"{medians['c10d'] - medians['direct']:.2f}")
        yield (f"| {cell.operation} | {cell.group_size} | {format_size(cell.bytes)} | {cell.execution} | "
               f"{their_us:.2f} | {bus:.2f} | {' | '.join(figures)} |")  # fmt: skip


def claims(
    theirs: dict[Cell, list[float]], ours: dict[tuple[str, Cell], list[float]], seconds: Seconds
) -> Iterator[str]:
    """Yield a line a claim: what was claimed, what was measured, and whether it holds."""
    for path, least, within in (("direct", MIB, 0.05), ("direct", 1, 0.10), ("c10d", 16 * MIB, 0.05)):
        ratios = {
            cell: statistics.median(times) / statistics.median(ours[path, cell])
            for cell, times in theirs.items()
            if (path, cell) in ours and cell.bytes >= least and (least > 1 or cell.bytes < MIB)
        }
        if not ratios:
            continue
        band = f"from {format_size(least)} up" if least > 1 else "below 1MiB"
        bad = {cell: ratio for cell, ratio in ratios.items() if abs(ratio - 1) > within}
        median = statistics.median(ratios.values())
        yield (f"- {path}, {band}: {len(ratios) - len(bad)} of {len(ratios)} rows within {within:.0%}, "
               f"median ratio {median:.4f}: {'holds' if not bad else 'does not hold'}")  # fmt: skip
        for cell, ratio in sorted(bad.items(), key=lambda item: abs(item[1] - 1), reverse=True)[:20]:
            yield (f"  - {cell.operation} n={cell.group_size} {format_size(cell.bytes)} {cell.execution}: {ratio:.3f}")
    for path, took in seconds.ours.items():
        mean_ours, mean_theirs = statistics.mean(took), statistics.mean(seconds.theirs)
        yield (f"- time of a repeat: {path} {mean_ours:.1f} s, theirs {mean_theirs:.1f} s: "
               f"{mean_ours / mean_theirs:.2f} times")  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nccl-tests", required=True, metavar="BUILD", help="the folder with all_reduce_perf")
    parser.add_argument("--nccl-library", metavar="FILE", help="the libnccl.so.2 that nccl-tests is to load")
    parser.add_argument("--operations", default="all_reduce,all_gather,reduce_scatter,broadcast,all_to_all,send_recv")
    parser.add_argument("--group-sizes", default="2,4")
    parser.add_argument("--sizes", default="8B..4GiB")
    parser.add_argument("--executions", default="eager,graph")
    parser.add_argument("--paths", default="direct,c10d")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="side_by_side")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="for scalescope sweep, after --")
    options = parser.parse_args()
    for key in ("operations", "executions", "paths"):
        setattr(options, key, getattr(options, key).split(","))
    options.group_sizes = [int(size) for size in options.group_sizes.split(",")]
    return options


if __name__ == "__main__":
    sys.exit(main())
