"""Whatever a finding's figures came from: 0 ≤ low ≤ ms ≤ high, and no more than a step; else it is told as a bound."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.hosts.by_chance import as_far_off
from scalescope.scaling.findings.prices.sound import STRICT, UnsoundError, are_sound, sound

STEP_MS = 55.0
ANY = st.one_of(st.floats(-1e12, 1e12), st.floats(-100.0, 100.0), st.just(math.nan), st.just(math.inf))


def stall(ms: float, low_ms: float, high_ms: float) -> Finding:
    return Finding(code="host_stall", rank=1, ms=ms, low_ms=low_ms, high_ms=high_ms, fraction=0.1, backed="replay")


@given(ms=ANY, low_ms=ANY, high_ms=ANY)
@example(ms=4.3, low_ms=902_557_711.8, high_ms=4.3)
@example(ms=4.3, low_ms=math.nan, high_ms=5.0)
@example(ms=-1.0, low_ms=-2.0, high_ms=0.0)
def test_no_figures_make_a_finding_that_is_told_beyond_what_a_step_can_lose(
    ms: float, low_ms: float, high_ms: float
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(STRICT, raising=False)
        told = sound(stall(ms, low_ms, high_ms), STEP_MS, may_lengthen=False)
    assert told.ms is not None and told.low_ms is not None and told.high_ms is not None
    assert are_sound(told.ms, told.low_ms, told.high_ms, STEP_MS, may_lengthen=False)
    if not are_sound(ms, low_ms, high_ms, STEP_MS, may_lengthen=False):
        assert told.at_most and told.low_ms == 0.0 and told.ms == told.high_ms <= STEP_MS


def test_a_bound_is_what_is_true_of_figures_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STRICT, raising=False)
    told = sound(stall(4.3, 902_557_711.8, 5.1), STEP_MS)
    assert (told.at_most, told.low_ms, told.ms, told.high_ms) == (True, 0.0, 5.1, 5.1)
    assert told.fraction == pytest.approx(5.1 / STEP_MS)


def test_figures_that_cannot_be_fail_every_test_that_meets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STRICT, "1")
    with pytest.raises(UnsoundError, match="host_stall"):
        sound(stall(4.3, 902_557_711.8, 4.3), STEP_MS)
    fine = stall(4.3, 3.3, 4.8)
    assert sound(fine, STEP_MS) is fine


@given(
    value=st.floats(0.0, STEP_MS, exclude_min=True),
    alone=st.floats(0.0, STEP_MS, exclude_min=True),
    below=st.floats(0.0, STEP_MS),
    above=st.floats(0.0, STEP_MS),
)
@example(value=3e-4, alone=1e-15, below=1.1, above=1.1)
def test_what_brings_next_to_nothing_alone_is_told_no_further_off_than_a_step(
    value: float, alone: float, below: float, above: float
) -> None:
    told = as_far_off(value, Interval(alone, alone - below, alone + above))
    assert told.low <= told.value == value <= told.high
    assert told.high - told.low <= 2 * (below + above) + 1e-9
