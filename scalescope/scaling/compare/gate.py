"""`--fail-if`: what a change may come to. `METRIC[@SIZE] > LIMIT` or `<`: `step>3%`, `busbw@64MiB<-5%`, `memory>1GiB`.

A limit in % is of the baseline's figure, any other in the figure's own unit; the change is OTHER's less the baseline's.
A line fails where the whole 95% interval of the change lies beyond its limit, and holds where the whole of it lies
within. Where it reaches across, noise hides which: that is said, and fails nothing. Two things fail as well, since a
gate must not hold because nothing can be told: a figure that was not measured on one side, and a change that was
measured to lie beyond the limit for sure, though ranks may have waited for cores that other processes had.

The step is the mean one that the job pays: the typical step's change, and what steps that recur, or are far longer now
and then, cost more or less. So is the throughput.

Exposed wait is the mean rank's: the rank that explains a change is the one the others wait for, and never waits itself.
"""

import math
import re
from collections.abc import Callable, Sequence
from statistics import median

import msgspec
import numpy as np

from scalescope.records.console import counted
from scalescope.records.errors import UserError
from scalescope.records.statistics import NORMAL_95, digits_of
from scalescope.scaling.answer_steps import RecurringChange
from scalescope.scaling.compare.answer import Comparison, GateLine, PointChange
from scalescope.scaling.compare.difference import difference
from scalescope.scaling.compare.measurement import Measurement, Repeat
from scalescope.scaling.compare.noise import Floats, Sample, bounds, of_amounts
from scalescope.scaling.compare.spread import OF_WAITS

_EXPRESSION = re.compile(
    r"\s*(?P<metric>[a-z_]+)(?:@(?P<size>[\d.]+\s*[KMG]?i?B))?\s*(?P<sign>[<>])\s*(?P<limit>[-+]?[\d.]+(?:e[-+]?\d+)?)"
    r"\s*(?P<unit>%|[a-zA-Z/]+)?\s*",
)
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_UNITS: dict[str, dict[str, float]] = {
    "step": {"ms": 1.0, "us": 1e-3, "s": 1e3},
    "exposed_wait": {"ms": 1.0, "us": 1e-3, "s": 1e3},
    "throughput": {"samples/s": 1.0, "tokens/s": 1.0, "": 1.0},
    "busbw": {"GB/s": 1.0},
    "memory": {unit: float(size) for unit, size in _BYTES.items()},
    "joules": {"J": 1.0},
}
_SHOWN = {
    "step": "ms",
    "exposed_wait": "ms",
    "throughput": "/s",
    "busbw": "GB/s",
    "memory": "B",
    "joules": "J a sample",
}

#: No bound of a step is below this share of it, or a rate would have none.
_LEAST_STEP = 0.01


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """One `--fail-if`, understood."""

    expression: str
    metric: str
    size: int | None  # bytes, of busbw
    above: bool  # fails above the limit, else below it
    limit: float  # in the metric's unit; of the baseline's figure, where `relative`
    relative: bool


class MetricChange(msgspec.Struct, frozen=True):
    """A figure's change with its 95% interval, in the figure's own unit."""

    baseline: float
    change: float
    low: float
    high: float
    less: float = 0.0  # by so much the change may be less, and `more` more, by what is not told apart from other things
    more: float = 0.0
    of: str = ""  # what it is of, in words
    terms: tuple["MetricChange", ...] = ()  # that it is the sum of; each is known by another noise
    measured: tuple[
        "MetricChange", ...
    ] = ()  # as measured, and without what ranks waited for cores, where that is sure


