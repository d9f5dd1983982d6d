"""Ranks of one window whose recordings end at different steps: all is told of the steps that all of them hold."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scalescope.scaling.answer import HeldSteps, SharedSteps
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.compare.kernels.operators import read_calls
from scalescope.scaling.compare.windows import read_windows
from scalescope.scaling.ranks.steps.common import common_steps, said_of_common
from scalescope.scaling.ranks.summary import read_rank
from tests.answer_of import analyzed
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data"
STEP = re.compile(r"ProfilerStep#(\d+)$")
HELD = [HeldSteps(0, 3, 5), HeldSteps(1, 3, 4)]


def ends(trace: Any) -> dict[int, float]:
    """Return when each step ends, µs."""
    marks = [(STEP.match(str(one.get("name"))), one) for one in trace["traceEvents"] if one.get("ph") == "X"]
    return {int(mark[1]): one["ts"] + one["dur"] for mark, one in marks if mark and one["cat"] == "user_annotation"}


def cut_behind(path: Path, step: int) -> None:
    """Let a rank's recording end with a step."""
    trace = unpacked(path)
    end = ends(trace)[step]
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("ph") == "M" or one.get("ts", 0) < end]
    path.write_bytes(packed(trace))


def wait_in(path: Path, step: int, ms: float) -> None:
    """Let a rank stand still in a step, by half of it, whatever runs then."""
    trace = unpacked(path)
    end = ends(trace)
    middle = (end[step - 1] + end[step]) / 2
    for one in trace["traceEvents"]:
        if one.get("ts", 0) >= middle and one.get("ph") != "M":
            one["ts"] += 1e3 * ms
        elif one.get("ts", 0) + one.get("dur", 0) >= middle:
            one["dur"] += 1e3 * ms
    path.write_bytes(packed(trace))


def job(folder: Path, *, cut: tuple[int, ...], waits_ms: float = 0.0, name: str = "cpu_ddp_n2") -> Path:
    """Copy a job's traces of steps 3 to 5; ranks that are `cut` end with step 4, and rank 0 waits in the one behind."""
    shutil.copytree(DATA / name, folder)
    for rank in (0, 1):
        (file,) = folder.glob(f"rank{rank}*")
        if rank in cut:
            cut_behind(file, 4)
        elif waits_ms:
            wait_in(file, 5, waits_ms)
    return folder


def test_all_figures_are_of_the_steps_that_all_ranks_hold(tmp_path: Path) -> None:
    """A step of 46 ms on both ranks, and 1 s in which rank 0 stands still while rank 1 writes its trace: *rank 1 costs
    8.9 ms of the 212.6 ms step*, 379 on rank 0, 91.6% of it compute; of the steps in common, 5.9 ms of 42.3.
    """
    found = analyzed(job(tmp_path / "apart", cut=(1,), waits_ms=1_000.0))
    same = analyzed(job(tmp_path / "alike", cut=(0, 1)))
    assert found.quality.common_steps == [SharedSteps(first=3, last=4, held=HELD)]
    told = "rank 0 holds steps 3 to 5 and rank 1 steps 3 to 4: all figures are of the 2 steps that both hold, 3 to 4"
    assert [one for one in found.quality.reasons if "hold" in one] == [told]
    assert not same.quality.common_steps and not any("hold" in one for one in same.quality.reasons)
    for field in ("ranks", "steps", "efficiency", "findings", "kinds", "kernels", "groups", "as_run"):
        assert getattr(found, field) == getattr(same, field), field
    assert max(one.window_ms / one.steps for one in found.ranks) < 50


def test_a_comparison_is_of_the_steps_that_all_ranks_of_a_side_hold(tmp_path: Path) -> None:
    """The same steps were told as 170.3 ms longer (86 to 255), beyond noise, for matmul, and kernels were of three."""
    apart, alike = (
        job(tmp_path / name, cut=cut, waits_ms=1_000.0) for name, cut in (("apart", (1,)), ("alike", (0, 1)))
    )
    (mine,), (same,) = (found.windows for one in (apart, alike) if (found := read_windows(one, None, 1)) is not None)
    assert mine.only == (3, 4) and same.only is None
    assert (mine.ranks, mine.steps) == (same.ranks, same.steps)
    calls = [read_calls(window.traces[0].path, None, window.only) for window in (mine, same)]
    assert calls[0] == calls[1] and calls[0].steps == 2
    told = compare_paths([alike], [apart])
    assert told.verdict == "same" and told.change_ms == pytest.approx(0.0, abs=0.01)
    assert all(one.change_ms == pytest.approx(0.0, abs=0.01) for one in told.parts)


