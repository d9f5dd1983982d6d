"""One collective as one rank saw it, described by all that a trace says about it and its group."""

import re
from collections.abc import Iterable

import msgspec

from scalescope.records.dtypes import canonical_dtype, element_bytes
from scalescope.records.operations import PAIRWISE
from scalescope.scaling.rank.roles import Role, role_of
from scalescope.scaling.trace.trace import CommunicationArgs, Trace

#: On a shared machine a host may be held up between sending and the record of it: for some slices of its scheduler, of
#: which one took 5.5 ms. So much later than its data have arrived a send may begin, by its record.
SEND_HELD_UP_NS = 20_000_000


class Members(tuple[int, ...]):
    """The ranks of a group, maybe a thousand: a tuple whose hash is worked out once, not for each collective anew."""

    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = super().__hash__()
            return self._hash


def share_members(by_rank: Iterable[Iterable["RankCollective"]]) -> None:
    """Let all ranks' collectives of a group have one and the same object for its ranks: to compare two is to look."""
    shared: dict[tuple[int, ...], Members] = {}
    for collectives in by_rank:
        last: tuple[int, ...] | None = None  # most are of the group of the one before, and are not hashed again
        for one in collectives:
            if one.group_ranks is not last:
                last = one.group_ranks
                members = shared.get(last) or shared.setdefault(last, Members(last))
            one.group_ranks = members


class ListedGroup(msgspec.Struct, frozen=True):
    """A process group that a rank is in, as its trace's header lists them, in the order in which they were made."""

    name: str
    ranks: tuple[int, ...]  # global
    role: Role | None


class RankCollective(msgspec.Struct, kw_only=True, gc=False):
    """One collective as one rank saw it. Times are absolute ns; None where the trace is silent."""

    start: int
    end: int
    operation: str | None = None
    elements: int | None = (
        None  # of the larger of the send and the receive buffer; of a sparse tensor its dense shape's
    )
    bytes: int | None = None
    sparse: bool = False  # it carries a sparse tensor: how many bytes is not in the trace
    sent: int | None = None  # bytes, where what goes and what comes are told apart
    received: int | None = None
    dtype: str | None = None
    group: str | None = None
    group_ranks: tuple[int, ...] = ()
    group_size: int | None = None
    sequence: int | None = None
    root: int | None = None
    source: int | None = None
    destination: int | None = None
    goes: bool | None = None  # of a send or receive that names no partner: whether this rank sends
    of_backward: bool | None = None  # of such a one: what it sends comes out of a backward pass, or goes into one
    stream: int = -1
    step: int | None = None
    role: Role | None = None  # of its group, see roles.py
    by_copies: bool = False  # on copy engines: when its partners were there is not in the trace
    over_windows: bool = False  # by a kernel for symmetric windows

    @property
    def label(self) -> str:
        """Return its kind in words: `all_reduce float32`."""
        return " ".join(filter(None, (self.operation or "collective", self.dtype)))


def describe(args: CommunicationArgs | None, groups: "GroupNames") -> RankCollective:
    """Return a collective with all that its arguments say; times are for the caller to fill in."""
    collective = RankCollective(start=0, end=0)
    if args is None:
        return collective
    counts = [count for count in (args.in_elements, args.out_elements) if count is not None]
    collective.operation = args.operation
    collective.elements = max(counts) if counts else None
    collective.dtype = canonical_dtype(args.dtype) if args.dtype else None
    size = element_bytes(args.dtype) if args.dtype else None
    collective.sparse = bool(args.sparse)
    if collective.sparse:
        size = None  # how many rows of the dense shape travel is not in the trace
    if collective.elements is not None and size is not None:
        collective.bytes = collective.elements * size
    if args.both_counts and size is not None:
        collective.sent, collective.received = (args.in_elements or 0) * size, (args.out_elements or 0) * size
    collective.group = args.group
    collective.group_ranks = groups.ranks_of(args)
    collective.role = groups.role_of(args)
    collective.group_size = args.group_size or len(collective.group_ranks) or None
    collective.sequence = args.sequence
    collective.root = args.root
    collective.source = args.source
    collective.destination = args.destination
    return collective


