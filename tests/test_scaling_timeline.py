"""One step of all ranks: what is drawn adds up to the partition of that step, and stays bounded."""

import gzip
import json
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from scalescope.records.errors import UserError
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis, Straggler
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.run import explain_run
from scalescope.scaling.step_timeline import Calls, LaneSpans, RankTimeline, StepTimeline, read_timeline, write_timeline
from scalescope.scaling.study_answer import write_answer
from scalescope.scaling.timelines.merge import MOST_SPANS, bounded, lanes_of, merged
from scalescope.scaling.timelines.one_step import step_timeline

DATA = Path(__file__).parent / "data"
TRACES = ("gather_sm_n2", "gather_ce_n2", "cpu_tiny_buckets_n2", "cpu_fsdp2_n2", "jax_h200x2")


def drawn(explained: Explained) -> StepTimeline:
    found = step_timeline(explained.analysis, explained.records, explained.ready)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def delayed() -> Explained:
    """Two ranks, of which rank 1 is delayed by 4 ms before each step."""
    return explain_run(DATA / "gpt8_ddp_delay4ms_rank1_n2", for_replay=True)


def parts_of(analysis: RunAnalysis, rank: int, step: int) -> list[int]:
    (row,) = (row for row in analysis.steps if (row.rank, row.step) == (rank, step))
    return [round(row.part_ms(part) * 1e6) for part in PARTS]


@pytest.mark.parametrize("name", TRACES)
def test_what_is_drawn_adds_up_to_the_partition_of_that_step(name: str) -> None:
    explained = explain_run(DATA / name, for_replay=True)
    timeline = drawn(explained)
    assert [one.rank for one in timeline.ranks] == [rank.rank for rank in explained.analysis.ranks]
    for one in timeline.ranks:
        assert one.parts_ns == parts_of(explained.analysis, one.rank, timeline.step)
        assert sum(one.parts_ns) == one.length == sum(one.parts.length)
        by_part = np.bincount(one.parts.what, weights=one.parts.length, minlength=len(PARTS))
        assert by_part.tolist() == one.parts_ns
        ends = np.array(one.parts.start) + np.array(one.parts.length)
        assert one.parts.start == [0, *ends[:-1].tolist()], "no instant counts twice, and none for nothing"
        for lane in lanes_of(one):
            assert all(at >= 0 and at + ns <= one.length for at, ns in zip(lane.start, lane.length, strict=True))
    assert min(one.begin for one in timeline.ranks) == 0


def test_a_rank_that_comes_late_is_seen_and_the_other_waits_for_it(delayed: Explained) -> None:
    delayed.analysis.stragglers = [Straggler(rank=1, lost_ms=3.8)]
    first, late = drawn(delayed).ranks
    assert (first.why, late.why) == ([], ["late"])
    waits = [sum(ns for ns in one.collectives.wait if ns > 0) / 1e6 for one in (first, late)]
    assert waits[0] > 10 and waits[1] < 1
    names = drawn(delayed).names
    spins = {rank.rank: [ns for ns, what in zip(rank.kernels.length, rank.kernels.what, strict=True)
                         if names[what] == "spin_kernel"] for rank in (first, late)}  # fmt: skip
    assert spins[0] == [] and 3.9e6 < sum(spins[1]) < 4.3e6
    assert "DistributedDataParallel.forward" in {names[what] for what in late.phases.what}


def test_a_rank_is_not_late_in_a_step_in_which_it_waits_for_the_others(delayed: Explained) -> None:
    """*Rank 1 comes late in it* was said of a step in which rank 1 waits for 21 ms, and rank 0 for nothing."""
    delayed.analysis.stragglers = [Straggler(rank=0, lost_ms=3.8)]
    assert not any("late" in one.why for one in drawn(delayed).ranks)


def test_the_step_is_the_one_nearest_the_median_and_bounded_by_a_next_one(delayed: Explained) -> None:
    for explained, count in ((delayed, 2), (explain_run(DATA / "cpu_fsdp2_n2", for_replay=True), 3)):
        timeline = drawn(explained)
        rows = [row for row in explained.analysis.steps if not row.open_ended]
        by_step = {
            step: np.mean([row.window_ms for row in rows if row.step == step]) for step in {r.step for r in rows}
        }
        assert timeline.steps == len(by_step) == count
        assert timeline.median_ms == pytest.approx(np.median(list(by_step.values())))
        assert timeline.step_ms == pytest.approx(by_step[timeline.step])
        nearest = min(abs(ms - timeline.median_ms) for ms in by_step.values())
        assert abs(timeline.step_ms - timeline.median_ms) == pytest.approx(nearest, abs=1e-6)


def test_of_many_ranks_those_with_records_are_drawn_as_all_ranks_together_tell() -> None:
    explained = explain_run(DATA / "gpt_ddp_compile_n4", for_replay=True)
    some = {rank: explained.records[rank] for rank in (1, 3)}
    timeline = step_timeline(explained.analysis, some, explained.ready)
    assert timeline is not None and timeline.left_out == 2
    assert "first" in timeline.ranks[0].why and any("late" in one.why for one in timeline.ranks)
    for one in timeline.ranks:
        assert one.parts_ns == parts_of(explained.analysis, one.rank, timeline.step)
    alone = step_timeline(explained.analysis, some)
    assert alone is not None
    unsplit = PARTS.index("exposed_unsplit")
    assert all(one.parts_ns[unsplit] > 0 and max(one.collectives.wait) == -1 for one in alone.ranks), "not guessed"


