"""Steps that grow, each longer than the one before, are told as that: by how much, from what to what, what grows."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from scalescope.records.rows import StepRow
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import PARTS, StepSplit
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.trace.intervals import EMPTY
from scalescope.scaling.verdicts.step_rows.doubt import is_doubtful
from scalescope.scaling.verdicts.step_rows.growing import (
    add_growth_of_traces,
    add_part,
    growing_rows,
    growing_traces,
    slope_of,
)
from tests.report_samples import run_answer, run_with_traces

JOB = Path(__file__).parent / "data" / "gather_sm_n2"  # 2.2 ms a step
NOISE = np.random.default_rng(5)


def rows(times: Callable[[int], float], steps: range = range(5, 65), ranks: int = 1) -> list[StepRow]:
    return [
        StepRow(step=step, phase="steady", step_ms=[times(step)] * ranks, samples_per_s=2e3 / times(step))
        for step in steps
    ]


def noisy(share: float) -> float:
    return float(np.exp(share * NOISE.standard_normal()))


def test_the_slope_is_told_with_an_interval_that_holds_it() -> None:
    inside = 0
    for _ in range(40):
        found = growing_rows(rows(lambda step: (30.0 + 0.4 * step) * noisy(0.05)))
        assert found is not None and found.known_by == "rows"
        inside += found.low_ms <= 0.4 <= found.high_ms
        assert found.first < 8 and found.last > 60
        assert found.from_ms == pytest.approx(32.0, rel=0.12) and found.to_ms == pytest.approx(55.0, rel=0.12)
    assert inside >= 35  # of 95%


@pytest.mark.parametrize(
    "times",
    [
        lambda step: 30.0 * noisy(0.3),
        lambda step: (30.0 if step < 30 else 50.0) * noisy(0.03),  # longer once: a level
        lambda step: (30.0 if step < 15 else 50.0) * noisy(0.03),
        lambda step: 30.0 + 20.0 * (1 - np.exp(-step / 6)),  # it grows and stays
        lambda step: 30.0 + 15.0 * np.sin(step / 9),
        lambda step: 60.0 - 0.4 * step,
        lambda step: 180.0 if step % 2 else 20.0,
        lambda step: 30.0 + 0.02 * step,  # by 4% in all
    ],
)
def test_noise_levels_and_steps_that_do_not_go_on_growing_are_no_growth(times: Callable[[int], float]) -> None:
    for _ in range(10):
        assert growing_rows(rows(times)) is None


def test_single_long_steps_and_few_steps_tell_nothing_but_what_all_do() -> None:
    long = growing_rows(rows(lambda step: 30.0 + 0.5 * step + (400.0 if step % 13 == 0 else 0.0)))
    assert long is not None and long.a_step_ms == pytest.approx(0.5, abs=0.05)
    assert growing_rows(rows(lambda step: 30.0 + step, range(5))) is None and growing_rows([]) is None
    assert slope_of([1] * 20, list(range(20))) is None


def test_a_machine_that_becomes_busier_is_no_growth_and_hides_none() -> None:
    busier = [msgspec.structs.replace(row, run_delay_ms=[row.length_ms - 30.0]) for row in rows(lambda at: 30.0 + at)]
    assert growing_rows(busier) is None
    grows = [
        msgspec.structs.replace(row, step_ms=[row.length_ms + delay], run_delay_ms=[delay])
        for row in rows(lambda step: 2.0 + 0.02 * step)
        for delay in [8.0 * float(NOISE.integers(0, 2))]
    ]
    found = growing_rows(grows)
    assert found is not None and found.a_step_ms == pytest.approx(0.02, rel=0.05)


def test_waits_for_cores_that_end_and_begin_again_make_no_growth() -> None:
    """Ranks beside other work, one of which sleeps: *each step takes 0.54 ms longer than the one before*."""
    run = [
        (5, 172.4, 23.0), (6, 221.3, 93.4), (7, 210.1, 69.4), (8, 218.4, 74.0), (9, 217.0, 83.4),
        (10, 225.8, 79.1), (11, 220.8, 78.8), (12, 197.9, 61.3), (13, 177.7, 48.3), (14, 201.4, 63.1),
        (15, 219.9, 73.4), (16, 206.2, 88.1), (17, 203.3, 62.7), (18, 246.4, 93.5), (19, 233.7, 89.2),
        (33, 260.4, 99.5), (34, 255.4, 102.4), (35, 198.7, 60.8), (36, 186.6, 37.9), (37, 237.6, 69.3),
        (38, 212.4, 55.0), (39, 180.9, 35.3), (40, 153.7, 10.9), (41, 151.0, 2.6), (42, 192.6, 43.8),
        (43, 151.3, 12.9), (44, 297.9, 134.2), (45, 282.5, 111.5), (46, 228.5, 78.3), (47, 199.5, 44.6),
        (48, 169.8, 7.5), (49, 152.0, 3.9), (50, 155.9, 3.5), (51, 201.6, 52.9), (52, 262.1, 101.6),
        (53, 277.1, 97.4), (54, 257.8, 80.5), (55, 270.1, 90.3), (56, 295.5, 115.9), (57, 289.0, 113.1),
        (58, 303.9, 134.5), (59, 263.5, 98.0),
    ]  # fmt: skip
    waiting = [
        StepRow(step=step, phase="steady", step_ms=[ms], samples_per_s=1.0, run_delay_ms=[waited])
        for step, ms, waited in run
    ]
    less = [ms - waited for _, ms, waited in run]
    assert slope_of([step for step, _, _ in run], less) is not None  # as it was told
    assert growing_rows(waiting) is None


def test_a_machine_that_becomes_slower_once_is_no_growth_however_noisy_it_was_before() -> None:
    """Two ranks on cores of a machine that slowed at step 41: *each step takes 1.51 ms longer than the one before*."""
    run = [
        (5, 206.8, 2.7), (6, 208.4, 6.7), (7, 208.1, 8.8), (8, 193.3, 1.2), (9, 222.4, 1.4), (10, 243.4, 5.9),
        (11, 200.8, 2.8), (12, 200.3, 2.5), (13, 218.1, 1.7), (14, 235.7, 1.4), (15, 230.8, 2.3), (16, 240.2, 2.7),
        (17, 251.2, 6.1), (18, 241.7, 3.1), (19, 231.9, 2.1), (33, 230.5, 2.0), (34, 241.3, 2.7), (35, 220.0, 1.9),
        (36, 232.5, 2.9), (37, 214.0, 2.3), (38, 243.1, 9.4), (39, 233.5, 7.7), (40, 252.3, 2.0), (41, 288.7, 13.3),
        (42, 281.2, 5.2), (43, 276.4, 2.3), (44, 285.6, 8.5), (45, 283.2, 2.2), (46, 283.2, 3.7), (47, 285.7, 2.9),
        (48, 287.4, 4.1), (49, 278.4, 3.0), (50, 283.2, 2.8), (51, 278.6, 3.7), (52, 281.2, 2.7), (53, 280.5, 5.4),
        (54, 286.6, 2.9), (55, 278.7, 9.1), (56, 289.5, 2.6), (57, 285.0, 2.6), (58, 295.9, 2.1), (59, 281.3, 3.5),
    ]  # fmt: skip
    slowed = [
        StepRow(step=step, phase="steady", step_ms=[ms], samples_per_s=1.0, run_delay_ms=[waited])
        for step, ms, waited in run
    ]
    assert growing_rows(slowed) is None
    for seed in (28, 42):  # noise that has both halves grow
        noise = 3.0 * np.random.default_rng(seed).standard_normal(30)
        assert slope_of(range(30), [(30.0 if at < 15 else 45.0) + noise[at] for at in range(30)]) is None


@pytest.mark.parametrize("stairs", [4, 6])
def test_stairs_of_more_than_one_step_are_growth(stairs: int) -> None:
    for _ in range(10):
        found = growing_rows(rows(lambda step: (30.0 + 20.0 / stairs * ((step - 5) * stairs // 60)) * noisy(0.01)))
        assert found is not None and found.a_step_ms == pytest.approx(20.0 / 60, rel=0.4)


def test_a_single_long_step_takes_no_growth_away() -> None:
    for at in range(3, 9):
        long = [30.0 + 1.25 * step + (10.0 if step == at else 0.0) for step in range(12)]
        assert slope_of(range(12), long) is not None


@pytest.mark.parametrize("named", [None, 0])
def test_what_grows_is_no_rank_s_where_another_has_a_core_for_longer_as_well(named: int | None) -> None:
    """Told of rank 0's compute, of steps in which both ranks computed for longer: the machine had become slower."""
    answer = run_answer("gpt", 2)
    answer.activity = "cpu"
    answer.steps = [split(20, 60.0, rank, compute=55.0 if rank == 0 else 30.0) for rank in range(2)]
    steady = rows(lambda step: 30.0 + step, ranks=2)
    growing = growing_rows(steady)
    assert growing is not None

    def told(more: float, activity: str = "cpu") -> tuple[str | None, int | None]:
        """Return what is told where rank 1's time on a core grows by so much of what rank 0's does."""
        answer.growing = msgspec.structs.replace(growing, rank=named)
        answer.activity = activity  # type: ignore[assignment]
        on_cores = [[25.0 + row.step, 25.0 + more * row.step] for row in steady]
        add_part(answer, [msgspec.structs.replace(row, on_cpu_ms=on) for row, on in zip(steady, on_cores, strict=True)])
        return answer.growing.part, answer.growing.rank

    assert told(0.0) == ("compute", 0)
    assert told(0.7) == told(1.0) == (None, None)
    assert told(1.0, "gpu") == ("compute", 0)  # a host waits for its device on a core
    answer.steps = [split(20, 60.0, rank, compute=55.0) for rank in range(2)]
    assert told(1.0) == ("compute", None)


