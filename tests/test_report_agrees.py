"""What stands in several places of one answer agrees: how long steps are, what recording costs, what to write."""

from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from scalescope.records.rows import Origin
from scalescope.report.advice.unsteady import measure_again
from scalescope.report.as_run.recording import as_run_sentence, recording_ms
from scalescope.report.compare.tables import kernels_table
from scalescope.report.html import facts_of
from scalescope.report.panels.kinds import kind_sentence
from scalescope.report.panels.lost import lost_clause
from scalescope.report.report_data import read_report_data
from scalescope.report.steadiness import beside_measured, unlike_sentence
from scalescope.report.text.cures.words import cure_text
from scalescope.report.text.findings import first_sentence
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import AsRun, RankLoss, Replay, RunAnalysis
from scalescope.scaling.answer_rows import KindRow, WaterfallPart
from scalescope.scaling.answer_steps import RecurringSteps, StepTimes
from scalescope.scaling.compare.answer import Comparison, KernelChange
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.figures import LATE, STEADY_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.verdicts.step_rows.doubt import longer_for_long_ones_ms, told_usual_ms
from tests.report_samples import run_answer, write_run

STALL = Finding(
    code="host_stall", rank=1, ms=52.7, low_ms=25.4, high_ms=55.4, fraction=0.22, backed="replay",
    evidence=(EvidenceRow(kind="figure", name="gap_before aten::conv2d", ms=47.5),), remedy=Remedy(cure="look_at_host"),
)  # fmt: skip


def on_cpus(measured_ms: float, window_ms: float, median_ms: float, placebo_ms: float) -> RunAnalysis:
    run = replace(run_answer("r", 2), activity="cpu")
    run.step_times = StepTimes(
        measured_step_ms=measured_ms, measured_step_p95_ms=measured_ms, measured_steps=20, window_step_ms=window_ms,
        profiling_overhead_ms=median_ms - measured_ms, profiling_overhead_fraction=median_ms / measured_ms - 1,
        placebo_ms=placebo_ms,
    )  # fmt: skip
    return run


def test_a_bar_and_its_card_are_of_the_same_steps() -> None:
    """*No more than such steps differ anyway (± 59.7 ms)* stood above *longer by more than that*."""
    run = on_cpus(453.4, 524.7, 486.9, 59.7)
    card = unlike_sentence(run, "1 CPU rank")
    assert "16% longer than the measured ones (524.7 ms in the mean for 453.4 ms in the median)" in card
    assert "no more than such steps differ" not in card
    bars = beside_measured([(run, "1 CPU rank", 524.7, False)])
    assert "453.4 ms (± 59.7 ms)" in bars and "by more than that" not in bars, "the card says so"


def test_profiled_steps_that_hold_long_ones_are_longer_for_these_and_not_for_recording() -> None:
    """*Recording lengthens them, or something else ran meanwhile* stood below *every 5th step takes 38.3 ms longer*."""
    run = on_cpus(71.7, 79.8, 73.7, 5.5)
    (first, *_), count = run.steps, 10
    run.steps = [replace(first, rank=rank, step=step) for rank in (0, 1) for step in range(20, 20 + count)]
    run.recurring = RecurringSteps(every=5, phase=4, phases=[4], rank=None, longer_ms=38.3, usual_ms=71.7, mean_ms=7.7)
    bars = beside_measured([(run, "2 CPU ranks", 79.8, False)])
    assert "longer by more than that: 2 of the 10 are some of the long ones, as every 5th step is." in bars
    assert "recording" not in bars and unlike_sentence(run, "2 CPU ranks") == ""
    far = on_cpus(71.7, 90.0, 88.0, 5.5)
    far.steps, far.recurring = run.steps, run.recurring
    assert "than the measured ones" in unlike_sentence(far, "2 CPU ranks")
    assert "long ones" not in beside_measured([(far, "2 CPU ranks", 90.0, False)])


