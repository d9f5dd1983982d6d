"""What a rank does every so often is told by all steps, and not once more as a rank that is late by chance."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.report.as_run.recording import as_run_sentence
from scalescope.report.as_run.shown import shown_step, step_of_job
from scalescope.report.markdown import for_an_issue
from scalescope.report.panels.advice import findings_table
from scalescope.report.panels.whatif import replay_panel
from scalescope.report.steadiness import unlike_sentence
from scalescope.report.text.listed import listed
from scalescope.report.text.recurring import beside_recurring
from scalescope.report.top.cards import _run_figures
from scalescope.report.top.colours import meaning
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.figures import EXPOSED, IDLE, LATE
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.of_rows.recurring import lead_before_launching, leads, without_recurring
from scalescope.scaling.found import as_whatif
from tests.gloo_traces import GlooJob
from tests.report_samples import run_with_traces


def _operators(job: GlooJob, number: int) -> Iterator[int]:
    """Begin a step, and yield behind each of its operators, 3.5 ms on both ranks, for what else happens there."""
    job.step(number)
    for at in range(24):
        job.compute(3.5, ("aten::linear", "aten::gelu", "aten::mul", "aten::add")[at % 4])
        yield at


def _answer(path: Path, *, always_ms: float = 0.0) -> RunAnalysis:
    """Return what is told of ranks that are interrupted now and then, of which rank 0 writes for 120 ms every 6th step.

    `always_ms`: for how long it stands still in each step besides, now here and now there.
    """
    job = GlooJob()
    for number in range(22, 29):
        for at in _operators(job, number):
            for rank in range(2):
                if (at + 5 * number + 11 * rank) % 12 == 0:
                    job.sleep(rank, 1.0 + (7 * number + 3 * rank + at) % 5 / 4)
            if (at + 7 * number) % 3 == 0:
                job.sleep(0, always_ms / 8 * (0.8 + (at % 5) / 10))
            if number % 6 == 5 and at in (3, 8, 13, 21):
                job.sleep(0, 30.0)
        job.all_reduce(2.0)
        job.compute(3.0, "aten::lerp_")
    folder, recorded = run_with_traces(path / "run", job.write(path / "traces"))
    with folder.step_writer() as writer:
        for step in range(80):
            long = 120.0 if step % 6 == 5 else 0.0
            phase = "profile" if step in recorded else "steady"
            ms = [92.0 + always_ms + step % 2 / 5 + long, 92.0 + always_ms + (120.0 if step % 6 == 0 else 0.0)]
            writer.append(StepRow(step=step, phase=phase, step_ms=ms, samples_per_s=1.0))  # type: ignore[arg-type]
    (answer,) = analyze([RunFolder(folder.path).path], jobs=1)
    assert isinstance(answer, RunAnalysis) and answer.recurring is not None
    assert (answer.recurring.every, answer.recurring.rank) == (6, 0)
    return answer


def test_a_checkpoint_of_one_profiled_step_is_no_starved_host_of_all(tmp_path: Path) -> None:
    """*Every 6th step takes 139 ms longer* and *rank 0 may cost 19.1 ms, or nothing* were the same time, told twice."""
    assert not [one for one in _answer(tmp_path).findings if one.rank is not None]


def test_a_window_that_met_a_longer_one_has_the_length_as_run_of_those_between(tmp_path: Path) -> None:
    """*As run it takes 70.1 ms, by the job's own steps* stood beside *the others' 56.0 ms*: of seven, one long."""
    answer = _answer(tmp_path)
    told, times, often = answer.as_run, answer.step_times, answer.recurring
    assert told is not None and told.replayed_ms is not None and times is not None and often is not None
    assert told.step_ms == times.measured_step_ms == often.usual_ms
    assert told.replayed_ms.value == pytest.approx(often.usual_ms + often.longer_ms / 6, rel=0.01)
    sentence = step_of_job(answer)
    assert ", between the longer ones, by the job's own steps." in sentence
    assert sentence.endswith(
        "6 of the 7 profiled steps, 1 of them a longer one, which take 112.4 ms without recording."
    )
    assert as_run_sentence(answer).endswith("than the job's own, 20.0 ms of that for the longer one among them.")
    assert unlike_sentence(answer, "2 CPU ranks") == "", "but for that they are as long"


def test_a_rank_that_is_late_in_the_other_steps_too_stays_named(tmp_path: Path) -> None:
    found = [one for one in _answer(tmp_path, always_ms=32.0).findings if one.rank is not None]
    assert found and {one.rank for one in found} == {0}


@pytest.mark.parametrize("save_ms", [{23: 160.0, 29: 45.0}, {23: 120.0}])
def test_the_wait_for_a_rank_that_saves_is_not_told_as_communication_without_a_cause(
    tmp_path: Path, save_ms: dict[int, float]
) -> None:
    """*19.8 ms are communication that nothing hides, and no single cause of it is found* stood behind the checkpoint,
    where a window's two were unlike, and none of them was known to be what they do.
    """
    run = _saves_between_operators(tmp_path, save_ms)
    bare = [row for one in run.findings for row in one.evidence if row.name in (EXPOSED, IDLE)]
    assert run.findings[0].code == "nothing" and not bare, bare
    assert beside_recurring(run).startswith("Beside that nothing between the ranks is wrong. ")


def _saves_between_operators(path: Path, save_ms: dict[int, float]) -> RunAnalysis:
    """Return what is told where rank 0 stands still here and there in steps 23 and 29, and Python takes 8 ms of any."""
    job = GlooJob()
    for number in range(22, 32):
        for at in _operators(job, number):
            for rank in range(2):
                job.sleep(rank, 0.3)
            if at in (3, 8, 13, 21):
                job.sleep(0, save_ms.get(number, 0.0) / 4)
        job.all_reduce(2.0)
        job.compute(3.0, "aten::lerp_")
    folder, recorded = run_with_traces(path / "run", job.write(path / "traces"))
    with folder.step_writer() as writer:
        for step in range(80):
            long = 50.0 + step * 7 % 40 if step % 6 == 5 else 0.0
            phase = "profile" if step in recorded else "steady"
            ms = [92.0 + step % 2 / 5 + long, 92.0 + (50.0 + (step - 1) * 7 % 40 if step % 6 == 0 else 0.0)]
            writer.append(StepRow(step=step, phase=phase, step_ms=ms, samples_per_s=1.0))  # type: ignore[arg-type]
    (answer,) = analyze([RunFolder(folder.path).path], jobs=1)
    assert isinstance(answer, RunAnalysis) and answer.recurring is not None and answer.recurring.every == 6
    return answer


def test_launching_holds_nothing_of_what_two_of_ten_profiled_steps_alone_do(tmp_path: Path) -> None:
    """`launching costs at most 32.0 ms` stood before a checkpoint of which a window held two, of 170 ms and of 50."""
    answer = _saves_between_operators(tmp_path, {23: 160.0, 29: 45.0})
    launching = [one for one in answer.findings if one.code == "host_bound"]
    assert all((one.ms or 0.0) < 11.0 and (one.high_ms or 0.0) < 11.0 for one in launching), launching
    assert leads(answer)


def test_what_recurs_for_sure_leads_what_launching_takes_in_any_eager_step(tmp_path: Path) -> None:
    """*Launching costs at most 3.9 ms* stood before a save of 2.9 ms a step in the mean."""
    answer = _saves_between_operators(tmp_path, {23: 60.0, 29: 60.0})
    assert answer.recurring is not None and answer.activity == "cpu"
    launching = Finding(code="host_bound", ms=6.0, low_ms=6.0, high_ms=6.0, backed="replay", at_most=True)
    answer.findings = [launching]
    answer.recurring.mean_ms, answer.recurring.longer_low_ms = 4.0, 12.0
    assert leads(answer)
    answer.recurring.longer_low_ms = 0.0
    assert not leads(answer)
    answer.recurring.mean_ms, answer.recurring.longer_low_ms = 1.0, 3.0  # of some 100 ms
    assert not leads(answer)
    answer.recurring.mean_ms = 4.0
    answer.findings = [msgspec.structs.replace(launching, ms=30.0, low_ms=30.0, high_ms=30.0)]
    assert not leads(answer)


def test_what_recurs_for_sure_leads_a_bound_that_begins_at_nothing(tmp_path: Path) -> None:
    answer = _saves_between_operators(tmp_path, {23: 60.0, 29: 60.0})
    assert answer.recurring is not None
    mean_ms = answer.recurring.mean_ms
    for low_ms, first in ((0.0, True), (2 * mean_ms, False)):
        bound = Finding(code="host_bound", ms=4 * mean_ms, low_ms=low_ms, high_ms=4 * mean_ms, backed="replay",
                        at_most=True)  # fmt: skip
        answer.findings = [bound]
        assert leads(answer) == first


def test_launching_as_any_eager_step_has_it_is_no_news_behind_what_recurs(tmp_path: Path) -> None:
    """*Of the profiled steps: launching costs at most 6.9 ms of the profiled step* and *launch less* stood so."""
    run = _saves_between_operators(tmp_path, {23: 60.0, 29: 60.0})
    assert run.recurring is not None
    run.findings = [
        Finding(code="host_bound", ms=6.0, low_ms=6.0, high_ms=6.0, backed="replay", at_most=True, fraction=0.06,
                remedy=Remedy(cure="compile", on_cpu=True))
    ]  # fmt: skip
    run.recurring.mean_ms, run.recurring.longer_low_ms = 7.0, 12.0
    assert lead_before_launching(run)
    assert [row[0] for row in findings_table(run).rows] == ["every 6th step"]
    verdict = run_verdict(run)
    told = " ".join([verdict.headline, *verdict.sentences, verdict.advice])
    assert "launch" not in told and verdict.advice.startswith("see what every 6th step does"), told
    assert not listed(run)
    run.recurring.longer_low_ms = 0.0
    run.recurring.mean_ms = 4.0
    assert not leads(run) and "launching" in run_verdict(run).headline


def test_what_recurs_has_its_row_among_what_costs_the_step_and_little_launching_has_none(tmp_path: Path) -> None:
    """*Rows are in the order of what they cost* stood under a table without the 8.7 ms of the first sentence, and with
    launching of 4.3 ms that no terminal listed; `whatif` had it, too.
    """
    run = _saves_between_operators(tmp_path, {23: 60.0, 29: 60.0})
    found = run.recurring
    assert found is not None
    stall = Finding(code="host_stall", rank=0, ms=3.0, low_ms=1.0, high_ms=5.0, backed="replay", fraction=0.03,
                    remedy=Remedy(cure="look_at_host", on_cpu=True))  # fmt: skip
    launching = Finding(code="host_bound", ms=6.0, low_ms=6.0, high_ms=6.0, backed="replay", at_most=True,
                        fraction=0.06, remedy=Remedy(cure="compile", on_cpu=True))  # fmt: skip
    run.findings = [stall, launching]
    assert leads(run) and listed(run) == [stall]
    table = findings_table(run)
    keys = [column.key for column in table.columns]
    first, second = (dict(zip(keys, row, strict=True)) for row in table.rows)
    assert (first["what"], first["rank"], first["gain_ms"]) == ("every 6th step", 0, found.mean_ms)
    assert (first["of_step"], second["what"]) == ("mean", "a stalled host")
    share = found.mean_ms / found.longer_ms
    assert (
        first["interval_ms"] == f"{share * (found.longer_low_ms or 0):.2f} to {share * (found.longer_high_ms or 0):.2f}"
    )
    assert str(first["because"]).startswith("every 6th step takes ") and "in the mean" not in str(first["because"])
    assert [one.what for one in as_whatif("x", run).predictions] == ["without host_stall of rank 0"]
    lines = for_an_issue([run])
    assert "1. every 6th step takes " in lines and "2. rank 0, a stalled host: 3.0 ms" in lines
    assert "launching" not in lines
    run.findings = [launching]  # by itself it is all that there is to take out
    assert [one.what for one in as_whatif("x", run).predictions] == ["without host_bound, at most"]


def test_a_change_that_is_known_at_least_has_no_other_bound(tmp_path: Path) -> None:
    """*-204.09 to -204.09* stood there of a debug mode that takes 204 ms and more."""
    run = _saves_between_operators(tmp_path, {})
    mode = Finding(code="debug_mode", ms=4.0, low_ms=4.0, high_ms=4.0, backed="replay", fraction=0.04, at_least=True)
    run.findings = [mode]
    answer = as_whatif("x", run)
    ((what, *_, interval, _),) = replay_panel(answer).table.rows
    assert (what, interval) == ("without debug_mode, at least", "-4.00 or further")
    run.findings = [replace(mode, at_least=False)]
    assert replay_panel(as_whatif("x", run)).table.rows[0][3] == "-4.00 to -4.00"


def test_a_colour_tells_of_what_recurs_as_of_what_was_found(tmp_path: Path) -> None:
    """Of a step that lost 18% to what recurs and 3% to what was found, an edge said: more than 30% of it."""
    run = _saves_between_operators(tmp_path, {23: 160.0, 29: 45.0})
    stall = Finding(code="host_stall", rank=0, ms=3.0, low_ms=1.0, high_ms=5.0, backed="replay", fraction=0.03,
                    remedy=Remedy(cure="look_at_host", on_cpu=True))  # fmt: skip
    run.findings = [stall]
    for one in shown_step(run):
        parts = one.exposed_transfer_ms + one.exposed_wait_ms + one.idle_data_ms
        one.compute_ms = 0.62 * one.window_ms
        one.idle_launch_ms = one.window_ms - one.compute_ms - parts
    assert leads(run) and run_verdict(run).level == "fair"
    assert meaning("poor", "step").endswith(
        "to the causes that are listed, or waiting and idle with hardly a cause known"
    )


def test_what_is_hardly_there_beside_steps_that_recur_is_theirs_where_noise_may_have_made_it(tmp_path: Path) -> None:
    """A save of 128.9 ms in every 8th step was told again as *rank 0, a starved host: 8.6 ms (0.00 to 29.3)*: in the
    other six of seven steps rank 0 was 2.1 ms later, of 145.2, which was beyond chance.
    """
    run = _saves_between_operators(tmp_path, {23: 60.0})
    assert run.recurring is not None
    later_ms = (1.4, 2.4, 1.9, 2.6, 1.7, 2.3)
    for step in run.steps:
        mine = step.rank == 0
        step.window_ms = 100.0 + mine * (60.0 if run.recurring.begins_in(step.step) else later_ms[step.step % 6])
        step.exposed_wait_ms = step.exposed_transfer_ms = step.exposed_unsplit_ms = 0.0
    starved = Finding(code="host_starved", rank=0, ms=9.0, low_ms=0.0, high_ms=29.0, backed="replay")
    assert without_recurring([starved], run) == []
    sure = msgspec.structs.replace(starved, low_ms=2.0)
    assert without_recurring([sure], run) == [sure]
    for step in run.steps:
        step.window_ms += 4.0 * (step.rank == 0)
    assert without_recurring([starved], run) == [starved]


def test_a_colour_goes_by_the_step_that_is_shown_and_throughput_with_the_longer_steps_is_no_fold(
    tmp_path: Path,
) -> None:
    """An edge said *up to 10% of the step is lost* under 16.1 ms of 145.2, 11.1%, and 110.2 samples/s were shown
    where all steps did 99.2.
    """
    run = _saves_between_operators(tmp_path, {23: 60.0, 29: 60.0})
    assert run.recurring is not None and run.throughput is not None
    run.findings = [msgspec.structs.replace(run.findings[0], evidence=())]
    run.recurring.usual_ms, run.recurring.mean_ms, run.recurring.longer_low_ms = 145.2, 16.1, 125.2
    assert leads(run) and run_verdict(run).level == "fair"
    run.recurring.mean_ms = 14.0
    assert run_verdict(run).level == "good"
    run.recurring.mean_ms = 16.1
    shown = {one.label: float(one.value) for one in _run_figures(run) if one.label.startswith("throughput")}
    assert shown["throughput with the longer steps"] == pytest.approx(
        shown["throughput, between the longer steps"] * 145.2 / 161.3, rel=0.02
    )


@pytest.mark.parametrize(("ms", "rank", "kept"), [(24.0, 0, False), (24.0, 1, True), (60.0, 0, True)])
def test_a_rank_that_is_late_by_those_steps_is_not_late_for_a_reason_that_no_window_shows(
    tmp_path: Path, ms: float, rank: int, kept: bool
) -> None:
    """*Rank 1 costs 60.0 ms: by all 30 steps it comes later, and no window shows why* stood before *every 6th step
    takes 306 ms longer, for what rank 1 does*.
    """
    answer = _answer(tmp_path)  # of 120 ms in every 6th step of rank 0
    late = Finding(
        code="unsteady", rank=rank, ms=ms, low_ms=ms - 1, high_ms=ms + 1, fraction=0.2, backed="measured",
        evidence=(EvidenceRow(kind="figure", name=LATE, ms=ms, value=80.0),), remedy=Remedy(cure="profile_longer"),
    )  # fmt: skip
    assert (late in without_recurring([late], answer)) is kept
