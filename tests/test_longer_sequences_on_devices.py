"""One rank's longer sequences on a device are one cause, by the kernels that recurrent layers have of their own."""

from pathlib import Path
from typing import Any

import pytest

from scalescope.report.text.findings import because
from scalescope.scaling.finding.codes import ON_THE_DEVICE
from scalescope.scaling.finding.figures import ROUNDS
from tests.gloo_traces import analysed
from tests.host_traces import HostTrace

CELL, GRADIENT = "void elemWiseRNNcell<float>(int)", "void LSTM_elementWise_bp1<float>(int)"


def sequences(trace: HostTrace, rounds: int, forward: int) -> None:
    """Go over sequences `rounds` times, both ways; products' kernels are those of their sizes."""
    for at in range(max(rounds, forward)):
        if at < forward:
            trace.kernel("aten::_cudnn_rnn", 60.0, "gemm_tilesize64" if (at + trace.rank) % 3 else "gemm_tilesize128")
            trace.kernel("aten::_cudnn_rnn", 10.0, CELL)
    with trace.backward():
        for _ in range(rounds):
            trace.kernel("aten::_cudnn_rnn_backward", 90.0, "gemm_of_gradients")
            trace.kernel("aten::_cudnn_rnn_backward", 10.0, GRADIENT)
    number = trace.call("LaunchKernel")
    told: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": 1_000_000, "Out msg nelems": 1_000_000,
            "dtype": "Float", "Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]",
            "correlation": number, "stream": 20, "device": trace.rank}  # fmt: skip
    begin, over = trace.device_free + 5.0, trace.clock + 12_000.0
    trace.event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", begin, over, 20, trace.rank, **told)
    trace.device_free, trace.clock = over, over + 10.0


@pytest.mark.parametrize(("forward", "is_longer"), [(60, True), (40, False)], ids=["longer", "backward alone"])
def test_longer_sequences_on_a_device_are_one_cause(tmp_path: Path, forward: int, is_longer: bool) -> None:
    """*slower compute: see what else runs on that device, and its clocks*, where one rank's sequences were 1.30 times
    as long; and more work and slower compute, of one cause."""
    for rank in (0, 1):
        rounds, ways = (60, forward) if rank else (40, 40)

        def step(trace: HostTrace, _: int, rounds: int = rounds, ways: int = ways) -> None:
            begun = trace.clock
            trace.device_free = trace.clock
            sequences(trace, rounds, ways)
            trace.clock = trace.device_free = max(trace.clock, begun + 25_000.0)

        HostTrace(rank, 2).steps(4, step).write(tmp_path)
    found = [one for one in analysed(tmp_path).findings if one.code in ON_THE_DEVICE]
    rounds_of = [row for one in found for row in one.evidence if row.name == ROUNDS]
    assert bool(rounds_of) == is_longer
    if is_longer:
        (one,) = found
        assert (one.code, one.rank) == ("more_work", 1) and one.remedy is not None
        assert one.remedy.cure == "even_out_lengths"
        assert (rounds_of[0].calls, rounds_of[0].value) == (60, 40)
        assert "60 times a step and not 40" in because(one)
