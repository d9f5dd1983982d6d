"""Batches of worker processes that were not there when a host asked for them: it waited for their worker's pace.

To hand a batch over that is there takes time as well: it is unpickled, its memory mapped, tensor by tensor, by asking
the worker's process. Beside a device that is a fraction of a millisecond, or some, where a batch has many tensors or
the host is slow; where ranks compute on the cores that workers share, each question may take a turn of another process.
That lasts as long whatever the host did before, so it is nobody's pace, and such a batch is no lower limit of anything.

What is there shows by what the host does inside the wait: its first operator unpacks the first tensor of a batch that
has come. What lies behind that is handing over for sure, and tells how long it may take. So of ranks on CPUs a batch
was late where the host waited longer for its first tensor than handing over ever took, and than a turn. A shorter wait
is a worker's where it makes up for the host's own time: then batches are as far apart as ever, however long hosts take.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec

from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.replay.graph import LateBatch

#: Taking a batch that is there, out of a worker's queue, takes less, ns.
WAITS_NS = 500_000
#: Handing a batch over takes no longer beside a device, ns; a wait beyond that is a worker's. That waits are alike
#: while what lies between them is not shows from so many on: a window of five steps has four whole ones.
_HANDED_OVER_NS, _FEWEST_HANDED_OVER, _FEWEST_GAPS = 3_000_000, 4, 2
#: The host's own time varies by so much of a wait, at least, where waits that do not are telling; by less where these
#: hardly vary at all.
_VARIES, _VARIES_LITTLE = 0.3, 0.1
#: For so long a process keeps a core that others wait for, ns.
_TURN_NS = 4_000_000
#: A worker's pace shows where batches come so much more evenly than the host asks for them, of so many.
_MORE_EVENLY, _FEWEST = 0.5, 5
_FAR_MORE_EVENLY = 0.2
#: So many batches that are there in time tell how soon their worker makes one after another.
_FEWEST_IN_TIME = 2
#: Waits for a batch that are all no more than this share of what the host takes in between are none for its worker.
_LITTLE = 0.03


class Fetch(msgspec.Struct, frozen=True):
    """One wait for a batch of a worker process, ns on the record's clock."""

    call: int  # of the record: the first one that begins after the host asked
    asked: int
    wait: int  # until the first of it is there
    rest: int  # from then on


def late_batches(records: Mapping[int, RankRecord]) -> dict[int, list[LateBatch]]:
    """Return the batches that were late, by rank; ranks without any are left out."""
    fetches = {rank: _fetches(record) for rank, record in records.items()}
    rests = [one.rest for rank, own in fetches.items() if records[rank].activity == "cpu" for one in own]
    longest = max([_TURN_NS, *rests])
    short = [own for rank, own in fetches.items() if records[rank].activity != "cpu"]
    alike = _are_handed_over([own for own in short if own and max(one.wait for one in own) <= _HANDED_OVER_NS])
    late = {
        rank: _late(own, longest if records[rank].activity == "cpu" else WAITS_NS, alike=alike)
        for rank, own in fetches.items()
    }
    return {rank: own for rank, own in late.items() if own}


def _fetches(record: RankRecord) -> list[Fetch]:
    """Return the waits for batches of worker processes, each once, in order."""
    starts, ends = record.from_workers.starts.tolist(), record.from_workers.ends.tolist()
    found: list[Fetch] = []
    returned = record.calls[0].start if record.calls else 0
    span = 0
    for at, call in enumerate(record.calls):
        if call.start > returned:  # what the host does on the way to a call
            while span < len(starts) and ends[span] <= returned:
                span += 1
            while span < len(starts) and starts[span] < call.start:
                asked = max(starts[span], returned)
                there = min(ends[span], call.start)
                found.append(Fetch(at, asked, there - asked, ends[span] - there))
                if record.activity != "cpu" and ends[span] > call.start:
                    break  # what a device's host launches meanwhile unpacks nothing: it goes on waiting
                span += 1
        returned = max(returned, call.end)
    return found


