"""A job whose own untraced steps contradict its traces did not run evenly: that is said before anything else."""

from io import StringIO
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from rich.console import Console

from scalescope.records.folder import RunFolder
from scalescope.records.steps.unevenness import UNLIKE
from scalescope.report.as_run.recording import as_run_sentence
from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.html import write_report
from scalescope.report.sentences import loss_sentence
from scalescope.report.steadiness import profiling_line, unlike_sentence
from scalescope.report.terminal.run import print_run
from scalescope.report.verdict.run import run_verdict
from scalescope.report.verdict.study import study_verdicts
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import AsRun, Replay, RunAnalysis
from scalescope.scaling.answer_steps import CoreWaits, LongSteps, RecurringSteps, StepTimes
from scalescope.scaling.as_run.step import mark_unsteady
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.figures import STEADY_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.verdicts.step_rows.doubt import is_doubtful, was_unsteady
from scalescope.scaling.windows.add import join_windows
from tests.report_samples import run_answer, run_with_steps, study_answer

JOB = Path(__file__).parent / "data" / "gather_sm_n2"  # 2.2 ms a step


def own_run(path: Path, steady_ms: float) -> RunAnalysis:
    """Return the answer for a run with these traces, whose untraced steps are so long and whose profiled are 2.2 ms."""
    (answer,) = analyze([run_with_steps(path, JOB, steady_ms, 2.2)], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer


@pytest.mark.parametrize(("steady_ms", "contradicts"), [(0.4, "too_short"), (4.0, "too_long"), (2.2, None)])
def test_own_steps_that_contradict_the_traces_are_said_first(
    steady_ms: float, contradicts: str | None, tmp_path: Path
) -> None:
    answer = own_run(tmp_path / "run", steady_ms)
    assert answer.as_run is not None and answer.as_run.contradicts == contradicts
    assert answer.as_run.untraced_by == "steps" and answer.step_times is not None
    verdict = run_verdict(answer)
    unsteady = f"{answer.model} · {answer.strategy} · 2 GPUs: the machine was unsteady. Of the profiled steps alone: "
    assert verdict.headline.startswith(unsteady) == (contradicts is not None)
    # how far its traces can be trusted says no other thing than the first sentence
    assert (answer.quality.verdict, answer.quality.unsteady) == (
        ("good", False) if contradicts is None else ("degraded", True)
    )
    if contradicts is not None:
        assert answer.step_times.unsteady and verdict.level == "unknown"
        assert "The job's own untraced step of" in verdict.sentences[0] and "did not run evenly" in verdict.sentences[0]
        assert "another job's" not in verdict.text and verdict.advice.startswith("measure again")
        page = write_report(RunFolder(tmp_path / "run")).read_text().replace("\N{NO-BREAK SPACE}", " ")
        assert page.index("the machine was unsteady") < page.index("What may help most")
        print_run(answer, Console(file=(shown := StringIO()), width=400))
        assert "the machine was unsteady" in shown.getvalue().strip().splitlines()[0]


def profiled(overhead_ms: float, recording: Interval) -> RunAnalysis:
    run = run_answer("r", 2)
    run.step_times = StepTimes(measured_step_ms=30.5, measured_step_p95_ms=33.0, measured_steps=24, window_step_ms=49.0,
                               profiling_overhead_ms=overhead_ms, profiling_overhead_fraction=overhead_ms / 30.5,
                               placebo_ms=4.0)  # fmt: skip
    run.as_run = AsRun(step_ms=47.3, source="steps", untraced_ms=Interval(47.3, 40.0, 50.0), untraced_by="steps",
                       recording_ms=recording)  # fmt: skip
    mark_unsteady(run)
    return run


def test_what_recording_does_not_cost_is_no_profiling_overhead() -> None:
    """One page said that recording costs 2.2 ms, and another line of it that profiling does 18.8."""
    run = profiled(18.8, Interval(2.2, 0.1, 35.8))
    told = unlike_sentence(run, "2 GPUs")
    assert (
        "unsteady: the profiled steps are 62% longer than the measured ones (in the median 49.3 ms for 30.5 ms)" in told
    )
    assert "more than recording can make them" in told and profiling_line(run) == ""  # lengths are told once
    assert is_doubtful(run) and "the machine was unsteady" in run_verdict(run).headline
    for overhead_ms, recording in ((18.8, Interval(17.0, 14.0, 20.0)), (4.5, Interval(2.2, 0.1, 35.8))):
        dear = profiled(overhead_ms, recording)
        assert not is_doubtful(dear)
        if overhead_ms / 30.5 < UNLIKE:
            assert f"the profiled ones {overhead_ms:.2f} ms longer" in profiling_line(dear)
        else:
            longer = milliseconds(30.5 + overhead_ms)
            assert (
                f"than the measured ones (in the median {longer} for 30.5 ms), which profiling costs them, "
                in unlike_sentence(dear, "2 GPUs")
            )


def recorded_on_devices(as_run_ms: float) -> RunAnalysis:
    """Return a run whose recorded steps take 96 ms and the job's 50 others 71.8 ms, replayed to so many without it."""
    run = run_answer("r", 2)
    run.replay = Replay(traced_ms=96.3, replayed_ms=96.3, error=0.0, unexplained_ms=0.0, faithful=True)
    run.step_times = StepTimes(measured_step_ms=71.8, measured_step_p95_ms=85.7, measured_steps=50,
                               window_step_ms=96.3, profiling_overhead_ms=34.2, profiling_overhead_fraction=0.476,
                               placebo_ms=11.5)  # fmt: skip
    costs = 96.3 - as_run_ms
    run.as_run = AsRun(step_ms=as_run_ms, low_ms=51.1, high_ms=89.4, source="steps", untraced_by="steps",
                       untraced_ms=Interval(70.2, 51.1, 89.4), ranks=list(run.ranks), steps=2,
                       recording_ms=Interval(costs, min(5.0, costs), 45.0))  # fmt: skip
    mark_unsteady(run)
    return run


def test_what_the_step_as_run_accounts_for_is_not_told_again_as_a_doubt() -> None:
    """*As run 69.2 ms* stood above *106.0 ms for 71.8 ms, so the other steps may spend their time otherwise*."""
    run = recorded_on_devices(69.2)
    assert unlike_sentence(run, "2 GPUs") == "" and profiling_line(run) == ""
    # the two figures for a step that is not recorded stand in one sentence, each with the steps that it is of
    assert as_run_sentence(run).endswith(
        "as run it takes 69.2 ms (51.1 ms to 89.4 ms), by the job's own steps beside the window; all 50 steady steps "
        "take 71.8 ms in the median."
    )
    assert run.as_run is not None and run.as_run.step_ms is not None
    run.as_run.low_ms, run.as_run.high_ms = 68.0, 70.0  # as well known as that, the figure says all there is to say
    assert "takes 69.2 ms, by" in as_run_sentence(run)
    print_run(run, Console(file=(shown := StringIO()), width=400))
    assert "may spend their time otherwise" not in shown.getvalue()
    assert "steady steps" not in as_run_sentence(recorded_on_devices(71.5)), "one figure"
    far = recorded_on_devices(88.0)  # as run it is still none of the steps that the job timed
    assert "may spend their time otherwise" in unlike_sentence(far, "2 GPUs")
    assert as_run_sentence(far).endswith("beside the window.")


def test_steps_that_cannot_be_replayed_are_longer_by_no_more_than_each_record_costs() -> None:
    """Nothing had been taken out of such steps, and 96 ms for some hundred operators were *what profiling costs*."""
    for at_most, doubtful in ((8.0, True), (18.0, False), (None, False)):
        run = profiled(18.8, Interval(2.2, 0.1, 35.8))
        assert run.step_times is not None
        run.step_times.unsteady = False
        run.as_run = AsRun(step_ms=30.5, source="steps", reason="not_replayed", recording_at_most_ms=at_most)
        mark_unsteady(run)
        assert is_doubtful(run) == doubtful
        assert ("which profiling costs them" in unlike_sentence(run, "2 CPU ranks")) != doubtful


def contradicted(run: RunAnalysis) -> RunAnalysis:
    run.as_run = AsRun(step_ms=60.0, low_ms=40.0, high_ms=70.0, source="steps", reason="not_reached",
                       untraced_ms=Interval(45.0, 44.0, 46.0), untraced_by="steps", contradicts="too_short",
                       contradicted_ms=65.0, without_recording_ms=60.0)  # fmt: skip
    return run


def test_one_window_that_contradicts_makes_the_run_unsteady_and_is_told_by_its_own_figures() -> None:
    even, uneven, run = run_answer("r", 2), contradicted(run_answer("r", 2)), run_answer("r", 2)
    even.as_run = AsRun(step_ms=50.0, source="steps", untraced_ms=Interval(50.0, 49.0, 51.0), untraced_by="steps")
    run.windows = 2
    even.replay = uneven.replay = Replay(traced_ms=99.0, replayed_ms=99.0, error=0.0, unexplained_ms=0.0, faithful=True)
    join_windows(run, [even, uneven])
    assert run.step_times is not None and run.step_times.unsteady
    told = "own untraced step of 45.0 ms contradicts the traces: without all that recording can cost, the 65.0 ms step"
    assert f"{told} of one window still takes 60.0 ms" in run_verdict(run).text


def test_a_study_whose_largest_runs_own_steps_contradict_its_traces_says_so_first() -> None:
    runs = [run_answer(f"gpt_small-n{n}", n) for n in (1, 2, 4)]
    study = study_answer("s", [run.name for run in runs])
    assert "unsteady" not in study_verdicts(study, runs)[0].headline
    contradicted(runs[-1])
    times = runs[-1].step_times
    assert times is not None
    runs[-1].step_times = msgspec.structs.replace(times, unsteady=True)
    verdict = study_verdicts(study, runs)[0]
    assert verdict.headline.startswith("gpt_small: the machine was unsteady. ") and verdict.level == "unknown"
    assert any("own steps contradict its traces" in text for text in verdict.cautions)


def test_a_study_whose_smallest_run_was_profiled_in_a_bad_moment_says_so_first() -> None:
    """All that grew is told from there: 21% longer than measured, and nothing but a folded note said so."""
    runs = [run_answer(f"gpt_small-n{n}", n) for n in (1, 2, 4)]
    study = study_answer("s", [run.name for run in runs])
    times = runs[0].step_times
    assert times is not None
    runs[0].step_times = msgspec.structs.replace(
        times, profiling_overhead_ms=13.0, profiling_overhead_fraction=0.21, placebo_ms=20.0, unsteady=True
    )
    verdict = study_verdicts(study, runs)[0]
    assert verdict.headline.startswith("gpt_small: the machine was unsteady. ") and verdict.level == "unknown"
    assert [text for text in verdict.cautions if "On 1 GPU the machine was unsteady" in text]


@pytest.mark.parametrize(
    ("as_run", "activity", "doubtful"),
    [
        (Interval(323.7, 318.0, 330.0), "cpu", True),
        (Interval(323.7, 318.0, 350.0), "cpu", False),  # as far as that is known, it is the measured one
        (Interval(340.0, 338.0, 342.0), "cpu", False),  # near enough
        (Interval(323.7, 318.0, 330.0), "gpu", False),  # a window leaves slower steps behind it
    ],
)
def test_a_step_as_run_that_is_not_the_measured_one_makes_the_run_unsteady(
    as_run: Interval, activity: Literal["cpu", "gpu"], doubtful: bool
) -> None:
    """343.4 ms were measured, and 323.7 drawn as run, without a word beside it."""
    run = msgspec.structs.replace(run_answer("r", 2), activity=activity)
    run.step_times = StepTimes(measured_step_ms=343.4, measured_step_p95_ms=350.0, measured_steps=7,
                               window_step_ms=335.0, profiling_overhead_ms=-3.0, profiling_overhead_fraction=-0.01,
                               placebo_ms=6.0)  # fmt: skip
    run.as_run = AsRun(step_ms=as_run.value, low_ms=as_run.low, high_ms=as_run.high, source="steps",
                       untraced_ms=as_run, untraced_by="steps")  # fmt: skip
    assert is_doubtful(run) == doubtful
    told = unlike_sentence(run, "2 CPU ranks")
    assert told.startswith(
        "On 2 CPU ranks the machine was unsteady: by the steps beside the profiled ones a step takes 323.7 ms "
        "(318.0 ms to 330.0 ms) as run, by all of them 343.4 ms, "
    ) == doubtful  # fmt: skip
    assert ("the machine was unsteady" in run_verdict(run).headline) == doubtful


def unsteady_cpu_run(profiled_ms: float, findings: list[Finding]) -> RunAnalysis:
    run = msgspec.structs.replace(run_answer("r", 2), activity="cpu", findings=findings)
    run.step_times = StepTimes(measured_step_ms=76.4, measured_step_p95_ms=90.0, measured_steps=37,
                               window_step_ms=profiled_ms, profiling_overhead_ms=profiled_ms - 76.4,
                               profiling_overhead_fraction=profiled_ms / 76.4 - 1, placebo_ms=4.0,
                               unsteady=True)  # fmt: skip
    return run


def test_where_nothing_was_found_an_unsteady_machine_made_none_of_it_if_the_profiled_steps_are_the_longer_ones() -> (
    None
):
    """Of clean loops on two quiet cores *the machine was unsteady* was the first sentence, and to measure again."""
    nothing = Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="replay", evidence=(), remedy=None)
    longer, shorter = unsteady_cpu_run(87.5, [nothing]), unsteady_cpu_run(65.0, [nothing])
    assert was_unsteady(longer) and not is_doubtful(longer)
    told = run_verdict(longer)
    assert "unsteady" not in told.headline and "measure again" not in told.advice
    assert "The machine was unsteady: steps differ by more than anything that was found costs." in told.sentences
    assert is_doubtful(shorter), "what the other steps lose need not be in the shorter ones"
    assert is_doubtful(unsteady_cpu_run(87.5, []))


