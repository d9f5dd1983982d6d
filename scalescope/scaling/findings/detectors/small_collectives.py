"""Many small collectives where one, or a few, would do: figures exchanged one by one, and units of shards too small.

Each is a round of messages that takes as long however little it carries. So of those of one group all but one are lost,
where nothing hides them. DDP's buckets are told by themselves (`gradients`). What is reduced otherwise (activations)
cannot be put together at will: what waits for each of them comes between. Gradients that a loop reduces one by one look
as figures do where they are as small, but no figure is a vector of many: biases are.

What is gathered small is a unit of shards where parameters are sharded. Elsewhere it is what a loss, or a metric, needs
of all ranks: of that, what nothing is multiplied between can be gathered together.
"""

import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from scalescope.records.operations import MOVE_NO_DATA, PAIRWISE, named
from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.shares import mean_step_ms
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Transfer
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

#: Losses, norms, counts, flags: so many bytes are figures, and no layer's gradients or activations.
_FIGURES_BYTES = 1 << 10
#: One number, or a few: what is longer in the median may be gradients of biases, which every step needs.
_FEW_NUMBERS_BYTES = 64
#: Weights and gradients that travel in shards: a unit of so few bytes is a layer or less, and could be a whole block.
_SHARDS_BYTES = 1 << 16
#: What carries data that travel all the same, however they are put together.
_OF_DATA: tuple[Cure, ...] = ("larger_units", "gather_together")
_OF_SHARDS = named(lambda facts: facts.sharded and facts.symmetric and not facts.personalised)
_REDUCED_SHARDS = _OF_SHARDS & named(lambda facts: facts.reduces)
#: What each pair has for itself (the counts before an all-to-all) is needed where it is sent.
_NEEDED_THERE = MOVE_NO_DATA | PAIRWISE | named(lambda facts: facts.personalised)


