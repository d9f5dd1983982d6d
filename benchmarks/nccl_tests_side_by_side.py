"""nccl-tests and `scalescope sweep` on the same GPUs, in one sitting, interleaved: is a figure of ours theirs?

    python benchmarks/nccl_tests_side_by_side.py --nccl-tests ~/nccl-tests/build --sizes 8B..4GiB --out side_by_side
    python benchmarks/nccl_tests_side_by_side.py --transports direct,c10d,xla --executions eager --group-sizes 2 \
        --sizes "64MiB..1GiB x4" --repeats 1 --out xla -- budget_s=0.2

Needs a machine with at least two GPUs, and a build of nccl-tests (`make` there; no MPI). Without one, the first of our
transports stands in its place (direct: the library itself), and the table says so. Every repeat runs, for each
operation and group size, nccl-tests with a thread a GPU (`-t N -g 1`), with --mpi-tests and a build with MPI=1 also
with a process a GPU (`mpirun -n N … -t 1 -g 1`), as training jobs have it, and then one sweep of ours over the same
operations, sizes and group sizes: directly, through torch.distributed, and both again as graphs. So a drift of clocks
or temperature meets all. What is compared is the median of the repeats; Ctrl-C or SIGTERM shows it for those done.

Their in-place column is taken, but for operations that cannot work in place (all_to_all, send_recv). Ours is timed
with the host's clock, as theirs; of XLA's programs, whose operations follow one another in one loop, with the clock
that they have. Graphs are compared up to --graphs-to only: above it a launch costs nothing beside the
transfer. A repeat that OUT holds whole is read and not measured again, so a sitting can be made of several calls.
--nccl-library makes nccl-tests load torch's own library, so that one library is
compared with itself (needs a build that links it dynamically, which is the default).

Writes OUT/theirs/*.txt, the sweep folders under OUT/ours, and OUT/table.md; prints the table and, at the end, whether
each claim holds.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))

from scalescope.collectives.operations import OPERATIONS  # noqa: E402 - the checkout, without an installation
from scalescope.collectives.sizes import format_size, parse_size  # noqa: E402
from scalescope.records.folder import RunFolder  # noqa: E402

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
#: Of a transport, from which size up, within which share of their time.
_CLAIMS = (("direct", MIB, 0.05), ("direct", 1, 0.10), ("c10d", 16 * MIB, 0.05), ("xla", 64 * MIB, 0.10))
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)\s+(.*)$")


@dataclass(frozen=True)
class Cell:
    """What both sides measured: one operation at one size over one group, eager or as a graph."""

    operation: str
    group_size: int
    bytes: int
    execution: str


@dataclass
class Measured:
    """All figures so far: times in µs by cell, and how long each repeat took."""

    theirs: dict[Cell, list[float]] = field(default_factory=lambda: defaultdict(list))
    by_processes: dict[Cell, list[float]] = field(default_factory=lambda: defaultdict(list))  # theirs, a process a GPU
    of_programs: dict[Cell, list[float]] = field(default_factory=lambda: defaultdict(list))  # dispatch of XLA's, µs
    ours: dict[tuple[str, Cell], list[float]] = field(default_factory=lambda: defaultdict(list))
    reference: str | None = None  # the transport of ours that stands in the place of theirs
    seconds: list[tuple[float, float]] = field(default_factory=list)  # theirs, ours a transport


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # both end the measuring and show what there is
    measured = Measured(reference=None if options.nccl_tests else options.transports[0])
    (options.out / "theirs").mkdir(parents=True, exist_ok=True)
    try:
        for repeat in range(options.repeats):
            measure(options, repeat, measured)
    except KeyboardInterrupt:
        print("# stopped: the table is of what was measured until here", flush=True)
    of_ours = f"`theirs` is transport={measured.reference}: nccl-tests were not run."
    theirs = [of_ours, ""] if measured.reference is not None else []
    lines = [*theirs, *table(measured), "", *claims(measured)]
    (options.out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


def measure(options: argparse.Namespace, repeat: int, measured: Measured) -> None:
    """Run theirs and then ours over the same points, and add the figures."""
    ours = [_folder(options, execution, repeat) for execution in options.executions]
    known = all(map(_is_whole, ours))
    for folder in () if known else ours:
        shutil.rmtree(folder, ignore_errors=True)  # of a repeat that was cut short
    began = time.monotonic()
    points = product(options.operations, options.group_sizes, options.executions) if options.nccl_tests else ()
    for operation, group_size, execution in points:
        for figures, suffix in ((measured.theirs, ""), (measured.by_processes, "-processes")):
            log = options.out / "theirs" / f"{operation}-n{group_size}-{execution}-{repeat}{suffix}.txt"
            if not known and (options.mpi_tests or not suffix):
                log.write_text(run_theirs(options, operation, group_size, execution, processes=bool(suffix)))
            text = log.read_text() if log.exists() else ""
            for size, time_us in read_theirs(text, OPERATIONS[operation].natural_mode == "in_place"):
                figures[Cell(operation, group_size, size, execution)].append(time_us)
    theirs_s = (time.monotonic() - began) / (2 if options.mpi_tests else 1)  # one way of theirs
    began = time.monotonic()
    folders = [
        RunFolder.open(folder) if known else run_ours(options, execution, repeat)
        for execution, folder in zip(options.executions, ours, strict=True)
    ]
    ours_s = time.monotonic() - began
    refused = set()
    for row in (row for folder in folders for row in folder.read_sweep()):
        if row.time_us is None:
            refused.add(f"# {row.operation} {row.transport} {row.execution}: {row.status}: {row.reason}")
            continue
        cell = Cell(row.operation, row.group_size, row.bytes, row.execution)
        measured.ours[row.transport, cell].append(row.time_us)
        if row.dispatch_us is not None:
            measured.of_programs[cell].append(row.dispatch_us)
        if row.transport == measured.reference:
            measured.theirs[cell].append(row.time_us)
    print("\n".join(sorted(refused)), end="\n" if refused else "")
    ways = len(options.transports)  # theirs has one
    they = f"nccl-tests took {theirs_s:.1f} s, " if options.nccl_tests else ""
    took = f"{they}ours {ours_s:.1f} s for {ways} transports"
    print(f"# repeat {repeat + 1} of {options.repeats}: {'known already' if known else took}", flush=True)
    if not known and options.nccl_tests:
        measured.seconds.append((theirs_s, ours_s / ways))


def run_theirs(options: argparse.Namespace, operation: str, group_size: int, execution: str, processes: bool) -> str:
    """Run one program of nccl-tests, a thread or a process a GPU, and return what it printed."""
    first, last, factor = _cut(_sizes(options, execution))
    started = [*shlex.split(options.mpirun), "-n", str(group_size)] if processes else []
    threads = 1 if processes else group_size
    command = [
        *started,
        str(Path(options.mpi_tests if processes else options.nccl_tests) / PROGRAMS[operation]),
        *("-t", str(threads), "-g", "1", "-b", str(parse_size(first)), "-e", str(parse_size(last)), "-f", factor),
        *("-w", "5", "-n", "20", "-d", "float", "-c", "0"),
        *(("-G", str(GRAPH_LAUNCHES)) if execution == "graph" else ()),
    ]
    environment = dict(os.environ)
    if options.nccl_library:
        folder = str(Path(options.nccl_library).parent)
        environment["LD_LIBRARY_PATH"] = f"{folder}:{environment.get('LD_LIBRARY_PATH', '')}"
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def read_theirs(text: str, in_place: bool) -> Iterator[tuple[int, float]]:
    """Yield (bytes, time in µs) of each row of nccl-tests' text."""
    for line in text.splitlines():
        match = _ROW.match(line)
        if match and int(match[1]) > 0:  # sizes too small for the group are cut to 0 there
            figures = match[6].split()  # out of place: time algbw busbw wrong; then the same in place
            yield int(match[1]), float(figures[4 if in_place else 0])