def test_loading_that_is_as_long_in_every_step_is_no_unsteady_machines_doing() -> None:
    loading = Finding(code="data_loading", ms=25.3, low_ms=24.1, high_ms=26.6, backed="replay", evidence=(),
                      remedy=Remedy(cure="load_ahead"))  # fmt: skip
    run = unsteady_cpu_run(140.0, [loading])
    steps = [msgspec.structs.replace(one, open_ended=False) for one in run.steps[:1] * 6]
    for spent_ms, doubtful in (
        ((25.6, 25.4, 25.1, 25.8, 25.5, 25.2), False),
        ((3.0, 60.0, 25.0, 2.0, 40.0, 20.0), True),
    ):
        run.steps = [msgspec.structs.replace(one, idle_data_ms=ms) for one, ms in zip(steps, spent_ms, strict=True)]
        assert is_doubtful(run) == doubtful
    assert was_unsteady(run) and "2 CPU ranks: the machine was unsteady. " in run_verdict(run).headline


@pytest.mark.parametrize(
    ("profiled_ms", "waited_ms", "doubtful"),
    [
        (84.6, 7.5, False),  # what a window records takes fresh pages, and no other process
        (84.6, 19.0, True),  # others had the cores meanwhile
        (84.6, None, True),  # nothing tells
        (138.0, 7.5, True),  # by more than pages take
        (65.0, 7.5, True),
    ],
)
def test_profiled_steps_that_waited_for_cores_no_longer_are_longer_by_recording_and_by_no_machine(
    profiled_ms: float, waited_ms: float | None, doubtful: bool
) -> None:
    """A sleep of 20 ms in each step stood behind *the machine was unsteady*, on one that nobody else used."""
    stall = Finding(code="slower_compute", rank=1, ms=19.8, low_ms=19.0, high_ms=21.2, backed="replay", evidence=(),
                    remedy=Remedy(cure="look_at_device"))  # fmt: skip
    run = unsteady_cpu_run(profiled_ms, [stall])
    assert run.step_times is not None
    waits = CoreWaits(ms=7.0, low_ms=5.0, high_ms=8.5, mean_step_ms=77.0, steps=37, profiled_ms=[waited_ms or 0.0] * 2)
    run.step_times = msgspec.structs.replace(run.step_times, core_waits=waits if waited_ms is not None else None)
    assert is_doubtful(run) == doubtful


