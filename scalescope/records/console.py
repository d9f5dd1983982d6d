"""What is said on a console: it may go away (`scalescope train … | head`), must obey nothing, and is copied from."""

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, cast


@contextmanager
def outlived_console() -> Iterator[None]:
    """While it is open, what cannot be said on stdout and stderr any more is dropped instead of raised.

    A job's figures are in its run folder; no line on a console is worth ending it.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Outlived(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


#: What a terminal obeys instead of showing it: control characters but newline and tab, and marks that turn text round.
_OBEYED = dict.fromkeys(
    (*(code for code in range(0x20) if code not in (0x09, 0x0A)), *range(0x7F, 0xA0),
     *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd"
)  # fmt: skip


def clean(text: str) -> str:
    """Return a text that a terminal only shows: names in traces, logs and folders may be a stranger's."""
    return text.translate(_OBEYED)


@contextmanager
def cleaned_console() -> Iterator[None]:
    """While it is open, all that is printed is cleaned; rich, which styles and cleans by itself, writes past it."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Cleaned(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def styled_stream() -> TextIO:
    """Return standard output for who cleans what it prints and adds styles of its own."""
    return cast(TextIO, getattr(sys.stdout, "styled", sys.stdout))


class _Cleaned:
    """A text stream that cleans what is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self.styled = stream

    def write(self, text: str) -> int:
        self.styled.write(clean(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.styled, name)


class _Outlived:
    """A text stream that leads nowhere from the first write on that fails: no reader, no terminal, a full disk."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._let_go()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._let_go()

    def _let_go(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())  # what is buffered still, and what libraries say themselves, goes there
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def as_typed(path: Path) -> str:
    """Return a path from the current folder where it lies in there, quoted where a shell would take it apart."""
    with suppress(ValueError, OSError):  # it lies elsewhere, or the current folder is gone
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))


def counted(number: int, thing: str, things: str = "") -> str:
    """Return `1 step`, `2 steps` or `1,204 steps`; `things`: the plural where it is not so made."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def duration(seconds: float) -> str:
    """Return a length of time as people say it: "40 s", "13 minutes", "6 hours"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 100 * 60 else f"{seconds / 3600:.0f} hours"
