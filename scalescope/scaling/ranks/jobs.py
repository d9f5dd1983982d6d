"""Which trace files are of one job: a folder may hold several, and their ranks must not be joined.

Two ranks are of different jobs where something contradicts that they are of one: both have the same rank; their headers
name another world size or another backend; one's device is NVIDIA's and the other's AMD's; their windows lie apart in
time (what is left of a file that is cut off tells that to 10 s only); or they compute different things. Names of files
are people's own choice: they only decide where a rank would fit into several jobs. A file joins the first job that
nothing contradicts.

Windows of one job are not to be joined either, where one rank's file is of another window than the other's: on one host
they share no time at all, though they exchange data; on several, whose clocks may differ, or without absolute times,
they have no step, no collective or no group in common besides, or no difference of the clocks brings their collectives
together (timing.py).

A file that is there twice counts once: two ranks never do the same in the same nanoseconds.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec

from scalescope.records.operations import PAIRWISE
from scalescope.scaling.answer import Apart
from scalescope.scaling.rank.records.element_reads import OF_A_LOOP
from scalescope.scaling.ranks.steps.common import NUMBERED
from scalescope.scaling.ranks.summary import RankReading, RankSummary
from scalescope.scaling.ranks.timing import Timed, Timing, timing_of
from scalescope.scaling.trace.sources import Source

#: Ranks of one job are profiled in the same steps, on clocks of several hosts that differ by less than this.
_APART_NS = 10_000_000_000
#: Absolute times are ns since 1970; a header without its base leaves small ones, which compare with nothing.
_ABSOLUTE_NS = 10**18
#: The share of the work that is in kernels of the same names. Two ranks of a GPT under DDP have 0.99, an
#: eager and a compiled one 0.69, a GPT and a ResNet-50 0.02.
_SAME_WORK = 0.15
#: Fewer kernels than this tell nothing of what a rank computes.
_TELLING_KERNELS = 20
#: So many ranks of each job say what tells two apart: the others are as they are.
_COMPARED = 8
#: What tells files apart: those of two jobs, then those of two windows, which may be of one; what tells most first.
_OF_JOBS: tuple[Apart, ...] = ("world_size", "backend", "vendor", "work", "rank")
_OF_WINDOWS: tuple[Apart, ...] = ("times", "steps", "collectives")


#: World size, backend and vendor, None where a file does not say.
_MadeBy = tuple[int | None, str | None, str | None]


class FoundJob(msgspec.Struct, frozen=True):
    """The files of one job: each with the rank it is of."""

    ranks: dict[int, RankReading]
    sources: tuple[Source, ...]
    is_window: bool = False  # it may well be the same job as the others', in steps that they do not hold
    apart: Apart | None = None  # what tells it from the first of them; of the first, from the second
    apart_ns: int | None = None  # what lies between their windows, where they do not overlap


class _File:
    """A file and what was read of it, with what tells it from others: worked out once, whatever it is laid beside."""

    def __init__(self, source: Source, reading: RankReading) -> None:
        self.source = source
        self.reading = reading
        self.summary = reading.summary
        self.rank = rank_of(source, reading.summary)
        self.vendor = _vendor(reading.summary.device)
        #: Where two files' are equal, none of these tells them apart; and whether what it computes may.
        self.made_by: _MadeBy = (self.summary.world_size, self.summary.backend or None, self.vendor)
        #: Whether its times say when what is in it ran.
        self.tells_when = not (self.summary.timeless or self.summary.misscaled or self.summary.overlapping)
        self.telling = (
            self.tells_when
            and not self.summary.nameless
            and not self.summary.cut_off
            and len(self.summary.kernels.names) >= _TELLING_KERNELS
        )
        windows = reading.summary.shares.windows if reading.summary.shares is not None else None
        self.span = (int(windows.edges[0]), int(windows.edges[-1])) if windows is not None else None
        self.numbers = set(windows.numbers) if windows is not None else set()

    @cached_property
    def timed(self) -> Timed:
        """Its collectives in order of time; of a file whose rank is known."""
        assert self.rank is not None
        return Timed(self.rank, self.summary.collectives)

    @cached_property
    def sequences(self) -> dict[tuple[str, tuple[int, ...]], set[int]]:
        """The numbers of its collectives by their group and its ranks; pairs of ranks count for themselves."""
        found: dict[tuple[str, tuple[int, ...]], set[int]] = {}
        for one in self.summary.collectives:
            if one.sequence is not None and one.group is not None and one.operation not in PAIRWISE:
                found.setdefault((one.group, one.group_ranks), set()).add(one.sequence)
        return found

    @cached_property
    def work(self) -> dict[str, float]:
        """Of each kernel the share of the rank's compute time, largest first; on CPUs of its operators, by number.

        An operator during which the core was another process's takes any time, and may be most of a short window.
        """
        kernels = self.summary.kernels.by_name()
        if self.summary.activity == "cpu":
            # a rank that alone reads a tensor value by value has a hundred times as many operators as the others
            found = {name: one.steps for name, one in kernels if name not in OF_A_LOOP}
        else:
            found = {name: one.total_ns for name, one in kernels}
        total = sum(found.values()) or 1.0
        return dict(sorted(((name, share / total) for name, share in found.items()), key=lambda one: -one[1]))


class _Job:
    """The files found to be of one job so far, with what tells of all of them at once that one more fits.

    Where it does not tell, the file is laid beside each of them: ranks of one job, however many, tell at once.
    """

    def __init__(self, first: _File) -> None:
        self.members: list[_File] = []
        self._made_by: set[_MadeBy] = set()
        self._ranks: set[int] = set()
        self._least_work: dict[str, dict[str, float]] = {}  # of each kernel, by activity, what each telling file has
        self._spans: tuple[int, int] | None = None  # when the last of them begins, and the first ends
        self._absolute = True  # all of these times are
        self.add(first)

    def add(self, one: _File) -> None:
        self.members.append(one)
        self._made_by.add(one.made_by)
        if one.rank is not None:
            self._ranks.add(one.rank)
        if one.telling:
            least = self._least_work.get(one.summary.activity, one.work)
            self._least_work[one.summary.activity] = {
                name: min(share, one.work[name]) for name, share in least.items() if name in one.work
            }
        if one.span is not None and one.tells_when:
            start, end = one.span[0], max(one.span)
            last_start, first_end = self._spans if self._spans is not None else (start, end)
            self._spans = max(last_start, start), min(first_end, end)
            self._absolute &= start >= _ABSOLUTE_NS

    def may_have(self, one: _File) -> bool:
        """Tell whether nothing contradicts that a file is of this job."""
        if one.rank is not None and one.rank in self._ranks:
            return False
        if any(_made_apart(one.made_by, made_by) is not None for made_by in self._made_by):
            return False
        fits = self._has_work_like(one) and self._overlaps(one)
        fits = fits or all(_apart(one, member) is None for member in self.members)
        return fits and not _never_run_together(one, self.members)

    def _has_work_like(self, one: _File) -> bool:
        least = self._least_work.get(one.summary.activity)
        return not one.telling or least is None or _is_same_work(one.work, least)

    def _overlaps(self, one: _File) -> bool:
        """Tell whether a file's window is known to share time with all the others."""
        if self._spans is None or one.span is None or not one.tells_when:
            return True
        last_start, first_end = self._spans
        return (
            self._absolute and one.span[0] >= _ABSOLUTE_NS and one.span[0] <= first_end and last_start <= max(one.span)
        )


