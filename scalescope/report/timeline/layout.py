"""Where each lane of each rank stands, and in which colour each of its spans: for the picture and for the script."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scalescope.report.drawing import parts
from scalescope.report.drawing.palette import category
from scalescope.scaling.step_timeline import LaneSpans, RankTimeline, StepTimeline
from scalescope.scaling.trace import kernel_kinds as kinds

LEFT, TOP, WIDTH = 150, 30, 1120  # px: beside the lanes, above them, of all
_BETWEEN, _AFTER_RANK = 3, 15  # px

#: Kernel kinds that are drawn alike are never neighbours in the legend.
_SHADES = {
    kinds.MATMUL: "var(--part-compute)",
    kinds.ATTENTION: category(2),
    kinds.CONVOLUTION: category(5),
    kinds.RECURRENT: category(0),
    kinds.NORMALISATION: category(4),
    kinds.LOSS: category(3),
    kinds.EMBEDDING: category(0),
    kinds.SORTING: category(2),
    kinds.ELEMENTWISE: "var(--part-compute-more-work)",
    kinds.TRANSFORMS: category(1),
    kinds.COPIES: "var(--ideal)",
    kinds.OPTIMISER: category(1),
    kinds.OTHER: "var(--muted)",
}
WAIT, TRANSFER, UNSPLIT, COPY = (
    f"var({parts.BY_KEY[key].variable})"
    for key in ("exposed_wait", "exposed_transfer", "exposed_unsplit", "exposed_memory")
)
_PHASE = "var(--line)"

Kind = Literal["parts", "kernels", "collectives", "copies", "phases"]


@dataclass(frozen=True)
class Lane:
    """One lane. `spans` are of the rank's own clock; `begin` brings them onto everybody's. Times in ns."""

    kind: Kind
    label: str
    rank: str  # on a rank's first lane what the rank is called, else empty
    top: int  # px
    height: int  # px
    begin: int
    spans: LaneSpans


@dataclass(frozen=True)
class Layout:
    lanes: list[Lane]
    height: int  # px, of all
    length: int  # ns, from the first rank's begin to the last one's end


def lay_out(timeline: StepTimeline) -> Layout:
    """Return the lanes of all ranks, from the top; a lane that is empty on all ranks is left out on all."""
    on_cpu = timeline.activity == "cpu"
    lanes: list[Lane] = []
    top = TOP
    held = {kind for rank in timeline.ranks for kind, _, _, spans in _lanes(rank, on_cpu) if len(spans)}
    for rank in timeline.ranks:
        called = " · ".join((f"rank {rank.rank}", *rank.why))
        for kind, label, height, spans in _lanes(rank, on_cpu):
            if kind in held:
                lanes.append(Lane(kind, label, called, top, height, rank.begin, spans))
                called = ""
                top += height + _BETWEEN
        top += _AFTER_RANK
    return Layout(lanes, top, max((rank.begin + rank.length for rank in timeline.ranks), default=1))


def _lanes(rank: RankTimeline, on_cpu: bool) -> list[tuple[Kind, str, int, LaneSpans]]:
    return [
        ("parts", "the step", 16, rank.parts),
        ("kernels", "operators" if on_cpu else "kernels", 16, rank.kernels),
        ("collectives", "collectives", 12, rank.collectives),
        ("copies", "copies", 9, rank.copies),
        ("phases", "host", 12, rank.phases),
    ]


def colours_of(lane: Lane, timeline: StepTimeline) -> list[str]:
    """Return the colour of each span of a lane; of collectives that of what is transfer."""
    if lane.kind == "parts":
        return [f"var({parts.ALL[at].variable})" for at in lane.spans.what]
    if lane.kind == "kernels":
        return [kernel_shade(timeline.kinds[at]) for at in lane.spans.what]
    one = {"collectives": TRANSFER, "copies": COPY, "phases": _PHASE}[lane.kind]
    return [one] * len(lane.spans)


def kernel_shade(kind: str) -> str:
    """Return the colour of a kernel kind; kinds of a later version are drawn as any other."""
    return _SHADES.get(kind, _SHADES[kinds.OTHER])


def legends_of(timeline: StepTimeline) -> list[tuple[str, Sequence[tuple[str, str]]]]:
    """Return what the colours mean: by lane, the (name, colour) of what is drawn there."""
    counted = [part for at, part in enumerate(parts.ALL) if any(rank.parts_ns[at] for rank in timeline.ranks)]
    drawn = {timeline.kinds[at] for rank in timeline.ranks for at in rank.kernels.what}
    calls = {at < 0 for rank in timeline.ranks for at in rank.collectives.wait}
    moves = [("transfer", TRANSFER), ("wait", WAIT)] if False in calls else []
    return [
        ("the step", [(part.name, f"var({part.variable})") for part in counted]),
        (
            "operators" if timeline.activity == "cpu" else "kernels",
            [(one, _SHADES[one]) for one in _SHADES if one in drawn],
        ),
        ("collectives", [*moves, *([("wait and transfer in one", UNSPLIT)] if True in calls else [])]),
    ]