def parse(expression: str) -> Limit:
    """Return a `--fail-if` as a limit. Raises UserError where it is none, with what it may be."""
    match = _EXPRESSION.fullmatch(expression)
    if match is None:
        raise UserError(f"--fail-if {expression!r} is no such thing as 'step>3%'; it is one of {', '.join(_UNITS)}, "
                        "> or <, and a limit")  # fmt: skip
    metric, unit = match["metric"], match["unit"] or ""
    if metric not in _UNITS:
        raise UserError(f"--fail-if {expression!r}: there is no {metric!r}; choose one of {', '.join(_UNITS)}")
    if match["size"] is not None and metric != "busbw":
        raise UserError(f"--fail-if {expression!r}: only busbw is of a size")
    if unit != "%" and unit not in _UNITS[metric]:
        units = [one for one in _UNITS[metric] if one]
        raise UserError(f"--fail-if {expression!r}: give the limit in % or {', '.join(units)}")
    try:
        number = float(match["limit"])
    except ValueError:
        raise UserError(f"--fail-if {expression!r}: {match['limit']} is no number") from None
    if not math.isfinite(number):
        raise UserError(f"--fail-if {expression!r}: {match['limit']} is no number")
    return Limit(
        expression=expression.strip(),
        metric=metric,
        size=_bytes(match["size"], expression) if match["size"] is not None else None,
        above=match["sign"] == ">",
        limit=number / 100 if unit == "%" else number * _UNITS[metric][unit],
        relative=unit == "%",
    )


def _bytes(text: str, expression: str) -> int:
    match = re.fullmatch(r"([\d.]+)\s*([KMG]?i?B)", text)
    try:
        assert match is not None
        return round(float(match[1]) * _BYTES[match[2]])
    except (AssertionError, KeyError, ValueError):
        raise UserError(f"--fail-if {expression!r}: {text} is no size; write it as 64MiB") from None


def judge(limit: Limit, answer: Comparison, baseline: Measurement, other: Measurement) -> GateLine:
    """Return whether a limit holds for two measurements, and what was found."""
    if answer.verdict == "not_comparable":
        return _line(limit, False, f"not comparable ({answer.reason})")
    if limit.metric == "busbw":
        return _bus(limit, answer, baseline, other)
    found = _METRICS[limit.metric](answer, baseline, other)
    if found is None:
        return _line(limit, False, "not measured on both sides")
    if _fails(limit, found):
        return _line(limit, False, _told(limit, found))
    if _beyond(limit, msgspec.structs.replace(found, low=found.low + found.more, high=found.high - found.less)):
        apart = f"{max(found.more, found.less):.4g} {_SHOWN[limit.metric]} of communication"
        return _line(limit, False, f"not measured: {apart} cannot be split into wait and transfer")
    if found.measured and _fails(limit, found.measured[0]):
        return _line(limit, False, f"{_as_measured(limit, found)}: {_who_had_cores(answer)}")
    rare, reached = _by_rare_steps(limit, found, answer)
    told = _as_measured(limit, found)
    if not _reaches(limit, found):
        return _line(limit, True, told + rare, untold=reached)
    return _line(limit, True, told + _why_untold(limit, found, answer) + rare, untold=True)


def _who_had_cores(answer: Comparison) -> str:
    """Return who had the cores that ranks waited for, as far as anything tells."""
    noise = answer.noise
    if noise is None or not noise.by_workers:
        return (
            "other processes or the job's own threads had their cores, and a run with its cores to itself tells which"
        )
    before, after = noise.baseline_worker_cores or 0.0, noise.other_worker_cores or 0.0
    return f"the loaders' workers use {after:.2f} cores, and {before:.2f} in “{answer.baseline}”"


def _as_measured(limit: Limit, found: MetricChange) -> str:
    """Return a change in words, as the first sentences have it: as measured, and without waits for cores, where that is
    sure.
    """
    if not found.measured:
        return _told(limit, found)
    as_measured, *free = (_told(limit, one) for one in found.measured)
    return f"{as_measured}, as measured{f'; without what ranks waited for cores {free[0]}' if free else ''}"


def _by_rare_steps(limit: Limit, found: MetricChange, answer: Comparison) -> tuple[str, bool]:
    """Return what a few steps that may never come again make of a change as measured, in words, and whether that lies
    beyond the limit: so few fail nothing, and a job pays them.
    """
    one = answer.irregular
    if one is None or not one.too_few or limit.metric not in ("step", "throughput") or not answer.baseline_ms:
        return "", False
    share = 1 + one.change_ms / answer.baseline_ms
    more = found.baseline * (share - 1 if limit.metric == "step" else 1 / share - 1)
    whole = msgspec.structs.replace(found, change=found.change + more, low=found.change + more,
                                    high=found.change + more)  # fmt: skip
    at, side = one.longer_steps, answer.other if one.change_ms > 0 else answer.baseline
    told = (
        f"; {counted(len(at), 'step')} of “{side}” ({', '.join(map(str, at))}), too few to tell how often such come: "
    )
    factor, unit = (100 / abs(found.baseline), "%") if limit.relative and found.baseline else (1, _SHOWN[limit.metric])
    return f"{told}{_signed(more * factor, abs(more * factor))} {unit} besides, as measured", _beyond(limit, whole)


