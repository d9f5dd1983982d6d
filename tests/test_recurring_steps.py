"""Steps that are longer every so often (validation, a checkpoint, a log) are told by the rows of all steps, first."""

import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.report.terminal.verdicts import print_findings
from scalescope.report.text.recurring import recurring_clause
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.verdicts.step_rows.doubt import is_doubtful
from scalescope.scaling.verdicts.step_rows.recurring import recurring_steps
from tests.report_samples import run_with_traces, write_run
from tests.test_report_top import BUCKETS, page_text, replayed

JOB = Path(__file__).parent / "data" / "gather_sm_n2"  # 2.2 ms a step
STEPS = range(5, 45)


def rows(times: Callable[[int], list[float]], steps: range = STEPS) -> list[StepRow]:
    return [StepRow(step=step, phase="steady", step_ms=times(step), samples_per_s=1.0) for step in steps]


def test_what_all_ranks_wait_for_in_the_same_step_is_told_with_its_period_and_cost() -> None:
    found = recurring_steps(rows(lambda step: [30.0 + step % 2, 31.0] if step % 3 else [120.0, 121.0]))
    assert found is not None and (found.every, found.phase, found.phases, found.rank) == (3, 0, [0], None)
    assert found.longer_ms == pytest.approx(90.0, abs=1.0) and found.mean_ms == pytest.approx(30.0, abs=0.5)


def test_what_one_rank_does_at_a_steps_end_is_its_own_and_counted_once() -> None:
    """The others wait for it in the step after, which by each step's slowest rank would be as long once more."""
    found = recurring_steps(rows(lambda step: [150.0 if step % 5 == 4 else 30.0, 149.0 if step % 5 == 0 else 30.0]))
    assert found is not None and (found.every, found.phase, found.phases, found.rank) == (5, 4, [0, 4], 0)
    assert found.usual_ms == pytest.approx(30.0) and found.mean_ms == pytest.approx(24.0)
    late = recurring_steps(rows(lambda step: [150.0 if step % 5 == 0 else 30.0, 149.0 if step % 5 == 4 else 30.0]))
    assert late is not None and (late.phase, late.rank) == (4, 1)


def test_what_they_cost_is_a_mean_also_where_one_takes_twice_as_long_now_and_then() -> None:
    """Of checkpoints of 0.5, 1.1, 1.0, 0.5 and 0.5 s *51.4 ms a step in the mean* was told, the median's tenth."""
    taken = {9: 0.49, 19: 1.14, 29: 1.04, 39: 0.48, 49: 0.48}
    found = recurring_steps(rows(lambda step: [140.0 + 1e3 * taken.get(step, 0.0)], range(50)))
    assert found is not None and found.every == 10
    assert found.mean_ms == pytest.approx(72.6) and found.longer_ms == pytest.approx(726.0)


def untraced(name: str) -> list[StepRow]:
    """Return the steady steps of a real job: an LSTM on two CPU ranks, which validates in every 5th step."""
    with (JOB.parent / name).open("rb") as lines:
        return [row for line in lines if (row := msgspec.json.decode(line, type=StepRow)).phase == "steady"]


@pytest.mark.parametrize(
    ("name", "validation_ms"), [("validating_steps.jsonl", 33.3), ("validating_again.jsonl", 36.4)]
)
def test_what_validation_costs_is_within_its_interval_of_what_its_own_clock_tells(
    name: str, validation_ms: float
) -> None:
    """38.3 and 42.5 ms were told: a mean less a median, of the rank with more hiccups."""
    found = recurring_steps(untraced(name))
    assert found is not None and (found.every, found.phase, found.rank) == (5, 4, None)
    assert found.longer_low_ms is not None and found.longer_high_ms is not None
    assert found.longer_low_ms < validation_ms < found.longer_high_ms
    assert found.longer_ms == pytest.approx(validation_ms, rel=0.1)


def saving(name: str) -> tuple[list[StepRow], list[StepRow]]:
    """Return a real job's steady and profiled steps: two CPU ranks, of which rank 0 saves in every 6th step."""
    with (JOB.parent / name).open("rb") as lines:
        read = [msgspec.json.decode(line, type=StepRow) for line in lines]
    return [row for row in read if row.phase == "steady"], [row for row in read if row.phase == "profile"]


