"""A device's clock that is off its host's: brought to it by what cannot be, such as a kernel before its launch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data" / "stalled_host_rank1_n2"
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> RunAnalysis:
    """Analyse the job with what rank 1's device did changed."""
    for rank in (0, 1):
        trace = unpacked(DATA / f"rank{rank}.json.gz")
        for event in trace["traceEvents"] if rank == 1 else ():
            change(event)
        (folder / f"rank{rank}.json.gz").write_bytes(packed(trace))
    (found,) = analyze([folder], jobs=1)
    assert isinstance(found, RunAnalysis)
    return found


@pytest.mark.parametrize("later_us", [-3000.0, 3000.0])
def test_a_devices_clock_is_brought_to_its_hosts(later_us: float, tmp_path: Path) -> None:
    """Rank 1's host stalls, and its device waits for it: it seemed to have work queued, or to wait for longer."""

    def move(event: dict[str, Any]) -> None:
        if event.get("cat") in _ON_DEVICE:
            event["ts"] += later_us

    (expected,) = analyze([DATA], jobs=1)
    found = changed(tmp_path, move)
    assert isinstance(expected, RunAnalysis)
    way = "behind" if later_us < 0 else "ahead of"
    said = [one for one in found.quality.reasons if f"{way} its host's" in one]
    assert len(said) == 1 and (" 3.0" in said[0] or " 2.9" in said[0])
    for one, other in zip(expected.ranks, found.ranks, strict=True):
        assert other.idle_launch_ms == pytest.approx(one.idle_launch_ms, abs=0.03 * one.window_ms)
    told, first = expected.findings[0], found.findings[0]
    assert (first.code, first.rank) == (told.code, told.rank) == ("host_stall", 1)
    assert first.ms == pytest.approx(told.ms, rel=0.05)


def test_launches_that_are_others_tell_no_steps(tmp_path: Path) -> None:
    """Correlations that are used again: the step came to 0.5 ms of 40."""

    def collide(event: dict[str, Any]) -> None:
        if "correlation" in event.get("args", {}):
            event["args"]["correlation"] %= 500

    found = changed(tmp_path, collide)
    assert found.findings == []
    assert any("lead to others' launches" in one for one in found.quality.reasons) or found.quality.mixed is not None
    assert "alone" in run_verdict(found).headline


def test_clocks_that_agree_are_left_alone() -> None:
    (found,) = analyze([DATA], jobs=1)
    assert isinstance(found, RunAnalysis) and not any("clock" in one for one in found.quality.reasons)