def test_profiled_steps_are_held_against_the_steps_between_without_what_long_ones_make_them_longer_by() -> None:
    """*37% longer than the measured ones*, of a mean that held a validation beside a median that held none."""
    run, nearly = on_cpus(137.8, 185.0, 186.0, 26.0), on_cpus(137.8, 171.0, 171.0, 26.0)
    (first, *_) = run.steps
    for one in (run, nearly):
        one.steps = [replace(first, rank=rank, step=step) for rank in (0, 1) for step in range(22, 27)]
        one.recurring = RecurringSteps(
            every=5, phase=4, phases=[4], rank=None, longer_ms=118.7, usual_ms=137.8, mean_ms=23.7
        )
    assert (
        "17% longer than the measured ones (161.3 ms in the mean, without what every 5th step takes longer, for 137.8 "
        "ms in the median)"
    ) in unlike_sentence(run, "2 CPU ranks")
    assert unlike_sentence(nearly, "2 CPU ranks") == "", "7% longer are the others"
    nearly.recurring = None
    assert "24% longer" in unlike_sentence(nearly, "2 CPU ranks")


def test_what_recurs_is_taken_off_a_mean_by_the_long_ones_among_its_own_steps() -> None:
    """*64% longer … 89.7 ms in the mean of 7 of 10*: of two in ten, from a mean of seven that held both."""
    run = on_cpus(54.8, 108.7, 60.0, 5.2)
    run.ranks = [replace(one, steps=10) for one in run.ranks]
    (first, *_) = run.steps
    run.steps = [replace(first, rank=rank, step=step) for rank in (0, 1) for step in range(22, 32)]
    run.recurring = RecurringSteps(
        every=4, phase=0, phases=[0], rank=None, longer_ms=190.8, usual_ms=54.8, mean_ms=47.7
    )
    run.replay = Replay(traced_ms=126.0, replayed_ms=126.0, error=0.0, unexplained_ms=0.0, faithful=True)
    run.as_run = AsRun(
        step_ms=127.9, source="steps", untraced_by="steps", ranks=list(run.ranks), steps=7,
        step_numbers=list(range(22, 29)),
    )  # fmt: skip
    assert longer_for_long_ones_ms(run) == pytest.approx(2 / 7 * 190.8)
    assert told_usual_ms(run) == pytest.approx(127.9 - 2 / 7 * 190.8)
    run.as_run.step_numbers = list(range(25, 32))
    assert longer_for_long_ones_ms(run) == pytest.approx(190.8 / 7), "of which one is among the others"


def test_profiling_is_said_to_cost_no_more_than_it_is_known_to_on_cpus() -> None:
    """*20% longer than the measured ones, which profiling costs them*, where 1.5 ms of 137.5 ms were known."""
    run = on_cpus(107.6, 129.1, 129.0, 6.0)
    assert "which profiling costs them" not in unlike_sentence(run, "1 CPU rank")
    assert "the profiled steps are 20% longer than the measured ones" in unlike_sentence(run, "1 CPU rank")


def test_like_bars_are_explained_once() -> None:
    few = [(on_cpus(100.0, 105.0, 105.0, 2.0), f"{count} CPU ranks", 105.0, False) for count in (2, 4)]
    told = beside_measured(few)
    assert "On 2 CPU ranks and 4 CPU ranks the profiled ones are longer" in told
    assert told.count("recording lengthens them") == 1


def test_what_recording_costs_has_one_figure() -> None:
    """*+14.8% for profiling*, *profiling overhead 7.43 ms* and *recording takes 2.2 ms* were told of one demo."""
    run = on_cpus(139.4, 161.7, 160.1, 16.7)
    run.replay = Replay(traced_ms=146.5, replayed_ms=146.5, error=0.0, unexplained_ms=0.0, faithful=True)
    run.as_run = AsRun(
        step_ms=139.4, low_ms=130.0, high_ms=149.0, source="steps", untraced_by="steps", ranks=list(run.ranks),
        untraced_ms=Interval(139.4, 130.0, 149.0), recording_ms=Interval(2.2, 1.0, 3.0),
        replayed_ms=Interval(144.3, 143.0, 145.0),
    )  # fmt: skip
    taken = recording_ms(run)
    assert taken == pytest.approx(2.2)
    assert as_run_sentence(run).startswith("Recording takes 2.2 ms of a profiled step; without it the profiled ones")
    bars = beside_measured([(run, "2 CPU ranks", 161.7, False)])
    assert "161.7" not in as_run_sentence(run) and "profiling overhead" not in bars


