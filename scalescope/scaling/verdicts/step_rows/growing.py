"""Steps that grow: each a little longer than the one before, as with a list that is never emptied.

A median of them is no step of the job's, and what they differ by is no unsteadiness of the machine. Robust statistics
tell: the slope is Theil and Sen's over medians of stretches, so that single long steps do not count, and Mann and
Kendall's test with what neighbours have in common taken off says that it is none of chance. A step that became longer
once is another matter (a level), and so is one that grows and stays: both halves of the job have to grow, and two
levels, of a machine that became slower once and was busy before, must not be as near the steps as the line is.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from scalescope.records.rows import StepRow
from scalescope.records.statistics import NORMAL_95
from scalescope.records.steps.core_waits import waited_ms
from scalescope.records.steps.job_steps import RATES
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import PARTS, StepSplit
from scalescope.scaling.answer_steps import GrowingSteps
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.trace.kernel_names import short_name

#: Fewer steps tell nothing, and of more than this medians of stretches are taken: so many stretches at most, of so many
#: steps at least.
_LEAST_STEPS, _SINGLE_STEPS = 8, 36
_MOST_STRETCHES, _LEAST_STRETCH = 24, 3
#: Standard deviations, of Mann and Kendall's statistic and of the rise: one of two thousand series that do not grow
#: looks as if it did.
_SURE = 3.3
#: From the first steps to the last they grow by this share at least, …
_LEAST_SHARE = 0.1
#: … so many times what stretches lie off the line, …
_OVER_RESIDUAL = 4.0
#: … and in each half by this share of what the slope says.
_IN_EACH_HALF = 0.25
#: Stretches that tell what steps take at either end, and of either of two levels at least.
_AT_AN_END = 3
#: Of the slope: whose own time, or which part of a step, grows by so much is what grows; by less than this it does not.
_MOSTLY, _HARDLY = 0.6, 0.25
#: What a part has grown by for sure, of what the step has.
_HALF = 0.5
#: Steps of a trace whose launches are counted.
_LEAST_COUNTED = 3
#: How much longer a step is for waits for cores is known within so many standard errors, as neighbours are alike; at
#: most it is all that two ranks wait one after the other.
_FELT_OFF, _MOST_FELT = 4.0, 2.0
#: What is lost to other ranks' growth.
_WAITING = ("exposed_wait", "exposed_unsplit")

Floats = NDArray[np.float64]


class Slope(msgspec.Struct, frozen=True):
    """By how much a series grows a step, ms, with its 95% interval, and between which steps from what to what."""

    value: float
    low: float
    high: float
    first: int
    last: int
    from_ms: float
    to_ms: float


def growing_rows(steady: Sequence[StepRow]) -> GrowingSteps | None:
    """Return by how much a job's steady steps grow, in order, and whose, by the job's own rows; None where not.

    Without what ranks waited for cores: a machine that becomes busier is no growth of the job's.
    """
    numbers = [row.step for row in steady]
    slope, *others = (slope_of(numbers, _undelayed_ms(steady, felt)) for felt in _felt(steady))
    if slope is None or None in others:
        return None
    own = _of_ranks([row.own_ms for row in steady], slope, [row.step for row in steady])
    loading = _of_ranks([row.loading_ms for row in steady], slope, [row.step for row in steady])
    grown = _growing(slope, "rows")
    if loading:
        ranks = len(steady[0].loading_ms)
        alone = loading[0] if len(loading) == 1 and ranks > 1 else None
        return msgspec.structs.replace(grown, part="idle_data", rank=alone)
    ranks = min((len(row.own_ms) for row in steady), default=0)
    return msgspec.structs.replace(grown, rank=own[0] if len(own) == 1 and ranks > 1 else None)


def growing_traces(steps: Sequence[StepSplit]) -> GrowingSteps | None:
    """Return by how much traced steps grow; None where they do not, or are too few."""
    by_step: dict[int, list[float]] = {}
    for one in steps:
        if not one.open_ended and one.kind is None:  # a server's iterations are of several kinds
            by_step.setdefault(one.step, []).append(one.window_ms)
    numbers = sorted(by_step)
    slope = slope_of(numbers, [max(by_step[number]) for number in numbers])
    return _growing(slope, "traces") if slope is not None else None


def without_growth(rows: Sequence[StepRow], growing: GrowingSteps, near: float) -> list[StepRow]:
    """Return rows as they would be if all steps were as long as those near a step: what they differ by besides."""
    found = []
    for row in rows:
        times = [_longer(ms, growing.a_step_ms * (near - row.step)) for ms in row.step_ms]
        told = row.job_step_ms
        length = None if told is None else _longer(told, growing.a_step_ms * (near - row.step))
        as_long = msgspec.structs.replace(row, step_ms=times, job_step_ms=length)
        faster = row.length_ms / as_long.length_ms if row.step_ms and as_long.length_ms else 1.0
        rates = {name: rate * faster for name in RATES if (rate := getattr(row, name)) is not None}
        found.append(msgspec.structs.replace(as_long, **rates))
    return found


def add_part(analysis: RunAnalysis, steady: Sequence[StepRow] = ()) -> None:
    """Say which part of a step grows, and on which rank, where the profiled steps tell.

    What a part takes beyond a whole step of the beginning it has grown by, whatever it took then. It is no rank's alone
    where another's time on a core grows in the same steps, by its own `steady` rows: who waits for a rank has no core.
    """
    growing = analysis.growing
    if growing is None or growing.part is not None:
        return
    # a host that waits for its device may have a core all the while
    on_cores = _grow_on_cores(steady, growing.a_step_ms) if analysis.activity == "cpu" else set()
    if growing.rank is not None and on_cores - {growing.rank}:
        analysis.growing = growing = msgspec.structs.replace(growing, rank=None)
    ranks = sorted({one.rank for one in analysis.steps})
    found = {rank: part for rank in ranks if (part := _part_of(analysis, growing, rank)) is not None}
    if growing.rank is not None:
        found = {rank: part for rank, part in found.items() if rank == growing.rank}
    parts = set(found.values())
    if len(parts) != 1:
        return
    alone = next(iter(found)) if len(found) == 1 and len(ranks) > 1 else growing.rank
    if alone is not None and on_cores - {alone}:
        return
    analysis.growing = msgspec.structs.replace(growing, part=parts.pop(), rank=alone)


def add_growth_of_traces(analysis: RunAnalysis, records: Mapping[int, RankRecord]) -> None:
    """Add what traces alone tell of steps that grow, and what is launched more often from each step to the next."""
    if analysis.growing is None and (analysis.step_times is None or not analysis.step_times.measured_steps):
        analysis.growing = growing_traces(analysis.steps)
        add_part(analysis)
    if analysis.growing is None:
        return
    more = {rank: _more_calls(record) for rank, record in records.items() if len(record.steps) >= _LEAST_COUNTED}
    by_name: dict[str, list[int]] = {}
    for one in more.values():
        for name, calls in one.items():
            by_name.setdefault(name, []).append(calls)
    if by_name:
        name = max(by_name, key=lambda name: sum(by_name[name]))
        mean = sum(by_name[name]) / len(more)
        analysis.growing = msgspec.structs.replace(analysis.growing, name=short_name(name), more_calls=mean)


def slope_of(numbers: Sequence[int], times_ms: Sequence[float]) -> Slope | None:
    """Return by how much steps of these numbers grow; None where that may be chance, or is next to nothing."""
    x, y = _stretches(np.asarray(numbers, float), np.asarray(times_ms, float))
    count = len(x)
    if count < _LEAST_STEPS or np.any(np.diff(x) <= 0):
        return None
    slopes = _pairs(x, y)
    value = float(np.median(slopes))
    left = y - value * x
    left = left - np.median(left)
    off_line, alike = float(np.sqrt(np.mean(left**2))), _alike(left)
    grown = value * float(x[-1] - x[0])
    # the spread of a line's rise over evenly spaced values, of which as many count as are not alike
    unsure = off_line * alike * math.sqrt(12 / count)
    if grown < max(_LEAST_SHARE * float(np.median(y)), _OVER_RESIDUAL * off_line, _SURE * unsure):
        return None
    if _are_levels(y, left):
        return None
    half = count // 2
    halves = [float(np.median(_pairs(x[some], y[some]))) for some in (slice(half), slice(count - half, None))]
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    if min(halves) < _IN_EACH_HALF * value or float(np.sign(slopes).sum()) < _SURE * spread:
        return None
    slopes.sort()
    off = round(NORMAL_95 * spread * alike / 2)
    middle = len(slopes) // 2
    return Slope(
        value=value,
        low=float(slopes[max(0, middle - off)]),
        high=float(slopes[min(len(slopes) - 1, middle + off)]),
        first=round(float(x[0])),
        last=round(float(x[-1])),
        from_ms=float(np.median(y[:_AT_AN_END] - value * (x[:_AT_AN_END] - x[0]))),
        to_ms=float(np.median(y[-_AT_AN_END:] + value * (x[-1] - x[-_AT_AN_END:]))),
    )


def _undelayed_ms(rows: Sequence[StepRow], felt: float) -> list[float]:
    """Return steps without what their ranks waited for cores that others had, which is none of their own growth."""
    return [_longer(row.length_ms, -felt * (waited_ms(row) or 0.0)) for row in rows]


def _felt(rows: Sequence[StepRow]) -> tuple[float, ...]:
    """Return how much longer a step is for each ms that a rank waits for a core, likely, at least and at most.

    A rank may wait where it would have waited anyway, and two of them one after the other: steps tell (least squares).
    What a growth needs to be told must not depend on it: where ranks waited long at first and then not, taking a little
    too much off makes steps grow that do not.
    """
    lengths = np.array([row.length_ms for row in rows])
    waits = np.array([waited_ms(row) or 0.0 for row in rows])
    if len(rows) < _LEAST_STEPS or not float(np.var(waits)):
        return (1.0,)
    by = np.stack([waits, np.array([row.step for row in rows], float), np.ones(len(rows))], axis=1)
    # of a machine that becomes busier all of the growth is waits; what is left beside those is without a growth
    felt = float(np.cov(waits, lengths, bias=True)[0, 1] / np.var(waits))
    beside = lengths - by @ np.linalg.lstsq(by, lengths, rcond=None)[0]
    left = float(np.std(beside)) / math.sqrt(len(rows) - by.shape[1])
    off = _FELT_OFF * left / float(np.std(waits))
    return tuple(min(max(one, 0.0), _MOST_FELT) for one in (felt, felt - off, felt + off))


def _growing(slope: Slope, known_by: Literal["rows", "traces"]) -> GrowingSteps:
    return GrowingSteps(
        first=slope.first,
        last=slope.last,
        from_ms=slope.from_ms,
        to_ms=slope.to_ms,
        a_step_ms=slope.value,
        low_ms=slope.low,
        high_ms=slope.high,
        known_by=known_by,
    )


def _stretches(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the medians of stretches, of many steps."""
    if len(x) < _SINGLE_STEPS:
        return x, y
    count = min(_MOST_STRETCHES, len(x) // _LEAST_STRETCH)
    edges = [round(at * len(x) / count) for at in range(count + 1)]
    return tuple(np.array([np.median(of[first:end]) for first, end in pairwise(edges)]) for of in (x, y))  # type: ignore[return-value]


def _pairs(x: Floats, y: Floats) -> Floats:
    """Return the slopes of all pairs."""
    first, second = np.triu_indices(len(x), 1)
    found: Floats = (y[second] - y[first]) / (x[second] - x[first])
    return found


def _alike(left: Floats) -> float:
    """Return by how much fewer values the spread is of, since neighbours are alike: 1 where they are not."""
    power = float(np.sum(left * left))
    with_next = float(np.sum(left[:-1] * left[1:])) / power if power else 0.0
    alike = min(max(with_next, 0.0), 0.8)
    return math.sqrt((1 + alike) / (1 - alike))


def _are_levels(y: Floats, off_line: Floats) -> bool:
    """Tell whether two levels, one after the other, are as near values as the line is that these lie off by so much.

    By their mean square and by their mean: a single long step is far from either, and neither's merit.
    """
    cuts = range(_AT_AN_END, len(y) - _AT_AN_END + 1)
    squares = min(float(cut * np.var(y[:cut]) + (len(y) - cut) * np.var(y[cut:])) for cut in cuts)
    sizes = min(sum(float(np.sum(np.abs(own - np.median(own)))) for own in (y[:cut], y[cut:])) for cut in cuts)
    return squares <= float(np.sum(off_line**2)) and sizes <= float(np.sum(np.abs(off_line)))


def _of_ranks(rows: Sequence[Sequence[float]], slope: Slope, numbers: Sequence[int]) -> list[int]:
    """Return the ranks of whose times, a row a step, most of the growth is; none where several grow by half of it."""
    grown = _shares(rows, slope.value, numbers)
    found = [rank for rank, share in enumerate(grown) if share >= _MOSTLY]
    clear = all(one >= _MOSTLY or one < _HARDLY for one in grown)
    return found if clear else []


def _grow_on_cores(steady: Sequence[StepRow], a_step_ms: float) -> set[int]:
    """Return the ranks whose time on a core grows by a good part of what a step does; none where rows do not tell."""
    told = [row for row in steady if row.on_cpu_ms]
    if len(told) < _LEAST_STEPS:
        return set()
    grown = _shares([row.on_cpu_ms for row in told], a_step_ms, [row.step for row in told])
    return {rank for rank, share in enumerate(grown) if share >= _HARDLY}


def _shares(rows: Sequence[Sequence[float]], a_step_ms: float, numbers: Sequence[int]) -> list[float]:
    """Return what each rank's times, a row a step, grow by, of what a step grows by."""
    found = []
    for rank in range(min(map(len, rows), default=0)):
        x, y = _stretches(np.asarray(numbers, float), np.asarray([row[rank] for row in rows], float))
        found.append(float(np.median(_pairs(x, y))) / a_step_ms)
    return found


def _part_of(analysis: RunAnalysis, growing: GrowingSteps, rank: int) -> str | None:
    own = [one for one in analysis.steps if one.rank == rank and not one.open_ended]
    if not own:
        return None
    by_slope = _part_by_slope(own, growing)
    if by_slope is not None:
        return by_slope
    step = sum(one.window_ms for one in own) / len(own)
    for part in PARTS:
        taken = sum(one.part_ms(part) for one in own) / len(own)
        if taken - growing.from_ms >= _HALF * max(step - growing.from_ms, 0.0) > 0 and taken > growing.from_ms:
            return part if part not in _WAITING else None
    return None


def _part_by_slope(own: Sequence[StepSplit], growing: GrowingSteps) -> str | None:
    """Return the part that grows as the step does, of enough profiled steps."""
    if len(own) < _LEAST_STEPS:
        return None
    numbers = [one.step for one in own]
    for part in PARTS:
        found = slope_of(numbers, [one.part_ms(part) for one in own])
        if found is not None and found.value >= _MOSTLY * growing.a_step_ms:
            return part if part not in _WAITING else None
    return None


def _more_calls(record: RankRecord) -> dict[str, int]:
    """Return by how much each activity is launched more often in every step than in the one before, as often."""
    counts = {step: Counter[str]() for step in record.steps}
    for step, name in zip(record.step, record.name, strict=True):
        if step in counts:
            counts[step][name] += 1
    found = {}
    for name in set().union(*counts.values()):
        more = {after[name] - before[name] for before, after in pairwise(counts[step] for step in record.steps)}
        if len(more) == 1 and (calls := more.pop()) > 0:
            found[name] = calls
    return found


def _longer(ms: float, more_ms: float) -> float:
    """Return a time that is so much longer: no time is negative."""
    return max(ms + more_ms, 0.1 * ms)
