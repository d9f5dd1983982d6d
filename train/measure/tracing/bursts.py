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

#: No further round is begun after so long, unless what was found cannot be: one takes 0.05 to 0.15 s.
_LIMIT_S = 0.25
_MOST_ROUNDS = 5
#: Calls in a stretch, and stretches of a burst: of those the shortest counts, since others that share the cores only
#: make them longer.
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
        """Return what calls take with a profiler and without; None where that fails: no reason to end a job.

        Nor is anything told where calls seem to take less while they are recorded, as beside others that come and go.
        """
        found: _Modes = {"plain": [], "recorded": [], "shapes": []}
        if self.stacks:
            found["stacks"] = []
        until = time.monotonic() + _LIMIT_S
        try:
            for _ in range(_MOST_ROUNDS):
                for mode, times in found.items():
                    times.append(self._burst() if mode == "plain" else self._recorded(mode))
                if time.monotonic() > until and _is_in_order(found):
                    break
        except RuntimeError:  # Kineto's and CUPTI's failures, another profiler among them
            return None
        result = RecordingBursts(rank=self.rank, bare=self._bare, **_in_pairs(found))
        return result if result.operator_ns > 0 else None

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
            call_ns = _shortest_ns(lambda: event.record(stream))
        return BurstTimes(
            operator_ns=_shortest_ns(lambda: numbers.view(64)),
            call_ns=call_ns,
            frame_ns=_shortest_ns(_nothing) if self.stacks else None,
        )


def _nothing() -> None:
    pass


def _shortest_ns(call: Callable[[], object]) -> float:
    """Return what a call takes, ns: in the shortest of some stretches of calls."""
    stretches = []
    for _ in range(_STRETCHES):
        began = time.perf_counter_ns()
        for _ in range(_CALLS):
            call()
        stretches.append((time.perf_counter_ns() - began) / _CALLS)
    return min(stretches)


def _is_in_order(found: _Modes) -> bool:
    """Whether an operator takes longer with a profiler, and longer still with its inputs' shapes."""
    told = _in_pairs(found)
    return told["plain"].operator_ns < told["recorded"].operator_ns < told["shapes"].operator_ns


def _in_pairs(found: _Modes) -> dict[str, BurstTimes]:
    """Return each mode's times: without a profiler the median, else that and by how much longer a round's burst takes
    than the same round's without, in the median: what is slow for a while is slow for both.
    """
    plain = found["plain"]
    return {mode: _median(plain, times) for mode, times in found.items()}


def _median(plain: list[BurstTimes], times: list[BurstTimes]) -> BurstTimes:
    def of(name: str) -> float | None:
        pairs = [(getattr(before, name), getattr(after, name)) for before, after in zip(plain, times, strict=True)]
        known = [(before, after) for before, after in pairs if before is not None and after is not None]
        if not known:
            return None
        usual = statistics.median(before for before, _ in known)
        return round(float(usual + statistics.median(after - before for before, after in known)), 1)

    operator_ns = of("operator_ns")
    assert operator_ns is not None
    return BurstTimes(operator_ns=operator_ns, call_ns=of("call_ns"), frame_ns=of("frame_ns"))
