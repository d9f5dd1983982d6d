"""A device that computes on several streams, as cuDNN does for recurrent layers: in turns, and without room for all."""

from pathlib import Path

import pytest

from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.load import find_targets, open_replayer
from scalescope.scaling.replay.whatif.replayer import Replayer
from tests.host_traces import HostTrace

SIDE = 9


def on_side(trace: HostTrace, name: str, begin: float, us: float) -> None:
    """Launch a kernel on the device's other stream, which begins when it is told to."""
    number = trace.call("LaunchKernel")
    trace.event("kernel", name, begin, begin + us, SIDE, trace.rank, correlation=number, stream=SIDE, device=trace.rank)


def replayed(folder: Path) -> Replayer:
    (target,) = find_targets(folder)
    return open_replayer(target, jobs=1)


def test_streams_that_took_turns_are_not_all_run_at_once_by_a_host_that_is_ahead(tmp_path: Path) -> None:
    """Of an LSTM whose own products cost 11.4 ms, reading the loss was told to cost 12.1: its kernels, which wait for
    each other, would all have run at once."""

    def step(trace: HostTrace, _: int) -> None:
        for _ in range(20):
            trace.kernel("aten::mm", 100.0)
            trace.idle(120.0)
            on_side(trace, "gemm_of_another_layer", trace.clock + 2.0, 100.0)
            trace.idle(130.0)

    HostTrace().steps(4, step).write(tmp_path)
    replayer = replayed(tmp_path)
    assert replayer.replay.error == pytest.approx(0.0, abs=0.01)
    told = replayer.predict(Change(host_free=True), near=True)
    assert told.change_ms is not None
    assert replayer.base_ns / 1e6 + told.change_ms >= 0.98 * 20 * 0.2, "40 kernels of 0.1 ms, one after another"


def test_a_kernel_that_had_no_room_beside_others_begins_as_late_again(tmp_path: Path) -> None:
    """Put together again from its parts, an LSTM's step came out 8.8% shorter than it was: nothing could be told."""

    def step(trace: HostTrace, _: int) -> None:
        trace.kernel("aten::mm", 1_000.0)
        on_side(trace, "gemm_of_another_layer", trace.clock + 600.0, 1_000.0)
        trace.synchronise("DeviceSynchronize")
        trace.idle(1_000.0)

    HostTrace().steps(4, step).write(tmp_path)
    assert replayed(tmp_path).replay.unexplained_ms == pytest.approx(0.0, abs=0.01)
