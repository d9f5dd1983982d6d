"""Between nodes that no sweep spanned: what the user's figures of the network allow. Always marked as assumed.

The library works in two levels: inside a node over its links, as measured, and between nodes over the NICs, each of
which carries its share. Per node of g GPUs with k NICs of B bytes/s, m nodes, latency L:

    all_reduce                       2·log₂(m)·L + 2·((m−1)/m)·S / (k·B)          (a tree, or a ring's bandwidth)
    all_gather, reduce_scatter       (m−1)·L + ((m−1)/m)·S / (k·B)
    all_to_all, gather, scatter      (m−1)·L + ((n−g)/n)·S·g / (k·B)              (each GPU's own buffer leaves)
    broadcast, reduce                log₂(m)·L + S / (k·B)

How far the two levels overlap is the library's affair. At best they run at once and the longer one counts, at worst one
after the other: these are the ends of the interval, and the value is their middle.
"""

import math

import msgspec

from scalescope.records.operations import OPERATION_FACTS
from scalescope.scaling.costs.interval import Interval


class Topology(msgspec.Struct, frozen=True):
    """What the user says of the machine beyond what was measured."""

    gpus_per_node: int
    nic_gb_s: float | None = None  # one NIC, one direction, GB/s (10^9 bytes)
    nic_latency_us: float = 0.0  # one message between nodes
    nics_per_node: int | None = None  # None: one a GPU

    def describe(self) -> str:
        """Return the assumption in words."""
        if self.nic_gb_s is None:
            return f"{self.gpus_per_node} GPUs a node"
        nics = self.nics_per_node or self.gpus_per_node
        return (
            f"nodes of {self.gpus_per_node} GPUs, joined by {nics} NIC{'' if nics == 1 else 's'} each of "
            f"{self.nic_gb_s:g} GB/s and {self.nic_latency_us:g} µs"
        )

    def between(self, operation: str, size: int, group_size: int, inside: Interval) -> Interval:
        """Return what a collective over several nodes takes in µs, given what it takes inside one."""
        assert self.nic_gb_s is not None
        g, n = self.gpus_per_node, group_size
        m = math.ceil(n / g)
        bytes_per_us = (self.nics_per_node or g) * self.nic_gb_s * 1e3
        facts = OPERATION_FACTS[operation]
        messages: float
        share: float
        if facts.pairwise:
            messages, share = 1, 1
        elif facts.personalised:
            messages, share = m - 1, (n - g) / n * g
        elif facts.sharded:
            messages, share = m - 1, (m - 1) / m
        elif facts.rooted:
            messages, share = math.log2(m), 1
        else:
            messages, share = 2 * math.log2(m), 2 * (m - 1) / m
        latency, moving = messages * self.nic_latency_us, share * size / bytes_per_us
        low = max(inside.low, moving) + latency
        high = inside.high + moving + latency
        return Interval((max(inside.value, moving) + inside.value + moving) / 2 + latency, low, high)
