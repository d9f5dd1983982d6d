"""Files that survive a crash: written whole or not at all, or grown one flushed line at a time."""

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.rows import FORMER_KEYS

Row = TypeVar("Row", bound=msgspec.Struct)

_MANY_DIGITS = re.compile(rb"\d{19}")  # as many as the largest integer of 64 bits has

#: What a decoder raises for bytes that are no JSON, no text, or brackets within brackets beyond its depth.
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class DamagedFile(UserError, msgspec.DecodeError):
    """A file of a run folder that does not decode: the message names file, line and what was expected there."""


def read_document(path: Path, document_type: type[Row]) -> Row:
    """Return what a JSON file holds.

    Raises DamagedFile, OSError where it cannot be read, UserError for what is no plain file.
    """
    refuse_special(path)
    try:
        content = path.read_bytes()
        refuse_huge_integers(content)
        return msgspec.json.decode(content, type=document_type)
    except UNDECODABLE as error:
        raise DamagedFile(f"{path}: {error}") from error


def refuse_huge_integers(json: bytes) -> None:
    """Raise msgspec.DecodeError where JSON holds an integer of more than 64 bits: no figure could be made of it.

    A decoder reads such a one as it stands, and the first division by it would overflow.
    """
    left = [msgspec.json.decode(json)] if _MANY_DIGITS.search(json) else []
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise msgspec.DecodeError("it holds an integer of more than 64 bits")


def refuse_special(path: Path) -> None:
    """Raise UserError for a pipe, a socket or a device in a file's place: opening one may wait for ever."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # whoever opens it says what is wrong
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError(f"{path} is no file but a pipe, a socket or a device, which is not read; remove it")


def write_atomic(path: Path, content: bytes | str, *, durable: bool = True) -> None:
    """Write a whole file so that a reader sees the old content or the new, never a part.

    `durable`: it is on the disk when this returns, which takes long on some; else it may be lost with the machine.

    The temporary file lies in the same folder, since `os.replace` is atomic within one file system only.
    Raises OSError (a full disk, no permission) with the old file untouched.
    """
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None  # the name that means something to the user
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        # mkstemp makes files private; a run folder is as readable as the user's umask says
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


class RowWriter:
    """Appends typed rows to a JSON-lines file, each flushed as it is written.

    A torn last line, which a killed writer leaves, is cut off before the first append, so that the new row
    does not grow onto it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_special(path)
        _cut_torn_line(path)
        self._file = path.open("ab", buffering=0)

    def append(self, row: msgspec.Struct) -> None:
        """Append one row. Raises OSError where it does not fit; a part that was written is cut off again."""
        line = msgspec.json.encode(row) + b"\n"
        before = self._file.seek(0, os.SEEK_END)
        try:
            written = self._file.write(line)
            if written != len(line):
                raise OSError(f"{self.path}: only {written} of {len(line)} bytes fit (is the disk full?)")
        except OSError:
            self._file.truncate(before)
            raise

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "RowWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_rows(path: Path, row_type: type[Row]) -> Iterator[Row]:
    """Yield the rows of a JSON-lines file; one torn last line is accepted, a missing file holds none.

    Raises DamagedFile, naming file and line, for a bad row that is not the last, UserError for what is no plain file.
    """
    if not path.exists():
        return
    refuse_special(path)
    decoder = msgspec.json.Decoder(row_type)
    renamed = FORMER_KEYS.get(row_type, {})
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            for former, key in renamed.items():
                line = line.replace(former, key)
            try:
                refuse_huge_integers(line)
                row = decoder.decode(line)
            except UNDECODABLE as error:
                if not line.endswith(b"\n"):
                    return
                raise DamagedFile(f"{path}:{number}: {error}") from error
            yield row


def _cut_torn_line(path: Path) -> None:
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb+") as file:
        content = file.read()
        if not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
