"""What a study of an unsteady machine ends with: why it was so, what holds all the same, and the command to try."""

import shlex
from io import StringIO
from pathlib import Path

import msgspec
import pytest
import yaml
from rich.console import Console

from scalescope.cli import sweep, train
from scalescope.launch.compose import compose_job, typed
from scalescope.launch.config import register
from scalescope.launch.studies.outline import outline_study
from scalescope.records.files import RowWriter
from scalescope.records.folder import RunFolder
from scalescope.records.package import CONF
from scalescope.records.rows import JobRow, StepRow
from scalescope.records.steps.worker_times import WorkerTime
from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.html import page_of
from scalescope.report.page import Card
from scalescope.report.report_data import read_report_data
from scalescope.report.sentences import LONGEST, Verdict
from scalescope.report.terminal.verdicts import print_verdict
from scalescope.report.text.again import command_again
from scalescope.report.top.cards import cards_of
from scalescope.report.verdict.run import run_verdict
from scalescope.report.verdict.study import study_verdicts
from scalescope.scaling.analyze import analyze_run, analyze_study
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import CoreWaits, MoreWindows, StepsApart
from scalescope.scaling.planned.more_windows import measured_again, more_windows
from scalescope.scaling.study_answer import MeasuredAgain, StudyAnalysis, write_answer
from scalescope.scaling.verdicts.step_rows.apart import steps_apart
from scalescope.train.config import TrainConfig
from scalescope.train.measure.schedule import make_schedule
from tests.report_samples import RUNS, grown_study, run_answer
from tests.test_scaling_study import add_run

CASES = yaml.safe_load((CONF / "preset" / "demo_cpu.yaml").read_text())["cases"]


def row(step: int, step_ms: float, waits: list[float]) -> StepRow:
    return StepRow(step=step, phase="steady", step_ms=[step_ms] * len(waits), samples_per_s=1.0, tokens_per_s=None,
                   loss=None, validation_loss=None, mfu=None, mfu_of_measured=None, memory_peak_bytes=None,
                   run_delay_ms=waits)  # fmt: skip


def unsteady(*apart: StepsApart | None, high_ms: float = 9.0) -> tuple[StudyAnalysis, list[RunAnalysis]]:
    """Return a study of CPUs whose step grew from 80 to 155 ms, and was profiled in a bad moment on both counts."""
    study = grown_study(52.7)
    study.waterfall[0].unsteady = True
    study.efficiency[-1].efficiency = 0.52
    runs = [msgspec.structs.replace(run_answer(name, n), activity="cpu", origin="job")
            for name, n in zip(RUNS, (1, 2, 4), strict=True)]  # fmt: skip
    for run, step, one in zip((runs[0], runs[-1]), (80.0, 155.0), apart, strict=True):
        assert run.step_times is not None
        run.step_times = msgspec.structs.replace(
            run.step_times, measured_step_ms=step, measured_low_ms=step - high_ms, measured_high_ms=step + high_ms,
            profiling_overhead_ms=-0.2 * step, profiling_overhead_fraction=-0.2, placebo_ms=30.0, unsteady=True,
            apart=one,
        )  # fmt: skip
        run.more_windows = MoreWindows(windows=4, steps=132)
    words = ["model=gpt_small", "steps=132", "profiler.repeat=4", "gpu_counts=[1,4]"]
    study.again = [MeasuredAgain(series="gpt_small", overrides=words)]
    return study, runs


def verdict_of(*apart: StepsApart | None, high_ms: float = 9.0) -> Verdict:
    return study_verdicts(*unsteady(*apart, high_ms=high_ms))[0]


def by_waits(share: float, waits_ms: float) -> StepsApart:
    return StepsApart(by_core_waits=share, waits_ms=waits_ms, steps=13)


def test_steps_that_are_alike_without_their_waits_for_cores_differ_by_these() -> None:
    waits = [5.0, 60.0, 12.0, 45.0, 0.0, 80.0, 33.0, 20.0]
    beside = steps_apart([row(at, 100 + one, [one, 0.3 * one]) for at, one in enumerate(waits)])
    assert beside is not None and beside.is_by_core_waits and beside.by_core_waits == pytest.approx(1.0)
    assert beside.waits_ms == pytest.approx(31.875) and beside.steps == 8
    other = steps_apart([row(at, 100 + one, [1.0 + at % 2]) for at, one in enumerate(waits)])
    assert other is not None and not other.is_by_core_waits and other.by_core_waits < 0.05