@pytest.mark.parametrize(
    ("placebo_ms", "long_ms", "told"),
    [
        (
            3444.2,
            None,
            "363.8 ms in the median, and a few steps in a row differ from that by up to",
        ),
        (40.0, 685.3, "363.8 ms in the median and 1,002 ms in the mean, most of it in a few steps, so "),
        (40.0, 300.0, ""),
        (300.0, None, ""),
    ],
)
def test_steps_that_lie_apart_by_more_than_one_takes_make_the_run_unsteady(
    placebo_ms: float, long_ms: float | None, told: str
) -> None:
    """Steps took 187 to 3,968 ms beside other processes, three alike were profiled: *nothing is wrong*, it was said."""
    run = msgspec.structs.replace(run_answer("r", 1), activity="cpu")
    long = None if long_ms is None else LongSteps(count=11, each_ms=1807.0, ms=long_ms, low_ms=201.0, high_ms=1169.0,
                                                  mean_step_ms=1002.2)  # fmt: skip
    run.step_times = StepTimes(measured_step_ms=363.8, measured_step_p95_ms=3764.0, measured_steps=29,
                               window_step_ms=369.0, profiling_overhead_ms=6.3, profiling_overhead_fraction=0.017,
                               placebo_ms=placebo_ms, long_steps=long)  # fmt: skip
    assert is_doubtful(run) == bool(told)
    assert ("the machine was unsteady. Of the profiled steps alone: " in run_verdict(run).headline) == bool(told)
    assert told in unlike_sentence(run, "1 CPU rank") and bool(unlike_sentence(run, "1 CPU rank")) == bool(told)
    if long is not None and told:  # with the stall's cause known, or a validation every so often, it is told as such
        run.recurring = RecurringSteps(every=10, phase=3, phases=[3], rank=None, longer_ms=6850.0, usual_ms=363.8,
                                       mean_ms=685.0)  # fmt: skip
        assert not is_doubtful(run)
        run.recurring = None
        run.step_times.long_steps = msgspec.structs.replace(long, cause="loading")
        assert not is_doubtful(run)


