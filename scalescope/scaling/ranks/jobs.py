"""Which trace files are of one job: a folder may hold several, and their ranks must not be joined.

Two ranks are of different jobs where something contradicts that they are of one: both have the same rank; their headers
name another world size or another backend; one's device is NVIDIA's and the other's AMD's; their windows lie apart in
time (what is left of a file that is cut off tells that to 10 s only); or they compute different things. Names of files
are people's own choice: they only decide where a rank would fit into several jobs. A file joins the first job that
nothing contradicts.

Windows of one job are not to be joined either, where one rank's file is of another window than the other's: on one host
they share no time at all, though they exchange data; on several, whose clocks may differ, or without absolute times,
they have no step, no collective or no group in common besides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.records.operations import PAIRWISE
from scalescope.scaling.answer import StepSource
from scalescope.scaling.ranks.summary import RankReading, RankSummary
from scalescope.scaling.trace.sources import Source

#: Ranks of one job are profiled in the same steps, on clocks of several hosts that differ by less than this.
_APART_NS = 10_000_000_000
#: Absolute times are ns since 1970; a header without its base leaves small ones, which compare with nothing.
_ABSOLUTE_NS = 10**18
#: What tells steps by a number that is the same on all ranks.
_NUMBERED: tuple[StepSource, ...] = ("profiler", "step_annotation")
#: The share of the work that is in kernels of the same names. Two ranks of a GPT under DDP have 0.99, an
#: eager and a compiled one 0.69, a GPT and a ResNet-50 0.02.
_SAME_WORK = 0.15
#: Fewer kernels than this tell nothing of what a rank computes.
_TELLING_KERNELS = 20


@dataclass(frozen=True)
class FoundJob:
    """The files of one job: each with the rank it is of."""

    ranks: dict[int, RankReading]
    sources: tuple[Source, ...]
    is_window: bool = False  # it may well be the same job as the others', in steps that they do not hold


def split_jobs(read: Sequence[tuple[Source, RankReading]]) -> list[FoundJob]:
    """Return the jobs that files are of, in the order of their first files; ranks ascend within each.

    A rank is what the header says, else the file's name, else the next that is free, in the order of the names.
    """
    found: list[list[tuple[Source, RankReading]]] = []
    for one in read:
        fitting = [job for job in found if all(_may_be_one_job(one, member) for member in job)]
        alike = [job for job in fitting if job[0][0].prefix == one[0].prefix]
        chosen = next(iter(alike or fitting), None)
        if chosen is None:
            found.append([one])
        else:
            chosen.append(one)
    windows = len(found) > 1 and all(
        not _are_two_jobs(one, other)
        for at, members in enumerate(found)
        for one in members
        for others in found[at + 1 :]
        for other in others
    )
    return [FoundJob(_by_rank(members), tuple(source for source, _ in members), windows) for members in found]


def rank_of(source: Source, summary: RankSummary) -> int | None:
    """Return which rank a file is of, as its header says, else its name; None where neither does."""
    return summary.rank if summary.rank is not None else source.rank


def _may_be_one_job(one: tuple[Source, RankReading], other: tuple[Source, RankReading]) -> bool:
    return not _are_two_jobs(one, other) and not _lie_apart(one[1].summary, other[1].summary)


def _are_two_jobs(one: tuple[Source, RankReading], other: tuple[Source, RankReading]) -> bool:
    left, right = one[1].summary, other[1].summary
    ranks = rank_of(one[0], left), rank_of(other[0], right)
    return (
        (ranks[0] is not None and ranks[0] == ranks[1])
        or _differ(left.world_size, right.world_size)
        or _differ(left.backend or None, right.backend or None)
        or _differ(_vendor(left.device), _vendor(right.device))
        or _compute_different_things(left, right)
    )


def _differ(left: object, right: object) -> bool:
    return left is not None and right is not None and left != right


def _vendor(device: str | None) -> str | None:
    if device is None:
        return None
    lowered = device.lower()
    known = {"nvidia": "nvidia", "tesla": "nvidia", "geforce": "nvidia", "amd": "amd", "radeon": "amd", "gfx": "amd",
             "instinct": "amd"}  # fmt: skip
    return next((vendor for word, vendor in known.items() if word in lowered), None)


def _lie_apart(left: RankSummary, right: RankSummary) -> bool:
    if left.shares is None or right.shares is None or left.timeless or right.timeless:
        return False
    spans = [(int(one.windows.edges[0]), int(one.windows.edges[-1])) for one in (left.shares, right.shares)]
    if min(start for start, _ in spans) < _ABSOLUTE_NS:
        return _share_no_step(left, right)
    (first_start, first_end), (second_start, _) = sorted(spans)
    gap = second_start - max(first_start, first_end)
    if left.cut_off or right.cut_off:  # what is left of a file, in no order of time, says little of when its window was
        return gap > _APART_NS
    # ranks that exchange nothing keep no step with each other, and may do the same ones one after another
    in_step = bool(left.host) and left.host == right.host and bool(left.collectives) and bool(right.collectives)
    return gap > _APART_NS or (gap > 0 and (in_step or _share_no_step(left, right)))


def _share_no_step(left: RankSummary, right: RankSummary) -> bool:
    """Tell whether two ranks' windows have numbered steps, or collectives or groups of both, and none in common."""
    numbered = all(one.evidence.steps in _NUMBERED for one in (left, right))
    if numbered and left.shares is not None and right.shares is not None:
        own, other = set(left.shares.windows.numbers), set(right.shares.windows.numbers)
        if own and other and not own & other:
            return True
    own_calls, other_calls = _sequences(left), _sequences(right)
    shared = own_calls.keys() & other_calls.keys()
    return (bool(shared) and all(not own_calls[group] & other_calls[group] for group in shared)) or (
        _share_no_group(left, right)
    )


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


