"""`scalescope train` inside a world of which some ranks are late by so many ms in each step: a change of known size.

LATE_MS=2.5 LATE_RANKS=1 [LATE_ON=device] [LATE_TOLD=FOLDER] torchrun --nproc-per-node 2 benchmarks/late_ranks.py \
    train model=gpt_tiny …

Between its forward and its backward pass such a rank sleeps, or occupies its device's stream. What that took in truth,
the mean step's ms, is written to FOLDER/rank<r>.late.
"""

import atexit
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Protocol

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from scalescope.cli.front_door import main

#: The first steps of a job are none that count.
_WARM_UP = 10


class Late(Protocol):
    """Something that takes its time."""

    def delay(self) -> None:
        """Take it."""

    def taken_ms(self) -> list[float]:
        """Return what it took each time."""


class LateHost:
    """The loop's thread sleeps, as in a slow call of its own."""

    def __init__(self, ms: float) -> None:
        self.ms = ms
        self.took: list[float] = []

    def delay(self) -> None:
        began = time.perf_counter()
        time.sleep(self.ms / 1e3)
        self.took.append((time.perf_counter() - began) * 1e3)

    def taken_ms(self) -> list[float]:
        return self.took


class LateDevice:
    """A kernel that only waits occupies the device's stream: its length is counted in clocks, which vary."""

    def __init__(self, ms: float) -> None:
        self.ms = ms
        self.cycles = 0
        self.events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def delay(self) -> None:
        if not self.cycles:
            self.cycles = round(self.ms * self._cycles_a_ms())
        pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        pair[0].record()
        torch.cuda._sleep(self.cycles)
        pair[1].record()
        self.events.append(pair)

    def _cycles_a_ms(self) -> float:
        tried = 10_000_000
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(tried)
        first.record()
        torch.cuda._sleep(tried)
        last.record()
        last.synchronize()
        return tried / float(first.elapsed_time(last))

    def taken_ms(self) -> list[float]:
        torch.cuda.synchronize()
        return [first.elapsed_time(last) for first, last in self.events]


def delay_before_backward(late: Late) -> None:
    """Let this rank be late between its forward and its backward pass."""
    plain: Callable[..., None] = torch.Tensor.backward

    def after_delay(self: torch.Tensor, *args: object, **options: object) -> None:
        late.delay()
        plain(self, *args, **options)

    setattr(torch.Tensor, "backward", after_delay)  # noqa: B010 (a method, which mypy lets nobody assign)


def run() -> int:
    """Train as one rank, late if it is one of those; return the job's exit code."""
    if os.environ["RANK"] in os.environ["LATE_RANKS"].split(","):
        kind = LateDevice if os.environ.get("LATE_ON") == "device" else LateHost
        late: Late = kind(float(os.environ["LATE_MS"]))
        delay_before_backward(late)
        if told := os.environ.get("LATE_TOLD"):
            atexit.register(tell, late, Path(told))  # a rank that has come to its end does not return
    return main(sys.argv[1:])


def tell(late: Late, folder: Path) -> None:
    """Write down what the mean step's delay took."""
    path = folder / f"rank{os.environ['RANK']}.late"
    path.write_text(f"{fmean(late.taken_ms()[_WARM_UP:]):.6f}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(run())
