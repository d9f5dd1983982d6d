"""DDP's gradient buckets, as the trace shows them, and cut anew.

DDP puts gradients into buckets in the order in which the backward pass makes them, and hands a bucket over once it
holds `cap` bytes or more (`compute_bucket_assignment_by_size`); a tensor is never split, so an embedding larger than
the cap is a bucket as large as itself. The trace has each gradient's size, the kernel that puts it into its bucket, and
the buckets' all-reduces; that the one adds up to the other, bucket by bucket, is checked before anything is cut anew.
"""

from collections.abc import Sequence, Set
from itertools import compress
from operator import attrgetter

import msgspec
import numpy as np
from msgspec.structs import replace

from scalescope.records.operations import REDUCE_ON_ALL
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Activity, Gradient, Graph, HostCall, median

#: The lengths in bytes of what one bucket holds, gradient by gradient: index of the last gradient, bytes.
Cut = list[tuple[int, int]]

#: What launching a small kernel takes the host, ns, with torch's part of it.
_LAUNCH_NS = 20_000.0
_LAUNCHES = attrgetter("launches")
#: A number no stream in a trace has: where torch's hook widens gradients.
_SIDE_STREAM = -10
#: What the kernels that torch's hook narrows a bucket by are called in a replay.
NARROWING = "narrow gradients"


class StepBuckets(msgspec.Struct, frozen=True):
    """One step's buckets: its transfers in order, and each rank's gradients in order."""

    transfers: list[int]
    gradients: dict[int, list[Gradient]]
    cut: Cut  # of the gradients' list, as the trace has it
    scale: float  # bytes that travel a byte of gradient: 0.5 where fp32 gradients travel as bf16
    step: int  # its number


def find_buckets(graph: Graph) -> list[StepBuckets] | str:
    """Return the buckets of each step in which they can be told, or in words why there is none."""
    if not any(graph.gradients.values()):
        return "no gradients of DDP in the traces: buckets are cut from their shapes (profile with record_shapes=True)"
    found = []
    why = ""
    awaited = {other for at in graph.living() for other in graph.after.get(at, ())}
    awaited |= {call.awaits for calls in graph.calls.values() for call in calls if call.awaits >= 0}
    for number in graph.step_numbers:
        by_rank = {
            rank: [one for one in graph.gradients[rank] if graph.activities[one.activity].step == number]
            for rank in graph.ranks
        }
        sizes = {rank: [one.bytes for one in own] for rank, own in by_rank.items()}
        first = sizes[graph.ranks[0]]
        if not first or any(own != first for own in sizes.values()):
            why = f"the ranks' gradients of step {number} are not the same"
            continue
        transfers = [
            index
            for index, one in enumerate(graph.transfers)
            if one.step == number and one.operation in REDUCE_ON_ALL and one.bytes
            and set(one.members) == set(graph.ranks)
        ]  # fmt: skip
        matched = _match(first, [graph.transfers[index].bytes or 0 for index in transfers])
        if matched is None:
            why = f"the all-reduces of step {number} do not add up to its gradients"
            continue
        chosen, cut, scale = matched
        if not _is_awaited(graph, [transfers[at] for at in chosen], awaited):
            why = f"nothing in the traces waits for the all-reduces of step {number}"
            continue
        found.append(StepBuckets([transfers[at] for at in chosen], by_rank, cut, scale, number))
    return found or why


def _is_awaited(graph: Graph, transfers: Sequence[int], awaited: Set[int]) -> bool:
    """Tell whether on every rank something waits for any of the transfers."""
    return all(any(graph.transfers[one].members[rank] in awaited for one in transfers) for rank in graph.ranks)


def _match(sizes: Sequence[int], travelled: Sequence[int]) -> tuple[list[int], Cut, float] | None:
    """Return which transfers carry the gradients, the cut, and bytes travelled a byte; None where they do not fit.

    Other all-reduces (a loss, a norm) are passed over; gradients travel in their own width, or half of it.
    """
    for scale in (1.0, 0.5):
        chosen: list[int] = []
        cut: Cut = []
        held = at = 0
        for index, size in enumerate(sizes):
            held += size
            if at < len(travelled) and round(held * scale) == travelled[at]:
                chosen.append(at)
                cut.append((index, held))
                held, at = 0, at + 1
            elif at < len(travelled) and round(held * scale) > travelled[at]:
                # not a bucket: pass over it, if one that fits comes later
                while at < len(travelled) and round(held * scale) > travelled[at]:
                    at += 1
                if at < len(travelled) and round(held * scale) == travelled[at]:
                    chosen.append(at)
                    cut.append((index, held))
                    held, at = 0, at + 1
        if held == 0 and cut and cut[-1][0] == len(sizes) - 1:
            return chosen, cut, scale
    return None