@pytest.mark.parametrize("name", ["saving_steps.jsonl", "saving_again.jsonl", "saving_unsteady.jsonl"])
def test_a_save_of_a_third_of_a_step_is_found_on_a_machine_whose_speed_drifts(name: str) -> None:
    """Of each job as many other steps were as long, for the machine's sake, and nothing was told of the saves."""
    found = recurring_steps(*saving(name))
    assert found is not None and (found.every, found.phase, found.phases, found.rank) == (6, 5, [0, 5], 0)
    assert 10.0 < found.longer_ms < 16.0 and found.longer_low_ms is not None and found.longer_low_ms > 0.0


@pytest.mark.parametrize("name", ["saving_steps.jsonl", "saving_again.jsonl", "saving_unsteady.jsonl"])
def test_the_same_steps_in_any_other_order_are_no_pattern(name: str) -> None:
    chance, found = np.random.default_rng(3), 0
    for _ in range(250):
        shuffled = []
        for part in saving(name):
            order = chance.permutation(len(part)).tolist()
            shuffled.append(
                [msgspec.structs.replace(part[at], step=row.step) for at, row in zip(order, part, strict=True)]
            )
        found += recurring_steps(*shuffled) is not None
    assert found <= 2


def test_four_that_stand_far_apart_from_all_others_and_evenly_are_told_of_a_short_job() -> None:
    """A job of 45 steps validates in steps 9, 19, 29 (profiled) and 39, 99 to 114 ms of 62: nothing was told of it.

    As run with and without, by turns, it costs 5.0 ms a step (1.3 to 7.7).
    """
    found = recurring_steps(*saving("validating_tenth.jsonl"))
    assert found is not None and (found.every, found.phase, found.phases, found.rank) == (10, 9, [9], None)
    assert found.longer_low_ms is not None and 30.0 < found.longer_low_ms < 41.0 < found.longer_ms < 42.0
    assert found.usual_ms == pytest.approx(63.2, abs=0.1) and found.mean_ms == pytest.approx(4.1, abs=0.1)
    steady, profiled = saving("validating_tenth.jsonl")
    moved = [steady[at] for at in (*range(4, len(steady)), *range(4))]  # in other steps, no more even
    swapped = [msgspec.structs.replace(one, step=row.step) for one, row in zip(moved, steady, strict=True)]
    assert recurring_steps(swapped, profiled) is None


def test_two_and_a_profiled_one_are_told_where_loops_that_count_have_what_they_do_every_so_often() -> None:
    """Of a checkpoint in steps 9, 19 and 29 (profiled) *one step of 10, which tells nothing of the others* was
    told, 16.8 ms (0 to 67.8) a step of 19.
    """
    steady, profiled = ([row for row in part if row.step < 36] for part in saving("validating_tenth.jsonl"))
    found = recurring_steps(steady, profiled)
    assert found is not None and (found.every, found.phase) == (10, 9)
    later = [[msgspec.structs.replace(row, step=row.step + 3) for row in part] for part in (steady, profiled)]
    assert recurring_steps(*later) is None, "as even by chance in one of a hundred orders of 30 steps"


@pytest.mark.parametrize("last", [24, 30, 40])
@pytest.mark.parametrize("name", ["validating_tenth.jsonl", "saving_steps.jsonl"])
def test_of_few_steps_in_any_other_order_one_in_a_thousand_is_taken_for_a_pattern(name: str, last: int) -> None:
    chance, found = np.random.default_rng(11), 0
    steady, profiled = saving(name)
    since = sorted(row.step for row in [*steady, *profiled])[-last:][0]
    parts = [[row for row in part if row.step >= since] for part in (steady, profiled)]
    for _ in range(700):
        orders = [chance.permutation(len(part)).tolist() for part in parts]
        found += (
            recurring_steps(
                *(
                    [msgspec.structs.replace(part[at], step=row.step) for at, row in zip(order, part, strict=True)]
                    for order, part in zip(orders, parts, strict=True)
                )
            )
            is not None
        )
    assert found <= 2


