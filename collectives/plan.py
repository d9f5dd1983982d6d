"""From the sweep's axes to its planned points, in the order they are measured. Torch-free.

A point is one combination of the axes, and ends as exactly one row of sweep.jsonl.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import combinations, groupby, product
from typing import Any

from scalescope.collectives.config import SweepConfig
from scalescope.collectives.dtypes import DTYPES, NO_DTYPE
from scalescope.collectives.operations import OPERATIONS
from scalescope.collectives.sizes import parse_sizes
from scalescope.records.rows import SweepRow


@dataclass(frozen=True)
class PlannedPoint:
    """One planned measurement. `bytes` is S as it will run: cut to whole elements and, where needed, to n chunks."""

    operation: str
    bytes: int
    dtype: str
    ranks: tuple[int, ...]  # the group, as ranks of the job
    reduction: str | None
    mode: str
    execution: str
    transport: str
    root: int | None
    placement: str | None
    algorithm: str | None = None  # that the library is told to use; None leaves it to the library
    protocol: str | None = None
    channels: int | None = None
    cta_policy: str | None = None
    contention: str | None = None  # what runs on the device meanwhile

    @property
    def group_size(self) -> int:
        return len(self.ranks)

    @property
    def series(self) -> tuple[object, ...]:
        """What points have in common that differ in size alone."""
        return (self.operation, self.dtype, self.reduction, self.mode, self.execution, self.contention)

    def row(self, **measured: Any) -> SweepRow:
        """Return this point's row with what was measured, or with its status and reason."""
        axes = {name: getattr(self, name) for name in _AXES}
        return SweepRow(**{**axes, "ranks": list(self.ranks)}, group_size=self.group_size, **measured)

    @classmethod
    def of(cls, row: SweepRow) -> "PlannedPoint":
        """Return the point that a row answers."""
        return cls(**{**{name: getattr(row, name) for name in _AXES}, "ranks": tuple(row.ranks)})

    def __str__(self) -> str:
        return f"{self.operation} of {self.bytes} B {self.dtype}, {self.mode}, over ranks {list(self.ranks)}"


_AXES = tuple(field.name for field in fields(PlannedPoint))  # a row has them all, by the same names


@dataclass(frozen=True)
class Group:
    """Points that share a communicator: the same ranks, reached the same way."""

    index: int  # the order of its turn, the same on every rank
    ranks: tuple[int, ...]
    transport: str
    algorithm: str | None
    protocol: str | None
    channels: int | None
    cta_policy: str | None
    points: tuple[PlannedPoint, ...]
    first: int  # the number of its first point in the plan


def plan(config: SweepConfig, hosts: Sequence[str], device: str) -> list[PlannedPoint]:
    """Return the planned points for a job whose rank r is on hosts[r]; `device` is cpu or cuda.

    Sizes that come to the same S for an operation (8 B cannot be cut in four float32 chunks) are one point.
    """
    auto = config.auto_sizes.cpu if device == "cpu" else config.auto_sizes.gpu
    sizes = parse_sizes(auto if config.sizes == "auto" else config.sizes)
    points: dict[PlannedPoint, None] = {}
    communicators = product(
        _groups(config, hosts),
        _or_none(config.algorithm),
        _or_none(config.protocol),
        _or_none(config.channels),
        _or_none(config.cta_policy),
        as_list(config.transport),
    )
    for (placement, ranks), algorithm, protocol, channels, cta_policy, transport in communicators:
        ways = product(config.operations, as_list(config.execution), _or_none(config.contention))
        for name, execution, contention in ways:
            operation = OPERATIONS[name]
            modes = [OPERATIONS[name].mode_of_training(transport)] if config.modes == "auto" else as_list(config.modes)
            reductions: list[str | None] = list(config.reductions) if operation.facts.reduces else [None]
            dtypes = config.dtypes if operation.moves_data else [NO_DTYPE]
            for mode, dtype, reduction in product(modes, dtypes, reductions):
                for size in sizes if operation.moves_data else [0]:
                    point = PlannedPoint(
                        operation=name,
                        bytes=_carried(name, size, dtype, len(ranks)),
                        dtype=dtype,
                        ranks=ranks,
                        reduction=reduction,
                        mode=mode if operation.moves_data else "in_place",
                        execution=execution,
                        transport=transport,
                        root=0 if operation.facts.rooted else None,
                        placement=placement,
                        algorithm=algorithm,
                        protocol=protocol,
                        channels=None if channels is None else int(channels),
                        cta_policy=cta_policy,
                        contention=contention,
                    )
                    points[point] = None
    return list(points)


def by_group(points: Sequence[PlannedPoint]) -> Iterator[Group]:
    """Yield the points a communicator at a time, in their order."""
    runs = groupby(points, key=_communicator)
    first = 0
    for index, (own, members) in enumerate(runs):
        group = Group(index, *own, tuple(members), first)
        first += len(group.points)
        yield group


def _communicator(
    point: PlannedPoint,
) -> tuple[tuple[int, ...], str, str | None, str | None, int | None, str | None]:
    """Return what points of one communicator have in common, in the order of a group's fields."""
    return (point.ranks, point.transport, point.algorithm, point.protocol, point.channels, point.cta_policy)


def group_sizes(config: SweepConfig, world_size: int) -> list[int]:
    """Return the group sizes, ascending: `all` is the powers of two and the whole world. One rank is no group."""
    if config.group_sizes == "all":
        sizes = {2**power for power in range(1, world_size.bit_length()) if 2**power <= world_size} | {world_size}
    else:
        sizes = {int(size) for size in as_list(config.group_sizes)}
    return sorted(size for size in sizes if size > 1)


def placed(size: int, hosts: Sequence[str], placement: str) -> tuple[int, ...]:
    """Return the ranks of a group: `packed` fills one host after another, `spread` goes round the hosts."""
    if placement == "packed":
        return tuple(range(size))
    queues = {host: [rank for rank, at in enumerate(hosts) if at == host] for host in dict.fromkeys(hosts)}
    taken: list[int] = []
    while len(taken) < size:
        for ranks in queues.values():
            if ranks and len(taken) < size:
                taken.append(ranks.pop(0))
    return tuple(sorted(taken))


def as_list(value: object) -> list[Any]:
    """Return a config value that may be one or several as several."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _or_none(value: object) -> list[str | None]:
    """Return the values of an axis that may be left alone."""
    return [None] if value is None else [None if each in ("none", None) else str(each) for each in as_list(value)]


def _groups(config: SweepConfig, hosts: Sequence[str]) -> list[tuple[str | None, tuple[int, ...]]]:
    """Return (placement, ranks) of every group; packed and spread differ only where there are several hosts."""
    several = len(set(hosts)) > 1
    asked: list[str] = as_list(config.placement)
    placements = [each for each in asked if each != "pairs"]
    if not several:
        placements = placements[:1]
    found: dict[tuple[int, ...], str | None] = {}
    for size, placement in product(group_sizes(config, len(hosts)), placements):
        found.setdefault(placed(size, hosts, placement), placement if several else None)
    groups = [(placement, ranks) for ranks, placement in found.items()]
    if "pairs" in asked:
        groups += [("pairs", pair) for pair in combinations(range(len(hosts)), 2)]
    return groups


def _carried(name: str, size: int, dtype: str, group_size: int) -> int:
    operation = OPERATIONS[name]
    if not operation.moves_data:
        return 0
    itemsize = DTYPES[dtype].itemsize
    chunk = operation.chunk_elements(size, itemsize, group_size)
    return operation.total_elements(chunk, group_size) * itemsize
