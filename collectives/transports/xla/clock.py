"""The clock of compiled programs: from when one program is done until those that were dispatched behind it are.

JAX dispatches programs before those ahead of them are done, and has no events to record between them. So a program
that is not counted runs first, and while it keeps the devices at work the counted ones are dispatched: what lies
between its end and theirs is the devices' time. Where they were not dispatched in time (tiny programs, or a backend
that runs a program before its call returns), the host's time from the first dispatch on counts, dispatch included.
"""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from scalescope.collectives.transports.rotation import Run


class ProgramClock:
    """Times programs that a transport dispatches; `latest` returns an output of the one dispatched last."""

    batch_s = 1e-3  # begins while the device is at work, so that only the end is seen late

    def __init__(self, latest: Callable[[], Any]) -> None:
        self._latest = latest

    def batch(self, run: Run, count: int) -> float:
        run(1)
        before = self._latest()
        start = time.perf_counter()
        run(count)
        if not before.is_ready():
            before.block_until_ready()
            start = time.perf_counter()
        self._latest().block_until_ready()
        return time.perf_counter() - start

    def each(self, run: Run, count: int) -> list[float]:
        run(1)
        waited_for = self._latest()
        marks = []
        for _ in range(count):  # one is always dispatched ahead
            run(1)
            ahead = self._latest()
            waited_for.block_until_ready()
            marks.append(time.perf_counter())
            waited_for = ahead
        waited_for.block_until_ready()
        marks.append(time.perf_counter())
        return [end - start for start, end in pairwise(marks)]
