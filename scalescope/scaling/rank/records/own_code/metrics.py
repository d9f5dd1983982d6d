"""Which of a CPU's operators the loop's own thread runs behind the optimizer's step, for no gradient and no update.

They look at what the step made: accuracies, confusion matrices, histograms, images to be logged. Torch annotates its
optimizers' steps; without that nothing tells where a step has done what it is for.
"""

import bisect
import re
from collections.abc import Iterator, Sequence

from scalescope.scaling.rank.records.own_code.by_hand import over_parameters
from scalescope.scaling.rank.records.own_code.preparing import BACKWARD, OPTIMIZER, ZEROING, of_no_network
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE

#: Where the forward pass of a network begins, of whichever.
FORWARD = re.compile(r".*\.forward|FSDP::root_pre_forward")
#: Operators on lists of tensors: of parameters, as averages of weights and gradients that are zeroed are made.
_OF_LISTS = "aten::_foreach_"


def behind_updates(record: RankRecord) -> list[int]:
    """Return what of a rank's activities look at what its steps made, ascending; none where nothing tells."""
    if record.activity != "cpu":
        return []
    found = of_no_network(record, (_between(record, *stretch) for stretch in _behind_updates(record)))
    others = over_parameters(record) if found else set()  # averages of weights, and updates by hand
    return [at for at in found if at not in others]


def _behind_updates(record: RankRecord) -> Iterator[tuple[int, float]]:
    """Yield (begin, end) of what lies between the last update of a step and the next batch, or pass."""
    updates = [(over, begun) for begun, over, name in record.phases if name.startswith(OPTIMIZER)]
    updates.sort()
    forward = [begun for begun, _, name in record.phases if FORWARD.fullmatch(name)]
    fetched = record.data.starts.tolist()
    updated = False
    for begun, over in zip(record.edges, record.edges[1:], strict=False):
        batch, passing = _first(fetched, begun), _first(forward, begun)
        if updated and batch < min(passing, over):
            yield begun, batch  # a loop that says that its step ends right behind the update looks at it then
        own = updates[bisect.bisect_right(updates, (begun, over)) : bisect.bisect_right(updates, (over, over))]
        updated = bool(own)
        if own:
            since = own[-1][0]
            yield since, min(over, _first(fetched, since), _first(forward, since))


def _first(instants: Sequence[int], since: int) -> float:
    at = bisect.bisect_left(instants, since)
    return instants[at] if at < len(instants) else float("inf")


def _between(record: RankRecord, begun: int, over: float) -> Iterator[int]:
    """Yield the operators of a stretch; none where it is another network's step."""
    zeroing = [(since, until) for since, until, name in record.phases if name.startswith(ZEROING) and since < over]
    rows = range(bisect.bisect_left(record.start, begun), bisect.bisect_left(record.start, over))
    if any(BACKWARD.search(record.name[at]) for at in rows):
        return
    for at in rows:
        start = record.start[at]
        if record.kind[at] != COMPUTE or record.stream[at] != 0 or record.name[at].startswith(_OF_LISTS):
            continue
        if not any(since <= start < until for since, until in zeroing):
            yield at
