"""What the hosts' own records say, made candidates: each cause with what takes it out of the replayed step."""

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from scalescope.records.statistics import is_beyond_chance
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.evidence.host_calls import OBJECT_COLLECTIVES, OBJECTS_BEGIN_WITH
from scalescope.scaling.evidence.host_cause import HostCause, HostCode, HostFigure, line_of_all
from scalescope.scaling.evidence.interruptions import SHORTEST_NS
from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.figures import AT_STEP, EVERY, IN_EVERY_STEP, IN_STEPS, READ_VALUES, WAITS_BESIDES
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene, Seen
from scalescope.scaling.findings.hosts.host_rows import collects, evidence_of, most_likely_loads, pickles
from scalescope.scaling.findings.hosts.worker_cores import is_everywhere, loads_in_workers, workers_row
from scalescope.scaling.rank.annotations.loading import from_workers
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.ranks.reads import read_activities, reads_of
from scalescope.scaling.replay.removal import GAP_NS, Removal, What
from scalescope.scaling.replay.simulate import host_work_ns

_CURES: dict[HostCode, Cure] = {
    "data_loading": "load_ahead",
    "host_stall": "look_at_host",
    "host_starved": "free_cores",
    "synchronising": "drop_synchronisation",
    "recompilation": "fixed_shapes",
    "allocation": "keep_memory",
}
#: A stall so many times as long as a host's interruptions are in the mean is one of them: half of them are longer.
_ONE_OF_THEM = 2.0
#: Operators that copy a tensor to where the host reads it.
_COPYING = ("aten::copy_", "aten::_to_copy", "aten::to")
#: A gap is about as long in every step where none is shorter than so much of the median.
_ALIKE = 0.5
#: Gaps behind so many of all copies to the host make those the gaps' loop's: many of its passes are too short to tell.
_OF_ALL_READS = 0.25
#: How far off a mean is, in its standard errors; and the least error of what a few steps tell.
_TWO_SIGMA, _LEAST_ERROR = 2.0, 0.15
#: A scheduler's turn, ns, holds a host up that loads as well as one that does anything else. Loading that takes so many
#: times as long as in the median step, by no more than such a turn, in a third of the steps at most, may have met one.
_TURN_NS, _LONGER, _FEW = 20_000_000, 2.0, 1 / 3
#: An operator is told of a loader that takes so much of what that loads for, beyond the others'.
_MUCH_OF_LOADING = 0.4
#: So many steps at most are told one by one.
_FEW_STEPS = 2


