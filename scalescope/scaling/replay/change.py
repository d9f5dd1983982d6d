"""What can be changed of a step, and how each change looks in its graph."""

from collections.abc import Collection

import msgspec
import numpy as np
from msgspec.structs import replace

from scalescope.records.errors import UserError
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE
from scalescope.scaling.replay.graph import Graph, median
from scalescope.scaling.replay.ranks.shortened import free_loading
from scalescope.scaling.replay.removal import Removal


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed. Nothing set: nothing is. Raises UserError for values that make no sense."""

    bucket_mib: float | None = None  # DDP's buckets, cut anew
    gradients: str | None = None  # "bf16" | "fp32": what they travel as
    link: float | None = None  # how many times as fast
    overlap: str | None = None  # "none": collectives begin when the backward pass ends | "perfect": nothing waits
    no_straggler: int | None = None  # this rank takes no longer than the others do
    no_stragglers: tuple[int, ...] = ()  # … nor do these, of which each is left out of the others
    no_inflation: bool = False  # compute takes no longer beside collectives
    spread: bool = False  # gradients are handed over as they are made, not all at the end
    data_free: bool = False  # batches are there when they are asked for
    host_free: bool = False  # launching takes no time
    without: tuple[Removal, ...] = ()  # causes that are taken out

    @property
    def evened_out(self) -> tuple[int, ...]:
        """The ranks that take no longer than those that are left."""
        return tuple(dict.fromkeys((*(() if self.no_straggler is None else (self.no_straggler,)), *self.no_stragglers)))

    @property
    def sends_otherwise(self) -> bool:
        """Whether it changes what is sent, or when, not just how fast: so no step ran, and the replay alone tells.

        A perfect overlap is a bound, and nothing that anybody makes and can be wrong about.
        """
        sent = self.bucket_mib is not None or self.gradients is not None
        return self.spread or sent or self.overlap == "none"

    @property
    def description(self) -> str:
        """Return the change as a reader would say it."""
        parts = []
        if self.bucket_mib is not None:
            parts.append(f"buckets of {self.bucket_mib:g} MiB")
        if self.gradients is not None:
            parts.append(f"gradients travel as {self.gradients}")
        if self.link is not None:
            parts.append(f"links {self.link:g} times as fast")
        if self.overlap is not None:
            parts.append("no overlap" if self.overlap == "none" else "perfect overlap")
        if self.no_straggler is not None:
            parts.append(f"rank {self.no_straggler} no slower than the others")
        if self.no_stragglers:
            parts.append(f"ranks {', '.join(map(str, self.no_stragglers))} no slower than the others")
        if self.no_inflation:
            parts.append("compute not slowed by communication")
        if self.spread:
            parts.append("gradients handed over as they are made")
        if self.data_free:
            parts.append("data loading free")
        if self.host_free:
            parts.append("launching free")
        for one in self.without:
            parts.append(f"without {one.what}" + ("" if one.rank is None else f" of rank {one.rank}"))
        return ", ".join(parts) or "nothing"

    def __post_init__(self) -> None:
        if self.bucket_mib is not None and self.bucket_mib <= 0:
            raise UserError(f"a bucket of {self.bucket_mib:g} MiB: must be above 0")
        if self.link is not None and self.link <= 0:
            raise UserError(f"a link {self.link:g} times as fast: must be above 0")
        if self.gradients not in (None, "bf16", "fp32"):
            raise UserError(f"gradients as {self.gradients}: choose bf16 or fp32")
        if self.overlap not in (None, "none", "perfect"):
            raise UserError(f"overlap {self.overlap}: choose none or perfect")


def free_data(graph: Graph) -> None:
    """Let every batch be there when it is asked for."""
    for rank in graph.calls:
        free_loading(graph, rank)


def free_host(graph: Graph) -> None:
    """Let launching take no time; loading data still takes its own."""
    for rank, calls in graph.calls.items():
        columns = graph.call_columns(rank)
        graph.calls[rank] = [replace(call, think_ns=call.data_ns, duration_ns=0.0) for call in calls]
        graph.keep_calls(rank, {**columns, "think_ns": columns["data_ns"], "duration_ns": np.zeros(len(calls))})


def perfect_overlap(graph: Graph) -> None:
    """Let nothing wait for a collective but collectives."""
    carried = {at for at in graph.living() if graph.activities[at].kind == COMMUNICATION}
    for at, others in graph.after.items():
        if at not in carried:
            graph.after[at] = [other for other in others if other not in carried]
    for rank, calls in graph.calls.items():
        graph.calls[rank] = [replace(call, awaits=-1) if call.awaits in carried else call for call in calls]


def no_overlap(graph: Graph) -> None:
    """Let collectives begin once all compute that began before their result was first needed is over.

    In the trace's order, whichever thread launched what: a host's threads are each for itself here, and what began
    after a result was needed may wait for it.
    """
    for rank in graph.ranks:
        behind = _collectives_before(graph, rank)
        # when an activity begins, or is awaited, and what it needs
        needed: list[tuple[int, int, list[int]]] = []
        for stream in graph.order[rank]:
            for at in stream:
                others = [other for other in graph.after.get(at, ()) if other in behind]
                needed.append((graph.activities[at].traced_start, at, others))
        for call in graph.calls[rank]:
            if call.awaits in behind:
                needed.append((graph.activities[call.awaits].traced_end, call.awaits, [call.awaits]))
        last = -1
        for _, at, others in sorted(needed):
            for other in others:
                _begin_after(graph, other, last, behind)
            if graph.activities[at].kind == COMPUTE:
                last = at


def _collectives_before(graph: Graph, rank: int) -> dict[int, int]:
    """Return of each of a rank's collectives the one before it on its stream, -1 for the first."""
    before: dict[int, int] = {}
    for stream in graph.order[rank]:
        previous = -1
        for at in stream:
            if graph.activities[at].kind == COMMUNICATION:
                before[at], previous = previous, at
    return before