def split_jobs(read: Sequence[tuple[Source, RankReading]]) -> list[FoundJob]:
    """Return the jobs that files are of, in the order of their first files; ranks ascend within each.

    A rank is what the header says, else the file's name, else the next that is free, in the order of the names.
    """
    jobs: list[_Job] = []
    for one in [_File(source, reading) for source, reading in read]:
        fitting = [job for job in jobs if job.may_have(one)]
        alike = [job for job in fitting if job.members[0].source.prefix == one.source.prefix]
        chosen = next(iter(alike or fitting), None)
        if chosen is None:
            jobs.append(_Job(one))
        else:
            chosen.add(one)
    found = [job.members for job in jobs]
    if len(found) == 1:
        return [FoundJob(_by_rank(found[0]), _sources(found[0]))]
    windows = all(_between(one, other) in _OF_WINDOWS for at, one in enumerate(found) for other in found[at + 1 :])
    told = []
    for at, members in enumerate(found):
        apart = _between(found[0] if at else found[1], members)
        gap = _gap_ns(found[0 if at else 1][0], members[0])
        later = gap if gap is not None and gap > 0 else None
        told.append(FoundJob(_by_rank(members), _sources(members), windows, apart, later))
    return told


def copies(read: Sequence[tuple[Source, RankReading]]) -> dict[str, str]:
    """Return of files that are there twice the later one's name, and which one it is once more."""
    first: dict[object, str] = {}
    found = {}
    for source, reading in read:
        mark = _mark(reading.summary)
        name = source.path.name
        if mark is not None and first.setdefault(mark, name) != name:
            found[name] = first[mark]
    return found


