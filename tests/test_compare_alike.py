"""Runs of one script on two cores that others use, too: alike ones are not called different, and causes are found."""

import json
import shutil
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from statistics import median

import msgspec
import pytest

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.report.compare.noise import noise_sentence
from scalescope.report.compare.sentences import headline, places_sentence, verdict_sentences
from scalescope.scaling.analyze import analyze_run
from scalescope.scaling.compare.answer import Comparison
from scalescope.scaling.compare.compare import compare
from scalescope.scaling.compare.gate import parse
from scalescope.scaling.compare.measurement import KEYS, Identity, Measurement, Repeat, Vector, Window
from scalescope.scaling.compare.read import read_side, steps_that_tell
from scalescope.scaling.compare.spread import drift_of, stretches_of
from scalescope.scaling.verdicts.step_rows.steady import measured_steps
from tests.trace_json import unpacked

DATA = Path(__file__).parent / "data"
RUN = DATA / "runs_v0.1" / "train"
#: An MLP of 3.5 million parameters with DDP over gloo, 105 steps a run: ten as they are, three in which rank 1 sleeps
#: for 15 ms a step, one whose loader takes 20 ms more on both ranks.
STEPS = unpacked(DATA / "own_script_2_cores" / "steps.json.gz")
ON_CPU = Identity(world_size=2, activity="cpu", device=None, model="mine", samples_by_rank=(64, 64))
CLEAN = [name for name in STEPS if name.startswith("clean")]
#: A U-Net with DDP over gloo, 60 steps a run within twelve minutes: three as they are, two in which rank 0 has 15
#: samples for 10, two whose loader takes 20 ms more. Of its own pairs without a profiler the uneven one is 36% longer.
DRIFTING = unpacked(DATA / "own_unet_2_cores" / "steps.json.gz")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measurement]:
    root = tmp_path_factory.mktemp("runs")
    return {name: read_side([_run(root / name, name, "traces")])[0] for name in STEPS}


def _run(folder: Path, name: str, *left_out: str) -> Path:
    """Return a run folder of these steps."""
    shutil.copytree(RUN, folder, ignore=shutil.ignore_patterns(*left_out))
    (folder / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (STEPS | DRIFTING)[name]))
    return folder


def compared(sides: dict[str, Measurement], baseline: str, other: str) -> Comparison:
    return compare([sides[baseline]], [sides[other]])


def test_clean_runs_of_one_script_are_not_called_different(sides: dict[str, Measurement]) -> None:
    """*15.7% faster (95%: 0.2 to 33.8)* was told of two of them, by the fifteen steps before their windows."""
    found = {pair: compared(sides, *pair) for pair in combinations(CLEAN, 2)}
    different = [pair for pair, answer in found.items() if answer.verdict != "same"]
    assert len(found) == 45 and len(different) <= 1, different
    answer = found["clean_9", "clean_10"]
    assert headline(answer) == "“clean_10” cannot be told from “clean_9”: what they differ by is within noise."
    _, whole, *_, what_to_do = verdict_sentences(answer)
    assert whole.startswith("The whole step: −") and whole.endswith(" ms), within noise.")
    assert what_to_do == "One run a side cannot tell more: run both again and give all with --baseline and --other."
    assert "one run a side: " in noise_sentence(answer) and len(noise_sentence(answer).split(". ")[0].split()) <= 30


def test_a_clean_run_whose_cores_others_had_fails_a_gate_as_measured_and_is_not_called_slower(
    sides: dict[str, Measurement],
) -> None:
    """103.0 ms for 50.8 of one job, of which 35.5 are waits for cores: *within noise*, and *held*."""
    found = compare([sides["clean_3"]], [sides["clean_7"]], [parse("step>3%")])
    assert found.verdict == "same" and found.sure_as_measured is not None and found.sure_as_measured.low_ms > 20
    (line,) = found.gate
    assert not line.held and ", as measured; without what ranks waited for cores +27 % of the step" in line.text
    assert [one.split(":")[0] for one in verdict_sentences(found)[1:3]] == [
        "The whole step as measured", "Without what ranks waited for cores"]  # fmt: skip


def beside_its_traces(folder: Path, name: str) -> Measurement:
    """Return a run of the U-Net, whose profiled steps are compute for the most part."""
    side = read_side([_run(folder, name, "traces")])[0]
    shares = dict.fromkeys(KEYS, 0.0) | {KEYS[0]: 0.9, "exposed_transfer": 0.04, "idle_launch": 0.06}
    parts = tuple(share * median(side.first.steady_ms) for share in shares.values())
    window = Window(ranks=dict.fromkeys((0, 1), parts), steps={}, basis="profiled", traces={})
    return Measurement(name=name, repeats=[msgspec.structs.replace(side.first, windows=[window])])


