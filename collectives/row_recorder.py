"""The sweep's rows on their way into sweep.jsonl: one a point, whichever of rank 0's threads has it."""

import threading
import time

import msgspec

from scalescope.collectives.plan import PlannedPoint
from scalescope.records.folder import RunFolder
from scalescope.records.rows import SweepRow
from scalescope.records.sink import Sinks

_PATIENCE_S = 5.0  # for a row that the working thread is writing just now, perhaps to a disk that hangs


class RowRecorder:
    """Written by the thread that measures; closed by the thread that watches, where the job hangs."""

    def __init__(self, folder: RunFolder, sinks: Sinks, attempt: int) -> None:
        self._folder, self._sinks, self._attempt = folder, sinks, attempt
        self._lock = threading.Lock()
        self._written: set[PlannedPoint] = set()

    def keep(self, row: SweepRow) -> None:
        """Write a row down at once. Does not return once the recorder is closed: the process is about to end."""
        with self._lock:
            row = self._write(row)
        self._sinks.log(row)

    def close(self, row: SweepRow) -> None:
        """Write the last row, unless its point has come back meanwhile and has one; no row follows it."""
        if not self._lock.acquire(timeout=_PATIENCE_S):  # and it is never released
            return
        if PlannedPoint.of(row) not in self._written:
            self._sinks.log(self._write(row))

    def _write(self, row: SweepRow) -> SweepRow:
        row = msgspec.structs.replace(row, attempt=self._attempt, unix_s=time.time())
        with self._folder.sweep_writer() as writer:
            writer.append(row)
        self._written.add(PlannedPoint.of(row))
        return row
