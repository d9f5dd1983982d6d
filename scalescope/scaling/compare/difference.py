"""The step's change between two measurements of the same work, and the parts that add up to it."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec
import numpy as np
from msgspec.structs import replace

from scalescope.scaling.answer_rows import PARTS, AsMeasured, Basis
from scalescope.scaling.compare.answer import REST, Noise, PartChange, Unit
from scalescope.scaling.compare.chosen import change_by_choice
from scalescope.scaling.compare.measurement import (
    EXPOSED,
    KEYS,
    UNSPLIT,
    Measurement,
    Repeat,
    Vector,
    Window,
    as_keys,
    ranks_in_all,
)
from scalescope.scaling.compare.noise import Bounds, Floats, Sample, bounds, within_the_step
from scalescope.scaling.compare.rows.run_delay import (
    are_by_workers,
    as_measured,
    run_delay_of,
    with_run_delay,
    worker_cores_of,
)
from scalescope.scaling.compare.spread import (
    AMOUNTS,
    drift_of,
    least_spread_of,
    least_step_spread_of,
    spread_of,
    spread_of_means,
    step_spread_of,
    step_spread_of_windows,
    stretches_of,
)
from scalescope.scaling.trace.kernel_kinds import KINDS

_WAIT = KEYS.index("exposed_wait")
#: A side whose exposed communication is unsplit for so much of it does not say what ranks wait.
_UNSPLIT = 0.5
#: A rank is singled out where others' waits grew by more than its own: by this share of the step, and of its change.
_SINGLES_OUT, _EXPLAINS = 0.005, 0.1
#: Fewer runs a side do not tell which algorithms a library chooses each time, and which only now.
_TELL_CHOICES = 4


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The step's change, ms, with 95% bounds, and its parts."""

    change_ms: float
    low_ms: float
    high_ms: float
    baseline_ms: float
    other_ms: float
    basis: Basis
    noise: Noise
    as_measured: AsMeasured | None
    parts: list[PartChange]


def difference(
    baseline: Measurement,
    other: Measurement,
    rate: float = 1.0,
    *,
    single_out: bool = True,
    accused: int | None = None,
) -> Difference | None:
    """Return OTHER's step less the baseline's; None where one side has neither steps nor windows.

    `rate`: what OTHER's times are multiplied by. `single_out`: the parts are those of the rank that explains the
    change, where one does; else the mean rank's. `accused`: of this rank instead, which both sides have traced.
    """
    basis = _basis(baseline, other)
    if basis is None:
        return None
    unit = _unit(baseline, other, basis)
    activity = baseline.first.identity.activity
    traced = bool(baseline.windows and other.windows)
    rank = accused
    if accused is None and single_out and traced:
        rank = _standing_out(baseline, other, rate)
    here = _sample(baseline, unit, basis, rank, activity, 1.0)
    there = _sample(other, unit, basis, rank, activity, rate)
    recorded = basis != "untraced"
    delays = (run_delay_of(baseline, 1.0, recorded_only=recorded), run_delay_of(other, rate, recorded_only=recorded))
    found = bounds(here, there)
    free = None
    if not recorded and all(one.free_ms for one in (*baseline.repeats, *other.repeats)):
        free = bounds(*(_sample(side, unit, basis, rank, activity, scale, free=True)
                        for side, scale in ((baseline, 1.0), (other, rate))))  # fmt: skip
    told = as_measured(found, free, (here.mean, there.mean), delays)
    found = within_the_step(with_run_delay(found, free, (here.mean, there.mean), delays))
    few = activity == "gpu" and min(len(side.repeats) for side in (baseline, other)) < _TELL_CHOICES
    chosen = change_by_choice(baseline, other, rate) if few and traced else {}
    counts = [len(side.windows) if unit == "windows" else len(side.repeats) for side in (baseline, other)]
    return Difference(
        change_ms=found.step,
        low_ms=found.step_low,
        high_ms=found.step_high,
        baseline_ms=float(here.mean.sum()),
        other_ms=float(there.mean.sum()),
        basis=basis,
        noise=Noise(
            unit=unit if max(counts) > 1 else "steps",
            baseline=counts[0],
            other=counts[1],
            degrees=found.degrees,
            parts_factor=found.factor,
            baseline_run_delay_ms=delays[0].step_ms,
            other_run_delay_ms=delays[1].step_ms,
            baseline_worker_cores=worker_cores_of(baseline),
            other_worker_cores=worker_cores_of(other),
            by_workers=are_by_workers((baseline, other), (float(here.mean.sum()), float(there.mean.sum())), delays),
        ),
        as_measured=told,
        parts=_parts(found, here, there, rank, chosen, _of_others(baseline, other, rank, rate)),
    )


