"""What rank 0 shows while a sweep runs: a line a row, under nccl-tests' column names."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from scalescope.collectives.show.summary import ways
from scalescope.records.console import styled_stream
from scalescope.records.rows import READ_HALF, READ_WIDE, SweepRow
from scalescope.records.statistics import decimals

_HEAD = (
    f"{'size':>12} {'count':>12} {'type':>13} {'redop':>5} {'root':>4} {'n':>3} "
    f"{'time':>10} {'±':>5} {'algbw':>7} {'busbw':>7} {'ceiling':>7} {'#wrong':>6}"
)
_UNITS = (
    f"{'(B)':>12} {'(elements)':>12} {'':>13} {'':>5} {'':>4} {'':>3} "
    f"{'(us)':>10} {'(%)':>5} {'(GB/s)':>7} {'(GB/s)':>7} {'(%)':>7} {'':>6}"
)


class Display:
    """A bar under the lines on a terminal, the lines alone elsewhere. Ranks other than 0 show nothing."""

    def __init__(self, total: int, shown: bool, done: int = 0) -> None:
        self._shown = shown
        self._series: tuple[object, ...] = ()
        self._console = Console(file=styled_stream(), highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        if shown and self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            # drawn with each row: a thread that draws all the time would take Python's lock from what is timed
            self._bar = Progress(*columns, console=self._console, transient=True, auto_refresh=False)
            self._task = self._bar.add_task("sweep", total=total, completed=done)

    def __enter__(self) -> "Display":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, row: SweepRow) -> None:
        """Print a row, under a heading where a new series begins."""
        if not self._shown:
            return
        way = ways(row)
        series = (row.operation, row.mode, way, tuple(row.ranks))
        if series != self._series:
            if not self._series:
                self._print(f"# {READ_HALF}; {READ_WIDE}")
            self._series = series
            members = f"ranks {row.ranks[0]} and {row.ranks[1]}" if row.group_size == 2 else f"{row.group_size} ranks"
            self._print(f"# {row.operation} {row.mode} over {members} ({way})")
            self._print(_HEAD)
            self._print(_UNITS)
        self._print(line(row))
        if self._bar:
            self._bar.advance(self._task)
            self._bar.refresh()

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False)
        sys.stdout.flush()


def line(row: SweepRow) -> str:
    """Return a row as one line: what was measured, or why it was not."""
    count = "n/a" if row.count is None else row.count
    root = -1 if row.root is None else row.root
    start = f"{row.bytes:>12} {count:>12} {row.dtype:>13} {row.reduction or 'none':>5} {root:>4} {row.group_size:>3} "
    if row.time_us is None:
        return f"{start}{row.status}: {row.reason}"
    half = row.relative_half
    share = 100 * row.bus_gb_s / row.ceiling_gb_s if row.bus_gb_s and row.ceiling_gb_s else None
    of_ceiling = "n/a" if share is None else f"{share:.{decimals(share, half, 1)}f}"
    within = "n/a" if half is None else f"{100 * half:.{1 if half < 0.1 else 0}f}"
    return (
        f"{start}{row.time_us:>10.{decimals(row.time_us, half)}f} {within:>5} {_speed(row.alg_gb_s, half)} "
        f"{_speed(row.bus_gb_s, half)} {of_ceiling:>7} {'n/a' if row.wrong is None else row.wrong:>6}"
        f"{'  wide' if row.is_wide else ''}"
    )


def _speed(gb_s: float | None, half: float | None) -> str:
    if gb_s is None:
        return f"{'n/a':>7}"
    return f"{gb_s:>7.{decimals(gb_s, half, 2 if gb_s >= 0.1 else 4)}f}"
