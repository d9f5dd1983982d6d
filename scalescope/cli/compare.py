"""`scalescope compare`: two measurements of anything, side by side; with --fail-if as a gate."""

import argparse
import sys
from pathlib import Path

from scalescope.cli.outputs import Outputs, VerbParser, add_bundle, add_json, add_markdown, add_page, outputs
from scalescope.cli.redacting import add_redact, pseudonyms_of_paths, refuse_redacting_nothing
from scalescope.launch.bounds import Bounds, check_number
from scalescope.records.errors import ExitCode, ReaderGone, UserError
from scalescope.report.compare.markdown import summary
from scalescope.report.compare.terminal import print_comparison
from scalescope.report.terminal.console import make_console
from scalescope.scaling.analyze import analyze_alone
from scalescope.scaling.compare.answer import Comparison
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.compare.gate import parse

_RATIO = Bounds(above=0, most=10)  # 95 is meant as 0.95
_EXAMPLES = (
    "compare BEFORE AFTER --fail-if 'step>3%'         a gate for CI: exit code 1 where the step is surely 3% longer",
    "compare BEFORE AFTER --other AFTER2              two repeats of AFTER, whose noise counts",
    "compare BEFORE AFTER --html page.html            a page; --markdown: for a pull request",
    "compare mine.log theirs.log --fail-if 'busbw<-5%'",
)
_ONE_MORE = (
    "compare lays two sides side by side, and {0} is a third; a repeat of one side is --baseline {0} or --other {0}, a "
    "folder of runs is their repeats, and GPU counts are: scalescope analyze MOST --base FEWER --base FEWEST"
)


def run(words: list[str]) -> int:
    """Lay two measurements side by side. Returns 1 where a limit fails, else 0; raises UserError."""
    parser = VerbParser(
        prog="scalescope compare",
        examples=_EXAMPLES,
        one_more=_ONE_MORE,
        description="Lay two measurements side by side: is the difference real, how large is it, where does it lie? "
        "Each is a run folder, a study, a sweep, a folder of traces, a log of nccl-tests, or a folder that holds "
        "several of one kind, which are repeats.",
    )
    parser.add_argument("baseline", type=Path, metavar="BASELINE", help="what it was before, or should be")
    parser.add_argument("other", type=Path, metavar="OTHER", help="what is to be judged")
    parser.add_argument(
        "--baseline", dest="more_baseline", action="append", type=Path, default=[], metavar="PATH",
        help="one more repeat of the baseline, as often as there are some",
    )  # fmt: skip
    parser.add_argument(
        "--other", dest="more_other", action="append", type=Path, default=[], metavar="PATH",
        help="one more repeat of the other",
    )  # fmt: skip
    parser.add_argument(
        "--fail-if", action="append", default=[], metavar="LIMIT",
        help="exit 1 where a change lies beyond it with its whole interval: 'step>3%%', 'throughput<-3%%', "
        "'busbw@64MiB<-5%%', 'exposed_wait>0.5ms', 'memory>1GiB', 'joules>5%%'; given again, any of them",
    )  # fmt: skip
    parser.add_argument(
        "--fail-under", type=float, metavar="RATIO",
        help="0.95 is --fail-if 'busbw<-5%%': exit 1 if a point of a sweep has less than this share of the baseline's "
        "bandwidth, beyond its uncertainty, or is not measured",
    )  # fmt: skip
    add_json(parser)
    add_page(parser, "write a page here, too")
    add_markdown(parser, "a summary for a pull request")
    add_bundle(parser, "--perfetto", "write both sides' traces as one file, aligned")
    add_redact(parser)
    options = parser.read(words)
    refuse_redacting_nothing(options, "--json", "--html", "--markdown", "--perfetto")
    with outputs(json=options.json, markdown=options.markdown) as out:
        return _run(options, out)


def _run(options: argparse.Namespace, out: Outputs) -> int:
    limits = [parse(text) for text in options.fail_if]
    if options.fail_under is not None:
        check_number("--fail-under", options.fail_under, _RATIO)
        print(f"--fail-under {options.fail_under:g} is --fail-if 'busbw<{100 * (options.fail_under - 1):g}%'")
        limits.append(parse(f"busbw<{100 * (options.fail_under - 1):.10g}%"))
    sides = [options.baseline, *options.more_baseline], [options.other, *options.more_other]
    answer = compare_paths(*sides, limits, analysis_of=analyze_alone)
    written = _redacted(answer, [path for side in sides for path in side]) if options.redact else answer
    out.put_json(options.json, written)
    if options.markdown is not None:
        out.put(options.markdown, summary(written))
    if options.html is not None:
        _write_page(written, options.html)
    if options.perfetto is not None:
        from scalescope.report.compare.perfetto import write_side_by_side

        write_side_by_side(options.baseline, options.other, options.perfetto, redact=options.redact)
    code = ExitCode.USER_INPUT if answer.verdict == "not_comparable" else ExitCode.OK
    code = code if all(line.held for line in answer.gate) else ExitCode.CHECK_FAILED
    try:
        print_comparison(answer, make_console())
        for path in (options.json, options.html, options.markdown, options.perfetto):
            if path is not None:
                print(f"written: {path}")
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ReaderGone(code) from error  # a gate that fails does so whoever reads it
    return int(code)


def _redacted(answer: Comparison, paths: list[Path]) -> Comparison:
    from scalescope.report.redaction.structs import redacted_twice

    return redacted_twice(answer, pseudonyms_of_paths(paths))


def _write_page(answer: Comparison, html: Path) -> None:
    """Write the page. Raises UserError where its file cannot be written."""
    from scalescope.report.compare.page import write_comparison  # its charts need not be there for the rest

    try:
        write_comparison(answer, html)
    except OSError as error:
        raise UserError(f"cannot write {error.filename}: {error.strerror}") from error