def _fails(limit: Limit, found: MetricChange) -> bool:
    """Tell whether a change lies beyond its limit for sure.

    One that adds up also does where one of its terms does by itself, and the others are not seen to make up for it:
    what a checkpoint costs is known by the steps beside it, and what a sleep or more work costs by the steps that it is
    in, however runs differ by their typical step.
    """
    alone = any(_beyond(limit, one) for one in found.terms) and _beyond(limit, _as_told(found))
    return alone or _beyond(limit, found)


def _as_told(found: MetricChange) -> MetricChange:
    return msgspec.structs.replace(found, low=found.change, high=found.change)


def _reaches(limit: Limit, found: MetricChange) -> bool:
    """Tell whether any of an interval lies beyond the limit."""
    return _beyond(limit, msgspec.structs.replace(found, low=found.high, high=found.low))


def _why_untold(limit: Limit, found: MetricChange, answer: Comparison) -> str:
    """Return why nothing tells whether a change lies beyond its limit, and what tells more."""
    told = ", and noise reaches beyond the limit"
    if _beyond(limit, _as_told(found)):
        told = f", and the {'lower' if limit.above else 'upper'} bound, which would fail, is within the limit"
    noise = answer.noise
    alone = noise is not None and (noise.unit != "repeats" or min(noise.baseline, noise.other) < 2)
    return f"{told}: repeats on both sides (--baseline, --other) tell smaller changes" if alone else told


def _line(limit: Limit, held: bool, text: str, *, untold: bool = False) -> GateLine:
    return GateLine(expression=limit.expression, held=held, untold=untold, text=text)


def _beyond(limit: Limit, found: MetricChange) -> bool:
    """Tell whether the whole interval lies beyond the limit."""
    allowed = limit.limit * (abs(found.baseline) if limit.relative else 1.0)
    return found.low > allowed if limit.above else found.high < allowed


def _told(limit: Limit, found: MetricChange) -> str:
    factor, unit = (100 / abs(found.baseline), "%") if limit.relative and found.baseline else (1, _SHOWN[limit.metric])
    figures = found.change * factor, found.low * factor, found.high * factor
    change, low, high = (_signed(one, abs(figures[2] - figures[1]) / 2) for one in figures)
    told = f"{change} {unit}{found.of} (95%: {low} to {high})"
    terms = sorted(found.terms, key=lambda one: _beyond(limit, one))
    if not terms:
        return told
    decides = ", by itself beyond the limit" if _fails(limit, found) and not _beyond(limit, found) else ""
    return f"{told}: {' and '.join(_told(limit, one) for one in terms)}{decides}"


def _signed(figure: float, half: float) -> str:
    """Return a figure with its sign, and as many digits as its interval has any to say."""
    if not half:
        return f"{figure:+.4g}"
    digits = digits_of(half)
    return f"{round(figure, digits) or 0.0:+,.{digits}f}"


def _step(answer: Comparison, baseline: Measurement, other: Measurement) -> MetricChange | None:
    """Return the change of the mean step that the job pays."""
    if answer.change_ms is None or answer.low_ms is None or answer.high_ms is None or answer.baseline_ms is None:
        return None
    found = _in_the_mean((answer.change_ms, answer.low_ms, answer.high_ms), answer)
    if answer.standing is not None and not found.terms:
        found = _by_itself(found, answer.standing, " by a loop that stands still in nearly every step")
    elif answer.by_cause is not None and not found.terms:
        whose = answer.other if answer.alone[0].side == "other" else answer.baseline
        found = _by_itself(found, answer.by_cause, f" by a cause that “{whose}” alone has")
    if (told := answer.sure_as_measured) is None:
        return found
    return msgspec.structs.replace(found, measured=tuple(
        _in_the_mean(interval, answer)
        for interval in ((answer.change_ms, told.low_ms, told.high_ms),
                         (told.free_ms, told.free_low_ms, told.free_high_ms))
    ))  # fmt: skip


