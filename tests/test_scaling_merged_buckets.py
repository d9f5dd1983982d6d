"""A bucket that is made of others takes no longer than those together, whatever sizes between tell of larger ones."""

from functools import partial
from pathlib import Path

import pytest

from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.replay.bursts import Bursts
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.load import read_records
from scalescope.scaling.replay.other_collectives import OtherCollectives
from scalescope.scaling.replay.whatif import Replayer

DATA = Path(__file__).parent / "data"


class OfOneSize:
    """What buckets of nearly one size tell: no latency, for all it is worth. Of 26 of 64 KiB some took 9 ms on gloo."""

    source = "one size"

    def time_us(self, operation: str, size: int, dtype: str | None, group_size: int) -> Interval | None:
        return Interval(3.0 * size, 2.0 * size, 4.0 * size)


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_merged_buckets_take_no_longer_than_their_parts_one_after_another(place: float) -> None:
    replayer = Replayer(read_records(DATA / "cpu_tiny_buckets_n2"))
    steps = replayer.buckets
    assert not isinstance(steps, str)
    graph = replayer.graph.copy()
    before = {step.step: sum(graph.transfers[at].work_ns for at in step.transfers) for step in steps}
    known = len(graph.transfers)
    bursts = partial(Bursts, graph, steps)
    assert OtherCollectives([], OfOneSize()).recut(graph, steps, Change(bucket_mib=200.0), place, bursts) is None
    for step in steps:
        merged = [one for one in graph.transfers[known:] if one.step == step.step]
        assert 0 < len(merged) < len(step.transfers)
        assert sum(one.work_ns for one in merged) <= before[step.step] * (1 + 1e-9)
