"""Which of a host's operators update parameters one at a time, by a loop of the user's own and no optimizer of torch's.

Behind a backward pass, and before the next forward pass, such a loop runs the same few operators for each parameter:
one of them comes about as often as the backward pass has made gradients. Nothing tells which tensors an operator has.
On CPUs what is in place and has no root gives nothing back, or little, as measured: momentum, averages of weights,
norms that are clipped. So what counts there makes tensors anew, which are gone with the next operator, or takes roots,
as Adam does. On devices each is a kernel, and a launch, for every parameter: there all of them count.
"""

import bisect
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import numpy as np

from scalescope.scaling.rank.records.long_way import Update
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.trace.intervals import Intervals, union
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

_GRADIENT, _NODE = "torch::autograd::AccumulateGrad", re.compile(r"\w+Backward\d*")
#: What torch says that it does itself there, and where the next pass begins.
_OPTIMIZER, _FORWARD = "Optimizer.", ".forward"
#: What a rule is made of, operator by operator. A name that ends in `_` writes in place.
_RULE = re.compile(
    r"aten::(mul|multiply|add|sub|subtract|rsub|div|divide|true_divide|addcmul|addcdiv|lerp|pow|square|sqrt|rsqrt"
    r"|reciprocal|neg|sign|abs|maximum|clamp\w*|zeros_like|ones_like|full_like|zero|fill|copy|where)_?"
)
#: What may lie within: norms of gradients and what reads them, views, and what DDP brings back from its buckets.
_BESIDE = re.compile(
    r"aten::(item|_local_scalar_dense|is_nonzero|norm|linalg_vector_norm|sum|clone|to|_to_copy|detach_?|alias"
    r"|view\w*|reshape|empty\w*|result_type|set_)|torch\.distributed\.ddp\.reducer::\w+"
)
#: What sets gradients to zero, which a loop may do behind the next batch.
_ZEROING = re.compile(r"aten::(zeros_like|zero_|fill_)")
_ROOTS = re.compile(r"aten::(r?sqrt|addcdiv)_?")
#: What writes what is there, and makes no tensor.
_IN_PLACE = re.compile(r"aten::\w+_")
#: Of what is no root so many make tensors anew, where a loop does that.
_ANEW = 1 / 3
#: For fewer parameters no loop tells itself apart. The rarest of its operators comes so many times as often as there
#: are any, at least and at most; what is rarer than these stands beside a loop, or is for a few of the parameters.
_FEWEST, _AS_OFTEN, _NO_OFTENER = 8, 0.5, 2.2
_BY_CHANCE, _RARE = 2, 0.03
#: Clipping tells itself apart by less: all gradients are squared, and summed up, and all scaled in place, once each and
#: nothing else. A few operators more are of the norm and the scale themselves. Gradients that are scaled by how many
#: passes they are of, behind a log of their norms, look the same: what it is, nobody is told.
_SQUARES, _SUMS, _SCALES = ("aten::pow", "aten::square", "aten::mul"), ("aten::sum",), ("aten::mul_", "aten::div_")
_FEWEST_CLIPPED, _OF_THE_NORM = 3, 4


def updating(record: RankRecord) -> set[int]:
    """Return a rank's activities that update parameters one by one, by an optimizer of torch's or by hand."""
    by_hand = {at for one in updated_by_hand(record) for at in one.activities}
    return by_hand.union(*record.long_way.single.values())


def updated_by_hand(record: RankRecord) -> list[Update]:
    """Return a rank's updates of parameters that give something back as one operator, ascending."""
    on_cpu = record.activity == "cpu"
    return [one for one in record.long_way.updates if not on_cpu or one.roots or one.anew or one.clips]


def loops_by_hand(record: RankRecord) -> list[Update]:
    """Return a host's loops over parameters, ascending, whether one operator gives something back of them or not."""
    found = (_update(record, *loop) for loop in _behind_backward(record))
    return [one for one in found if one is not None]


def over_parameters(record: RankRecord) -> set[int]:
    """Return the activities of a CPU's loops over parameters, whether one operator gives something back or not."""
    return {at for one in record.long_way.updates for at in one.activities} if record.activity == "cpu" else set()


