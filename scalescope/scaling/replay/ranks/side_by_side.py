"""The ranks' steps side by side: which launch of one rank is which of another's.

A step's program is the order of what its host launches, by name. Ranks of one job run the same program but for what
this looks for: the program that most ranks run (of equally many, the shortest) is the reference, and the others are
aligned with it, as `diff` aligns lines. A launch without a place in it is the rank's own, unless it stands in for one
of the reference: libraries choose their kernels by the shapes, so that a rank with larger batches runs other ones for
the same products. Between two launches in common, in their order, what the rank runs for itself stands in for what it
lacks, where both are of one kind. A layer in another precision has other kernels around its products, too: where ranks
run unlike products at one place, all that is unlike right there stands in for all of it (`unlike.py`).

What a CPU computes to load data is no launch: it is its host's, on the way to the next one, as what a loader's Python
takes is. A loader may prepare its batches by operators that the step has as well, or that no other rank's has.

Everything here is of the step as run: the graph's own durations, from which what running side by side added is off.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import pairwise, takewhile

import numpy as np
import numpy.typing as npt

from scalescope.records.dtypes import PRECISIONS
from scalescope.scaling.rank.timeline import COMMUNICATION
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.ranks.unlike import BETWEEN, UnlikeStretch, shared_out, unlike_stretches
from scalescope.scaling.trace.kernel_kinds import CONVOLUTION, MATMUL, MULTIPLYING, OTHER, kind_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Narrower ones take as long as each other, by their places in PRECISIONS from 1 on.
_NARROW = PRECISIONS.index("bfloat16") + 1
#: What converts from one precision to another, in the backward pass and elsewhere.
CONVERTS_BACK = "ToCopyBackward0"
_CONVERTS = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::type_as", CONVERTS_BACK)
_BACKWARD = "Backward"
#: Beyond so many launches that are not the reference's, aligning would take longer than it is worth.
_LONGEST_DIFFERENCE = 6_000


@dataclass(frozen=True, slots=True)
class Launches:
    """One rank's launches in one step, in the host's order. Columns of one length."""

    activity: list[int]
    call: list[int]  # index into the rank's calls
    since: list[int]  # index of the first call that belongs to it: those since the launch before
    host_ns: Floats  # what the host took for it, since the launch before; waiting for the device is not in it
    data_ns: Floats  # of that, loading data
    work_ns: Floats
    dispatch_ns: Floats  # on the device, from when nothing holds it up to its begin
    beyond_ns: Floats  # how much later still it begins, for nothing that the traces show
    place: Ints  # in the reference's program; -1: it has none
    stands_in: Ints  # the same, and of what runs instead of one of the reference's launches that one's place
    blocks: Floats  # of its grid; NaN: not told
    precision: Floats  # its place in PRECISIONS, from 1 on; NaN: not told
    converts: Bools  # whether it converts from one precision to another
    of_layers: Bools  # whether it multiplies, or is of the backward pass
    inputs: Floats  # elements that it multiplies of what grows with the batch; NaN: not told
    unlike: tuple[
        UnlikeStretch, ...
    ] = ()  # of those that stand in for others all together: these, and for which places


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The steps that a next one bounds. `steps` are their places in the graph's list.

    `edge`: the place of the step that bounds the last of them, of which the launches up to its begin are there; None
    where no step does. What holds a host up before that makes the last bounded step longer.
    """

    ranks: list[int]
    steps: list[int]
    edge: int | None
    programs: dict[int, list[str]]  # by step: the reference's names
    names: dict[int, set[str]]  # the same, each once
    launches: dict[tuple[int, int], Launches]  # by rank and step

    _others: dict[tuple[int, int, str], Floats] = field(default_factory=dict)

    def others(self, rank: int, step: int, column: str) -> Floats:
        """Return what the other ranks take at each place of a step's program, ns: their lower median; NaN for none."""
        key = (rank, step, column)
        if key not in self._others:
            self._others[key] = self._take_others(rank, step, column)
        return self._others[key]

    def _take_others(self, rank: int, step: int, column: str) -> Floats:
        rows = [self._by_place(other, step, column) for other in self.ranks if other != rank]
        if not rows:
            return np.full(len(self.programs[step]), np.nan)
        ordered = np.sort(np.stack(rows), axis=0)  # NaN last
        known = (~np.isnan(ordered)).sum(axis=0)
        at = np.maximum(known - 1, 0) // 2
        return np.asarray(np.take_along_axis(ordered, at[None, :], axis=0)[0])

    def _by_place(self, rank: int, step: int, column: str) -> Floats:
        own = self.launches[rank, step]
        found = np.full(len(self.programs[step]), np.nan)
        chosen = own.stands_in >= 0
        found[own.stands_in[chosen]] = getattr(own, column)[chosen]
        for one in own.unlike:
            found[one.places] = shared_out(getattr(own, column)[one.rows], self._by_reference(step, column)[one.places])
        return found

    def _by_reference(self, step: int, column: str) -> Floats:
        """Return what the first rank whose program is the reference takes at each of its places, ns."""
        whole = len(self.programs[step])
        of_step = (self.launches[rank, step] for rank in self.ranks)
        first = next((own for own in of_step if len(own.place) == whole and bool((own.place >= 0).all())), None)
        return np.ones(whole) if first is None else np.asarray(getattr(first, column))

    def theirs(self, rank: int, step: int, column: str) -> Floats:
        """Return what the other ranks take for each launch of one, ns; NaN where they have none.

        What stands in for several others all together has what these take, each launch in proportion to its own.
        """
        own, others = self.launches[rank, step], self.others(rank, step, column)
        found = np.where(own.stands_in >= 0, others[np.maximum(own.stands_in, 0)] if others.size else np.nan, np.nan)
        for one in own.unlike:
            found[one.rows] = shared_out(others[one.places], getattr(own, column)[one.rows])
        return np.asarray(found)

    def is_unlike(self, rank: int, step: int, *, or_beside: bool = False) -> Bools:
        """Return which launches of a rank most of the others run by other kernels, `or_beside` with those beside them.

        These are of the same layer: what casts, copies or adds to its tensors takes longer where they are wider.
        """
        own = self.launches[rank, step]
        known, alike = (np.zeros(len(self.programs[step]), np.int64) for _ in range(2))
        for other in (self.launches[one, step] for one in self.ranks if one != rank):
            known[np.unique(other.stands_in[other.stands_in >= 0])] += 1
            alike[np.unique(other.place[other.place >= 0])] += 1
        there = np.maximum(own.stands_in, 0)
        theirs = 2 * alike[there] < known[there] if known.size else np.zeros(len(there), bool)
        unlike = (own.stands_in >= 0) & ((own.place < 0) | theirs)
        if not or_beside or not unlike.any():
            return np.asarray(unlike)
        near = np.flatnonzero(unlike)[:, None] + np.arange(-BETWEEN, BETWEEN + 1)
        beside = np.zeros(len(unlike), bool)
        beside[np.clip(near, 0, len(unlike) - 1)] = True
        return np.asarray((own.stands_in >= 0) & beside)

    def is_dearer(self, rank: int, step: int) -> Bools:
        """Return which launches of a rank compute in a dearer precision than the others do at their places.

        With what converts to it, or back, on this rank alone. Where none of them multiplies or is of the backward pass,
        it is no layer of the network, but a figure of the rank's own, some of whose operators look like others'.
        """
        own = self.launches[rank, step]
        if not (own.precision > _NARROW).any():
            return np.zeros(len(own.precision), bool)
        dearer = (own.precision > _NARROW) & (own.precision > self.theirs(rank, step, "precision"))
        if not (dearer & own.of_layers).any():
            return np.zeros(len(dearer), bool)
        alone = (own.stands_in < 0) & own.converts & (own.precision >= own.precision[dearer].min())
        return np.asarray(dearer | alone)

    def excess(self, rank: int, step: int, column: str) -> Floats:
        """Return by how much each launch of a rank takes longer than the others' one, ns; 0 where they have none."""
        mine = getattr(self.launches[rank, step], column)
        return np.asarray(np.nan_to_num(mine - self.theirs(rank, step, column), nan=0.0))


