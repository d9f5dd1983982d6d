"""How fast a group's links let a collective be: the ceiling beside each figure, and what it assumes."""

from collections.abc import Sequence

from scalescope.collectives.operations import OPERATIONS
from scalescope.collectives.plan import PlannedPoint
from scalescope.hardware.link_ceiling import (
    Pairs,
    edge_ceiling_gb_s,
    edges_ceiling_gb_s,
    link_ceiling_gb_s,
    pairs_ceiling_gb_s,
)
from scalescope.hardware.peaks import find_peak
from scalescope.records.rows import Device


def ceiling_of(point: PlannedPoint, devices: Sequence[Device]) -> tuple[float | None, str | None]:
    """Return (busbw ceiling in GB/s, what it assumes); (None, why) where nothing is known about the links.

    By the links that the driver tells pair by pair where it does, else by the board's data sheet.
    """
    operation = OPERATIONS[point.operation]
    if not operation.moves_data:
        return None, None
    members = [devices[rank] for rank in point.ranks]
    if len({device.host for device in members}) > 1:
        return None, "between hosts: the network's speed is not known"
    if len({device.name for device in members}) > 1:
        return None, "different devices in one group"
    pairwise = operation.facts.pairwise
    pairs = _pairs(members)
    by_pairs = edges_ceiling_gb_s(pairs) if pairwise else pairs_ceiling_gb_s(pairs)
    if by_pairs is not None:
        return by_pairs
    peak = find_peak(members[0].name)
    if peak is None:
        return None, f"no link speed on record for {members[0].name}"
    edge = edge_ceiling_gb_s(peak) if pairwise and peak.topology == "mesh" else None
    known = edge or link_ceiling_gb_s(peak, point.group_size)
    return known or (None, f"no link speed on record for {peak.device}")


def _pairs(members: Sequence[Device]) -> Pairs:
    """Return what each member sends to each other one that it is linked with, by the other's place in the group."""
    places = {device.address: place for place, device in enumerate(members)}
    return [
        {places[address]: speed for address, speed in device.peer_gb_s.items() if address in places}
        for device in members
    ]
