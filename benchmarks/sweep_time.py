"""Where a sweep's time goes: the wall time of each row beside the time its clock counted.

    python benchmarks/sweep_time.py runs/<sweep>

`between` is the time from the row before (from the job's start for the first row): forming the group, memory, the
check, warm-up, timing and percentiles together. `timed` is iterations × time alone.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scalescope.records.folder import RunFolder


def main(path: str) -> None:
    folder = RunFolder.open(Path(path))
    before = folder.read_info().started_unix_s
    total = timed = 0.0
    print(f"{'operation':>14} {'path':>7} {'n':>3} {'bytes':>12} {'between s':>10} {'timed s':>9} stopped by")
    for row in folder.read_sweep():
        between = (row.unix_s or before) - before
        counted = row.iterations * (row.time_us or 0) / 1e6
        before, total, timed = row.unix_s or before, total + between, timed + counted
        print(f"{row.operation:>14} {row.transport:>7} "
              f"{row.group_size:>3} {row.bytes:>12} {between:>10.3f} {counted:>9.3f} "
              f"{row.stopped_by or row.status}")  # fmt: skip
    print(f"all: {total:.1f} s, of which timed {timed:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1])
