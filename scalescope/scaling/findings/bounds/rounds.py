"""On CPUs: collectives of which the same one is over at once in one step, and in another waits for somebody's core.

What such a collective carries travels within its quickest time, whatever its size, which a trace without shapes does
not tell; of that, too, so much is no data as one takes that carries nothing. The rest is the round of messages: threads
that are woken on each rank, on cores that have other work. One collective in place of several is one round in place of
several. Where the quickest times make up more than half, they may be data, and what is lost is a bound.

Which can be put together the step tells: DDP's are cut by its buckets, and of others those between which nothing
multiplies. A collective of activations has layers before and behind it. Of a loop that reduces gradients by DDP and
something of its own besides, as each gradient's norm, an all-reduce is DDP's where its reducer has filled a bucket
since the one before.
"""

import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from scalescope.records.operations import MOVE_NO_DATA, PAIRWISE, REDUCE_ON_ALL, named
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import WORTH_SAYING, Candidate, Scene
from scalescope.scaling.findings.detectors.small_collectives import as_run_share, chosen_steps
from scalescope.scaling.findings.shares import mean_step_ms
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Transfer
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

#: What takes longer at its quickest moves data all the while: a scheduler's turn is not much longer.
QUICK_NS = 1_000_000
#: What a round of messages takes at least, ns. Between two ranks of one host gloo reduces 4 B in 90 µs at its quickest,
#: of which its own record has 60, and 1 to 64 KiB, which takes two rounds, in 175.
_ROUND_NS = 40_000
#: Of what several rounds cost, so much at least is no data.
_NO_DATA = 0.5
#: Where more of it may be data, so many collectives as quick make a bound worth a word: no bucket of DDP's own size is.
_MANY = 8
_NEEDED_THERE = MOVE_NO_DATA | PAIRWISE | named(lambda facts: facts.personalised)
_SAME: tuple[Code, ...] = ("small_buckets", "small_collectives")
#: DDP's own operators, by which a trace without shapes tells its buckets.
OF_DDP = ("torch.distributed.ddp.reducer::", "torch::distributed::reducer::")
_EMPTIES = "copy_bucket_to_grad"  # of these, what follows the exchange
_USUAL_MIB = 25.0


_Run = list[list[Transfer]]  # by step, one behind the other


class _Lost(msgspec.Struct, frozen=True):
    """What a step loses to rounds, ns: all but one of each run, and of that what is no data for sure."""

    bare: float  # all of them
    whole: float
    sure: float
    calls: int
    took: float
    quickest: float


def is_by_ddp(scene: Scene) -> bool:
    """Tell whether DDP reduces the gradients, by its own operators."""
    return any(one.name.startswith(OF_DDP) for one in scene.replayer.graph.activities)


