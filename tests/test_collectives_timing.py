"""The timing engine's decisions, as pure functions of what was measured."""

import gc
import math
import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from scalescope.collectives.measure.timing import (
    BATCH_S,
    STREAM_BATCH_S,
    Limits,
    first_batch,
    mean_and_half_interval,
    measure,
    percentile,
    slowest,
    verdict,
    without_stalls,
)
from scalescope.collectives.measure.warm_up import WarmUp, is_steady, warm_up
from scalescope.collectives.transports.rotation import rotating

LIMITS = Limits(min_iterations=20, max_iterations=2000, budget_s=0.5, relative_interval=0.02, percentile_iterations=20)


def test_a_quiet_point_stops_by_precision_and_a_noisy_one_by_budget() -> None:
    quiet, noisy = [100.0, 100.1, 99.9, 100.0, 100.05], [100.0, 180.0, 60.0, 140.0, 90.0]
    assert verdict(quiet, 20, 0.01, LIMITS) == "precision"
    assert verdict(noisy, 20, 0.01, LIMITS) == ""
    assert verdict(noisy, 20, 0.6, LIMITS) == "budget"
    assert verdict(noisy, 2000, 0.01, LIMITS) == "budget"


def test_too_little_is_never_precise() -> None:
    assert verdict([100.0, 100.0], 40, 0.01, LIMITS) == ""  # two batches alike are luck
    assert verdict([100.0] * 5, 10, 0.01, LIMITS) == ""  # below the least iterations
    assert verdict([100.0], 1, 9.0, LIMITS) == ""  # one batch has no interval, whatever it took


def test_the_interval_covers_the_mean_nineteen_times_in_twenty() -> None:
    generator = random.Random(7)
    hits = 0
    for _ in range(2000):
        mean, half = mean_and_half_interval([generator.gauss(50.0, 4.0) for _ in range(6)])
        hits += abs(mean - 50.0) <= half
    assert 0.935 <= hits / 2000 <= 0.965


def test_small_operations_come_in_large_batches_and_long_ones_stay_within_the_budget() -> None:
    assert first_batch(10e-6, LIMITS) == 100
    assert first_batch(18e-3, LIMITS) == 4  # five batches of four are nccl-tests' twenty
    assert first_batch(1e-6, LIMITS) == 400  # a fifth of the most iterations
    assert first_batch(0.2, LIMITS) == 1
    assert first_batch(4.0, LIMITS) == 1
    assert first_batch(50e-6, LIMITS, operations_per_call=20) == 20  # a graph of twenty is one call


def test_a_stream_that_the_host_waits_for_adds_less_than_half_a_percent_to_an_operation() -> None:
    """As measured on 2 × H200: 15 µs a batch, which five operations of 200 µs share in batches of a millisecond."""
    for operation_s in (50e-6, 200e-6, 750e-6, 3e-3):
        assert 15e-6 / (first_batch(operation_s, LIMITS, STREAM_BATCH_S) * operation_s) < 0.005


def test_a_rare_stall_is_left_out_of_the_mean_and_a_frequent_one_is_not() -> None:
    quiet = [20.0, 20.2, 19.9, 20.1, 20.0, 19.8, 20.1, 20.0, 20.2, 19.9, 20.0]
    assert without_stalls([*quiet, 95.0]) == quiet
    assert verdict([*quiet, 95.0], 600, 0.02, LIMITS) == "precision"
    often = [*quiet, 95.0, 90.0, 99.0]
    assert without_stalls(often) == often
    assert without_stalls([20.0, 20.1, 19.9, 20.0, 95.0]) == [20.0, 20.1, 19.9, 20.0, 95.0]  # one of five is not rare


def test_percentiles_are_nearest_ranks() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert [percentile(ordered, percent) for percent in (50, 95, 99)] == [50.0, 95.0, 99.0]
    assert percentile([3.0, 5.0], 50) == 3.0
    assert percentile(ordered[:99], 99) is None and percentile(ordered[:20], 95) == 19.0  # too few are no percentile


def test_the_slowest_rank_is_named_only_where_it_is_slower_than_the_precision() -> None:
    assert slowest([[10.0, 10.1], [10.0, 10.1], [13.0, 12.9]], 0.02) == 2
    assert slowest([[10.0, 10.1], [10.05, 10.0], [10.1, 10.0]], 0.02) is None


