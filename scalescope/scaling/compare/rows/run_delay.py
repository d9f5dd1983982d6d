"""What a change owes to cores that others had: how long ranks were ready to run and did not, on both sides.

Linux tells each thread's run delay. On a CPU a step is as much longer for it, so that two runs of one job beside other
processes differ by tens of percent, while the steps of each may look even. Another process may be gone in the next run,
or the waiting be the job's own doing (more threads than cores): so it is no part of the change that is taken off, but
the bounds reach from the change as measured to the change of the steps without it, and are as wide as those of the
latter, which vary by less from run to run. What is not told of it (threads beside the loop's, ranks that wait by turns
or together) is noise; and so is that cores whose neighbours are at work are slower (a core's other hardware thread, the
caches), where one side ran beside others and the other did not: repeats do not even that out.
"""

import math

import msgspec
import numpy as np

from scalescope.records.statistics import NORMAL_95
from scalescope.scaling.answer_rows import AsMeasured
from scalescope.scaling.compare.measurement import KEYS, Measurement
from scalescope.scaling.compare.noise import Bounds, Floats
from scalescope.scaling.compare.spread import CORES_UNTOLD
from scalescope.scaling.trace.kernel_kinds import KINDS

#: Of the waiting, what a step is longer or shorter by besides: 200 runs of one job beside other processes had steps of
#: 12 to 90 ms, half of it waiting; without that of the rank that waited most, they differed by 2 ms.
_UNTOLD = 0.15
#: By how much a core whose neighbours are at work is slower, as a standard deviation of the step: three runs that
#: waited for 5 to 20 ms took 31 to 33 ms without that, and 28 with their cores to themselves; others that waited for
#: 25 to 58 ms took 28 to 31.
_SLOWER = 0.05
#: Others are at work where ranks wait for more of a step than the first of these shares, and throughout from the last.
_AT_WORK = (0.02, 0.07)
#: Who is put off waits for about so long, so that of a few steps some parts have much of it and others nothing.
_SLICE_MS = 4.0
#: Parts in which the loop's thread wants to run, and has its share of the waiting. For the others it is another rank's.
_RUNS = np.array([key in KINDS or key.startswith("idle_") for key in KEYS])


#: Workers that use so much more of the cores than ranks wait longer for them are why these do.
_MOST_OF_IT = 0.5


class RunDelay(msgspec.Struct, frozen=True):
    """One side's waiting for cores, ms of a step, of the rank that waits most."""

    step_ms: float | None  # of the steps that the change is told by; None: nothing tells
    recorded_ms: float | None  # of the recorded ones
    repeats: int
    recorded_steps: int
    untold: bool = False  # one run of CPU ranks, of which nothing tells it: they may have waited, or not

    @property
    def known(self) -> bool:
        return bool(self.step_ms or self.recorded_ms)


def run_delay_of(side: Measurement, rate: float, *, recorded_only: bool) -> RunDelay:
    """Return a side's waiting for cores; `recorded_only`: its steps are recorded ones."""
    recorded = _mean([one.recorded_run_delay_ms for one in side.repeats], rate)
    steady = recorded if recorded_only else _mean([one.run_delay_ms for one in side.repeats], rate)
    steps = sum(min(map(len, window.steps.values()), default=0) for window in side.windows)
    untold = side.cores_untold and len(side.repeats) == 1
    return RunDelay(steady, recorded, len(side.repeats), max(1, steps), untold)


def with_run_delay(
    found: Bounds, free: Bounds | None, parts: tuple[Floats, Floats], delays: tuple[RunDelay, RunDelay]
) -> Bounds:
    """Return the bounds of a change with what waiting for cores may have made of it; `parts`: both sides', ms.

    `free`: the same of steps without that waiting, which vary by less from run to run; None where not all tell it.
    """
    if not any(one.known or one.untold for one in delays):
        return found
    waited = [_by_part(ms, one) for ms, one in zip(parts, delays, strict=True)]
    errors = [_errors_untold(ms, one) if one.untold else _errors(own, one)
              for ms, own, one in zip(parts, waited, delays, strict=True)]  # fmt: skip
    part_error = NORMAL_95 * max(1.0, found.factor) * np.hypot(*errors)
    more = waited[1] - waited[0]
    more[:-1] *= _RUNS
    known = free if free is not None else found
    half = _half(known, parts, delays)
    without = _without(found, free, delays)
    return msgspec.structs.replace(
        found,
        low=found.parts - np.hypot(found.parts - found.low, part_error) - np.maximum(more, 0.0),
        high=found.parts + np.hypot(found.high - found.parts, part_error) + np.maximum(-more, 0.0),
        step_low=min(found.step, without) - half,
        step_high=max(found.step, without) + half,
        degrees=known.degrees,
    )


