"""What a profiler lost (CUPTI's buffers overflow, a file ends early) is told as lost: no rank's work, and no idle time.

Rank 1 of these traces is delayed on its device by 4 ms a step.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data" / "gpt8_ddp_delay4ms_rank1_n2"
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")

Event = dict[str, Any]


def without(folder: Path, is_lost: Callable[[int, int, Event], bool]) -> RunAnalysis:
    """Analyse the job without the events that a function of the rank, the event's number and the event calls lost."""
    for rank in (0, 1):
        trace = unpacked(DATA / f"rank{rank}.json.gz")
        trace["traceEvents"] = [one for at, one in enumerate(trace["traceEvents"]) if not is_lost(rank, at, one)]
        (folder / f"rank{rank}.json.gz").write_bytes(packed(trace))
    (found,) = analyze([folder], jobs=1)
    assert isinstance(found, RunAnalysis)
    return found


def is_collective(event: Event) -> bool:
    return str(event.get("name")).startswith("nccl")


@pytest.mark.parametrize("ranks", [(0,), (0, 1)])
def test_without_its_collectives_no_rank_is_accused(ranks: tuple[int, ...], tmp_path: Path) -> None:
    """Rank 0's products were told to be slow: they run beside a wait that nobody sees."""
    run = without(tmp_path, lambda rank, _, one: rank in ranks and one.get("cat") in _ON_DEVICE and is_collective(one))
    assert run.findings == [] and run.unpriced is not None and run.unpriced.code == "lost"
    assert run.quality.lossy_ranks == list(ranks)
    verdict = run_verdict(run)
    named = "rank 0" if ranks == (0,) else "ranks 0 and 1"
    assert f"(the profiler lost activity of {named}): 96.5% of the 80.5 ms step is compute" in verdict.headline
    assert verdict.level == "unknown" and verdict.advice.startswith("profile again, for fewer steps at a time")


def test_a_rank_of_which_most_is_lost_makes_the_others_work_nobodys_own(tmp_path: Path) -> None:
    """Rank 1 was told to cost 45 ms of an 80 ms step, for kernels that rank 0 launches as well."""
    run = without(tmp_path, lambda rank, _, one: rank == 0 and one.get("cat") in _ON_DEVICE and not is_collective(one))
    assert run.findings == [] and run.quality.left_out_ranks == [0]
    assert "rank 1 alone (the trace of rank 0 is not whole)" in run_verdict(run).headline


def test_a_file_that_ends_in_mid_step_stretches_no_step(tmp_path: Path) -> None:
    """Valid JSON, as after a repair: its steps ended at what was left, and the mean step came to 106 ms."""
    begins: list[float] = []

    def is_late(rank: int, _: int, event: Event) -> bool:
        if rank == 1 and not begins:
            events = unpacked(DATA / "rank1.json.gz")["traceEvents"]
            begins.extend(sorted(one["ts"] for one in events if str(one.get("name")).startswith("ProfilerStep")))
        return rank == 1 and event.get("ts", 0) > begins[1] + 40e3

    run = without(tmp_path, is_late)
    assert "of the 80.5 ms step" in run_verdict(run).headline
    assert run.quality.left_out_ranks == [1]


def test_nothing_is_called_right_that_may_be_among_what_is_lost(tmp_path: Path) -> None:
    run = without(tmp_path, lambda rank, at, one: rank == 1 and one.get("cat") == "kernel" and at % 20 == 0)
    assert run.quality.lossy_ranks == [1]
    headline = run_verdict(run).headline
    assert "the profiler lost activity of rank 1" in headline and "is wrong" not in headline


def test_copies_that_are_lost_are_told_as_lost(tmp_path: Path) -> None:
    """Without its copies the rank's host was said to stall."""
    run = without(tmp_path, lambda rank, _, one: rank == 1 and one.get("cat") == "gpu_memcpy")
    assert run.quality.lossy_ranks == [1]
    assert "(the profiler lost activity of rank 1)" in run_verdict(run).headline


