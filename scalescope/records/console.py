"""A console that may go away: `scalescope train … | head` closes the pipe, and the job goes on without it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
