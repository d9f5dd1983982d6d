"""What the ranks' traces say of the job that they are of: its size, what it runs on, whether it trains."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from scalescope.scaling.answer import DevicesOfRank, StepSource
from scalescope.scaling.rank.kernels import KernelTable
from scalescope.scaling.ranks.quality import lacks_its_device
from scalescope.scaling.ranks.summary import RankSummary
from scalescope.scaling.trace.kernel_kinds import OPTIMISER, kind_of


def devices_of(rank: int, one: RankSummary) -> DevicesOfRank:
    return DevicesOfRank(rank=rank, busy=list(one.busy), by_turns=sum(one.busy) <= _BY_TURNS * one.busy_any)


#: What keeps a rank whose file is there out of every mean; the first that holds is told.
_LEFT_OUT: tuple[tuple[Callable[[RankSummary], bool], str], ...] = (
    (lambda one: one.cut_off, "whose files are cut off"),
    (lambda one: one.timeless, "whose time stamps are lost"),
    (lambda one: one.launchless, "most of whose activities have lost their launch"),
    (lambda one: one.misscaled, "whose times are in another unit"),
    (lambda one: one.overlapping, "whose kernels' times cannot be those of a device"),
    (lambda one: one.nameless, "whose kernels have no names"),
    (lambda one: one.activityless, "of whose launches most have nothing in the trace"),
    (lambda one: True, "whose files hold nothing of what the job ran on"),
)


def left_out(summaries: Mapping[int, RankSummary], ranks: Sequence[int]) -> Iterator[str]:
    """Yield why ranks whose files are there are in no mean."""
    why = {rank: next(told for is_so, told in _LEFT_OUT if is_so(summaries[rank])) for rank in ranks}
    for _, told in _LEFT_OUT:
        if those := [rank for rank in ranks if why[rank] == told]:
            yield f"left out of every mean: {ranks_text(those)}, {told}"


def ranks_text(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


#: Devices whose kernels take no more in all than this times the time in which any runs take turns.
_BY_TURNS = 1.1
#: A larger world is no world but a damaged header, or a file's name that holds another number.
LARGEST_WORLD = 10_000_000


def world_size_of(summaries: Mapping[int, RankSummary]) -> int:
    sizes = [len(summaries), max(summaries) + 1, *(one.world_size or 0 for one in summaries.values())]
    return max(size for size in sizes if size <= max(LARGEST_WORLD, len(summaries)))


def step_source_of(summaries: Mapping[int, RankSummary]) -> StepSource | None:
    """Return what told the steps of most ranks; None where none has any."""
    told = Counter(one.evidence.steps for one in summaries.values() if one.evidence.steps is not None)
    return told.most_common(1)[0][0] if told else None


def backend_of(summaries: Mapping[int, RankSummary]) -> str | None:
    """Return by which library most ranks' devices talk, as their headers say: `nccl`, or `cpu:gloo,cuda:nccl`."""
    told = Counter(name for one in summaries.values() if (name := _of_device(one.backend, one.activity)))
    return told.most_common(1)[0][0] if told else None


def _of_device(backend: str, activity: str) -> str:
    by_device = dict(part.split(":", 1) for part in backend.lower().split(",") if ":" in part)
    return by_device.get("cpu" if activity == "cpu" else "cuda", "") if by_device else backend.lower()


_OF_GRADIENTS = re.compile(r"backward|(^|[^a-z])bwd|bwd_|[dw]grad|gradient|gamma_?beta", re.IGNORECASE)


def does_train(kernels: Mapping[int, KernelTable]) -> bool:
    """Tell by its kernels' or operators' names whether a job computes gradients, or steps an optimiser."""
    names = {name for table in kernels.values() for name in table.names}
    return any(kind_of(name) == OPTIMISER or _OF_GRADIENTS.search(name) for name in names)


def activity_of(summaries: Mapping[int, RankSummary]) -> Literal["gpu", "cpu"]:
    return "gpu" if any(one.activity == "gpu" or lacks_its_device(one) for one in summaries.values()) else "cpu"