def test_runs_of_one_job_minutes_apart_are_as_far_apart_as_such_runs_were_seen_to_be(tmp_path: Path) -> None:
    """*16.5% faster* was told of two runs of one job, and *53 to 94% slower* of one that is 36% slower."""
    runs = {name: beside_its_traces(tmp_path / name, name) for name in DRIFTING}
    for job in ("unet_clean", "unet_uneven", "unet_slow_loader"):
        for pair in combinations([name for name in runs if name.startswith(job)], 2):
            assert compared(runs, *pair).verdict == "same", pair
    slower = compared(runs, "unet_clean_1", "unet_uneven_2")
    assert slower.verdict == "slower" and slower.low_ms is not None and slower.high_ms is not None
    for clean, uneven in product(("unet_clean_1", "unet_clean_3", "unet_clean_6"), ("unet_uneven_1", "unet_uneven_2")):
        told = compared(runs, clean, uneven)
        assert told.low_ms is not None and told.high_ms is not None and told.baseline_ms is not None
        assert told.low_ms <= 38.0 <= told.high_ms, (clean, uneven)


def as_traces_alone(side: Measurement) -> Measurement:
    """Return what the traces of a run tell of its steps: one number, and nothing of waits for cores."""
    run = msgspec.structs.replace(side.first, steady_ms=[median(side.first.steady_ms)], run_delay_ms=None,
                                  recorded_run_delay_ms=None, free_ms=[], late_ms={})  # fmt: skip
    return Measurement(name=side.name, repeats=[run])


def test_who_knows_less_of_a_run_has_no_narrower_bounds(sides: dict[str, Measurement]) -> None:
    """*41.2% slower (25.1 to 57.3)* was told of two folders of traces, whose run folders are as long within noise."""
    alone = {name: as_traces_alone(side) for name, side in sides.items()}
    different = []
    for pair in combinations(STEPS, 2):
        told, untold = compared(sides, *pair), compared(alone, *pair)
        assert untold.cores_untold and width(untold) >= width(told), pair
        if untold.verdict != "same" and set(pair) <= set(CLEAN):
            different.append(pair)
    assert len(different) <= 2, different


def width(answer: Comparison) -> float:
    assert answer.low_ms is not None and answer.high_ms is not None
    return answer.high_ms - answer.low_ms


@pytest.mark.parametrize("clean", ["clean_8", "clean_9", "clean_10"])
def test_a_loader_that_takes_a_third_of_the_step_is_told_of_runs_that_none_was_beside(
    clean: str, sides: dict[str, Measurement]
) -> None:
    """*Cannot be told from, within noise* was said: its part of the step was taken to vary by half."""
    found = compared(sides, clean, "slow_loader_1")
    assert found.verdict == "slower" and found.low_ms is not None and found.high_ms is not None
    assert found.low_ms < 21 < found.high_ms


@pytest.mark.parametrize("slept", [name for name in STEPS if name.startswith("sleep")])
def test_a_rank_that_sleeps_a_quarter_of_the_step_is_named_whatever_else_ran(
    slept: str, sides: dict[str, Measurement]
) -> None:
    """*Cannot be told from, within noise* was all that was said of it, of most pairs beside other processes."""
    for clean in CLEAN:
        found, back = compared(sides, clean, slept), compared(sides, slept, clean)
        assert found.late is not None and found.late.rank == 1 and found.late.low_ms < 15 < found.late.high_ms
        assert found.verdict in ("same", "slower")
        assert any(one.startswith("By all steps rank 1 keeps the others waiting 1") for one in verdict_sentences(found))
        assert back.late is not None and "less long" in " ".join(verdict_sentences(back))


def test_no_rank_of_clean_runs_keeps_the_others_waiting_nor_where_rows_tell_not(sides: dict[str, Measurement]) -> None:
    late = [pair for pair in combinations(CLEAN, 2) if compared(sides, *pair).late is not None]
    assert len(late) <= 1, late
    assert compared(sides, "clean_9", "slow_loader_1").late is None, "both ranks are as late"
    run = sides["sleep_15ms_rank1_1"].first
    untold = Measurement(name="untold", repeats=[msgspec.structs.replace(run, late_ms={})])
    assert compare([sides["clean_9"]], [untold]).late is None


def test_the_step_is_the_measured_one_of_an_analysis(tmp_path: Path) -> None:
    """61.8 and 52.1 ms stood in `compare`, 61.1 and 56.9 in `analyze` and the page, under one name."""
    for name in ("clean_9", "clean_10", "sleep_15ms_rank1_3"):
        folder = _run(tmp_path / name, name)
        rows = [row for row in RunFolder(folder).read_steps() if row.phase == "steady"]
        (side,) = read_side([folder])
        times = analyze_run(folder).step_times
        assert times is not None and times.measured_steps == len(rows)
        assert (
            times.measured_step_ms
            == pytest.approx(median(side.first.steady_ms))
            == median(row.length_ms for row in rows)
        )


