"""The step as run is one that the job had: of ranks on CPUs the median of its own steady steps, under one name."""

import copy
from io import StringIO
from pathlib import Path
from random import Random

import msgspec
import pytest
from rich.console import Console

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepPhase, StepRow
from scalescope.records.steps.unevenness import half_of_median
from scalescope.report.as_run.recording import as_run_sentence, as_run_title, recording_ms
from scalescope.report.as_run.shown import name_of_step, step_of_job
from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.report.panels.compute_lines import compute_lines
from scalescope.report.replayed import fewer_replayed
from scalescope.report.report_data import read_report_data
from scalescope.report.steadiness import recording_line, unlike_sentence
from scalescope.report.terminal.run import print_run
from scalescope.report.top.bars import run_bars
from scalescope.report.top.cards import _run_figures, cards_of
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis, read_run_answer
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.as_run.of_job import (
    FAR,
    interval_of_job,
    is_of_other_length,
    is_step_of_job,
    tell_step_of_job,
)
from scalescope.scaling.as_run.step import step_as_run, take_recording_out
from scalescope.scaling.as_run.untraced import given_steps
from scalescope.scaling.as_run.untraced_step import Untraced
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.figures import STEADY_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import is_of_steady_steps
from scalescope.scaling.findings.computing.nothing import tell_kinds
from scalescope.scaling.replay.whatif.replayer import Replayer
from scalescope.scaling.verdicts.step_rows.doubt import judge_steadiness, longer_for_long_ones_ms
from tests.recorded import records_of
from tests.report_samples import run_with_traces, words

#: So many times as long after a window as before it, steps tell nothing of what it did.
_DISAGREE = 1.12
JOB = Path(__file__).parent / "data" / "cpu_ddp_n2"


def test_a_cause_of_steps_that_are_far_longer_than_the_jobs_own_is_a_share_of_those(tmp_path: Path) -> None:
    """*Between 177.5 ms and 270.4 ms of the 435.5 ms step* was of one of 656.3, beside a bar with 27% of that in it."""
    for times, far in ((0.95, False), (0.6, True)):
        answer = own_run(tmp_path / str(times), times, uneven=0.01)
        told = answer.as_run
        assert told is not None and told.step_ms is not None and told.replayed_ms is not None
        assert (abs(told.replayed_ms.value - told.step_ms) > FAR * told.step_ms) == far
        whole = [one.ms / one.fraction for one in answer.findings
                 if one.ms and one.fraction and one.ms < told.step_ms and not is_of_steady_steps(one)]  # fmt: skip
        assert whole and all(ms == pytest.approx(told.replayed_ms.value if far else told.step_ms) for ms in whole)


