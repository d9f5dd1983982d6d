"""`scalescope doctor`: what of this machine is fine, worth knowing, or broken, and the fix."""

import argparse
from pathlib import Path

from scalescope.collectives.transports.issue_library import check_library
from scalescope.hardware.doctor import examine
from scalescope.records.errors import ExitCode
from scalescope.report.doctor_lines import print_findings
from scalescope.report.terminal import make_console


def run(argv: list[str]) -> int:
    """Print the findings; exit code 1 where something is broken."""
    parser = argparse.ArgumentParser(
        prog="scalescope doctor",
        description="Check this machine and environment, line by line: fine, worth knowing, or broken with the fix. "
        "Exit code 1 where something is broken.",
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders would be made (runs)")
    options = parser.parse_args(argv)
    findings = [*examine(options.runs), check_library()]
    print_findings(findings, make_console())
    return int(ExitCode.CHECK_FAILED if any(finding.level == "broken" for finding in findings) else ExitCode.OK)
