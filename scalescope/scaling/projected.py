"""A step on more ranks than were measured, as analysis.json has it."""

from typing import Literal

import msgspec

from scalescope.scaling.costs.interval import Interval


class ProjectedPart(msgspec.Struct, frozen=True):
    """One part of a projected step: what it is in the largest measured run, and by how much it is said to change."""

    part: str  # of PARTS, or `rest`
    from_ms: float  # in the traces
    change_ms: Interval
    assumes: str


class Projected(msgspec.Struct, kw_only=True):
    """A series' step on a number of ranks that was not measured, or not used: then it stands beside the measured."""

    series: str
    scaling: Literal["weak", "strong"]
    world_size: int
    from_world_sizes: list[int]
    step_ms: Interval | None = None  # None: refused
    efficiency: Interval | None = None  # over the smallest count of the series
    samples_per_s: Interval | None = None
    parts: list[ProjectedPart] = []
    assumed: list[str] = []  # beyond the measurements and each part's own law
    refused: str | None = None
    measured_step_ms: float | None = None  # of a backtest
    off: float | None = None  # projected over measured, minus 1
    inside: bool | None = None


class Projection(msgspec.Struct, kw_only=True):
    """The step on more ranks, and how projections from fewer ranks came out beside what was measured."""

    model: str = "trace replay with fitted costs, scalescope 1"
    points: list[Projected] = []
    backtests: list[Projected] = []