def small_collectives(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where a step has several small collectives: of figures or shards, whichever cost more."""
    if scene.may_wait_unseen:
        return  # what such a collective takes may be waiting
    kinds = [_candidate(scene, _is_of_figures, "merge_collectives")]
    if scene.analysis.trains:  # a server's small messages are activations, which cannot be put together
        kinds.append(_candidate(scene, _is_of_shards, "larger_units" if _shards(scene) else "gather_together"))
    found = [one for one in kinds if one is not None]
    yield from sorted(found, key=lambda one: -(_exposed_evidence_ms(one)))[:1]


def _exposed_evidence_ms(one: Candidate) -> float:
    return one.gain_ms[0] if one.gain_ms else sum(row.ms or 0.0 for row in one.evidence)


def _is_of_figures(one: Transfer) -> bool:
    return bool(one.bytes) and (one.bytes or 0) <= _FIGURES_BYTES and one.operation not in _NEEDED_THERE


def _is_of_shards(one: Transfer) -> bool:
    return _FIGURES_BYTES < (one.bytes or 0) <= _SHARDS_BYTES and one.operation in _OF_SHARDS


def _candidate(scene: Scene, is_small: Callable[[Transfer], bool], cure: Cure) -> Candidate | None:
    graph = scene.replayer.graph
    steps = scene.replayer.buckets
    others = {at for one in steps for at in one.transfers} if not isinstance(steps, str) else set()
    others |= scene.transfers_of_objects
    held = _by_step(scene, (one for at, one in enumerate(graph.transfers) if at not in others and is_small(one)))
    if cure == "gather_together":
        held = {step: _longest_row(scene, of_step) for step, of_step in held.items()}
    gain_ms = _rounds_lost(scene, held)
    if gain_ms is None:
        return None
    small = [one for of_step in held.values() for one in of_step]
    operation, _ = Counter(one.operation for one in small).most_common(1)[0]
    size = statistics.median(one.bytes or 0 for one in small)
    if cure == "merge_collectives" and size > _FEW_NUMBERS_BYTES:
        cure = "merge_tensors"
    evidence = (
        EvidenceRow(kind="figure", name="collectives", calls=len(small) / len(held)),
        EvidenceRow(kind="figure", name="median_bytes", value=size),
        EvidenceRow(kind="activity", name=operation, ms=statistics.fmean(map(_exposed_ms, held.values()))),
    )
    if cure not in _OF_DATA and not scene.replayer.on_cpu:
        # figures can travel together: what that brings, hosts that hand over one of them and all, the replay tells
        return Candidate(
            code="small_collectives", removals=(_as_one(scene, small),), evidence=evidence, remedy=Remedy(cure=cure)
        )
    host_ms = 0.0 if scene.replayer.on_cpu else handing_over_lost_ms(scene, small) / len(held)
    if host_ms > 0:
        middle, low, high = gain_ms
        gain_ms = middle + host_ms, low, high + host_ms
    return Candidate(
        code="small_collectives",
        gain_ms=gain_ms,
        evidence=evidence,
        remedy=Remedy(cure=cure),
        # what shards carry, little as it is, travels all the same; what a host saves, a device need not feel
        at_most=cure in _OF_DATA or host_ms > 0,
    )


def _shards(scene: Scene) -> bool:
    """Tell whether a job's parameters are sharded: by its annotations, or else by shards of gradients that are reduced
    beside what is gathered, where DDP's reducer moves none.
    """
    told = {record.sharded for record in scene.replayer.records.values()} - {None}
    if told:
        return True in told
    if any(record.gradients for record in scene.replayer.records.values()):
        return False
    operations = {one.operation for one in scene.replayer.graph.transfers}
    return bool(operations & (_OF_SHARDS - _REDUCED_SHARDS)) and bool(operations & _REDUCED_SHARDS)


def _longest_row(scene: Scene, transfers: Sequence[Transfer]) -> list[Transfer]:
    """Return the most of a step's collectives, of one kind, that nothing is multiplied between: they need not wait for
    each other's results.
    """
    graph = scene.replayer.graph
    rows: list[list[Transfer]] = []
    last: dict[tuple[str, tuple[int, ...]], list[Transfer]] = {}
    starts: dict[int, list[int]] = {}
    for one in sorted(transfers, key=lambda transfer: _begin(scene, transfer)):
        rank = min(one.members)
        if rank not in starts:
            starts[rank] = sorted(
                node.traced_start
                for node in graph.activities
                if node.rank == rank and node.kind == COMPUTE and kind_of(node.name) in MULTIPLYING
            )
        key = (one.operation, tuple(sorted(one.members)))
        row = last.get(key)
        between = None if row is None else [bisect_left(starts[rank], _begin(scene, at)) for at in (row[-1], one)]
        if row is None or between is None or between[0] != between[1]:
            row = last[key] = []
            rows.append(row)
        row.append(one)
    return max(rows, key=len, default=[])


def _begin(scene: Scene, transfer: Transfer) -> int:
    """Return when the first rank of a collective, by number, began it."""
    rank = min(transfer.members)
    return scene.replayer.graph.activities[transfer.members[rank]].traced_start


def _as_one(scene: Scene, small: Sequence[Transfer]) -> Removal:
    """Return what lets the small collectives of each step and group travel with the last of them."""
    chosen = {id(one) for one in small}
    rows: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
    for at, one in enumerate(scene.replayer.graph.transfers):
        if id(one) in chosen:
            rows[one.step, tuple(sorted(one.members))].append(at)
    return Removal("rounds", transfers=tuple(tuple(row) for row in rows.values() if len(row) > 1))


def handing_over_lost_ms(scene: Scene, small: Sequence[Transfer]) -> float:
    """Return what hosts take to hand over all but one of each step's small collectives, as far as devices wait for
    launches: ms in all these steps.

    On a device such a collective takes microseconds, and its host tens of them.
    """
    graph = scene.replayer.graph
    members = {at for one in small for at in one.members.values()}
    spent = sum(
        call.duration_ns + call.think_ns
        for calls in graph.calls.values()
        for call in calls
        if call.hands_over in members
    ) / len(graph.ranks)  # fmt: skip
    steps = len({one.step for one in small})
    least = spent / 1e6 * (1 - steps / len(small))
    return min(least, scene.share_ms("idle_launch") * steps)


def small_rounds(scene: Scene, transfers: Iterable[int]) -> tuple[float, float, float] | None:
    """Return what collectives as small as figures lose, ms a step, from, to, in the steps that have several of them.

    None where none has.
    """
    found = (scene.replayer.graph.transfers[at] for at in transfers)
    held = _by_step(scene, filter(_is_of_figures, found))
    return _rounds_lost(scene, {step: own for step, own in held.items() if own})


def _by_step(scene: Scene, transfers: Iterable[Transfer]) -> dict[int, list[Transfer]]:
    held = {scene.replayer.graph.step_numbers[step]: list[Transfer]() for step in scene.side.steps}
    for one in transfers:
        if one.step in held:
            held[one.step].append(one)
    return held


def _rounds_lost(scene: Scene, held: Mapping[int, list[Transfer]]) -> tuple[float, float, float] | None:
    if not held or min(map(len, held.values())) < 2:
        return None
    held_up, share = _held_up_ns(scene) if scene.replayer.on_cpu else {}, as_run_share(scene)
    lost = [_lost_ms(of_step, held_up, min) * share for of_step in held.values()]
    most = [_lost_ms(of_step, held_up, statistics.fmean) * share for of_step in held.values()]
    middle = statistics.fmean(lost)
    # a step that others disturbed tells no more than all that the mean step has to lose to what ranks exchange
    exposed_ms = sum(map(scene.share_ms, ("exposed_transfer", "exposed_wait", "exposed_unsplit")))
    return middle, min(lost), max(middle, min(max(most), exposed_ms))


def _held_up_ns(scene: Scene) -> dict[int, float]:
    """Return for how long each member of a collective (its activity) holds up its rank's loop, ns, where that stands
    still until it is over: what hands it over, the exchange with its waiting, and what it takes to be woken again.
    """
    graph = scene.replayer.graph
    found = {}
    for rank in graph.ranks:
        launched = [call.launches for call in graph.calls[rank] if call.launches >= 0]
        for at, own, following in zip([-1, *launched], launched, launched[1:], strict=False):
            member = graph.activities[own]
            if member.collective < 0 or graph.activities[following].traced_start < member.traced_end:
                continue
            before = graph.activities[at] if at >= 0 else member
            since = before.traced_end if before.collective < 0 else member.traced_start
            found[own] = float(graph.activities[following].traced_start - min(since, member.traced_start))
    return found


def _exposed_ms(transfers: list[Transfer]) -> float:
    return sum(one.traced_ns * (1 - one.hidden) for one in transfers) / 1e6


def _lost_ms(
    transfers: list[Transfer], held_up_ns: Mapping[int, float], of_ranks: Callable[[list[float]], float]
) -> float:
    """Return what collectives take that compute does not hide, less what one of each group takes.

    Of a host that waits for each, as `.item()` behind it does on CPUs, that is for how long it is held up. The least
    `of_ranks` counts for sure: what another waits longer may have been late before, and come late to the only one too.
    """
    groups: dict[tuple[int, ...], list[Transfer]] = defaultdict(list)
    for one in transfers:
        groups[tuple(sorted(one.members))].append(one)
    return sum(
        of_ranks([sum(_held_up_ms(one, rank, held_up_ns) for one in own) for rank in members]) * (1 - 1 / len(own))
        for members, own in groups.items()
    )


def _held_up_ms(one: Transfer, rank: int, held_up_ns: Mapping[int, float]) -> float:
    return max(held_up_ns.get(one.members[rank], 0.0) / 1e6, _exposed_ms([one]))


def chosen_steps(scene: Scene) -> set[int]:
    """Return the numbers of the steps that can be replayed."""
    return {scene.replayer.graph.step_numbers[step] for step in scene.side.steps}


def as_run_share(scene: Scene) -> float:
    """Return the share of what transfers take as profiled that they take as run; at most all of it.

    Of the steps that can be replayed: another, such as a trace's last one, may have taken twice as long.
    """
    profiled = mean_step_ms(scene.analysis, "exposed_transfer", chosen_steps(scene))
    return min(1.0, scene.share_ms("exposed_transfer") / profiled) if profiled else 0.0
