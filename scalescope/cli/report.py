"""`scalescope report`: report.html of a study, a run or anybody's traces, or of two runs side by side."""

import argparse
from pathlib import Path

from scalescope.cli import compare
from scalescope.cli.show import redacted_answers, write_page
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
    parser.add_argument(
        "--redact", action="store_true",
        help="for others to see: pseudonyms for hosts, users and absolute paths; into PATH/report-redacted.html",
    )  # fmt: skip
    options = parser.parse_args(argv)
    paths: list[Path] = options.paths
    of_runs = [(path / "run.json").is_file() for path in paths]
    if not any(of_runs):
        print(_report_traces(paths, options.html, redact=options.redact))
        return 0
    if not all(of_runs) or len(paths) > 2:
        raise UserError("a report is of one run or study, of two side by side, or of traces: name one or two PATHs")
    folder, *others = (RunFolder.open(path) for path in paths)
    if others:
        page = options.html or others[0].path / ("comparison-redacted.html" if options.redact else "comparison.html")
        redact = ["--redact"] if options.redact else []
        print(f"report of two is: scalescope compare {' '.join([*map(str, paths), '--html', str(page), *redact])}")
        return compare.run([str(paths[0]), str(paths[1]), "--html", str(page), *redact])
    if options.redact:
        print(_write_redacted(folder, options.html))
        return 0
    analyze([folder.path])
    from scalescope.report.html import write_report

    print(write_report(folder, options.html))
    return 0


def _report_traces(paths: list[Path], out: Path | None, *, redact: bool) -> Path:
    """Write one page of all the traces: files given one by one are ranks of one job."""
    answers = analyze(paths, write=False)
    folder = paths[0] if paths[0].is_dir() else paths[0].parent
    if redact:
        answers = redacted_answers(answers, paths)
    name = "report-redacted.html" if redact else "report.html"
    return write_page(answers, paths[0], out or folder / name, redact=redact)


def _write_redacted(folder: RunFolder, out: Path | None) -> Path:
    """Write a page for others, and nothing else: the analysis, too, would name what the page must not."""
    from scalescope.report.html import write_redacted_report

    return write_redacted_report(folder, analyze([folder.path], write=False), out)