def test_steps_after_a_window_count_where_what_stays_attached_does_not_slow_them() -> None:
    def rows(after_ms: float) -> list[StepRow]:
        times = (
            [20.0 + 0.1 * (at % 3) for at in range(15)] + [30.0] * 5 + [after_ms + 0.1 * (at % 3) for at in range(40)]
        )
        return [StepRow(step=at, phase="profile" if 15 <= at < 20 else "steady", step_ms=[ms], samples_per_s=1.0)
                for at, ms in enumerate(times)]  # fmt: skip

    for after_ms, lingers, count in ((20.0, True, 55), (26.0, True, 15), (26.0, False, 55)):
        made = rows(after_ms)
        steps, said = steps_that_tell(made, measured_steps(made), lingers=lingers)
        assert len(steps) == count and ("26.10 ms for 20.10" in said) == (count == 15)


def test_steps_that_drift_tell_less_than_as_many_that_do_not() -> None:
    even = [60.0 + (at * 7) % 11 for at in range(90)]
    drifting = sorted(even)
    assert stretches_of(even[:3]) == even[:3] and len(stretches_of(even[:12])) == 4 and len(stretches_of(even)) == 9
    assert drift_of(even) < 0.5 < 1.0 < drift_of(drifting)
    assert drift_of([]) == drift_of([5.0]) == 0.0 == len(stretches_of([]))


@pytest.mark.parametrize(("loads_ms", "told"), [((27.0, 27.0), "on every rank"), ((1.0, 27.0), "rank 1")])
def test_a_rank_is_named_where_its_change_is_not_the_others(loads_ms: tuple[float, float], told: str) -> None:
    """*Idle (loading data) +27 ms (rank 1)* was said of a loader that is as slow on rank 0."""

    def side(name: str, loads: Sequence[float], waits: Sequence[float]) -> Measurement:
        empty = dict.fromkeys(KEYS, 0.0) | {KEYS[0]: 40.0, "exposed_transfer": 10.0}
        parts = [empty | {"idle_data": load, "exposed_wait": wait} for load, wait in zip(loads, waits, strict=True)]
        ranks = {rank: tuple(own.values()) for rank, own in enumerate(parts)}
        steps: dict[int, list[Vector]] = {rank: [(40.0, 10.0, wait, 0.0, 0.0, load, 0.0, 0.0)] * 3
                 for rank, (load, wait) in enumerate(zip(loads, waits, strict=True))}  # fmt: skip
        window = Window(ranks=ranks, steps=steps, basis="profiled", traces={})
        run = Repeat(name=name, path=Path(name), identity=ON_CPU, windows=[window])
        return Measurement(name=name, repeats=[run])

    clean, slow = side("clean", (0.5, 0.5), (5.0, 10.0)), side("slow", loads_ms, (5.0, 0.0))
    answer = compare([clean], [slow])
    (loading,) = (part for part in answer.parts if part.name == "idle_data")
    assert loading.rank == 1 and loading.others_ms == pytest.approx(loads_ms[0] - 0.5)
    assert " ms more idle (loading data) than in “clean”" in headline(answer) and headline(answer).endswith(
        f" ({told})."
    )


def test_another_rank_that_is_as_late_changed_places_and_is_not_said_to_wait_longer(tmp_path: Path) -> None:
    """Rank 1 slept there and rank 0 does here: *rank 0 keeps the others waiting longer* hid that rank 1 does not."""
    there = read_side([_run(tmp_path / "there", "sleep_15ms_rank1_1", "traces")])[0]
    run = _run(tmp_path / "here", "sleep_15ms_rank1_2", "traces")
    rows = [{key: own[::-1] if isinstance(own, list) else own for key, own in row.items()}
            for row in STEPS["sleep_15ms_rank1_2"]]  # fmt: skip
    (run / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = compare([there], read_side([run]))
    assert found.places is not None and (found.places.baseline, found.places.other) == ((1,), (0,))
    assert "keeps the others waiting" not in " ".join(verdict_sentences(found))
    told = places_sentence(found)
    assert told.startswith(
        "The ranks changed places: by all steps the others wait for rank 0 here and for rank 1 there"
    )


def test_no_ranks_of_alike_runs_changed_places(sides: dict[str, Measurement]) -> None:
    late = [name for name in STEPS if name.startswith("sleep")]
    pairs = [*combinations(CLEAN, 2), *combinations(late, 2), (CLEAN[0], late[0])]
    assert [pair for pair in pairs if compared(sides, *pair).places is not None] == []
