"""What verbs write where the user says: one parser that lets nobody lose a file by it.

`--json` and `--markdown` go to a file beside what is printed, or alone to standard output, for a program to read.
"""

import argparse
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.files import write_atomic
from scalescope.records.outputs.overwriting import OutputKind, refuse_to_lose, what_is_lost

#: The flag without a FILE: standard output holds this and nothing else.
STDOUT = Path("-")


class OutputFile(argparse.Action):
    """An option that names a file to be written. With `nargs="?"` it may be left out, which is to print."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, kind: OutputKind, **options: Any) -> None:
        super().__init__(option_strings, dest, type=Path, metavar="FILE", **options)
        self.kind = kind

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, values)


#: What other tools call an option, and which of ours are meant.
_MEANT = {
    **dict.fromkeys(("-o", "--out", "--output", "--outfile"), ("--out", "--html", "--json", "--perfetto")),
    **dict.fromkeys(("--format", "-f", "--fmt"), ("--json", "--markdown", "--html")),
    **dict.fromkeys(("--threshold", "--tolerance", "--max-regression"), ("--fail-if",)),
    **dict.fromkeys(("--reference", "--good"), ("--against",)),
    **dict.fromkeys(("--bf16", "--dtype"), ("--gradients",)),
    **dict.fromkeys(("--page", "--report"), ("--html",)),
    "--md": ("--markdown",),
    "--trace": ("--perfetto",),
}


class _Misread(Exception):
    """What argparse does not take, before anything is said of it."""


class _Help(argparse.HelpFormatter):
    """Wraps a paragraph, and leaves examples, a line each, as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class VerbParser(argparse.ArgumentParser):
    """A verb's command line: what an option is to write must not be what somebody measured.

    `one_more`: what to say of an argument too many, `{}` for it; `examples`: what people type most, below the help.
    """

    def __init__(self, *, one_more: str | None = None, examples: Sequence[str] = (), **options: Any) -> None:
        shown = "\n".join(["examples:", *(f"  scalescope {line}" for line in examples)]) if examples else None
        super().__init__(**{"formatter_class": _Help, "epilog": shown, **options})
        self._one_more = one_more
        self._reading = False

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Return the options. Raises UserError for a file that would be lost; ends the process for what is unknown."""
        try:
            options = self._read(argv)
        except _Misread as misread:
            printed = self._read_printing(argv)
            if printed is None:
                took = [f"; {flag} took {word} for the FILE to write: PATH goes before {flag}"
                        for _, flag, word, _ in self._taken(argv)]  # fmt: skip
                self.error(f"{misread}{''.join(took)}")
            options = printed
        inputs = [path for path in _paths(options, self.outputs()) if path != STDOUT]
        for action in self.outputs():
            target = getattr(options, action.dest)
            if target is not None and target != STDOUT:
                flag = action.option_strings[0]
                hint = f"to print, put {flag} last" if action.nargs == "?" else "name another FILE"
                refuse_to_lose(target, action.kind, f"{flag} {target}", hint, inputs)
        return options

    def outputs(self) -> list[OutputFile]:
        """Return the options that name a file to be written."""
        return [action for action in self._actions if isinstance(action, OutputFile)]

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong, in one line."""
        if self._reading:
            raise _Misread(message)
        raise UserError(f"{self.prog.split()[-1]}: {message}; {self.prog} --help shows what there is")

    def _near(self, flag: str) -> str:
        """Return which option is meant by an unknown one: by its letters, or by what other tools call it."""
        flag = flag.partition("=")[0]
        known = [option for action in self._actions for option in action.option_strings]
        near = [one for one in _MEANT.get(flag, ()) if one in known] or get_close_matches(flag, known, n=1)
        return f"; did you mean {' or '.join(near)}?" if near else ""

    def _read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Return the options. Raises _Misread, and UserError for an argument too many."""
        self._reading = True
        try:
            options, rest = self.parse_known_args(argv)
        finally:
            self._reading = False
        if rest and not rest[0].startswith("-") and self._one_more is not None:
            raise UserError(self._one_more.format(rest[0]))
        if rest:
            raise _Misread(f"there is no {rest[0]} here{self._near(rest[0])}")
        return options

    def _read_printing(self, argv: Sequence[str]) -> argparse.Namespace | None:
        """Return the options where `--json PATH` is "print, of PATH": nothing else is given, and PATH is there."""
        for at, flag, taken, kind in self._taken(argv):
            if what_is_lost(taken, kind) is not None:
                with suppress(_Misread):
                    return self._read([*argv[:at], f"{flag}={STDOUT}", *argv[at + 1 :]])
        return None

    def _taken(self, argv: Sequence[str]) -> Iterator[tuple[int, str, Path, OutputKind]]:
        """Yield each word that a flag took which may do without: the place of the flag, itself, the word, its kind."""
        flags = {flag: one.kind for one in self.outputs() if one.nargs == "?" for flag in one.option_strings}
        for at, (word, following) in enumerate(pairwise(argv)):
            if word in flags and not following.startswith("-"):
                yield at, word, Path(following), flags[word]


def _paths(options: argparse.Namespace, but: Sequence[OutputFile]) -> Iterator[Path]:
    """Yield the paths that a command line names to be read."""
    written = {action.dest for action in but}
    for name, value in vars(options).items():
        if name not in written:
            yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, Path))


def add_json(parser: argparse.ArgumentParser, what: str = "the answer") -> None:
    """Add `--json [FILE]`."""
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, action=OutputFile, kind="json",
        help=f"print {what} as JSON and nothing else (docs/schema/ has its schema); with FILE, write it there, too",
    )  # fmt: skip


def add_markdown(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--markdown [FILE]`."""
    parser.add_argument(
        "--markdown", nargs="?", const=STDOUT, action=OutputFile, kind="markdown",
        help=f"print {what} and nothing else; with FILE, write it there, too",
    )  # fmt: skip


def add_page(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--html FILE`."""
    parser.add_argument("--html", action=OutputFile, kind="page", help=what)


def add_bundle(parser: argparse.ArgumentParser, flag: str, what: str) -> None:
    """Add an option for a file that ui.perfetto.dev opens."""
    parser.add_argument(flag, action=OutputFile, kind="bundle", help=what)


class Outputs:
    """Where answers go; what goes to standard output is kept until the verb has ended well.

    `alone`: standard output holds one of them and nothing else, so that what else is printed need not be made.
    """

    def __init__(self, alone: bool = False) -> None:
        self.printed: list[str] = []
        self.alone = alone

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

    Raises UserError for two that are.
    """
    alone = [flag for flag, target in targets.items() if target == STDOUT]
    if len(alone) > 1:
        raise UserError(f"--{alone[0]} and --{alone[1]} both print; name a FILE for one of them")
    collected = Outputs(bool(alone))
    if not alone:
        yield collected
        return
    with redirect_stdout(io.StringIO()):
        yield collected
    for text in collected.printed:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
