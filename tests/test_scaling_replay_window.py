"""Where the window cuts into a step, a replay begins what it cannot explain when the trace did."""

from pathlib import Path
from typing import Any

import pytest

from scalescope.scaling.replay.load import read_records
from scalescope.scaling.replay.whatif.replayer import Replayer
from tests.synthetic import OPERATIONS, Activity, Job, trace_of, write

MS = 1_000_000
STEPS, STEP, PRODUCT, TRANSFER = 3, 12 * MS, 10 * MS, 2 * MS  # ns


def rank_of_a_cut_window(rank: int) -> dict[str, Any]:
    """Return a rank's trace whose device is still at a step before the window: a product, and half of it beside
    an all-reduce that waited for a kernel launched before the trace began."""
    record: dict[str, Any] = {
        "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float",
        "Group size": 2, "Process Group Name": "g0", "Process Group Ranks": "[0, 1]", "Rank": rank,
    }  # fmt: skip
    member = {key: value for key, value in record.items() if key != "Rank"}
    late = (6 + rank) * MS  # of the other rank it is hidden less
    activities = [
        Activity("product", "kernel", 20_000, PRODUCT, 7, 5_000, 101, {}),
        Activity(OPERATIONS["allreduce"], "kernel", late, 11 * MS, 20, 10_000, 102, member, record),
    ]
    for step in range(STEPS):
        begin, launch = PRODUCT + 20_000 + step * STEP, MS + step * STEP + 5_000
        end = begin + PRODUCT
        activities += [
            Activity("product", "kernel", begin, end, 7, launch, 101, {}),
            Activity(OPERATIONS["allreduce"], "kernel", end, end + TRANSFER - 20_000, 20, launch + 10_000, 102, member,
                     record),
        ]  # fmt: skip
    return trace_of(rank, Job(2, [(0, 1)], STEPS, 1, 0, 0), activities, STEP)


def test_a_collective_that_waited_for_what_the_window_left_out_does_not_move_the_first_step(tmp_path: Path) -> None:
    replayer = Replayer(read_records(write({rank: rank_of_a_cut_window(rank) for rank in (0, 1)}, tmp_path / "traces")))
    assert replayer.contention.inflation > 0, "overlap that is not as traced costs something"
    for rank, edges in replayer.graph.edges.items():
        assert replayer.base[rank][0] == pytest.approx(edges[1] - edges[0], abs=1_000), "ns"
