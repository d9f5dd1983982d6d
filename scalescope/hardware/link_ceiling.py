"""How fast the links of one node let a ring of devices be, by their topology or by the board's data sheet. Torch-free.

Every member of a ring sends 2(n − 1)/n of an all-reduce's bytes, so that its bus bandwidth is what the slowest member
can send to the other members at once. NVLS (reduction inside the switch) may exceed it: 2(n − 1)/(n + 1) × link.
"""

from collections.abc import Mapping, Sequence

from scalescope.hardware.peaks import Peak

#: What one device sends to each of its peers in GB/s, by the peer's number in the group.
Pairs = Sequence[Mapping[int, float]]


def link_ceiling_gb_s(peak: Peak, group_size: int) -> tuple[float, str] | None:
    """Return the bus bandwidth that a data sheet allows a ring over `group_size` devices, and what it assumes.

    Switch: every device has its whole link to any peer, whatever the group. Mesh: only the links to the group's own
    members carry, and a device has only so many; the group is taken to be of the devices that are linked best. None
    where the data sheet tells nothing (a partition).
    """
    if peak.link_gb_s is None:
        return None
    if peak.topology == "mesh":
        return _of_mesh(peak, peak.link_gb_s, group_size)
    if peak.topology == "switch":
        return peak.link_gb_s, f"ring through the switch, {peak.link_gb_s:g} GB/s a device"
    return peak.link_gb_s, f"PCIe, {peak.link_gb_s:g} GB/s a device"


def in_switch_ceiling_gb_s(peak: Peak, group_size: int) -> tuple[float, str] | None:
    """Return the bus bandwidth of an all-reduce that the switch adds up (NVLS), and what it assumes; None without one.

    Each device sends its buffer once and gets the sum once, n + 1 parts of S/n over its link instead of 2(n − 1).
    """
    if peak.link_gb_s is None or not peak.reduces_in_switch or group_size < 2:
        return None
    ceiling = 2 * (group_size - 1) / (group_size + 1) * peak.link_gb_s
    return (
        ceiling,
        f"reduced inside the switch (NVLS), 2 × {group_size - 1} ÷ {group_size + 1} × {peak.link_gb_s:g} GB/s",
    )


def edge_ceiling_gb_s(peak: Peak) -> tuple[float, str] | None:
    """Return what the best link between two devices of a mesh carries, and what that assumes; None as above."""
    if not peak.peers_gb_s:
        return None
    widest = peak.peers_gb_s[0]
    if len(set(peak.peers_gb_s)) == 1:
        return widest, f"one edge of the full mesh, {widest:g} GB/s"
    return widest, f"the widest link between two, {widest:g} GB/s"


def pairs_ceiling_gb_s(pairs: Pairs) -> tuple[float, str] | None:
    """Return the ceiling of a ring whose members' links are known pair by pair; None where one member has none told."""
    if not pairs or not all(pairs):
        return None
    sends = [sum(peers.values()) for peers in pairs]
    slowest = min(range(len(sends)), key=sends.__getitem__)
    parts = " + ".join(f"{speed:g}" for speed in sorted(pairs[slowest].values(), reverse=True))
    return sends[slowest], f"ring over the links that the driver tells, {parts} GB/s from member {slowest}"


def edges_ceiling_gb_s(pairs: Pairs) -> tuple[float, str] | None:
    """Return the ceiling where every member sends to the next one alone; None where a link is not told."""
    size = len(pairs)
    edges = [peers.get((member + 1) % size) for member, peers in enumerate(pairs)]
    known = [edge for edge in edges if edge is not None]
    if not edges or len(known) < size:
        return None
    return min(known), f"the narrowest link between neighbours that the driver tells, {min(known):g} GB/s"


def _of_mesh(peak: Peak, all_peers_gb_s: float, group_size: int) -> tuple[float, str]:
    used = peak.peers_gb_s[: group_size - 1]
    # MI250X: two devices are linked in three widths, and only the sum over all of them is on the data sheet
    ceiling = sum(used) if group_size - 1 <= len(used) else all_peers_gb_s
    if len(set(used)) == 1 and group_size - 1 <= len(used):
        return ceiling, f"full mesh, {group_size - 1} × {used[0]:g} GB/s"
    return ceiling, f"mesh, at most {ceiling:g} GB/s from a device to all its peers"