@pytest.mark.parametrize(
    ("origin", "how"),
    [
        ("job", ", with profiler.repeat=4 and steps enough for them"),
        ("script", ", with profile_steps(…, repeat=4)"),
        (None, ""),
    ],
)
def test_more_windows_are_written_as_the_reader_would(origin: Origin | None, how: str) -> None:
    run = replace(run_answer("r", 2), origin=origin)
    assert measure_again([run]) == f"measure again on a quiet machine, or in more windows{how}"
    plain = replace(run, model=None, origin=None)
    assert measure_again([plain]).endswith(", with torch.profiler.schedule(…, repeat=4)")
    assert measure_again([replace(run, windows=4)]).count("=8") == (origin is not None)


@pytest.mark.parametrize(("origin", "how"), [("job", "profiler.repeat=4"), ("script", "profile_steps(…, repeat=4)")])
def test_steps_that_are_late_in_all_of_them_need_more_windows_and_no_watch_for_longer_ones(
    origin: Origin, how: str
) -> None:
    cure: Cure = "profile_longer"
    assert cure_text(Remedy(cure=cure, origin=origin)).endswith(how)
    assert "become longer" not in cure_text(Remedy(cure=cure))


def test_a_cost_that_is_more_than_its_cause_says_why() -> None:
    """*Rank 1 costs 52.7 ms: its host does nothing that is recorded for 47.5 ms* was all."""
    assert first_sentence([STALL], 239.4, 2).endswith("before aten::conv2d."), "its interval holds these 47.5 ms"
    above = first_sentence([replace(STALL, low_ms=50.0)], 239.4, 2)
    assert above.endswith(", and 5.2 ms more are waits behind it.")
    beside = EvidenceRow(kind="figure", name="gap_before aten::flatten", ms=5.0)
    both = first_sentence([replace(STALL, low_ms=50.0, evidence=(*STALL.evidence, beside))], 239.4, 2)
    assert "more are waits" not in both, "what it does at its other place is part of it"
    rows = (
        EvidenceRow(kind="figure", name=LATE, value=39.0, ms=52.7),
        EvidenceRow(kind="figure", name=STEADY_STEPS, ms=190.3),
    )
    late = replace(STALL, low_ms=50.0, evidence=(*STALL.evidence, *rows))
    told = first_sentence([late], 239.4, 2)
    assert told.endswith("and all 39 steps tell what it costs: 5.2 ms more than that.")
    assert "a step in the mean, 27.7% of the 190.3 ms mean step" in told, "it is no share of the typical one"
    assert "range" not in first_sentence([replace(STALL, ms=48.0)], 239.4, 2)


def test_parts_of_a_growth_are_told_as_parts_of_the_steps_that_have_them() -> None:
    """*83.5 ms longer … 48.3 ms idle, 24.0 ms slower compute, 22.0 ms exposed wait and 5.6 ms exposed transfer*; and
    *29.3 ms longer: as profiled, 19.8 ms longer on rank 1 … By itself: rank 1 costs 31.6 ms*, three lengths of which no
    word said how they belong together.
    """
    run = replace(run_answer("r", 2), activity="cpu")
    own = {"idle_launch": 48.3, "compute": 24.0, "exposed_transfer": 5.6, "exposed_memory": 3.1}
    run.lost = [
        RankLoss(
            rank=rank, reference="calm", from_step_ms=120.0, to_step_ms=201.0, growth_ms=81.0,
            parts=[WaterfallPart(part=part, ms=ms) for part, ms in of_rank.items()],
            step_change_ms=83.5, step_low_ms=50.0, step_high_ms=115.0, from_measured_ms=115.8, to_measured_ms=199.3,
        )
        for rank, of_rank in ((0, {"exposed_wait": 77.0, "compute": 4.0}), (1, own))
    ]  # fmt: skip
    told = lost_clause(run)
    assert told.startswith("a step is 83.5 ms longer than “calm”'s (115.8 ms to 199.3 ms, medians without a profiler; ")
    assert told.endswith(
        ": in the profiled steps that is mostly 48.3 ms idle (host late), 24.0 ms compute and 5.6 ms exposed "
        "transfer on rank 1, for which the others come to wait"
    ), told