def test_two_thousand_steps_of_many_ranks_take_a_moment() -> None:
    """For 3,000 steps of 64 ranks a second went by, twice, for medians of lists and factorials made anew."""
    noise = np.random.default_rng(1)
    times = 60.0 + noise.exponential(3.0, (2000, 64))
    times[9::10] += 40.0
    made = [
        StepRow(step=step, phase="steady", step_ms=own, own_ms=own, samples_per_s=1.0)
        for step, own in enumerate(times.tolist())
    ]
    began = time.process_time()
    found = recurring_steps(made)
    assert found is not None and found.every == 10
    assert time.process_time() - began < 1.0  # 0.2 s, on a machine with nothing else to do


def test_steps_of_a_machine_whose_speed_drifts_are_no_pattern() -> None:
    chance, found = np.random.default_rng(5), 0
    for _ in range(300):
        level = 10 * np.cumsum(chance.standard_normal(60)) / 5
        times = np.maximum(1.0, 60 + level + 4 * chance.standard_t(3, 60))[:, None] + chance.exponential(3.0, (60, 2))
        found += recurring_steps(rows(lambda step, t=times: list(map(float, t[step])), range(60))) is not None  # type: ignore[misc]
    assert found <= 3


def windows_of(rank_0_ms: Callable[[int, bool], float]) -> tuple[list[StepRow], list[StepRow]]:
    """Return steps of which 6 of each 25 are profiled."""
    noise = np.random.default_rng(9)
    found: tuple[list[StepRow], list[StepRow]] = ([], [])
    for step in range(5, 130):
        profiled = step % 25 in range(10, 16)
        times = [rank_0_ms(step, profiled) + float(noise.standard_normal()), 40.0 + float(noise.standard_normal())]
        phase = "profile" if profiled else "steady"
        found[profiled].append(StepRow(step=step, phase=phase, step_ms=times, samples_per_s=1.0))  # type: ignore[arg-type]
    return found


def test_what_a_profiler_does_in_each_of_its_windows_is_nothing_that_the_job_does_every_so_often() -> None:
    """Neither is what its windows begin and end with, nor what rank 0, which alone is recorded, takes longer there."""
    ends = {10: 30.0, 15: 80.0, 16: 20.0}
    assert recurring_steps(*windows_of(lambda step, profiled: 40.0 + ends.get(step % 25, 15.0 * profiled))) is None
    found = recurring_steps(*windows_of(lambda step, profiled: 40.0 + 15.0 * profiled + 9.0 * (step % 7 == 0)))
    assert found is not None and (found.every, found.phase) == (7, 0)


def test_what_one_rank_does_in_midst_of_every_4th_step_is_seen_by_its_own_time() -> None:
    """All wait for it in the same step, whose transfers differ by more than it takes."""
    noise, made = np.random.default_rng(4), []
    for step in STEPS:
        more, transfer = 9.0 * (step % 4 == 1), float(noise.exponential(9.0))
        own = [30.0 + float(noise.standard_normal()), 30.0 + more + float(noise.standard_normal())]
        ms = max(own) + transfer
        made.append(StepRow(step=step, phase="steady", step_ms=[ms, ms], own_ms=own, samples_per_s=1.0))
    found = recurring_steps(made)
    assert found is not None and (found.every, found.phase, found.phases, found.rank) == (4, 1, [1], 1)
    assert recurring_steps([msgspec.structs.replace(row, own_ms=[]) for row in made]) is None
    both = [msgspec.structs.replace(row, own_ms=[max(row.own_ms)] * 2) for row in made]
    told = recurring_steps([msgspec.structs.replace(row, step_ms=row.own_ms) for row in both])
    assert told is not None and told.every == 4 and told.rank is None


def test_one_that_is_no_longer_than_others_does_not_hide_the_rest_and_two_of_six_do() -> None:
    def without(*missed: int) -> RecurringSteps | None:
        noise = np.random.default_rng(8)
        more = {step: 20.0 for step in range(5, 65) if step % 10 == 7 and step not in missed}
        return recurring_steps(rows(lambda step: [50.0 + more.get(step, 0.0) + float(noise.random())], range(5, 65)))

    found = without(27)
    assert found is not None and (found.every, found.phase) == (10, 7)
    assert found.mean_ms == pytest.approx(2.0 * 5 / 6, abs=0.1)  # what it cost, that one among them
    assert without(27, 47) is None