def test_operations_go_round_the_buffers_across_calls() -> None:
    seen: list[int] = []
    run = rotating([lambda: seen.append(0), lambda: seen.append(1), lambda: seen.append(2)])
    run(2)
    run(3)
    assert seen == [0, 1, 2, 0, 1]


def test_a_wider_spread_gives_a_wider_interval() -> None:
    _, narrow = mean_and_half_interval([99.0, 100.0, 101.0])
    _, wide = mean_and_half_interval([90.0, 100.0, 110.0])
    assert wide == pytest.approx(10 * narrow)
    assert narrow == pytest.approx(4.303 * statistics.stdev([99.0, 100.0, 101.0]) / 3**0.5)


class Alone:
    """What a group of one rank says to itself."""

    leads = True

    def gather(self, values: list[float]) -> list[list[float]]:
        return [values]

    def tell(self, number: int) -> int:
        return number


ALONE: Any = Alone()


class Stopwatch:
    """A clock that takes 20 µs itself, over operations of 8 µs; the first batch is held up for 10 ms."""

    batch_s = BATCH_S

    def __init__(self) -> None:
        self.held_up_s = 10e-3
        self.collects: set[bool] = set()

    def batch(self, run: Callable[[int], None], count: int) -> float:
        self.collects.add(gc.isenabled())
        held_up_s, self.held_up_s = self.held_up_s, 0.0
        return 20e-6 + count * 8e-6 + held_up_s

    def each(self, run: Callable[[int], None], count: int) -> list[float]:
        return [28e-6] * (count - 1) + [40e-6]


def test_a_first_operation_that_was_held_up_does_not_leave_the_batches_short() -> None:
    timing = measure(lambda count: None, Stopwatch(), ALONE, LIMITS, lambda seconds: None)
    assert timing is not None and timing.time_us == pytest.approx(8.0, rel=0.04)
    assert timing.iterations >= 5 * 60


def test_operations_timed_one_by_one_have_a_mean_of_their_own() -> None:
    timing = measure(lambda count: None, Stopwatch(), ALONE, LIMITS, lambda seconds: None)
    assert timing is not None and timing.spread.time_each_us == pytest.approx((19 * 28 + 40) / 20)
    assert timing.spread.time_min_us == pytest.approx(28.0) and timing.spread.time_max_us == pytest.approx(40.0)
    assert timing.spread.time_p50_us == pytest.approx(28.0) and timing.spread.time_p99_us is None


def test_no_garbage_is_collected_while_the_clock_runs() -> None:
    watch = Stopwatch()
    measure(lambda count: None, watch, ALONE, LIMITS, lambda seconds: None)
    assert watch.collects == {False} and gc.isenabled()


class ColdClock:
    """A clock over operations that begin at 60 µs and come down to 20 µs, within 0.1 s each time by a factor e."""

    batch_s = BATCH_S

    def __init__(self, settles: bool = True) -> None:
        self.now_s = 0.0
        self.operation_us = 60.0
        self._settles = settles

    def batch(self, run: Callable[[int], None], count: int) -> float:
        self.operation_us = 20 + 40 * math.exp(-self.now_s / 0.1) if self._settles else self.operation_us * 0.99
        self.now_s += count * self.operation_us / 1e6
        return count * self.operation_us / 1e6

    def each(self, run: Callable[[int], None], count: int) -> list[float]:
        raise AssertionError("warming up times whole batches, never single calls")


WANTED = WarmUp(least_calls=5, least_s=0.1, most_s=1.0)


def test_warming_up_goes_on_until_operations_get_no_faster() -> None:
    clock = ColdClock()
    warm_up(lambda count: None, clock, ALONE, WANTED, lambda seconds: None)
    assert clock.operation_us < 23 and 0.2 < clock.now_s < 0.6  # after the least time, at 0.1 s, it is still at 35 µs


def test_warming_up_ends_where_operations_never_settle() -> None:
    clock = ColdClock(settles=False)
    warm_up(lambda count: None, clock, ALONE, WANTED, lambda seconds: None)
    assert 1.0 <= clock.now_s < 1.1


def test_noise_is_steady_and_a_fall_is_not() -> None:
    assert is_steady([20.0, 26.0, 19.0, 21.0, 20.5, 19.5, 27.0, 20.0])
    assert not is_steady([30.0, 29.0, 28.0, 27.0, 26.0, 25.0, 24.0, 23.0])
    assert not is_steady([20.0] * 7)  # too few to tell
