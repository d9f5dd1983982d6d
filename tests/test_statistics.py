"""Student's quantiles are those under which 97.5% of its density lie."""

import math

import numpy as np
import pytest

from scalescope.records.statistics import NORMAL_95, student_95, student_over_normal


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