def test_an_answer_from_before_the_field_tells_unsteadiness_all_the_same() -> None:
    old = b'{"measured_step_ms":90,"measured_step_p95_ms":91,"measured_steps":24,"window_step_ms":50,'
    old += b'"profiling_overhead_ms":-40,"profiling_overhead_fraction":-0.44,"placebo_ms":1}'
    assert msgspec.json.decode(old, type=StepTimes).unsteady


def test_growths_that_recording_sets_apart_say_so() -> None:
    (fall, *_) = study_answer("s", ["1", "2", "4"]).waterfall
    apart = msgspec.structs.replace(fall, measured_growth_ms=fall.growth_ms - 1.0, noise_ms=0.5)
    assert "recording lengthens the profiled steps" in loss_sentence(apart)
    even = msgspec.structs.replace(fall, measured_growth_ms=fall.growth_ms - 0.3, noise_ms=0.5)
    assert "recording" not in loss_sentence(even)


def test_a_step_that_was_given_and_that_no_cost_of_recording_explains_is_not_what_the_run_is_told_to_take() -> None:
    """`as run it takes 165.2 ms, by the step that was given` was told where 103 ms had been given."""
    run = run_answer("r", 2)
    run.replay = Replay(traced_ms=184.0, replayed_ms=184.0, error=0.0, unexplained_ms=0.0, faithful=True)
    run.as_run = AsRun(step_ms=165.2, low_ms=102.0, high_ms=165.2, source="given", reason="not_reached",
                       untraced_ms=Interval(103.0, 102.0, 104.0), recording_ms=Interval(19.0, 19.0, 82.3),
                       ranks=list(run.ranks), steps=3)  # fmt: skip
    assert as_run_sentence(run).startswith("Recording costs 19.0 ms of the 184.0 ms step: as run it takes 165.2 ms")
    assert "as near as it gets to the 103.0 ms of a step without a profiler" in as_run_sentence(run)
    run.as_run.reason = None
    assert "by the step that was given" in as_run_sentence(run)


