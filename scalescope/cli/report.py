"""`scalescope report`: report.html of a study or a run, or of two side by side."""

import argparse
from pathlib import Path

from scalescope.cli import compare
from scalescope.records.folder import RunFolder
from scalescope.scaling.analyze import analyze


def run(argv: list[str]) -> int:
    """Analyse afresh, write the page and print where it is."""
    parser = argparse.ArgumentParser(
        prog="scalescope report", description="Make report.html of a study or a run: one file that needs no network."
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="a run folder or a study folder")
    parser.add_argument(
        "other", type=Path, nargs="?", metavar="OTHER", help="a second one: both side by side, as compare does"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="where to write it (PATH/report.html)")
    options = parser.parse_args(argv)
    folder = RunFolder.open(options.path)
    if options.other is not None:
        other = RunFolder.open(options.other)
        page = options.html or other.path / "comparison.html"
        print(f"report of two is: scalescope compare {options.path} {options.other} --html {page}")
        return compare.run([str(options.path), str(options.other), "--html", str(page)])
    analyze([folder.path])
    from scalescope.report.html import write_report

    print(write_report(folder, options.html))
    return 0
