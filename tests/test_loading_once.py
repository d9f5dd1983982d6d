"""Loading of one rank beside that of all: a lost millisecond is of one finding, and none costs more than is seen."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from scalescope.scaling.finding.finding import Finding
from tests.gloo_traces import GlooJob, analysed

FROM_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
#: What a batch takes that is there already, and what a step computes, ms.
READY_MS, COMPUTES_MS = 1.4, 30.0


def loads(folder: Path, by_rank: Sequence[Sequence[float]]) -> list[Finding]:
    """Return what costs a job's step whose ranks wait for their workers' batches for so long in each step."""
    made = GlooJob()
    for number, both in enumerate(zip(*by_rank, strict=True), 3):
        made.step(number)
        for rank, ms in enumerate(both):
            begun = made.now[rank] + 1_000
            made.sleep(rank, ms)
            made.annotate(rank, FROM_WORKERS, begun, made.now[rank] - 1_000)
        made.compute(COMPUTES_MS, calls=30)
        made.all_reduce(4.0)
    return [one for one in analysed(made.write(folder)).findings if one.code == "data_loading"]


def test_what_one_rank_s_loader_costs_is_not_told_of_all_ranks_again(tmp_path: Path) -> None:
    """*Loading data may cost as much, 27.7 ms: the hosts load data for 1.4 ms a step*, beside the rank that is slow."""
    slow = [29.0, 33.0, 31.0, 28.0, 32.0, 30.0]
    found = loads(tmp_path, [[READY_MS] * len(slow), slow])
    (late,) = (one for one in found if one.rank == 1)
    assert late.ms == pytest.approx(30.5 - READY_MS, abs=2.0)
    assert late.low_ms is not None and late.low_ms > 20.0, "the other rank's batches are there when they are asked for"
    for one in found:
        if one.rank is None:
            assert one.ms is not None and one.high_ms is not None
            assert one.ms <= READY_MS + 0.1 and one.high_ms <= READY_MS + 0.5
    assert sum(one.ms or 0.0 for one in found) <= 31.0


def test_loading_that_all_ranks_share_keeps_what_the_longest_of_them_makes_the_others_wait(tmp_path: Path) -> None:
    first, second = [20.0, 26.0, 21.0, 25.0, 22.0, 24.0], [24.0, 22.0, 25.0, 21.0, 26.0, 20.0]
    (all_ranks,) = (one for one in loads(tmp_path, [first, second]) if one.rank is None)
    longest_ms = sum(map(max, zip(first, second, strict=True))) / len(first)
    assert all_ranks.ms == pytest.approx(longest_ms, abs=1.5)
    assert all_ranks.high_ms is not None and all_ranks.high_ms <= longest_ms + 2.0