def as_measured(
    found: Bounds, free: Bounds | None, parts: tuple[Floats, Floats], delays: tuple[RunDelay, RunDelay]
) -> AsMeasured | None:
    """Return a step's change with what ranks waited for cores, and without; None where nobody did, or not all tell it.

    `found`, `free`, `parts`: as of `with_run_delay`.
    """
    if not any(one.known for one in delays) or any(one.step_ms is None for one in delays):
        return None
    half, without = _half(found, parts, delays), _without(found, free, delays)
    free_half = _half(free if free is not None else found, parts, delays)
    return AsMeasured(low_ms=found.step - half, high_ms=found.step + half, free_ms=without,
                      free_low_ms=without - free_half, free_high_ms=without + free_half)  # fmt: skip


def worker_cores_of(side: Measurement) -> float | None:
    """Return the cores that the ranks' child processes use in the mean run; None where not all of them tell it."""
    told = [one.worker_cores for one in side.repeats if one.worker_cores is not None]
    return sum(told) / len(told) if len(told) == len(side.repeats) > 0 else None


def are_by_workers(
    sides: tuple[Measurement, Measurement], steps_ms: tuple[float, float], delays: tuple[RunDelay, RunDelay]
) -> bool:
    """Tell whether the ranks' loaders' workers use most of what ranks wait longer for cores on one side: each makes one
    rank wait at a time, and for as long at most.
    """
    cores = [worker_cores_of(side) for side in sides]
    waited = [one.step_ms for one in delays]
    if cores[0] is None or cores[1] is None or waited[0] is None or waited[1] is None:
        return False
    more_ms = cores[1] * steps_ms[1] - cores[0] * steps_ms[0]
    longer_ms = (waited[1] - waited[0]) * sides[1].first.identity.world_size
    return more_ms * longer_ms > 0 and abs(more_ms) >= _MOST_OF_IT * abs(longer_ms)


def _half(known: Bounds, parts: tuple[Floats, Floats], delays: tuple[RunDelay, RunDelay]) -> float:
    """Return half of a step's interval with what is not told of the waiting, ms."""
    steps = [one.step_ms or 0.0 for one in delays]
    error = _UNTOLD * math.hypot(*(ms / math.sqrt(one.repeats) for ms, one in zip(steps, delays, strict=True)))
    slowed = [_beside_others_ms(ms, float(own.sum())) for ms, own in zip(steps, parts, strict=True)]
    error = math.hypot(error, _SLOWER * (slowed[1] - slowed[0]))
    return math.hypot((known.step_high - known.step_low) / 2, NORMAL_95 * error)


def _without(found: Bounds, free: Bounds | None, delays: tuple[RunDelay, RunDelay]) -> float:
    """Return the step's change without what ranks waited, ms."""
    before, after = (one.step_ms or 0.0 for one in delays)
    return free.step if free is not None else found.step - (after - before)


def _beside_others_ms(waited_ms: float, step_ms: float) -> float:
    """Return how long the loop runs on cores whose neighbours are at work, by how long it waits for one."""
    share = waited_ms / step_ms if step_ms > 0 else 0.0
    at_work = min(1.0, max(0.0, share - _AT_WORK[0]) / (_AT_WORK[1] - _AT_WORK[0]))
    return at_work * max(0.0, step_ms - waited_ms)


def _mean(told: list[float | None], rate: float) -> float | None:
    known = [rate * one for one in told if one is not None]
    return sum(known) / len(known) if known else None


def _by_part(parts: Floats, delay: RunDelay) -> Floats:
    """Return how long a rank waits in each part, by its share of the step, and last in what traces do not show."""
    recorded, steady = delay.recorded_ms or 0.0, delay.step_ms or 0.0
    own = np.abs(parts[:-1])
    whole = float(own.sum())
    share = own / whole if whole else np.zeros_like(own)
    return np.append(recorded * np.where(_RUNS, share, 1.0), steady - recorded)


def _errors_untold(parts: Floats, delay: RunDelay) -> Floats:
    """Return each part's standard deviation where nothing tells what a rank waited: it may be as much as runs do."""
    assumed = msgspec.structs.replace(delay, step_ms=None, recorded_ms=CORES_UNTOLD * float(np.abs(parts[:-1]).sum()))
    return _errors(_by_part(parts, assumed), assumed)


def _errors(waited: Floats, delay: RunDelay) -> Floats:
    """Return each part's standard deviation by waiting, ms: `waited` as `_by_part` has it."""
    by_slices = np.sqrt(waited[:-1] * _SLICE_MS / delay.recorded_steps)
    own = np.hypot(_UNTOLD * waited[:-1] / math.sqrt(delay.repeats), by_slices)
    others = waited[:-1] / math.sqrt(delay.repeats)
    rest = math.hypot(delay.step_ms or 0.0, delay.recorded_ms or 0.0) / math.sqrt(delay.repeats)
    return np.append(np.where(_RUNS, own, others), rest)
