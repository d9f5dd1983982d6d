"""`scalescope analyze`: traces → analysis.json and a table."""

from pathlib import Path

from scalescope.cli.outputs import Outputs, VerbParser, add_json, add_markdown, add_page, outputs
from scalescope.cli.show import Asked, show
from scalescope.records.console import clean
from scalescope.records.errors import UserError
from scalescope.scaling.costs.points import read_launches
from scalescope.scaling.projection.outlook import Outlook
from scalescope.scaling.rank.roles import ROLES
from scalescope.scaling.ranks.processes import load_meanwhile
from scalescope.scaling.verdicts.flight import holds_records, read_records

_EXAMPLES = (
    "analyze TRACES                          where each rank's step goes, and what to do",
    "analyze TRACES --html report.html       the same as a page",
    "analyze TRACES --step-ms 24.7           a step took 24.7 ms without a profiler",
    "analyze N4_TRACES --base N1_TRACES      how it scales from one GPU to four",
    "analyze RUN --against GOOD              what it lost against the same job when all was well",
)
#: What every answer takes after reading.
_AFTER_READING = ("scalescope.scaling.windows.add", "scalescope.report.terminal.folder")


def run(argv: list[str]) -> int:
    """Analyse, print and report what the paths hold."""
    parser = VerbParser(
        prog="scalescope analyze",
        examples=_EXAMPLES,
        description="Read the traces (Kineto's, or profiles of JAX) of run folders, studies, trace folders or trace "
        "files; say where each millisecond went. Run folders and studies get an analysis.json.",
    )
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH",
        help="a folder of traces (a file a rank), trace files of one job, a run folder, or a study",
    )  # fmt: skip
    add_json(parser)
    add_markdown(parser, "the answer as Markdown, to be pasted into an issue,")
    add_page(parser, "write the report here, too")
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
        "--role", action="append", default=[], metavar="GROUP=ROLE",
        help="what a process group is for, where the traces do not say: dp, tp, pp, cp or ep; of plain traces",
    )  # fmt: skip
    parser.add_argument(
        "--sweep", action="append", type=Path, default=[], metavar="SWEEP",
        help="a sweep of the same devices to lay the collectives beside: a run folder, or a log of nccl-tests or "
        "rccl-tests; a study's own sweep counts anyway",
    )  # fmt: skip
    parser.add_argument(
        "--step-ms", action="append", type=float, default=[], metavar="MS",
        help="a step of the job without a profiler, which tells what recording cost; one for each PATH, in their "
        "order, and one for trace files, which are one run together",
    )  # fmt: skip
    parser.add_argument(
        "--redact", action="store_true",
        help="pseudonyms for hosts, users and absolute paths in what --json, --markdown and --html write",
    )  # fmt: skip
    parser.add_argument("--mpi", action="store_true", help="read on the ranks of the MPI job that this runs in")
    options = parser.read(argv)
    if len(options.paths) == 1 and holds_records(options.paths[0]):
        with outputs(json=options.json) as out:
            return _print_flight(options.paths[0], options.json, out)
    if options.html and len(options.paths) > 1 and any((path / "run.json").is_file() for path in options.paths):
        raise UserError("--html shows one run or study, or any number of folders of traces; name one PATH")
    if options.redact and not (options.html or options.json or options.markdown):
        raise UserError("--redact is for what --json, --markdown and --html write; give one of them")
    if options.base and (len(options.paths) > 1 or options.against or options.step_ms):
        raise UserError("--base tells how one run scales: name one PATH, without --against and --step-ms")
    if options.against and len(options.paths) > 1:
        raise UserError("--against tells what one run lost; name one PATH")
    outlook = Outlook(sweeps=tuple(launch for path in options.sweep for launch in read_launches(path)))
    asked = Asked(
        paths=options.paths,
        json=options.json,
        markdown=options.markdown,
        html=options.html,
        redact=options.redact,
        references=options.against,
        bases=options.base,
        outlook=outlook,
        step_ms=options.step_ms,
        roles=_roles(options.role),
    )
    load_meanwhile(_AFTER_READING)
    if not options.mpi:
        return int(show(asked))
    from scalescope.scaling.ranks.mpi_executor import mpi_workers

    with mpi_workers() as executor:
        if executor is not None:  # MPI's rank 0; the others read what it hands out
            return int(show(asked, executor))
    return 0


def _print_flight(folder: Path, json: Path | None, out: Outputs) -> int:
    """Print where the ranks of a job that hangs or failed part, by its flight records."""
    last, said = read_records(folder)
    if not last:
        raise UserError("; ".join(said) or f"{folder} holds no flight record that can be read")
    out.put_json(json, last)
    well = "every rank recorded came as far as the others in every group's collectives, and what it called has ended"
    for line in said or [well]:
        print(clean(line))
    for row in last:
        came = f"number {row.number}, {row.operation} of {row.elements:,} {row.dtype or 'elements'}"
        where = f", called from {row.called_from}" if row.called_from else ""
        print(clean(f"rank {row.rank}, {row.group}: last {came}, {'ended' if row.ended else 'not ended'}{where}"))
    return 0


def _roles(given: list[str]) -> dict[str, str]:
    """Return the roles that were given to groups, by the groups' names. Raises UserError for any other role."""
    found: dict[str, str] = {}
    for one in given:
        group, equals, role = one.rpartition("=")
        if not equals or role not in ROLES:
            raise UserError(f"--role {one}: give GROUP=ROLE, with a role of {', '.join(ROLES)}")
        found[group] = role
    return found