def _late(fetches: list[Fetch], longest_ns: int, *, alike: bool) -> list[LateBatch]:
    """Return the late ones. `alike`: those of all ranks together, of which each may have too few, are handed over."""
    if longest_ns <= WAITS_NS:
        longest = max((one.wait for one in fetches), default=0)
        handed_over = longest <= _HANDED_OVER_NS and (alike or _are_handed_over([fetches]))
        least = longest + 1 if handed_over else WAITS_NS
    else:
        least = WAITS_NS if _keep_a_pace(fetches) else longest_ns
    rows = [row for row, one in enumerate(fetches) if one.wait >= least]
    if longest_ns > WAITS_NS:
        rows = [row for row in rows if not _was_handed_over_late(fetches, row, rows)]
    # several workers come one after another: of each so many batches one is late. One that is late by itself was
    # begun when those before it were there, so it is late after the one before it, not after the window's begin
    reach = max((right - left for left, right in pairwise(rows)), default=1)
    found = []
    before = -1
    for row in rows:
        since = max(before, row - reach)
        found.append(LateBatch(fetches[row].call, fetches[since].call if since >= 0 else -1))
        before = row
    return found


def _keep_a_pace(fetches: list[Fetch]) -> bool:
    """Tell whether batches come at a pace of their own: each wait makes up for what the host took before it."""
    if len(fetches) < _FEWEST or statistics.median(one.wait for one in fetches) < WAITS_NS:
        return False
    own = _between(fetches)
    apart = [one + after.wait for one, after in zip(own, fetches[1:], strict=True)]
    return statistics.pstdev(apart) <= _MORE_EVENLY * statistics.pstdev(own)


def _was_handed_over_late(fetches: list[Fetch], row: int, late: list[int]) -> bool:
    """Tell whether a batch that seems late had the time of more than one: its host took far longer than before those
    that follow, which were there.

    A worker with nothing ready makes these no sooner after one another than it made that one. So it was ready long
    before, and what took a turn longer than usual was handing it over.
    """
    end = next((one for one in late if one > row), len(fetches))
    own = _between(fetches)
    following = own[row : end - 1]
    if row == 0 or len(following) < _FEWEST_IN_TIME:
        return False
    return own[row - 1] - fetches[row].wait > max(following)


def _are_handed_over(ranks: list[list[Fetch]]) -> bool:
    """Tell whether waits last as long however long the host took before: a worker's pace would make up for that.

    Or are next to nothing beside it. `ranks`: each one's, none of which is long. A rank's are held against one another,
    and what all vary by together.
    """
    told = [own for own in ranks if len(own) > _FEWEST_GAPS]
    if sum(map(len, told)) < _FEWEST_HANDED_OVER:
        return False
    waits = [one.wait for own in told for one in own[1:]]
    varied, own = (_varies_by(rows) for rows in ([[one.wait for one in own[1:]] for own in told], map(_between, told)))
    # no worker's pace is so near to the host's own but by chance
    between = [one for own in told for one in _between(own)]
    if max(waits) <= _LITTLE * min(between):
        return True
    # where the host takes as long each time, neither varies, and nothing is told
    return any(
        own >= varies * statistics.median(waits) and varied <= evenly * own
        for varies, evenly in ((_VARIES, _MORE_EVENLY), (_VARIES_LITTLE, _FAR_MORE_EVENLY))
    )


def _varies_by(rows: Iterable[list[int]]) -> float:
    """Return the standard deviation of all values about the mean of their row."""
    return math.sqrt(statistics.fmean((one - statistics.fmean(row)) ** 2 for row in rows for one in row))


def _between(fetches: list[Fetch]) -> list[int]:
    """Return what the host took from each batch until it asked for the next one, ns."""
    return [after.asked - before.asked - before.wait for before, after in pairwise(fetches)]
