"""Taking a cause out of a step: what one rank does more, or longer, than the others becomes what the others do."""

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from scalescope.scaling.rank.annotations.loading import copies_from_host
from scalescope.scaling.rank.timeline import COMMUNICATION
from scalescope.scaling.replay.graph import Graph, HostCall, median
from scalescope.scaling.replay.ranks.copying import free_clones, free_copies, free_launches_of_copies, takes_time
from scalescope.scaling.replay.ranks.elements import free_elements
from scalescope.scaling.replay.ranks.exchanges import free_bucket_copies, free_exchanges, free_objects
from scalescope.scaling.replay.ranks.extra import Beyond, extra_rows, held_up_by, steps_of
from scalescope.scaling.replay.ranks.reads import reads_of
from scalescope.scaling.replay.ranks.rounds import merge_rounds
from scalescope.scaling.replay.ranks.shortened import (
    build_normalisation_in,
    compute_in_single,
    free_loading,
    free_metrics,
    free_preparing,
    free_recomputed,
    free_unused,
    fuse_optimizer,
    shorten_host,
    update_at_once,
    use_matrix_units,
)
from scalescope.scaling.replay.ranks.side_by_side import Floats, Launches, SideBySide
from scalescope.scaling.replay.uneven import even_out_steps

#: A host's gap is one where it takes so much longer for a launch than the others do, ns: no operator's own time.
GAP_NS = 150_000

What = Literal[
    "own",  # activities that the other ranks do not run at all
    "more",  # those that they run less often
    "slow",  # activities that take longer than on the others
    "unlike",  # of those, what the others run by other kernels, and what is right beside that
    "dearer",  # what computes in a dearer precision than the others do there, and what converts to it and back
    "turns",  # the same, in the steps alone in which they do: by turns, one rank's excess is another's lack
    "host",  # whatever the host takes longer
    "gaps",  # of that, where one launch alone is late by a gap
    "data",  # loading data
    "copies",  # memcpy, what the host does for it, and what waits for it; of one rank memset, too
    "clones",  # what is copied within a device, of which nothing else is taken out
    "waits",  # the host's own waits for the device, with the copies that they are for
    "reads",  # the same, with what computes the values that are read one after another
    "elements",  # reading a host's tensors element by element, with the calls that do it
    "unfused",  # a share of what an optimizer runs one by one
    "by_hand",  # … of what a loop over parameters does
    "normalising",  # … of what normalises operator by operator
    "double",  # … of what computes in double precision, but for convolutions
    "double_convolutions",  # … of these
    "full",  # … of what multiplies in fp32 on a device's plain cores
    "preparing",  # what makes of a batch what the network takes
    "metrics",  # what looks at what a step made, behind its update
    "recomputed",  # what the backward pass runs of the forward pass once more
    "unused",  # what of the forward pass leads to no gradient
    "uneven",  # what activities that vary by so much take longer than in their shortest step, of all ranks
    "rounds",  # of several collectives all but one
    "exchanges",  # collectives, with all that waits for them
    "objects",  # collectives of Python objects, with what hosts pickle for them and read of them
    "bucket_copies",  # what DDP runs on a device to bring gradients into the buckets of such, and back
    "pause",  # so much of the longest time that the host takes for a launch, in each step
]


class Removal(msgspec.Struct, frozen=True):
    """What is taken out, of one rank or (None) of each."""

    what: What
    rank: int | None = None
    ns: int = 0  # of a pause; from which on what varies is uneven, or a gap is one where not GAP_NS
    in_steps: tuple[int, ...] = ()  # of a pause that is not there in each step: those that have it, by number
    at_end: bool = (
        False  # of such a pause: it lies behind a step's last launch, so that the next one's first may be late
    )
    longest_ns: int = 0  # of a pause of several gaps: the longest of them; 0: it is one
    launches: int = 0  # before so many launches a step a pause is; 0: before however many
    share: float = (
        1.0  # of what runs one by one, or wider than needed: so much one operator, or a narrower type, gives back
    )
    of_calls: float | None = None  # of what runs one by one on a device: the same of what its host takes to launch it
    before: str | None = None  # what is launched behind a pause, where its name tells; "": a step's first launch
    transfers: tuple[
        tuple[int, ...], ...
    ] = ()  # of rounds: the graph's, in rows that travel as their last one; of exchanges: in a row a pass