def cut_by(sizes: Sequence[int], cap: int, first_cap: int | None = None) -> Cut:
    """Return the buckets that DDP would make of gradients in order, with a cap in bytes (and another for the first)."""
    cut: Cut = []
    held = 0
    for index, size in enumerate(sizes):
        held += size
        limit = first_cap if first_cap is not None and not cut else cap
        if held >= limit or index == len(sizes) - 1:
            cut.append((index, held))
            held = 0
    return cut


def first_bucket_cap(graph: Graph, steps: Sequence[StepBuckets]) -> int | None:
    """Return torch's smaller cap for the first bucket (1 MiB) where the trace shows that it was in force.

    torch applies it where the user has not set `bucket_cap_mb`.
    """
    sizes = [one.bytes for one in steps[0].gradients[graph.ranks[0]]]
    small = 1 << 20
    cut = steps[0].cut
    if len(cut) < 3:
        return None
    usual = cut_by(sizes, max(held for _, held in cut[1:-1]), small)[0]
    return small if cut[0] == usual and cut[0][1] < 0.5 * median([held for _, held in cut[1:-1]]) else None


class _Additions:
    """New activities and the calls that launch them, each right behind another; put in place all at once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ns_a_byte = {rank: _ns_a_byte(graph, rank) for rank in graph.ranks}
        self._behind: dict[int, list[HostCall]] = {}  # by the activity whose launch they follow
        self._made: dict[int, list[int]] = {rank: [] for rank in graph.ranks}

    def add(self, node: Activity, work_ns: float, behind: int, cost_ns: float, after: Sequence[int] = ()) -> int:
        """Add an activity that the host launches right after another one, at a cost of host time."""
        at = self.graph.add(node, work_ns, after)
        self._behind.setdefault(behind, []).append(HostCall(cost_ns, 0.0, 0.0, launches=at))
        self._made[node.rank].append(at)
        return at

    def place(self) -> None:
        """Put all calls behind theirs, and let streams run what is new in the order of its launches."""
        graph = self.graph
        for rank in graph.ranks:
            graph.calls[rank] = calls = self._with_additions(graph.calls[rank])
            streams = {graph.activities[stream[0]].stream: stream for stream in graph.order[rank]}
            for at in self._made[rank]:
                streams.setdefault(graph.activities[at].stream, []).append(at)
            changed = {graph.activities[at].stream for at in self._made[rank]}
            on_these = {at for number in changed for at in streams[number]}
            launches = enumerate(map(_LAUNCHES, calls))
            position = dict.fromkeys(on_these, -1)  # launched before the trace: stays first
            position |= {launched: index for index, launched in launches if launched in on_these}
            for number in changed:
                streams[number].sort(key=position.__getitem__)
            graph.order[rank] = list(streams.values())

    def _with_additions(self, calls: Sequence[HostCall]) -> list[HostCall]:
        found: list[HostCall] = []
        copied = 0
        for at in [at for at, launched in enumerate(map(_LAUNCHES, calls)) if launched in self._behind]:
            found += calls[copied : at + 1]
            self._append_behind(found, calls[at].launches)
            copied = at + 1
        return [*found, *calls[copied:]]

    def _append_behind(self, calls: list[HostCall], launched: int) -> None:
        for new in self._behind[launched]:
            calls.append(new)
            if new.launches in self._behind:
                self._append_behind(calls, new.launches)


def recut(
    graph: Graph, steps: Sequence[StepBuckets], cuts: Sequence[Cut], scale: float, work_us: Sequence[Sequence[float]]
) -> None:
    """Replace each step's all-reduces by those of another cut, or of another width, in place.

    `scale`: bytes that travel a byte of gradient. `work_us`: the time of each collective alone, by step and bucket.
    """
    cost = _handover_ns(graph)
    additions = _Additions(graph)
    taken_out = _take_out(graph, steps)
    for step, cut, times_us, out in zip(steps, cuts, work_us, taken_out, strict=True):
        model = graph.transfers[step.transfers[0]]
        made: dict[int, list[int]] = {rank: [] for rank in graph.ranks}
        like = {rank: _typical_member(graph, rank, step) for rank in graph.ranks}
        for (last, held), time_us in zip(cut, times_us, strict=True):
            size = round(held * scale)
            work = time_us * 1e3
            transfer = replace(model, members={}, work_ns=work, traced_ns=work, bytes=size, hidden=0.0)
            index = len(graph.transfers)
            graph.transfers.append(transfer)
            for rank in graph.ranks:
                ready = step.gradients[rank][last].activity
                if scale < step.scale:
                    ready = _narrow(additions, ready, held)
                # it is handed over right behind what it waits for
                member = additions.add(replace(like[rank], collective=index), 0.0, ready, cost[rank], [ready])
                transfer.members[rank] = member
                done = _widen(additions, member, held) if scale < step.scale else member
                made[rank].append(done)
                for user in out.users[rank]:
                    graph.after[user].append(done)
        for rank, call in out.awaiting.items():
            at = next(index for index, one in enumerate(graph.calls[rank]) if one is call)
            graph.calls[rank][at + 1 : at + 1] = [HostCall(0.0, 0.0, 0.0, awaits=done) for done in made[rank]]
    additions.place()


class _TakenOut(msgspec.Struct, frozen=True):
    """What waited for a step's all-reduces, by rank: on a device a stream does, on a CPU the host's thread itself."""

    users: dict[int, list[int]]  # activities
    #: the first call that did, which awaits nothing now
    awaiting: dict[int, HostCall] = msgspec.field(default_factory=dict)


def _take_out(graph: Graph, steps: Sequence[StepBuckets]) -> list[_TakenOut]:
    """Take the steps' all-reduces out; return what waited for them, a step."""
    gone = {
        at: place
        for place, step in enumerate(steps)
        for index in step.transfers
        for at in graph.transfers[index].members.values()
    }
    found = [_TakenOut({rank: [] for rank in graph.ranks}) for _ in steps]
    for at, others in list(graph.after.items()):
        if at in gone:
            del graph.after[at]
            continue
        awaited = {gone[other] for other in others if other in gone}
        for place in awaited:
            found[place].users[graph.activities[at].rank].append(at)
        if awaited:
            graph.after[at] = [other for other in others if other not in gone]
    members = np.array(list(gone), np.int64)
    on = {(graph.activities[at].rank, graph.activities[at].stream) for at in gone}
    for rank in graph.ranks:
        graph.order[rank] = [
            left
            for stream in graph.order[rank]
            if (left := [at for at in stream if at not in gone] if _stream(graph, stream) in on else stream)
        ]
        calls, columns = graph.calls[rank], graph.call_columns(rank)
        kept = ~np.isin(columns["hands_over"], members)
        for index in np.flatnonzero(np.isin(columns["awaits"], members) & kept).tolist():
            place = gone[calls[index].awaits]
            calls[index] = replace(calls[index], awaits=-1)
            found[place].awaiting.setdefault(rank, calls[index])
        graph.calls[rank] = list(compress(calls, kept.tolist()))
    return found