def test_rows_that_do_not_all_tell_waits_or_are_few_say_nothing_of_it() -> None:
    rows = [row(at, 100.0 + at, [float(at)]) for at in range(12)]
    assert steps_apart(rows) is not None and steps_apart(rows[:7]) is None
    untold = msgspec.structs.replace(row(12, 104.0, [1.0]), run_delay_ms=[])
    assert steps_apart([*rows, untold]) is None
    assert steps_apart([row(at, 100.0, [1.0]) for at in range(12)]) is None, "steps that do not differ have no why"


def test_an_unsteady_machine_whose_ranks_waited_for_cores_is_said_to_be_so_for_that() -> None:
    """*The machine was unsteady* was all, of one model of two, where each step was longer by what a rank waited."""
    verdict = verdict_of(by_waits(0.97, 59.5), by_waits(0.3, 5.0))
    assert verdict.headline.startswith("gpt_small: the machine was unsteady: ranks waited for cores. 4 CPU ranks do ")
    why = "Why: steps differ by how long a rank waited for a core, 59.5 ms on 1 CPU rank in the mean. "
    assert verdict.sentences[0].startswith(why) and verdict.cautions[0] == verdict.sentences[0]


def test_a_study_whose_own_workers_had_the_cores_names_these_and_no_machine() -> None:
    study, runs = unsteady(by_waits(0.97, 59.5), by_waits(0.9, 30.0))
    waits = CoreWaits(ms=40.0, low_ms=20.0, high_ms=60.0, mean_step_ms=120.0, steps=30)
    for run in (runs[0], runs[-1]):
        assert run.step_times is not None
        run.step_times, run.cores_full = msgspec.structs.replace(run.step_times, core_waits=waits), True
        run.worker_times = [WorkerTime(rank=rank, processes=1, cores=0.5) for rank in range(run.world_size)]
    verdict = study_verdicts(study, runs)[0]
    assert verdict.headline.startswith("gpt_small: the job's own loader workers have the ranks' cores. 4 CPU ranks do ")
    assert verdict.sentences[0].endswith("Its own loaders' workers had it.")
    runs[0].worker_times = []
    verdict = study_verdicts(study, runs)[0]
    assert verdict.headline.startswith("gpt_small: the machine was unsteady: ranks waited for cores. ")
    assert "Other processes, or the job's own other threads, had it." in verdict.sentences[0]


@pytest.mark.parametrize(
    ("apart", "why"),
    [
        ((by_waits(0.05, 0.5), by_waits(0.2, 9.0)),
         "Why steps differ so from one to the next cannot be told: waits for a core explain only 5% of the "
         "differences on 1 CPU "),
        ((by_waits(0.003, 0.5), by_waits(0.06, 9.0)),
         "Why steps differ so from one to the next cannot be told: waits for a core explain hardly any of the "
         "differences on 1 CPU rank and only 6% on 4 CPU ranks"),
        ((None, None), "Why steps differ so from one to the next cannot be told: rows of too few steps tell"),
    ],
)  # fmt: skip
def test_where_nothing_tells_why_that_is_said_with_its_reason(
    apart: tuple[StepsApart | None, StepsApart | None], why: str
) -> None:
    verdict = verdict_of(*apart)
    assert verdict.sentences[0].startswith(why)
    assert "the machine was unsteady. 4 CPU ranks" in verdict.headline, "the first sentence claims no cause"


def test_few_measured_steps_are_named_beside_it() -> None:
    study, runs = unsteady(None, None)
    for count, few in ((7, True), (43, False)):
        for run in (runs[0], runs[-1]):
            assert run.step_times is not None
            run.step_times = msgspec.structs.replace(run.step_times, measured_steps=count)
        told = study_verdicts(study, runs)[0].sentences[0]
        assert told.endswith("7 measured steps are few, too.") == few


def test_what_holds_although_the_machine_was_unsteady_follows_it() -> None:
    """*The growths agree* stood beside *the machine was unsteady*, without a word of how both can be."""
    verdict = verdict_of(None, None)
    agree = "the profiled steps are far from the measured ones. Despite that, both growths agree: "
    assert agree in verdict.sentences[1] and "of the profiled steps alone (80.0 ms to 156.0 ms" in verdict.sentences[1]
    assert "What holds all the same: the measured step did grow, by 62 ms to 88 ms." in verdict.sentences
    assert not [one for one in verdict_of(None, None, high_ms=60.0).sentences if one.startswith("What holds")]


