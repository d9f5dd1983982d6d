"""What a row is handed: the device, how large and how long to measure, and how to run a job of its own."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from scalescope.hardware.ceiling import time_once
from scalescope.hardware.detect import describe
from scalescope.records.folder import RunFolder
from scalescope.records.scorecard.row import Conditions, ScorecardRow
from scalescope.records.statistics import student_95

_WARM_UP = 2
_LEAST, _MOST = 5, 200  # measurements of a figure
_REST_S = 1.0

#: Runs a job of a verb with so many ranks and these overrides, under a name, and returns its folder.
RunJob = Callable[[str, str, int, Sequence[str]], RunFolder]


@dataclass
class MachineUnderTest:
    """One device of this machine, and all of them for what takes several."""

    device: torch.device
    full: bool  # sizes that fill a GPU; else such as two cores do in a second
    budget_s: float  # of a figure, at most, but for its least number of measurements
    devices: int  # that an all-reduce may span
    run_job: RunJob
    compose: Callable[[str, Sequence[str]], Any]  # a verb's config, composed
    name: str = ""
    copy_bytes_s: float | None = field(default=None)  # once it is measured, for what follows from it

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def rest(self) -> None:
        """Let the device cool, and draw little power, as it is where others measure what it reaches."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)
            time.sleep(_REST_S)

    def times_s(self, work: Callable[[], object], most: int = _MOST) -> list[float]:
        """Return how long each of several calls takes, warmed up: `most` of them, for at most `budget_s` in all."""
        for _ in range(_WARM_UP):
            work()
        if self.on_gpu:
            torch.cuda.synchronize(self.device)
        times: list[float] = []
        until = time.perf_counter() + self.budget_s
        while len(times) < _LEAST or (time.perf_counter() < until and len(times) < most):
            times.append(time_once(work, self.device))
        return times

    def rate(self, times_s: Sequence[float], amount: float) -> tuple[float, float, float]:
        """Return amount ÷ the mean time, and its 95% interval, which ends at the fastest."""
        mean, half = mean_and_half(times_s)
        return amount / mean, amount / (mean + half), amount / max(mean - half, min(times_s))

    def row(
        self, row: str, quantity: str, what: str, unit: str, figure: tuple[float, float, float],
        conditions: Conditions = Conditions(),  # noqa: B008 - it is frozen
    ) -> ScorecardRow:  # fmt: skip
        """Return a measured row, with the device's state right after it."""
        state = describe(0, self.device)
        value, low, high = figure
        return ScorecardRow(
            row, quantity, what, unit, value=value, low=low, high=high, device=self.name, conditions=conditions,
            power_w=state.power_w, sm_clock_mhz=state.sm_clock_mhz, temperature_c=state.temperature_c,
        )  # fmt: skip

    def missing(
        self, row: str, quantity: str, what: str, unit: str, reason: str,
        conditions: Conditions = Conditions(),  # noqa: B008 - it is frozen
    ) -> ScorecardRow:  # fmt: skip
        """Return a row that this machine cannot measure, with the reason."""
        return ScorecardRow(row, quantity, what, unit, "not_available", reason, device=self.name, conditions=conditions)


def mean_and_half(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half of its 95% interval by Student's t; 0 of a single value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, 0.0
    return mean, student_95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def first_line(error: BaseException) -> str:
    """Return what an error says, in a line."""
    return (next(iter(str(error).splitlines()), "") or type(error).__name__)[:200]