def test_hiccups_of_all_steps_alike_do_not_make_the_longer_ones_longer() -> None:
    """In the mean of a hundred jobs it is what was put in, and 19 of 20 intervals have it."""
    chance, longer, held = np.random.default_rng(7), [], 0
    for _ in range(100):
        times = 70 + chance.exponential(8.0, (60, 2)) + np.repeat(chance.exponential(4.0, 60)[:, None], 2, axis=1)
        times[4::5] += 35.0
        found = recurring_steps(rows(lambda step, t=times: list(map(float, t[step])), range(60)))  # type: ignore[misc]
        assert found is not None and found.every == 5
        assert found.longer_low_ms is not None and found.longer_high_ms is not None
        longer.append(found.longer_ms)
        held += found.longer_low_ms < 35.0 < found.longer_high_ms
    assert np.mean(longer) == pytest.approx(35.0, abs=0.75)
    assert held >= 90


def test_a_slow_stretch_of_the_machine_is_no_part_of_what_they_cost() -> None:
    found = recurring_steps(rows(lambda step: [(40.0 if step < 22 else 60.0) + (60.0 if step % 4 == 1 else 0.0)]))
    assert found is not None and found.every == 4
    assert found.longer_ms == pytest.approx(60.0, abs=1.5)


def test_a_pause_between_them_does_not_hide_them() -> None:
    found = recurring_steps(rows(lambda step: [5000.0 if step == 8 else 90.0 if step % 4 == 1 else 40.0]))
    assert found is not None and found.longer_ms == pytest.approx(50.0, abs=3.0)


def test_a_long_step_now_and_then_elsewhere_does_not_hide_them() -> None:
    found = recurring_steps(rows(lambda step: [200.0 if step in (7, 31) else 90.0 if step % 4 == 1 else 40.0]))
    assert found is not None and (found.every, found.phase) == (4, 1)


@pytest.mark.parametrize("steps", [range(6), range(20), range(60), range(7, 27)])
def test_uneven_steps_are_no_pattern(steps: range) -> None:
    noise = np.random.default_rng(len(steps))
    for _ in range(50):
        times = 30 * np.exp(0.3 * noise.standard_normal((100, 2)))
        assert recurring_steps(rows(lambda step, t=times: list(map(float, t[step])), steps)) is None  # type: ignore[misc]


def test_nothing_is_told_of_few_steps_none_or_a_tenth_longer() -> None:
    assert recurring_steps([]) is None
    assert recurring_steps(rows(lambda step: [30.0 if step % 2 else 60.0], range(5))) is None
    assert recurring_steps(rows(lambda step: [30.0 + step % 7 / 100 if step % 4 else 31.0])) is None


