"""`scalescope report`: report.html of a study, a run or anybody's traces, or of two runs side by side."""

import argparse
from pathlib import Path

from scalescope.cli import compare
from scalescope.cli.show import write_page
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.scaling.analyze import analyze


def run(argv: list[str]) -> int:
    """Analyse afresh, write the page and print where it is."""
    parser = argparse.ArgumentParser(
        prog="scalescope report",
        description="Make report.html of a study, a run or traces: one file that needs no network. Of two runs or "
        "studies, both side by side; of several folders of traces, one page of all.",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a run, a study, traces; a second one")
    parser.add_argument("--html", type=Path, metavar="FILE", help="where to write it (PATH/report.html)")
    options = parser.parse_args(argv)
    paths: list[Path] = options.paths
    of_runs = [(path / "run.json").is_file() for path in paths]
    if not any(of_runs):
        print(_report_traces(paths, options.html))
        return 0
    if not all(of_runs) or len(paths) > 2:
        raise UserError("a report is of one run or study, of two side by side, or of traces: name one or two PATHs")
    folder, *others = (RunFolder.open(path) for path in paths)
    if others:
        page = options.html or others[0].path / "comparison.html"
        print(f"report of two is: scalescope compare {paths[0]} {paths[1]} --html {page}")
        return compare.run([str(paths[0]), str(paths[1]), "--html", str(page)])
    analyze([folder.path])
    from scalescope.report.html import write_report

    print(write_report(folder, options.html))
    return 0


def _report_traces(paths: list[Path], out: Path | None) -> Path:
    """Write one page of all the traces: files given one by one are ranks of one job."""
    answers = analyze(paths, write=False)
    folder = paths[0] if paths[0].is_dir() else paths[0].parent
    return write_page(answers, paths[0], out or folder / "report.html")
