"""A CPU rank that computes longer is sized by all of a job's steps, and what hides behind it is not told above it."""

from pathlib import Path
from statistics import fmean

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from scalescope.records.rows import StepRow
from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.report.text.cures.words import cure_elsewhere
from scalescope.report.text.findings import because, cost, headline_of_all, line, todo
from scalescope.report.text.late.rank import late_rank as drawn_rank
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import CoreWaits, LateInSteps
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.figures import BESIDES, INPUTS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.candidate import Candidate
from scalescope.scaling.findings.derived import advice_of, keep
from scalescope.scaling.findings.hosts.by_chance import _between
from scalescope.scaling.verdicts.step_rows.late import late_rank
from tests.report_samples import run_answer
from tests.trace_json import unpacked

#: A CNN with DDP over gloo on two cores, 48 steps a run: two with 22 samples on rank 1 for 16, two with a product of
#: 700 x 700 behind rank 0's backward pass, two as they are. Beside runs without it, plain, the longer batch costs 13.5
#: +- 2.6 ms a step and the product 10.9 +- 3.6.
RUNS = unpacked(Path(__file__).parent / "data/own_cnn_2_cores/steps.json.gz")
LONGER_BATCH_MS = (10.9, 16.1)
PRODUCT_MS = (7.3, 14.5)


def steady(run: str) -> list[StepRow]:
    return [msgspec.convert(row, StepRow) for row in RUNS[run] if row["phase"] == "steady"]


def of_rows(run: str) -> LateInSteps:
    found = late_rank(steady(run))
    assert found is not None and found.delays_known
    return found


def more_work(ms: float, low_ms: float, high_ms: float, times: float = 1.375) -> Finding:
    inputs = EvidenceRow(kind="figure", name=INPUTS, value=times)
    return Finding(code="more_work", rank=1, ms=ms, low_ms=low_ms, high_ms=high_ms, backed="replay",
                   evidence=(inputs,), remedy=Remedy(cure="even_out"))  # fmt: skip


def on_cpus(findings: list[Finding], late: LateInSteps | None, waits_ms: list[float] | None = None) -> RunAnalysis:
    """Return an answer of two CPU ranks with what its rows and its window say."""
    answer = run_answer("cnn", 2)
    answer.experts, answer.pipelines, answer.activity = [], [], "cpu"
    assert answer.step_times is not None
    answer.step_times.late = late
    if waits_ms is not None:
        answer.step_times.core_waits = CoreWaits(
            ms=5.0, low_ms=1.0, high_ms=9.0, mean_step_ms=98.0, steps=37, profiled_ms=waits_ms
        )
    for one in answer.steps:
        one.compute_ms, one.window_ms = one.compute_ms + 50.0, one.window_ms + 50.0
    keep(answer, findings)
    return answer


@pytest.mark.parametrize("run", ["uneven", "uneven_again"])
def test_all_steps_size_a_longer_batch_as_the_steps_without_it_do(run: str) -> None:
    found = of_rows(run)
    assert found.rank == 1 and found.saved_ms is not None
    low, high = found.saved_low_ms, found.saved_high_ms
    assert low is not None and high is not None
    assert low < found.saved_ms - 1.0 and found.saved_ms + 1.0 < high, "there is room on both sides"
    assert low < LONGER_BATCH_MS[1] and LONGER_BATCH_MS[0] < high
    assert found.saved_ms < found.ms, "ranks that are alike wait for each other, too"


def test_what_is_saved_is_by_how_much_the_same_steps_are_shorter_without_it() -> None:
    noise = np.random.default_rng(7).normal(60.0, 6.0, (120, 2))

    def rows(more_ms: float) -> list[StepRow]:
        own = (noise + np.array([0.0, more_ms])).tolist()
        none = [0.0, 0.0]
        return [
            StepRow(step=at, phase="steady", step_ms=[max(one) + 20.0] * 2, samples_per_s=1.0, own_ms=one,
                    own_run_delay_ms=none, run_delay_ms=none)
            for at, one in enumerate(own)
        ]  # fmt: skip

    found = late_rank(rows(18.0))
    longer = fmean(row.length_ms for row in rows(18.0)) - fmean(row.length_ms for row in rows(0.0))
    assert found is not None and found.saved_ms == pytest.approx(longer, abs=0.5) and longer < 16.0
    assert found.ms > longer + 2.0, "by how much it comes later is more than it costs"