def test_growths_that_agree_beside_an_unsteady_run_are_told_as_agreeing_despite_it() -> None:
    study, runs = unsteady(None, None)
    study.waterfall[0].unsteady = False
    verdict = study_verdicts(study, runs)[0]
    agree = "Despite that, the profiled step grew as the measured one did, within what such steps differ by."
    unlike = next(one for one in verdict.sentences if "the profiled steps are" in one)
    at = verdict.sentences.index(agree)
    assert verdict.sentences.index(unlike) < at and "52.7" not in unlike
    assert "by which a step grew" in verdict.sentences[at + 1]
    assert unlike not in verdict.notes, "it is said once"
    study.waterfall[0].measured_growth_ms = 30.0
    assert agree not in study_verdicts(study, runs)[0].sentences


def test_a_card_without_bars_says_its_reason_once() -> None:
    card = Card(verdict_of(None, None))
    assert card.verdict.sentences[0] in card.verdict.cautions and card.verdict.sentences[0] not in card.explained
    assert card.explained == [one for one in card.verdict.sentences if one not in card.verdict.cautions]


def test_a_loss_beyond_noise_is_called_so_first_though_its_cause_cannot_be_told() -> None:
    """Of one model the first sentence ended with the figure, as if it had no more to say."""
    assert verdict_of(None, None).headline.endswith(
        "efficiency; the loss is beyond noise, but its cause cannot be told."
    )
    assert "within noise the loss may be nothing" in verdict_of(None, None, high_ms=60.0).headline


def test_no_sentence_of_an_unsteady_study_is_too_long_to_be_read_at_once() -> None:
    for apart in ((None, None), (by_waits(0.9, 59.5), by_waits(0.8, 79.4)), (by_waits(0.1, 1.0), by_waits(0.2, 2.0))):
        verdict = verdict_of(*apart)
        for text in (verdict.headline, *verdict.sentences, *verdict.cautions, verdict.advice):
            assert all(len(one.split()) <= LONGEST for one in text.split(". ")), text


def test_the_advice_to_measure_again_comes_with_the_command_on_a_line_of_its_own() -> None:
    """*With profiler.repeat=4 and steps enough for them* gave neither a number nor anything to paste."""
    study, runs = unsteady(None, None)
    verdict = study_verdicts(study, runs)[0]
    assert "in more windows, with profiler.repeat=4 steps=132" in verdict.advice and "steps enough" not in verdict.text
    command = "scalescope study model=gpt_small steps=132 profiler.repeat=4 gpu_counts=[1,4]"
    assert verdict.command == command
    print_verdict(Console(file=(shown := StringIO()), width=40, force_terminal=True, color_system=None), verdict)
    assert f"  {command}\n" in shown.getvalue(), "a terminal's width does not break it"
    study.again = []
    assert study_verdicts(study, runs)[0].command == command_again(study, "gpt_small") == ""


def test_a_path_in_the_command_is_quoted_as_a_shell_takes_it() -> None:
    words = ["data.path=/a b/c", "gpu_counts=[1,2]"]
    study = StudyAnalysis(name="s", again=[MeasuredAgain(series="s", overrides=words)])
    command = command_again(study, "s")
    assert shlex.split(command) == ["scalescope", "study", *words] and "gpu_counts=[1,2]" in command


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[0]))
def test_the_command_has_steps_enough_for_its_windows_and_is_one_that_a_study_takes(case: list[str]) -> None:
    register()
    schema = train.verb().schema
    config = typed(compose_job("train", [*case, "launch.device=cpu"]), schema)
    assert isinstance(config, TrainConfig)
    more = more_windows({"steps": config.steps, "profiler": {"enabled": True, "repeat": config.profiler.repeat}})
    assert more is not None and more.windows == 4
    again = measured_again("m", "weak", [1, 2], JobRow("train", "m-n2", 2, case), more)
    (two, one, *_) = outline_study(again.overrides, train.verb(), sweep.verb()).members
    assert (one.ranks, two.ranks) == (1, 2)
    larger = typed(compose_job("train", [*two.overrides, "launch.device=cpu"]), schema)
    assert isinstance(larger, TrainConfig)
    before, after = make_schedule(config), make_schedule(larger)
    assert (len(before.windows), len(after.windows)) == (2, 4) and after.steady_steps >= 2 * before.steady_steps
    recorded = [one.end - one.active for one in (before.windows[0], after.windows[-1])]
    assert recorded[1] >= recorded[0]


def test_of_a_job_that_profiles_nothing_or_is_nobody_of_ours_no_windows_are_told() -> None:
    assert more_windows({}) is None and more_windows({"steps": 60, "profiler": {"enabled": False}}) is None
    assert more_windows({"steps": 61, "profiler": {"enabled": True, "repeat": 2}}) == MoreWindows(windows=4, steps=124)
    assert more_windows({"steps": 60, "profiler": {"enabled": True, "repeat": 4}}) == MoreWindows(windows=8, steps=120)


