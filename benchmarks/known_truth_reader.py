"""What a trace of known_truth.py says by itself: what was injected, how long its steps are, what its kernels take.

A reader of its own, so that nothing of scaling/ is checked by itself. Torch-free.
"""

import gzip
import json
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from known_truth_cases import INJECTED, SLOW_COMPUTE

from scalescope.records.errors import UserError


@dataclass(frozen=True)
class Truth:
    """What was injected into the disturbed rank, ms by the ProfilerStep that launched it."""

    by_step: dict[int, float]

    @property
    def a_step(self) -> float:
        return statistics.fmean(self.by_step.values())


def read_truth(trace: Path, annotation: str, injection: str) -> Truth:
    """Return the time injected into each ProfilerStep, read off the injected activity itself.

    That is the union of the kernels launched inside the annotation, and without a device the union of its operators
    where it computes, else (sleep, data loading) the annotation.
    """
    events = _events(trace)
    host = [event for event in events if event.get("cat") == "user_annotation"]
    on_gpu = any(event.get("cat") == "kernel" for event in events)
    spans = [_span(event) for event in host if event["name"] == annotation]
    truth = {}
    for step in host:
        number = re.fullmatch(r"ProfilerStep#(\d+)", step["name"])
        if number is None:
            continue
        inside = [span for span in spans if _holds(_span(step), span[0])]
        if annotation == INJECTED and on_gpu:
            activity = _kernels_launched_in(events, inside)
        elif injection == SLOW_COMPUTE:
            operators = [_span(event) for event in events if event.get("cat") == "cpu_op"]
            activity = [operator for operator in operators if any(_holds(span, operator[0]) for span in inside)]
        else:
            activity = inside
        truth[int(number[1])] = _union_ms(activity)
    if not truth or not all(truth.values()):
        raise UserError(f"{trace}: no step, or one without anything injected; make the traces anew")
    return Truth(truth)


Span = tuple[float, float]  # µs


def _span(event: dict) -> Span:  # type: ignore[type-arg]
    return event["ts"], event["ts"] + event["dur"]


def _holds(span: Span, instant: float) -> bool:
    return span[0] <= instant < span[1]


def idle_before_collectives(trace: Path) -> float:
    """Return for how many ms a step the device idles between a step's first kernel and its first collective."""
    events = _events(trace)
    steps = [_span(e) for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")]
    idle = []
    for step in steps:
        spans, names = [], []
        launched = _launched_in(events, [step])
        for event in sorted((e for e in events if e.get("cat") == "kernel"), key=_span):
            if event["args"]["correlation"] in launched:
                spans.append(_span(event))
                names.append(event["name"])
        first = next((at for at, name in enumerate(names) if name.startswith("nccl")), None)
        if first:
            idle.append((spans[first][0] - spans[0][0]) / 1e3 - _union_ms(spans[:first]))
    return statistics.fmean(idle) if idle else 0.0


def _launched_in(events: Sequence[dict], spans: Sequence[Span]) -> set[int]:  # type: ignore[type-arg]
    """Return the correlations of the runtime calls inside some spans."""
    return {
        event["args"]["correlation"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and any(_holds(span, event["ts"]) for span in spans)
    }


def _kernels_launched_in(events: Sequence[dict], spans: Sequence[Span]) -> list[Span]:  # type: ignore[type-arg]
    launched = _launched_in(events, spans)
    return [_span(e) for e in events if e.get("cat") == "kernel" and e["args"]["correlation"] in launched]


def _union_ms(spans: Iterable[Span]) -> float:
    covered, reach = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return covered / 1e3


@dataclass(frozen=True)
class Pace:
    """How a rank's steps go on by its own trace, ms a step."""

    period: float  # from one step's end to the next one's
    compute: float  # the union of its kernels, without collectives and without what was injected


@cache  # the references of several cases, for each of their ranks
def read_pace(trace: Path) -> Pace:
    """Return a rank's pace. A step ends with the last kernel that it launched; without a device, with its annotation.

    Raises UserError where there are fewer than two steps.
    """
    events = _events(trace)
    host = [event for event in events if event.get("cat") == "user_annotation"]
    steps = sorted(_span(event) for event in host if re.fullmatch(r"ProfilerStep#\d+", event["name"]))
    injected = _launched_in(events, [_span(event) for event in host if event["name"] == INJECTED])
    kernels = {e["args"]["correlation"]: e for e in events if e.get("cat") == "kernel"}
    ends, compute = [], []
    for step in steps:
        mine = [kernels[number] for number in _launched_in(events, [step]) if number in kernels]
        own = [kernel for kernel in mine if not kernel["name"].startswith("nccl")]
        ends.append(max((_span(kernel)[1] for kernel in mine), default=step[1]))
        compute.append(_union_ms(_span(kernel) for kernel in own if kernel["args"]["correlation"] not in injected))
    if len(steps) < 2:
        raise UserError(f"{trace}: fewer than two steps; make the traces anew")
    return Pace((ends[-1] - ends[0]) / 1e3 / (len(ends) - 1), statistics.fmean(compute))


def _events(trace: Path) -> list[dict]:  # type: ignore[type-arg]
    with gzip.open(trace) as file:
        return [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
