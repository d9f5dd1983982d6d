"""An idle device is the host's doing until the call that launches what comes next has returned."""

import json
from pathlib import Path
from typing import Any

import pytest

from scalescope.scaling.answer_rows import RankSplit
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.sources import find_sources


def idle(folder: Path, *events: tuple[str, str, int, int, int]) -> RankSplit:
    """Return the split of a step in which these happen: category, name, correlation, begin and end in µs."""
    written: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 9, "tid": 1, "ts": 0, "dur": 100_000}
    ]
    for category, name, correlation, begin, end in events:
        args: dict[str, Any] = {"correlation": correlation}
        if category != "cuda_runtime":
            args |= {"device": 0, "stream": 7}
        written.append({"ph": "X", "cat": category, "name": name, "pid": 9, "tid": 1, "ts": begin, "dur": end - begin,
                        "args": args})  # fmt: skip
    (folder / "rank0.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": written}))
    (rank,) = explain_traces(find_sources(folder), "x", 1).analysis.ranks
    return rank


FIRST = (("cuda_runtime", "cudaLaunchKernel", 1, 100, 105), ("kernel", "one", 1, 110, 200))


@pytest.mark.parametrize("launch", ["cudaLaunchKernel", "cuLaunchKernelEx", "hipLaunchKernel", "hipExtModuleLaunch"])
def test_a_launch_that_loads_a_module_is_the_hosts_time(tmp_path: Path, launch: str) -> None:
    rank = idle(tmp_path, *FIRST, ("cuda_runtime", launch, 2, 205, 3205), ("kernel", "two", 2, 3210, 3300))
    assert rank.idle_launch_ms == pytest.approx(3.005) and rank.idle_queued_ms == pytest.approx(0.005)


def test_a_kernel_that_starts_before_its_launch_returns_was_enqueued_by_then(tmp_path: Path) -> None:
    rank = idle(tmp_path, *FIRST, ("cuda_runtime", "cudaLaunchKernel", 2, 205, 225), ("kernel", "two", 2, 215, 300))
    assert rank.idle_launch_ms == pytest.approx(0.015) and rank.idle_queued_ms == 0


def test_gaps_inside_a_graph_are_the_devices_own_also_while_its_launch_has_not_returned(tmp_path: Path) -> None:
    graph = ("cuda_runtime", "cudaGraphLaunch", 2, 210, 600)
    kernels = (("kernel", "two", 2, 250, 300), ("kernel", "three", 2, 340, 400), ("kernel", "four", 2, 700, 800))
    rank = idle(tmp_path, *FIRST, graph, *kernels)
    assert rank.idle_launch_ms == pytest.approx(0.05) and rank.idle_queued_ms == pytest.approx(0.34)


def test_a_copy_whose_call_waits_for_it_was_enqueued_when_the_call_began(tmp_path: Path) -> None:
    copy = (("cuda_runtime", "cudaMemcpyAsync", 2, 210, 9510), ("gpu_memcpy", "Memcpy DtoH", 2, 9400, 9500))
    rank = idle(tmp_path, *FIRST, *copy)
    assert rank.idle_launch_ms == pytest.approx(0.01) and rank.idle_queued_ms == pytest.approx(9.19)