def _begin_after(graph: Graph, collective: int, compute: int, behind: dict[int, int]) -> None:
    """Let a collective, and those before it on its stream, begin after this compute; once, so it leaves `behind`."""
    while collective in behind:
        _after(graph, collective, compute)
        collective = behind.pop(collective)


def _after(graph: Graph, collective: int, compute: int) -> None:
    if compute >= 0 and compute not in graph.after.setdefault(collective, []):
        graph.after[collective].append(compute)


def even_out(graph: Graph, rank: int, left_out: Collection[int] = ()) -> None:
    """Let a rank take for each kernel, and for what its host does before each, what the other ranks take.

    `left_out`: of those, ranks that are evened out as well. A kernel that none of the others runs is gone. Kernels are
    the same by name and ordinal in the step.
    """
    work: dict[tuple[int, str, int], list[float]] = {}
    think: dict[tuple[int, str, int], list[tuple[float, float]]] = {}
    mine: dict[int, tuple[int, str, int]] = {}
    for own in graph.ranks:
        if own != rank and own in left_out:
            continue
        launched = {call.launches: call for call in graph.calls[own] if call.launches >= 0}
        ordinals: dict[tuple[int, str], int] = {}
        for at in sorted(
            (at for stream in graph.order[own] for at in stream), key=lambda at: graph.activities[at].traced_start
        ):
            node = graph.activities[at]
            if node.kind == COMMUNICATION:
                continue
            ordinal = ordinals[node.step, node.name] = ordinals.get((node.step, node.name), -1) + 1
            key = (node.step, node.name, ordinal)
            if own == rank:
                mine[at] = key
            else:
                work.setdefault(key, []).append(graph.work_ns[at])
                if at in launched:
                    think.setdefault(key, []).append((launched[at].think_ns, launched[at].data_ns))
    steps = {key[0] for key in work}
    for at, key in mine.items():
        if key[0] in steps:
            graph.work_ns[at] = median(work.get(key, []))
    for index, call in enumerate(graph.calls[rank]):
        if call.launches in mine and (others := think.get(mine[call.launches])):
            think_ns, data_ns = median([one[0] for one in others]), median([one[1] for one in others])
            graph.calls[rank][index] = replace(call, think_ns=think_ns, data_ns=data_ns)
