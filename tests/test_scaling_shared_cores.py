"""Ranks on cores that others use as well: what is longer in some steps alone is nobody's slower compute."""

import numpy as np

from scalescope.report.text.findings import because
from scalescope.scaling.finding import EvidenceRow, Finding
from scalescope.scaling.findings.detectors.slower_compute import InCommon, is_by_chance

STEPS, LAUNCHES, EACH_NS = 4, 20, 2e6


def common(mine: np.ndarray) -> InCommon:
    """Return a rank's launches, `mine` of shape (steps, launches), beside others that take 2 ms for each."""
    names = [f"op{at}" for at in range(LAUNCHES)] * STEPS
    places = list(range(LAUNCHES)) * STEPS
    return InCommon(names, ["matmul"] * len(names), mine.ravel(), np.full(mine.size, EACH_NS), STEPS, places)


def test_what_another_process_takes_now_here_and_now_there_is_chance() -> None:
    mine = np.full((STEPS, LAUNCHES), EACH_NS)
    for step in range(STEPS):
        mine[step, 4 * step : 4 * step + 5] += 4e6
    assert is_by_chance(common(mine))


def test_what_a_rank_computes_longer_in_each_step_is_none() -> None:
    noise = np.random.default_rng(1).exponential(0.3e6, (STEPS, LAUNCHES))
    assert not is_by_chance(common(1.3 * np.full((STEPS, LAUNCHES), EACH_NS) + noise))


def test_an_interrupted_host_is_said_to_stand_still_beside_the_others() -> None:
    row = EvidenceRow(kind="figure", name="interruptions", ms=4.7, others_ms=0.0)
    one = Finding(code="host_starved", rank=1, ms=3.4, low_ms=0.0, high_ms=9.3, evidence=(row,), backed="replay")
    assert because(one) == (
        "its host stands still for 4.7 ms a step (the others' 0.00 ms), now here and now there: others use its cores"
    )
