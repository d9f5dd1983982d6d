"""`scalescope report`: report.html of a study, a run or anybody's traces, or of two runs side by side."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from scalescope.cli import compare
from scalescope.cli.outputs import VerbParser, add_json, add_page, outputs
from scalescope.cli.show import redacted_answers, told, write_page
from scalescope.records.console import clean
from scalescope.records.errors import ExitCode, UserError
from scalescope.records.folder import RunFolder
from scalescope.records.outputs.overwriting import refuse_to_lose
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.study_answer import Answer


class WrittenPage(msgspec.Struct, frozen=True):
    """What `--json` says."""

    file: str


def run(argv: list[str]) -> int:
    """Analyse afresh, write the page and print where it is."""
    parser = VerbParser(
        prog="scalescope report",
        examples=(
            "report TRACES              TRACES/report.html",
            "report runs/STUDY          runs/STUDY/report.html",
            "report RUN OTHER           OTHER/comparison.html: both side by side",
        ),
        description="Make report.html of a study, a run or traces: one file that needs no network. Of two runs or "
        "studies, both side by side; of several folders of traces, one page of all.",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a run, a study, traces; a second one")
    add_page(parser, "where to write it (PATH/report.html; of traces in a folder that is not yours, here)")
    parser.add_argument(
        "--redact", action="store_true",
        help="for others to see: pseudonyms for hosts, users and absolute paths; into PATH/report-redacted.html",
    )  # fmt: skip
    add_json(parser, "where the page is (of two runs: the comparison)")
    options = parser.read(argv)
    if len(options.paths) == 2 and all((path / "run.json").is_file() for path in options.paths):
        return _compare(options)
    with outputs(json=options.json) as out:
        page, answers = _page(options)
        print(page)
        out.put_json(options.json, WrittenPage(str(page)))
    _warn_of(answers)
    return int(told(answers, options.paths))


def _warn_of(answers: Sequence[Answer]) -> None:
    """Say on stderr, once a folder, what of its traces makes a page doubtful: who reads the path alone passes it on."""
    runs = [one for one in answers if isinstance(one, RunAnalysis)]
    doubtful = [one for one in runs if one.quality.verdict == "degraded" or one.quality.mixed is not None]
    for one in doubtful:
        if one.quality.mixed is None or one.quality.mixed.number == 1:
            from scalescope.report.verdict.run import run_verdict

            print(clean(f"scalescope: {run_verdict(one).headline}"), file=sys.stderr)


def _page(options: argparse.Namespace) -> tuple[Path, list[Answer]]:
    """Write the page of one run or study, or of traces; return it, and what it shows of traces.

    Raises UserError for any other mixture.
    """
    paths: list[Path] = options.paths
    of_runs = [(path / "run.json").is_file() for path in paths]
    if not any(of_runs):
        return _report_traces(paths, options.html, redact=options.redact)
    if len(paths) > 1:
        raise UserError("a report is of one run or study, of two side by side, or of traces: name one or two PATHs")
    folder = RunFolder.open(paths[0])
    if options.redact:
        return _write_redacted(folder, options.html), []
    analyze([folder.path])
    from scalescope.report.html import write_report

    return write_report(folder, options.html), []


def _compare(options: argparse.Namespace) -> int:
    one, other = (RunFolder.open(path).path for path in options.paths)
    page = options.html or other / ("comparison-redacted.html" if options.redact else "comparison.html")
    more = ["--html", str(page), *(["--redact"] if options.redact else [])]
    if options.json is not None:
        return _written(compare.run([str(one), str(other), *more, "--json", str(options.json)]))
    print(f"report of two is: scalescope compare {' '.join([*map(str, options.paths), *more])}")
    return _written(compare.run([*map(str, options.paths), *more]))


def _written(code: int) -> int:
    """Return the exit code of a page of two: it is there, and says so, where the two do not compare."""
    return int(ExitCode.OK) if code == ExitCode.USER_INPUT else code


def _report_traces(paths: list[Path], out: Path | None, *, redact: bool) -> tuple[Path, list[Answer]]:
    """Write one page of all the traces: files given one by one are ranks of one job; return the answers, too."""
    page = out or _page_of_traces(paths[0], redact=redact)
    answers = analyze(paths, write=False)
    refuse_to_lose(page, "page", str(page), "name another FILE with --html")  # somebody's own may have that name
    if redact:
        answers = redacted_answers(answers, paths)
    return write_page(answers, paths[0], page, redact=redact), answers


def _page_of_traces(path: Path, *, redact: bool) -> Path:
    """Return where the page of traces goes: beside them, if that folder is the user's own and can be written into.

    Else into the current folder, which is said.
    """
    folder = path if path.is_dir() else path.parent
    name = "report-redacted.html" if redact else "report.html"
    if not folder.is_dir():
        return folder / name  # that nothing is there is what reading it says
    theirs = folder.stat().st_uid != os.geteuid()
    if not theirs and os.access(folder, os.W_OK):
        return folder / name
    why = "belongs to another user" if theirs else "cannot be written into"
    # a report of traces that lie here would have the name itself; a page for others tells no folder's
    page = Path(name if redact else f"{folder.resolve().name or 'traces'}-{name}")
    print(f"scalescope: {folder} {why}: the page goes to {page} here, or to --html FILE", file=sys.stderr)
    return page


def _write_redacted(folder: RunFolder, out: Path | None) -> Path:
    """Write a page for others, and nothing else: the analysis, too, would name what the page must not."""
    from scalescope.report.html import write_redacted_report

    return write_redacted_report(folder, analyze([folder.path], write=False), out)