def test_whose_own_time_or_loading_grows_is_told() -> None:
    grown = [
        msgspec.structs.replace(row, own_ms=[3.0 * noisy(0.1), row.length_ms - 1])
        for row in rows(lambda step: 10.0 + step, ranks=2)
    ]
    found = growing_rows(grown)
    assert found is not None and (found.rank, found.part) == (1, None)
    both = [msgspec.structs.replace(row, own_ms=[row.length_ms - 2, row.length_ms - 1]) for row in grown]
    assert (everybody := growing_rows(both)) is not None and everybody.rank is None
    loads = [msgspec.structs.replace(row, loading_ms=[0.1, row.length_ms - 5]) for row in grown]
    assert (loading := growing_rows(loads)) is not None and (loading.rank, loading.part) == (1, "idle_data")


def split(step: int, window_ms: float, rank: int = 0, **parts: float) -> StepSplit:
    taken = dict.fromkeys((f"{part}_ms" for part in PARTS), 0.0) | {f"{part}_ms": ms for part, ms in parts.items()}
    return StepSplit(rank=rank, step=step, window_ms=window_ms, **taken)  # type: ignore[arg-type]


def test_a_long_window_tells_it_without_rows_and_a_short_one_does_not() -> None:
    steps = [split(step, 10.0 + step, compute=9.0, idle_launch=1.0 + step) for step in range(12)]
    found = growing_traces(steps)
    assert found is not None and found.known_by == "traces" and found.a_step_ms == pytest.approx(1.0)
    assert growing_traces(steps[:3]) is None
    answer = run_answer("gpt", 1)
    answer.steps, answer.step_times = steps, None
    add_growth_of_traces(answer, {})
    assert answer.growing is not None and answer.growing.part == "idle_launch"


