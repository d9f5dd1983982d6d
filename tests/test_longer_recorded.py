"""Recorded steps that are longer than those before and after them: the window's doing, where these agree."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest

from scalescope.records.rows import StepPhase, StepRow
from scalescope.records.steps.longer_recorded import longer_recorded
from scalescope.report.as_run.shown import name_of_step, step_of_job
from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.report.steadiness import longer_recorded_sentences
from scalescope.report.text.of_step import of_step
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import SteadyStretch, UnevenSteps
from scalescope.scaling.as_run.step import step_as_run
from tests.report_samples import run_with_traces

JOB = Path(__file__).parent / "data" / "cpu_ddp_n2"


def _rows(
    lengths: Sequence[float], recorded: Sequence[int], waits: float = 2.0, computes: float = 0.95, loads: float = 1.0
) -> tuple[list[StepRow], list[StepRow]]:
    """Return steady and recorded rows of these lengths, ms; in steady ones the rest is 2 ms, 95% and 1 ms.

    `waits` and `loads` are ms, `computes` is a share of the step.
    """
    found: tuple[list[StepRow], list[StepRow]] = ([], [])
    for step, ms in enumerate(lengths):
        own = step in recorded
        phase: StepPhase = "profile" if own else "steady"
        wait, load = (waits, loads) if own else (2.0, 1.0)
        found[own].append(
            StepRow(step=step, phase=phase, step_ms=[ms, ms], samples_per_s=1.0, run_delay_ms=[wait, 1.0],
                    loading_ms=[load, load], on_cpu_ms=[(computes if own else 0.95) * ms] * 2)
        )  # fmt: skip
    return found


def _lengths(before: float, own: float, after: float, uneven: float = 0.03) -> list[float]:
    """Return lengths of 20 steps before a window, of 10 in it and of 20 after it, each about so long."""
    chance = Random(3)
    return [ms * (1 + uneven * chance.uniform(-1, 1)) for ms in [before] * 20 + [own] * 10 + [after] * 20]


WINDOW = range(20, 30)


def test_recorded_steps_beyond_those_before_and_after_them_are_the_windows_doing() -> None:
    """Steps of 130 ms between ones of 75 and 79 were told as an unsteady machine."""
    found = longer_recorded(*_rows(_lengths(75, 130, 79), WINDOW))
    assert found is not None
    assert (found.before_ms, found.recorded_ms, found.after_ms) == pytest.approx((75, 130, 79), rel=0.02)


@pytest.mark.parametrize(
    "lengths",
    [
        _lengths(75, 130, 100),  # the job's own steps became longer
        _lengths(75, 79, 76),  # by a few per cent steps differ anyway
        _lengths(75, 60, 76),
        [*[75.0] * 10, *[119.0] * 10, *[125.0] * 10, *[75.0] * 10, *[119.0] * 10],  # as many in a row differ so anyway
        [75.0] * 20 + [130.0] * 10 + [76.0] * 3,  # too few after it
        [130.0] * 10 + [76.0] * 40,
    ],
)
def test_where_the_steps_beside_a_window_do_not_agree_or_are_as_long_it_is_not_to_blame(lengths: list[float]) -> None:
    recorded = range(10) if lengths[0] == lengths[9] == 130.0 else WINDOW
    assert longer_recorded(*_rows(lengths, recorded)) is None


@pytest.mark.parametrize(("waits", "computes", "loads"), [(30.0, 0.95, 1.0), (2.0, 0.6, 1.0), (2.0, 0.95, 40.0)])
def test_a_window_in_which_others_had_the_cores_or_batches_were_late_is_not_to_blame(
    waits: float, computes: float, loads: float
) -> None:
    assert longer_recorded(*_rows(_lengths(75, 130, 79), WINDOW, waits, computes, loads)) is None


def test_each_of_several_windows_has_its_own_neighbours() -> None:
    lengths = [75.0] * 10 + [130.0] * 3 + [76.0] * 10 + [132.0] * 3 + [77.0] * 10
    lengths = [ms + 0.1 * (at % 3) for at, ms in enumerate(lengths)]
    windows = [*range(10, 13), *range(23, 26)]
    found = longer_recorded(*_rows(lengths, windows))
    assert found is not None and found.before_ms == pytest.approx(75.6) and found.after_ms == pytest.approx(76.6)
    lengths[13:23] = [95.0] * 10
    assert longer_recorded(*_rows(lengths, windows)) is None


def _answer(path: Path, before: float, after: float) -> RunAnalysis:
    """Return the answer for a run whose steps take so many times as long as its recorded ones, before and after."""
    (plain,) = analyze([JOB], jobs=1)
    assert isinstance(plain, RunAnalysis) and plain.replay is not None
    traced, chance = plain.replay.traced_ms, Random(7)
    folder, recorded = run_with_traces(path, JOB)
    info = folder.read_info()
    folder.write_info(
        msgspec.structs.replace(info, devices=[msgspec.structs.replace(one, kind="cpu") for one in info.devices])
    )
    with folder.step_writer() as rows:
        for step in range(max(recorded) - 40, max(recorded) + 40):
            times = 1.0 if step in recorded else before if step < min(recorded) else after
            ms = times * traced * (1 if step in recorded else 1 + 0.02 * chance.uniform(-1, 1))
            phase: StepPhase = "profile" if step in recorded else "steady"
            rows.append(StepRow(step=step, phase=phase, step_ms=[ms, ms], samples_per_s=1.0))
    (answer,) = analyze([path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer


def test_steps_that_recording_made_far_longer_are_told_at_the_jobs_own_pace_of_a_steady_machine(tmp_path: Path) -> None:
    """*The machine was unsteady. Of the profiled steps alone: 5.6 ms of the 127.0 ms profiled step* was told of a job
    whose steps took 74.7 ms before the window and 79.4 after it.
    """
    answer = _answer(tmp_path / "run", 0.74, 0.77)
    told, times = answer.as_run, answer.step_times
    assert told is not None and told.step_ms is not None and times is not None and times.longer_recorded is not None
    assert not answer.quality.unsteady and not times.unsteady and told.contradicts is None
    assert name_of_step(answer) == "as run" and step_of_job(answer) == ""
    assert step_as_run(answer)[0].value == pytest.approx(told.step_ms, rel=0.03)
    verdict = run_verdict(answer)
    assert "unsteady" not in verdict.text and "profiled step is compute" not in verdict.text
    said = longer_recorded_sentences(answer)
    found = times.longer_recorded
    beside = f"those before and after them {milliseconds(found.before_ms)} and {milliseconds(found.after_ms)}: "
    assert f"Recorded steps took {milliseconds(found.recorded_ms)}, {beside}recording made them longer" in said
    assert said.endswith(f"at the pace of the others, {milliseconds(told.slowed_ms)} a step less.")
    assert "and the machine was steady. So operators" in said
    uneven = UnevenSteps(
        longest=SteadyStretch(first=1, last=5, ms=161.2), shortest=SteadyStretch(first=9, last=13, ms=113.8)
    )
    times_told = msgspec.structs.replace(times, uneven=uneven)
    elsewhere = longer_recorded_sentences(msgspec.structs.replace(answer, step_times=times_told))
    assert "by fresh memory pages. So operators" in elsewhere, "*the job did not run evenly* stands beside it"
    assert verdict.sentences[0] == said and said in verdict.cautions, "a page does not fold it"


def test_where_the_jobs_own_steps_disagree_the_machine_is_unsteady_as_ever(tmp_path: Path) -> None:
    answer = _answer(tmp_path / "run", 0.7, 0.8)
    assert answer.quality.unsteady and longer_recorded_sentences(answer) == ""
    assert "the machine was unsteady" in run_verdict(answer).text


def test_a_share_is_of_the_step_as_run_though_profiled_steps_are_another_length(tmp_path: Path) -> None:
    """A sleep of 17.8 ms was *10.6% of the 169.1 ms profiled step*, of a job whose steps take 96.8 ms; in JSON, too."""
    answer = _answer(tmp_path / "run", 0.62, 0.64)  # a host that stands still for 10 ms leaves no such pace
    told, first = answer.as_run, answer.findings[0]
    assert told is not None and told.step_ms is not None and step_of_job(answer) and not answer.quality.unsteady
    assert first.code == "host_stall" and first.ms is not None and first.fraction is not None
    assert first.fraction == pytest.approx(first.ms / told.step_ms)
    assert answer.advice[0].fraction == pytest.approx(first.fraction)
    verdict = run_verdict(answer)
    assert f" of the {milliseconds(told.step_ms)} step. Its host" in verdict.headline
    assert verdict.advice.endswith(f" a step, {percent(first.fraction)}.") and of_step(answer, first) == ""
