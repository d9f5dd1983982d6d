"""Two measurements side by side: whether they differ, by how much, where, and how sure that is."""

import gzip
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.steps.recording import LongerFacts, RecordingFacts, WindowFacts
from scalescope.report.compare.sentences import headline
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze_against, analyze_run
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.compare.alike.environment import differing, flattened
from scalescope.scaling.compare.alike.same_work import same_work
from scalescope.scaling.compare.answer import Comparison
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.compare.difference import as_both_split, difference
from scalescope.scaling.compare.measurement import Identity, Measurement, Repeat, Window, as_keys
from scalescope.scaling.compare.noise import Sample, bounds
from scalescope.scaling.compare.points import holm
from scalescope.scaling.compare.read import read_side
from scalescope.scaling.trace.kernel_kinds import KINDS
from scalescope.scaling.trace.sources import find_windows
from tests import data_parallel
from tests.data_parallel import MS, Disturbance

DATA = Path(__file__).parent / "data"
GPT1, GPT2, RESNET = DATA / "gpt_ddp_n1", DATA / "gpt_ddp_n2", DATA / "resnet50_ddp_n4"
SMALL, LARGE = DATA / "gpt8_ddp_none_n2", DATA / "gpt8_ddp_delay4ms_rank1_n2"
DELAY_MS = 3


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Path]]:
    """Three repeats of a job a side, each 0.1% off the other; OTHER's rank 1 has a kernel of its own of 3 ms."""
    root = tmp_path_factory.mktemp("repeats")
    paces = [dict.fromkeys(range(4), 1 + 0.001 * number) for number in range(3)]
    calm = [data_parallel.run(root / f"calm{at}", Disturbance(slower=pace)) for at, pace in enumerate(paces)]
    spin = [data_parallel.run(root / f"late{at}", Disturbance(slower=pace, spin={1: DELAY_MS * MS}))
            for at, pace in enumerate(paces)]  # fmt: skip
    return calm, spin


@pytest.fixture(scope="module")
def answer(sides: tuple[list[Path], list[Path]]) -> Comparison:
    return compare_paths(*sides)


def test_what_was_injected_is_named_first_on_its_rank_and_its_size_lies_within_its_bounds(answer: Comparison) -> None:
    assert answer.verdict == "slower" and answer.noise is not None and answer.noise.unit == "repeats"
    assert answer.low_ms is not None and answer.high_ms is not None
    assert answer.low_ms <= DELAY_MS <= answer.high_ms and answer.high_ms - answer.low_ms < 0.3
    first = max(answer.parts, key=lambda part: abs(part.change_ms))
    assert first.rank == 1 and first.low_ms <= DELAY_MS <= first.high_ms
    assert [part.name for part in answer.parts if not part.within_noise] == [first.name]
    kernel = answer.kernels[0]
    assert kernel.other_name == "spin_kernel" and kernel.matched_by == "only_other"
    assert "(rank 1, spin_kernel, only in “late0”, “late1” and “late2”), the rest within noise." in headline(answer)


def test_parts_add_up_to_the_change_and_turn_around_with_the_sides(
    answer: Comparison, sides: tuple[list[Path], list[Path]]
) -> None:
    back = compare_paths(sides[1], sides[0])
    for one in (answer, back):
        assert sum(part.change_ms for part in one.parts) == pytest.approx(one.change_ms, abs=1e-9)
        assert sum(part.baseline_ms for part in one.parts) == pytest.approx(one.baseline_ms, abs=1e-9)
    assert back.verdict == "faster" and back.change_ms == pytest.approx(-(answer.change_ms or 0), abs=1e-9)
    assert {part.rank for part in back.parts} == {1}


def test_the_same_thing_twice_is_the_same_and_one_run_a_side_says_that_it_is_unsure(
    sides: tuple[list[Path], list[Path]],
) -> None:
    calm, _ = sides
    several = compare_paths(calm[:2], calm[1:])
    assert several.verdict == "same" and all(part.within_noise for part in several.parts)
    single = compare_paths(calm[:1], calm[1:2])
    assert single.verdict == "same" and single.noise is not None and single.noise.unit == "steps"
    assert single.high_ms is not None and several.high_ms is not None and single.high_ms > several.high_ms
    assert "within noise" in headline(single)


