"""Student's quantiles are those under which 97.5% of its density lie; the largest of the others is looked for once."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.records.statistics import NORMAL_95, largest_of_others, student_95, student_over_normal


def share_below(quantile: float, degrees: int) -> float:
    at = np.linspace(0, quantile, 200_001)
    scale = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    return 0.5 + scale * float(np.trapezoid((1 + at**2 / degrees) ** (-(degrees + 1) / 2), at))


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 10, 30])
def test_the_quantile_leaves_as_much_above_it_as_it_says(degrees: int) -> None:
    assert share_below(student_95(degrees), degrees) == pytest.approx(0.975, abs=2e-5)


def test_beyond_the_table_the_normal_quantile_is_near() -> None:
    assert student_95(31) == NORMAL_95
    assert share_below(NORMAL_95, 31) == pytest.approx(0.975, abs=0.006)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 10, 30, 100])
def test_the_widening_is_the_quantiles(degrees: int) -> None:
    assert share_below(NORMAL_95 * student_over_normal(degrees), degrees) == pytest.approx(0.975, abs=2e-3)


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=9))
def test_the_largest_of_the_others_is_what_is_largest_once_one_is_taken_out(values: list[int]) -> None:
    assert largest_of_others(values) == [max(values[:at] + values[at + 1 :]) for at in range(len(values))]
