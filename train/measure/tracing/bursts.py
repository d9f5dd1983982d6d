"""What recording costs this host a call: bursts of calls with a profiler and without, once a job.

On another host, or another day, an operator costs twice as much; what it costs beside a call of the runtime differs
less. So a job measures both: the step as run then needs no constants of ours. A burst runs nothing on the device: views
of a few numbers, events recorded on a stream of their own, functions that do nothing. It stands outside of any step,
and takes half a second at most.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import torch

from scalescope.records.steps.recording import BurstTimes, RecordingBursts
from scalescope.train.measure.tracing.profile import prepared_profile

#: No further round is begun after so long: one takes 0.05 to 0.15 s.
_LIMIT_S = 0.25
_MOST_ROUNDS = 5
#: Calls in a stretch, and stretches of a burst: of those the lower quartile counts, since others share the cores.
_CALLS, _STRETCHES = 50, 8

_Modes = dict[str, list[BurstTimes]]


@dataclass
class Bursts:
    """One rank's bursts: `begin` where the process has not recorded anything yet, `measure` once it has."""

    rank: int
    device: torch.device
    stacks: bool = False
    _bare: BurstTimes | None = None
    _numbers: torch.Tensor = field(default_factory=lambda: torch.zeros(8, 8))

    def begin(self) -> None:
        """Take the times of a process in which nothing was ever recorded: on a device they never come back."""
        if self.device.type == "cuda":
            with suppress(RuntimeError):  # whatever the device says, it is no reason to end a job
                self._bare = self._burst()

    def measure(self) -> RecordingBursts | None:
        """Return what calls take with a profiler and without; None where that fails: no reason to end a job."""
        found: _Modes = {"plain": [], "recorded": [], "shapes": []}
        if self.stacks:
            found["stacks"] = []
        until = time.monotonic() + _LIMIT_S
        try:
            for _ in range(_MOST_ROUNDS):
                for mode, times in found.items():
                    times.append(self._burst() if mode == "plain" else self._recorded(mode))
                if time.monotonic() > until:
                    break
        except RuntimeError:  # Kineto's and CUPTI's failures, another profiler among them
            return None
        return RecordingBursts(rank=self.rank, bare=self._bare, **{mode: _median(one) for mode, one in found.items()})

    def _recorded(self, mode: str) -> BurstTimes:
        profile = prepared_profile(self.device, shapes=mode == "shapes", stacks=mode == "stacks")
        profile.start_trace()
        try:
            return self._burst()
        finally:
            profile.stop_trace()

    def _burst(self) -> BurstTimes:
        numbers = self._numbers
        call_ns = None
        if self.device.type == "cuda":
            event = torch.cuda.Event()
            stream = torch.cuda.Stream(self.device)  # nothing that the job runs is before or behind it
            call_ns = _quartile_ns(lambda: event.record(stream))
        return BurstTimes(
            operator_ns=_quartile_ns(lambda: numbers.view(64)),
            call_ns=call_ns,
            frame_ns=_quartile_ns(_nothing) if self.stacks else None,
        )


def _nothing() -> None:
    pass


def _quartile_ns(call: Callable[[], object]) -> float:
    """Return what a call takes, ns: the lower quartile of some stretches of calls."""
    stretches = []
    for _ in range(_STRETCHES):
        began = time.perf_counter_ns()
        for _ in range(_CALLS):
            call()
        stretches.append((time.perf_counter_ns() - began) / _CALLS)
    return statistics.quantiles(stretches, n=4)[0]


def _median(rounds: list[BurstTimes]) -> BurstTimes:
    def of(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return round(statistics.median(known), 1) if known else None

    operator_ns = of([one.operator_ns for one in rounds])
    assert operator_ns is not None
    return BurstTimes(
        operator_ns=operator_ns,
        call_ns=of([one.call_ns for one in rounds]),
        frame_ns=of([one.frame_ns for one in rounds]),
    )
