"""`scalescope perfetto`: the traces of all ranks as one file that ui.perfetto.dev opens."""

import argparse
from pathlib import Path

import msgspec

from scalescope.cli.outputs import Outputs, VerbParser, add_bundle, add_json, outputs
from scalescope.records.console import counted
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.report.perfetto import write_perfetto
from scalescope.scaling.answer import read_run_answer


class PackedTraces(msgspec.Struct, frozen=True):
    """What `--json` says: the file, its events by rank, and what could not be packed."""

    file: str
    events: dict[int, int]
    notes: list[str]


def run(argv: list[str]) -> int:
    """Pack a run's traces and print where they are, and what could not be packed."""
    parser = VerbParser(
        prog="scalescope perfetto",
        examples=("perfetto TRACES            TRACES/perfetto.json.gz, to be opened in ui.perfetto.dev",),
        one_more="one folder holds the ranks of one run, and {} is a second one; two runs aligned in one file are: "
        "scalescope compare A B --perfetto FILE",
        description="Pack the traces of all ranks into one file that ui.perfetto.dev opens: one clock, processes named "
        "by rank, marks where ranks wait.",
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="a run folder or a folder of traces")
    add_bundle(parser, "--out", "where to write it (PATH/perfetto.json.gz)")
    parser.add_argument(
        "--redact", action="store_true", help="pseudonyms for hosts, users and absolute paths, for others to see"
    )
    add_json(parser, "what was packed")
    options = parser.read(argv)
    with outputs(json=options.json) as out:
        return _run(options, out)


def _run(options: argparse.Namespace, out: Outputs) -> int:
    folder = RunFolder(options.path)
    if (folder.path / "run.json").is_file() and folder.read_info().kind == "study":
        inside = [str(run.path) for run in folder.read_children() if run.find_traces()]
        raise UserError(f"{folder.path} is a study; give one of its runs: {', '.join(inside) or 'none has traces'}")
    answer = read_run_answer(folder.analysis) if folder.analysis.is_file() else None
    packed = write_perfetto(options.path, options.out, answer, redact=options.redact)
    out.put_json(options.json, PackedTraces(str(packed.path), packed.events, packed.reasons))
    count = sum(packed.events.values())
    print(
        f"{packed.path}: {counted(count, 'event')} of {counted(len(packed.events), 'rank')}; open it in ui.perfetto.dev"
    )
    for reason in packed.reasons:
        print(reason)
    return 0
