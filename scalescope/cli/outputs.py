"""`--json` and `--markdown`: to a file beside what is printed, or alone to standard output, for a program to read."""

import argparse
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.files import write_atomic

#: The flag without a FILE: standard output holds this and nothing else.
STDOUT = Path("-")

_TRACE_MARKS = (b"\x1f\x8b", b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"')
_LOOKED_AT = 1 << 16


def add_json(parser: argparse.ArgumentParser, what: str = "the answer") -> None:
    """Add `--json [FILE]`."""
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, type=Path, metavar="FILE",
        help=f"print {what} as JSON and nothing else (docs/schema/ has its schema); with FILE, write it there, too",
    )  # fmt: skip


def add_markdown(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--markdown [FILE]`."""
    parser.add_argument(
        "--markdown", nargs="?", const=STDOUT, type=Path, metavar="FILE",
        help=f"print {what} and nothing else; with FILE, write it there, too",
    )  # fmt: skip


class Outputs:
    """Where answers go; what goes to standard output is kept until the verb has ended well."""

    def __init__(self) -> None:
        self.printed: list[str] = []

    def put_json(self, target: Path | None, answer: object) -> None:
        """Hand over an answer as JSON. Raises UserError where its file cannot be written."""
        if target is not None:
            self.put(target, msgspec.json.format(msgspec.json.encode(answer)).decode())

    def put(self, target: Path | None, text: str) -> None:
        """Hand over a text. Raises UserError where its file cannot be written."""
        if target is None:
            return
        if target == STDOUT:
            self.printed.append(text)
            return
        try:
            write_atomic(target, text)
        except OSError as error:
            raise UserError(f"cannot write {target}: {error.strerror}") from error


@contextmanager
def outputs(**targets: Path | None) -> Iterator[Outputs]:
    """While it is open, nothing else is printed where one of the targets, by flag, is standard output.

    Raises UserError for two that are, and for a target that is a folder or a trace: `--json PATH` takes PATH for FILE.
    """
    alone = [flag for flag, target in targets.items() if target == STDOUT]
    if len(alone) > 1:
        raise UserError(f"--{alone[0]} and --{alone[1]} both print; name a FILE for one of them")
    for flag, target in targets.items():
        if target is not None and target != STDOUT:
            _refuse_input(flag, target)
    collected = Outputs()
    if not alone:
        yield collected
        return
    with redirect_stdout(io.StringIO()):
        yield collected
    for text in collected.printed:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def _refuse_input(flag: str, target: Path) -> None:
    """Raise UserError for a file that nobody means to have overwritten."""
    what = "a folder" if target.is_dir() else "a trace" if _is_trace(target) else None
    if what is not None:
        raise UserError(f"--{flag} {target}: that is {what}, and would be overwritten; to print, put --{flag} last")


def refuse_page_over_trace(page: Path | None) -> None:
    """Raise UserError for a page that would overwrite a trace: `--html PATH` takes PATH for FILE."""
    if page is not None and _is_trace(page):
        raise UserError(f"--html {page}: that is a trace, and would be overwritten; name another FILE for the page")


def _is_trace(target: Path) -> bool:
    if not target.is_file():
        return False
    with target.open("rb") as file:
        head = file.read(_LOOKED_AT)
    if head.lstrip().startswith(b"<"):  # a page may hold a trace's words
        return False
    return head.startswith(_TRACE_MARKS[0]) or any(mark in head for mark in _TRACE_MARKS[1:])
