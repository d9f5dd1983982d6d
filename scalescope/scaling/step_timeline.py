"""timeline.json.gz: one step of a run, rank beside rank, to be drawn. It would swell the analysis.json beside it.

Times are integer ns since the begin of the rank's own device step.
"""

import gzip
import zlib
from pathlib import Path
from typing import Literal

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.files import UNDECODABLE, refuse_huge_integers, refuse_special, write_atomic

SCHEMA = 1
#: No timeline of ours is longer, uncompressed.
_MOST_BYTES = 32 << 20

#: Why a rank is shown: the others wait for it, or will in their next step; it is like most, or it comes first.
Why = Literal["late", "cause", "typical", "first"]


#: Which step is drawn: a typical one, or one that shows what comes first of the findings, which is of steps that recur,
#: of some steps, or of some of several windows.
Shows = Literal["typical", "recurring", "some_steps", "some_windows"]


class Shown(msgspec.Struct, frozen=True):
    """The steps of which one shows what comes first of the findings."""

    shows: Shows
    steps: frozenset[int]
    every: int | None = None  # of those that recur: every so manieth
    rank: int | None = None  # whose doing it is


class LaneSpans(msgspec.Struct, kw_only=True):
    """What runs on one lane, ascending by begin: columns of one length."""

    start: list[int] = []  # ns
    length: list[int] = []  # ns
    what: list[int] = []  # index into the parts of a step, or into the timeline's names
    count: list[int] = []  # how many each stands for; empty where each stands for itself

    def __len__(self) -> int:
        return len(self.start)


class Calls(LaneSpans, kw_only=True):
    """Collectives: of each, how long it waits before its data can be there, ns; -1 where that is not known."""

    wait: list[int] = []
    bytes: list[int] = []  # of the larger buffer; -1 where the trace does not say


class RankTimeline(msgspec.Struct, kw_only=True):
    """One rank's step. `parts` is its partition: what each instant counts for."""

    rank: int
    why: list[Why] = []  # why it is shown, where not all are
    begin: int  # ns after the first of the ranks shown begins its step, on one clock
    length: int  # ns
    parts_ns: list[int]  # in the order of answer.PARTS, exact; they add up to `length`
    parts: LaneSpans = msgspec.field(default_factory=LaneSpans)
    kernels: LaneSpans = msgspec.field(default_factory=LaneSpans)  # on CPUs: operators
    collectives: Calls = msgspec.field(default_factory=Calls)
    copies: LaneSpans = msgspec.field(default_factory=LaneSpans)
    phases: LaneSpans = msgspec.field(default_factory=LaneSpans)  # what the host's loop says it does meanwhile


class StepTimeline(msgspec.Struct, kw_only=True):
    """One of the steps recorded, of all ranks or of those that matter: which one, `shows` says."""

    schema: int = SCHEMA
    run: str
    activity: Literal["gpu", "cpu"]
    step: int
    step_ms: float  # of the mean rank shown
    median_ms: float  # over the steps, of the same ranks
    steps: int  # that all ranks recorded whole
    shows: Shows = "typical"
    every: int | None = None  # it recurs in every so manieth step
    like_it: int | None = None  # so many of `steps` show the same; None: any is a typical one
    names: list[str] = []
    kinds: list[str] = []  # of kernels (trace/kernel_kinds.py), name by name; "" of all others
    ranks: list[RankTimeline] = []
    left_out: int = 0  # ranks that are not shown
    merged_below_ns: int = 0  # neighbours within so many ns are one span; 0: every one stands for itself


def write_timeline(path: Path, timeline: StepTimeline | None) -> None:
    """Write a timeline whole, the same bytes for the same one; without any, remove what is left of an older one.

    Raises OSError.
    """
    if timeline is None:
        path.unlink(missing_ok=True)
        return
    write_atomic(path, gzip.compress(msgspec.json.encode(timeline), mtime=0))


def read_timeline(path: Path) -> StepTimeline | None:
    """Return the timeline at a path; None where there is none. Raises UserError for what is no timeline of ours."""
    refuse_special(path)
    try:
        inflater = zlib.decompressobj(wbits=31)
        content = inflater.decompress(path.read_bytes(), _MOST_BYTES)
        if inflater.unconsumed_tail:
            raise msgspec.DecodeError("it is longer than a timeline can be")
        refuse_huge_integers(content)
        return _whole(msgspec.json.decode(content, type=StepTimeline))
    except FileNotFoundError:
        return None
    except (zlib.error, OSError, *UNDECODABLE) as error:
        raise UserError(f"{path}: {error}; make it anew with: scalescope analyze {path.parent}") from error


def _whole(timeline: StepTimeline) -> StepTimeline:
    """Return a timeline whose columns fit each other. Raises msgspec.DecodeError where they do not."""
    names = len(timeline.names)
    for rank in timeline.ranks:
        lanes = ((rank.parts, len(rank.parts_ns)), *((lane, names) for lane in _named(rank)))
        for lane, most in lanes:
            count = len(lane)
            columns = [lane.length, lane.what, *([lane.count] if lane.count else [])]
            columns += [lane.wait, lane.bytes] if isinstance(lane, Calls) else []
            if any(len(column) != count for column in columns) or not all(0 <= at < most for at in lane.what):
                raise msgspec.DecodeError("its columns do not fit each other")
    if len(timeline.kinds) != names:
        raise msgspec.DecodeError("its columns do not fit each other")
    return timeline


def _named(rank: RankTimeline) -> tuple[LaneSpans, ...]:
    return rank.kernels, rank.collectives, rank.copies, rank.phases
