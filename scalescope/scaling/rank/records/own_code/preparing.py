"""Which of a CPU's operators the loop's own thread runs between a batch and its forward pass.

They make of the batch what the network takes: spectrograms, augmentation, noise. A loader's workers could run them
ahead, beside the step before. Torch annotates where the forward pass of a wrapped network begins; without that nothing
tells what comes before it.
"""

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence

from scalescope.scaling.rank.records.own_code.by_hand import updating
from scalescope.scaling.rank.records.record import RankRecord, data_between
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

#: Where the forward pass of a network begins that all ranks train.
_FORWARD = re.compile(r"(DistributedDataParallel|FullyShardedDataParallel)\.forward|FSDP::root_pre_forward")
#: What else the loop's thread says that it does there: no preparation.
OPTIMIZER, ZEROING = "Optimizer.step#", "Optimizer.zero_grad#"
#: A backward pass before the forward one: of another network, or of a micro-batch.
BACKWARD = re.compile(r"Backward\d*$|AccumulateGrad")
#: So many products, that take so much of the time, are the layers of a network, whose weights may change from step to
#: step: a generator's, a teacher's. A filter, or a change of basis, is a product or two.
_LAYERS, _MUCH = 4, 0.3


def preparing(record: RankRecord) -> list[int]:
    """Return what of a rank's activities prepare its steps' batches, ascending; none where nothing tells."""
    if record.activity != "cpu":
        return []
    found = of_no_network(record, (_between(record, *stretch) for stretch in _before_forward(record)))
    zeroing = updating(record) if found else set()  # what sets gradients to zero there
    return [at for at in found if at not in zeroing]


def of_no_network(record: RankRecord, stretches: Iterable[Iterable[int]]) -> list[int]:
    """Return the activities of those stretches that hold no layers of a network."""
    return [at for own in map(list, stretches) if not is_network(record, own) for at in own]


def _before_forward(record: RankRecord) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of what lies right before the steps' forward passes, behind the batch of each.

    Before a step's first one it may be there when the step begins; before further ones, as of micro-batches, it is
    fetched.
    """
    forward = [begun for begun, _, name in record.phases if _FORWARD.fullmatch(name)]
    fetched = record.data.ends
    for begun, over in zip(record.edges, record.edges[1:], strict=False):
        since = begun
        for until in forward[bisect.bisect_left(forward, begun) : bisect.bisect_left(forward, over)]:
            at = int(fetched.searchsorted(until, side="right")) - 1
            batch = int(fetched[at]) if at >= 0 else begun
            if batch > since or since == begun:
                yield max(since, batch), until
            since = until


def _between(record: RankRecord, begun: int, forward: int) -> Iterator[int]:
    """Yield the operators of a stretch; none where it holds more than preparation."""
    beside = [one for one in record.phases if begun < one[1] <= forward]
    if any(name.startswith(OPTIMIZER) for _, _, name in beside):
        return  # which of what follows it belongs to the step before nothing tells
    zeroing = [(since, until) for since, until, name in beside if name.startswith(ZEROING)]
    rows = range(bisect.bisect_left(record.start, begun), bisect.bisect_left(record.start, forward))
    # what travels there is a part of the step: embeddings that ranks share, or a figure
    if any(record.kind[at] != COMPUTE or BACKWARD.search(record.name[at]) for at in rows):
        return
    for at in rows:
        start, end = record.start[at], record.end[at]
        loads = 2 * data_between(record, start, end) > end - start
        if end <= forward and not loads and not any(since <= start < until for since, until in zeroing):
            yield at


def is_network(record: RankRecord, rows: Sequence[int]) -> bool:
    """Tell whether activities in a row are the layers of a network, most likely."""
    layers = [at for at in rows if kind_of(record.name[at]) in MULTIPLYING]
    took, whole = (sum(record.end[at] - record.start[at] for at in one) for one in (layers, rows))
    return len(layers) >= _LAYERS and took > _MUCH * whole