def test_ranks_that_share_no_step_have_no_timeline(delayed: Explained) -> None:
    assert step_timeline(delayed.analysis, {}) is None


def dense(ranks: int, spans: int) -> StepTimeline:
    """Ranks that run another kernel each 3 µs, of 1 µs to 40 µs."""
    noise = np.random.default_rng(7)
    timeline = StepTimeline(run="dense", activity="gpu", step=1, step_ms=3.0, median_ms=3.0, steps=1,
                            names=[f"kernel_{at}" for at in range(40)], kinds=["matmul", "other"] * 20)  # fmt: skip
    for rank in range(ranks):
        start = 3000 * np.arange(spans)
        length = noise.integers(1000, 40_000, spans)
        what = noise.integers(0, 40, spans)
        kernels = LaneSpans(start=start.tolist(), length=length.tolist(), what=what.tolist())
        cut = LaneSpans(start=start.tolist(), length=[3000] * spans, what=noise.integers(0, 8, spans).tolist())
        calls = Calls(start=start.tolist(), length=length.tolist(), what=what.tolist(),
                      wait=(length // 2).tolist(), bytes=[4096] * spans)  # fmt: skip
        parts = (3000 * np.bincount(cut.what, minlength=8)).tolist()
        timeline.ranks.append(
            RankTimeline(rank=rank, begin=10 * rank, length=3000 * spans, parts_ns=parts, parts=cut, kernels=kernels,
                         collectives=calls, copies=kernels, phases=LaneSpans())
        )  # fmt: skip
    return timeline


def test_what_is_narrower_than_a_pixel_is_merged_until_all_of_it_is_bounded() -> None:
    whole = dense(8, 20_000)
    exact = [one.parts_ns for one in whole.ranks]
    timeline = bounded(dense(8, 20_000))
    assert sum(len(lane) for rank in timeline.ranks for lane in lanes_of(rank)) <= MOST_SPANS
    assert [one.parts_ns for one in timeline.ranks] == exact, "the figures stay exact"
    assert 0 < timeline.merged_below_ns < timeline.ranks[0].length / 200
    for before, after in zip(whole.ranks, timeline.ranks, strict=True):
        assert sum(after.kernels.count) == len(before.kernels), "each stands for so many"
        ends = [max(at + ns for at, ns in zip(lane.start, lane.length, strict=True))
                for lane in (before.kernels, after.kernels)]  # fmt: skip
        assert ends[0] == ends[1]
        assert sum(after.parts.length) == sum(before.parts.length)
        waits = zip(after.collectives.wait, after.collectives.length, strict=True)
        assert all(0 <= wait <= length for wait, length in waits)


def test_a_merged_span_is_what_most_of_its_time_is_and_wide_ones_stay_as_they_are() -> None:
    lane = LaneSpans(start=[0, 10, 20, 100, 900], length=[5, 9, 5, 700, 5], what=[0, 1, 0, 2, 3])
    found = merged(lane, 100)
    assert (found.start, found.length) == ([0, 100, 900], [25, 700, 5])
    assert (found.what, found.count) == ([0, 2, 3], [3, 1, 1])
    assert merged(lane, 5) is lane


def test_it_lies_beside_analysis_json_which_grows_by_a_null(tmp_path: Path) -> None:
    (answer,) = analyze([DATA / "gather_sm_n2"], write=False)
    assert isinstance(answer, RunAnalysis) and answer.timeline is not None
    write_answer(tmp_path / "analysis.json", answer)
    written = json.loads((tmp_path / "analysis.json").read_text())
    assert written["timeline"] is None
    again = read_timeline(tmp_path / "timeline.json.gz")
    assert again == answer.timeline
    write_answer(tmp_path / "analysis.json", msgspec.structs.replace(answer, timeline=None))
    assert not (tmp_path / "timeline.json.gz").exists(), "none is left of an older analysis"
    assert read_timeline(tmp_path / "timeline.json.gz") is None


def test_the_same_timeline_is_the_same_file(tmp_path: Path) -> None:
    timeline = dense(1, 10)
    write_timeline(tmp_path / "a", timeline)
    write_timeline(tmp_path / "b", timeline)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip at all",
        gzip.compress(b"{")[:-9],
        gzip.compress(b'{"run": 3}'),
        gzip.compress(b" " * (33 << 20)),
        gzip.compress(msgspec.json.encode(dense(1, 3)).replace(b'"start":[0,3000,6000]', b'"start":[0,3000]')),
        gzip.compress(msgspec.json.encode(dense(1, 3)).replace(b'"kernel_0",', b"")),
    ],
    ids=["no gzip", "cut off", "another document", "without end", "uneven columns", "a name too few"],
)
def test_what_is_no_timeline_is_refused_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "timeline.json.gz").write_bytes(content)
    with pytest.raises(UserError, match=r"timeline\.json\.gz.*scalescope analyze"):
        read_timeline(tmp_path / "timeline.json.gz")


def test_a_pipe_in_its_place_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "timeline.json.gz")
    with pytest.raises(UserError, match="is no file but a pipe"):
        read_timeline(tmp_path / "timeline.json.gz")
