"""How fast a group's links let a collective be: the ceiling beside each figure, and what it assumes."""

from collections.abc import Sequence

from scalescope.collectives.operations import OPERATIONS
from scalescope.collectives.plan import PlannedPoint
from scalescope.hardware.peaks import find_peak, link_ceiling_gb_s
from scalescope.records.rows import Device


def ceiling_of(point: PlannedPoint, devices: Sequence[Device]) -> tuple[float | None, str | None]:
    """Return (busbw ceiling in GB/s, what it assumes); (None, why) where nothing is known about the links."""
    operation = OPERATIONS[point.operation]
    if not operation.moves_data:
        return None, None
    members = [devices[rank] for rank in point.ranks]
    if len({device.host for device in members}) > 1:
        return None, "between hosts: the network's speed is not known"
    if len({device.name for device in members}) > 1:
        return None, "different devices in one group"
    peak = find_peak(members[0].name)
    if peak is None:
        return None, f"no link speed on record for {members[0].name}"
    if peak.topology == "mesh" and operation.facts.pairwise and peak.pair_gb_s is not None:
        return peak.pair_gb_s, f"one edge of the full mesh, {peak.pair_gb_s:g} GB/s"
    return link_ceiling_gb_s(peak, point.group_size)
