"""The kernels of two steps side by side: by name, else by their operator and its place, else by kind."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from scalescope.records.errors import UserError
from scalescope.scaling.compare.answer import KernelChange, MatchedBy
from scalescope.scaling.compare.kernels.alignment import align
from scalescope.scaling.compare.kernels.expected import bound_of, expected_ratio
from scalescope.scaling.compare.kernels.operators import Call, CallTable, read_calls
from scalescope.scaling.compare.kernels.sizes import size_classes
from scalescope.scaling.compare.measurement import Measurement
from scalescope.scaling.trace.kernel_kinds import COMMUNICATION, COPIES, ELEMENTWISE, LOSS, NORMALISATION, OPTIMISER
from scalescope.scaling.trace.sources import Source, find_windows
from scalescope.scaling.verdicts.top_kernels import kernel_label

#: Where operators are known of less of the compute, kernels are matched by name and kind only.
_NAMED = 0.5
#: The same kernels' grids differ by less in steps of the same batch.
_SAME_BLOCKS = 0.02
#: Kernels whose grids grow with what they have to do.
_BY_ELEMENTS = (ELEMENTWISE, COPIES, NORMALISATION, LOSS)
#: An operator's calls are smaller on a side where those that both sides have take so much less there; and a kind's are
#: where that is of so much of what one side has besides.
_SMALLER, _OF_BESIDES = 0.75, 0.1
#: How what is left over of a kind is told, all in one row.
_OF_KINDS: tuple[MatchedBy, ...] = ("kind", "only_baseline", "only_other")

_Side = Literal["here", "there"]
_SIDES: tuple[_Side, _Side] = ("here", "there")


class Matched(msgspec.Struct, frozen=True):
    """The rows, most changed first, and the share of both sides' kernel time that has a counterpart."""

    rows: list[KernelChange]
    share: float | None
    notes: list[str]
    work_ratio: float | None = None  # OTHER's blocks over the baseline's in kernels that take one for so many elements
    alone_us: Mapping[str, tuple[float, float]] = {}  # by kind, µs a step of the baseline's and OTHER's that match none
    resized: frozenset[str] = frozenset()  # kinds of which one side's calls are more and smaller: no work besides
    rank: int | None = None  # whose kernels these are


class _Pair(msgspec.Struct, frozen=True):
    here: Call | None
    there: Call | None
    by: MatchedBy

    def side(self, name: _Side) -> Call | None:
        return self.here if name == "here" else self.there


def match_sides(baseline: Measurement, other: Measurement, rank: int | None, rate: float) -> Matched:
    """Return the kernels of one rank's step on both sides; `rank`: None for the first that both have.

    `rate`: what OTHER's times are multiplied by.
    """
    traces = [_trace_of(side, rank) for side in (baseline, other)]
    if traces[0] is None or traces[1] is None:
        return Matched([], None, [])
    try:
        with_places = any(window.has_placed for side in (baseline, other) for window in side.windows)
        tables = [read_calls(one.path, one.device, only, with_places=with_places) for one, only in filter(None, traces)]
    except UserError as error:
        return Matched([], None, [f"kernels are not compared: {error}"])
    precision = next((one.facts.precision for one in baseline.repeats if one.facts is not None), None)
    found = match_tables(tables[0], tables[1], rate, precision)
    return msgspec.structs.replace(found, rank=traces[0][0].rank)


def another_size(work_ratio: float | None) -> str | None:
    """Return why kernels that launch so many times the blocks are of another batch; None where nothing says so."""
    if work_ratio is None or abs(work_ratio - 1) <= _SAME_BLOCKS:
        return None
    return f"the same kernels launch {work_ratio:.2f} times the blocks: another batch, or other sizes"


def work_ratio_of(baseline: Path, other: Path) -> float | None:
    """Return by how much more the same kernels of one rank have to do in OTHER's traces; None where nothing tells.

    Raises UserError where there are no traces.
    """
    sides = [{one.rank: one for one in find_windows(path)[0]} for path in (baseline, other)]
    shared = [rank for rank in sides[0] if rank in sides[1]]
    if not shared:
        return None
    here, there = (read_calls(side[shared[0]].path, side[shared[0]].device) for side in sides)
    return match_tables(here, there).work_ratio


def _trace_of(side: Measurement, rank: int | None) -> tuple[Source, tuple[int, int] | None] | None:
    """Return a rank's trace of the first window, and which of its steps count."""
    for window in side.windows:
        if traces := window.traces:
            chosen = traces.get(rank) if rank is not None else traces[min(traces)]
            return (chosen, window.only) if chosen is not None else None
    return None