def with_rounds(scene: Scene, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with what many rounds cost, in place of what is less of the same."""
    told = [one for one in candidates if one.code in _SAME]
    found = list(_rounds(scene, told))
    return [*(one for one in candidates if not found or one not in told), *found]


def _rounds(scene: Scene, told: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield a candidate for what many rounds cost, unless as much is `told` already."""
    if not scene.replayer.on_cpu or scene.may_wait_unseen:
        return
    runs, by_ddp, of_sort = _of_one_sort(*_runs(scene))
    held = [one for run in runs for of_step in run for one in of_step]
    operation = Counter(one.operation for one in held).most_common(1)[0][0] if held else ""
    lost = _lost(scene, runs)
    if not lost:
        return
    bare_ms = mean_step_ms(scene.analysis, "exposed_transfer", chosen_steps(scene))
    summed_ms = statistics.fmean(_bare_ms(scene))
    # several that run at once leave bare what one would
    scale = as_run_share(scene) / 1e6 * min(1.0, bare_ms / summed_ms if summed_ms else 1.0)
    high, low = (
        statistics.fmean(values) * scale for values in ((one.whole for one in lost), (one.sure for one in lost))
    )
    at_most = low < _NO_DATA * high
    calls = statistics.fmean(one.calls for one in lost)
    if high < WORTH_SAYING * scene.step_ms or (at_most and calls < _MANY):
        return
    ms = high if at_most else (low + high) / 2
    if any((one.gain_ms or (0.0,))[0] >= ms for one in told):
        return
    sizes = [one.bytes for one in held if one.bytes is not None]
    rows = [
        # `value`: how many a step has of that sort, quick ones or not
        EvidenceRow(kind="figure", name="all_reduces" if by_ddp else "collectives", calls=calls, value=of_sort),
        EvidenceRow(kind="activity", name=operation, ms=statistics.fmean(one.took for one in lost) / 1e6),
        EvidenceRow(
            kind="figure",
            name="a_round",
            ms=sum(one.took for one in lost) / sum(one.calls for one in lost) / 1e6,
            others_ms=sum(one.quickest for one in lost) / sum(one.calls for one in lost) / 1e6,
        ),
    ]
    bare = statistics.fmean(one.bare for one in lost) * scale
    rows.append(EvidenceRow(kind="figure", name="bare_rounds", ms=bare, others_ms=bare - high))
    if sizes:
        rows.insert(1, EvidenceRow(kind="figure", name="median_bytes", value=statistics.median(sizes)))
        if by_ddp:
            rows.insert(1, EvidenceRow(kind="figure", name="median_bucket_mib", value=statistics.median(sizes) / 2**20))
    overrides = scene.overrides(f"strategy.bucket_mib={_USUAL_MIB:g}") if by_ddp else ()
    yield Candidate(
        code="small_buckets" if by_ddp else "small_collectives",
        gain_ms=(ms, low, high),
        evidence=tuple(rows),
        remedy=Remedy(cure="larger_buckets", overrides=overrides, size=_USUAL_MIB)
        if by_ddp
        else Remedy(cure="merge_tensors"),
        at_most=at_most,
    )


def _bare_ms(scene: Scene) -> list[float]:
    """Return what all collectives of a step leave bare, one by one, ms."""
    found = {scene.replayer.graph.step_numbers[step]: 0.0 for step in scene.side.steps}
    for one in scene.replayer.graph.transfers:
        if one.step in found:
            found[one.step] += one.traced_ns * (1 - one.hidden) / 1e6
    return list(found.values())


def _of_one_sort(runs: Sequence[tuple[_Run, bool]], of_ddp: Sequence[bool]) -> tuple[list[_Run], bool, int]:
    """Return DDP's runs, or the others, of which there are more collectives; whether they are DDP's; and how many such
    a step has in all.
    """
    sorts = {by_ddp: [run for run, is_ddps in runs if is_ddps == by_ddp] for by_ddp in (False, True)}
    most = max(sorts, key=lambda by_ddp: sum(len(run[0]) for run in sorts[by_ddp]))
    return sorts[most], most, of_ddp.count(most)


def _runs(scene: Scene) -> tuple[list[tuple[_Run, bool]], list[bool]]:
    """Return the runs of quick collectives that could be one, the same in all steps, with whether DDP makes them; and
    which of all collectives of a step it does.
    """
    graph = scene.replayer.graph
    rank = graph.ranks[0]
    chosen = {graph.step_numbers[step] for step in scene.side.steps}
    by_step: dict[int, list[Transfer]] = {number: [] for number in chosen}
    of_objects = scene.transfers_of_objects
    for at, one in enumerate(graph.transfers):
        could = one.operation not in _NEEDED_THERE and at not in of_objects
        if one.step in by_step and could and one.whole and rank in one.members:
            by_step[one.step].append(one)
    if len(by_step) < 2:
        return [], []
    usual, _ = Counter(tuple(one.operation for one in own) for own in by_step.values()).most_common(1)[0]
    steps = [own for own in by_step.values() if tuple(one.operation for one in own) == usual]
    if len(usual) < 2 or len(steps) < max(2, len(by_step) / 2):
        return [], []
    # a sparse gradient travels alone, whatever the buckets' size
    quick = [
        not steps[0][at].sparse and min(own[at].traced_ns for own in steps) <= QUICK_NS for at in range(len(usual))
    ]
    multiplied = sorted(
        node.traced_start
        for node in graph.activities
        if node.rank == rank and node.kind == COMPUTE and kind_of(node.name) in MULTIPLYING
    )

    begins = [graph.activities[one.members[rank]].traced_start for one in steps[0]]
    of_ddp = _of_ddp(scene, rank, steps[0])

    def together(at: int) -> bool:
        """Whether a collective could be one with that before it."""
        before, after = steps[0][at - 1], steps[0][at]
        if before.operation != after.operation or set(before.members) != set(after.members):
            return False
        if of_ddp[at - 1] != of_ddp[at]:
            return False
        return of_ddp[at] or bisect_left(multiplied, begins[at - 1]) == bisect_left(multiplied, begins[at])

    runs: list[list[int]] = []
    for at in range(len(usual)):
        if not quick[at]:
            continue
        if runs and runs[-1][-1] == at - 1 and together(at):
            runs[-1].append(at)
        else:
            runs.append([at])
    return [([[own[at] for at in run] for own in steps], of_ddp[run[0]]) for run in runs if len(run) > 1], of_ddp


def _of_ddp(scene: Scene, rank: int, step: Sequence[Transfer]) -> list[bool]:
    """Tell which collectives of a step are DDP's: all-reduces before which its reducer has put gradients into a bucket.

    An optimiser that shares its states broadcasts beside it, and a loop may reduce something of its own. What counts is
    when they are handed over: of many buckets most begin behind others, when all gradients are in theirs.
    """
    graph = scene.replayer.graph
    fills = {
        at
        for at, node in enumerate(graph.activities)
        if node.rank == rank and node.name.startswith(OF_DDP) and not node.name.endswith(_EMPTIES)
    }
    if not fills:  # of what the reducer does, what it does behind the exchange may be all that is recorded
        return [is_by_ddp(scene) and one.operation in REDUCE_ON_ALL for one in step]
    filled: set[int] = set()  # collectives that carry a bucket
    since = 0
    for call in graph.calls[rank]:
        if call.launches in fills:
            since += 1
        elif call.launches >= 0 and graph.activities[call.launches].collective >= 0:
            if since:
                filled.add(call.launches)
            since = 0
    return [one.members[rank] in filled and one.operation in REDUCE_ON_ALL for one in step]


def _lost(scene: Scene, runs: Sequence[Sequence[Sequence[Transfer]]]) -> list[_Lost]:
    """Return what each step loses."""
    found = []
    for at in range(len(runs[0]) if runs else 0):
        all_bare = whole = sure = took = quickest = 0.0
        calls = 0
        for run in runs:
            share = 1 - 1 / len(run[at])
            for place, one in enumerate(run[at]):
                least = min(of_step[place].traced_ns for of_step in run)
                bare = one.traced_ns * (1 - one.hidden)
                all_bare += bare
                whole += share * bare
                sure += share * max(0.0, bare - max(0.0, least - _ROUND_NS))
                took += one.traced_ns
                quickest += least
                calls += 1
        found.append(_Lost(all_bare, whole, sure, calls, took, quickest))
    return found
