"""`scalescope compare`: two sweeps row by row."""

import argparse
from pathlib import Path

from scalescope.launch.bounds import Bounds, check_number
from scalescope.records.errors import ExitCode, UserError
from scalescope.records.folder import RunFolder, find_runs
from scalescope.records.rows import SweepRow
from scalescope.scaling.sweeps.comparison import compare, describe
from scalescope.scaling.sweeps.nccl_tests_log import read_log

_RATIO = Bounds(above=0, most=10)  # 95 is meant as 0.95


def run(argv: list[str]) -> int:
    """Lay two sweeps side by side. Returns 1 where a point fails --fail-under, else 0; raises UserError."""
    parser = argparse.ArgumentParser(
        prog="scalescope compare",
        description="Lay two sweeps side by side: the bandwidth of OTHER over that of BASELINE, point by point. Each "
        "is a run folder, a study with a sweep in it, a sweep.jsonl, or a log that `scalescope import` reads.",
    )
    parser.add_argument("baseline", type=Path, metavar="BASELINE")
    parser.add_argument("other", type=Path, metavar="OTHER")
    parser.add_argument(
        "--fail-under", type=float, metavar="RATIO",
        help="exit 1 if a point has less than this share of the baseline's bandwidth, beyond its uncertainty",
    )  # fmt: skip
    options = parser.parse_args(argv)
    if options.fail_under is not None:
        check_number("--fail-under", options.fail_under, _RATIO)
    comparison = compare(read_sweep(options.baseline), read_sweep(options.other))
    if not comparison.pairs and not comparison.only_baseline:
        raise UserError(f"{options.baseline} and {options.other} have no point in common")
    for pair in comparison.pairs:
        print(describe(pair))
    for side, rows in ((options.baseline, comparison.only_baseline), (options.other, comparison.only_other)):
        if rows:
            print(f"only in {side}: {len(rows)} points, such as {rows[0].operation} {rows[0].bytes} B "
                  f"n={rows[0].group_size} {rows[0].mode} {rows[0].execution} {rows[0].transport}")  # fmt: skip
    if not comparison.pairs:
        print("no point in common: both sides have to measure the same sizes, group sizes, modes and paths")
    if options.fail_under is None:
        return int(ExitCode.OK)
    failed = [pair for pair in comparison.pairs if pair.fails(options.fail_under)]
    for pair in failed:
        print(f"FAILED, under {options.fail_under:g}: {describe(pair)}")
    for row in comparison.only_baseline:
        print(f"FAILED, not measured: {row.operation} {row.bytes} B n={row.group_size} {row.mode} {row.transport}")
    bad = bool(failed or comparison.only_baseline)
    print(f"{len(comparison.pairs) - len(failed)} of {len(comparison.pairs)} points hold {options.fail_under:g}")
    return int(ExitCode.CHECK_FAILED if bad else ExitCode.OK)


def read_sweep(path: Path) -> list[SweepRow]:
    """Return the rows of a sweep, wherever they are. Raises UserError where there are none."""
    if path.is_dir():
        rows = [row for run in find_runs(path) for row in run.read_sweep()]
    elif path.suffix == ".jsonl":
        rows = RunFolder(path.parent).read_sweep()
    elif path.is_file():
        rows = read_log(path.read_text(encoding="utf-8", errors="replace"), path.name).rows
    else:
        raise UserError(f"{path}: there is no such folder or file")
    if not rows:
        raise UserError(f"{path} holds no sweep: there is no sweep.jsonl with rows in it")
    return rows
