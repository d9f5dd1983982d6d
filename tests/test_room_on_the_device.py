"""A kernel whose blocks must all run at once waits for a collective to leave the device, by no event or stream."""

from pathlib import Path
from typing import Any

import pytest

from tests.gloo_traces import analysed
from tests.host_traces import HostTrace

OWN_US = 800.0


def reduced(trace: HostTrace, elements: int, begin: float, end: float) -> None:
    """An all-reduce of a bucket, whose kernel runs from `begin` to `end`, µs."""
    number = trace.call("LaunchKernel")
    told: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements,
            "dtype": "Float", "Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]",
            "correlation": number, "stream": 20, "device": trace.rank}  # fmt: skip
    trace.event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", begin, end, 20, trace.rank, **told)


def step(trace: HostTrace, own_us: float, ends_before_us: float) -> None:
    """Rank 1 runs a kernel of its own; in the backward pass rank 0's next kernel starts as its collective ends."""
    begin = trace.clock + 100
    trace.device_free = begin + (own_us if trace.rank else 0.0)
    if trace.rank and own_us:
        number = trace.call("LaunchKernel")
        trace.event("kernel", "gemm_of_one_rank", begin, begin + own_us, 7, 1, correlation=number, stream=7, device=1)
    trace.kernel("aten::mm", 200.0)
    over = begin + own_us + 220
    reduced(trace, 300_000, trace.device_free, over)
    trace.device_free = over - ends_before_us
    trace.kernel("aten::batch_norm", 100.0, "batchnorm_bwtr_nhwc_semiPersist")
    trace.kernel("aten::mm", 1_000.0)
    trace.item()


@pytest.mark.parametrize("ends_before_us", [-2.0, 1.0])
def test_what_a_late_rank_costs_is_found_where_others_have_no_room_beside_its_collective(
    tmp_path: Path, ends_before_us: float
) -> None:
    """It begins 1 µs before the collective's last block is through: the others' wait for a late rank was their own
    delay, and a kernel on one rank that cost 9.1 ms of 50 was told as 0.4, a late loader's 12.1 as nothing."""
    for rank in (0, 1):
        HostTrace(rank, 2).steps(4, lambda trace, _: step(trace, OWN_US, ends_before_us)).write(tmp_path)
    first = analysed(tmp_path).findings[0]
    assert (first.code, first.rank) == ("own_work", 1)
    assert first.ms == pytest.approx(OWN_US / 1e3, rel=0.1)
