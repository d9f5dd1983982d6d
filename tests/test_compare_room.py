"""How far a part's bounds reach beside the step's change and the other parts."""

import numpy as np
import pytest

from scalescope.scaling.compare.noise import Bounds, within_the_step


def _bounds(rest_ms: float) -> Bounds:
    """Return the bounds of a loop that loads for 49 ms longer, beside compute within noise and what traces miss."""
    parts = np.array([49.2, -2.2, rest_ms])
    low, high = parts - np.array([38.7, 36.0, 90.0]), parts + np.array([146.4, 36.0, 90.0])
    step = float(parts.sum())
    return Bounds(parts=parts, low=low, high=high, step=step, step_low=step - 38.0, step_high=step + 38.0,
                  degrees=None, factor=1.5)  # fmt: skip


def test_a_part_s_bounds_reach_no_farther_than_the_step_and_the_other_parts_leave_room_for() -> None:
    """Loading was told to be 10 to 196 ms longer in a step that was 5 to 83 ms longer."""
    found = within_the_step(_bounds(-4.0))
    assert found.high[0] == pytest.approx(49.2 + np.hypot(38.0, 36.0))
    before = _bounds(-4.0)
    assert (found.low[0], found.low[1], found.high[1]) == (before.low[0], before.low[1], before.high[1])
    assert (found.low[2], found.high[2]) == (before.low[2], before.high[2])


def test_bounds_hold_the_change_and_stay_where_the_profiled_steps_are_no_measure_of_the_others() -> None:
    for rest in (-200.0, -85.0, 0.0, 85.0, 200.0):
        found, before = within_the_step(_bounds(rest)), _bounds(rest)
        assert (found.low <= found.parts).all() and (found.parts <= found.high).all()
        assert (found.low >= before.low).all() and (found.high <= before.high).all()
        assert ((found.low <= 0) & (found.high >= 0)).tolist() == ((before.low <= 0) & (before.high >= 0)).tolist()
    assert within_the_step(_bounds(85.0)).high[0] == _bounds(85.0).high[0]