def own_run(
    path: Path, times: float, uneven: float = 0.06, beside: float = 1.0, longer: float = 0.0, after: float = 1.0
) -> RunAnalysis:
    """Return the answer for a run with these traces, whose own steps take so many times as long as the traced ones.

    `uneven`: by this share of it they differ, each by itself. `beside`: those near the window take so many times that.
    `longer`: the second step that is recorded, and every tenth, take so many times the traced ones longer. `after`:
    those after the window take so many times those before it, which are as much shorter.
    """
    (plain,) = analyze([JOB], jobs=1)
    assert isinstance(plain, RunAnalysis) and plain.replay is not None
    traced, chance = plain.replay.traced_ms, Random(7)
    folder, recorded = run_with_traces(path, JOB)
    with folder.step_writer() as rows:
        for step in range(max(recorded) - 40, max(recorded) + 40):
            ms = traced if step in recorded else times * traced * (1 + uneven * chance.uniform(-1, 1))
            if step not in recorded and min(recorded) - 20 <= step <= max(recorded) + 20:
                ms *= beside
            if step not in recorded:
                ms *= after**0.5 if step > max(recorded) else after**-0.5
            if step not in recorded and (step - min(recorded)) % 10 == 1:
                ms += longer * traced
            phase: StepPhase = "profile" if step in recorded else "steady"
            rows.append(StepRow(step=step, phase=phase, step_ms=[ms, ms], samples_per_s=1.0))
    (answer,) = analyze([path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer


@pytest.mark.parametrize(("times", "unsteady"), [(0.8, True), (1.06, False), (1.25, True)])
def test_the_step_as_run_is_the_jobs_own_and_the_parts_of_another_have_another_name(
    times: float, unsteady: bool, tmp_path: Path
) -> None:
    """*As run 69.2 ms* was told of a job whose steps take 61.1, 725.7 beside 634.2, and 94.8 of one of 80.2."""
    answer = own_run(tmp_path / "run", times, after=_DISAGREE)
    told, times_told = answer.as_run, answer.step_times
    assert told is not None and times_told is not None and told.replayed_ms is not None and answer.replay is not None
    assert told.step_ms == times_told.measured_step_ms
    assert told.step_ms is not None and told.low_ms is not None and told.high_ms is not None
    assert told.low_ms <= told.step_ms <= told.high_ms
    assert read_run_answer(tmp_path / "run" / "analysis.json").as_run == told
    # the parts add up to the replayed step, and nothing calls that one the step as run
    step, ranks = step_as_run(answer)
    assert step == told.replayed_ms
    for one in ranks:
        assert sum(one.part_ms(part) for part in PARTS) == pytest.approx(one.window_ms)
    assert name_of_step(answer) == "without recording"
    bars = run_bars(answer)
    assert bars is not None and not [one for one in bars.bars if "as run" in one.label]
    assert "As run a step takes" in words(bars)
    print_run(answer, Console(file=(shown := StringIO()), width=400))
    text = shown.getvalue()
    assert "Where a profiled step goes without recording, a rank" in text and "Parallel efficiency without" in text
    assert run_verdict(answer).sentences[-1] == step_of_job(answer)
    labels = [one.label for one in _run_figures(answer)]
    assert "compute without recording" in labels
    of_job = interval_of_job(told)
    spread = f" ({milliseconds(of_job.low)} to {milliseconds(of_job.high)})"
    assert [one for one in labels if "as run" in one] == [f"step as run, median{spread}"], "one length is the step's"
    assert f" take {milliseconds(told.replayed_ms.value)} without recording, " in step_of_job(answer)
    assert "contradicts the traces" not in text, "its own length is told once"
    of_compute = [one for one in run_verdict(answer).sentences if "is compute" in one]
    assert len(of_compute) == 1 and "% of the profiled step is compute" in of_compute[0]
    assert " ms" not in of_compute[0], "parts of a step of another length are told by their shares, as a bar has them"
    first = "the machine was unsteady. Of the profiled steps alone: "
    assert (first in run_verdict(answer).headline) == unsteady == answer.quality.unsteady


def test_own_steps_that_contradict_the_traces_have_one_length_among_the_first_lines(tmp_path: Path) -> None:
    """*As run a step takes 112.9 ms* stood before *the job's own untraced step of 111.0 ms contradicts the traces*."""
    answer = own_run(tmp_path / "run", 0.8, after=_DISAGREE)
    assert answer.as_run is not None
    steps = Interval(44.4, 44.0, 45.0)
    for contradicts, why in (("too_short", "they are shorter than the profiled"), ("too_long", "they are longer than")):
        answer.as_run = msgspec.structs.replace(
            answer.as_run, contradicts=contradicts, untraced_ms=steps, untraced_by="steps", without_recording_ms=50.0
        )
        told = " ".join(run_verdict(answer).sentences)
        assert f"The job's own untraced steps contradict the traces: {why}" in told and "44.4" not in told


def test_a_mean_step_that_a_cause_is_a_share_of_stands_beside_the_median_one(tmp_path: Path) -> None:
    """*16.1% of the 184.9 ms mean step* stood above *as run a step takes 210.5 ms*: half of the steps were longer."""
    answer = own_run(tmp_path / "run", 0.8, after=_DISAGREE)
    assert answer.step_times is not None and "in the mean" not in step_of_job(answer)
    median = answer.step_times.measured_step_ms or 0.0
    for mean, told in ((0.97 * median, False), (0.88 * median, True)):
        evidence = (EvidenceRow(kind="figure", name=STEADY_STEPS, ms=mean),)
        answer.findings = [
            Finding(code="more_work", rank=1, ms=5.0, low_ms=4.0, high_ms=6.0, backed="measured", evidence=evidence)
        ]
        assert (f" in the median and {milliseconds(mean)} in the mean, by the job's own" in step_of_job(answer)) is told


def test_where_the_profiled_steps_are_the_jobs_own_one_length_is_told_as_run(tmp_path: Path) -> None:
    answer = own_run(tmp_path / "run", 0.985, uneven=0.01)
    assert answer.as_run is not None and name_of_step(answer) == "as run" and step_of_job(answer) == ""
    assert "unsteady" not in run_verdict(answer).text
    print_run(answer, Console(file=(shown := StringIO()), width=400))
    assert "Where a step goes as run, without recording, a rank" in shown.getvalue()
    assert "Parallel efficiency as run" in shown.getvalue()
    assert "without it they are as long as the job's own" in as_run_sentence(answer)


@pytest.mark.parametrize("times", [0.985, 0.8])
def test_a_terminal_has_no_third_length_of_a_step_beside_the_jobs_own_and_the_profiled_ones(
    times: float, tmp_path: Path
) -> None:
    """200.0 ms as run, 191.1 of the profiled steps without recording, and 214.6 in the mean of 2 of 3 with it stood in
    one answer."""
    answer = own_run(tmp_path / "run", times, uneven=0.01)
    assert answer.replay is not None
    print_run(answer, Console(file=(shown := StringIO()), width=400))
    said = shown.getvalue()
    fewer, of = fewer_replayed(answer), "profiled steps"
    assert fewer is not None and f"{fewer.steps} of the {fewer.of} {of}" in said, "of how many it is, is said"
    assert "the last only tells where the one before it ends." in said
    assert said.count("Recording takes ") == 1 and "are told of" not in said
    assert f"{milliseconds(answer.replay.traced_ms)} in the mean" not in said


@pytest.mark.parametrize("times", [0.994, 0.985])
def test_the_figure_of_a_page_is_as_long_as_the_step_of_its_sentence(times: float, tmp_path: Path) -> None:
    """*121.7 ms* stood above *40.3 ms of the 122.4 ms step*, and above bars of 122.4; and *276.1 ms* beside its own
    interval of 272.9 to 293.3, and the throughput of steps of 283.1: the job's own."""
    answer = own_run(tmp_path / "run", times, uneven=0.01)
    assert answer.as_run is not None and name_of_step(answer) == "as run" and answer.as_run.replayed_ms is not None
    (card,) = cards_of(read_report_data(RunFolder(tmp_path / "run")))
    told = milliseconds(answer.as_run.step_ms or 0.0)
    assert f"{card.figures[0].value} {card.figures[0].unit}" == told
    assert card.bars is not None and {one.value for one in card.bars.bars} == {told}
    parts_ms = milliseconds(answer.as_run.replayed_ms.value)
    if not is_of_other_length(answer.as_run):  # *exposed wait 100.5 ms* was drawn, and 100.7 told
        (parts,) = (one for one in card.verdict.sentences if " step is compute" in one)
        (compute,) = (one.label for one in card.bars.legend if one.label.startswith("compute "))
        assert (f" is {compute.replace(' ', ', ', 1)}; " in parts) is (parts_ms == told), (parts, compute)
        # *hides 165.9 ms of transfer* stood above *164.6 ms exposed transfer*, and the table's 165.9
        assert (" ms" in parts.partition(" is compute")[2]) is (" ms" in compute) is (parts_ms == told), parts
    assert as_run_title(answer).startswith("Where a profiled step goes") is (parts_ms != told)


@pytest.mark.parametrize(("beyond", "which"), [(0.993, "{own} step"), (0.975, "profiled step")])
def test_a_finding_and_the_compute_are_told_of_the_jobs_own_step_whatever_its_parts_add_up_to(
    beyond: float, which: str, tmp_path: Path
) -> None:
    """*24.5 ms of the 276.1 ms step* and *8.7%* were told of one cause, whose share was of the job's 283.1 ms."""
    answer = with_parts_of(own_run(tmp_path / "run", 0.985, uneven=0.01), beyond, half=0.04)
    told = answer.as_run
    assert told is not None and told.step_ms is not None and is_step_of_job(told)
    cause = Finding(code="own_work", rank=1, ms=0.2 * told.step_ms, low_ms=0.18 * told.step_ms,
                    high_ms=0.22 * told.step_ms, backed="replay", remedy=None, fraction=0.2)  # fmt: skip
    answer.findings = [cause]
    verdict, own = run_verdict(answer), milliseconds(told.step_ms)
    assert f"of the {own} step" in verdict.headline
    assert f"of the {which.format(own=own)} is compute" in verdict.text
    assert milliseconds(beyond * told.step_ms) not in verdict.text


def test_recording_costs_no_more_than_the_jobs_own_steps_leave_for_it(tmp_path: Path) -> None:
    """*Recording takes 6.0 ms of a profiled step*, of steps that took 282.1 ms with it, and 283.1 without it."""
    answer = with_parts_of(own_run(tmp_path / "run", 0.985, uneven=0.01), 0.975, half=0.04)
    told = answer.as_run
    assert told is not None and told.step_ms is not None and answer.replay is not None
    own = told.step_ms
    beside = answer.step_times.placebo_ms if answer.step_times is not None else None
    assert beside is not None and 0 < beside < 0.03 * own, "so far such stretches lie apart"
    answer.replay = msgspec.structs.replace(answer.replay, traced_ms=0.997 * own)
    spread = f"{milliseconds(-0.037 * own - beside)} to {milliseconds(0.043 * own + beside)}"
    said = (  # and not that it takes -0.14 ms: nothing takes less than no time
        "What recording takes of a profiled step cannot be measured: recorded steps are "
        f"{milliseconds(0.003 * own)} shorter than the job's own ({spread}), and so many operators usually cost "
        f"{milliseconds(0.022 * own)}"
    )
    assert recording_ms(answer) is None and said in recording_line(answer) and said in as_run_sentence(answer)
    known = with_parts_of(answer, 0.975, half=0.001)
    known.replay = msgspec.structs.replace(answer.replay, traced_ms=1.04 * own)
    spread = f"{milliseconds(0.039 * own - beside)} to {milliseconds(0.041 * own + beside)}, by the job's own steps"
    assert f"Recording takes {milliseconds(0.04 * own)} ({spread}) of a profiled step" in recording_line(known)
    same = with_parts_of(answer, 0.995, half=0.04)  # its terms are as near as steps differ anyway
    assert "usually cost" not in recording_line(same) and recording_ms(same) == pytest.approx(0.002 * own, abs=0.1)


def with_parts_of(run: RunAnalysis, beyond: float, *, half: float) -> RunAnalysis:
    """Return a run whose profiled steps are so many times its own step without recording, which is known by `half`."""
    told, run = run.as_run, copy.deepcopy(run)
    assert told is not None and told.step_ms is not None and told.parts_ms is not None
    times, own = beyond * told.step_ms / told.parts_ms.value, told.step_ms
    run.as_run = msgspec.structs.replace(
        told,
        low_ms=(1 - half) * own,
        high_ms=(1 + half) * own,
        slowed_ms=0.0,
        replayed_ms=Interval(beyond * own, (beyond - half) * own, (beyond + half) * own),
        ranks=[
            msgspec.structs.replace(one, **{name: times * getattr(one, name) for name in one.__struct_fields__[1:]})
            for one in told.ranks
        ],
    )
    return run


def test_a_replay_that_is_longer_without_recording_gives_recording_no_cost_below_nothing(tmp_path: Path) -> None:
    """*Of which recording takes -0.21 ms* was told."""
    answer = own_run(tmp_path / "run", 0.94)
    assert answer.replay is not None and answer.as_run is not None and answer.as_run.replayed_ms is not None
    answer.replay = msgspec.structs.replace(answer.replay, traced_ms=answer.as_run.replayed_ms.value - 0.2)
    assert "recording takes too little of that to show; " in as_run_sentence(answer) and "-0" not in as_run_sentence(
        answer
    )


@pytest.mark.parametrize(("low", "high", "apart"), [(0.7, 0.9, True), (0.5, 1.2, False)])
def test_traces_without_their_run_s_rows_say_the_same_of_steps_that_are_none_of_those_beside_them(
    low: float, high: float, apart: bool
) -> None:
    """*As run 71.3 ms, by the untraced steps that the traces tell* was told outside of the folder: those say 61.2."""
    (plain,) = analyze([JOB], jobs=1)
    assert isinstance(plain, RunAnalysis) and plain.as_run is not None and plain.as_run.step_ms is not None
    replayed = plain.as_run.step_ms
    told = msgspec.structs.replace(
        plain.as_run, source="metadata", untraced_by="metadata",
        untraced_ms=Interval(0.8 * replayed, low * replayed, high * replayed),
    )  # fmt: skip
    plain.as_run, plain.findings = told, []
    tell_step_of_job(plain)
    judge_steadiness(plain)
    assert plain.as_run.step_ms == pytest.approx(0.8 * replayed if apart else replayed)
    assert plain.quality.unsteady == apart == bool(step_of_job(plain))
    assert name_of_step(plain) == ("without recording" if apart else "as run")
    assert step_as_run(plain)[0].value == pytest.approx(replayed), "its parts are the same"


def test_profiled_steps_that_fresh_pages_made_longer_are_told_at_the_pace_of_the_jobs_own(tmp_path: Path) -> None:
    """*As run a step takes 111.3 ms. What follows is of steps of 126.9 ms, 14% longer* was told of even steps."""
    same, slower = own_run(tmp_path / "same", 0.985, uneven=0.01), own_run(tmp_path / "slower", 0.9, uneven=0.05)
    told, beside = slower.as_run, same.as_run
    assert told is not None and beside is not None and told.step_ms is not None and told.replayed_ms is not None
    assert told.replayed_ms.value == pytest.approx(told.step_ms, rel=0.01)
    assert name_of_step(slower) == "as run" and step_of_job(slower) == ""
    assert beside.slowed_ms == 0.0 and told.slowed_ms > 0.05 * told.step_ms
    assert told.profiled_ms is not None and beside.profiled_ms is not None
    assert told.profiled_ms.value == pytest.approx(beside.profiled_ms.value, rel=0.02)
    # operators are quicker, and nothing that hosts do between them
    for one, other in zip(step_as_run(slower)[1], step_as_run(same)[1], strict=True):
        assert one.compute_ms < 0.95 * other.compute_ms
        assert one.idle_launch_ms == pytest.approx(other.idle_launch_ms, abs=0.02 * other.window_ms)
        assert sum(one.part_ms(part) for part in PARTS) == pytest.approx(one.window_ms)
    account = as_run_sentence(slower)
    assert (
        f"; operators took {milliseconds(told.slowed_ms)} longer than in the job's own steps, and are told" in account
    )
    assert account.endswith("; so they are as long as the job's own.")


@pytest.mark.parametrize("beside", [1.03, 0.97])
def test_a_window_in_a_slower_stretch_is_told_at_the_pace_of_all_the_jobs_own_steps(
    beside: float, tmp_path: Path
) -> None:
    """*As run a step takes 124.2 ms; the rest is told of steps of 132.4 ms* was of a stretch of 127.8, and of 124.2
    are told at its pace. Nor does a faster stretch make the profiled steps shorter than the job's own.
    """
    told = own_run(tmp_path / "run", 0.88, uneven=0.05, beside=beside).as_run
    assert told is not None and told.step_ms is not None and told.replayed_ms is not None
    assert told.untraced_ms is not None and told.slowed_ms > 0
    near = told.untraced_ms
    assert abs(near.value - told.step_ms) > 0.01 * told.step_ms, "the stretch is another than the median of all"
    assert near.low <= told.step_ms <= near.high
    assert told.replayed_ms.value == pytest.approx(told.step_ms, rel=0.008)


def test_what_a_longer_step_adds_to_the_profiled_ones_is_no_slower_operators(tmp_path: Path) -> None:
    """*Operators took 3.3 ms longer than in the job's own steps* was a checkpoint of 23.2 ms in one of seven."""
    plain = own_run(tmp_path / "plain", 0.9, uneven=0.05).as_run
    answer = own_run(tmp_path / "run", 0.9, uneven=0.05, longer=0.2)
    told, often = answer.as_run, answer.recurring
    assert plain is not None and plain.slowed_ms > 0 and often is not None and often.every == 10
    assert told is not None and told.step_ms is not None and told.replayed_ms is not None
    longer = longer_for_long_ones_ms(answer)
    assert longer == pytest.approx(often.longer_ms / told.steps) and longer > 0.05 * told.step_ms
    assert told.slowed_ms == pytest.approx(max(0.0, plain.slowed_ms - longer), abs=0.02 * told.step_ms)
    assert told.replayed_ms.value == pytest.approx(told.step_ms + longer, rel=0.03)


@pytest.mark.parametrize(("times", "unsteady"), [(0.92, False), (0.88, True)])
def test_steps_at_the_pace_of_the_jobs_own_have_no_second_length_without_recording(
    times: float, unsteady: bool, tmp_path: Path
) -> None:
    """*475.2 ms without recording, 2.9% shorter* stood above *without recording 13.9% longer than the job's own*."""
    answer = own_run(tmp_path / "run", times, uneven=0.05, after=_DISAGREE if unsteady else 1.0)
    told = answer.as_run
    assert told is not None and told.step_ms is not None and told.slowed_ms > 0.05 * told.step_ms
    answer.as_run = msgspec.structs.replace(told, replayed_ms=Interval(*(0.97 * told.step_ms,) * 3))
    assert "without recording, 3.0% shorter" in step_of_job(answer)
    said = unlike_sentence(answer, "2 CPU ranks")
    assert "without recording" not in said and ("the machine was unsteady: " in said) == unsteady
    if unsteady:  # and by what: no reader finds it in steps that are told at another pace
        slower, own = answer.as_run.slowed_ms, answer.as_run.profiled_ms
        assert own is not None
        assert (
            f"operators took {milliseconds(slower)} longer in 2 of the 3 profiled steps than in the job's own" in said
        )
        assert f"at that pace those are {percent(own.value / told.step_ms - 1)} longer, so the other steps" in said


def test_steps_at_the_pace_of_the_jobs_own_are_not_called_unlike_beside_a_cost_of_all_steps(tmp_path: Path) -> None:
    """*96.5 ms without recording, 1.2% longer* stood above *the profiled steps are not like the mean one*."""
    answer = own_run(tmp_path / "run", 0.88, uneven=0.05, after=_DISAGREE)
    told = answer.as_run
    assert told is not None and told.step_ms is not None and told.slowed_ms > 0
    mean = EvidenceRow(kind="figure", name=STEADY_STEPS, ms=told.step_ms)
    answer.findings = [
        Finding(code="more_work", rank=0, ms=9.0, low_ms=8.0, high_ms=10.0, backed="measured", evidence=(mean,))
    ]
    answer.as_run = msgspec.structs.replace(told, replayed_ms=Interval(*(1.04 * told.step_ms,) * 3))
    assert "without recording, 4.0% longer" in step_of_job(answer)
    assert unlike_sentence(answer, "2 CPU ranks") == ""
    far = Interval(*(1.15 * told.step_ms,) * 3)  # at their own pace they are others
    answer.as_run = msgspec.structs.replace(told, replayed_ms=far, slowed_ms=0.0)
    assert "the profiled steps are not like the mean one" in unlike_sentence(answer, "2 CPU ranks")


def test_the_first_sentence_and_the_table_have_the_compute_of_the_same_kinds(tmp_path: Path) -> None:
    """*79% convolution, 10% elementwise* stood above *What the compute is: 89% convolution, 5% normalisation*."""
    answer = own_run(tmp_path / "run", 0.9, uneven=0.05)
    told = answer.as_run
    assert told is not None and told.replayed_ms is not None and told.kinds
    assert answer.step_times is not None
    whole = [EvidenceRow(kind="figure", name="compute", ms=1.0, share=0.9)]
    habit = EvidenceRow(kind="figure", name="sorted_scatters", ms=1.0)
    before = [EvidenceRow(kind="activity", name=row.kind, ms=row.ms, share=0.5) for row in answer.kinds[:3]]
    answer.findings = [
        Finding(
            code="nothing", ms=None, low_ms=None, high_ms=None, evidence=(*whole, *before, habit),
            remedy=Remedy(cure="faster_kernels"), backed="replay",
        )
    ]  # fmt: skip
    tell_kinds(answer)
    rows = answer.findings[0].evidence
    assert (rows[0], rows[-1]) == (whole[0], habit) and len(rows) > 3
    said = [f"{percent(row.share or 0.0, 0)} {row.name}" for row in rows[1:-1]]
    assert all(line.startswith(one) for one, line in zip(said, compute_lines(answer), strict=False)), said
    assert [row.share for row in rows[1:-1]] != [row.share_of_compute for row in answer.kinds[: len(rows) - 2]]


def test_moved_traces_tell_the_same_pace_as_in_their_runs_folder(tmp_path: Path) -> None:
    """Where rows said *nothing*, the same traces' headers said that the machine was unsteady, of 126.9 ms for 108.2."""
    own_run(tmp_path / "run", 0.87, uneven=0.05)
    (inside,) = analyze([tmp_path / "run"], jobs=1)
    assert isinstance(inside, RunAnalysis) and inside.as_run is not None
    records = records_of("cpu_ddp_n2")
    beside = inside.as_run.untraced_ms
    assert beside is not None
    moved = take_recording_out(Replayer(records), Untraced(beside, "metadata"))
    # headers know the steps beside the window alone, whose median is by so much another than that of all
    assert moved is not None and moved.slowed_ms == pytest.approx(inside.as_run.slowed_ms, abs=0.005 * beside.value)
    (plain,) = analyze([JOB], jobs=1)
    assert isinstance(plain, RunAnalysis)
    plain.as_run, plain.findings = moved, []
    tell_step_of_job(plain)
    judge_steadiness(plain)
    assert not plain.quality.unsteady and name_of_step(plain) == "as run"


@pytest.mark.parametrize(("beyond", "uneven", "same"), [(1.02, 0.1, True), (1.02, 0.001, False), (1.05, 0.1, False)])
def test_profiled_steps_that_are_others_by_no_more_than_is_known_are_the_step_as_run(
    beyond: float, uneven: float, same: bool, tmp_path: Path
) -> None:
    """*13.4 ms of the profiled step* and *40.4 ms of the 128.9 ms step* were told of two runs of one job: the profiled
    steps of one took 106.5 ms, and its own 103.9 (100.4 to 107.4).
    """
    (plain,) = analyze([JOB], jobs=1)
    assert isinstance(plain, RunAnalysis) and plain.as_run is not None and plain.as_run.step_ms is not None
    own, half = plain.as_run.step_ms / beyond, uneven * plain.as_run.step_ms / 3
    told = msgspec.structs.replace(
        plain.as_run, source="steps", untraced_by="steps", step_ms=own, low_ms=own - half, high_ms=own + half,
        replayed_ms=Interval(plain.as_run.step_ms, plain.as_run.step_ms - half, plain.as_run.step_ms + half),
    )  # fmt: skip
    plain.as_run = told
    assert (name_of_step(plain) == "as run") is same is (step_of_job(plain) == "")


@pytest.mark.parametrize("of_traced", [0.955, 0.97, 0.993])
def test_a_step_that_is_given_is_told_as_it_was_given(of_traced: float) -> None:
    """`--step-ms 84.4` was told as *the 84.7 ms step*, and 87.5 of traced 88.2 as *the 88.1 ms step*."""
    (plain,) = analyze([JOB], jobs=1)
    assert isinstance(plain, RunAnalysis) and plain.replay is not None
    given = of_traced * plain.replay.traced_ms
    (answer,) = analyze([JOB], jobs=1, untraced=given_steps([given], [JOB]))
    assert isinstance(answer, RunAnalysis) and answer.as_run is not None
    assert answer.as_run.step_ms == pytest.approx(given, rel=4e-4)
    assert f" of the {milliseconds(given)} step" in run_verdict(answer).text


def test_a_median_is_known_by_stretches_since_neighbours_are_alike() -> None:
    alike = [50.0 + (at // 15) for at in range(90)]
    assert half_of_median(alike) == pytest.approx(2.571 * 1.8708 / 6**0.5, rel=0.01)
    assert half_of_median([50.0] * 90) == 0.0 and half_of_median([50.0]) == 0.0