def within_amounts(parts: Sequence[PartChange]) -> list[PartChange]:
    """Return the parts with bounds that no part goes beyond: it shrinks by no more than it was, and grows by no more
    than it has become. None is sure, or unsure, by this alone; what traces do not show has a sign, and keeps its own.
    """
    return [
        one if one.name == REST else replace(
            one, low_ms=max(one.low_ms, min(-one.baseline_ms, one.change_ms)),
            high_ms=min(one.high_ms, max(one.other_ms, one.change_ms)),
        )
        for one in parts
    ]  # fmt: skip


def as_both_split(baseline: Measurement, other: Measurement) -> tuple[Measurement, Measurement]:
    """Return both sides with their communication unsplit where one side's mostly is, and the other's is not.

    A rank without a trace leaves nobody's waits known: what moved from one part to another there has not changed.
    """
    shares = [_unsplit_share(side) for side in (baseline, other)]
    if len({share >= _UNSPLIT for share in shares if share is not None}) < 2:
        return baseline, other
    return _unsplit(baseline), _unsplit(other)


def _unsplit_share(side: Measurement) -> float | None:
    """Return how much of the exposed communication of a side is not split; None where it has none."""
    rows = [vector for window in side.windows for vector in window.ranks.values()]
    unsplit = sum(vector[KEYS.index(UNSPLIT)] for vector in rows)
    whole = sum(vector[KEYS.index(part)] for vector in rows for part in EXPOSED)
    return unsplit / whole if whole else None


def _unsplit(side: Measurement) -> Measurement:
    return replace(side, repeats=[
        replace(one, windows=[
            replace(
                window,
                ranks={rank: _joined(vector, KEYS) for rank, vector in window.ranks.items()},
                steps={rank: [_joined(vector, PARTS) for vector in own] for rank, own in window.steps.items()},
            )
            for window in one.windows
        ])
        for one in side.repeats
    ])  # fmt: skip


def _joined(vector: Vector, keys: Sequence[str]) -> Vector:
    """Return parts with all exposed communication in the one that is not split."""
    whole = sum(vector[keys.index(part)] for part in EXPOSED)
    return tuple(
        whole if key == UNSPLIT else 0.0 if key in EXPOSED else ms for key, ms in zip(keys, vector, strict=True)
    )


def _basis(baseline: Measurement, other: Measurement) -> Basis | None:
    """Return the best that both sides have: steps without a profiler, steps as run, profiled steps."""
    repeats = [*baseline.repeats, *other.repeats]
    if all(repeat.steady_ms for repeat in repeats):
        return "untraced"
    if not all(repeat.windows for repeat in repeats):
        return None
    return "as_run" if all(w.basis == "as_run" for repeat in repeats for w in repeat.windows) else "profiled"


def _unit(baseline: Measurement, other: Measurement, basis: Basis) -> Unit:
    """Return the largest thing that a side has several of; where it is not runs, others tell how runs differ."""
    if max(len(baseline.repeats), len(other.repeats)) > 1:
        return "repeats"
    several = max(len(baseline.windows), len(other.windows)) > 1
    return "windows" if several and basis != "untraced" else "steps"


def _sample(
    side: Measurement, unit: Unit, basis: Basis, rank: int | None, activity: str, rate: float, *, free: bool = False
) -> Sample:
    """A run is one unit, whatever windows it has: they tell how far its mean may be off, and not how runs differ.

    `free`: steps without a profiler are taken without what their ranks waited for cores.
    """
    units = rate * np.array([
        _row(one.windows, median(_lengths(one, free=free)) if basis == "untraced" else None, rank)
        for one in side.repeats
    ])  # fmt: skip
    several = unit == "windows" and len(side.windows) > 1
    alone = len(units) == 1 and basis != "as_run" and not several
    steps = _steps(side.first, units[0], basis, rank, rate, free=free) if alone else None
    mean = units.mean(axis=0)
    parts = mean[:-1].tolist()
    spread = np.append(_spread(side, parts, rank, activity, rate), 0.0)
    if several:
        lengths = [rate * sum(_of_rank(window, rank)) for window in side.windows]
        whole = step_spread_of_windows(lengths, activity)
    else:
        whole = step_spread_of(float(mean.sum()), parts, activity, without_waiting=free)
    if len(units) == 1:
        whole = max(whole, least_step_spread_of(float(mean.sum()), cores_untold=side.cores_untold))
    if len(units) == 1 and basis == "untraced":
        off = max(side.first.steady_off_ms, drift_of(_lengths(side.first, free=free)))
        whole = math.hypot(whole, rate * off)
    least = least_spread_of(float(mean.sum()), activity)
    return Sample(units, steps, spread, whole, basis == "untraced", AMOUNTS, least)


def _spread(side: Measurement, parts: Sequence[float], rank: int | None, activity: str, rate: float) -> Floats:
    """Return by how much each part of a unit differs from another's, ms."""
    if not all(one.windows for one in side.repeats):
        return spread_of(parts, activity)
    runs = [rate * np.array([_of_rank(window, rank) for window in one.windows]) for one in side.repeats]
    return spread_of_means(runs, activity)