def run_ours(options: argparse.Namespace, execution: str, repeat: int) -> RunFolder:
    """Run one sweep of ours over the same points, all transports in one launch, and return its folder."""
    axes = {
        "operations": options.operations,
        "group_sizes": options.group_sizes,
        "execution": [execution],
        "transport": options.transports,
    }
    settings = {
        **{key: f"[{','.join(map(str, values))}]" for key, values in axes.items()},
        "sizes": _sizes(options, execution),
        "clock": "host",
        "percentile_iterations": 0,
        "check": "false",
        "launch.ranks": max(options.group_sizes),
        "logger": "none",
        "runs": options.out / "ours",
        "name": _folder(options, execution, repeat).name,
    }
    overrides = [*(f"{key}={value}" for key, value in settings.items()), *options.overrides]
    command = [sys.executable, "-m", "scalescope", "sweep", *overrides]
    search_path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": search_path}, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        print(done.stdout[-2000:], done.stderr[-4000:], sep="\n")
    return RunFolder.open(_folder(options, execution, repeat))


def table(measured: Measured) -> Iterator[str]:
    """Yield the table: median times, and how often theirs our bandwidth is (above 1: we are faster)."""
    theirs, ours = measured.theirs, measured.ours
    transports = sorted({transport for transport, _ in ours})
    heads = [f"{transport} µs | {transport}/theirs" for transport in transports]
    if set(transports) >= {"c10d", "direct"}:
        heads.append("dispatch µs")
    if measured.of_programs:
        heads.append("xla dispatch µs")
    if measured.by_processes:
        heads.append("theirs, a process a GPU µs")
    yield f"| operation | n | size | as | theirs µs | theirs busbw GB/s | {' | '.join(heads)} |"
    yield "|" + "---|" * (6 + len(transports) + len(heads))  # a transport's head holds two columns
    for cell in sorted(theirs, key=lambda cell: (cell.operation, cell.execution, cell.group_size, cell.bytes)):
        their_us = statistics.median(theirs[cell])
        bus = (OPERATIONS[cell.operation].facts.bus_factor(cell.group_size) or 0.0) * cell.bytes / their_us / 1e3
        medians = {
            transport: statistics.median(ours[transport, cell]) for transport in transports if (transport, cell) in ours
        }
        if not medians:
            continue
        figures = [
            f"{medians[transport]:.2f} | {their_us / medians[transport]:.3f}" if transport in medians else "n/a | n/a"
            for transport in transports
        ]
        if {"c10d", "direct"} <= medians.keys():
            figures.append(f"{medians['c10d'] - medians['direct']:.2f}")
        if measured.of_programs:
            own = measured.of_programs.get(cell)
            figures.append(f"{statistics.median(own):.2f}" if own else "n/a")
        if measured.by_processes:
            by_processes = measured.by_processes.get(cell)
            figures.append(f"{statistics.median(by_processes):.2f}" if by_processes else "n/a")
        yield (f"| {cell.operation} | {cell.group_size} | {format_size(cell.bytes)} | {cell.execution} | "
               f"{their_us:.2f} | {bus:.2f} | {' | '.join(figures)} |")  # fmt: skip


