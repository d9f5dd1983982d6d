"""By how much the parts of a step differ between windows of one undisturbed job: what one window cannot tell itself.

Standard deviations as shares of the part, chosen so that 62 undisturbed windows on 2 and 4 H200 of two hosts (GPT and
ResNet, DDP and FSDP2, bound by devices and by hosts) lie within them; no other windows have tested them yet. Those of
CPU jobs were seen on two cores of one machine alone. What one part takes, another often leaves, so that the step varies
by less than its parts: added in squares, compute as one, by 1% where devices bound it and 15% where hosts do.
"""

import math
from collections.abc import Sequence
from statistics import fmean, median, pstdev, stdev

import numpy as np

from scalescope.records.statistics import NORMAL_95, student_95
from scalescope.scaling.compare.measurement import KEYS
from scalescope.scaling.compare.noise import Floats
from scalescope.scaling.trace.kernel_kinds import KINDS

_COMPUTE = {"gpu": 0.01, "cpu": 0.05}
_KIND = {"gpu": 0.03, "cpu": 0.1}
_HOST_LATE = {"gpu": 0.4, "cpu": 0.1}  # on a CPU it is the Python between operators
#: What steps of two runs of one job differ by, though windows or many steps tell each of them well, as a standard
#: deviation: on two H200s 0.1 to 0.3% on one host and 0.35% between three (GPT and ResNet-50, 81 jobs of thirty steps).
#: On two cores, minutes apart and without what ranks waited for them, 7.1% (48 runs of 19 jobs of four own scripts, 0.1
#: to 13% a job): by 8% one of their 48 pairs is called different, by 7% three.
_BETWEEN_RUNS = {"gpu": 0.004, "cpu": 0.08}
#: The same of steps on CPUs of which nothing tells whether they waited, at least: ten runs of one script on two cores
#: that others used now and then differed by 24%. By 20% two of their 45 pairs are called different, by 15% eight.
CORES_UNTOLD = 0.20
#: What any part of a step differs by at least between windows, as a share of the step.
_LEAST = {"gpu": 0.003, "cpu": 0.01}
#: Parts that cannot be negative and vary by a factor: all but compute, and what the traces do not show.
AMOUNTS = np.array([key not in KINDS for key in KEYS] + [False])
#: So many consecutive steps count as one, since neighbours are alike; few steps make so many stretches all the same.
_STRETCH, _LEAST_STRETCHES = 10, 4
#: What the kinds' shares above are worth beside a run's own windows.
_PRIOR_DEGREES = 2
#: Of exposed wait.
OF_WAITS = 0.6
_OTHERS = {
    "exposed_transfer": 0.15,
    "exposed_wait": OF_WAITS,
    "exposed_unsplit": 0.2,
    "exposed_memory": 0.4,
    "idle_data": 0.5,
    "idle_queued": 0.15,
}


def spread_of(parts: Sequence[float], activity: str) -> Floats:
    """Return each part's standard deviation between windows, ms; `parts` by KEYS."""
    others = _OTHERS | {"idle_launch": _HOST_LATE[activity]}
    shares = [_KIND[activity]] * len(KINDS) + [others[key] for key in KEYS[len(KINDS) :]]
    return np.array([share * abs(ms) for share, ms in zip(shares, parts, strict=True)])


def least_spread_of(step_ms: float, activity: str) -> float:
    """Return what any part of such a step differs by at least between windows, as a standard deviation, ms."""
    return _LEAST[activity] * step_ms


def spread_of_means(runs: Sequence[Floats], activity: str) -> Floats:
    """Return each part's standard deviation between runs of several windows each, ms; `runs`: (windows, parts by KEYS).

    Windows of one run tell by how much its kernels differ from window to window, so that their mean is known better
    than one window is; what is left between runs is what clocks and places in memory make. Of other parts hosts
    decide, which may be otherwise throughout a run: of those many windows tell no more than one.
    """
    rows = np.vstack(runs)
    mean = rows.mean(axis=0)
    found = spread_of(mean.tolist(), activity)
    least, kinds = min(len(one) for one in runs), slice(0, len(KINDS))
    between = _COMPUTE[activity] * np.abs(mean[kinds])
    squares = sum(((one - one.mean(axis=0)) ** 2).sum(axis=0) for one in runs)[kinds]
    degrees = len(rows) - len(runs)
    within = (_PRIOR_DEGREES * (found[kinds] ** 2 - between**2) + squares) / (_PRIOR_DEGREES + degrees)
    found[kinds] = np.sqrt(between**2 + within / least)
    return found


def step_spread_of(step_ms: float, parts: Sequence[float], activity: str, *, without_waiting: bool = False) -> float:
    """Return a whole step's standard deviation between runs, ms, by what it consists of in the traces, if there are.

    `without_waiting`: it is known without what ranks waited for cores, which is much of what its parts differ by. No
    step is known better than runs of one job were seen to differ.
    """
    compute, whole = sum(parts[: len(KINDS)]), sum(parts)
    others = spread_of(parts, activity)[len(KINDS) :]
    together = math.hypot(_COMPUTE[activity] * compute, *others.tolist())
    share = together / whole if whole else _COMPUTE[activity]
    return step_ms * (_BETWEEN_RUNS[activity] if without_waiting else max(share, _BETWEEN_RUNS[activity]))


def least_step_spread_of(step_ms: float, *, cores_untold: bool) -> float:
    """Return what a run's whole step differs by at least between runs, as a standard deviation, ms.

    `cores_untold`: it is of CPU ranks, and nothing tells whether other processes had their cores.
    """
    return CORES_UNTOLD * step_ms if cores_untold else 0.0


def step_spread_of_windows(lengths_ms: Sequence[float], activity: str) -> float:
    """Return the standard deviation between runs of a step that several windows of one run tell, ms.

    How far their mean is off is what they differ by, as Student's t has it of so few; how runs differ they cannot tell.
    """
    count, mean = len(lengths_ms), fmean(lengths_ms)
    off = stdev(lengths_ms) / math.sqrt(count) * student_95(count - 1) / NORMAL_95
    return math.hypot(_BETWEEN_RUNS[activity] * mean, off)


def stretches_of(steps_ms: Sequence[float]) -> list[float]:
    """Return the medians of stretches of a run's steps, in order, ms: what they differ by tells how far its median is
    off. Empty of no steps.
    """
    count = min(len(steps_ms), max(_LEAST_STRETCHES, len(steps_ms) // _STRETCH))
    return [float(median(stretch)) for stretch in np.array_split(np.array(steps_ms), count)] if count else []


def drift_of(steps_ms: Sequence[float]) -> float:
    """Return by how much a run's median is off besides what its stretches tell, as a standard deviation, ms.

    On shared machines steps are longer for a while: stretches in a row are alike, and fewer than they seem. By how much
    a run's halves differ tells of that.
    """
    if len(steps_ms) < 2:
        return 0.0
    half = len(steps_ms) // 2
    apart = (median(steps_ms[:half]) - median(steps_ms[half:])) / 2
    stretches = stretches_of(steps_ms)
    return math.sqrt(max(0.0, apart**2 - pstdev(stretches) ** 2 / (len(stretches) - 1)))