def test_a_folder_that_holds_several_runs_is_repeats_of_one(sides: tuple[list[Path], list[Path]]) -> None:
    (side,) = read_side([sides[0][0].parent])
    assert len(side.repeats) == 6


@pytest.mark.parametrize(
    ("baseline", "other", "reason"),
    [(GPT2, RESNET, "another_job"), (GPT1, GPT2, "another_world_size"), (SMALL, LARGE, "another_batch"),
     (GPT2, DATA / "cpu_ddp_n2", "another_activity"), (GPT2, DATA / "nccl_tests" / "plain.txt", "another_kind")],
    ids=lambda one: one if isinstance(one, str) else one.name,
)  # fmt: skip
def test_what_is_not_the_same_work_is_refused_with_a_code(baseline: Path, other: Path, reason: str) -> None:
    found = compare_paths([baseline], [other])
    assert found.verdict == "not_comparable" and found.reason == reason and found.notes
    assert found.change_ms is None and found.parts == []


SCRIPT = DATA / "runs_v0.1" / "script"


def renamed(folder: Path, traces: Path) -> Path:
    """Return a script's run of another name, with these traces."""
    shutil.copytree(SCRIPT, folder, ignore=shutil.ignore_patterns("traces"))
    shutil.copytree(traces, folder / "traces")
    facts = (folder / "facts.json").read_text()
    (folder / "facts.json").write_text(facts.replace('"my-model"', '"my-model-fixed"'))
    return folder


def test_scripts_that_were_given_two_names_are_compared_where_their_operators_and_sizes_are_of_one_job(
    tmp_path: Path,
) -> None:
    """They were refused, though the name is whatever its user calls a run."""
    after = renamed(tmp_path / "after", SCRIPT / "traces")
    found = compare_paths([SCRIPT], [after])
    assert found.verdict == "same" and found.change_ms == 0.0
    told = "named otherwise: 'my-model' there and 'my-model-fixed' here; by their operators and sizes the same job"
    assert told in found.notes
    against = analyze_against(after, [SCRIPT])
    assert against.lost[0].other_names == ("my-model", "my-model-fixed")
    assert any(one.startswith("Named otherwise: 'my-model' there") for one in run_verdict(against).sentences)
    (after / "facts.json").write_text((SCRIPT / "facts.json").read_text())
    assert not any("named" in one for one in compare_paths([SCRIPT], [after]).notes)
    assert analyze_against(after, [SCRIPT]).lost[0].other_names is None


def test_scripts_that_were_given_two_names_and_do_not_the_same_are_refused_with_what_to_do(tmp_path: Path) -> None:
    another = renamed(tmp_path / "another", DATA / "cpu_ddp_n2")
    refused = compare_paths([SCRIPT], [another])
    assert refused.reason == "another_job"
    assert "call both by one name, or compare the folders of their traces (RUN/traces)" in headline(refused)
    with pytest.raises(UserError, match="is not script's job: profile_steps was told 'my-model' in one"):
        analyze_against(another, [SCRIPT])


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({}, True),
        ({"sent_bytes": {"all_reduce": 90_000, "broadcast": 8}}, True),  # a few bytes more, such as a loss
        ({"sent_bytes": {"all_reduce": 45_000}}, False),  # half as many parameters
        ({"names": {"aten::conv2d": 0.7, "aten::linear": 0.3}}, False),  # as many, in another network
        ({"sent_bytes": {}}, True),  # inputs tell instead
        ({"sent_bytes": {}, "inputs": {"aten::linear": 128.0}}, False),
        (
            {"sent_bytes": {}, "inputs": {"aten::linear": 128.0}, "samples_by_rank": (16, 16)},
            True,
        ),  # of a batch twice as large
        ({"sent_bytes": {}, "inputs": {}}, False),  # nothing tells their sizes
        ({"sent_bytes": {}, "calls": {"aten::linear": 36.0}}, False),  # three times as deep
    ],
)
def test_one_job_under_two_names_is_told_by_operators_and_by_sizes(changed: dict[str, Any], same: bool) -> None:
    here = Identity(world_size=2, activity="cpu", device=None, model="a", named_by_user=True, samples_by_rank=(8, 8),
                    names={"aten::linear": 0.7, "aten::gelu": 0.3}, inputs={"aten::linear": 64.0},
                    calls={"aten::linear": 12.0}, sent_bytes={"all_reduce": 90_000})  # fmt: skip
    there = msgspec.structs.replace(here, model="b", **changed)
    sides = [Repeat(name=one.model or "", path=Path(one.model or ""), identity=one) for one in (here, there)]
    for pair in (sides, sides[::-1]):
        assert (same_work(*pair).rate is not None) == same


