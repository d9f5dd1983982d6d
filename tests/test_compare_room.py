"""How far a part's bounds reach beside the step's change and the other parts."""

import numpy as np
import pytest

from scalescope.report.compare.tables import parts_sentence, parts_table
from scalescope.scaling.answer_rows import AsMeasured
from scalescope.scaling.compare.answer import Comparison, PartChange
from scalescope.scaling.compare.difference import within_amounts
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


def _part(name: str, before: float, after: float, half: float) -> PartChange:
    change = after - before
    return PartChange(name=name, change_ms=change, low_ms=change - half, high_ms=change + half, baseline_ms=before,
                      other_ms=after)  # fmt: skip


def test_no_part_shrinks_by_more_than_it_was_nor_grows_by_more_than_it_has_become() -> None:
    """Exposed transfer of 3.6 ms and then 7.2 was told to have changed by −201 to 208 ms."""
    parts = [_part("exposed_transfer", 3.6, 7.2, 204.0), _part("convolution", 73.0, 97.1, 47.7),
             _part("copies", 0.0, 5.0, 9.0), _part("idle_data", 1.0, 9.0, 2.0),
             _part("rest", 3.3, -3.1, 290.0)]  # fmt: skip
    transfer, convolution, copies, loading, rest = found = within_amounts(parts)
    assert (transfer.low_ms, transfer.high_ms) == (-3.6, 7.2) and (copies.low_ms, copies.high_ms) == (0.0, 5.0)
    assert (convolution.low_ms, loading.low_ms, loading.high_ms) == (parts[1].low_ms, 6.0, 9.0)
    assert rest == parts[4] and [one.within_noise for one in found] == [one.within_noise for one in parts]


def test_the_table_s_step_is_the_first_sentence_s_where_waits_for_cores_may_have_made_it() -> None:
    """*+7.5% to +58.5%, beyond noise*, and a limit failed by it; the table had −27 to 72 ms of it, *within noise*."""
    answer = Comparison(
        baseline="calm", other="busy", verdict="same", basis="untraced", baseline_ms=133.0, other_ms=176.9,
        change_ms=43.9, low_ms=-27.0, high_ms=72.5, parts=[_part("convolution", 73.0, 97.1, 47.7),
                                                         _part("rest", 3.3, -3.1, 290.0)],
        as_measured=AsMeasured(low_ms=10.0, high_ms=77.8, free_ms=1.6, free_low_ms=-27.0, free_high_ms=30.2),
    )  # fmt: skip
    *_, rest, step, free = parts_table(answer).rows
    assert step == ["step as run, measured", 133.0, 176.9, 43.9, 10.0, 77.8, "", ""]
    assert free == ["without what ranks waited for cores", None, None, 1.6, -27.0, 30.2, "", "within noise"]
    assert rest[4:6] == [None, None], "−297 to 284 ms of a step of 133 tells nothing"
    told = parts_sentence(answer)
    assert told.startswith("No part by itself changed beyond noise; as measured the whole step did. The parts add")
    answer.as_measured = None
    assert parts_table(answer).rows[-1] == [
        "step as run, measured",
        133.0,
        176.9,
        43.9,
        -27.0,
        72.5,
        "",
        "within noise",
    ]
