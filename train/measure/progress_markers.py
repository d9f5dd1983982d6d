"""The markers of progress that every rank of a training job passes in the same order, and how long each may take.

A step has its limit once some have been timed. What may take long without anything being wrong has the job's long
one: the first steps, in which things are compiled and connected, validation, checkpoints, the profiler's start and
end, the traces' export.
"""

from collections import deque

from scalescope.launch.job import Job
from scalescope.train.config import TrainConfig

_LATE = 5  # exchanges of times, each of a second or a step, that say how long a step takes
_A_STEP = 8  # markers: more than any step has
_LOADING, _STEP, _PROFILER, _VALIDATING, _COLLECTING, _SAVING, _WRITING = range(7)


class ProgressMarkers:
    """Tells the job's watchdog where this rank is."""

    def __init__(self, job: Job[TrainConfig]) -> None:
        self._watchdog = job.watchdog
        self._limit_s = job.config.launch.step_limit_s
        self._long_s = job.config.launch.timeout_s
        self._late_s: deque[float] = deque(maxlen=_LATE)

    def timed(self, longest_s: float) -> None:
        """Take note of the longest of some steps, on the slowest rank; a first step that compiled is soon forgotten."""
        self._late_s.append(longest_s)

    def loading(self, step: int) -> None:
        self._step(_A_STEP * step + _LOADING, f"loading the batch of step {step}")

    def step(self, step: int) -> None:
        self._step(_A_STEP * step + _STEP, f"step {step}")

    def starting_profiler(self, step: int) -> None:
        self._pause(step, _LOADING, f"starting the profiler before step {step}")

    def ending_profiler(self, step: int) -> None:
        self._pause(step, _PROFILER, f"ending the profiler's window after step {step}")

    def validating_untrained(self) -> None:
        self._pause(-1, _VALIDATING, "validating the untrained model")

    def validating(self, step: int) -> None:
        self._pause(step, _VALIDATING, f"validating after step {step}")

    def saving(self, step: int) -> None:
        self._pause(step, _SAVING, f"saving the state after step {step}")

    def collecting(self, step: int) -> None:
        self._pause(step, _COLLECTING, f"collecting the times of the steps before {step}")

    def writing(self, steps: int) -> None:
        self._pause(steps, _WRITING, "writing the traces")

    def _step(self, number: int, name: str) -> None:
        if not self._late_s:
            self._watchdog.arrive(number, name, self._long_s)
        else:
            self._watchdog.arrive(number, name, self._limit_s)
            self._watchdog.expect(max(self._late_s))

    def _pause(self, step: int, place: int, name: str) -> None:
        self._watchdog.arrive(_A_STEP * step + place, name, self._long_s)