def test_a_script_that_told_no_samples_does_batches_and_is_compared_by_its_steps(tmp_path: Path) -> None:
    told, untold = (shutil.copytree(DATA / "runs_v0.1" / "script", tmp_path / name) for name in ("told", "untold"))
    facts = json.loads((untold / "facts.json").read_text())
    facts |= {"samples_per_rank_step": 1, "counts_batches": True}
    (untold / "facts.json").write_text(json.dumps(facts))
    assert any("batches/s" in one for one in run_verdict(analyze_run(untold)).notes)
    assert any("samples/s" in one for one in run_verdict(analyze_run(told)).notes)
    found = compare_paths([told], [untold])
    assert found.verdict == "same" and found.by_rate is None
    assert any("only one of both was told how many samples a batch has" in one for one in found.notes)


def test_a_side_whose_traces_are_not_whole_is_compared_with_nothing(tmp_path: Path) -> None:
    broken = shutil.copytree(DATA / "held_up_hosts" / "front", tmp_path / "broken")
    cut = broken / "rank1.json.gz"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    with pytest.raises(UserError, match=r"of 2 ranks' traces only 1 are whole"):
        compare_paths([DATA / "held_up_hosts" / "front"], [broken])


@pytest.mark.parametrize("kept", [0.5, 0.001])
def test_a_file_whose_name_tells_no_rank_is_missed_all_the_same(kept: float, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for rank in (0, 1):
        shutil.copy(DATA / "held_up_hosts" / "front" / f"rank{rank}.json.gz", broken / f"{'ab'[rank]}.json.gz")
    assert compare_paths([DATA / "held_up_hosts" / "front"], [broken]).verdict == "same"
    cut = broken / "b.json.gz"
    cut.write_bytes(cut.read_bytes()[: int(cut.stat().st_size * kept)])
    with pytest.raises(UserError, match=r"of 2 ranks' traces only 1 are whole"):
        compare_paths([DATA / "held_up_hosts" / "front"], [broken])


def exposed(name: str, unsplit: bool) -> Measurement:
    """Return a run of two ranks that loses 3 ms to communication, split or not."""
    lost = {"exposed_unsplit": 3.0} if unsplit else {"exposed_transfer": 2.0, "exposed_wait": 1.0}
    step = tuple({"compute": 50.0, **lost}.get(part, 0.0) for part in PARTS)
    ranks = {rank: as_keys(step, [1.0, *[0.0] * (len(KINDS) - 1)]) for rank in (0, 1)}
    window = Window(ranks=ranks, steps={rank: [step] * 3 for rank in (0, 1)}, basis="profiled", traces={})
    identity = Identity(world_size=3 if unsplit else 2, activity="gpu", device="x")
    return Measurement(name=name, repeats=[Repeat(name=name, path=Path(name), identity=identity, windows=[window])])


def test_communication_that_one_side_cannot_split_is_compared_whole() -> None:
    """*Exposed communication (unsplit) +0.92 ms, exposed transfer −0.84 ms*, beyond noise, was told."""
    whole, lacking = exposed("whole", False), exposed("lacking", True)
    for sides in ((whole, lacking), (lacking, whole)):
        found = difference(*as_both_split(*sides))
        assert found is not None
        parts = {one.name: one for one in found.parts}
        assert "exposed_wait" not in parts and parts["exposed_unsplit"].change_ms == pytest.approx(0.0)
        assert parts["exposed_unsplit"].baseline_ms == pytest.approx(3.0)
    for same in (whole, lacking):
        assert as_both_split(same, same) == (same, same)


def test_a_file_that_is_no_trace_beside_them_is_in_no_comparisons_way(tmp_path: Path) -> None:
    beside = shutil.copytree(DATA / "held_up_hosts" / "front", tmp_path / "beside")
    (beside / "truth.json").write_text('{"cause": "sleep"}')
    assert compare_paths([DATA / "held_up_hosts" / "front"], [beside]).verdict == "same"


def test_lost_time_is_told_against_the_same_job_only() -> None:
    with pytest.raises(UserError, match="is not gpt_ddp_compile_n4's job: their kernels have too little in common"):
        analyze_against(RESNET, [DATA / "gpt_ddp_compile_n4"])


def test_lost_time_is_told_against_the_same_batch_only() -> None:
    with pytest.raises(UserError, match=r"is not gpt8_ddp_none_n2's job: the same kernels launch \d\.\d\d times"):
        analyze_against(LARGE, [SMALL])


def test_bounds_hold_for_all_parts_of_the_same_thing_in_95_of_100_comparisons() -> None:
    dice = np.random.default_rng(4)
    step = part = 0
    for _ in range(100):
        both = [Sample(10 + dice.standard_normal((5, 12))) for _ in range(2)]
        found = bounds(*both)
        step += not found.step_low <= 0 <= found.step_high
        part += bool(((found.low > 0) | (found.high < 0)).any())
    assert step <= 10 and part <= 10


def test_bounds_of_each_part_alone_would_not_hold_for_all_of_them() -> None:
    both = [Sample(10 + np.random.default_rng(seed).standard_normal((8, 15))) for seed in (1, 2)]
    assert 1.2 < bounds(*both).factor < 3


def test_more_repeats_a_side_tell_more_and_false_alarms_stay_rare() -> None:
    """Of few units alone Student's t would make it less; what undisturbed windows spread by is known besides."""
    dice = np.random.default_rng(7)
    spread = np.full(12, 0.1)
    counts = (1, 2, 3, 4, 5)
    wrong, wrong_steps, halves = (dict.fromkeys(counts, 0.0) for _ in range(3))
    for count in (count for count in counts for _ in range(100)):
        sides = [Sample(10 + 0.1 * dice.standard_normal((count, 12)), spread=spread, step_spread=0.1 * 12**0.5)
                 for _ in range(2)]  # fmt: skip
        found = bounds(*sides)
        halves[count] += (found.step_high - found.step_low) / 200
        wrong[count] += not bool(((found.low <= 0) & (found.high >= 0)).all())
        wrong_steps[count] += not found.step_low <= 0 <= found.step_high
    told = list(halves.values())
    assert all(more < 0.95 * fewer for fewer, more in pairwise(told)), halves
    assert max(wrong.values()) <= 10 and max(wrong_steps.values()) <= 10, (wrong, wrong_steps)
    uneven = [Sample(10 + 3 * dice.standard_normal((2, 12)), spread=spread, step_spread=0.3) for _ in range(2)]
    assert bounds(*uneven).step_high - bounds(*uneven).step_low > 10 * halves[2], "what is seen counts, too"


@pytest.mark.parametrize("amounts", [None, np.arange(12) < 3])
def test_one_more_repeat_that_agrees_takes_no_part_away_that_one_run_a_side_told(
    amounts: np.ndarray[tuple[int], np.dtype[np.bool_]] | None,
) -> None:
    """12.9 ms more idle (3.1 to 23.5) of one run a side was noise, -2.2 to 32.2, with a baseline beside it whose idle
    time was 0.4 ms shorter: pooled with what other windows differ by, one degree more was worse than none.
    """
    spread, change = np.full(12, 0.1), np.array([0.7, *[0.0] * 11])
    one = np.full((1, 12), 10.0)
    other = Sample(one + change, spread=spread, step_spread=0.3, amounts=amounts)
    alone = bounds(Sample(one, spread=spread, step_spread=0.3, amounts=amounts), other)
    near = Sample(np.vstack([one + 0.02, one - 0.02]), spread=spread, step_spread=0.3, amounts=amounts)
    more = bounds(near, other)
    assert 0 < alone.low[0] <= more.low[0] < 0.7 < more.high[0] <= alone.high[0]
    far = Sample(np.vstack([one + 0.4, one - 0.4]), spread=spread, step_spread=0.3, amounts=amounts)
    assert bounds(far, other).low[0] < 0, "what is seen counts, too"


def test_false_alarms_stay_rare_where_one_side_alone_was_repeated() -> None:
    dice = np.random.default_rng(17)
    spread = np.full(12, 0.1)
    for counts in ((2, 1), (1, 2), (3, 1), (2, 2)):
        wrong = steps = 0
        for _ in range(200):
            found = bounds(*(
                Sample(10 + 0.1 * dice.standard_normal((count, 12)), spread=spread, step_spread=0.1 * 12**0.5)
                for count in counts
            ))  # fmt: skip
            wrong += not bool(((found.low <= 0) & (found.high >= 0)).all())
            steps += not found.step_low <= 0 <= found.step_high
        assert wrong <= 16 and steps <= 16, (counts, wrong, steps)


def test_two_units_a_side_leave_every_part_of_the_same_thing_within_its_bounds() -> None:
    dice = np.random.default_rng(11)
    wrong = 0
    for _ in range(60):
        found = bounds(*(Sample(10 + dice.standard_normal((2, 12))) for _ in range(2)))
        wrong += bool(((found.low > 0) | (found.high < 0)).any())
    assert wrong <= 6


@pytest.mark.parametrize("units", [1, 2])
def test_a_part_that_grows_from_nothing_is_no_noise_however_much_such_parts_vary(units: int) -> None:
    """Copies of 10 ms that were none, by 40% from window to window; and as little as windows always differ by."""
    amounts = np.array([False, True, True, False])

    def side(copies: float, waits: float) -> Sample:
        row = np.array([15.0, copies, waits, 0.0])
        spread = row * np.array([0.03, 0.4, 0.6, 0.0])
        return Sample(np.tile(row, (units, 1)), None, spread, 1.0, False, amounts, 0.05)

    found = bounds(side(0.07, 0.02), side(9.8, 0.15))
    assert 0 < found.low[1] < 9.73 < found.high[1]
    assert found.low[2] < 0 < found.high[2], "seven times as much of nothing is nothing"
    back = bounds(side(9.8, 0.15), side(0.07, 0.02))
    assert back.high[1] == pytest.approx(-found.low[1], rel=0.05) and back.high[1] < 0
    again = bounds(side(9.8, 0.15), side(5.0, 0.15))
    assert again.low[1] < 0 < again.high[1], "half of it is what such windows differ by"


def test_a_lone_unit_is_taken_to_vary_as_the_other_sides_do() -> None:
    several = Sample(10 + 0.1 * np.random.default_rng(1).standard_normal((6, 3)))
    lone = Sample(several.mean[None, :] + 2.0)
    found = bounds(several, lone)
    assert found.degrees == 5 and found.step_low < 6.0 < found.step_high and found.step_low > 4


def test_holm_rejects_step_by_step() -> None:
    assert holm([0.01, 0.04, None, 0.02]) == [True, True, False, True]
    assert holm([0.02, 0.04, 0.06]) == [False, False, False]


def test_windows_of_one_run_are_told_apart_where_all_ranks_have_them(tmp_path: Path) -> None:
    for rank in range(2):
        for step in (3, 20):
            shutil.copy(GPT2 / f"rank{rank}.json.gz", tmp_path / f"rank{rank}.{step}.pt.trace.json.gz")
    shutil.copy(GPT2 / "rank0.json.gz", tmp_path / "rank0.40.pt.trace.json.gz")
    assert [[source.rank for source in window] for window in find_windows(tmp_path)] == [[0, 1], [0, 1]]


def test_a_window_of_longer_steps_is_not_pooled_with_the_usual_ones(tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(DATA / "runs_v0.1" / "train", tmp_path / "train"))
    (usual,) = read_side([run.path])[0].first.windows
    numbers: set[int] = set()
    for source in (DATA / "runs_v0.1" / "train" / "traces").glob("rank*.gz"):
        text = gzip.decompress(source.read_bytes())
        numbers |= {int(number) for number in re.findall(rb"ProfilerStep#(\d+)", text)}
        later = re.sub(rb"ProfilerStep#(\d+)", lambda found: b"ProfilerStep#1%03d" % int(found[1]), text)
        rank = source.name.split(".")[0]
        (run.traces / f"{rank}.1010.pt.trace.json.gz").write_bytes(gzip.compress(later, 1))
    planned, longer = sorted(numbers), LongerFacts(since=900, step_ms=47.3, level_ms=20.0)
    opened = WindowFacts(steps=[1000 + one for one in planned], longer=longer)
    run.write_recording(RecordingFacts(windows=[WindowFacts(steps=planned), opened]))
    repeat = read_side([run.path])[0].first
    assert [window.ranks for window in repeat.windows] == [usual.ranks]
    assert any("since step 900 its steps took 47.3 ms, where 20.0 were usual" in note for note in repeat.notes)
    run.write_recording(
        RecordingFacts(windows=[WindowFacts(steps=planned), msgspec.structs.replace(opened, longer=None)])
    )
    assert len(read_side([run.path])[0].first.windows) == 2, "planned windows are of one kind"
    for path in run.traces.glob("rank*"):
        if ".1010." not in path.name:
            path.unlink()
    run.write_recording(RecordingFacts(windows=[opened]))
    alone = read_side([run.path])[0].first
    assert len(alone.windows) == 1 and any("its parts are those of longer steps" in note for note in alone.notes)


def test_runs_of_one_name_are_told_apart_by_their_places(tmp_path: Path) -> None:
    old, new = (shutil.copytree(DATA / "runs_v0.1" / "train", tmp_path / place / "train") for place in ("old", "new"))
    assert headline(compare_paths([old], [new])).startswith("“new/train” cannot be told from “old/train”")
    files = [tmp_path / place / "rank0.json.gz" for place in ("old", "new")]
    for file in files:
        shutil.copy(DATA / "cpu_ddp_n2" / "rank0.3.pt.trace.json.gz", file)
    found = compare_paths(files[:1], files[1:])
    assert (found.baseline, found.other) == ("old/rank0.json.gz", "new/rank0.json.gz")


def test_settings_that_differ_are_named_likely_ones_first() -> None:
    (old,), (new,) = (read_side([DATA / "runs_v0.1" / "train"]) for _ in range(2))
    run = new.first
    assert run.info is not None and run.info.environment is not None
    environment = msgspec.structs.replace(run.info.environment, variables={"NCCL_MAX_NCHANNELS": "1"}, cpu_cores=999)
    info = msgspec.structs.replace(run.info, environment=environment)
    config = run.config.replace("bucket_mb: ", "bucket_mb: 9")
    changed = msgspec.structs.replace(run, info=info, config=config)
    found = differing(old, Measurement(name="new", repeats=[changed]), ["exposed_transfer"])
    told = [one.key for one in found]
    assert told.index("NCCL_MAX_NCHANNELS") < told.index("cpu_cores")
    assert next(one for one in found if one.key == "NCCL_MAX_NCHANNELS").baseline is None
    assert any(key.startswith("config.") for key in told) == (config != run.config)
    assert differing(old, old) == []


def test_a_frozen_config_is_read_as_dotted_keys() -> None:
    text = "a: 1\nmodel:\n  kind: gpt\n  sizes:\n  - 1\n  - 2\n  deep:\n    x: y z\nb: null\nc: 'a: b'\nd: |\n  e: 1\n"
    assert flattened(text) == {"a": "1", "model.kind": "gpt", "model.sizes": "1 2", "model.deep.x": "y z", "b": "null",
                               "c": "a: b", "d": "e: 1\n"}  # fmt: skip


def test_a_damaged_config_costs_its_settings_and_not_the_comparison(tmp_path: Path) -> None:
    run = Path(shutil.copytree(DATA / "runs_v0.1" / "train", tmp_path / "train"))
    (run / "config.yaml").write_text("a: &x 1\nb: *x\n")
    (side,) = read_side([run])
    assert side.first.config == "" and any("no aliases" in note for note in side.first.notes)


def test_an_answer_is_read_back_as_it_was_written(answer: Comparison) -> None:
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Comparison, strict=True) == answer


def test_a_folder_a_rank_is_no_repeat_of_the_run(tmp_path: Path) -> None:
    """Two ranks of one run were its two repeats, whose noise the ranks' difference was."""
    for rank in range(2):
        (tmp_path / f"rank{rank}").mkdir()
        shutil.copy(SMALL / f"rank{rank}.json.gz", tmp_path / f"rank{rank}" / "trace.json.gz")
    with pytest.raises(UserError, match=r"hold different ranks of 2 \(0 and 1\), which are no repeats"):
        read_side([tmp_path])