def test_waits_for_cores_that_a_surplus_makes_longer_are_in_its_interval() -> None:
    """Five others computed on two cores: 22 samples for 16 came 20 ms later by themselves, and 69 with waits."""
    noise = np.random.default_rng(9).normal(60.0, 3.0, (60, 2))
    own = (noise + np.array([0.0, 18.0])).tolist()
    rows = [
        StepRow(step=at, phase="steady", step_ms=[400.0] * 2, samples_per_s=1.0, own_ms=[4 * ms for ms in one],
                own_run_delay_ms=[3 * ms for ms in one], run_delay_ms=[3 * ms for ms in one])
        for at, one in enumerate(own)
    ]  # fmt: skip
    found = late_rank([msgspec.structs.replace(row, step_ms=[max(row.own_ms) + 20.0] * 2) for row in rows])
    assert found is not None and found.saved_ms == pytest.approx(16.5, abs=2.0)
    assert found.saved_high_ms is not None and 55.0 < found.saved_high_ms < 80.0


@pytest.mark.parametrize("run", ["clean", "clean_again", "product", "product_again"])
def test_rows_name_nobody_for_what_comes_behind_the_exchange_or_is_not_there(run: str) -> None:
    assert late_rank(steady(run)) is None


def test_a_longer_batch_that_a_window_sized_too_low_is_told_by_all_steps() -> None:
    """`rank 1 costs 7.5 ms (3.7 to 11.4)` was told of three steps, where 37 say 14.9 and runs without it 13.5."""
    late = of_rows("uneven")
    answer = on_cpus([more_work(7.5, 3.7, 11.4)], late)
    (found,) = answer.findings
    assert (found.code, found.rank, found.ms, found.backed) == ("more_work", 1, late.saved_ms, "measured")
    assert "1.38× as much data" in because(found) and because(found).endswith("and all 37 steps tell what it costs")
    assert " a step in the mean, " in run_verdict(answer).headline
    keep(answer, answer.findings)
    assert answer.findings == [found], "told again it is the same"
    drawn = drawn_rank(answer)
    assert drawn is not None and drawn.ms == found.ms, "what is drawn as its own is what it costs, not the step"


def test_what_a_window_knows_better_or_what_cannot_be_why_is_not_sized_by_all_steps() -> None:
    late = of_rows("uneven")
    better = more_work(14.0, 13.5, 14.5)
    too_little = more_work(1.0, 0.8, 1.2, times=1.02)
    for one in (better, too_little):
        assert next(found for found in on_cpus([one], late).findings if found.code == "more_work").ms == one.ms


def test_what_evening_out_two_ranks_gives_back_is_said_with_it() -> None:
    """22 samples on one rank for 16 cost 14 ms; 19 on both were 3 +- 6 ms quicker than 22 and 16."""
    (found,) = on_cpus([more_work(7.5, 3.7, 11.4)], of_rows("uneven")).findings
    assert found.remedy is not None
    assert "If the others take over what it has more of, half of this is saved" in cure_elsewhere(found.remedy)


