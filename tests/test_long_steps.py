"""Steps that wait for their batches now and then: no window need meet one, and the job's own rows tell of them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from scalescope.records.rows import StepRow
from scalescope.records.steps.job_steps import with_job_steps
from scalescope.report.text.findings import because
from scalescope.report.top.cards import _run_figures
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import PARTS, StepSplit
from scalescope.scaling.answer_steps import CoreWaits
from scalescope.scaling.finding.figures import WORKERS_CORES
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.of_rows.long_steps import with_long_steps
from scalescope.scaling.verdicts.step_rows.long_steps import long_steps
from tests.report_samples import run_answer, run_with_traces, write_run

JOB = Path(__file__).parent / "data" / "gather_sm_n2"  # 2.2 ms a step
STEP_MS = 2.2


def rows(lengths: list[float], loading: list[list[float]] | None = None, first: int = 0) -> list[StepRow]:
    return [
        StepRow(
            step=first + at,
            phase="steady",
            step_ms=[ms, ms],
            samples_per_s=64e3 / ms,
            loading_ms=loading[at] if loading else [],
        )
        for at, ms in enumerate(lengths)
    ]


def stalling(steps: int, every: int, stall_ms: float, rank: int | None = None) -> list[StepRow]:
    """Return steps of which every so many wait for a batch: all ranks' hosts, or one's."""
    lengths, loading = [], []
    for step in range(steps):
        waited = stall_ms if step % every == every - 1 else 0.0
        lengths.append(STEP_MS + 0.002 * (step % 3) + waited)
        loading.append([0.05 + (waited if rank in (None, one) else 0.0) for one in range(2)])
    return rows(lengths, loading)


def test_a_loader_that_stalls_now_and_then_is_found_and_sized() -> None:
    long = long_steps(stalling(120, 15, 45.0))
    assert long is not None and (long.count, long.cause, long.rank) == (8, "loading", None)
    assert long.ms == pytest.approx(3.0, rel=0.02) and long.low_ms < 3.0 < long.high_ms
    assert long.mean_step_ms == pytest.approx(STEP_MS + 3.0, rel=0.01)
    assert long.high_ms - long.low_ms < long.ms  # stalls at intervals are known better than by their number alone


def test_where_most_steps_wait_the_typical_one_is_no_yardstick() -> None:
    waits = [0.0, 50.0, 60.0, 0.0, 70.0, 55.0, 40.0, 0.0, 65.0, 60.0] * 12
    steps = rows([12.0 + ms for ms in waits], [[ms, 0.0] for ms in waits])
    long = long_steps(steps)
    assert long is not None and long.rank == 0
    assert long.ms == pytest.approx(sum(waits) / len(waits), rel=0.02)


def test_the_quick_steps_of_a_job_whose_pace_varies_are_no_yardstick_for_the_others() -> None:
    """*39 of 55 steps take 11.8 ms longer than the others*, of a host that took 23 to 43 ms: where it is quick, it is
    quick in its loader, too.
    """
    paces = [23.0 + step % 2 if step % 7 < 2 else 34.0 + step % 4 for step in range(55)]
    quick = rows(paces, [[0.02 * ms] * 2 for ms in paces])
    assert long_steps(quick) is None


def test_a_single_ranks_loader_is_that_ranks() -> None:
    long = long_steps(stalling(90, 10, 30.0, rank=1))
    assert long is not None and (long.cause, long.rank) == ("loading", 1)


def test_of_loaders_that_are_as_slow_the_rank_that_waits_for_most_is_not_alone() -> None:
    """*Rank 1 costs 9.3 ms*, of loaders of 3.5 ms a sample on both ranks: rank 0's workers made batches ahead while it
    waited for rank 1, and had it wait for 44% of the same steps' time all the same.
    """
    waits = [[0.1, 0.1] if step % 2 else [48.0, 46.0] if step < 20 else [8.0, 52.0] for step in range(80)]
    long = long_steps(rows([34.0 + 0.6 * max(one) for one in waits], waits))
    assert long is not None and (long.cause, long.rank) == ("loading", None)
    alone = [[0.1, 0.1] if step % 2 else [4.0, 52.0] for step in range(80)]
    long = long_steps(rows([34.0 + 0.6 * max(one) for one in alone], alone))
    assert long is not None and (long.cause, long.rank) == ("loading", 1)


@pytest.mark.parametrize("few", [rows([2.0] * 60), rows([2.0] * 58 + [300.0, 2.0]), rows([2.0, 9.0, 9.0, 9.0])])
def test_steady_steps_a_single_hiccup_and_too_few_steps_tell_nothing(few: list[StepRow]) -> None:
    assert long_steps(few) is None


def with_rows(path: Path, steady: list[StepRow]) -> RunAnalysis:
    """Return the answer for a run with the job's traces and such steady steps before them."""
    folder, recorded = run_with_traces(path, JOB)
    with folder.step_writer() as writer:
        for row in steady:
            writer.append(row)
        for step in sorted(recorded):
            row = StepRow(step=max(step, len(steady)), phase="profile", step_ms=[STEP_MS] * 2, samples_per_s=29e3)
            writer.append(row)
    (answer,) = analyze([path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer


def test_what_no_window_met_comes_first_and_the_rate_holds_it(tmp_path: Path) -> None:
    answer = with_rows(tmp_path / "run", stalling(120, 15, 45.0))
    first = answer.findings[0]
    assert (first.code, first.rank, first.backed) == ("data_loading", None, "measured")
    assert first.ms == pytest.approx(3.0, rel=0.02) and first.fraction == pytest.approx(3.0 / 5.2, rel=0.02)
    assert not any(one.code == "nothing" for one in answer.findings)
    assert answer.advice[0].cure == "load_faster"
    verdict = run_verdict(answer)
    assert "loading data costs 3.0 ms" in verdict.headline
    assert "a step in the mean, 57.7% of the 5.2 ms mean step" in verdict.headline
    assert "n 8 of 120 steps the hosts wait 45.0 ms for a batch" in verdict.headline
    assert "unsteady" not in verdict.headline  # what makes its steps differ is known
    assert answer.throughput is not None
    overall = answer.throughput.samples_per_s * STEP_MS / 5.2
    assert any(f"{overall:,.0f}"[:3] in one for one in verdict.notes if "long steps included" in one)
    again = run_verdict(msgspec_round(answer))
    assert again == verdict


def msgspec_round(answer: RunAnalysis) -> RunAnalysis:
    """Return an answer as it is read back; kept once more it stays what it is."""
    read = msgspec.json.decode(msgspec.json.encode(answer), type=RunAnalysis)
    before = list(read.findings)
    keep(read, read.findings)
    assert read.findings == before
    return read


def test_long_steps_of_unknown_cause_are_told_of_devices_and_not_of_hosts_that_compute() -> None:
    lengths = [2.2 + (45.0 if step % 15 == 14 else 0.0) for step in range(120)]
    for activity, expected in (("gpu", ["unsteady"]), ("cpu", [])):
        answer = told(activity, long=rows(lengths))
        assert [one.code for one in answer.findings] == expected
    longer = "8 of 120 steps (14, 29, 44, 59, 74, 89 and …) take 45.0 ms longer than the others"
    assert longer in run_verdict(told("gpu", long=rows(lengths))).text


def seldom(at: dict[int, float], rank: int | None = None, waited: float = 0.0) -> list[StepRow]:
    """Return 42 steps of 88 ms, of which some are longer by so much: by what one rank does, or by waits for a core."""
    return [
        StepRow(
            step=step,
            phase="steady",
            step_ms=[88.0 + step % 5 + at.get(step, 0.0)] * 2,
            samples_per_s=1.0,
            own_ms=[50.0 + (at.get(step, 0.0) if one == rank else 0.0) for one in range(2)],
            run_delay_ms=[waited * at.get(step, 0.0) + 2.0] * 2,
        )
        for step in range(42)
    ]


def test_a_few_steps_that_stand_far_apart_are_told_of_hosts_that_compute_but_where_they_wait_for_cores() -> None:
    """A job of 65 steps, three of which took 185 ms longer and made it 15% slower, was told that no fault is found."""
    irregular = {9: 183.0, 23: 187.0, 40: 185.0}
    found = long_steps(seldom(irregular))
    assert found is not None and (found.count, found.cause, found.rank, found.at) == (3, None, None, [9, 23, 40])
    assert found.ms == pytest.approx(13.2, abs=0.2) and found.low_ms < 0.5 * found.ms < 2 * found.ms < found.high_ms
    alone = long_steps(seldom(irregular, rank=1))
    assert alone is not None and alone.rank == 1
    assert long_steps(seldom(irregular, waited=0.9)) is None  # and so few are not known within what they cost
    assert long_steps(seldom({9: 183.0, 10: 180.0, 11: 185.0})) is None  # of one place nobody knows how often


def test_one_or_two_steps_that_are_far_longer_are_named_and_may_cost_nothing() -> None:
    """*Launching costs at most 13.6 ms* of a 76.3 ms step, and not a word of two validations of 316 ms among 27 steps,
    which made the mean step 100.2 ms: 24% fewer samples a second than the typical step tells.
    """
    for at, each in (({19: 316.0, 39: 300.0}, 308.0), ({19: 316.0}, 316.0)):
        few = long_steps(seldom(at))
        assert few is not None and few.is_rare and (few.count, few.at, few.rank) == (len(at), list(at), None)
        assert few.each_ms == pytest.approx(each, abs=3.0) and few.ms == pytest.approx(sum(at.values()) / 42, abs=0.4)
        assert few.low_ms == 0 < few.ms < few.high_ms
    own = long_steps(seldom({19: 316.0, 33: 300.0}, rank=1))
    assert own is not None and own.rank == 1
    split = seldom({})  # one rank saves at a step's end, and the others wait for it in the next
    split[19].step_ms[0] += 320.0
    split[20].step_ms[1] += 320.0
    found = long_steps(with_job_steps(split))
    assert found is not None and found.at == [19] and found.ms == pytest.approx(320 / 42, abs=0.3)


def test_a_step_that_a_window_met_is_one_of_the_few_that_are_far_longer() -> None:
    """*Late buckets cost 6.1 ms*, and not a word of validations of 119 and 105 ms in steps 15 and 30 of 44, of 111 ms:
    the second lay in the window, and the first alone was 4.1% of the mean step.
    """
    steady, met = steps_and_window({15: 119.0}, {30: 105.0})
    assert long_steps(steady) is None
    found = long_steps(steady, met)
    assert found is not None and found.is_rare and (found.count, found.at, found.profiled) == (2, [15, 30], [30])
    assert found.of == len(steady) + len(met) and found.ms == pytest.approx(224.0 / found.of, abs=0.2)
    assert found.each_ms == pytest.approx(112.0, abs=3.0)


def test_what_a_window_alone_has_or_what_cores_or_recording_explain_is_none_of_the_few() -> None:
    """Where starting to record took 80 ms of a step in undisturbed runs, no step of theirs was as long."""
    for at, recorded, waited in (
        ({}, {30: 105.0}, 0.0),
        ({15: 119.0}, {30: 105.0}, 0.9),  # for a core
        ({15: 119.0}, {30: 40.0}, 0.0),
        ({15: 119.0}, dict.fromkeys(range(22, 32), 110.0), 0.0),  # recording made all of them longer
        ({15: 119.0}, {24: 105.0, 26: 104.0, 28: 106.0}, 0.0),
    ):
        assert long_steps(*steps_and_window(at, recorded, waited)) is None


def steps_and_window(
    at: dict[int, float], recorded: dict[int, float], waited: float = 0.0
) -> tuple[list[StepRow], list[StepRow]]:
    """Return steps of 111 ms, and the recorded ones among them, of which some are longer by so much."""

    def made(step: int, more: float, wait: float) -> StepRow:
        return StepRow(
            step=step, phase="steady", step_ms=[109.0 + step % 5 + more] * 2, samples_per_s=1.0,
            own_ms=[90.0] * 2, run_delay_ms=[5.0 + wait * more] * 2, loading_ms=[4.0] * 2,
        )  # fmt: skip

    own = [made(step, at.get(step, 0.0), 0.0) for step in [*range(5, 20), *range(33, 44)]]
    return own, [made(step, recorded.get(step, 0.0), waited) for step in range(22, 32)]


def test_what_is_a_runs_own_doing_or_the_machines_is_none_of_those() -> None:
    """Nor are steps of which nothing tells whether others had the cores, or of which one is far longer than another."""
    windowed = [row for row in seldom({21: 316.0}) if row.step not in range(10, 20)]
    assert long_steps([row for row in seldom({21: 316.0}) if row.step not in range(10, 18)]) is not None
    untold = [msgspec.structs.replace(row, run_delay_ms=[]) for row in seldom({19: 316.0})]
    loading = [msgspec.structs.replace(row, loading_ms=[float(row.step == 19) * 300.0] * 2) for row in untold]
    none: list[list[StepRow]] = [
        seldom({0: 316.0}),
        seldom({1: 316.0}),
        seldom({41: 316.0}),
        windowed,
        untold,
        loading,
        seldom({19: 316.0}, waited=0.7),
        seldom({19: 80.0, 30: 75.0}),  # not far enough
        seldom({19: 120.0}),  # 3% of the mean step
        seldom({19: 400.0, 20: 390.0, 21: 395.0}),
        seldom({9: 400.0, 17: 180.0, 25: 150.0, 33: 120.0}),  # steps of any length
    ]
    assert [long_steps(one) for one in none[:-1]] == [None] * (len(none) - 1)
    several = long_steps(none[-1])
    assert several is None or not several.is_rare


def test_few_long_steps_come_behind_what_each_step_costs_and_before_bounds() -> None:
    sure = Finding(code="host_stall", rank=0, ms=9.0, low_ms=8.0, high_ms=10.0, backed="replay",
                   remedy=Remedy(cure="less_python"))  # fmt: skip
    little = Finding(code="data_loading", ms=1.0, low_ms=0.9, high_ms=1.1, backed="replay")
    bound = Finding(code="host_bound", ms=9.0, low_ms=0.0, high_ms=9.0, backed="bound", at_most=True)
    steps = seldom({19: 316.0, 39: 300.0})
    findings = with_long_steps([bound, sure, little], told("gpu", None, steps))
    assert [one.code for one in findings] == ["host_stall", "unsteady", "host_bound", "data_loading"]
    first = run_verdict(told("gpu", [bound], steps)).headline
    assert ": 2 of 42 steps (19 and 39) take 310.0 ms longer than the others: 14.8 ms a step in the mean" in first
    assert "of the 104.6 ms mean step. No window shows why, nor do so few show how often they come." in first
    assert ": 1 of 42 steps (19) takes 40" in run_verdict(told("gpu", [], seldom({19: 400.0}))).headline


def test_what_taking_ready_batches_over_costs_comes_behind_few_long_steps() -> None:
    """*Loading data costs 4.0 ms* of 110.8 led a job that validated in two of 36 steps, which cost 6.5 ms a step."""
    steps = told("gpu", None, seldom({19: 316.0, 39: 300.0}))
    for cores, first in ((0.07, "unsteady"), (1.2, "data_loading")):
        workers = (EvidenceRow(kind="figure", name="ranks", value=2.0),
                   EvidenceRow(kind="figure", name=WORKERS_CORES, value=cores))  # fmt: skip
        loads = Finding(code="data_loading", ms=9.0, low_ms=8.0, high_ms=10.0, backed="replay", evidence=workers,
                        remedy=Remedy(cure="load_faster"))  # fmt: skip
        assert with_long_steps([loads], steps)[0].code == first


def test_few_long_steps_behind_a_sure_cause_are_told_with_what_the_profiled_one_does() -> None:
    """*Late buckets cost 6.1 ms* was all of a job that also validates in two of its steps."""
    run = told("cpu", [], seldom({}))
    sure = Finding(code="late_bucket", ms=6.1, low_ms=2.2, high_ms=10.6, fraction=0.055, backed="replay",
                   remedy=Remedy(cure="smaller_buckets"))  # fmt: skip
    assert run.step_times is not None
    run.step_times.long_steps = long_steps(*steps_and_window({15: 119.0}, {30: 105.0}))
    run.step_times.core_waits = CoreWaits(ms=1.0, low_ms=0.5, high_ms=1.5, mean_step_ms=111.0, steps=26)
    none = dict.fromkeys((f"{part}_ms" for part in PARTS if part != "compute"), 0.0)
    run.steps = [
        StepSplit(rank=rank, step=step, window_ms=111.0 + 105.0 * (step == 30), operators=1464 if step == 30 else 860,
                  compute_ms=87.0 + 100.0 * (step == 30), **none)  # type: ignore[arg-type]
        for rank in (0, 1) for step in range(22, 32)
    ]  # fmt: skip
    keep(run, [sure])
    assert [one.code for one in run.findings] == ["late_bucket", "unsteady"]
    verdict = run_verdict(run)
    (rare,) = [one for one in verdict.sentences if "longer than the others" in one]
    assert (
        rare.startswith("2 of 36 steps (15 and 30) take 109.8") and "a step in the mean. In step 30, which was" in rare
    )
    why = (
        "a rank computes for 100.0 ms longer, with 1.7 times the operators, as where it validates; how often they come"
    )
    assert f"{why} so few do not show: run for longer." in rare and why in because(run.findings[1])
    for one in run.steps:
        one.compute_ms = 87.0
    assert run.step_times.long_steps is not None
    keep(run, [sure])
    assert "Step 30 was profiled and does not show why; how often" in run_verdict(run).text
    again = run_verdict(msgspec_round(run))
    assert again == run_verdict(run)


def test_what_one_rank_does_at_a_steps_end_and_the_others_wait_for_in_the_next_is_one() -> None:
    made = seldom({})
    for step in (9, 23, 35):
        for row, rank in ((step, 0), (step + 1, 1)):
            made[row].step_ms[rank] += 150.0
    found = long_steps(with_job_steps(made))
    assert found is not None and (found.count, found.at) == (3, [9, 23, 35])
    assert found.each_ms == pytest.approx(150.0, abs=2.0) and found.ms == pytest.approx(3 * 150 / 42, abs=0.2)


def test_what_windows_show_of_the_same_cause_is_part_of_it() -> None:
    found = Finding(code="data_loading", ms=0.4, low_ms=0.1, high_ms=0.7, backed="replay")
    other = Finding(code="copies", ms=0.3, low_ms=0.2, high_ms=0.4, backed="replay")
    answer = told("gpu", [found, other], stalling(120, 15, 45.0))
    assert [one.code for one in answer.findings] == ["data_loading", "copies"]
    assert answer.findings[0].ms == pytest.approx(3.0, rel=0.02)
    costlier = Finding(code="data_loading", ms=9.0, low_ms=8.0, high_ms=10.0, backed="replay")
    assert told("gpu", [costlier], stalling(120, 15, 45.0)).findings == [costlier]


def test_a_window_that_noise_drowns_does_not_hide_what_all_steps_tell() -> None:
    drowned = Finding(code="data_loading", ms=9.0, low_ms=0.0, high_ms=18.0, backed="replay")
    bound = Finding(code="data_loading", ms=5.0, low_ms=0.0, high_ms=5.0, backed="bound", at_most=True)
    for one in (drowned, bound):
        answer = told("gpu", [one], stalling(120, 15, 45.0))
        assert [found.backed for found in answer.findings] == ["measured"]
    of_rank = Finding(code="data_loading", rank=1, ms=1.5, low_ms=1.0, high_ms=2.0, backed="replay")
    assert [found.rank for found in told("gpu", [of_rank], stalling(120, 15, 45.0)).findings] == [None]


def test_the_page_and_the_sentence_tell_one_throughput() -> None:
    waits = [0.0, 50.0, 60.0, 0.0, 70.0, 55.0, 40.0, 0.0, 65.0, 60.0] * 12
    steps = rows([12.0 + ms for ms in waits], [[ms, ms] for ms in waits])
    answer = told("gpu", None, steps)
    done, times = answer.throughput, answer.step_times
    assert done is not None and times is not None
    times.measured_step_ms, done.tokens_per_s, done.samples_per_s = 64.5, None, 1000.0
    mean = 12.0 + sum(waits) / len(waits)
    overall, typical = 1000.0 * 64.5 / mean, 1000.0 * 64.5 / 12.0
    (sentence,) = [one for one in run_verdict(answer).notes if "long steps included" in one]
    assert f"It does {overall:,.0f} " in sentence.replace(".0 ", " ") and f"{typical:,.0f}" in sentence
    (shown,) = [one.value for one in _run_figures(answer) if one.label == "throughput, long steps included"]
    assert f"It does {shown} " in sentence


def told(activity: Any, findings: list[Finding] | None = None, long: list[StepRow] | None = None) -> RunAnalysis:
    answer = run_answer("gpt", 2)
    answer.activity, answer.experts, answer.pipelines = activity, [], []
    assert answer.step_times is not None and long is not None
    answer.step_times.long_steps, answer.step_times.measured_steps = long_steps(long), len(long)
    keep(answer, findings or [])
    return answer


def test_a_job_without_traces_tells_it_too(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 2)
    folder.analysis.unlink()
    folder.steps.unlink()
    with folder.step_writer() as writer:
        for row in stalling(120, 15, 45.0):
            writer.append(row)
    (answer,) = analyze([folder.path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    verdict = run_verdict(answer)
    assert "loading data costs 3.0 ms" in verdict.headline and "make batches faster" in verdict.advice


def test_a_rank_whose_workers_are_slow_says_that_the_others_may_be_too() -> None:
    """Workers go on while their rank waits for another one: how slow those are, no wait tells."""
    for name, hedged in (
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", True),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", False),
    ):
        row = EvidenceRow(kind="annotation", name=name, ms=104.0)
        found = Finding(code="data_loading", rank=1, ms=104.0, low_ms=99.0, high_ms=110.0, backed="replay",
                        evidence=(row,))  # fmt: skip
        assert ("whether the others' workers are as slow does not show" in because(found)) == hedged