def test_a_rank_alone_and_ranks_that_end_together_are_told_whole(tmp_path: Path) -> None:
    whole = analyzed(DATA / "cpu_ddp_n2")
    assert not whole.quality.common_steps and {one.steps for one in whole.ranks} == {3}
    folder = job(tmp_path / "alone", cut=(1,))
    next(folder.glob("rank1*")).unlink()
    alone = analyzed(folder)
    assert not alone.quality.common_steps and [one.steps for one in alone.ranks] == [3]


def test_each_window_of_a_run_is_of_the_steps_that_its_ranks_have_in_common(tmp_path: Path) -> None:
    """Two windows, of which rank 1 holds a step less of the earlier one: that is said of this window alone."""
    folder = job(tmp_path / "windows", cut=(1,))
    for file in (DATA / "cpu_ddp_n2").glob("rank*"):
        trace = unpacked(file)
        trace["baseTimeNanoseconds"] += 5_000_000_000
        for one in trace["traceEvents"]:
            if mark := STEP.match(str(one.get("name"))):
                one["name"] = f"ProfilerStep#{int(mark[1]) + 20}"
        (folder / file.name.replace(".3.", ".23.")).write_bytes(packed(trace))
    found = analyzed(folder)
    assert found.windows == 2 and [one.steps for one in found.ranks] == [5, 5]
    assert found.quality.common_steps == [SharedSteps(first=3, last=4, held=HELD)]
    said = next(one for one in found.quality.reasons if "hold" in one)
    assert said.startswith("in 1 of 2 windows: rank 0 holds steps 3 to 5 and rank 1 steps 3 to 4: ")


def test_ranks_that_count_one_step_by_two_numbers_are_not_cut_to_those_that_both_have(tmp_path: Path) -> None:
    """What rank 1 calls steps 4 to 6 are rank 0's steps 3 to 5: the numbers in common are of different steps."""
    folder = job(tmp_path / "counted", cut=())
    (file,) = folder.glob("rank1*")
    trace = unpacked(file)
    for one in trace["traceEvents"]:
        if mark := STEP.match(str(one.get("name"))):
            one["name"] = f"ProfilerStep#{int(mark[1]) + 1}"
    file.write_bytes(packed(trace))
    found = analyzed(folder)
    assert not found.quality.common_steps and {one.steps for one in found.ranks} == {3}
    assert found.unpriced is not None and found.unpriced.code == "other_steps"
    assert "the ranks' traces do not hold the same steps" in found.quality.reasons


def test_a_rank_that_holds_none_of_the_others_steps_and_one_that_is_in_no_mean_have_no_say(tmp_path: Path) -> None:
    folder = job(tmp_path / "cut", cut=(1,))
    long, short = (read_rank(file).summary for file in sorted(folder.glob("rank*")))
    assert long.shares is not None
    windows = replace(long.shares.windows, numbers=[7, 8, 9])
    elsewhere = replace(long, shares=replace(long.shares, windows=windows), collectives=[])
    both = SharedSteps(first=3, last=4, held=HELD)
    assert common_steps({0: long, 1: short, 2: elsewhere}) == both
    assert common_steps({0: long, 1: elsewhere}) is None
    blind = replace(short, evidence=replace(short.evidence, quick_call_ns=1.0))
    assert common_steps({0: long, 1: blind}) is None
    unnumbered = replace(short, evidence=replace(short.evidence, steps="optimizer"))
    assert common_steps({0: long, 1: unnumbered}) is None


def test_many_ranks_are_named_by_the_steps_that_they_hold() -> None:
    held = [HeldSteps(rank, 2, 9 if rank else 3) for rank in range(4)]
    assert said_of_common(SharedSteps(first=2, last=3, held=held)) == (
        "rank 0 holds steps 2 to 3 and ranks 1, 2, 3 steps 2 to 9: all figures are of the 2 steps that all hold, 2 to 3"
    )
    held = [HeldSteps(rank, 2, 2 + rank) for rank in range(6)]
    said = said_of_common(SharedSteps(first=2, last=2, held=held))
    assert said.startswith("rank 0 holds step 2, rank 1 steps 2 to 3, ") and " and others other ones: " in said
    assert said.endswith("all figures are of step 2, the only one that all hold")