def lay_side_by_side(graph: Graph, *, on_cpu: bool = False) -> SideBySide:
    """Return the ranks' launches of each step that a next one bounds (of the only one, where there is one).

    `on_cpu`: names are operators', which no library chooses by the shapes.
    """
    count = max(1, len(graph.step_numbers) - 1)
    numbers = graph.step_numbers[: count + 1]
    rows = {rank: _rows(graph, rank, set(numbers)) for rank in graph.ranks}
    programs: dict[int, list[str]] = {}
    launches: dict[tuple[int, int], Launches] = {}
    for step, number in enumerate(numbers):
        own = {rank: rows[rank].get(number, []) for rank in graph.ranks}
        if step == count:
            own = {rank: _up_to_begin(graph, rank, of_rank) for rank, of_rank in own.items()}
        names = {rank: [_name(graph, at) for at, *_ in own[rank]] for rank in graph.ranks}
        programs[step] = _reference(list(names.values()))
        for rank in graph.ranks:
            columns = list(zip(*own[rank], strict=True)) or [(), (), (), (), ()]
            place = align(names[rank], programs[step])
            blocks, inputs = (
                np.array([getattr(graph.activities[at], size) for at in columns[0]], np.float64)
                for size in ("blocks", "inputs")
            )
            precision = np.array([graph.precisions.get(at, 0) for at in columns[0]], np.float64)
            stands_in, unlike = place, tuple[UnlikeStretch, ...]()
            if not on_cpu:
                unlike = unlike_stretches(names[rank], programs[step], place)
                stands_in = with_substitutes(names[rank], programs[step], place)
                for one in unlike:
                    stands_in[one.rows] = one.stand_in
            launches[rank, step] = Launches(
                activity=list(columns[0]),
                call=list(columns[1]),
                since=list(columns[2]),
                host_ns=np.array(columns[3], np.float64),
                data_ns=np.array(columns[4], np.float64),
                work_ns=_work(graph, columns[0]),
                dispatch_ns=np.array([graph.activities[at].dispatch_ns for at in columns[0]], np.float64),
                beyond_ns=np.array([graph.activities[at].beyond_ns for at in columns[0]], np.float64),
                place=place,
                stands_in=stands_in,
                blocks=np.where(blocks > 0, blocks, np.nan),
                precision=np.where(precision > 0, precision, np.nan),
                converts=np.array([name in _CONVERTS for name in names[rank]], bool),
                of_layers=np.array([_is_of_layers(name) for name in names[rank]], bool),
                inputs=np.where(inputs > 0, inputs, np.nan),
                unlike=unlike,
            )
    names_of = {step: set(program) for step, program in programs.items()}
    edge = count if len(numbers) > count else None
    return SideBySide(list(graph.ranks), list(range(count)), edge, programs, names_of, launches)


