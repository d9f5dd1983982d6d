"""Bursts tell what recording costs also beside other processes, or nothing."""

from collections.abc import Iterator

import pytest
import torch

from scalescope.records.steps.recording import BurstTimes
from scalescope.train.measure.tracing import bursts
from scalescope.train.measure.tracing.bursts import Bursts

PLAIN, RECORDED, SHAPES = 1_000.0, 4_000.0, 5_000.0


def measured(monkeypatch: pytest.MonkeyPatch, times: list[float], limit_s: float = 10.0) -> Bursts:
    """Return bursts whose operators take these times, ns, one after another."""
    told: Iterator[float] = iter(times)
    one = Bursts(0, torch.device("cpu"))
    monkeypatch.setattr(bursts, "_LIMIT_S", limit_s)
    monkeypatch.setattr(one, "_burst", lambda: BurstTimes(operator_ns=next(told)))
    monkeypatch.setattr(one, "_recorded", lambda mode: BurstTimes(operator_ns=next(told)))
    return one


def test_what_is_slow_for_a_while_is_slow_with_a_profiler_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of five bursts without one met others on the core, and recording seemed to take less than nothing."""
    rounds = [[PLAIN, RECORDED, SHAPES]] * 2
    rounds += [[PLAIN + late, RECORDED + late, SHAPES + late] for late in (6_000.0, 7_000.0)]
    rounds.append([PLAIN + 7_000.0, RECORDED, SHAPES])
    found = measured(monkeypatch, [ns for one in rounds for ns in one]).measure()
    assert found is not None and found.operator_ns == RECORDED - PLAIN and found.shapes_ns == SHAPES - RECORDED


def test_bursts_that_cannot_be_are_tried_again_and_then_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, right = [PLAIN, PLAIN - 100.0, PLAIN], [PLAIN, RECORDED, SHAPES]
    found = measured(monkeypatch, [*wrong, *right, *right], limit_s=0.0).measure()
    assert found is not None and found.operator_ns > 0
    assert measured(monkeypatch, wrong * 5, limit_s=0.0).measure() is None


def test_the_shortest_stretch_counts() -> None:
    clock = iter([0, 50_000, 0, 900_000, 0, 900_000, *[0, 900_000] * 5])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.perf_counter_ns", lambda: next(clock))
        assert bursts._shortest_ns(lambda: None) == 1_000.0
