"""`scalescope compare`: two measurements of anything, side by side; with --fail-if as a gate."""

import argparse
from pathlib import Path

import msgspec

from scalescope.cli.redacting import add_redact, pseudonyms_of_paths, refuse_redacting_nothing
from scalescope.launch.bounds import Bounds, check_number
from scalescope.records.errors import ExitCode, UserError
from scalescope.records.files import write_atomic
from scalescope.report.compare.markdown import summary
from scalescope.report.compare.terminal import print_comparison
from scalescope.report.terminal import make_console
from scalescope.scaling.compare.answer import Comparison
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.compare.gate import parse

_RATIO = Bounds(above=0, most=10)  # 95 is meant as 0.95


def run(words: list[str]) -> int:
    """Lay two measurements side by side. Returns 1 where a limit fails, else 0; raises UserError."""
    parser = argparse.ArgumentParser(
        prog="scalescope compare",
        description="Lay two measurements side by side: is the difference real, how large is it, where does it lie? "
        "Each is a run folder, a study, a sweep, a folder of traces, a log of nccl-tests, or a folder that holds "
        "several of one kind, which are repeats.",
    )
    parser.add_argument("baseline", type=Path, metavar="BASELINE")
    parser.add_argument("other", type=Path, metavar="OTHER")
    parser.add_argument(
        "--baseline", dest="more_baseline", action="append", type=Path, default=[], metavar="PATH",
        help="one more repeat of the baseline; so with --other",
    )  # fmt: skip
    parser.add_argument("--other", dest="more_other", action="append", type=Path, default=[], metavar="PATH")
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the answer here, too")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page here, too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a summary for a pull request here, too")
    parser.add_argument("--perfetto", type=Path, metavar="FILE", help="write both sides' traces as one file, aligned")
    add_redact(parser)
    options = parser.parse_args(words)
    refuse_redacting_nothing(options, "--json", "--html", "--markdown", "--perfetto")
    limits = [parse(text) for text in options.fail_if]
    if options.fail_under is not None:
        check_number("--fail-under", options.fail_under, _RATIO)
        print(f"--fail-under {options.fail_under:g} is --fail-if 'busbw<{100 * (options.fail_under - 1):g}%'")
        limits.append(parse(f"busbw<{100 * (options.fail_under - 1):.10g}%"))
    sides = [options.baseline, *options.more_baseline], [options.other, *options.more_other]
    answer = compare_paths(*sides, limits)
    written = _redacted(answer, [path for side in sides for path in side]) if options.redact else answer
    _write(written, options.json, options.html, options.markdown)
    if options.perfetto is not None:
        from scalescope.report.compare.perfetto import write_side_by_side

        write_side_by_side(options.baseline, options.other, options.perfetto, redact=options.redact)
    print_comparison(answer, make_console())
    for path in (options.json, options.html, options.markdown, options.perfetto):
        if path is not None:
            print(f"written: {path}")
    return int(ExitCode.OK if all(line.held for line in answer.gate) else ExitCode.CHECK_FAILED)


def _redacted(answer: Comparison, paths: list[Path]) -> Comparison:
    from scalescope.report.redaction.structs import redacted_twice

    return redacted_twice(answer, pseudonyms_of_paths(paths))


def _write(answer: Comparison, json: Path | None, html: Path | None, markdown: Path | None) -> None:
    """Write what was asked for. Raises UserError where a file cannot be written."""
    try:
        if json is not None:
            write_atomic(json, msgspec.json.format(msgspec.json.encode(answer)))
        if markdown is not None:
            write_atomic(markdown, summary(answer))
        if html is not None:
            from scalescope.report.compare.page import write_comparison  # its charts need not be there for the rest

            write_comparison(answer, html)
    except OSError as error:
        raise UserError(f"cannot write {error.filename}: {error.strerror}") from error