def own_run(path: Path, more_ms: float) -> RunAnalysis:
    """Return the answer for a run with the job's traces, in which each step is so much longer than the one before."""
    folder, recorded = run_with_traces(path, JOB)
    with folder.step_writer() as writer:
        for step in range(max(recorded) - 40, max(recorded) + 40):
            phase = "profile" if step in recorded else "steady"
            ms = 2.2 + more_ms * (step - max(recorded)) + 0.01 * (step % 3)
            writer.append(StepRow(step=step, phase=phase, step_ms=[ms, ms], samples_per_s=2e3 / ms))  # type: ignore[arg-type]
    (answer,) = analyze([path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer


def test_it_is_the_first_sentence_and_no_unsteady_machine(tmp_path: Path) -> None:
    answer = own_run(tmp_path / "run", 0.05)
    assert answer.growing is not None and answer.growing.a_step_ms == pytest.approx(0.05, abs=0.005)
    assert not is_doubtful(answer)
    verdict = run_verdict(answer)
    assert (
        ": each step takes 50.00 µs (" in verdict.headline
        and " longer than the one before, from 0." in verdict.headline
    )
    assert "unsteady" not in verdict.text
    assert verdict.sentences[0].startswith("Of the profiled steps: ")
    assert verdict.advice.startswith("find what is")
    (done,) = [one for one in verdict.notes if one.startswith("It does")]
    assert " samples/s at step " in done
    # what is told of the measured step is of steps as they are where the profiled ones were
    assert answer.step_times is not None and answer.step_times.measured_step_ms == pytest.approx(2.2, abs=0.1)
    even = run_verdict(own_run(tmp_path / "even", 0.0))
    assert "longer than the one before" not in even.text


def test_what_is_launched_more_often_in_each_step_is_named(tmp_path: Path) -> None:
    answer = own_run(tmp_path / "run", 0.05)
    names = [name for step in range(4) for name in ["aten::mm"] * 5 + ["aten::mean"] * (20 + 2 * step)]
    numbers = [step for step in range(4) for _ in range(25 + 2 * step)]
    record = RankRecord(
        rank=0, host="", device=None, activity="cpu", count=len(names), start=[], end=[], kind=[], stream=[],
        step=numbers, name=names, collective=[], collectives=[], calls=[], data=EMPTY, edges=[], steps=list(range(4)),
    )  # fmt: skip
    add_growth_of_traces(answer, {0: record})
    assert answer.growing is not None and (answer.growing.name, answer.growing.more_calls) == ("aten::mean", 2.0)
    assert ": each launches 2 aten::mean more." in run_verdict(answer).headline
