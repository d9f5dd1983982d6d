"""Compiled jobs: each rank's graphs have other hashes, and hosts that launch them stand still for short, anywhere."""

from pathlib import Path

import pytest

from scalescope.scaling.findings.candidate import Candidate
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.findings.prices.short_gaps import as_long_as_they_are
from scalescope.scaling.replay.removal import Removal
from tests.host_traces import HostTrace, causes_of


def graphs(trace: HostTrace, _: int) -> None:
    """Six calls of a compiled graph, whose Python takes 0.15 ms before its first kernel on each rank."""
    for _ in range(6):
        with trace.inside("cpu_op", f"## Call CompiledFxGraph f{'ab'[trace.rank] * 51} ##"):
            trace.idle(150.0)
            trace.kernel("triton_red_fused_mean_0", 30.0)
        trace.kernel("aten::mm", 200.0)


def test_a_graph_is_the_same_one_on_each_rank(tmp_path: Path) -> None:
    """Its name has a hash of the device: no place in it was ever found on another rank, and a healthy compiled job was
    told *rank 1 costs 4.6 of the 28.2 ms step*, for gaps of 0.08 ms that rank 0 has as well."""
    stalls = [cause for cause in causes_of(tmp_path, graphs, graphs) if cause.code == "host_stall"]
    assert all(cause.rank is None for cause in stalls)


@pytest.mark.parametrize(("ns", "ms"), [(37_000, 0.4), (0, 5.0)])
def test_short_gaps_cost_no_more_than_they_take(ns: int, ms: float) -> None:
    """5.0 ms were told of gaps of 0.41 ms a step: what a host launches later for elsewhere went out with them."""
    gaps = Candidate(code="host_stall", rank=1, removals=(Removal("gaps", 1, ns),), in_each_ms=(0.3, 0.5))
    assert as_long_as_they_are(Gain(gaps, 5.0, 2.5, 7.5)).ms == pytest.approx(ms)