def _is_of_layers(name: str) -> bool:
    return _BACKWARD in name or kind_of(name) in MULTIPLYING


def _up_to_begin(graph: Graph, rank: int, rows: "list[_Row]") -> "list[_Row]":
    """Return the launches of a rank's last step up to that of the activity which begins it.

    One that no call of its own launches, as the first kernel of a graph is, comes behind those that begin before it.
    """
    begins = [at for at, (activity, *_) in enumerate(rows) if activity == graph.steps[rank][-1]]
    if begins:
        return rows[: begins[0] + 1]
    begun = graph.activities[graph.steps[rank][-1]].traced_start
    return [*takewhile(lambda row: graph.activities[row[0]].traced_start < begun, rows)]


def under(side: SideBySide, graph: Graph) -> SideBySide:
    """Return the same launches with the times that another graph of the same traces gives them."""
    taken = {rank: _taken_before(graph, rank) for rank in {rank for rank, _ in side.launches}}
    launches = {key: _timed(own, graph, *taken[key[0]]) for key, own in side.launches.items()}
    return replace(side, launches=launches, _others={})


def _taken_before(graph: Graph, rank: int) -> tuple[Floats, Floats]:
    """Return what a rank's host takes before each of its calls, and what of it loads data, ns, and of all of them."""
    calls = graph.call_columns(rank)
    taken = calls["think_ns"] + np.where(calls["awaits"] < 0, calls["duration_ns"], 0.0)
    loaded = np.zeros(len(taken))
    if graph.loading:  # which devices have none of: nothing goes through all of their launches
        loaded[:] = [_loading_ns(graph, at) for at in calls["launches"].tolist()]
    host = np.concatenate(([0.0], np.cumsum(taken + loaded)))
    return host, np.concatenate(([0.0], np.cumsum(calls["data_ns"] + loaded)))


