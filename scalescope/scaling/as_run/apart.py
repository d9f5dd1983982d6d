"""Whether the step as run may be the traced one without what recording cost: else it is not told.

All that recording costs a rank a step is what was recorded there, times what that may plausibly cost. A replay whose
step, or whose ranks' compute, differs from the traced one by more is not the traced job without its profiler: what it
waits for is not what the job waited for, or its few steps are none like the window's others.
"""

import statistics
from collections.abc import Mapping

import numpy as np

from scalescope.scaling.as_run.calibrate import ON_DEVICES, Reason
from scalescope.scaling.as_run.recording import RecordingTerms
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.rank.partition import Partition
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.replay.host_cost import HostCost
from scalescope.scaling.replay.whatif.replayer import Replayer
from scalescope.scaling.trace.intervals import covered_before

#: Of a step: what a replay's may be off by for other reasons, such as its first step's.
_OFF = 0.05


def is_apart(
    replayer: Replayer,
    cost: HostCost,
    terms: RecordingTerms,
    parts: Mapping[int, Partition],
    untraced_ms: Interval | None,
    reason: Reason | None,
) -> bool:
    """Tell whether a step as run, whose parts these are, differs from the traced one by more than recording explains.

    `replayer`: that speaks of the step as run. A step that is the untraced one, which is told, has its length from
    there; `reason`: why it is not. One that is longer than all of the window's steps contradicts those, and so it is
    told.
    """
    most = max(_most_ns(record, cost, terms, at) for at, record in _places(replayer.records))
    step = replayer.base_ns
    slack = most + (ON_DEVICES + _OFF) * step
    if any(
        _computes_more(replayer, one, parts[rank], slack) for rank, one in replayer.records.items() if rank in parts
    ):
        return True
    windows = [one.mean_step_ns for one in replayer.records.values()]
    if untraced_ms is not None and (
        reason != "untraced_longer" or 1e6 * untraced_ms.low > max(windows) * (1 + ON_DEVICES)
    ):
        return False
    traced = (replayer.replay.traced_ms * 1e6, statistics.fmean(windows))
    return any(abs(one - step) > slack for one in traced if one)


def _places(records: Mapping[int, RankRecord]) -> list[tuple[tuple[int, int, int], RankRecord]]:
    """Return each rank with its number and where its activities lie among those of all."""
    found, begin = [], 0
    for rank in sorted(records):
        end = begin + len(records[rank].start)
        found.append(((rank, begin, end), records[rank]))
        begin = end
    return found


def _most_ns(record: RankRecord, cost: HostCost, terms: RecordingTerms, at: tuple[int, int, int]) -> float:
    """Return what recording costs a rank's host a step at most."""
    rank, begin, end = at
    own = cost.calls[rank]
    modelled = float(own.before.sum() + own.during.sum())
    modelled += float(cost.inside[begin:end].sum()) if cost.inside.size else 0.0
    known = float(own.before_known.sum() + own.during_known.sum())
    # what is known may be of one step alone, and the mean is over those that a next one bounds
    return terms.high * modelled / max(1, len(record.steps)) + known / max(1, len(record.steps) - 1)


def _computes_more(replayer: Replayer, record: RankRecord, part: Partition, slack: float) -> bool:
    """Tell whether a rank computes for longer a step than it did in the trace."""
    count = max(1, len(record.steps) - 1)  # a next one bounds them
    edges = np.array([record.edges[0], record.edges[count]], np.int64)
    left, right = covered_before(record.layers.compute, edges).tolist()
    traced = (right - left) / count
    most: float = traced * replayer.slower_devices * (1 + replayer.contention.inflation_high) + slack
    return part.compute / count > most
