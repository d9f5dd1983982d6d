"""What is longer now and then, at no period, is compared by the mean step: the step's change is a median's."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from scalescope.report.compare.sentences import verdict_sentences
from scalescope.report.top.cards import _run_figures
from scalescope.report.verdict.notes import throughput_sentences
from scalescope.scaling.answer import AsRun
from scalescope.scaling.answer_steps import LongSteps
from scalescope.scaling.compare.answer import Comparison
from scalescope.scaling.compare.gate import judge, parse
from scalescope.scaling.compare.measurement import Identity, Measurement, Repeat
from scalescope.scaling.compare.rows.irregular import irregular_change
from scalescope.scaling.finding.figures import INPUTS, ROUNDS
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from tests.report_samples import run_answer

NAMELESS = Identity(world_size=2, activity="cpu", device=None)


def side(*long: int, steps: int = 47, each_ms: float = 185.0, waited: bool = False, rare: bool = False) -> Measurement:
    """Return a run of steps of 84 ms, of which some are longer; `waited`: for cores that others had."""
    dice = np.random.default_rng(7)
    every: dict[int, tuple[float, float | None]] = {}
    for step in range(steps):
        ms, more = 84.0 + 3.0 * float(dice.standard_normal()), each_ms if step in long else 0.0
        every[step] = (ms + 5.0 + more, ms + (0.0 if waited else more))
    lengths = [length for length, _ in every.values()]
    rate = 32_000 / float(np.median(lengths))
    usual = float(np.median([length for step, (length, _) in every.items() if step not in long]))
    each = sum(every[step][0] - usual for step in long) / max(1, len(long))
    few = LongSteps(count=len(long), each_ms=each, ms=each * len(long) / steps, low_ms=0.0, high_ms=2 * each,
                    mean_step_ms=sum(lengths) / steps, at=list(long))  # fmt: skip
    run = Repeat(name="run", path=Path(), identity=NAMELESS, steady_ms=lengths, every_ms=every, samples_per_s=rate,
                 rare=few if rare else None)  # fmt: skip
    return Measurement(name="side", repeats=[run])


def compared(baseline: Measurement, other: Measurement) -> Comparison:
    irregular = irregular_change(baseline, other)
    return Comparison(baseline="good", other="val", verdict="same", change_ms=1.0, low_ms=-17.0, high_ms=22.0,
                      baseline_ms=84.0, other_ms=85.0, basis="untraced", irregular=irregular)  # fmt: skip


def told(found: Comparison, limits: Sequence[str], *sides: Measurement) -> list[tuple[bool, str]]:
    lines = [judge(parse(limit), found, *sides) for limit in limits]
    return [(line.held, line.text) for line in lines]


def test_a_validation_at_no_period_is_in_the_mean_step_and_fails_its_gate() -> None:
    """*Val cannot be told from good*, and exit code 0 by `step>3%`: three of its 47 steps validate for 174 ms, so that
    a step took 101 ms for 85 in the mean, 88.9 for 84.4 in the median; nor did samples a second tell.
    """
    sides = side(steps=27), side(19, 39, 45)
    found = compared(*sides)
    one = found.irregular
    assert (
        one is not None
        and one.differs
        and (one.other_steps, one.other_of, one.baseline_steps) == ([19, 39, 45], 47, [])
    )
    assert one.low_ms < 3 * 185 / 47 < one.high_ms and one.low_ms > 0.03 * 84
    (step, rate) = told(found, ["step>3%", "throughput<-3%"], *sides)
    assert not step[0] and "by steps that are longer now and then" in step[1] and " of the mean step (" in step[1]
    assert not rate[0] and "by steps that are longer now and then" in rate[1]
    first, whole, *_ = verdict_sentences(found)
    assert (
        first.startswith("In “val” 3 of 47 steps (19, 39 and 45) take 18") and " in “good” none of 27 does: +1" in first
    )
    assert first.endswith("in the mean step as measured.") and whole.startswith("The typical (median) step: ")
    back = compared(*sides[::-1])
    assert back.irregular is not None and back.irregular.differs and back.irregular.change_ms < 0


def test_what_undisturbed_runs_have_as_well_is_no_cost() -> None:
    """A hiccup or two of one run, what both have, waits for cores, and steps of which half are long."""
    calm = side(steps=27)
    for other in (
        side(19),
        side(19, 39),
        side(3, 19, 39, waited=True),
        side(*range(0, 47, 2)),
        side(3, 9, each_ms=20.0),
    ):
        one = irregular_change(calm, other)
        assert one is None or not one.differs
        found = compared(calm, other)
        assert told(found, ["step>3%"], calm, other)[0][0]
    alike = irregular_change(side(5, 19, 39), side(7, 22, 44))
    assert alike is not None and not alike.differs
    traces = Measurement(name="traces", repeats=[Repeat(name="run", path=Path(), identity=NAMELESS, windows=[])])
    assert irregular_change(traces, side(5, 19, 39)) is None


def test_one_or_two_steps_that_make_much_of_the_mean_are_named_and_fail_nothing() -> None:
    """*Val cannot be told from good*, ±0 ms, of a run whose mean step was 100.2 ms for 76.0: two of its 27 steps took
    316 ms longer, and neither the comparison nor `step>5%` had a word of them.
    """
    sides = side(steps=27), side(19, 39, each_ms=316.0, rare=True)
    found = compared(*sides)
    one = found.irregular
    assert one is not None and one.too_few and not one.differs and found.in_the_mean == []
    first, then, whole, *_ = verdict_sentences(found)
    assert first.startswith("In “val” 2 of 47 steps (19 and 39) take 31") and "in “good” none of 27 does: +13" in first
    assert first.endswith("in the mean step as measured, and so few do not tell how often such come.")
    assert then.startswith("But for that “val” cannot be told from “good”") and whole.startswith(
        "The typical (median) ste"
    )
    lines = [judge(parse(limit), found, *sides) for limit in ("step>5%", "throughput<-5%", "step>60%")]
    assert all(line.held and "; 2 steps of “val” (19, 39), too few to tell how often such come: " in line.text
               for line in lines)  # fmt: skip
    assert [line.untold for line in lines] == [True, True, False]
    assert "+16 % besides, as measured" in lines[0].text and "-14 % besides, as measured" in lines[1].text
    back = compared(*sides[::-1])
    assert (
        verdict_sentences(back)[0].startswith("In “good” 2 of 47 steps (19 and 39)")
        and "−13" in verdict_sentences(back)[0]
    )
    both = irregular_change(side(5, 30, each_ms=316.0, rare=True), side(19, 39, each_ms=316.0, rare=True))
    assert both is not None and not both.too_few
    single = compared(side(steps=27), side(19, each_ms=316.0, rare=True))
    assert "1 of 47 steps (19) takes 31" in verdict_sentences(single)[0]


def test_so_few_steps_are_as_much_longer_as_the_run_s_own_analysis_has_it() -> None:
    """The same two of 27 steps were 276.7 ms longer (20.5 ms a step) in `analyze`, and 271.7 (21.6) in `compare`."""
    calm, few = side(steps=27), side(10, 24, steps=27, each_ms=271.0, rare=True)
    (run,) = few.repeats
    assert run.rare is not None
    for sides, sign in (((calm, few), 1), ((few, calm), -1)):
        one = irregular_change(*sides)
        assert one is not None and one.too_few and one.longer_steps == run.rare.at
        assert one.change_ms == pytest.approx(sign * run.rare.ms)
        assert (one.other_each_ms or one.baseline_each_ms) == pytest.approx(run.rare.each_ms)


def test_samples_a_second_are_of_the_mean_step_where_it_is_not_the_median() -> None:
    """*It does 360.1 samples/s* was told of a run whose 47 steps made 316.9, three of them validating."""
    run = run_answer("val", 2)
    assert run.step_times is not None and run.throughput is not None
    run.recurring = run.step_times.long_steps = run.throughput.tokens_per_s = run.throughput.mfu = None
    run.step_times.measured_step_ms, run.throughput.samples_per_s = 88.9, 360.1
    run.step_times.measured_mean_ms = 101.0
    told = "It does 317.0 samples/s over all steady steps (101.0 ms each, in the mean), and 360.1 in a typical one"
    assert throughput_sentences(run) == [f"{told} (88.9 ms)."]
    shown = [(one.label, one.value) for one in _run_figures(run) if "throughput" in one.label]
    assert shown == [("throughput over all steady steps", "317.0")], "as a terminal has it"
    long = LongSteps(count=8, each_ms=95.0, ms=28.2, low_ms=12.5, high_ms=43.9, mean_step_ms=101.0)
    run.step_times.long_steps = long  # *as run a step takes 143.7 ms*, 69.6 samples/s, and *75.0 in a typical one*
    told = "It does 317.0 samples/s, long steps included (all steps: 101.0 ms in the mean), and 360.1 in a typical one"
    assert throughput_sentences(run) == [f"{told} (88.9 ms)."]
    shown = [(one.label, one.value) for one in _run_figures(run) if "throughput" in one.label]
    assert shown == [("throughput, long steps included", "317.0")]
    run.step_times.long_steps = replace(long, cause="loading")  # most steps wait, the median one, too
    told = (
        "It does 317.0 samples/s, long steps included (all steps: 101.0 ms in the mean), and 439.7 without what these"
    )
    told += " take longer."
    assert throughput_sentences(run) == [told]
    run.step_times.long_steps = None
    for alike in (91.0, None):
        run.step_times.measured_mean_ms = alike
        assert throughput_sentences(run) == ["It does 360.1 samples/s."]
    run.as_run = AsRun(step_ms=88.9, source="steps")
    assert throughput_sentences(run) == ["It does 360.1 samples/s, 88.9 ms a step as run."], "whose length it is of"


def test_samples_a_second_say_what_was_told_where_a_rank_s_operators_tell_of_a_larger_batch() -> None:
    """*It does 528.0 samples/s* was told of two ranks that did 790: the script said 32 a rank, and rank 1 had 64."""
    run = run_answer("speech", 2)
    assert run.step_times is not None and run.throughput is not None
    run.recurring = run.step_times.long_steps = run.throughput.tokens_per_s = run.throughput.mfu = None
    run.step_times.measured_mean_ms = None
    run.throughput.samples_per_s, run.throughput.told_a_rank = 528.4, 32
    twice = EvidenceRow(kind="figure", name=INPUTS, value=2.0)
    larger = Finding(code="more_work", rank=1, ms=42.2, low_ms=41.0, high_ms=43.4, backed="measured", evidence=(twice,))
    run.findings = [larger]
    assert throughput_sentences(run) == [
        "It does 528.4 samples/s, by the 32 samples a rank and step that the script told; rank 1 computes on 2.00× as "
        "much data as the others, and if that is its batch, it does 1.50× as many."
    ]
    longer = EvidenceRow(kind="figure", name=ROUNDS, calls=160.0, value=80.0)
    within = EvidenceRow(kind="operator", name="aten::mm", calls=8.0, value=4.0)
    for one in (longer, within):  # longer samples; activations computed again: both of a batch as large
        run.findings = [replace(larger, evidence=(twice, one))]
        assert throughput_sentences(run) == ["It does 528.4 samples/s."]
    run.findings, run.throughput.told_a_rank = [larger], None  # each rank's own were told, and are counted
    assert throughput_sentences(run) == ["It does 528.4 samples/s."]
