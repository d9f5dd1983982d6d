"""The cost model of a machine: what any collective takes, from all that its sweeps measured.

Within what was measured (the ranks of one host, or of the hosts a sweep spanned) the fit answers. Between hosts that no
sweep spanned nothing is guessed: it refuses, unless the user gives the network's figures (scaling/costs/topology.py).
"""

from collections.abc import Sequence
from functools import cached_property

import msgspec

from scaling.costs.fit import Fit, fit
from scaling.costs.interval import Interval
from scaling.costs.points import Launch, is_plain, plain_points
from scaling.costs.terms import KNOWN
from scaling.costs.topology import Topology


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
        self._fits: dict[tuple[str, str], Fit] = {}

    @cached_property
    def measured(self) -> list[tuple[str, str]]:
        """The (operation, dtype) pairs that can be fitted, in the order of the sweeps."""
        rows = (row for launch in self._launches for row in launch.rows)
        return list(
            dict.fromkeys(
                (row.operation, row.dtype) for row in rows if is_plain(row) and row.bytes > 0 and row.operation in KNOWN
            )
        )

    @cached_property
    def largest_group(self) -> int:
        """The largest group that a sweep measured, of any operation."""
        return max((row.group_size for launch in self._launches for row in launch.rows if is_plain(row)), default=1)

    @cached_property
    def ranks_per_host(self) -> int:
        """How many ranks of one host the links are known among: by the sweeps, or by the user's word."""
        told = [launch.ranks_per_host for launch in self._launches if launch.ranks_per_host]
        known = max(told) if told else self.largest_group
        return max(known, self.topology.gpus_per_node) if self.topology is not None else known

    def fit_of(self, operation: str, dtype: str) -> Fit:
        """Return the fit of one operation and dtype. Raises NotKnown where no sweep has it."""
        key = (operation, dtype)
        if key not in self._fits:
            points = plain_points(self._launches, operation, dtype)
            if not points or operation not in KNOWN:
                raise NotKnown(
                    f"no sweep has {operation} {dtype}; measure it: scalescope sweep operations=[{operation}] "
                    f"dtypes=[{dtype}]"
                )
            self._fits[key] = fit(operation, dtype, points)
        return self._fits[key]

    def time_us(self, operation: str, size: int, dtype: str, group_size: int) -> Interval:
        """Return what a collective of `size` bytes takes among `group_size` ranks, in µs. Raises NotKnown."""
        return self.cost(operation, size, dtype, group_size).time_us

    def cost(self, operation: str, size: int, dtype: str, group_size: int) -> Cost:
        """Return what a collective takes and what is assumed for it. Raises NotKnown.

        A dtype that was not measured costs what another of as many bytes does; a group beyond one host asks for the
        network's figures.
        """
        if group_size < 2:
            return Cost(Interval(0.0, 0.0, 0.0))
        assumed = []
        if (operation, dtype) not in self.measured:
            others = [other for known, other in self.measured if known == operation]
            if not others:
                self.fit_of(operation, dtype)  # says what is missing
            assumed.append(f"{operation} of {dtype} takes what as many bytes of {others[0]} do")
            dtype = others[0]
        fitted = self.fit_of(operation, dtype)
        if group_size <= max(max(fitted.groups), self.ranks_per_host):
            if group_size > self.largest_group:
                assumed.append(f"{group_size} ranks share one host, linked as the {self.largest_group} measured are")
            return Cost(fitted.time_us(size, group_size), tuple(assumed))
        if self.topology is None or self.topology.nic_gb_s is None:
            raise NotKnown(
                f"{group_size} GPUs are more than the {max(max(fitted.groups), self.ranks_per_host)} whose links were "
                "measured: if one node holds them all, say so with --gpus-per-node; else give the network's figures "
                "with --gpus-per-node, --nic-gb-s and --nic-latency-us, or sweep over that many"
            )
        inside = fitted.time_us(size, min(self.topology.gpus_per_node, group_size))
        assumed.append(self.topology.describe())
        return Cost(self.topology.between(operation, size, group_size, inside), tuple(assumed))