def _stream(graph: Graph, stream: Sequence[int]) -> tuple[int, int]:
    """Return the rank and the number of a stream, by its first activity; of an empty one none's."""
    return (graph.activities[stream[0]].rank, graph.activities[stream[0]].stream) if stream else (-1, -1)


def _handover_ns(graph: Graph) -> dict[int, float]:
    """Return what handing a collective over takes each rank's host, ns."""
    found = {}
    for rank in graph.ranks:
        total: dict[int, float] = {}
        for index in np.flatnonzero(graph.call_columns(rank)["hands_over"] >= 0).tolist():
            call = graph.calls[rank][index]
            total[call.hands_over] = total.get(call.hands_over, 0.0) + call.think_ns + call.duration_ns
        found[rank] = median(list(total.values()))
    return found


def _typical_member(graph: Graph, rank: int, step: StepBuckets) -> Activity:
    """Return what one rank's member of a step's collectives is like."""
    members = [graph.activities[graph.transfers[one].members[rank]] for one in step.transfers]
    return replace(
        members[0],
        dispatch_ns=median([one.dispatch_ns for one in members]),
        skew_ns=median([one.skew_ns for one in members]),
    )


def _narrow(additions: _Additions, gradient: int, held: int) -> int:
    """Add the kernels that make a bucket narrower before it travels; return what the collective waits for.

    torch's bf16 hook copies the bucket to bf16 (6 bytes an element move) and divides it in place (4 bytes).
    """
    like = additions.graph.activities[gradient]
    work = held / 4 * 10 * additions.ns_a_byte[like.rank]
    return additions.add(replace(like, name=NARROWING), work, gradient, _LAUNCH_NS)


def _widen(additions: _Additions, member: int, held: int) -> int:
    """Add the copy back to the gradients' own width, on a stream of its own; return what is awaited in the end."""
    like = additions.graph.activities[member]
    work = held / 4 * 6 * additions.ns_a_byte[like.rank]
    node = Activity(like.rank, _SIDE_STREAM, COMPUTE, 0.0, like.step, "widen gradients")
    return additions.add(node, work, member, _LAUNCH_NS, [member])


def _ns_a_byte(graph: Graph, rank: int) -> float:
    """Return what moving a byte costs a kernel that only moves: from those that put large gradients into buckets."""
    rates = [
        graph.work_ns[one.activity] / (2 * one.bytes)
        for one in graph.gradients[rank]
        if one.bytes >= 1 << 20 and graph.work_ns[one.activity] > 0
    ]
    return median(rates, 1 / 3000.0)