def kept_study(path: Path) -> RunFolder:
    """Return a study's folder whose jobs are kept, with their configs."""
    study = RunFolder.create(path / "study", "study", "verb: study")
    words = ["model=gpt_small", "steps=20", "+profiler.wait=8"]
    with RowWriter(study.jobs) as writer:
        for ranks in (1, 2):
            writer.append(JobRow("train", f"gpt-{ranks}", ranks, words))
    for ranks, step_ms in ((1, 49.0), (2, 89.0)):
        run = add_run(study.path, f"gpt-{ranks}", "cpu_ddp_n2", ranks, step_ms)
        run.config.write_text("steps: 20\nprofiler:\n  enabled: true\n  repeat: 1\n")
    return study


def test_a_studys_answer_holds_how_it_is_measured_again(tmp_path: Path) -> None:
    study = kept_study(tmp_path)
    answer, runs = analyze_study(study)
    words = ["model=gpt_small", "+profiler.wait=8", "steps=80", "profiler.repeat=4", "gpu_counts=[1,2]"]
    assert [one.overrides for one in answer.again] == [words]
    assert {run.name: run.more_windows for run in runs} == dict.fromkeys(
        ("gpt-1", "gpt-2"), MoreWindows(windows=4, steps=80)
    )
    study.jobs.write_text("{no json")
    assert analyze_study(study)[0].again == [], "a damaged file costs the command alone"


def test_a_single_run_that_is_doubtful_tells_the_steps_too(tmp_path: Path) -> None:
    run = RunFolder(kept_study(tmp_path).path / "gpt-2")
    answer = analyze_run(run)
    assert answer.more_windows == MoreWindows(windows=4, steps=80)
    _, runs = unsteady(None, None)
    assert run_verdict(runs[-1]).advice.startswith(
        "measure again on a quiet machine, or in more windows, with profiler."
    )


def test_the_page_shows_the_same_first_sentence_figure_and_command_as_the_terminal(tmp_path: Path) -> None:
    study = kept_study(tmp_path)
    answer, runs = analyze_study(study)
    answer.waterfall[0].unsteady = True
    write_answer(study.analysis, answer)
    for run in runs:
        write_answer(study.path / run.name / "analysis.json", run)
    data = read_report_data(study)
    assert page_of(data)
    (card, *_) = cards_of(data)
    (verdict, *_) = study_verdicts(answer, runs)
    assert card.verdict.command == verdict.command != "" and card.verdict.headline == verdict.headline
    assert card.figures[0].value in verdict.headline
    assert verdict.sentences[0] in verdict.cautions and verdict.sentences[0] not in card.folded, "it is said once"


@pytest.mark.parametrize(
    ("half_ms", "told"), [(0.05, "52.0% weak"), (9.0, "52.0% (48.1% to 56.7%) weak"), (30.0, "52% (41% to 72%) weak")]
)
def test_an_efficiency_has_its_interval_and_no_digits_below_it(half_ms: float, told: str) -> None:
    assert f": {told} scaling efficiency" in verdict_of(None, None, high_ms=half_ms).headline


def test_a_length_has_no_digits_below_its_interval() -> None:
    assert (milliseconds(154.96, 210.2), milliseconds(154.96, 4.0), milliseconds(154.96)) == (
        "155 ms",
        "155.0 ms",
        "155.0 ms",
    )
    assert milliseconds(0.4213, 0.3) == "0.42 ms" and milliseconds(0.4213, 20.0) == "0 ms"


@pytest.mark.parametrize("share", [0.84, 0.2, None])
def test_one_run_of_an_unsteady_machine_says_what_its_steps_differ_by_where_rows_tell_that(share: float | None) -> None:
    """Its answer held what waits for a core make of that, and its verdict said *the machine was unsteady* alone."""
    run = unsteady(None, None if share is None else by_waits(share, 8.1))[1][-1]
    verdict = run_verdict(run)
    by_cores = share is not None and share > 0.5
    assert ("the machine was unsteady: ranks waited for cores. Of the profiled" in verdict.headline) == by_cores
    said = {
        0.84: "Why: steps differ by how long a rank waited for a core, 8.1 ms in the mean. ",
        0.2: "Why steps differ so from one to the next cannot be told: waits for a core explain only 20% of the "
        "differences",
    }.get(share or 0.0)
    told = [one for one in verdict.sentences if one.startswith("Why")]
    assert bool(said) == bool(told) and all(one.startswith(said or "") and one in verdict.cautions for one in told)
