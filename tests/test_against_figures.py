"""Figures of one cause beside a reference: the same in both directions, and said what each is of."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from scalescope.report.compare.tables import parts_sentence
from scalescope.report.panels.lost import beside_cause, noise_sentence
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze_against
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import OtherWork
from scalescope.scaling.compare.answer import Comparison, CountedWork, PartChange
from scalescope.scaling.finding.finding import Finding
from tests.gloo_traces import GlooJob, in_steps


def plain(job: GlooJob) -> None:
    job.compute(60.0, calls=10)
    job.all_reduce(2.0)


def with_a_histogram(job: GlooJob) -> None:
    job.compute(60.0, calls=10)
    job.compute(100.0, "aten::histc", rank=0, calls=4)
    job.all_reduce(2.0)


@pytest.fixture
def both_ways(tmp_path: Path) -> tuple[RunAnalysis, RunAnalysis]:
    less, more = (
        in_steps(tmp_path / name, range(1, 7), step) for name, step in (("A", plain), ("B", with_a_histogram))
    )
    return analyze_against(more, [less]), analyze_against(less, [more])


def test_what_one_run_computes_besides_is_more_compute_in_both_directions(
    both_ways: tuple[RunAnalysis, RunAnalysis],
) -> None:
    """*261.6 ms more compute* that came was *255.3 ms compute* when it was gone, of the same two runs."""
    for new, gone in zip(*(one.lost for one in both_ways), strict=True):
        assert new.compute_more_work_ms is not None and gone.compute_more_work_ms is not None
        assert new.compute_more_work_ms == pytest.approx(-gone.compute_more_work_ms)
    told = [run_verdict(one).headline for one in both_ways]
    assert "100.0 ms more compute" in told[0] and "gone are 100.0 ms more compute" in told[1]


def test_it_is_said_what_each_figure_of_one_cause_is_of(both_ways: tuple[RunAnalysis, RunAnalysis]) -> None:
    """*270.0 ms longer*, *261.6 ms more compute* and *costs 233.7 ms* stood beside each other, of one histogram."""
    for found in both_ways:
        told = " ".join(run_verdict(found).sentences)
        assert " ms is what the two steps differ by, whatever made that, and " in told, told
        assert "without that cause alone, as run; parts, as in the table, are of profiled steps" in told
    for loss in both_ways[0].lost:
        loss.step_low_ms = -1.0
    assert "differ by, whatever" not in " ".join(run_verdict(both_ways[0]).sentences), "noise may have made it all"


def test_of_the_parts_a_comparison_and_an_analysis_beside_a_reference_say_one_thing(
    both_ways: tuple[RunAnalysis, RunAnalysis],
) -> None:
    """*No part by itself changed beyond noise* and *beyond noise loss and softmax changed* were told of one pair, where
    one call less is sure, and no change.
    """
    run, _ = both_ways
    work = OtherWork(part="loss and softmax", baseline_calls=4, other_calls=3, change_ms=-4.8, low_ms=-7.0,
                     high_ms=-2.6, within_noise=True)  # fmt: skip
    for loss in run.lost:
        loss.step_change_ms, loss.step_low_ms, loss.step_high_ms, loss.other_work = -1.0, -20.0, 18.0, [work]
    told = (
        "Of the parts, what is launched more, or less, is sure (loss and softmax); each as a whole changed within noise"
    )
    assert noise_sentence(run.lost).endswith(f". {told}.")
    counted = CountedWork(baseline_calls=4, other_calls=3, change_ms=-4.8, low_ms=-7.0, high_ms=-2.6)
    part = PartChange(name=work.part, change_ms=-1.6, low_ms=-7.4, high_ms=3.1, baseline_ms=7.4, other_ms=5.8,
                      work=counted)  # fmt: skip
    both = Comparison(baseline="a", other="b", verdict="same", change_ms=-1.0, low_ms=-20.0, high_ms=18.0,
                      baseline_ms=30.0, other_ms=29.0, parts=[part])  # fmt: skip
    assert parts_sentence(both).startswith(f"{told}.")
    for loss in run.lost:
        loss.other_work = [replace(work, within_noise=False)]
    assert noise_sentence(run.lost).endswith(". Beyond noise loss and softmax changed.")


def test_what_takes_longer_than_the_first_cause_is_named_with_its_own_figure(
    both_ways: tuple[RunAnalysis, RunAnalysis],
) -> None:
    """*Optimiser … (5.2 ms more) and elementwise and reductions … (1.8 ms more), which is more than that cause costs*
    was told of one of 2.7 ms: of two parts, one of which takes less, and of two causes.
    """
    run, _ = both_ways
    first, other = (
        Finding(code="host_stall", rank=None, ms=ms, low_ms=ms - 0.2, high_ms=ms + 0.2, backed="replay", remedy=None)
        for ms in (2.7, 1.2)
    )
    run.findings = [first]
    work = OtherWork(part="optimiser", baseline_calls=70, other_calls=84, change_ms=5.2, low_ms=3.7, high_ms=6.7)
    little = replace(work, part="elementwise and reductions", change_ms=1.8, low_ms=0.3, high_ms=3.3)

    def told(*parts: OtherWork, come: tuple[Finding, ...] = ()) -> str:
        for loss in run.lost:
            loss.step_change_ms, loss.step_low_ms, loss.step_high_ms = 3.0, -17.0, 23.0
            loss.come, loss.other_work = list(come), list(parts)
        return beside_cause(run)

    assert told(work, little).endswith("; the 5.2 ms of optimiser are more than that cause costs")
    assert told(work, little, come=(first, other)).endswith(
        "; the 5.2 ms of optimiser are more than the first of these causes costs"
    )
    assert " are more than " not in told(little)
    unnamed = told(*(replace(little, part=name) for name in ("matmul", "copies and casts", "normalisation")), work)
    assert "optimiser" not in unnamed and " are more than " not in unnamed, "nothing is said of what is not listed"