def _by_itself(found: MetricChange, known: tuple[float, float, float], of: str) -> MetricChange:
    """Return a step's change as that of what is known by itself, with its bounds, and of all else."""
    change, low, high = known
    rest = msgspec.structs.replace(found, change=found.change - change, low=found.low - change,
                                   high=found.high - change, of=" by all else")  # fmt: skip
    return msgspec.structs.replace(found, terms=(rest, MetricChange(found.baseline, change, low, high, of=of)))


def _in_the_mean(typical: tuple[float, float, float], answer: Comparison) -> MetricChange:
    """Return the change of the mean step; `typical`: that of the steps between longer ones, with its bounds, ms.

    What longer steps cost is added where it changed beyond noise: else its own would hide what the typical step tells.
    """
    change, low, high = typical
    step_ms = answer.baseline_ms or 0.0
    if not answer.in_the_mean:
        return MetricChange(step_ms, change, low, high, of=" of the step")
    longer = answer.in_the_mean
    baseline, both = step_ms + sum(one.baseline_ms for one in longer), change + sum(one.change_ms for one in longer)
    below = math.hypot(change - low, *(one.change_ms - one.low_ms for one in longer))
    above = math.hypot(high - change, *(one.high_ms - one.change_ms for one in longer))
    terms = [MetricChange(baseline, change, low, high, of=" by the typical step")]
    for one in longer:
        of = " by steps that recur" if isinstance(one, RecurringChange) else " by steps that are longer now and then"
        terms.append(MetricChange(baseline, one.change_ms, one.low_ms, one.high_ms, of=of))
    return MetricChange(baseline, both, both - below, both + above, of=" of the mean step", terms=tuple(terms))


def _exposed_wait(answer: Comparison, baseline: Measurement, other: Measurement) -> MetricChange | None:
    if not baseline.windows or not other.windows:
        return None
    found = difference(baseline, other, answer.by_rate or 1.0, single_out=False)
    if found is None:
        return None
    parts = {one.name: one for one in found.parts}
    wait, unsplit = parts.get("exposed_wait"), parts.get("exposed_unsplit")
    before, change, low, high = (wait.baseline_ms, wait.change_ms, wait.low_ms, wait.high_ms) if wait else (0.0,) * 4
    if found.noise.degrees is None:
        share = np.array([OF_WAITS])
        low, high = (float(bound[0]) for bound in of_amounts(
            np.array([before]), np.array([before + change]), share, share, NORMAL_95))  # fmt: skip
    else:
        factor = found.noise.parts_factor  # one part is judged, so its bounds need not hold together with the others'
        low, high = change - (change - low) / factor, change + (high - change) / factor
    less, more = (unsplit.baseline_ms, unsplit.other_ms) if unsplit else (0.0, 0.0)
    return MetricChange(before, change, low, high, less, more)


def _of_repeats(value: Callable[[Repeat], float | None]) -> Callable[..., MetricChange | None]:
    def change(answer: Comparison, baseline: Measurement, other: Measurement) -> MetricChange | None:
        sides = []
        for side in (baseline, other):
            values = [one for repeat in side.repeats if (one := value(repeat)) is not None]
            if not values:
                return None
            sides.append(np.array(values)[:, None])
        found = _varying(sides, answer, answer.low_ms, answer.high_ms)
        if (told := answer.sure_as_measured) is None:
            return found
        return msgspec.structs.replace(found, measured=(_varying(sides, answer, told.low_ms, told.high_ms),))

    return change


def _varying(sides: Sequence[Floats], answer: Comparison, low_ms: float | None, high_ms: float | None) -> MetricChange:
    """Return the change of a figure that varies between single runs as their steps do, by the bounds of these."""
    share = _share_of_noise(answer, low_ms, high_ms)
    found = bounds(*(Sample(units, step_spread=float(units.mean()) * share) for units in sides))
    return MetricChange(float(sides[0].mean()), found.step, found.step_low, found.step_high)


def _share_of_noise(answer: Comparison, low_ms: float | None, high_ms: float | None) -> float:
    """Return one side's standard deviation that an interval of the step stands for, as a share of the step."""
    if low_ms is None or high_ms is None or not answer.baseline_ms:
        return 0.0
    return (high_ms - low_ms) / 2 / NORMAL_95 / math.sqrt(2) / answer.baseline_ms


