"""Device activities whose times cannot be: a few are left out and counted, and the rest of their rank is told.

Rank 1 of these traces is delayed on its device by 4 ms a step.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data" / "gpt8_ddp_delay4ms_rank1_n2"
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")
YEAR_US = 365 * 86_400e6

Event = dict[str, Any]


def changed(folder: Path, change: Callable[[int, list[Event]], Sequence[Event]]) -> RunAnalysis:
    """Analyse the job with each rank's events changed."""
    for rank in (0, 1):
        trace = unpacked(DATA / f"rank{rank}.json.gz")
        trace["traceEvents"] = list(change(rank, trace["traceEvents"]))
        (folder / f"rank{rank}.json.gz").write_bytes(packed(trace))
    (found,) = analyze([folder], jobs=1)
    assert isinstance(found, RunAnalysis)
    return found


def amid(events: Sequence[Event], count: int) -> list[Event]:
    """Return so many kernels, from the middle of the window, none of them a collective."""
    launched = {one["args"].get("correlation") for one in events if one.get("cat") == "cuda_runtime"}
    kernels = [one for one in events if one.get("cat") == "kernel" and one["args"]["correlation"] in launched]
    kernels = [one for one in kernels if not one["name"].startswith("nccl")]
    return kernels[1500 : 1500 + count]


def tells_the_delay(run: RunAnalysis) -> bool:
    return "rank 1 costs 3.8 ms (3.2 ms to 4.3 ms) of the 80.5 ms step: spin_kernel" in run_verdict(run).headline


@pytest.mark.parametrize(
    ("count", "later_us"), [(1, -120e6), (3, -0.5e6), (5, -30e6), (1, 30e6), (1, 120e6), (20, 120e6), (1, 0.1e6)]
)
def test_a_few_activities_that_are_not_where_their_stream_runs_them_are_left_out(
    count: int, later_us: float, tmp_path: Path
) -> None:
    """*Nothing runs for 19,990 ms of the 20,070 ms step* was told of one kernel; of five, of a clock 30 s behind."""

    def misplace(rank: int, events: list[Event]) -> list[Event]:
        for one in amid(events, count) if rank == 1 else ():
            one["ts"] += later_us
        return events

    run = changed(tmp_path, misplace)
    assert tells_the_delay(run) and run.quality.left_out_ranks == [] and run.quality.verdict == "degraded"
    what = "1 device activity" if count == 1 else f"{count} device activities"
    assert any(f"{what} left out, whose times contradict their launches" in one for one in run.quality.reasons)


@pytest.mark.parametrize("later_us", [-30e6, 120e6])
def test_activities_alone_on_their_stream_move_no_clock(later_us: float, tmp_path: Path) -> None:
    """Calls that waited for the device had returned: no clock lets the rest have ended by then."""

    def misplace(rank: int, events: list[Event]) -> list[Event]:
        for one in amid(events, 5) if rank == 1 else ():
            one["ts"] += later_us
            one["tid"] = one["args"]["stream"] = 99
        return events

    run = changed(tmp_path, misplace)
    assert tells_the_delay(run) and any("5 device activities left out" in one for one in run.quality.reasons)
    assert not any("clock" in one for one in run.quality.reasons)


def test_what_is_left_out_and_took_long_is_lost(tmp_path: Path) -> None:
    """Few as they are, they may be what costs the step."""

    def misplace(rank: int, events: list[Event]) -> list[Event]:
        for one in events if rank == 1 else ():
            if one.get("cat") == "kernel" and "spin" in one["name"]:
                one["ts"] -= 120e6
        return events

    run = changed(tmp_path, misplace)
    assert run.quality.lossy_ranks == [1] and "the profiler lost activity of rank 1" in run_verdict(run).headline
    assert "is wrong" not in run_verdict(run).headline


def test_a_rank_most_of_whose_activities_are_misplaced_is_in_no_mean(tmp_path: Path) -> None:
    def misplace(rank: int, events: list[Event]) -> list[Event]:
        for at, one in enumerate(events if rank == 1 else ()):
            if one.get("cat") in _ON_DEVICE and at % 7 == 0:
                one["ts"] -= 120e6
        return events

    run = changed(tmp_path, misplace)
    assert run.quality.left_out_ranks == [1]


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "without waits"])
@pytest.mark.parametrize("later_us", [-120e6, 120e6, -9.5 * YEAR_US, 10 * YEAR_US])
def test_a_devices_clock_is_brought_to_its_hosts_however_far_it_is(
    later_us: float, waits: bool, tmp_path: Path
) -> None:
    """*The traces do not say where its time goes* was told of a clock that is minutes behind."""

    def move(rank: int, events: list[Event]) -> list[Event]:
        for one in events if rank == 1 else ():
            if one.get("cat") in _ON_DEVICE:
                one["ts"] += later_us
        return [one for one in events if waits or "DeviceSynchronize" not in str(one.get("name"))]

    run = changed(tmp_path, move)
    assert tells_the_delay(run) and run.quality.left_out_ranks == []
    (said,) = [one for one in run.quality.reasons if "its device's clock is" in one]
    assert ("behind" if later_us < 0 else "ahead of") in said
    assert ("what is told as waiting for launches may be less" in said) is not waits
    split = next(one for one in run.ranks if one.rank == 1)
    assert split.idle_launch_ms == pytest.approx(0, abs=0.1)


def test_durations_that_reach_into_the_next_activity_count_once_and_are_said(tmp_path: Path) -> None:
    """No stream runs so, but by programmatic launches: the parts are still the window, to the nanosecond."""

    def stretch(_: int, events: list[Event]) -> list[Event]:
        streams: dict[int, list[Event]] = {}
        for one in events:
            if one.get("cat") == "kernel" and not one["name"].startswith("nccl"):
                streams.setdefault(one["tid"], []).append(one)
        for rows in streams.values():
            rows.sort(key=lambda one: float(one["ts"]))
            for one, behind in pairwise(rows):
                until = behind["ts"] + behind["dur"] - 0.5 - one["ts"]
                one["dur"] = min(1.05 * one["dur"], max(one["dur"], until))
        return events

    run = changed(tmp_path, stretch)
    assert any("lies over the next ones of their stream" in one for one in run.quality.reasons)
    for one in run.steps:
        parts = (one.compute_ms, one.exposed_transfer_ms, one.exposed_wait_ms, one.exposed_unsplit_ms,
                 one.exposed_memory_ms, one.idle_data_ms, one.idle_launch_ms, one.idle_queued_ms)  # fmt: skip
        assert sum(round(part * 1e6) for part in parts) == round(one.window_ms * 1e6)