def _timed(own: Launches, graph: Graph, host: Floats, data: Floats) -> Launches:
    begins, ends = np.array(own.since, np.int64), np.array(own.call, np.int64) + 1
    return replace(
        own, host_ns=host[ends] - host[begins], data_ns=data[ends] - data[begins], work_ns=_work(graph, own.activity)
    )


def _work(graph: Graph, activities: Sequence[int]) -> Floats:
    """Return what activities take by themselves, ns; 0 for collectives, which wait for others."""
    return np.array(
        [0.0 if graph.activities[at].kind == COMMUNICATION else graph.work_ns[at] for at in activities], np.float64
    )


def _loading_ns(graph: Graph, launched: int) -> float:
    """Return what an activity takes that loads data; 0 of any other."""
    return graph.work_ns[launched] if launched in graph.loading else 0.0


#: Activity, call, first call since the launch before, host, data.
_Row = tuple[int, int, int, float, float]


def _rows(graph: Graph, rank: int, numbers: set[int]) -> dict[int, list[_Row]]:
    """Return a rank's launches by the step's number."""
    found: dict[int, list[_Row]] = {}
    host = data = 0.0
    since = 0
    for index, call in enumerate(graph.calls[rank]):
        host += call.think_ns + (call.duration_ns if call.awaits < 0 else 0.0)
        data += call.data_ns
        if call.launches in graph.loading:
            host += graph.work_ns[call.launches]
            data += graph.work_ns[call.launches]
            continue
        if call.launches < 0:
            continue
        number = graph.activities[call.launches].step
        if number in numbers:
            found.setdefault(number, []).append((call.launches, index, since, host, data))
        host = data = 0.0
        since = index + 1
    return found


def _name(graph: Graph, at: int) -> str:
    node = graph.activities[at]
    return node.name if node.kind != COMMUNICATION else f"collective {_operation(graph, at)}"


def _operation(graph: Graph, at: int) -> str:
    index = graph.activities[at].collective
    return graph.transfers[index].operation if index >= 0 else "alone"


def _reference(programs: Sequence[list[str]]) -> list[str]:
    counted = Counter(tuple(program) for program in programs)
    most = max(counted.values())
    return min((list(one) for one, times in counted.items() if times == most), key=len)


def with_substitutes(own: Sequence[str], reference: Sequence[str], place: Ints) -> Ints:
    """Return the places with those of what runs instead: of one kind, between the same two launches in common."""
    found = place.copy()
    common = [-1, *np.flatnonzero(place >= 0).tolist(), len(own)]
    for before, after in pairwise(common):
        begin = int(place[before]) + 1 if before >= 0 else 0
        end = int(place[after]) if after < len(own) else len(reference)
        mine, theirs = own[before + 1 : after], reference[begin:end]
        if mine and theirs:
            instead = align([*map(_chosen_kind, mine)], [*map(_chosen_kind, theirs)])
            known = np.array([_chosen_kind(name) != "" for name in mine]) & (instead >= 0)
            found[before + 1 : after][known] = begin + instead[known]
    return found


def _chosen_kind(name: str) -> str:
    """Return the kind of a kernel that another one may stand in for; empty for what is none."""
    kind = OTHER if name.startswith(("collective ", "Memcpy", "Memset")) else kind_of(name)
    if kind == CONVOLUTION:
        return MATMUL  # what is chosen for a convolution may well be a product
    return kind if kind != OTHER else ""


def align(own: Sequence[str], reference: Sequence[str]) -> Ints:
    """Return each name's place in a reference, -1 for none; places ascend."""
    place = np.full(len(own), -1, np.int64)
    head = 0
    while head < min(len(own), len(reference)) and own[head] == reference[head]:
        head += 1
    tail = 0
    while tail < min(len(own), len(reference)) - head and own[-1 - tail] == reference[-1 - tail]:
        tail += 1
    place[:head] = np.arange(head)
    if tail:
        place[len(own) - tail :] = np.arange(len(reference) - tail, len(reference))
    mine, theirs = own[head : len(own) - tail], reference[head : len(reference) - tail]
    if mine and theirs and len(mine) + len(theirs) <= _LONGEST_DIFFERENCE:
        for block in SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks():
            rows = head + block.a + np.arange(block.size)
            place[rows] = head + block.b + np.arange(block.size)
    return place