def claims(measured: Measured) -> Iterator[str]:
    """Yield a line a claim: what was claimed, what was measured, and whether it holds."""
    ours = measured.ours
    references = (("", measured.theirs), (" against theirs with a process a GPU", measured.by_processes))
    for (beside, theirs), (transport, least, within) in product(references, _CLAIMS):
        ratios = {
            cell: statistics.median(times) / statistics.median(ours[transport, cell])
            for cell, times in theirs.items()
            if transport != measured.reference
            and (transport, cell) in ours
            and cell.bytes >= least
            and (least > 1 or cell.bytes < MIB)
        }
        if not ratios:
            continue
        band = f"from {format_size(least)} up" if least > 1 else "below 1MiB"
        bad = {cell: ratio for cell, ratio in ratios.items() if abs(ratio - 1) > within}
        median = statistics.median(ratios.values())
        yield (f"- {transport}{beside}, {band}: {len(ratios) - len(bad)} of {len(ratios)} rows within {within:.0%}, "
               f"median ratio {median:.4f}: {'holds' if not bad else 'does not hold'}")  # fmt: skip
        for cell, ratio in sorted(bad.items(), key=lambda item: abs(item[1] - 1), reverse=True)[:20]:
            yield (f"  - {cell.operation} n={cell.group_size} {format_size(cell.bytes)} {cell.execution}: {ratio:.3f}")
    if measured.seconds:
        theirs_s, ours_s = (statistics.mean(took) for took in zip(*measured.seconds, strict=True))
        yield (f"- time for the same points: theirs {theirs_s:.1f} s, ours {ours_s:.1f} s a transport with its share "
               f"of the start: {ours_s / theirs_s:.2f} times")  # fmt: skip


def _folder(options: argparse.Namespace, execution: str, repeat: int) -> Path:
    return Path(options.out) / "ours" / f"{execution}-{repeat}"


def _is_whole(folder: Path) -> bool:
    return (folder / "run.json").is_file() and RunFolder(folder).read_info().status == "done"


def _sizes(options: argparse.Namespace, execution: str) -> str:
    """Return the range of sizes for eager calls, or the one for graphs, which ends at --graphs-to."""
    if execution == "eager":
        return str(options.sizes)
    first, last, factor = _cut(options.sizes)
    return f"{first}..{format_size(min(parse_size(last), parse_size(options.graphs_to)))} x{factor}"


def _range(text: str) -> str:
    """Return a range of sizes with its factor, 2 where none is given."""
    full = text if " x" in text else f"{text} x2"
    _cut(full)
    return full


def _cut(text: str) -> tuple[str, str, str]:
    """Return first, last and factor of a range of sizes. Raises argparse.ArgumentTypeError where it is none."""
    match = re.fullmatch(r"(\S+)\.\.(\S+) x(\d+)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: write 8B..4GiB, or '8B..4GiB x4'")
    return match[1], match[2], match[3]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nccl-tests", metavar="BUILD", help="the folder with all_reduce_perf")
    parser.add_argument("--mpi-tests", metavar="BUILD", help="a build with MPI=1: measure one process a GPU, too")
    parser.add_argument("--mpirun", default="mpirun", metavar="COMMAND", help="what starts it; -n N is added")
    parser.add_argument("--nccl-library", metavar="FILE", help="the libnccl.so.2 that nccl-tests is to load")
    parser.add_argument("--operations", default="all_reduce", help=f"comma list of {', '.join(PROGRAMS)}")
    parser.add_argument("--group-sizes", default="2,4")
    parser.add_argument("--sizes", default="8B..4GiB x2", type=_range)
    parser.add_argument("--executions", default="eager,graph")
    parser.add_argument("--graphs-to", default="4MiB", metavar="SIZE", help="the largest size timed as a graph")
    parser.add_argument("--transports", default="direct,c10d")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default=Path("side_by_side"), type=lambda text: Path(text).resolve())
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="for scalescope sweep, after --")
    options = parser.parse_args()
    for key in ("operations", "executions", "transports"):
        setattr(options, key, getattr(options, key).split(","))
    options.group_sizes = [int(size) for size in options.group_sizes.split(",")]
    return options


if __name__ == "__main__":
    sys.exit(main())
