"""`scalescope doctor`: what of this machine is fine, worth knowing, or broken, and the fix; --selftest tries it out."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from scalescope.cli.outputs import STDOUT, Outputs, add_json, outputs
from scalescope.collectives.transports.issue_library import check_library as check_issuing
from scalescope.hardware.check_result import CheckResult
from scalescope.hardware.doctor import examine
from scalescope.records.errors import ExitCode, UserError
from scalescope.report.terminal.console import make_console
from scalescope.report.text.doctor_lines import print_findings, print_item
from scalescope.scaling.replay.engine.compiled import check_library as check_replaying
from scalescope.scaling.trace.fields.compiled import check_library as check_reading

_SELFTEST = Path("selftest.json")


def run(argv: list[str]) -> int:
    """Print the findings; exit code 1 where something is broken, or differs from what it must be."""
    parser = argparse.ArgumentParser(
        prog="scalescope doctor",
        description="Check this machine and environment, line by line: fine, worth knowing, or broken with the fix. "
        "Exit code 1 where something is broken.",
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders would be made (runs)")
    parser.add_argument("--selftest", action="store_true",
                        help="try out what scalescope does here as well, in three minutes at most, and write one file "
                        "to send")  # fmt: skip
    add_json(parser, "the findings (with --selftest: all of its file, which is else selftest.json)")
    parser.add_argument("--only", help="these items of the self-test alone: fp8,trace, say")
    options = parser.parse_args(argv)
    with outputs(json=options.json) as out:
        return _run(options, out)


def _run(options: argparse.Namespace, out: Outputs) -> int:
    findings = [*examine(options.runs), check_issuing(), check_reading(), check_replaying()]
    print_findings(findings, make_console())
    failed = any(finding.level == "broken" for finding in findings)
    if options.selftest:
        failed |= _self_test(
            findings, options.json or _SELFTEST, options.only.split(",") if options.only else None, out
        )
    else:
        out.put_json(options.json, findings)
    return int(ExitCode.CHECK_FAILED if failed else ExitCode.OK)


def _self_test(findings: Sequence[CheckResult], path: Path, only: Sequence[str] | None, out: Outputs) -> bool:
    """Try every item, show it, and write the file; return whether one differs. Raises UserError for a wrong name."""
    from scalescope.selftest.run import carry_out_all, items, self_test, write  # loads what jobs and models are made of

    known = list(items(Path()))
    if unknown := [name for name in only or () if name not in known]:
        raise UserError(f"--only: there is no item {unknown[0]!r}; choose from {', '.join(known)}")
    console, started, done = make_console(), time.time(), []
    for item in carry_out_all(only):
        done.append(item)
        print_item(item.name, item.verdict, item.says, console)
    test = self_test(findings, done, started)
    if path == STDOUT:
        out.put_json(path, test)
    else:
        try:
            write(test, path)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}; give another by --json") from error
        print(f"scalescope: {path} holds all of it; please attach it to your report", file=sys.stderr)
    return any(item.verdict == "differs" for item in done)
