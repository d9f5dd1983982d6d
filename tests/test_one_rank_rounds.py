"""One rank's trace of two: many small exchanges are told as a bound, and that waits are not told apart from them."""

from pathlib import Path

import pytest

from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from tests.gloo_traces import GlooJob, analysed


def _alone(folder: Path, exchanges: int, numbers: int = 24) -> RunAnalysis:
    """Return rank 0's trace alone of steps with so many all-reduces of 2 ms, each behind 8 ms of compute."""
    made = GlooJob()
    for number in range(7):
        made.step(3 + number)
        for _ in range(exchanges):
            made.compute(8.0, "aten::conv2d")
            made.all_reduce(2.0, numbers=numbers)
        made.compute(6.0, "aten::conv2d")
        for rank in (0, 1):
            made.sleep(rank, 12.0)  # Python
    made.write(folder)
    for path in folder.iterdir():
        if "rank1" in path.name or "rank_1" in path.name:
            path.unlink()
    return analysed(folder)


def test_many_small_exchanges_lead_though_one_rank_does_not_tell_what_they_wait_for(tmp_path: Path) -> None:
    """*Launching costs at most 17.8 ms* led, of a step with 30.0 ms of exposed wait or transfer in 15 collectives of
    192 B: with both ranks' traces small collectives cost 26.8 ms.
    """
    answer = _alone(tmp_path, 14)
    assert [one.rank for one in answer.ranks] == [0] and answer.world_size == 2
    first = answer.findings[0]
    assert (first.code, first.at_most, first.low_ms) == ("small_collectives", True, 0.0)
    assert first.ms == pytest.approx(13 * 2.1, rel=0.1), "all rounds but one"
    assert "14 collectives a step, most of them all_reduce, of 96 B: waits for the other rank or rounds of" in because(
        first
    )
    assert run_verdict(answer).advice.startswith("give the other ranks' traces too: together they tell waits")


@pytest.mark.parametrize(("exchanges", "numbers"), [(4, 24), (14, 1 << 20)], ids=["few", "large"])
def test_few_or_large_exchanges_of_one_rank_are_most_likely_waits_or_data(
    tmp_path: Path, exchanges: int, numbers: int
) -> None:
    assert "small_collectives" not in {one.code for one in _alone(tmp_path, exchanges, numbers).findings}