def match_tables(here: CallTable, there: CallTable, rate: float = 1.0, precision: str | None = None) -> Matched:
    """Return the kernels of two steps side by side; `precision`: of the products, which says their peak."""
    if not here.calls or not there.calls:
        return Matched([], None, [])
    pairs, notes = _pairs(here, there)
    rows = _rows(pairs, rate)
    for at, row in enumerate(rows):
        bound = row.bound if here.device is not None else "unknown"  # of a CPU's caches no data sheet says
        expected = expected_ratio(bound, here.device, there.device, precision)
        rows[at] = msgspec.structs.replace(row, bound=bound, expected_ratio=expected)
    ratio = _work_ratio(pairs) if here.device == there.device else None
    resized = _resized(pairs, rate) if here.device == there.device else frozenset[str]()
    return Matched(rows, matched_share(pairs), notes, ratio, _alone(pairs, rate), resized)


def _pairs(here: CallTable, there: CallTable) -> tuple[list[_Pair], list[str]]:
    if min(here.named, there.named) < _NAMED or here.compiled != there.compiled:
        return _by_kernels(here, there), ["operators of one side were not recorded, or are compiled: kernels are "
                                          "matched by name, else by kind"]  # fmt: skip
    same, placed = align(here.calls, there.calls)
    pairs = [_Pair(here.calls[left], there.calls[right], _how(here.calls[left], there.calls[right]))
             for left, right in same]  # fmt: skip
    pairs += [_Pair(here.calls[left], there.calls[right], "place") for left, right in placed]
    left = {at for at, _ in [*same, *placed]}
    right = {at for _, at in [*same, *placed]}
    pairs += [_Pair(call, None, "only_baseline") for at, call in enumerate(here.calls) if at not in left]
    pairs += [_Pair(None, call, "only_other") for at, call in enumerate(there.calls) if at not in right]
    return pairs, []


def _how(here: Call, there: Call) -> MatchedBy:
    names = [sorted(kernel.name for kernel in call.kernels) for call in (here, there)]
    return "name" if names[0] == names[1] else "operator"


def _by_kernels(here: CallTable, there: CallTable) -> list[_Pair]:
    """Match single kernels by name and grid, in order; what is left over, kind by kind as a whole."""
    sides = [
        [Call(call.operator if call.kind == COMMUNICATION else None, (kernel,)) for call in table.calls
         for kernel in call.kernels] for table in (here, there)
    ]  # fmt: skip
    places: dict[tuple[str, int | None], list[int]] = {}
    for at, call in enumerate(sides[1]):
        places.setdefault((call.token, call.main.blocks), []).append(at)
    pairs: list[_Pair] = []
    left: list[Call] = []
    taken: set[int] = set()
    for call in sides[0]:
        rest = places.get((call.token, call.main.blocks))
        if rest:
            at = rest.pop(0)
            taken.add(at)
            pairs.append(_Pair(call, sides[1][at], "name"))
        else:
            left.append(call)
    right = [call for at, call in enumerate(sides[1]) if at not in taken]
    for kind in dict.fromkeys(call.kind for call in [*left, *right]):
        ours, theirs = ([call for call in side if call.kind == kind] for side in (left, right))
        by: MatchedBy = "kind" if ours and theirs else "only_baseline" if ours else "only_other"
        pairs.append(_Pair(_joined(ours), _joined(theirs), by))
    return pairs


def _joined(calls: Sequence[Call]) -> Call | None:
    return Call(None, tuple(kernel for call in calls for kernel in call.kernels)) if calls else None


def matched_share(pairs: Sequence[_Pair]) -> float:
    """Return the share of both sides' compute that has a counterpart."""
    whole = matched = 0.0
    for pair in pairs:
        us = sum(call.us for call in (pair.here, pair.there) if call is not None and call.kind != COMMUNICATION)
        whole += us
        matched += us if pair.here is not None and pair.there is not None else 0.0
    return matched / whole if whole else 0.0


def _alone(pairs: Sequence[_Pair], rate: float) -> dict[str, tuple[float, float]]:
    """Return by kind the time of kernels without one counterpart on the other side, µs: the baseline's and OTHER's."""
    found: dict[str, tuple[float, float]] = {}
    for pair in pairs:
        if pair.by not in _OF_KINDS:
            continue
        for side in _SIDES:
            call = pair.side(side)
            for kernel in call.kernels if call is not None and call.kind != COMMUNICATION else ():
                before, after = found.get(kind := kernel.kind, (0.0, 0.0))
                found[kind] = (before + kernel.us, after) if side == "here" else (before, after + rate * kernel.us)
    return found