def _mark(summary: RankSummary) -> object:
    """Return what no other trace has; None where it tells too little, and of one of several devices of a file."""
    shares = summary.shares
    if shares is None or summary.of_file is not None or int(shares.windows.edges[0]) < _ABSOLUTE_NS:
        return None
    # on one device it is the same whatever rank it is said to be of
    return tuple(shares.windows.edges.tolist()), summary.evidence.events, summary.on_devices or summary.rank


def _sources(members: Sequence[_File]) -> tuple[Source, ...]:
    return tuple(one.source for one in members)


def rank_of(source: Source, summary: RankSummary) -> int | None:
    """Return which rank a file is of, as its header says, else its name; None where neither does."""
    return summary.rank if summary.rank is not None else source.rank


def _between(one: Sequence[_File], other: Sequence[_File]) -> Apart:
    """Return what tells two jobs or windows apart: of several things the one that tells most."""
    found = {_apart(left, right) for left in one[:_COMPARED] for right in other[:_COMPARED]}
    ranks = [{member.rank for member in members} - {None} for members in (one, other)]
    if ranks[0] & ranks[1]:
        found.add("rank")
    return next((kind for kind in (*_OF_JOBS, *_OF_WINDOWS) if kind in found), "collectives")


def _apart(one: _File, other: _File) -> Apart | None:
    """Return what contradicts that two files are of one window of one job, but for when their collectives ran."""
    if (made := _made_apart(one.made_by, other.made_by)) is not None:
        return made
    if _compute_different_things(one, other):
        return "work"
    if one.rank is not None and one.rank == other.rank:
        return "rank"
    return _lie_apart(one, other)


def _never_run_together(one: _File, job: Sequence[_File]) -> bool:
    """Tell whether no difference of clocks brings a rank's collectives and a job's together.

    The first of the job's ranks that has enough in common with it says so: of a mesh not every one shares a group.
    """
    if one.rank is None:
        return False
    near = one.timed.partners
    timings = (_timing(one, member) for member in job if near is None or member.rank in near)
    return next((timing for timing in timings if timing is not None), None) == "apart"


def _timing(one: _File, other: _File) -> Timing | None:
    if one.rank is None or other.rank is None:
        return None
    if any(file.summary.cut_off or not file.tells_when for file in (one, other)):
        return None
    if any(file.summary.evidence.lost_collectives or file.summary.lacks_times for file in (one, other)):
        return None  # those that are left, in their order, need not be each other's
    return timing_of(one.timed, other.timed)