def test_a_rank_that_lacks_what_was_launched_and_its_launches_is_not_called_right(tmp_path: Path) -> None:
    """A buffer is lost with the calls in it, and the other rank has its collectives: *nothing … is wrong* was told."""
    events = unpacked(DATA / "rank1.json.gz")["traceEvents"]
    begun = sorted((one["ts"], one["args"]["correlation"]) for one in events if one.get("cat") == "kernel")
    lost = {number for _, number in begun[len(begun) * 45 // 100 : len(begun) * 55 // 100]}
    run = without(tmp_path, lambda rank, _, one: rank == 1 and one.get("args", {}).get("correlation") in lost)
    assert run.quality.incomplete_ranks == [1] and run.quality.lossy_ranks == []
    verdict = run_verdict(run)
    assert "(the trace of rank 1 lacks some of what ran)" in verdict.headline and "is wrong" not in verdict.headline
    assert verdict.level == "unknown" and verdict.advice.startswith("profile again, for fewer steps at a time")


def changed(folder: Path, change: Callable[[int, Event], None]) -> list[RunAnalysis]:
    """Analyse the job with each event changed by a function of its number and itself."""
    for rank in (0, 1):
        trace = unpacked(DATA / f"rank{rank}.json.gz")
        for at, one in enumerate(trace["traceEvents"]):
            change(at, one)
        (folder / f"rank{rank}.json.gz").write_bytes(packed(trace))
    return [one for one in analyze([folder], jobs=1) if isinstance(one, RunAnalysis)]


def test_events_that_cannot_be_read_may_be_what_costs_the_step(tmp_path: Path) -> None:
    """Rank 1's delays were among them, and nothing was said to be wrong."""

    def change(_: int, event: Event) -> None:
        if "spin" in str(event.get("name")):
            event["ts"] = 10**30

    (run,) = changed(tmp_path, change)
    headline = run_verdict(run).headline
    assert run.quality.incomplete_ranks == [1] and "is wrong" not in headline
    assert "the trace of rank 1 lacks some of what ran" in headline


def test_idle_time_where_kernels_lost_their_times_is_nobodys(tmp_path: Path) -> None:
    """*24.3 ms of the 80.5 ms step are idle (queued); fewer, larger kernels* was told of kernels without a time."""

    def change(at: int, event: Event) -> None:
        if event.get("cat") == "kernel" and at % 3 == 0:
            event["dur"] = 0

    (run,) = changed(tmp_path, change)
    verdict = run_verdict(run)
    assert run.quality.lossy_ranks == [0, 1] and "what is found explains" not in verdict.headline
    assert "fewer, larger kernels" not in verdict.advice and "profile again" in verdict.advice


def test_ranks_that_lost_collectives_are_of_one_window_still(tmp_path: Path) -> None:
    """Those that are left are not each other's: *the folder mixes 2 jobs or windows* was told of one."""

    dice = [random.Random(0), random.Random(1)]

    def is_lost(rank: int, _: int, one: Event) -> bool:
        return one.get("cat") == "kernel" and dice[rank].random() >= 0.5

    assert without(tmp_path, is_lost).quality.mixed is None


def test_transfers_that_are_paired_wrongly_are_not_called_lost(tmp_path: Path) -> None:
    """Where no header lists the groups, each rank has sends that none of the other's is found for."""
    for path in (DATA.parent / "pipelines_h200x2" / "gpipe_slow").glob("rank*"):
        trace = unpacked(path)
        del trace["distributedInfo"]
        (tmp_path / path.name).write_bytes(packed(trace))
    (run,) = analyze([tmp_path], jobs=1)
    assert isinstance(run, RunAnalysis)
    assert any("amid others missing on rank 1" in one for one in run.quality.reasons)
    assert run.quality.incomplete_ranks == [] and run.findings


def test_collectives_that_lack_their_launches_too_accuse_nobody(tmp_path: Path) -> None:
    """What the host gave to NCCL ran: rank 0 was told to cost 3.9 ms, by products beside a wait that nobody sees."""
    lost = {
        one["args"]["correlation"]
        for rank in (0, 1)
        for one in unpacked(DATA / f"rank{rank}.json.gz")["traceEvents"]
        if one.get("cat") == "kernel" and is_collective(one)
    }
    run = without(tmp_path, lambda _, __, one: one.get("args", {}).get("correlation") in lost)
    assert run.quality.lossy_ranks == [0, 1] and run.findings == []
    assert run.unpriced is not None and run.unpriced.code == "lost"


def test_a_step_that_is_missing_makes_the_one_before_it_no_longer(tmp_path: Path) -> None:
    """*48.2% of the 161.1 ms step is compute; 81.8 ms idle (queued)* was told of steps of 80.5 ms."""
    events = unpacked(DATA / "rank0.json.gz")["traceEvents"]
    host = [one for one in events if one.get("cat") == "user_annotation"]
    begins = sorted(one["ts"] for one in host if one["name"].startswith("ProfilerStep"))
    run = without(tmp_path, lambda _, __, one: begins[1] <= one.get("ts", 0) < begins[2])
    assert [one.window_ms for one in run.steps] == [pytest.approx(80.5, abs=0.3)] * 2
    assert any("a step is missing by the ProfilerSteps' numbers; 1 step before" in one for one in run.quality.reasons)


def test_kernels_within_others_of_their_stream_are_no_devices_times(tmp_path: Path) -> None:
    """As durations in another unit, or merged traces, make them: 99% compute was told of a step that was 97% of it."""

    def longer(_: int, event: Event) -> None:
        if event.get("cat") == "kernel" and not is_collective(event):
            event["dur"] *= 1.5

    (run,) = changed(tmp_path, longer)
    assert run.quality.verdict == "unusable" and run.findings == []
    assert "which runs one thing after another" in run.quality.reasons[0]


def test_kernels_without_names_are_not_laid_beside_each_other(tmp_path: Path) -> None:
    """Rank 1's delay was told as another process on its device."""

    def nameless(_: int, event: Event) -> None:
        if event.get("cat") == "kernel" and not is_collective(event):
            event["name"] = ""

    (run,) = changed(tmp_path, nameless)
    assert run.quality.verdict == "unusable" and run.findings == []
    assert "kernels without a name" in run.quality.reasons[0]


def test_collectives_without_a_time_are_lost(tmp_path: Path) -> None:
    """They overlapped nothing, and *the folder mixes 2 windows; nothing between the ranks is wrong* was told."""

    def timeless(_: int, event: Event) -> None:
        if event.get("cat") == "kernel" and is_collective(event):
            event["dur"] = 0

    (run,) = changed(tmp_path, timeless)
    assert run.findings == [] and run.unpriced is not None and run.unpriced.code == "lost"


def test_a_kernel_long_before_its_launch_makes_no_step_of_months(tmp_path: Path) -> None:
    """*0.0% of the 8,935,509,883 ms step is compute* was told."""

    def negative(at: int, event: Event) -> None:
        if event.get("cat") == "kernel" and at % 20 == 0:
            event["ts"] = -event["ts"]

    (run,) = changed(tmp_path, negative)
    assert run.quality.verdict == "unusable"
    assert any("device activities contradict their launches" in one for one in run.quality.reasons)


def test_steps_of_one_number_are_as_many_as_there_are(tmp_path: Path) -> None:
    """What a rank runs in a step was that of all three: *spin_kernel, 12.3 ms a step*."""

    def renumbered(_: int, event: Event) -> None:
        if str(event.get("name")).startswith("ProfilerStep"):
            event["name"] = "ProfilerStep#7"

    (run,) = changed(tmp_path, renumbered)
    assert "spin_kernel, 4.1 ms a step" in run_verdict(run).headline
    assert [one.step for one in run.steps if one.rank == 0] == [7, 8, 9]


def test_a_files_name_with_more_digits_than_a_rank_has_tells_none(tmp_path: Path) -> None:
    """It was a defect, whose replay took no number of 20 digits."""
    for rank in (0, 1):
        trace = unpacked(DATA / f"rank{rank}.json.gz")
        del trace["distributedInfo"]
        name = f"rank{10**20 + rank}.json.gz"
        (tmp_path / name).write_bytes(packed(trace))
    (run,) = analyze([tmp_path], jobs=1)
    assert isinstance(run, RunAnalysis) and [one.rank for one in run.ranks] == [0, 1]


@pytest.mark.parametrize(("share", "told"), [(0.01, True), (0.9, False)])
def test_what_the_only_rank_lost_costs_no_more_than_what_compute_leaves(
    share: float, told: bool, tmp_path: Path
) -> None:
    """Two lost copies of 124 left a step of 97% compute without a word on what it is."""
    draw = random.Random(1)
    trace = unpacked(DATA.parent / "gpt_ddp_n1" / "rank0.json.gz")
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("cat") != "kernel" or draw.random() >= share]
    (tmp_path / "rank0.json.gz").write_bytes(packed(trace))
    (run,) = analyze([tmp_path], jobs=1)
    assert isinstance(run, RunAnalysis)
    headline = run_verdict(run).headline
    assert ("nothing around the compute is wrong" in headline) is told
    assert "(the profiler lost activity of rank 0)" in headline or not told
