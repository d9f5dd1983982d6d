"""A collective beside matrix products, on a simulated device: what is timed is covered by products to its end."""

from typing import Any

import pytest

from scalescope.collectives.measure.contention import ContendedClock
from scalescope.collectives.operations.operation import NotAvailable
from scalescope.collectives.transports.rotation import Run

PRODUCT_S, ALONE_S = 1e-3, 10e-6


class Alone:
    """What a group of one rank says to itself."""

    def least(self, number: int) -> int:
        return number


ALONE: Any = Alone()


class Device:
    """Two streams in simulated time: a call takes so many times longer while products run."""

    def __init__(self, slowdown: float) -> None:
        self.slowdown = slowdown
        self.now = self.until = 0.0

    def cover(self, seconds: float) -> None:
        self.until = self.now + max(2 * PRODUCT_S, 3 * seconds)

    def busy(self) -> bool:
        return self.now < self.until

    def settle(self) -> None:
        self.now = max(self.now, self.until)

    def batch(self, run: Run, count: int) -> float:
        run(1)
        start = self.now
        run(count)
        return self.now - start

    def call(self, count: int) -> None:
        for _ in range(count):
            self.now += ALONE_S * (self.slowdown if self.busy() else 1)


@pytest.mark.parametrize("slowdown", [1.0, 2.5, 8.0, 200.0])
def test_the_products_outlast_the_collectives_however_much_they_slow_them(slowdown: float) -> None:
    device: Any = Device(slowdown)
    clock = ContendedClock.covering(device.call, device, device, ALONE_S, ALONE, lambda seconds: None)
    assert clock.batch(device.call, 100) / 100 == pytest.approx(slowdown * ALONE_S)
    assert clock.covers and not device.busy()


def test_a_collective_that_waits_for_all_products_is_given_up_before_they_take_minutes() -> None:
    """As where the products leave it no multiprocessor: however many there are, it outlasts them."""
    device: Any = Device(1.0)
    expected: list[float] = []

    def starved(count: int) -> None:
        device.now = max(device.now, device.until) + count * ALONE_S

    with pytest.raises(NotAvailable, match="outlasts"):
        ContendedClock.covering(starved, device, device, 1e-3, ALONE, expected.append)
    assert len(expected) > 5 and sum(expected) == pytest.approx(device.now, rel=0.5) and device.now < 20


def test_what_no_products_cover_is_refused_and_what_they_stopped_covering_is_known() -> None:
    device: Any = Device(1.0)
    device.busy = lambda: False
    with pytest.raises(NotAvailable, match="outlasts"):
        ContendedClock.covering(device.call, device, device, ALONE_S, ALONE, lambda seconds: None)
    changed: Any = Device(8.0)
    clock = ContendedClock(changed, changed, ALONE_S)  # as if it were not slowed at all
    for _ in range(5):
        clock.batch(changed.call, 100)
    assert not clock.covers
