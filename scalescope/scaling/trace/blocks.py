"""A trace file as a stream of decompressed blocks, read as far as it goes."""

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

from isal import igzip_lib, isal_zlib

BLOCK_BYTES = 2 << 20
_READ_BYTES = 256 << 10
_GZIP_MAGIC = b"\x1f\x8b"


class Blocks:
    """Iterates over a file's content in blocks of about 2 MiB; gzip is told by its magic, not by the file's name.

    `damage` says, once the iteration has ended, why the content ended before the file did; None for a whole file. A
    large file is decompressed one block ahead in a thread of its own (isal releases the interpreter's lock).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: str | None = None
        self._file: IO[bytes] = path.open("rb")

    def __enter__(self) -> "Blocks":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[bytes]:
        head = self._file.read(2)
        self._file.seek(0)
        if head != _GZIP_MAGIC:
            while block := self._file.read(BLOCK_BYTES):
                yield block
        elif self.path.stat().st_size > 2 << 20:
            yield from self._ahead()
        else:
            yield from self._inflate()

    def _inflate(self) -> Iterator[bytes]:
        member = isal_zlib.decompressobj(31)
        pending = self._file.read(_READ_BYTES)
        while pending:
            try:
                block = member.decompress(pending, BLOCK_BYTES)
            except (igzip_lib.IsalError, ValueError) as error:  # type: ignore[misc]
                self.damage = f"its gzip stream is corrupt ({error})"
                return
            if block:
                yield block
            if member.eof:
                # a file may hold several members, one after the other; anything else after one is padding
                pending = member.unused_data or self._file.read(_READ_BYTES)
                if len(pending) < 2:
                    pending += self._file.read(_READ_BYTES)
                if pending[:2] != _GZIP_MAGIC:
                    return
                member = isal_zlib.decompressobj(31)
            else:
                pending = member.unconsumed_tail or self._file.read(_READ_BYTES)
                if not pending:
                    self.damage = "its gzip stream ends early"

    def _ahead(self) -> Iterator[bytes]:
        blocks: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=1)
        closing = threading.Event()

        def put(item: bytes | BaseException | None) -> bool:
            while not closing.is_set():
                try:
                    blocks.put(item, timeout=0.1)
                    return True
                except queue.Full:
                    continue
            return False

        def work() -> None:
            try:
                for block in self._inflate():
                    if not put(block):
                        return
                put(None)
            except BaseException as error:  # noqa: BLE001 - handed to the reading thread, which raises it
                put(error)

        thread = threading.Thread(target=work, name="inflate", daemon=True)
        thread.start()
        try:
            while (item := blocks.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            closing.set()
            thread.join()