def _throughput(answer: Comparison, baseline: Measurement, other: Measurement) -> MetricChange | None:
    """Return the change of the tokens or samples a second, of the mean step where longer ones are some of it.

    Rows tell a typical step's: a run that validates for as long as it trains does half as many. What of the step's
    change is known by itself tells of this one, too, where a step takes as many samples on both sides.
    """
    found = _of_repeats(lambda repeat: repeat.tokens_per_s or repeat.samples_per_s)(answer, baseline, other)
    step = _step(answer, baseline, other)
    if found is None or step is None or not step.terms or answer.samples is not None or answer.by_rate is not None:
        return found
    here, there = step.baseline, step.baseline + step.change
    before = found.baseline * (answer.baseline_ms or 0.0) / here
    after = (found.baseline + found.change) * (answer.other_ms or 0.0) / there
    apart = after - before - found.change

    def rate_by(ms: float) -> float:
        return before * (here / max(here + ms, _LEAST_STEP * here) - 1)

    terms = [msgspec.structs.replace(one, baseline=before, change=rate_by(one.change), low=rate_by(one.high),
                                     high=rate_by(one.low)) for one in step.terms]  # fmt: skip
    return msgspec.structs.replace(found, baseline=before, change=after - before, low=found.low + apart,
                                   high=found.high + apart, of=step.of, terms=tuple(terms))  # fmt: skip


def _memory(answer: Comparison, baseline: Measurement, other: Measurement) -> MetricChange | None:
    sides = [[one.memory_bytes for one in side.repeats if one.memory_bytes is not None] for side in (baseline, other)]
    if not all(sides):
        return None
    before, after = (max(side) for side in sides)  # allocators do the same in every run: there is no noise to speak of
    return MetricChange(before, after - before, after - before, after - before)


_METRICS: dict[str, Callable[[Comparison, Measurement, Measurement], MetricChange | None]] = {
    "step": _step,
    "exposed_wait": _exposed_wait,
    "throughput": _throughput,
    "memory": _memory,
    "joules": _of_repeats(lambda repeat: repeat.joules_per_sample),
}


def _bus(limit: Limit, answer: Comparison, baseline: Measurement, other: Measurement) -> GateLine:
    """Judge the busbw of each point of a sweep at the size, or of all; in training, of the collectives of that size."""
    points = [one for one in answer.points if limit.size in (None, one.bytes) and one.baseline_bus_gb_s is not None]
    if not points:
        return _bus_in_training(limit, baseline, other)
    failed = []
    for one in points:
        assert one.baseline_bus_gb_s is not None
        bus = one.baseline_bus_gb_s
        if one.ratio is None:
            failed.append(f"{_point(one)}: not measured")
            continue
        low, high = (one.ratio if bound is None else bound for bound in (one.low, one.high))
        unit = 1.0 if limit.relative else bus  # a log may round small bandwidths to 0
        change = MetricChange(unit, unit * (one.ratio - 1), unit * (low - 1), unit * (high - 1))
        if _beyond(limit, change):
            failed.append(f"{_point(one)}: {_told(limit, change)}")
    gone = [f"{point}: not measured" for point in answer.only_baseline] if limit.size is None else []
    held = len(points) - len(failed)
    count = f"{held} of {counted(len(points), 'point')} {'holds' if held == 1 else 'hold'}"
    return _line(limit, not failed and not gone, "; ".join([count, *failed, *gone]))


def _point(one: PointChange) -> str:
    return f"{one.operation} {one.bytes} B {one.dtype} n={one.group_size} {one.variant}"


def _bus_in_training(limit: Limit, baseline: Measurement, other: Measurement) -> GateLine:
    sides = [_rates(side.repeats, limit.size) for side in (baseline, other)]
    if not all(sides):
        where = f" at {limit.size} B" if limit.size is not None else ""
        return _line(limit, False, f"no collective{where} was measured on both sides")
    before, after = (median(side) for side in sides)
    change = MetricChange(before, after - before, after - before, after - before)
    return _line(limit, not _beyond(limit, change), f"{_told(limit, change)}, of collectives in training")


def _rates(repeats: Sequence[Repeat], size: int | None) -> list[float]:
    return [bus for repeat in repeats for of, bus in repeat.bus_gb_s.items() if size in (None, of)]
