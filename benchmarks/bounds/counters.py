"""Which counters are read of each kernel, how ncu is called for them, and its answer."""

import csv
import gzip
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

#: One pass over a kernel reads what its units count side by side; a second would have to restore all memory before.
TIME = "gpu__time_duration.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
L2_SECTORS = "lts__t_sectors.sum"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
ISSUED = "sm__inst_executed.avg.pct_of_peak_sustained_elapsed"
BUSY, ELAPSED = "sm__cycles_active.avg", "sm__cycles_elapsed.max"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
WAVES = "launch__waves_per_multiprocessor"
_MOST_LAUNCHES = 450
_PASSES = "profiler__replayer_passes"  # ncu gives it unasked
MEMORY = (TIME, READ, WRITTEN, L2_SECTORS)
CORES = (TIME, TENSOR, ISSUED, BUSY, ELAPSED, WARPS)


class Launch(msgspec.Struct, frozen=True):
    """One kernel as ncu saw it: its name, its grid's blocks, and what was counted."""

    name: str
    blocks: int
    counted: Mapping[str, float]


def known(ncu: str, metrics: Sequence[str], chip: str = "gh100") -> list[str]:
    """Return those of the metrics that this ncu can read of a chip; all of them where it does not say."""
    try:
        said = subprocess.run([ncu, "--query-metrics", "--chip", chip], capture_output=True, text=True, check=False,
                              timeout=60).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return list(metrics)
    names = {line.split()[0] for line in said.splitlines() if line.split()}
    if READ.partition(".")[0] not in names:
        return list(metrics)
    return [one for one in metrics if one.startswith("launch__") or one.partition(".")[0] in names]


def command(ncu: str, metrics: Sequence[str], log: Path, program: Sequence[str]) -> list[str]:
    """Return how a program is run with these counters read of each kernel between its profiler's start and stop."""
    return [ncu, "--profile-from-start", "off", "--target-processes", "all", "--clock-control", "none",
            "--cache-control", "none", "--launch-count", str(_MOST_LAUNCHES), "--metrics", ",".join((*metrics, WAVES)),
            "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log), *program]  # fmt: skip


def passes(said: str) -> int:
    """Return the most passes that any kernel of a CSV took; 0 where ncu profiled none."""
    found = filter(None, map(_launch, csv.DictReader(_table(iter(said.splitlines(keepends=True))))))
    return max((int(one.counted.get(_PASSES, 1)) for one in found), default=0)


def read_launches(path: Path) -> list[Launch]:
    """Return the kernels of a CSV in the order of their launches."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = csv.DictReader(_table(lines))
        return [launch for row in rows if (launch := _launch(row)) is not None]


def _table(lines: Iterable[str]) -> Iterator[str]:
    """Yield the CSV's lines: others come before it, and between."""
    for line in lines:
        if line.startswith('"'):
            yield line


def _launch(row: Mapping[str, str]) -> Launch | None:
    if not row["ID"]:  # the units' row
        return None
    blocks = 1
    for side in re.findall(r"\d+", row.get("Grid Size") or row.get("launch__grid_size") or ""):
        blocks *= int(side)
    counted = {
        key: number
        for key, value in row.items()
        if key is not None and "__" in key and (number := _number(value)) is not None
    }
    return Launch(row["Kernel Name"], blocks, counted)


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
