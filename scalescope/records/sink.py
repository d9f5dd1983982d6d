"""Live reporting from a running job: a small interface, so that the measuring half imports nothing above it."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from scalescope.records.rows import RunStatus


class PackageMissing(ImportError):
    """A sink's own package is not installed: as true of each job of a study, which says it once."""


class Sink(Protocol):
    """Where a running job tells of itself while it runs. Only rank 0 holds sinks."""

    def start(self, config: dict[str, Any], run_id: str) -> None: ...

    def log(self, row: msgspec.Struct) -> None: ...

    def artifact(self, path: Path) -> None: ...

    def close(self, status: RunStatus) -> None: ...


class Sinks:
    """Several sinks as one. A sink that fails is reported once, dropped, and never stops the job."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._live = list(sinks)

    def start(self, config: dict[str, Any], run_id: str) -> None:
        self._each(lambda sink: sink.start(config, run_id))

    def log(self, row: msgspec.Struct) -> None:
        self._each(lambda sink: sink.log(row))

    def artifact(self, path: Path) -> None:
        self._each(lambda sink: sink.artifact(path))

    def close(self, status: RunStatus) -> None:
        self._each(lambda sink: sink.close(status))

    def _each(self, call: Callable[[Sink], None]) -> None:
        for sink in list(self._live):
            try:
                call(sink)
            except Exception as error:  # noqa: BLE001 - whatever a stranger's service raises, the job goes on
                self._live.remove(sink)
                print(
                    f"scalescope: {type(sink).__name__} failed and is left out from here on ({error}); "
                    "the run folder has everything",
                    file=sys.stderr,
                )