def own_run(path: Path, every: int, extra_ms: float) -> RunAnalysis:
    """Return the answer for a run of 2.2 ms a step, of which every so many are longer."""
    folder, recorded = run_with_traces(path, JOB)
    with folder.step_writer() as writer:
        for step in range(max(recorded) - 40, max(recorded) + 20):
            profiled = step in recorded
            ms = 2.2 + 0.001 * (step % 2) + (extra_ms if step % every == 0 and not profiled else 0.0)
            phase = "profile" if profiled else "steady"
            writer.append(StepRow(step=step, phase=phase, step_ms=[ms, ms], samples_per_s=2e3 / ms))  # type: ignore[arg-type]
    (answer,) = analyze([path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer


def test_what_costs_more_than_anything_profiled_comes_first_and_its_throughput_beside(tmp_path: Path) -> None:
    answer = own_run(tmp_path / "run", 4, 8.8)
    assert answer.recurring is not None and answer.throughput is not None and answer.step_times is not None
    assert answer.step_times.measured_step_ms == pytest.approx(2.2, abs=0.01)
    verdict = run_verdict(answer)
    lead = ": every 4th step takes 8.8 ms longer than the others' 2.2 ms: 2.2 ms a step in the mean."
    assert verdict.headline.endswith(lead)  # one short sentence, and nothing of the profiled steps
    assert " profiled step" in verdict.sentences[0] and ". Of the profiled steps: " in verdict.sentences[0]
    assert " such a one. " in verdict.sentences[0]
    of_other_steps = [one for one in verdict.sentences if "is compute" in one]
    assert all(" step as profiled is" in one or " step without recording is" in one for one in of_other_steps)
    assert verdict.advice.startswith("see what every 4th step does")
    assert "It does 908.7 samples/s between the longer steps, 454.5 with them." in verdict.text
    page = page_text(RunFolder(tmp_path / "run"), answer)
    assert "throughput, between the longer steps" in page and "See what every 4th step does" in page
    console = Console(record=True, width=400, file=StringIO())
    print_findings(console, answer, unsteady=False)
    listed = console.export_text().split("what to do\n")[1].splitlines()
    assert listed[0] == f"1. {lead[2:]}" and listed[1].startswith("   See what every 4th step does")
    assert not listed[2:] or listed[2].startswith("2. ")


def test_the_table_of_advice_is_no_firmer_than_a_first_sentence_of_them(tmp_path: Path) -> None:
    answer = replayed(50.0, BUCKETS)
    folder = write_run(tmp_path / "run", 4)
    assert "Most would come of: use larger" in page_text(folder, answer)
    answer.recurring = RecurringSteps(
        every=5, phase=4, phases=[4], rank=None, longer_ms=60.0, usual_ms=50.0, mean_ms=12.0
    )
    assert "Of the profiled steps alone, most would come of: use larger" in page_text(folder, answer)


def test_a_window_that_met_one_is_no_unsteady_machine(tmp_path: Path) -> None:
    answer = own_run(tmp_path / "run", 4, 8.8)
    assert answer.step_times is not None and answer.recurring is not None
    answer.step_times.unsteady, answer.step_times.profiling_overhead_fraction = True, 0.5
    met = {one.step % answer.recurring.every in answer.recurring.phases for one in answer.steps}
    assert True in met
    assert not is_doubtful(answer)
    answer.recurring = None
    assert is_doubtful(answer)


def test_a_job_without_traces_tells_it_first_too(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 2)
    folder.analysis.unlink()
    folder.steps.unlink()
    with folder.step_writer() as writer:
        for step in range(60):
            ms = 30.0 + 0.01 * (step % 2) + (90.0 if step % 4 == 0 else 0.0)
            writer.append(StepRow(step=step, phase="steady", step_ms=[ms, ms], samples_per_s=2e3 / ms))
    (answer,) = analyze([folder.path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    verdict = run_verdict(answer)
    assert ": every 4th step takes 90.0 ms longer than the others' 30.0 ms" in verdict.headline
    assert verdict.advice.startswith("see what every 4th step does")


SLEEPS = Path(__file__).parent / "data" / "cpu_now_and_then_n2"  # rank 1 slept for 60 ms in every 3rd step


def sleeping(path: Path, times: Callable[[int], list[float]]) -> RunAnalysis:
    """Return the answer for the job whose traces show a sleep in two of six steps, of such untraced steps."""
    folder, recorded = run_with_traces(path, SLEEPS)
    with folder.step_writer() as writer:
        for step in range(max(recorded) + 60):
            phase = "profile" if step in recorded else "steady"
            writer.append(StepRow(step=step, phase=phase, step_ms=times(step), samples_per_s=1.0))  # type: ignore[arg-type]
    (answer,) = analyze([path], jobs=1)
    assert isinstance(answer, RunAnalysis) and answer.recurring is not None and answer.recurring.every == 3
    return answer


def test_what_the_window_shows_of_them_is_one_cause_told_once(tmp_path: Path) -> None:
    """Two costs of one sleep were listed, by all steps and by the replay, as if they were to be added."""
    answer = sleeping(tmp_path / "run", lambda step: [4.0 + 0.1 * (step % 2) + (60.0 if step % 3 == 0 else 0.0)] * 2)
    assert answer.recurring is not None and answer.recurring.doing is not None
    assert (answer.recurring.doing.code, answer.recurring.doing.rank) == ("host_stall", 1)
    assert not [one for one in answer.findings if one.rank is not None]
    verdict = run_verdict(answer)
    assert (
        ": every 3rd step takes 60.0 ms longer than the others' 4.0 ms, for what holds up rank 1's host: 20.0 ms a step"
        in verdict.headline
    )
    there = "2 of the 6 profiled steps are such a one. On rank 1, its host does nothing that is recorded "
    assert verdict.sentences[0].startswith(there)
    console = Console(record=True, width=400, file=StringIO())
    print_findings(console, answer, unsteady=False)
    assert console.export_text().count("nothing that is recorded") == 1


@pytest.mark.parametrize(
    "times",
    [
        lambda step: [4.0 + 0.1 * (step % 2) + (60.0 if step % 3 == 1 else 0.0)] * 2,
        lambda step: [64.0 if step % 3 == 0 else 4.0 + 0.1 * (step % 2), 64.0 if step % 3 == 1 else 4.0],
        lambda step: [4.0 + 0.1 * (step % 2) + (6.0 if step % 3 == 0 else 0.0)] * 2,
    ],
    ids=["other steps", "another rank", "far shorter"],
)
def test_what_the_window_shows_of_other_steps_another_rank_or_another_size_stays_a_cause_of_its_own(
    tmp_path: Path, times: Callable[[int], list[float]]
) -> None:
    answer = sleeping(tmp_path / "run", times)
    assert answer.recurring is not None and answer.recurring.doing is None
    assert answer.findings[0].code == "host_stall" and answer.findings[0].rank == 1


def test_what_costs_less_is_told_beside_and_what_hardly_costs_anything_not_at_all(tmp_path: Path) -> None:
    even = run_verdict(own_run(tmp_path / "even", 4, 0.0))
    assert "every 4th" not in even.text and "between the longer steps" not in even.text
    less = own_run(tmp_path / "less", 10, 1.1)
    verdict = run_verdict(less)
    assert (
        less.recurring is not None and less.findings[0].ms is not None and less.findings[0].ms > 0.2
    )  # whatever it is, it costs more than 0.11 ms
    assert "every 10th" not in verdict.headline
    assert any(one.startswith("Every 10th step takes 1.1 ms longer") for one in verdict.sentences)
    at = listed(less).index(f"2. {recurring_clause(less.recurring)}.")  # in its place by what it costs
    assert listed(less)[at + 1].startswith("   See what every 10th step does") and "every 10th" not in listed(less)[0]


def listed(answer: RunAnalysis) -> list[str]:
    """Return what a terminal lists as what costs the step."""
    console = Console(record=True, width=400, file=StringIO())
    print_findings(console, answer, unsteady=False)
    return console.export_text().split("what to do\n")[1].splitlines()


def test_what_may_as_well_cost_more_than_what_comes_first_is_said_beside_it(tmp_path: Path) -> None:
    """Loading data for 2.1 ms (1.3 ms to 8.4 ms) was all that was said first, beside a save of 2.0 ms a step."""
    answer = own_run(tmp_path / "run", 10, 1.1)
    assert answer.recurring is not None
    first = msgspec.structs.replace(answer.findings[0], ms=0.12, low_ms=0.05, high_ms=0.4, at_most=False)
    answer.findings = [first, *answer.findings[1:]]
    answer.recurring.longer_low_ms, answer.recurring.longer_high_ms = 0.6, 1.6
    verdict = run_verdict(answer)
    beside = f" What recurs may cost as much: {recurring_clause(answer.recurring)}."
    assert verdict.headline.endswith(beside) and not verdict.headline.startswith(beside)
    assert " every 10th step takes 1.1 ms (0.60 ms to 1.6 ms) longer" in beside
    assert sum("such a longer one" in one for one in verdict.sentences) == 1 and "Every 10th" not in verdict.text
    answer.recurring.longer_high_ms = 1.15  # 0.115 ms a step: less than 0.12 for sure
    assert "What recurs" not in run_verdict(answer).headline


@pytest.mark.parametrize(
    ("code", "rank", "told"),
    [
        ("more_work", None, "for what rank 1 computes"),
        ("data_loading", None, "for the data that rank 1 loads"),
        ("host_stall", None, "for what holds up rank 1's host"),
        ("host_stall", 1, "for what rank 1 does before the others go on"),
    ],
)
def test_who_does_what_in_them_is_in_the_same_sentence(code: Code, rank: int | None, told: str) -> None:
    doing = Finding(code=code, rank=1, ms=9.0, low_ms=8.0, high_ms=10.0, backed="replay")
    found = RecurringSteps(
        every=5, phase=4, phases=[4], rank=rank, longer_ms=45.0, usual_ms=42.0, mean_ms=9.0, doing=doing
    )
    longer = "every 5th step takes 45.0 ms longer than the others' 42.0 ms"
    assert recurring_clause(found) == f"{longer}, {told}: 9.0 ms a step in the mean"