def host_causes(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each code and rank among the causes on the hosts' side; launching is told by the replay."""
    by_kind: dict[tuple[HostCode, int | None], list[HostCause]] = {}
    for cause in scene.host or ():
        if cause.opening:
            continue  # it is recording's, and out of the step as run
        if cause.now_and_then and scene.worth_a_look(cause.typical_ns / 1e6):
            if not _is_an_interruption(cause, scene.host or ()):
                yield from _pausing(scene, cause)
        elif cause.code in _CURES and not cause.now_and_then:
            by_kind.setdefault((cause.code, cause.rank), []).append(cause)
    known: set[tuple[tuple[What, int | None], ...]] = set()
    for (code, rank), found in sorted(by_kind.items(), key=lambda item: _surest_first(item[1])):
        causes = _without_chance(found)
        punctual = any(one.punctual for one in causes)
        removals = _removals(scene, code, rank, causes)
        # what two causes of one host would take out alike is the larger one's: dealt out, each had half of it
        alike = tuple((one.what, one.rank) for one in removals)
        if scene.worth_a_look(_longest_ns(causes) / 1e6) and alike not in known:
            if code != "host_stall" or rank is not None:  # of all ranks, each stall is taken out for what it takes
                known.add(alike)
            in_workers = _starved_by_workers(scene, causes)
            yield Candidate(
                code=code,
                rank=rank,
                removals=removals,
                least_ms=min(one.typical_ns for one in causes) / 1e6 if in_workers else 0.0,
                surely=_surely(code, rank, in_workers=in_workers),
                beyond_ms=() if punctual else _beyond_ms(causes),
                in_each_ms=_beyond_ms(causes) if code == "host_stall" else (),
                usual=_usual(scene, causes[0]) if code == "data_loading" and rank is None else None,
                evidence=(
                    *evidence_of(causes),
                    *(_computed_in_loading(scene, rank) if code == "data_loading" and rank is not None else ()),
                    *(_read_values(scene, rank) if code == "synchronising" else ()),
                    *(_waits_besides(causes) if code == "synchronising" and rank is not None else ()),
                    *([workers_row(scene.analysis)] if in_workers else []),
                    *([EvidenceRow(kind="figure", name=IN_EVERY_STEP)] if punctual and code == "host_stall" else []),
                ),
                remedy=Remedy(cure="cheaper_workers") if in_workers else _remedy(scene, code, causes),
            )


def _computed_in_loading(scene: Scene, rank: int) -> Iterator[EvidenceRow]:
    """Yield the operator in which a rank's host is longer than the others' while it loads, where it computes batches
    itself, and that is much of what it loads for.
    """
    graph, count = scene.replayer.graph, max(1, len(scene.side.steps))
    numbers = {graph.step_numbers[step] for step in scene.side.steps}
    taken: dict[str, dict[int, float]] = {}
    calls: dict[str, int] = {}
    for at in graph.loading:
        node = graph.activities[at]
        if node.step in numbers:
            by_rank = taken.setdefault(node.name, {})
            by_rank[node.rank] = by_rank.get(node.rank, 0.0) + graph.work_ns[at] / 1e6 / count
            calls[node.name] = calls.get(node.name, 0) + (node.rank == rank)
    others = [one for one in scene.side.ranks if one != rank]
    theirs = {name: statistics.fmean(own.get(one, 0.0) for one in others) for name, own in taken.items() if others}
    name = max(theirs, key=lambda name: taken[name].get(rank, 0.0) - theirs[name], default=None)
    whole = statistics.fmean(float(scene.side.launches[rank, step].data_ns.sum()) / 1e6 for step in scene.side.steps)
    if name is not None and taken[name].get(rank, 0.0) - theirs[name] >= _MUCH_OF_LOADING * whole > 0:
        yield EvidenceRow(
            kind="operator", name=name, ms=taken[name][rank], others_ms=theirs[name], calls=calls[name] / count
        )


def _surely(code: HostCode, rank: int | None, *, in_workers: bool) -> tuple[Removal, ...]:
    """Return what of a cause's removals is sure to go with it, where not all is: of turns that workers may take, none
    that operators lose, which other threads take as well.
    """
    if in_workers:
        return (Removal("data"),)
    return (Removal("waits", rank),) if code == "synchronising" else ()


def _waits_besides(causes: Sequence[HostCause]) -> tuple[EvidenceRow, ...]:
    """Return how often a step a rank's host waits that does so more often than the others' in each of them."""
    calls = sum(one.count or 0.0 for cause in causes for one in cause.evidence if one.kind == "call")
    return (EvidenceRow(kind="figure", name=WAITS_BESIDES, calls=calls),) if calls else ()


def _surest_first(causes: Sequence[HostCause]) -> tuple[bool, float]:
    """Return what orders causes: what is there in each step whatever chance does, and of such the longest, first."""
    return not any(one.punctual for one in causes), -_longest_ns(causes)


def _without_chance(causes: Sequence[HostCause]) -> list[HostCause]:
    """Return one host's causes, where some of its stalls are punctual without those that chance may have made."""
    if not any(one.punctual for one in causes):
        return list(causes)
    return [one for one in causes if one.punctual or (one.beyond_ns is not None and is_beyond_chance(one.beyond_ns))]


def _usual(scene: Scene, loading: HostCause) -> Interval | None:
    """Return what all ranks load for in the median step, ms, from the shortest to the mean one.

    Where hosts compute, on cores that others use, and each rank loads in a few steps for longer, or in none, by no more
    than a scheduler's turn; else None. Of a window's few steps a turn is a large share, and it is no loader's.
    """
    median = statistics.median(loading.ns)
    by_rank = loading.by_rank_ns or (loading.ns,)
    longer = [[ns for ns in own if ns > _LONGER * median] for own in by_rank]
    few = any(longer) and all(len(own) <= _FEW * len(loading.ns) for own in longer)
    if not scene.replayer.on_cpu or not few or max(map(max, filter(None, longer))) - median > _TURN_NS:
        return None
    longest = [max(of_step) for of_step in zip(*by_rank, strict=True)]  # the others wait for it
    return Interval(median / 1e6, min(loading.ns) / 1e6, max(median, statistics.fmean(longest)) / 1e6)


def _is_an_interruption(stall: HostCause, causes: Sequence[HostCause]) -> bool:
    """Whether a stall of some steps is one of those interruptions that a host without a core of its own has anyway:
    of a rank that is known to be interrupted in most steps, and about as long as those.
    """
    long = [ns for ns in stall.ns if ns > 0]
    interruptions = [
        figure.ns / figure.count
        for cause in causes
        if cause.code == "host_starved" and cause.rank == stall.rank
        for figure in cause.evidence
        if figure.kind == "interruptions" and figure.count
    ]
    return bool(long) and any(sum(long) / len(long) <= _ONE_OF_THEM * ns for ns in interruptions)


def _pausing(scene: Scene, cause: HostCause) -> Iterator[Candidate]:
    """Yield the candidate of a host that stalls in some of the steps.

    The replay is of the steps that a next one bounds. Where it has none of the stalls, their length tells on CPUs; how
    far a host is ahead of its device, nothing does.
    """
    long = [ns for ns in cause.ns if ns > 0]
    seen = Seen(len(long), len(cause.ns))
    each_ms = sum(long) / len(long) / 1e6
    spread = statistics.stdev(long) / statistics.fmean(long) / math.sqrt(len(long)) if len(long) > 1 else 0.0
    seen = replace(seen, period=cause.period, error=max(_LEAST_ERROR, _TWO_SIGMA * spread))
    numbers = scene.replayer.graph.step_numbers
    bounded = {numbers[at] for at in scene.side.steps}
    # what comes before a step's first launch makes the one before it longer
    before = cause.place is not None and cause.place.phase == "before_first"
    held = sum(ns > 0 and step - before in bounded for step, ns in zip(cause.steps, cause.ns, strict=True))
    if not held and not scene.replayer.on_cpu:
        return
    removal = Removal(
        "pause",
        cause.rank,
        round(each_ms * 1e6),
        in_steps=tuple(step for step, ns in zip(cause.steps, cause.ns, strict=True) if ns > 0),
        at_end=cause.place is not None and cause.place.phase == "after_last",
        longest_ns=cause.longest_ns,
    )
    gain = seen.share * each_ms
    yield Candidate(
        code="host_stall",
        rank=cause.rank,
        removals=(removal,) if held else (),
        gain_ms=None if held else (gain, *seen.bounds(gain)),
        seen=replace(seen, replayed=held / len(bounded) if bounded else 0.0),
        evidence=(
            *evidence_of([cause]),
            EvidenceRow(kind="figure", name=IN_STEPS, ms=each_ms, calls=float(len(long)), value=float(len(cause.ns))),
            *([EvidenceRow(kind="figure", name=EVERY, ms=each_ms, value=cause.period)] if cause.period else []),
            *([] if cause.period else _at_steps(cause)),
        ),
        remedy=Remedy(
            line=_line(cause),
            cure="collect_less"
            if collects(cause)
            else "do_less_often"
            if cause.period or _is_between_passes_again(cause)
            else "look_at_host",
        ),
    )


def _is_between_passes_again(cause: HostCause) -> bool:
    """Tell whether a stall of some steps is behind the optimizer's step, and comes back there some steps later."""
    at = [step for step, ns in zip(cause.steps, cause.ns, strict=True) if ns > 0]
    again = any(after - before > 1 for before, after in pairwise(at))
    return again and any(one.within == "optimizer_to_forward" for one in cause.evidence)


def _at_steps(cause: HostCause) -> Iterator[EvidenceRow]:
    """Yield which of a window's steps a stall is in, where these are few: two have a distance, and no period yet."""
    at = [place for place, ns in enumerate(cause.ns, 1) if ns > 0]
    if len(at) <= _FEW_STEPS and cause.steps[-1] - cause.steps[0] == len(cause.steps) - 1:
        yield from (EvidenceRow(kind="figure", name=AT_STEP, value=float(place)) for place in at)


def _removals(scene: Scene, code: HostCode, rank: int | None, causes: Sequence[HostCause]) -> tuple[Removal, ...]:
    what: What
    if _starved_by_workers(scene, causes):
        # of all ranks alike no other one tells what it would take; what is short of cores makes batches late, too
        return (Removal("uneven", ns=SHORTEST_NS), Removal("data"))
    if code == "host_starved":
        # hosts differ by themselves: where a host is known to be interrupted, only that is taken out
        if rank is None and any(cause.own_ns for cause in causes):
            return _pauses(rank, _as_run(scene, causes), scene.replayer.on_cpu)
        kinds = {one.kind for cause in causes for one in cause.evidence}
        between = rank is not None and not kinds.isdisjoint(("interruptions", "lock_waits"))
        what = "gaps" if between else "host"
    elif code == "synchronising":
        what = "reads"
    elif code == "data_loading" and _annotated(scene, rank, causes):
        what = "data"
    elif code in ("data_loading", "host_stall") and rank is not None:
        what = "gaps"
    else:
        return (*_pauses(rank, causes, scene.replayer.on_cpu), *_copies_of_passes(scene, rank, causes))
    found = Removal(what, rank, _gap_ns(causes, on_cpu=scene.replayer.on_cpu) if what == "gaps" else 0)
    # an operator in which Python runs waits for the interpreter's lock as well, and its thread takes a core
    locked = any(one.kind == "lock_waits" for cause in causes for one in cause.evidence)
    return (found, Removal("slow", rank)) if locked and scene.replayer.on_cpu else (found,)


def _as_run(scene: Scene, causes: Sequence[HostCause]) -> list[HostCause]:
    """Return interruptions of hosts of devices as long as they are in the step as run.

    Who shares a host's core has it for a share of the time in which the host has something to do, recording included.
    """
    replayer = scene.replayer
    if replayer.on_cpu or not any(one.kind == "interruptions" for cause in causes for one in cause.evidence):
        return list(causes)
    traced = {rank: host_work_ns(replayer.traced, rank) for rank in replayer.graph.ranks}
    less = {rank: host_work_ns(replayer.graph, rank) / ns for rank, ns in traced.items() if ns > 0}
    return [
        replace(cause, own_ns=tuple((rank, round(ns * min(1.0, less.get(rank, 1.0)))) for rank, ns in cause.own_ns))
        for cause in causes
    ]


def _copies_of_passes(scene: Scene, rank: int | None, causes: Sequence[HostCause]) -> tuple[Removal, ...]:
    """Return what takes the copies out that a loop makes in whose passes its host stands still, right behind a copy.

    Who writes a checkpoint copies each tensor to the host, and then writes it: the copies, and the waits for them, are
    there for the same loop. Where so many of the copies to the host are such, they are all taken for that loop's.
    """
    passes = sum(
        one.count or 0.0
        for cause in causes
        if cause.code == "host_stall" and cause.each_pass_ns and cause.place is not None
        if cause.place.before in _COPYING
        for one in cause.evidence
        if one.kind == "gap"
    )
    graph = scene.replayer.graph
    ranks = graph.ranks if rank is None else [rank]
    reads = sum(len(reads_of(graph, one)) for one in ranks) / len(ranks) / max(1, len(graph.step_numbers))
    if not reads or not passes or passes < _OF_ALL_READS * reads:
        return ()
    return Removal("copies", rank), Removal("reads", rank)


def _gap_ns(causes: Sequence[HostCause], *, on_cpu: bool) -> int:
    """Return from which length on a gap is one of these, ns; 0 where they are as long as any.

    One that comes in every step, and is about as long in each, is no gap of half that length. Of a host that launches
    for devices, which has a core of its own, steps alike tell that; of one that computes, only what no chance makes.
    """
    if all(_in_every_step(one) if not on_cpu else one.punctual and not one.each_pass_ns for one in causes):
        least = min((ns for one in causes for ns in one.beyond_ns or ()), default=0)
        return max(least // 2, GAP_NS) if least else 0
    short = [cause.each_pass_ns for cause in causes if 0 < cause.each_pass_ns < 2 * GAP_NS]
    return min(short) // 2 if short else 0


def _in_every_step(cause: HostCause) -> bool:
    """Tell whether a host stands still, or loads, once in every step and about as long in each."""
    once = cause.code in ("host_stall", "data_loading") and not cause.each_pass_ns
    beyond = cause.beyond_ns or ()
    return once and bool(beyond) and min(beyond) >= _ALIKE * statistics.median(beyond)


def _starved_by_workers(scene: Scene, causes: Sequence[HostCause]) -> bool:
    return any(map(is_everywhere, causes)) and loads_in_workers(scene.replayer.records)


def _pauses(rank: int | None, causes: Sequence[HostCause], on_cpu: bool) -> tuple[Removal, ...]:
    """Return what takes stalls out: of all ranks, of each as long as it has them, before as many launches.

    Where hosts compute, what they launch has the operators' names, and so have the places of a collective of objects,
    of which each may take less than a host waits elsewhere.
    """
    named = [cause for cause in causes if on_cpu and cause.rank is None and pickles(cause)]
    removals = [Removal("pause", one, ns, launches=1, before=before) for (one, before), ns in _named_ns(named).items()]
    others = [cause for cause in causes if not any(cause is one for one in named)]
    own = _own_ns(rank, others)
    gaps = [math.ceil(one.count or 0.0) for cause in others for one in cause.evidence if one.kind == "gap"]
    launches = sum(gaps) if len(gaps) == len(others) and all(gaps) else 0
    return *removals, *(Removal("pause", one, round(ns), launches=launches) for one, ns in own.items())


def _named_ns(causes: Sequence[HostCause]) -> dict[tuple[int | None, str], int]:
    """Return what the places of a collective of objects take, ns a step, by rank and by what follows there."""
    found: dict[tuple[int | None, str], int] = {}
    for cause in causes:
        after = cause.place.after if cause.place is not None else ""
        before = OBJECTS_BEGIN_WITH if after in OBJECT_COLLECTIVES.values() else after
        for one, ns in _own_ns(None, [cause]).items():
            found[one, before] = found.get((one, before), 0) + round(ns)
    return found


def _own_ns(rank: int | None, causes: Sequence[HostCause]) -> dict[int | None, float]:
    own: dict[int | None, float] = {}
    for cause in causes:
        for one, ns in cause.own_ns or ((rank, cause.typical_ns),):
            own[one] = own.get(one, 0.0) + ns
    return own


def _read_values(scene: Scene, rank: int | None) -> Iterator[EvidenceRow]:
    """Yield what kernels take, a step, that compute values which the host reads in a row; nothing where none does."""
    graph = scene.replayer.graph
    ranks = scene.side.ranks if rank is None else [rank]
    steps = set(graph.step_numbers)
    rows = [
        at
        for one in ranks
        for at in read_activities(graph, one)
        if graph.activities[at].kind == COMPUTE and graph.activities[at].step in steps
    ]
    if rows:
        count = len(ranks) * len(steps)
        ms = sum(graph.work_ns[at] for at in rows) / 1e6 / count
        yield EvidenceRow(kind="figure", name=READ_VALUES, ms=ms, calls=len(rows) / count)


def _annotated(scene: Scene, rank: int | None, causes: Sequence[HostCause]) -> bool:
    """Whether the graph itself knows most of the loading: where it is annotated.

    In one of the steps at least, or before the one that bounds the last of them: what a window's first step loads comes
    before all that the graph has of it.
    """
    side = scene.side
    ranks = side.ranks if rank is None else [rank] if rank in side.ranks else []
    steps = side.steps if side.edge is None else [*side.steps, side.edge]
    known = [sum(float(side.launches[one, step].data_ns.sum()) for one in ranks) for step in steps]
    return bool(ranks) and max(known) >= 0.5 * len(ranks) * sum(cause.typical_ns for cause in causes)


def _remedy(scene: Scene, code: HostCode, causes: Sequence[HostCause]) -> Remedy:
    return replace(_cure(scene, code, causes), line=_line(*causes))


def _cure(scene: Scene, code: HostCode, causes: Sequence[HostCause]) -> Remedy:
    if any(one.kind == "lock_waits" for cause in causes for one in cause.evidence):
        return Remedy(cure="free_interpreter")
    longest = max(causes, key=lambda cause: cause.typical_ns)
    if code == "host_stall" and collects(longest):
        return Remedy(cure="collect_less")
    if code == "host_stall" and longest.each_pass_ns:
        return Remedy(cure="less_python")
    if code == "host_stall" and pickles(longest):
        return Remedy(cure="tensors_not_objects")
    if most_likely_loads(longest):
        return Remedy(cure="name_loading")
    if code == "synchronising" and max(_calls(causes), key=lambda one: one.ns).from_host:
        return Remedy(cure="pin_memory")
    if code != "data_loading":
        return Remedy(cure=_CURES[code])
    if not scene.ours and any(from_workers(one.name) for cause in causes for one in cause.evidence):
        return Remedy(cure="load_faster")  # ahead they are already
    # null: as many as cores are left, which decoding images can use and cutting tokens cannot
    images = scene.facts is not None and scene.facts.dataset == "image_folder"
    return Remedy(cure="load_ahead", overrides=scene.overrides("data.workers=null" if images else "data.workers=4"))


def _line(*causes: HostCause) -> str | None:
    """Return the function of the script that most of some causes lies in, where stacks tell one."""
    return line_of_all((one.line, one.ns) for cause in causes for one in cause.evidence)


def _calls(causes: Sequence[HostCause]) -> list[HostFigure]:
    return [one for cause in causes for one in cause.evidence if one.kind == "call"]


def _beyond_ms(causes: Sequence[HostCause]) -> tuple[float, ...]:
    """Return by what a rank takes longer than the others in each step, for all of its causes; () where one has none."""
    rows = [one.beyond_ns for one in causes]
    known = [row for row in rows if row is not None]
    return tuple(sum(step) / 1e6 for step in zip(*known, strict=True)) if len(known) == len(rows) else ()


def _longest_ns(causes: Sequence[HostCause]) -> float:
    return sum(cause.typical_ns if cause.at_most_ns is None else _mean(cause.at_most_ns) for cause in causes)


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0