def test_each_step_length_is_told_once_and_as_what_it_is(tmp_path: Path) -> None:
    """A cost of recording of 0.00 ms does not make a step longer; nor are medians told beside a mean of all steps."""
    even = run_answer("r", 2)
    assert even.step_times is not None
    assert profiling_line(even).startswith(
        "A step takes 65.51 ms without a profiler, the profiled ones 0.40 ms longer."
    )
    even.replay = Replay(traced_ms=40.0, replayed_ms=40.0, error=0.0, unexplained_ms=0.0, faithful=True)
    nothing = Interval(0.0, 0.0, 0.0)
    even.as_run = AsRun(step_ms=50.0, source="not_needed", recording_ms=nothing, ranks=list(even.ranks), steps=3)
    assert "Recording costs" not in as_run_sentence(even)
    assert as_run_sentence(even).startswith("As run a step takes 50.0 ms, ")
    print_run(even, Console(file=(shown := StringIO()), width=400))
    assert "is of the steps whose end a next one tells, 40.0 ms as profiled" in shown.getvalue()
    late = Finding(code="data_loading", rank=1, ms=90.0, low_ms=80.0, high_ms=95.0, backed="measured",
                   evidence=(EvidenceRow(kind="figure", name=STEADY_STEPS, ms=100.0),))  # fmt: skip
    even.findings = [late]
    even.step_times = msgspec.structs.replace(even.step_times, profiling_overhead_ms=-25.0,
                                              profiling_overhead_fraction=-0.5)  # fmt: skip
    told = unlike_sentence(even, "2 GPUs")
    assert told.startswith("On 2 GPUs the profiled steps are not like the mean one") and "24." not in told
    assert profiling_line(even) == ""