def remove(graph: Graph, side: SideBySide, removal: Removal, *, on_cpu: bool = False) -> None:
    """Take a cause out of a graph in place. `side` is of the same graph, with its calls as they are.

    `on_cpu`: hosts compute, and need what collectives bring.
    """
    if removal.what == "uneven":
        even_out_steps(graph, side, removal.ns)
        return
    if removal.what == "rounds":
        merge_rounds(graph, removal.transfers)
        return
    if removal.what == "exchanges":
        free_exchanges(graph, removal.transfers)
        return
    if removal.what == "objects":
        free_objects(graph)
        return
    if removal.what == "bucket_copies":
        free_bucket_copies(graph, removal.transfers)
        return
    for rank in graph.ranks if removal.rank is None else [removal.rank]:
        if removal.what == "data":
            free_loading(graph, rank)
        elif removal.what == "copies":
            free_copies(graph, rank, alone=removal.rank is not None)
            if removal.rank is not None and not on_cpu:
                free_launches_of_copies(graph, side, rank)
        elif removal.what == "clones":
            free_clones(graph, rank)
        elif removal.what == "elements":
            free_elements(graph, rank)
        elif removal.what == "unfused":
            fuse_optimizer(graph, rank, removal.share, removal.of_calls)
        elif removal.what == "by_hand":
            update_at_once(graph, rank, removal.share, removal.of_calls)
        elif removal.what == "normalising":
            build_normalisation_in(graph, rank, removal.share, removal.of_calls)
        elif removal.what in ("double", "double_convolutions"):
            compute_in_single(graph, rank, removal.share, convolved=removal.what == "double_convolutions")
        elif removal.what == "full":
            use_matrix_units(graph, rank, removal.share)
        elif removal.what == "preparing":
            free_preparing(graph, rank)
        elif removal.what == "metrics":
            free_metrics(graph, rank)
        elif removal.what == "recomputed":
            free_recomputed(graph, rank)
        elif removal.what == "unused":
            free_unused(graph, rank)
        elif removal.what in ("waits", "reads"):
            _free_reads(graph, rank, with_values=removal.what == "reads")
            _free_waits(graph, rank, for_collectives=not on_cpu)
        elif removal.what == "pause":
            _shorten_longest(graph, side, rank, removal)
        elif removal.what in ("slow", "turns"):
            _remove_slowness(graph, side, rank, by_turns=removal.what == "turns")
        elif removal.what == "unlike":
            for step in steps_of(side):
                chosen = side.is_unlike(rank, step, or_beside=True).tolist()
                _even_out_work(graph, side.launches[rank, step], side.excess(rank, step, "work_ns"), chosen)
        elif removal.what == "dearer":
            _remove_dearer(graph, side, rank)
        elif removal.what in ("own", "more"):
            _remove_extra(graph, side, rank, removal.what)
        else:
            for step in steps_of(side):
                for row, excess in host_excess(side, rank, step, gaps_only=removal.what == "gaps", gap_ns=removal.ns):
                    shorten_host(graph, rank, side.launches[rank, step], row, excess)


def _remove_extra(graph: Graph, side: SideBySide, rank: int, what: Beyond) -> None:
    held_up = held_up_by(graph, side, rank, (what,))
    for step in steps_of(side):
        own = side.launches[rank, step]
        for row in extra_rows(graph, side, rank, step, what):
            graph.work_ns[own.activity[row]] = 0.0
            shorten_host(graph, rank, own, row, float(own.host_ns[row]))
        _even_out_work(graph, own, side.excess(rank, step, "work_ns"), [at in held_up for at in own.activity])


def _remove_dearer(graph: Graph, side: SideBySide, rank: int) -> None:
    for step in steps_of(side):
        own, dearer = side.launches[rank, step], side.is_dearer(rank, step)
        for row in np.flatnonzero(dearer & (own.stands_in < 0)).tolist():
            graph.work_ns[own.activity[row]] = 0.0
            shorten_host(graph, rank, own, row, float(own.host_ns[row]))
        _even_out_work(graph, own, side.excess(rank, step, "work_ns"), dearer.tolist())


def _remove_slowness(graph: Graph, side: SideBySide, rank: int, *, by_turns: bool) -> None:
    held_up = held_up_by(graph, side, rank)  # for another reason, which is a cause of its own
    for step in steps_of(side):
        own = side.launches[rank, step]
        excess = side.excess(rank, step, "work_ns")
        if by_turns and float(excess.sum()) <= 0:
            continue
        apart = side.is_dearer(rank, step).tolist()
        chosen = [at not in held_up and not other for at, other in zip(own.activity, apart, strict=True)]
        _even_out_work(graph, own, excess, chosen)
        _even_out_dispatch(graph, side, rank, step)


def host_excess(side: SideBySide, rank: int, step: int, *, gaps_only: bool, gap_ns: int = 0) -> list[tuple[int, float]]:
    """Return (launch, ns) where a rank's host takes longer than the others' does; loading data is left out of it.

    A gap may lie before a launch that the others do not make: a rank that writes a log reads its loss after it.
    """
    longer = side.excess(rank, step, "host_ns") - side.excess(rank, step, "data_ns")
    if gaps_only:
        own = side.launches[rank, step]
        longer = np.where(own.stands_in < 0, own.host_ns - own.data_ns, longer)
    chosen = np.flatnonzero(longer > ((gap_ns or GAP_NS) if gaps_only else 0))
    return list(zip(chosen.tolist(), longer[chosen].tolist(), strict=True))


def _even_out_work(graph: Graph, own: Launches, excess_ns: Floats, chosen: Sequence[bool]) -> None:
    """Let what is chosen of a rank's launches take what the others' takes."""
    for row in np.flatnonzero(np.array(chosen, bool) & (excess_ns != 0) & (own.stands_in >= 0)).tolist():
        at = own.activity[row]
        if graph.activities[at].kind != COMMUNICATION:
            graph.work_ns[at] = max(0.0, graph.work_ns[at] - float(excess_ns[row]))