def _lengths(repeat: Repeat, *, free: bool) -> list[float]:
    return repeat.free_ms if free else repeat.steady_ms


def _row(windows: Sequence[Window], step_ms: float | None, rank: int | None) -> list[float]:
    """Return a unit's parts by KEYS, and what they leave of its step."""
    columns = [_of_rank(window, rank) for window in windows]
    parts = [sum(column) / len(columns) for column in zip(*columns, strict=True)] if columns else [0.0] * len(KEYS)
    return [*parts, step_ms - sum(parts) if step_ms is not None else 0.0]


def _of_rank(window: Window, rank: int | None) -> Vector:
    """Return one rank's parts; None: the mean rank's."""
    if rank is not None:
        return window.ranks[rank]
    ranks = list(window.ranks.values())
    return tuple(sum(column) / len(ranks) for column in zip(*ranks, strict=True))


def _steps(repeat: Repeat, mean: Floats, basis: Basis, rank: int | None, rate: float, *, free: bool) -> Floats | None:
    """Return a single unit's steps as rows around its mean.

    Of steps without a profiler only their length is known: stretches of them say by how much the whole varies.
    """
    if basis == "untraced":
        ms = np.array(_lengths(repeat, free=free)) * rate
        lengths = np.array(stretches_of(ms.tolist()))
        rows: Floats = np.tile(mean, (len(lengths), 1))
        rows[:, -1] += lengths - lengths.mean()
        return rows
    window = repeat.windows[0]
    own = [rank] if rank is not None else sorted(window.steps)
    count = min(len(window.steps[one]) for one in own)
    whole = sum(mean[: len(KINDS)])
    kinds = [float(ms / whole) if whole else 0.0 for ms in mean[: len(KINDS)]]
    found = []
    for at in range(count):
        parts = [sum(column) / len(own) for column in zip(*(window.steps[one][at] for one in own), strict=True)]
        found.append([*as_keys(parts, kinds), 0.0])
    return rate * np.array(found)


def _standing_out(baseline: Measurement, other: Measurement, rate: float) -> int | None:
    """Return the rank whose own partition explains the change: that for which the others came to wait, or cease to.

    Waiting is no cause. Where waits changed alike on all ranks, none stands out, and the mean rank's parts are told.
    """
    ranks = ranks_in_all([*baseline.windows, *other.windows])
    if len(ranks) < 2:
        return None
    grown = rate * _mean([window.step_ms for window in other.windows]) - _mean(
        [window.step_ms for window in baseline.windows]
    )
    waits = [rate * _waits(other, rank) - _waits(baseline, rank) for rank in ranks]
    chosen = (min if grown > 0 else max)(range(len(ranks)), key=waits.__getitem__)
    gap = max(abs(wait - waits[chosen]) for wait in waits)
    step = _mean([_mean([window.step_ms for window in side.windows]) for side in (baseline, other)])
    return ranks[chosen] if gap > max(_SINGLES_OUT * step, _EXPLAINS * abs(grown)) else None


def _waits(side: Measurement, rank: int) -> float:
    return _mean([window.ranks[rank][_WAIT] for window in side.windows])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _of_others(baseline: Measurement, other: Measurement, rank: int | None, rate: float) -> Mapping[str, float]:
    """Return by how much the traces' parts change on the other ranks than this, in the mean, ms."""
    if rank is None:
        return {}
    ranks = [one for one in ranks_in_all([*baseline.windows, *other.windows]) if one != rank]
    before, after = (
        np.mean([window.ranks[one] for window in side.windows for one in ranks], axis=0) for side in (baseline, other)
    )
    return dict(zip(KEYS, (rate * after - before).tolist(), strict=True))


def _parts(
    found: Bounds,
    here: Sample,
    there: Sample,
    rank: int | None,
    chosen: Mapping[str, float],
    others: Mapping[str, float],
) -> list[PartChange]:
    """Return the parts; `chosen`: see change_by_choice. The next run may choose as before, so bounds hold both.

    `others`: see `_of_others`.
    """
    names = (*KEYS, REST)
    before, after = here.mean, there.mean
    level = float(np.abs(before).sum() + np.abs(after).sum())
    return [
        PartChange(
            name=name,
            change_ms=float(found.parts[at]),
            low_ms=float(found.low[at]) - max(0.0, chosen.get(name, 0.0)),
            high_ms=float(found.high[at]) - min(0.0, chosen.get(name, 0.0)),
            baseline_ms=float(before[at]),
            other_ms=float(after[at]),
            rank=rank,
            others_ms=others.get(name),
            chosen_ms=chosen.get(name),
        )
        for at, name in enumerate(names)
        if abs(before[at]) + abs(after[at]) > 1e-9 * level
    ]