def _sequences(summary: RankSummary) -> dict[tuple[str, tuple[int, ...]], set[int]]:
    """Return the numbers of a rank's collectives by their group and its ranks; pairs of ranks count for themselves."""
    found: dict[tuple[str, tuple[int, ...]], set[int]] = {}
    for one in summary.collectives:
        if one.sequence is not None and one.group is not None and one.operation not in PAIRWISE:
            found.setdefault((one.group, one.group_ranks), set()).add(one.sequence)
    return found


def _compute_different_things(left: RankSummary, right: RankSummary) -> bool:
    if left.activity != right.activity:
        return False  # of a job on devices, one trace may hold the host alone
    if left.timeless or right.timeless:
        return False
    shares = [_work_by_name(one) for one in (left, right)]
    if any(len(one) < _TELLING_KERNELS for one in shares):
        return False
    common = sum(min(share, shares[1].get(name, 0.0)) for name, share in shares[0].items())
    return common < _SAME_WORK


def _work_by_name(summary: RankSummary) -> dict[str, float]:
    """Return of each kernel the share of the rank's compute time; on CPUs of its operators, by number.

    An operator during which the core was another process's takes any time, and may be most of a short window.
    """
    found: dict[str, float] = {}
    for (name, _), kernel in summary.kernels.items():
        found[name] = found.get(name, 0.0) + (kernel.steps if summary.activity == "cpu" else kernel.total_ns)
    total = sum(found.values()) or 1.0
    return {name: share / total for name, share in found.items()}


def _by_rank(members: Sequence[tuple[Source, RankReading]]) -> dict[int, RankReading]:
    found: dict[int, RankReading] = {}
    nameless = []
    for source, reading in members:
        rank = rank_of(source, reading.summary)
        if rank is None:
            nameless.append(reading)
        else:
            found[rank] = reading
    for reading in nameless:
        found[next(rank for rank in range(len(found) + 1) if rank not in found)] = reading
    return dict(sorted(found.items()))
