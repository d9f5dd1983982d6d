"""A step that products fill, and in which the host reads values one by one: its device rests at each read."""

from pathlib import Path

import pytest

from scalescope import RunAnalysis
from tests.gloo_traces import analysed
from tests.host_traces import HostTrace, backward, forward, optimise

#: What the device takes for a step without the reads, ms, and what the step takes where recording costs what is likely.
WITHOUT_MS, LIKELY_MS = 26.08, 29.2


def _told(folder: Path, reads: int, step_ms: float) -> RunAnalysis:
    """Of a step in which the host reads so many norms, one after another."""

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, 400.0)
        backward(trace, 400.0)
        for _ in range(reads):
            trace.kernel("aten::linalg_vector_norm", 3.0, "reduce_kernel")
            trace.item()
        optimise(trace)

    HostTrace().steps(8, step).write(folder)
    return analysed(folder, step_ms)


@pytest.mark.parametrize("longer_ms", [0.0, 0.3, 0.6])
def test_what_reading_one_by_one_costs_is_all_that_the_step_is_longer_by(longer_ms: float, tmp_path: Path) -> None:
    """Of an H200's tagger 5.2 ms were lost by 101 reads a step, and 3.9 (2.6 to 4.7) told: the device was taken to be
    at its power limit, and slower for want of the rests that it has at each read.
    """
    step_ms = LIKELY_MS + longer_ms
    first = _told(tmp_path, 100, step_ms).findings[0]
    assert first.code == "synchronising" and first.ms is not None
    assert first.ms == pytest.approx(step_ms - WITHOUT_MS, rel=0.02)


def test_reads_far_apart_leave_a_longer_step_to_a_slower_device(tmp_path: Path) -> None:
    """Between two of them it has products to run: who reads a loss now and then tells no scale of recording."""

    def step(trace: HostTrace, number: int) -> None:
        for _ in range(20):
            forward(trace, 400.0, 1)
            trace.idle(25.0)
            trace.item()
        backward(trace, 400.0)
        optimise(trace)

    HostTrace().steps(8, step).write(tmp_path)
    answer = analysed(tmp_path, 27.2)
    assert answer.as_run is not None and answer.as_run.step_ms == pytest.approx(27.2, rel=0.002)
    assert answer.findings[0].code == "synchronising" and (answer.findings[0].ms or 0.0) < 0.5
