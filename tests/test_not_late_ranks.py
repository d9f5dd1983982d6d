"""A rank that computes longer in a window, on cores that others use, and is in time in all of the job's steps."""

import numpy as np
import pytest
from msgspec.structs import replace

from scalescope.records.rows import StepRow
from scalescope.report.text.findings import because
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.figures import AT_LEAST, BY_TURNS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import is_within_noise
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.verdicts.step_rows.later import ranks_in_steps
from tests.report_samples import run_answer

TURNS = EvidenceRow(kind="figure", name=BY_TURNS, ms=6.6, calls=5.0, value=0.75)
SLOWER = Finding(code="slower_compute", rank=0, ms=6.9, low_ms=1.5, high_ms=12.3, fraction=0.07, evidence=(TURNS,),
                 remedy=Remedy(cure="look_at_device", on_cpu=True), backed="replay")  # fmt: skip


def _rows(later_ms: float, *, noise_ms: float = 4.0, own_ms: float = 77.0) -> list[StepRow]:
    """Return 42 steps of 85 ms in which rank 0 is later than rank 1 in the mean by about so much."""
    noise = np.random.default_rng(7).normal(0.0, noise_ms, 42)
    own = [[own_ms + later_ms + one, own_ms] for one in (noise - noise.mean()).tolist()]
    return [
        StepRow(step=at, phase="steady", step_ms=[85.0, 85.0], samples_per_s=1.0, own_ms=times)
        for at, times in enumerate(own)
    ]


def _told(rows: list[StepRow], *found: Finding) -> RunAnalysis:
    answer = run_answer("gpt", 2)
    answer.experts, answer.pipelines, answer.activity = [], [], "cpu"
    assert answer.step_times is not None
    answer.step_times.ranks = ranks_in_steps(rows)
    keep(answer, found)
    return answer


def test_slower_compute_that_no_other_step_of_the_job_shows_accuses_nobody() -> None:
    """`rank 0 costs 6.9 ms (1.5 ms to 12.3 ms)` of a healthy job, whose 42 steps had it late by 1.5 ± 2.7."""
    answer = _told(_rows(0.5), SLOWER)
    assert not answer.stragglers and not answer.advice and not answer.findings


def test_without_it_a_healthy_job_is_told_to_be_one_and_not_to_launch_less() -> None:
    """Launching was told first then: so much Python, 7.0 ms of 85, runs between the operators of any eager step."""
    compute = EvidenceRow(kind="figure", name="compute", ms=75.0, share=0.9)
    nothing = Finding(code="nothing", ms=None, low_ms=None, high_ms=None, evidence=(compute,), backed="none")
    launching = Finding(code="host_bound", ms=7.0, low_ms=0.0, high_ms=7.0, fraction=0.07, at_most=True, backed="bound")
    found = (nothing, SLOWER, launching)
    assert [one.code for one in _told(_rows(0.5), *found).findings] == ["nothing", "host_bound"]
    assert [one.code for one in _told(_rows(7.0), *found).findings] == ["slower_compute", "host_bound"]


def test_slower_compute_that_all_steps_show_stays_as_it_is() -> None:
    assert _told(_rows(7.0), SLOWER).findings == [SLOWER]


def test_what_all_steps_neither_show_nor_rule_out_may_cost_nothing() -> None:
    (found,) = _told(_rows(1.0, noise_ms=40.0), SLOWER).findings
    assert is_within_noise(found) and (found.ms, found.high_ms) == (6.9, 12.3)


def test_a_rank_behind_one_that_is_later_for_a_cause_of_its_own_may_be_slower_all_the_same() -> None:
    work = Finding(code="own_work", rank=1, ms=18.0, low_ms=16.0, high_ms=20.0, fraction=0.2, backed="replay")
    assert SLOWER in _told(_rows(-10.0), SLOWER, work).findings
    assert [one.code for one in _told(_rows(-18.0), SLOWER, work).findings] == ["own_work"]


@pytest.mark.parametrize(
    "rows",
    [[], _rows(0.5)[:5], _rows(0.5, own_ms=30.0)],
    ids=["no rows", "few rows", "ranks that first wait for the others early in the step"],
)
def test_steps_that_tell_too_little_of_a_rank_take_nothing_back(rows: list[StepRow]) -> None:
    assert _told(rows, SLOWER).findings == [SLOWER]


def test_what_is_there_for_sure_stays_whatever_other_steps_are_like() -> None:
    sure = replace(SLOWER, evidence=(EvidenceRow(kind="figure", name=AT_LEAST, value=1.6),))
    assert _told(_rows(0.5), sure).findings == [sure]


def test_what_operators_take_longer_each_and_together_adds_up() -> None:
    """`5 of its operators a step take 0.75 ms longer`, of a rank that cost 6.9 ms: nobody knew whether each did."""
    told = because(SLOWER)
    assert "5 of its operators a step take 6.6 ms longer together than on the others" in told
    assert "0.75 ms each in the median" in told
