"""The rank beside one with work of its own is slower for what the two share: that is no second cause."""

import math
from pathlib import Path

import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from tests.gloo_traces import GlooJob, analysed


def job(path: Path, own_ms: float, times: float, host: str = "node0") -> RunAnalysis:
    """Return a job of two ranks, of which rank 1 alone computes so long besides, and rank 0's operators are slower."""
    ranks = GlooJob(host=host)
    for step in range(8):
        ranks.step(3 + step)
        wobble = 1 + 0.01 * (step % 3)
        for name, ms in (("aten::mm", 16.0), ("aten::add", 8.0), ("aten::copy_", 4.0)):
            ranks.compute(ms * times * wobble, name=name, rank=0, calls=8)
            ranks.compute(ms, name=name, rank=1, calls=8)
        if own_ms:
            ranks.compute(own_ms, name="aten::pow", rank=1, calls=85)
        ranks.all_reduce(4.0)
    return analysed(ranks.write(path))


def test_a_rank_that_is_slower_beside_the_other_s_own_work_is_no_second_straggler(tmp_path: Path) -> None:
    """*Then rank 0 is the latest, and mending both brings 17.3 ms*, and *rank 0, slower compute: 5.2 ms (1.7 to 8.7)*,
    of a rank of which nothing was wrong: rank 1 computed norms, for 20.5 ms (18.1 to 25.1), of which 12.1 were told.
    """
    run = job(tmp_path, 20.0, 1.3)
    assert [one.code for one in run.findings if one.rank is not None] == ["own_work"]
    (own,) = (one for one in run.findings if one.code == "own_work")
    assert own.rank == 1 and own.also_late is None
    assert own.ms is not None and own.low_ms is not None and own.high_ms is not None
    assert own.low_ms < 11.6 + 1.0 < own.ms < own.high_ms and own.high_ms >= 19.0
    assert "rank 0" not in run_verdict(run).headline


@pytest.mark.parametrize(
    ("own_ms", "times", "host"), [(0.0, 1.3, "node0"), (20.0, 2.2, "node0"), (3.0, 1.3, "node0"), (20.0, 1.3, "")]
)
def test_a_rank_that_is_slower_by_more_than_the_other_s_work_takes_or_may_be_elsewhere_is_so_by_itself(
    tmp_path: Path, own_ms: float, times: float, host: str
) -> None:
    run = job(tmp_path, own_ms, times, host)
    assert any((one.code, one.rank) == ("slower_compute", 0) for one in run.findings)


@pytest.mark.parametrize("host", ["node0", ""])
def test_what_a_rank_computes_besides_may_get_slower_once_the_others_no_longer_wait_for_it(
    tmp_path: Path, host: str
) -> None:
    """*213.3 ms (202.7 to 223.9)* was told of a histogram of every parameter, and 185 to 191 ms came back by turns: on
    one host the rank has memory and caches for itself while the other one waits, and no launch shows by how much.
    """
    run = job(tmp_path, 60.0, 1.0, host)
    (own,) = (one for one in run.findings if one.code == "own_work")
    assert own.ms == pytest.approx(60.0, rel=0.05)
    assert own.ms is not None and own.low_ms is not None and own.high_ms is not None
    below, above = own.ms - own.low_ms, own.high_ms - own.ms
    slower = 0.2 * 28.0  # of what rank 1 computes beside its own work
    assert below == pytest.approx(math.hypot(above, slower) if host else above, rel=0.05), "nobody gets faster"
