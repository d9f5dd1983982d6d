"""`scalescope analyze`: traces → analysis.json and a table."""

import argparse
from pathlib import Path

from scalescope.cli.show import Asked, show
from scalescope.records.errors import UserError
from scalescope.scaling.costs.points import read_launches
from scalescope.scaling.projection.outlook import Outlook


def run(argv: list[str]) -> int:
    """Analyse, print and report what the paths hold."""
    parser = argparse.ArgumentParser(
        prog="scalescope analyze",
        description="Read the Kineto traces of run folders, studies, trace folders or trace files; say where each "
        "millisecond went. Run folders and studies get an analysis.json.",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the answer here, too")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report here, too")
    parser.add_argument(
        "--against", action="append", type=Path, default=[], metavar="REFERENCE",
        help="an undisturbed run of the same job on as many ranks: what each rank's step lost against it; given again "
        "(one run before, one after), against their mean",
    )  # fmt: skip
    parser.add_argument(
        "--base", action="append", type=Path, default=[], metavar="TRACES",
        help="traces of the same job on fewer ranks: efficiency, and where the step's growth from there went",
    )  # fmt: skip
    parser.add_argument(
        "--sweep", action="append", type=Path, default=[], metavar="SWEEP",
        help="a sweep of the same devices to lay the collectives beside: a run folder, or a log of nccl-tests or "
        "rccl-tests; a study's own sweep counts anyway",
    )  # fmt: skip
    parser.add_argument(
        "--step-ms", action="append", type=float, default=[], metavar="MS",
        help="a step of the job without a profiler, which tells what recording cost; one for each PATH, in their order",
    )  # fmt: skip
    parser.add_argument("--mpi", action="store_true", help="read on the ranks of the MPI job that this runs in")
    options = parser.parse_args(argv)
    if options.html and len(options.paths) > 1 and any((path / "run.json").is_file() for path in options.paths):
        raise UserError("--html shows one run or study, or any number of folders of traces; name one PATH")
    if options.base and (len(options.paths) > 1 or options.against or options.step_ms):
        raise UserError("--base tells how one run scales: name one PATH, without --against and --step-ms")
    if options.against and len(options.paths) > 1:
        raise UserError("--against tells what one run lost; name one PATH")
    outlook = Outlook(sweeps=tuple(launch for path in options.sweep for launch in read_launches(path)))
    asked = Asked(options.paths, options.json, options.html, options.against, options.base, outlook, options.step_ms)
    if not options.mpi:
        show(asked)
        return 0
    from scalescope.scaling.ranks.mpi_executor import mpi_workers

    with mpi_workers() as executor:
        if executor is not None:  # MPI's rank 0; the others read what it hands out
            show(asked, executor)
    return 0
