"""Gradients that are reduced one by one, or nearly, where a trace without shapes tells no gradients to cut anew.

Sizes of all-reduces are told even so, and which of them could be one: those of which nothing that multiplies needs the
first before the last is handed over. Activations, which tensor parallelism reduces, the next layer's product needs. In
place of many all-reduces as many travel as DDP's own buckets of 25 MiB would be; each then carries what they carried.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from scalescope.records.operations import REDUCE_ON_ALL
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.bounds.bare_transfer import is_by_ddp
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Graph, median
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

_MIB = 1 << 20
#: DDP's own cap of a bucket, and of the first one, which is small so as to begin early.
_USUAL_MIB, _SMALL_BYTES = 25.0, _MIB
#: So many small ones a step may go with others at least; what is less than so much is a figure, and no gradient.
_FEWEST_SAVED, _FIGURES_BYTES = 8, 1 << 10


def many_buckets(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where gradients of a step travel in far more all-reduces than buckets of the usual size are."""
    replayer = scene.replayer
    if replayer.on_cpu or not scene.analysis.trains or scene.may_wait_unseen or not isinstance(replayer.buckets, str):
        return
    graph = replayer.graph
    steps = {graph.step_numbers[step] for step in scene.side.steps}
    alike: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
    for at, one in enumerate(graph.transfers):
        gradients = one.operation in REDUCE_ON_ALL and (one.bytes or 0) > _FIGURES_BYTES and len(one.members) > 1
        if one.step in graph.step_numbers and gradients:
            alike[one.step, tuple(sorted(one.members))].append(at)
    hosts = {rank: HostPlaces.of(graph, rank) for rank in graph.ranks}
    rows = [row for own in alike.values() for row in rows_of(graph, own, hosts)]
    chosen = [row for row in rows if graph.transfers[row[0]].step in steps]
    small = [sum((graph.transfers[at].bytes or 0) <= _SMALL_BYTES for at in row) for row in chosen]
    if sum(min(few, len(row) - 1) for few, row in zip(small, chosen, strict=True)) < _FEWEST_SAVED * len(steps):
        return
    held = [graph.transfers[at].bytes or 0 for row in chosen for at in row]
    by_ddp = is_by_ddp(replayer.records)
    yield Candidate(
        code="small_buckets",
        removals=(Removal("rounds", transfers=tuple(tuple(row) for row in rows if len(row) > 1)),),
        evidence=(
            EvidenceRow(kind="figure", name="all_reduces", calls=len(held) / len(steps)),
            EvidenceRow(kind="figure", name="median_bucket_mib", value=median([float(one) for one in held]) / _MIB),
            EvidenceRow(kind="figure", name="gradients_mib", value=sum(held) / len(steps) / _MIB),
        ),
        remedy=Remedy(
            cure="larger_buckets", overrides=scene.overrides(f"strategy.bucket_mib={_USUAL_MIB:g}"), size=_USUAL_MIB
        )
        if by_ddp
        else Remedy(cure="merge_tensors"),
    )


class HostPlaces(msgspec.Struct, frozen=True):
    """The places among a rank's calls at which things are launched, or waited for."""

    launched: Mapping[int, int]  # by activity
    needed: Mapping[int, int]  # by a collective's member: where what waits for it is launched, or its host waits
    multiplied: Sequence[int]

    @classmethod
    def of(cls, graph: Graph, rank: int) -> "HostPlaces":
        launched = {call.launches: at for at, call in enumerate(graph.calls[rank]) if call.launches >= 0}
        needed: dict[int, int] = {}
        for user, others in graph.after.items():
            for other in others if user in launched else ():
                needed[other] = min(needed.get(other, launched[user]), launched[user])
        for at, call in enumerate(graph.calls[rank]):
            if call.awaits >= 0:
                needed[call.awaits] = min(needed.get(call.awaits, at), at)
        multiplied = [
            at
            for activity, at in launched.items()
            if graph.activities[activity].kind == COMPUTE and kind_of(graph.activities[activity].name) in MULTIPLYING
        ]
        return cls(launched, needed, sorted(multiplied))

    def multiplies(self, after: int, before: int) -> bool:
        return any(after <= at < before for at in self.multiplied)


def rows_of(graph: Graph, transfers: Sequence[int], hosts: Mapping[int, HostPlaces]) -> Iterator[list[int]]:
    """Yield one step's all-reduces of a group in rows that could be one each, of up to the usual size."""
    row: list[int] = []
    held = 0
    for at in transfers:
        if row and (held >= _USUAL_MIB * _MIB or any(_is_needed_before(graph, one, at, hosts) for one in row)):
            yield row
            row, held = [], 0
        row.append(at)
        held += graph.transfers[at].bytes or 0
    if row:
        yield row


def _is_needed_before(graph: Graph, one: int, other: int, hosts: Mapping[int, HostPlaces]) -> bool:
    """Whether on any rank something multiplies that waits for one transfer, before the other is handed over."""
    for rank, member in graph.transfers[one].members.items():
        host, follows = hosts[rank], graph.transfers[other].members[rank]
        needed, handed = host.needed.get(member), host.launched.get(follows)
        if needed is not None and handed is not None and needed < handed and host.multiplies(needed, handed):
            return True
    return False