Level = Literal["good", "fair", "poor", "unknown"]


@pytest.mark.parametrize(
    ("ms", "mean_ms", "level"),
    [(3.0, None, "good"), (12.0, None, "fair"), (30.0, None, "poor"), (3.0, 12.0, "fair"), (3.0, 60.0, "poor"),
     (30.0, 12.0, "poor")],
)  # fmt: skip
def test_the_colour_follows_the_size_of_what_was_found(ms: float, mean_ms: float | None, level: Level) -> None:
    """Validation of 78 ms a step was grey like nothing, and a clean job's waits of a tenth amber."""
    run = run_answer("r", 2)
    run.findings = [replace(STALL, ms=ms, low_ms=0.9 * ms, high_ms=1.1 * ms, fraction=ms / 65.5)]
    if mean_ms is not None:
        run.recurring = RecurringSteps(
            every=10, phase=9, phases=[9], rank=None, longer_ms=10 * mean_ms, usual_ms=65.5, mean_ms=mean_ms
        )
    assert run_verdict(run).level == level


def test_nothing_wrong_is_no_alarm_and_what_nothing_explains_is() -> None:
    run = run_answer("r", 2)
    nothing = Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="none")
    run.findings = [nothing]
    assert run_verdict(run).level == "good"
    for one in run.ranks:
        one.compute_ms, one.exposed_wait_ms = 0.6 * one.window_ms, 0.4 * one.window_ms
    run.findings = [replace(STALL, ms=3.0, low_ms=2.0, high_ms=4.0, fraction=0.05)]
    assert run_verdict(run).level == "poor", "two fifths of the step wait, for what nobody knows"


def test_what_rounds_to_nothing_is_no_word() -> None:
    """*0% copies and casts; 0% of it runs with a collective beside* was told of a run on CPUs."""
    run = run_answer("r", 2)
    run.kinds = [
        KindRow(kind=kind, calls=calls, ms=ms, share_of_compute=ms / 50.0, beside_communication_ms=0.01)
        for kind, calls, ms in (("matmul", 10.0, 49.9), ("copies and casts", 2.0, 0.1))
    ]
    assert kind_sentence(run, run.kinds) == "On 2 GPUs compute is 100% matmul."


def test_ranks_on_one_cpu_are_not_several_of_it(tmp_path: Path) -> None:
    """*2 × AMD EPYC* headed the page of two ranks on two cores of one."""
    folder = write_run(tmp_path / "run", 2)
    data = read_report_data(folder)
    info = data.runs[0].info
    assert facts_of(data).startswith(f"{len(info.devices)} × {info.devices[0].name}")
    info.devices = [replace(device, kind="cpu", name="AMD EPYC") for device in info.devices]
    assert facts_of(data).startswith("2 CPU ranks on AMD EPYC")


def test_kernels_of_cpus_are_compared_without_columns_for_data_sheets() -> None:
    row = KernelChange(
        operator="aten::mm", kind="matmul", matched_by="name", baseline_name="aten::mm", other_name="aten::mm",
        baseline_calls=4, other_calls=4, baseline_us=10.0, other_us=12.0, ratio=1.2, share=1.0,
    )  # fmt: skip
    answer = Comparison(baseline="a", other="b", verdict="slower", kernels=[row])
    titles = [column.title for column in kernels_table(answer).columns]
    assert "by data sheets" not in titles and "bound by" not in titles and "ratio a call" in titles
    bound = Comparison(
        baseline="a", other="b", verdict="slower", kernels=[replace(row, bound="memory", expected_ratio=1.1)]
    )
    assert "by data sheets" in [column.title for column in kernels_table(bound).columns]
