"""What is kept of a job: its steps, windows and settings as `compare` reads them, without the traces themselves."""

import gzip
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeVar

import msgspec

from comparisons.making import finished
from scalescope.scaling.compare.measurement import Measurement, Repeat, Window
from scalescope.scaling.compare.read import read_repeat
from scalescope.scaling.trace.kernel_kinds import KINDS, RECURRENT, SORTING, TRANSFORMS

_T = TypeVar("_T")

ROWS = "rows.jsonl.gz"
#: What the figures of a window were before rows said it.
_FORMER_KINDS = tuple(kind for kind in KINDS if kind not in (RECURRENT, TRANSFORMS, SORTING))


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One finished job."""

    model: str
    case: str
    number: int
    late_ms: dict[int, float] = {}  # by rank, what a step's delay took in truth
    kinds: tuple[str, ...] = _FORMER_KINDS  # of kernels: the first figures of a window's ranks, and of its calls
    repeat: Repeat

    @property
    def step_ms(self) -> float:
        """Return its step without a profiler, and without what its ranks waited for cores where that is told."""
        return median(self.repeat.free_ms or self.repeat.steady_ms)

    @property
    def delay_ms(self) -> float | None:
        return fmean(self.late_ms.values()) if self.late_ms else None


def read_rows(out: Path) -> list[Row]:
    """Return the finished jobs of a folder, or those of a file of rows."""
    if out.is_file():
        with gzip.open(out, "rb") as file:
            return [_as_now(msgspec.json.decode(line, type=Row, dec_hook=_decoded)) for line in file]
    folders = [path for path in sorted(out.glob("*/*-*")) if finished(path)]
    with ProcessPoolExecutor(workers()) as pool:
        return list(pool.map(_read, folders))


def _as_now(row: Row) -> Row:
    """Return a row with its windows' figures in the order of today's kinds, of which there may be more."""
    if row.kinds == KINDS:
        return row
    windows = [
        msgspec.structs.replace(
            window,
            ranks={rank: (*_placed(vector, row.kinds, 0.0), *vector[len(row.kinds) :])
                   for rank, vector in window.ranks.items()},
            calls={rank: tuple(_placed(calls, row.kinds, 0)) for rank, calls in window.calls.items()},
        )
        for window in row.repeat.windows
    ]  # fmt: skip
    return msgspec.structs.replace(row, kinds=KINDS, repeat=msgspec.structs.replace(row.repeat, windows=windows))


def _placed(figures: Sequence[_T], kinds: Sequence[str], none: _T) -> list[_T]:
    by_kind = dict(zip(kinds, figures, strict=False))
    return [by_kind.get(kind, none) for kind in KINDS]


def workers() -> int:
    """Return how many processes may read."""
    return max(1, min(16, (os.cpu_count() or 2) - 1))


def _read(folder: Path) -> Row:
    case, _, number = folder.name.rpartition("-")
    late = {int(path.stem.removeprefix("rank")): float(path.read_text()) for path in folder.glob("rank*.late")}
    return Row(model=folder.parent.name, case=case, number=int(number), late_ms=late, kinds=KINDS,
               repeat=read_repeat(folder, 1))  # fmt: skip


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows, one a line, from which a comparison comes out alike, but for kernels, which only traces tell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wb") as file:
        for row in rows:
            windows = [msgspec.structs.replace(one, traces={}) for one in row.repeat.windows]
            kept = msgspec.structs.replace(row.repeat, windows=windows, path=Path(row.repeat.path.name))
            line = msgspec.structs.replace(row, repeat=kept)
            file.write(msgspec.json.encode(line, enc_hook=_encoded) + b"\n")


def _encoded(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value)} has no place in a row")


def _decoded(kind: type, value: Any) -> Any:
    if issubclass(kind, Path):
        return Path(value)
    raise TypeError(f"{kind} has no place in a row")


def side(name: str, repeats: Sequence[Repeat]) -> Measurement:
    """Return repeats as one side of a comparison."""
    return Measurement(name=name, repeats=list(repeats))


def traces_alone(repeat: Repeat) -> Repeat:
    """Return what a folder of a run's traces tells: its windows, and nothing of steps without a profiler."""
    return msgspec.structs.replace(repeat, steady_ms=[], free_ms=[], run_delay_ms=None)


def by_windows(repeat: Repeat) -> Iterator[Repeat]:
    """Yield each window as if it had been recorded alone."""
    alone = traces_alone(repeat)
    for window in repeat.windows:
        windows: list[Window] = [window]
        yield msgspec.structs.replace(alone, windows=windows)
