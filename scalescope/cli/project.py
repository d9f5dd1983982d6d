"""`scalescope project`: a study's step on other GPU counts."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from scalescope.cli.outputs import Outputs, add_json, outputs
from scalescope.cli.redacting import add_redact, pseudonyms_of_paths
from scalescope.launch.bounds import NOT_NEGATIVE, POSITIVE, check_number
from scalescope.records.errors import ExitCode, UserError
from scalescope.records.folder import RunFolder

if TYPE_CHECKING:
    from scalescope.scaling.costs.topology import Topology

_TEACH = """\
The step of the largest run that was measured, outside the profiler's window, and what changes on N GPUs:

  exposed transfer   each collective of the traces takes what it took, times what the cost model (scalescope fit) says
                     that N ranks take over the measured count; how much stays hidden is replayed
  slower compute     grows with the time that transfers run under compute
  exposed wait       grows like the expected last of N arrivals

Each has bounds, and the step an interval. The assumptions are printed. As a test, each count that was measured is also
projected from the smaller ones alone, beside what was measured.

A study with one GPU count, without a sweep, or with another device's sweep is refused; so are more GPUs than the links
of which were measured, unless you say what joins them (marked as assumed):

  scalescope project runs/STUDY --gpus 8 --gpus-per-node 8                  one node holds them, linked alike
  scalescope project runs/STUDY --gpus 8,64,1024 --gpus-per-node 8 --nic-gb-s 50 --nic-latency-us 5

What it finds goes into the study's analysis.json and report.html, too; with --redact, into report-redacted.html
alone."""


_MOST_GPUS = 1_000_000


def run(argv: list[str]) -> int:
    """Project, print, and write into the study."""
    parser = argparse.ArgumentParser(
        prog="scalescope project",
        description="What a study's step would take on other GPU counts.\n\n" + _TEACH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # fmt: off
    parser.add_argument("study", type=Path, metavar="STUDY")
    parser.add_argument(
        "--gpus", type=_counts, default=(), metavar="N,N,…", help="the next two doublings, if not given"
    )
    parser.add_argument("--gpus-per-node", type=int, metavar="G", help="of the machine that those would be on")
    parser.add_argument("--nic-gb-s", type=float, metavar="B", help="one NIC, one direction, GB/s (10^9 bytes)")
    parser.add_argument("--nic-latency-us", type=float, metavar="L", help="one message between two nodes, µs")
    parser.add_argument("--nics-per-node", type=int, metavar="K", help="one a GPU, if not given")
    parser.add_argument("--sweep", action="append", type=Path, default=[], metavar="SWEEP",
                        help="a sweep of the same devices beside the study's own; several are launches of one")
    add_json(parser, "the projection")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report here, not into the study")
    # fmt: on
    add_redact(parser)
    options = parser.parse_args(argv)
    with outputs(json=options.json) as out:
        return _run(options, out)


def _run(options: argparse.Namespace, out: Outputs) -> int:
    from scalescope.report.html import write_redacted_report, write_report
    from scalescope.report.panels.projection import projection_panels
    from scalescope.report.redaction.structs import redacted_twice
    from scalescope.report.report_data import read_report_data
    from scalescope.report.terminal.console import make_console
    from scalescope.report.terminal.tables import print_panel
    from scalescope.scaling.analyze import analyze
    from scalescope.scaling.costs.points import read_launches
    from scalescope.scaling.projection.outlook import Outlook

    folder = RunFolder.open_study(options.study, "a projection needs a study: several GPU counts and a sweep")
    sweeps = tuple(launch for path in options.sweep for launch in read_launches(path))
    answers = analyze(
        [folder.path], outlook=Outlook(sweeps, options.gpus, _topology(options)), write=not options.redact
    )
    redact = options.redact
    data = read_report_data(folder, answers if redact else None)
    report = write_redacted_report(folder, answers, options.html) if redact else write_report(folder, options.html)
    console = make_console()
    for panel in projection_panels(data):
        print_panel(panel, console)
    if data.study is not None:
        projection = data.study.projection
        if options.redact:
            projection = redacted_twice(projection, pseudonyms_of_paths([folder.path, *options.sweep]))
        out.put_json(options.json, projection)
    print(f"report: {report}")
    points = data.study.projection.points if data.study and data.study.projection else []
    return int(ExitCode.OK if any(point.step_ms is not None for point in points) else ExitCode.USER_INPUT)


def _counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(sorted({int(word) for word in text.split(",")}))
    except ValueError:
        counts = (0,)
    if min(counts) < 2 or max(counts) > _MOST_GPUS:
        raise argparse.ArgumentTypeError(f"{text!r} are no GPU counts from 2 to {_MOST_GPUS}; write --gpus 8,16,64")
    return counts


def _topology(options: argparse.Namespace) -> "Topology | None":
    """Return what the user says of the machine. Raises UserError for what is half said."""
    from scalescope.scaling.costs.topology import Topology

    given = {name: getattr(options, name) for name in ("nic_gb_s", "nic_latency_us", "nics_per_node")}
    if options.gpus_per_node is None:
        if flags := [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]:
            raise UserError(f"{flags[0]} says what joins nodes; say with --gpus-per-node how many GPUs one holds, too")
        return None
    if (options.nic_gb_s is None) != (options.nic_latency_us is None):
        raise UserError("a network is its bandwidth and its latency: give --nic-gb-s and --nic-latency-us, or neither")
    figures = {"gpus_per_node": options.gpus_per_node, **given}
    for name, value in figures.items():
        if value is not None:
            check_number(f"--{name.replace('_', '-')}", value, NOT_NEGATIVE if name == "nic_latency_us" else POSITIVE)
    return Topology(
        gpus_per_node=options.gpus_per_node,
        nic_gb_s=options.nic_gb_s,
        nic_latency_us=options.nic_latency_us or 0.0,
        nics_per_node=options.nics_per_node,
    )