def name_both_ends(one: RankCollective, rank: int) -> None:
    """Complete a send or receive, whose operator names the partner only, with this rank's own place in the group."""
    if one.operation in PAIRWISE and (one.source, one.destination) != (None, None) and rank in one.group_ranks:
        own = one.group_ranks.index(rank)
        one.source = own if one.source is None else one.source
        one.destination = own if one.destination is None else one.destination


#: The group of collectives in a trace that names none: torch before 2.3 does not say which there are.
ASSUMED_GROUP = "all ranks (assumed)"


def listed_groups(trace: Trace) -> tuple[ListedGroup, ...]:
    """Return the groups that a trace's header lists with their ranks."""
    return tuple(
        ListedGroup(str(group.pg_name), tuple(group.ranks), role_of(group.pg_desc))
        for group in trace.header.distributed.pg_config
        if group.ranks
    )


class GroupNames:
    """Completes what collectives say about their group from the header and from their neighbours on the stream."""

    def __init__(self, trace: Trace) -> None:
        info = trace.header.distributed
        self._ranks = {str(group.pg_name): tuple(group.ranks) for group in info.pg_config}
        self._roles = {str(group.pg_name): role_of(group.pg_desc) for group in info.pg_config}
        self._world = max(info.world_size, 0)
        # where all groups hold the same ranks, it does not matter for matching which of them an unnamed one belongs to
        wide = [name for name, ranks in self._ranks.items() if len(ranks) > 1] or list(self._ranks)
        self._alike = wide if len({self._ranks[name] for name in wide}) == 1 else []

    def ranks_of(self, args: CommunicationArgs) -> tuple[int, ...]:
        """Return the global ranks of the group; empty where neither the arguments nor the header list them whole."""
        if args.group_ranks and "..." not in args.group_ranks:
            ranks = tuple(int(number) for number in re.findall(r"\d+", args.group_ranks))
            if ranks:
                return ranks
        return self._ranks.get(args.group or "", ())

    def role_of(self, args: CommunicationArgs) -> Role | None:
        """Return what the group is for, as its description says; None where none does."""
        return role_of(args.group_description) or self._roles.get(args.group or "")

    def complete(self, collectives: list[RankCollective], by_stream: bool = True) -> None:
        """Give collectives without a group the one that all others on their stream have, else the only one there is.

        torch runs each group on a stream of its own, so kernels without metadata, launched before the window, belong
        to the group whose later kernels stand on the same stream. Not so on a CPU (`by_stream` False), where all groups
        share the threads.
        """
        on_stream: dict[int, set[tuple[str, tuple[int, ...], int | None, Role | None]]] = {}
        for one in collectives:
            if one.group is not None:
                on_stream.setdefault(one.stream, set()).add((one.group, one.group_ranks, one.group_size, one.role))
        if self._may_assume(collectives, by_stream):
            for one in collectives:
                one.group, one.group_ranks, one.group_size = ASSUMED_GROUP, tuple(range(self._world)), self._world
            return
        for one in collectives:
            if one.group is not None:
                continue
            candidates = on_stream.get(one.stream, set())
            if len(candidates) == 1:
                one.group, one.group_ranks, one.group_size, one.role = next(iter(candidates))
            elif self._alike and not candidates:
                one.group = self._likely(one.operation)
                one.group_ranks = self._ranks[one.group]
                one.role = self._roles.get(one.group)
                one.group_size = len(one.group_ranks) or self._world or None

    def _likely(self, operation: str | None) -> str:
        """Return which of groups of the same ranks an operation belongs to: sends are a pipeline's, if one is there.

        All else belongs to a group of the one other role; where there is none, or several, to the first.
        """
        pipelines = [name for name in self._alike if self._roles.get(name) == "pp"]
        others = [name for name in self._alike if name not in pipelines]
        if operation in PAIRWISE and pipelines:
            return pipelines[0]
        told = [name for name in others if self._roles.get(name) is not None]
        return told[0] if len({self._roles[name] for name in told}) == 1 else (others or self._alike)[0]

    def _may_assume(self, collectives: list[RankCollective], by_stream: bool) -> bool:
        """Tell whether all collectives can be taken as those of all ranks: none names a group, one stream runs all."""
        if self._ranks or self._world < 2 or any(one.group is not None for one in collectives):
            return False
        if any(one.group_size not in (None, self._world) for one in collectives):
            return False
        return not by_stream or len({one.stream for one in collectives}) == 1
