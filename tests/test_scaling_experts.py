"""Experts with more tokens than others are found by their uneven all-to-alls, with what the others wait."""

from pathlib import Path
from typing import Any

import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from tests.gloo_traces import analysed as told_of
from tests.host_traces import HostTrace

#: Tokens of 4,096 bytes each: rank 0's experts have three of four.
TOKENS = {0: 3072, 1: 1024}
WIDTH = 1024


def exchange(trace: HostTrace, sent: int, received: int, begin: float, end: float) -> None:
    """An all-to-all whose kernel runs from `begin` to `end`, µs."""
    number = trace.call("LaunchKernel")
    told: dict[str, Any] = {"Collective name": "all_to_allv", "In msg nelems": sent * WIDTH,
            "Out msg nelems": received * WIDTH,
            "dtype": "Float", "Group size": 2, "Process Group Name": "3", "Process Group Ranks": "[0, 1]",
            "Process Group Description": "mesh_ep", "correlation": number, "stream": 20,
            "device": trace.rank}  # fmt: skip
    trace.event("kernel", "ncclDevKernel_SendRecv(x)", begin, end, 20, trace.rank, **told)


def moe_step(trace: HostTrace, tokens: dict[int, int], late_us: float = 0.0) -> None:
    """Tokens go to experts, experts compute in proportion, tokens come back: everybody waits for the fullest.

    `late_us`: by which rank 0's host sends them back later.
    """
    begin = trace.clock + 20
    trace.kernel("aten::mm", 100.0, "gemm_dense")
    own = tokens[trace.rank]
    mean = sum(tokens.values()) // 2
    exchange(trace, mean, own, begin + 200, begin + 250)
    trace.device_free = max(trace.device_free, begin + 260)
    trace.kernel("aten::bmm", float(own), "gemm_experts")
    launched = trace.clock + 8
    sent = {rank: max(begin + 300 + tokens[rank], launched + (0.0 if rank else late_us)) for rank in tokens}
    trace.idle(0.0 if trace.rank else late_us)
    exchange(trace, own, mean, sent[trace.rank], max(sent.values()) + 60)
    trace.device_free = max(sent.values()) + 70
    trace.kernel("aten::add", 50.0, "add_elementwise")
    trace.item()


def analysed(folder: Path, tokens: dict[int, int], late_us: float = 0.0) -> RunAnalysis:
    for rank in (0, 1):
        HostTrace(rank, 2).steps(4, lambda trace, _: moe_step(trace, tokens, late_us)).write(folder)
    return told_of(folder)


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> RunAnalysis:
    return analysed(tmp_path_factory.mktemp("skewed"), TOKENS)


def test_the_imbalance_is_the_fullest_ranks_load_over_the_mean(skewed: RunAnalysis) -> None:
    (row,) = skewed.experts
    assert row.rank == 0
    assert row.imbalance == pytest.approx(1.5, rel=0.02)
    assert row.share == pytest.approx(0.75, rel=0.02)
    assert row.bytes_by_rank[0] == pytest.approx(2 * TOKENS[0] * WIDTH * 4, rel=0.3)  # there and back


def test_balanced_experts_save_what_the_fullest_rank_computes_beyond_the_mean(skewed: RunAnalysis) -> None:
    """All of the others' wait was told, as if the tokens that leave the fullest rank were nobody's work."""
    (row,) = skewed.experts
    assert row.wait_ms == pytest.approx((TOKENS[0] - TOKENS[1]) / 1e3, rel=0.02)
    beyond = (TOKENS[0] - sum(TOKENS.values()) / 2) / 1e3
    assert row.gain_ms == pytest.approx(beyond, rel=0.02)
    assert row.gain_low_ms <= row.gain_ms <= row.gain_high_ms
    assert skewed.findings[0].ms == row.gain_ms


def test_it_is_the_finding(skewed: RunAnalysis) -> None:
    first = skewed.findings[0]
    assert (first.code, first.rank) == ("expert_imbalance", 0)
    assert not any(one.code in ("more_work", "slower_compute") for one in skewed.findings)
    assert "its experts have 75% of the tokens, 1.50× the mean rank's" in run_verdict(skewed).text


def test_even_experts_are_no_finding(tmp_path: Path) -> None:
    found = analysed(tmp_path, {0: 2048, 1: 2048})
    assert found.experts == []
    assert not any(one.code == "expert_imbalance" for one in found.findings)


def test_a_wait_for_a_late_host_is_no_price_of_uneven_experts(tmp_path: Path) -> None:
    """Of a job whose hosts bind it 6.0 ms (5.7 to 6.3) of 12.7 were told, by the others' wait, where 0.3 came."""
    tokens = {0: 450, 1: 150}
    found = analysed(tmp_path, tokens, late_us=3_000.0)
    (row,) = found.experts
    assert row.wait_ms > 2.5
    assert row.gain_ms < 0.1
    assert (found.findings[0].code, found.findings[0].rank) == ("host_stall", 0)
