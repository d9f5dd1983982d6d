"""The cost model of a machine: what any collective takes, from all that its sweeps measured.

Groups that one host holds and groups that span hosts are fitted by themselves: they use other links. Where no sweep
spanned hosts nothing is guessed about groups that do: it refuses, unless the user gives the network's figures
(scalescope/scaling/costs/topology.py).
"""

from collections.abc import Sequence
from functools import cached_property

import msgspec

from scalescope.scaling.costs.fit import Fit, fit
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.costs.points import Launch, is_plain, plain_points, spans_hosts
from scalescope.scaling.costs.terms import KNOWN
from scalescope.scaling.costs.topology import Topology

#: A size that is off by no more stands for another one, where only one was measured.
_ALIKE = 0.02


class NotKnown(Exception):
    """What the measurements cannot tell. The message says why, and what to measure or give."""


class Cost(msgspec.Struct, frozen=True):
    """What a collective takes, and what had to be assumed beyond the measurements to say so."""

    time_us: Interval
    assumed: tuple[str, ...] = ()


class CostModel:
    """What a collective takes on the machine that the launches were measured on."""

    def __init__(self, launches: Sequence[Launch], topology: Topology | None = None) -> None:
        """Take launches of one machine. Raises NotKnown where there are none, or of different devices."""
        if not any(launch.rows for launch in launches):
            raise NotKnown("there is no sweep; measure one on the same devices: scalescope sweep")
        devices = sorted({launch.device for launch in launches if launch.device is not None})
        if len(devices) > 1:
            raise NotKnown(f"the sweeps are of different devices ({', '.join(devices)}); give those of one")
        self.device = devices[0] if devices else None
        self.topology = topology
        self._launches = list(launches)
        self._fits: dict[tuple[str, str, bool], Fit] = {}

    @cached_property
    def measured(self) -> list[tuple[str, str, bool]]:
        """What can be fitted, in the order of the sweeps: (operation, dtype, whether the groups span hosts)."""
        return list(
            dict.fromkeys(
                (row.operation, row.dtype, spans_hosts(launch, row.group_size))
                for launch in self._launches
                for row in launch.rows
                if is_plain(row) and row.bytes > 0 and row.operation in KNOWN
            )
        )

    @cached_property
    def largest_group(self) -> int:
        """The largest group within one host that a sweep measured, of any operation."""
        return max(
            (
                row.group_size
                for launch in self._launches
                for row in launch.rows
                if is_plain(row) and not spans_hosts(launch, row.group_size)
            ),
            default=1,
        )

    @cached_property
    def ranks_per_host(self) -> int:
        """How many ranks of one host the links are known among: by the sweeps, or by the user's word."""
        reported = [launch.ranks_per_host for launch in self._launches if launch.ranks_per_host]
        known = max(reported) if reported else self.largest_group
        return max(known, self.topology.gpus_per_node) if self.topology is not None else known

    def fit_of(self, operation: str, dtype: str, across_hosts: bool = False) -> Fit:
        """Return the fit of one operation and dtype, for groups that one host holds or that none does.

        Raises NotKnown where no sweep has it.
        """
        key = (operation, dtype, across_hosts)
        if key not in self._fits:
            if key not in self.measured:
                where = " across hosts" if across_hosts else ""
                raise NotKnown(
                    f"no sweep has {operation} {dtype}{where}; measure it: scalescope sweep operations=[{operation}] "
                    f"dtypes=[{dtype}]"
                )
            self._fits[key] = fit(
                operation, dtype, plain_points(self._launches, operation, dtype, across_hosts=across_hosts)
            )
        return self._fits[key]

    def time_us(self, operation: str, size: int, dtype: str, group_size: int) -> Interval:
        """Return what a collective of `size` bytes takes among `group_size` ranks, in µs. Raises NotKnown."""
        return self.cost(operation, size, dtype, group_size).time_us

    def cost(self, operation: str, size: int, dtype: str, group_size: int) -> Cost:
        """Return what a collective takes and what is assumed for it. Raises NotKnown.

        A dtype that was not measured costs what another of as many bytes does; a group beyond one host asks for a
        sweep that spanned hosts, or for the network's figures.
        """
        if group_size < 2:
            return Cost(Interval(0.0, 0.0, 0.0))
        across = group_size > self.ranks_per_host
        spanned = any(known == operation and over for known, _, over in self.measured)
        if across and not spanned:
            return self._beyond(operation, size, dtype, group_size)
        dtype, assumed = self._known_dtype(operation, dtype, across)
        if not across and group_size > self.largest_group:
            assumed.append(f"{group_size} ranks share one host, linked as the {self.largest_group} measured are")
        fitted = self.fit_of(operation, dtype, across)
        smallest, largest = fitted.sizes
        if smallest == largest and abs(size - largest) > _ALIKE * largest:
            raise NotKnown(
                f"the sweep has {operation} {dtype} of {largest} B alone, which says nothing of {size} B; "
                "sweep more sizes"
            )
        return Cost(fitted.time_us(size, group_size), tuple(assumed))

    def _known_dtype(self, operation: str, dtype: str, across: bool) -> tuple[str, list[str]]:
        """Return the dtype whose fit stands for this one, and what that assumes. Raises NotKnown without any."""
        if (operation, dtype, across) in self.measured:
            return dtype, []
        others = [other for known, other, over in self.measured if known == operation and over == across]
        if not others:
            self.fit_of(operation, dtype, across)  # says what is missing
        return others[0], [f"{operation} of {dtype} takes what as many bytes of {others[0]} do"]

    def _beyond(self, operation: str, size: int, dtype: str, group_size: int) -> Cost:
        """Return what a collective takes across hosts that no sweep spanned, by the user's figures."""
        if self.topology is None or self.topology.nic_gb_s is None:
            raise NotKnown(
                f"the links of no more than {self.ranks_per_host} ranks were measured: if one node "
                "holds them all, say so with --gpus-per-node; else give the network's figures with --gpus-per-node, "
                "--nic-gb-s and --nic-latency-us, or sweep over that many"
            )
        inside = self.cost(operation, size, dtype, self.topology.gpus_per_node)
        between = self.topology.between(operation, size, group_size, inside.time_us)
        return Cost(between, (*inside.assumed, self.topology.describe()))