@pytest.mark.parametrize(("ranks", "of", "share"), [((), 2, 1 / 2), ((), 3, 2 / 3), ((0, 1), 4, 1 / 2), ((), 8, 7 / 8)])
def test_to_even_out_brings_what_is_left_when_the_others_have_their_part(
    ranks: tuple[int, ...], of: int, share: float
) -> None:
    """*Even out the ranks' load: 35.1 ms a step* stood above *half of this comes back*: of two ranks 17.6 come of it.
    Of three it said *a third comes back*, of two thirds.
    """
    one = more_work(36.0, 30.0, 42.0)
    told = replace(one, fraction=0.36, ranks=ranks, remedy=Remedy(cure="even_out", size=float(of)))
    said = f": {milliseconds(36 * share)} ({milliseconds(30 * share)} to {milliseconds(42 * share)}) a step, "
    assert f"{said}{percent(0.36 * share)}; all 36.0 ms where the surplus is dropped" in todo(told)
    (advice,) = advice_of([told])
    assert [advice.gain_ms, advice.high_ms] == pytest.approx([36 * share, 42 * share])
    assert cost(told).startswith("36.0 ms"), "what it costs is all of it"
    dropped = replace(told, remedy=Remedy(cure="look_at_rank"))
    assert "36.0 ms (30.0 ms to 42.0 ms)" in todo(dropped) and "surplus" not in todo(dropped)


def work_of_its_own(ms: float, low_ms: float, high_ms: float) -> Finding:
    evidence = (
        EvidenceRow(kind="activity", name="aten::mm", ms=13.3, calls=1.0),
        EvidenceRow(kind="figure", name=BESIDES, calls=1.0, value=0.0),
    )
    return Finding(code="own_work", rank=0, ms=ms, low_ms=low_ms, high_ms=high_ms, backed="replay",
                   evidence=evidence, remedy=Remedy(cure="look_at_rank"))  # fmt: skip


SLOWER = Finding(
    code="slower_compute", rank=1, ms=11.1, low_ms=0.0, high_ms=11.8, backed="replay",
    evidence=(EvidenceRow(kind="figure", name="times_as_long", value=1.07),), remedy=Remedy(cure="look_at_rank"),
)  # fmt: skip


def test_a_rank_that_waits_for_its_cores_beside_a_late_one_is_no_second_cause() -> None:
    """*Rank 1 may cost 11.1 ms, or nothing* stood beside 6.4 ms of rank 0's product; it waited 12 ms more for cores."""
    own = work_of_its_own(9.7, 5.5, 12.4)
    assert [one.code for one in on_cpus([own, SLOWER], None, [3.7, 15.8]).findings] == ["own_work"]
    for waits_ms in ([8.9, 11.8], [15.8, 3.7], None):
        assert len(on_cpus([own, SLOWER], None, waits_ms).findings) == 2
    assert len(on_cpus([SLOWER], None, [3.7, 15.8]).findings) == 1, "nobody is late for sure"


def test_what_another_rank_may_cost_is_no_larger_figure_than_what_is_sure() -> None:
    findings = on_cpus([work_of_its_own(6.4, 1.0, 9.0), SLOWER], None).findings
    told = headline_of_all(findings, 114.1, 2, "")
    assert told.text.startswith("rank 0 costs 6.4 ms (1.0 ms to 9.0 ms)")
    assert told.doubtful.startswith("Rank 1 may cost up to 11.8 ms of the 114.1 ms step, or nothing: ")
    assert line(findings[1], findings=findings).startswith("rank 1, slower compute: up to 11.8 ms, within noise: ")
    assert line(SLOWER).startswith("rank 1, slower compute: 11.1 ms (0.00 ms to 11.8 ms)"), "nothing else is told"


def test_disturbances_that_hide_nothing_do_not_make_a_product_cheaper() -> None:
    """A product of 13.3 ms: 11.7 as the steps were, 1.0 without rank 1's waits; `6.4 ms (0.98 to 6.7)` was told."""
    one = Candidate(code="own_work", rank=0, in_each_ms=(11.8, 14.7))
    told, free = Interval(6.36, 5.98, 6.73), Interval(0.98, 0.87, 5.0)
    found = _between(one, told, free, dealt=Interval(11.7, 11.0, 12.4), there=0.4, ranks=2)
    assert found.low < found.value - 1.0 and found.value + 1.0 < found.high
    assert PRODUCT_MS[0] < found.value < PRODUCT_MS[1] and found.high <= 14.7
    hidden = _between(one, told, Interval(13.0, 12.0, 14.0), dealt=Interval(2.0, 1.0, 3.0), there=1.0, ranks=2)
    assert hidden.value == pytest.approx(6.36), "what the disturbance did hide is as before"