def _made_apart(one: _MadeBy, other: _MadeBy) -> Apart | None:
    """Return what tells two files apart by what made them."""
    if one == other:
        return None
    kinds: tuple[Apart, ...] = ("world_size", "backend", "vendor")
    both = zip(kinds, one, other, strict=True)
    return next((kind for kind, own, its in both if own is not None and its is not None and own != its), None)


def _vendor(device: str | None) -> str | None:
    if device is None:
        return None
    lowered = device.lower()
    known = {"nvidia": "nvidia", "tesla": "nvidia", "geforce": "nvidia", "amd": "amd", "radeon": "amd", "gfx": "amd",
             "instinct": "amd"}  # fmt: skip
    return next((vendor for word, vendor in known.items() if word in lowered), None)


def _lie_apart(one: _File, other: _File) -> Apart | None:
    """Return what tells that two windows are not of the same steps: when they were, or which steps they hold."""
    left, right = one.summary, other.summary
    if one.span is None or other.span is None or not (one.tells_when and other.tells_when):
        return None
    gap = _gap_ns(one, other)
    if left.cut_off or right.cut_off:  # what such a file lacks would be another step's, or no step's
        return "times" if gap is not None and gap > _APART_NS else None
    if gap is None:
        return "steps" if _share_no_step(one, other) else None
    # ranks that exchange nothing keep no step with each other, and may do the same ones one after another
    in_step = bool(left.host) and left.host == right.host and bool(left.collectives) and bool(right.collectives)
    if gap > _APART_NS or (gap > 0 and in_step):
        return "times"
    return "steps" if gap > 0 and _share_no_step(one, other) else None


def _gap_ns(one: _File, other: _File) -> int | None:
    """Return what lies between two windows, ns, below 0 where they overlap; None without absolute times."""
    if one.span is None or other.span is None or min(one.span[0], other.span[0]) < _ABSOLUTE_NS:
        return None
    (first_start, first_end), (second_start, _) = sorted((one.span, other.span))
    return second_start - max(first_start, first_end)


def _share_no_step(one: _File, other: _File) -> bool:
    """Tell whether two ranks' windows have numbered steps, or collectives or groups of both, and none in common."""
    numbered = all(file.summary.evidence.steps in NUMBERED for file in (one, other))
    if numbered and one.numbers and other.numbers and not one.numbers & other.numbers:
        return True
    shared = one.sequences.keys() & other.sequences.keys()
    if shared and all(not one.sequences[group] & other.sequences[group] for group in shared):
        return True
    return _share_no_group(one.summary, other.summary)


def _share_no_group(left: RankSummary, right: RankSummary) -> bool:
    """Tell whether two ranks' collectives in groups that both belong to are of no group of the other's window."""
    both = {left.rank, right.rank}
    if None in both or len(both) < 2:
        return False
    own, other = (
        {(one.group, one.group_ranks) for one in summary.collectives if both <= set(one.group_ranks)}
        for summary in (left, right)
    )
    return bool(own and other) and not own & other


def _compute_different_things(one: _File, other: _File) -> bool:
    if one.summary.activity != other.summary.activity:
        return False  # of a job on devices, one trace may hold the host alone
    if not one.telling or not other.telling:
        return False
    return not _is_same_work(one.work, other.work)


def _is_same_work(work: Mapping[str, float], other: Mapping[str, float]) -> bool:
    common = 0.0
    for name, share in work.items():
        common += min(share, other.get(name, 0.0))
        if common >= _SAME_WORK:  # of ranks of one job, after a kernel or two
            return True
    return False


def _by_rank(members: Sequence[_File]) -> dict[int, RankReading]:
    found: dict[int, RankReading] = {}
    nameless = []
    for one in members:
        if one.rank is None:
            nameless.append(one.reading)
        else:
            found[one.rank] = one.reading
    for reading in nameless:
        found[next(rank for rank in range(len(found) + 1) if rank not in found)] = reading
    return dict(sorted(found.items()))
