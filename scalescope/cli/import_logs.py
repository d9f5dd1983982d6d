"""`scalescope import`: logs of nccl-tests and rccl-tests → a sweep; SuperBench's and MLPerf's → a scorecard."""

from pathlib import Path

import msgspec

from scalescope.cli.outputs import VerbParser, add_json, outputs
from scalescope.records.console import counted
from scalescope.records.errors import ExitCode
from scalescope.scaling.results.importing import are_results, import_results
from scalescope.scaling.sweeps.importing import import_logs


class Imported(msgspec.Struct, frozen=True):
    """What `--json` says: the new sweep folder, its rows, and what of the logs could not be read."""

    folder: str
    rows: int
    notes: list[str]


def run(argv: list[str]) -> int:
    """Turn logs of other tools into a sweep folder, or a scorecard. Returns 0; raises UserError."""
    parser = VerbParser(
        prog="scalescope import",
        examples=("import all_reduce.log --out runs/theirs        then: scalescope report runs/theirs",),
        description="Turn the output of nccl-tests or rccl-tests (text, JSON, CSV) into a sweep folder, so that theirs "
        "and ours stand in one plot; SuperBench's results-summary.jsonl and MLPerf's MLLOG (with systems/*.json for "
        "figures of a device) into a scorecard, whose sweep lies in it.",
    )
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="what the tool printed, or its file")
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="the run folder to make")
    parser.add_argument("--operation", help="what the logs are of, where an old one does not say: all_reduce, …")
    add_json(parser, "what was imported")
    options = parser.read(argv)
    with outputs(json=options.json) as out:
        if are_results(options.logs):
            card, read = import_results(options.logs, options.out)
            out.put_json(options.json, Imported(str(card.path), len(read.rows), read.faults))
            print(f"{counted(len(read.rows), 'row')}, {len(read.sweep)} of a sweep → {card.path}")
            faults = read.faults
        else:
            folder, log = import_logs(options.logs, options.out, options.operation)
            out.put_json(options.json, Imported(str(folder.path), len(log.rows), log.faults))
            print(f"{counted(len(log.rows), 'row')} → {folder.path}")
            faults = log.faults
        for fault in faults:
            print(f"note: {fault}")
    return int(ExitCode.OK)
