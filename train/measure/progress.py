"""What rank 0 says while steps go by: a bar on a terminal, a plain line every few seconds elsewhere."""

import sys
import time
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from scalescope.records.console import duration
from scalescope.records.rows import StepRow
from scalescope.train.measure.loading import LiveNews

_LINE_EVERY_S = 5.0


class StepProgress:
    """Shows each finished row."""

    def __init__(self, what: str, steps: int, *, runs_ahead: bool = False) -> None:
        """`runs_ahead`: see `LoadingWatch`."""
        self._what = what
        self._steps = steps
        self._bar: Progress | None = None
        self._last_line_s = 0.0
        self._first: tuple[int, float] | None = None  # a step, and when it was shown
        self._news = LiveNews(runs_ahead=runs_ahead)
        if sys.stdout.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[now]}"),
            )
            self._task = self._bar.add_task(what, total=steps, now="")

    def show(self, row: StepRow) -> None:
        """Show a row: each in a bar; else one every few seconds, and that from which a rank is late, or no longer."""
        news = self._news.take(row)
        said = ", ".join(filter(None, (describe(row), self._news.text)))
        if self._bar is not None:
            self._bar.update(self._task, completed=row.step + 1, now=said)
        elif news or time.monotonic() - self._last_line_s >= _LINE_EVERY_S:
            self._last_line_s = time.monotonic()
            self._news.told()
            print(f"{self._what}: step {row.step + 1}/{self._steps}, {said}{self._left(row)}", flush=True)

    def _left(self, row: StepRow) -> str:
        """Return how long the other steps take at the pace since the first that was shown."""
        if self._first is None or row.step <= self._first[0]:
            self._first = (row.step, time.monotonic())
            return ""
        step, since_s = self._first
        left_s = (time.monotonic() - since_s) / (row.step - step) * (self._steps - 1 - row.step)
        return f", {duration(left_s)} left" if left_s >= 1 else ""

    def __enter__(self) -> "StepProgress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()


def describe(row: StepRow) -> str:
    """Return a row in a few words."""
    parts = [
        f"{row.length_ms:,.1f} ms" + (" (warm-up)" if row.phase == "warmup" else ""),
        f"{row.samples_per_s:,.0f} samples/s",
    ]
    if row.tokens_per_s is not None:
        parts.append(f"{row.tokens_per_s:,.0f} tokens/s")
    if row.loss is not None:
        parts.append(f"loss {row.loss:.3f}")
    if row.mfu is not None:
        parts.append(f"MFU {row.mfu:.1%}")
    return ", ".join(parts)