def _is_over(often: Counter[str], parameters: int) -> bool:
    least = max(_BY_CHANCE, _RARE * often.total())
    rarest = min((one for one in often.values() if one > least), default=0)
    return parameters >= _FEWEST and _AS_OFTEN * parameters <= rarest <= _NO_OFTENER * parameters


def _clips(often: Counter[str], sums: int, parameters: int) -> bool:
    """Tell whether a loop squares, sums up and scales all gradients, once each, as clipping does, and nothing else."""
    squared = [name for name in _SQUARES if often[name] == parameters]
    scaled = [name for name in _SCALES if often[name] == parameters]
    if parameters < _FEWEST_CLIPPED or sums != parameters or len(squared) != 1 or len(scaled) != 1:
        return False
    rest = {name: times for name, times in often.items() if name not in (squared[0], scaled[0])}
    adds = max(0, rest.pop("aten::add", 0) - parameters) + max(0, rest.pop("aten::add_", 0) - parameters)
    return adds + sum(rest.values()) <= _OF_THE_NORM


def _update(record: RankRecord, rows: list[int], sums: int, parameters: int) -> Update | None:
    often = Counter(record.name[at] for at in rows)
    if record.activity == "cpu" and _clips(often, sums, parameters):
        return Update(record.step[rows[0]], tuple(rows), parameters, roots=False, anew=False, clips=True)
    if not _is_over(often, parameters):
        return None
    roots = any(_ROOTS.fullmatch(name) and 2 * times > parameters for name, times in often.items())
    arithmetic = {name: times for name, times in often.items() if not _ROOTS.fullmatch(name)}
    made = sum(times for name, times in arithmetic.items() if not _IN_PLACE.fullmatch(name))
    anew = made >= _ANEW * sum(arithmetic.values()) > 0
    return Update(record.step[rows[0]], tuple(rows), parameters, roots, anew)


def _behind_backward(record: RankRecord) -> Iterator[tuple[list[int], int, int]]:
    """Yield what runs in a row between a backward pass and the next forward pass, with how many sums lie within it, and
    that pass's parameters.
    """
    handed = sorted(call.start for call in record.calls if call.in_collective)
    own = [one for one in record.phases if one[2].startswith(_OPTIMIZER)]
    phases = union(Intervals(*(np.array([one[at] for one in own], np.int64) for at in range(2))))
    forwards = [begun for begun, _, name in record.phases if name.endswith(_FORWARD)]
    fetches, again = record.data.starts.tolist(), set(record.recomputed)
    row: list[int] = []
    sums, parameters, is_forward, is_fetched, before, step = 0, 0, True, False, 0, -1
    for at in (at for at, kind in enumerate(record.kind) if kind == COMPUTE and record.stream[at] == 0):
        start, name = record.start[at], record.name[at]
        if is_node := _is_node(name):
            parameters = (0 if is_forward else parameters) + (name == _GRADIENT)
            is_forward = is_fetched = False
            step = record.step[at]
        else:
            is_forward |= _any_between(forwards, before, start) or (at not in again and _multiplies(name))
            # what a step begins with is its batch's, image by image
            is_fetched |= record.step[at] != step or _any_between(fetches, before, start)
        elsewhere = is_node or is_forward or _any_within(phases, start)
        is_own = not elsewhere and bool((_ZEROING if is_fetched else _RULE).fullmatch(name))
        beside = not elsewhere and not is_fetched and bool(_BESIDE.fullmatch(name))
        behind = _any_between(handed, before, start) or (bool(row) and record.step[at] != record.step[row[0]])
        before = start
        if row and (behind or not (is_own or beside)):
            yield row, sums, parameters
            row = []
        if is_own:
            sums = sums if row else 0
            row.append(at)
        sums += name in _SUMS and bool(row)
    if row:
        yield row, sums, parameters


@cache
def _is_node(name: str) -> bool:
    return name == _GRADIENT or bool(_NODE.fullmatch(name))


def _multiplies(name: str) -> bool:
    return kind_of(name) in MULTIPLYING


def _any_between(instants: list[int], since: int, until: int) -> bool:
    return bisect.bisect_right(instants, until) > bisect.bisect_right(instants, since)


def _any_within(phases: Intervals, instant: int) -> bool:
    at = int(phases.starts.searchsorted(instant, side="right")) - 1
    return at >= 0 and instant < int(phases.ends[at])