def _resized(pairs: Sequence[_Pair], rate: float) -> frozenset[str]:
    """Return the kinds of which one side calls operators more often, each time with less to do: a batch in pieces."""
    both: dict[str, tuple[float, float]] = {}
    for pair in pairs:  # of one operator: another one at its place tells of no call's size
        if pair.here is not None and pair.there is not None and pair.here.token == pair.there.token:
            before, after = both.get(pair.here.token, (0.0, 0.0))
            both[pair.here.token] = (before + pair.here.us, after + rate * pair.there.us)
    whole: dict[tuple[str, _Side], float] = {}
    smaller: dict[tuple[str, _Side], float] = {}
    for pair in pairs:
        for at, side in enumerate(_SIDES):
            call, beside = pair.side(side), pair.side(_SIDES[1 - at])
            if call is None or beside is not None or call.kind == OPTIMISER:  # which knows of no batch
                continue
            own, others = (both.get(call.token, (0.0, 0.0))[which] for which in (at, 1 - at))
            key = (call.kind, side)
            whole[key] = whole.get(key, 0.0) + call.us
            smaller[key] = smaller.get(key, 0.0) + (call.us if own < _SMALLER * others else 0.0)
    return frozenset(key[0] for key, us in smaller.items() if us > _OF_BESIDES * whole[key])


def _work_ratio(pairs: Sequence[_Pair]) -> float | None:
    """Return by how much more the same kernels have to do: the median over pairs, each weighted by its time."""
    ratios = sorted(
        (pair.there.main.blocks / pair.here.main.blocks, pair.here.us)
        for pair in pairs
        if pair.by == "name"
        and pair.here is not None
        and pair.there is not None
        and pair.here.kind in _BY_ELEMENTS
        and pair.here.main.blocks
        and pair.there.main.blocks
    )
    half = sum(us for _, us in ratios) / 2
    for ratio, us in ratios:
        half -= us
        if half <= 0:
            return ratio
    return None


_RowKey = tuple[object, ...]


def _rows(pairs: Sequence[_Pair], rate: float) -> list[KernelChange]:
    """Join pairs of the same operator and kernels, size by size, into rows; most changed first."""
    joined: dict[_RowKey, list[_Pair]] = {}
    for pair, size in zip(pairs, _sizes(pairs), strict=True):
        joined.setdefault((*_label(pair), size), []).append(pair)
    changes = {key: _sum(own, "there") * rate - _sum(own, "here") for key, own in joined.items()}
    whole = sum(changes.values())
    rows = [_row(own, rate, changes[key] / whole if whole else None) for key, own in joined.items()]
    return sorted(rows, key=lambda row: -abs(row.other_us - row.baseline_us))


def _label(pair: _Pair) -> _RowKey:
    call = pair.here or pair.there
    assert call is not None
    names = [kernel_label(one.main.name) if one is not None else None for one in (pair.here, pair.there)]
    return (call.operator, call.kind, pair.by, *names)


def _sizes(pairs: Sequence[_Pair]) -> list[int]:
    """Return each pair's size among those of its operator and kernel, so that a row is of one size."""
    calls = [pair.here or pair.there for pair in pairs]
    sizes, _ = size_classes([call for call in calls if call is not None], [])
    return sizes


def _sum(pairs: Sequence[_Pair], side: _Side) -> float:
    return sum(call.us for pair in pairs if (call := pair.side(side)) is not None)


def _name_of(call: Call | None, *, whole: bool) -> str | None:
    """Return the kernel that takes the longest; of a whole kind, how many there are where they are several."""
    if call is None:
        return None
    several = len({kernel.name for kernel in call.kernels})
    return f"{several} kernels" if whole and several > 1 else kernel_label(call.main.name)


def _row(pairs: Sequence[_Pair], rate: float, share: float | None) -> KernelChange:
    first = pairs[0]
    call = first.here or first.there
    assert call is not None
    whole = first.by in _OF_KINDS and call.operator is None
    sides = [[one for pair in pairs if (one := pair.side(side)) is not None] for side in _SIDES]
    counts = [sum(len(one.kernels) for one in calls) if whole else len(calls) for calls in sides]
    before, after = _sum(pairs, "here"), rate * _sum(pairs, "there")
    per_call = [us / count if count else None for us, count in zip((before, after), counts, strict=True)]
    return KernelChange(
        operator=call.operator,
        kind=call.kind,
        matched_by=first.by,
        baseline_name=_name_of(first.here, whole=whole),
        other_name=_name_of(first.there, whole=whole),
        baseline_calls=counts[0],
        other_calls=counts[1],
        baseline_us=before,
        other_us=after,
        ratio=per_call[1] / per_call[0] if per_call[0] and per_call[1] is not None else None,
        share=share,
        bound="unknown" if whole else bound_of([one for calls in sides for one in calls]),
    )