def _even_out_dispatch(graph: Graph, side: SideBySide, rank: int, step: int) -> None:
    """Let no activity take longer to begin than on the others: a device that is shared is not always there."""
    own = side.launches[rank, step]
    longer = side.excess(rank, step, "dispatch_ns")
    for row in np.flatnonzero(longer > 0).tolist():
        at = own.activity[row]
        node = graph.activities[at]
        graph.activities[at] = replace(node, dispatch_ns=node.dispatch_ns - float(longer[row]))


def _free_waits(graph: Graph, rank: int, *, for_collectives: bool) -> None:
    """Let the host wait neither for its device nor for a copy to be through; for room in the queue it still does.

    What a device does last before a host that waits for all of it goes on may well be a collective. A call that copies
    and waits still takes as long as the copy, where that is no mere figure's: what is left is a copy's doing. One that
    copies to the device waits for no more than the copy does: that is the copy's doing as a whole.
    """
    calls = graph.calls[rank]
    for at, call in enumerate(calls):
        awaits = call.awaits >= 0 and not call.room
        if awaits and not for_collectives:
            awaits = graph.activities[call.awaits].kind != COMMUNICATION
        if awaits and call.launches in (-1, call.awaits) and not _copies_in(graph, call):
            left = graph.work_ns[call.awaits] if call.launches >= 0 and takes_time(graph, call.awaits) else 0.0
            calls[at] = replace(call, awaits=-1, duration_ns=min(left, call.duration_ns), until_ns=0.0)


def _copies_in(graph: Graph, call: HostCall) -> bool:
    """Tell whether a call copies from the host to the device, of more than a figure, and waits for it."""
    if call.launches < 0 or not takes_time(graph, call.launches):
        return False
    return copies_from_host(graph.activities[call.launches].name)


def _free_reads(graph: Graph, rank: int, *, with_values: bool) -> None:
    """Take out the copies of figures that the host waits for, and `with_values` what computes those that it reads in a
    row."""
    calls = graph.calls[rank]
    for read in reads_of(graph, rank):
        in_a_row = read.follows or read.first < read.copy
        if takes_time(graph, calls[read.copy].launches) and not (with_values and in_a_row):
            continue
        for at in read.calls() if with_values else (read.copy, read.wait):
            call = calls[at]
            if call.launches >= 0:
                node = graph.activities[call.launches]
                graph.work_ns[call.launches] = 0.0
                graph.activities[call.launches] = replace(node, dispatch_ns=0.0, late_ns=0.0)
            own = with_values and (read.follows or at > read.first)  # the first of a row comes after other things
            calls[at] = replace(
                call,
                think_ns=0.0 if own else call.think_ns,
                data_ns=0.0 if own else call.data_ns,
                duration_ns=0.0,
            )


def _shorten_longest(graph: Graph, side: SideBySide, rank: int, pause: Removal) -> None:
    """Take a pause out of the launches that it is before.

    It is as long as it was recorded. Of Python whose frames were, too, less is there without recording, and what is not
    there is in no other launch either.
    """
    longest = {step: max(side.launches[rank, step].host_ns.tolist(), default=0.0) for step in steps_of(side)}
    usual = float(pause.ns)
    if pause.launches == 1 and not (
        pause.in_steps or pause.before
    ):  # where it is before several, some come later in the step
        usual = min(usual, median([longest[step] for step in side.steps], usual))
    least = max((pause.longest_ns or usual) / 2, 1.0)
    ends_late = False  # the step before has the pause behind its last launch
    for step in steps_of(side):
        own = side.launches[rank, step]
        rows = _paused(graph, own, pause)
        if pause.in_steps:  # another gap of a step that has it not is none of it, however long
            begins_late = ends_late and len(own.host_ns) > 0 and float(own.host_ns[0]) >= least
            has_it = graph.step_numbers[step] in pause.in_steps
            rows = [row for row in rows if has_it and not (pause.at_end and row == 0)]
            there = bool(rows) and float(own.host_ns[rows].max()) >= least
            ends_late = has_it and pause.at_end and not there
            rows = rows if there else [0] if begins_late else []
        elif step == side.edge and longest[step] < least:
            continue  # it comes later in the step
        left = float(pause.ns)
        for row in rows:
            less = min(left, float(own.host_ns[row]))
            shorten_host(graph, rank, own, row, less)
            left -= less
            if left <= 0:
                break


def _paused(graph: Graph, own: Launches, pause: Removal) -> list[int]:
    """Return the launches that a pause is before: those of its name, where there are any, else the longest."""
    longest: list[int] = np.argsort(-own.host_ns, kind="stable").tolist()
    if pause.before == "":
        return longest and [0]
    named = [row for row in longest if graph.activities[own.activity[row]].name == pause.before]
    return (named or longest)[: pause.launches or None]
