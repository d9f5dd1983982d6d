"""All projections of a study: to the counts asked for, and, as a test, from its smaller counts to its larger ones."""

import math
from collections.abc import Sequence

import msgspec

from scalescope.scaling.costs.model import CostModel, NotKnown
from scalescope.scaling.costs.points import Launch
from scalescope.scaling.projected import Projected, Projection
from scalescope.scaling.projection.basis import Basis
from scalescope.scaling.projection.outlook import Outlook
from scalescope.scaling.projection.project import project


def projection_of(bases: Sequence[Basis], launches: Sequence[Launch], outlook: Outlook) -> Projection:
    """Return the projections and backtests of all series; what cannot be told is refused with its reason."""
    answer = Projection()
    for basis in bases:
        largest = max((run.world_size for run in basis.runs), default=1)
        for ranks in outlook.targets(largest):
            answer.points.append(_project(basis, launches, outlook, ranks))
        answer.backtests.extend(_backtests(basis, launches))
    return answer


def _project(basis: Basis, launches: Sequence[Launch], outlook: Outlook, ranks: int) -> Projected:
    try:
        return project(basis, CostModel(launches, outlook.topology), ranks)
    except NotKnown as reason:
        return Projected(
            series=basis.series,
            scaling="weak" if basis.scaling == "weak" else "strong",
            world_size=ranks,
            from_world_sizes=[run.world_size for run in basis.runs],
            refused=str(reason),
        )


def _backtests(basis: Basis, launches: Sequence[Launch]) -> list[Projected]:
    """Project each measured count from all smaller ones, two or more, by what they alone could know.

    Groups larger than what the smaller runs had are taken out of the sweeps, too. The measured step has its own
    scatter: it lies inside where both intervals together allow.
    """
    found = []
    for known in range(2, len(basis.runs)):
        part = Basis(basis.series, basis.scaling, basis.runs[:known])
        most = part.largest.world_size
        seen = [
            msgspec.structs.replace(launch, rows=[row for row in launch.rows if row.group_size <= most])
            for launch in launches
        ]
        for target in basis.runs[known:]:
            try:
                one = project(part, CostModel(seen), target.world_size)
            except NotKnown:
                continue
            assert one.step_ms is not None
            apart = target.step_ms - one.step_ms.value
            room = one.step_ms.high - one.step_ms.value if apart > 0 else one.step_ms.value - one.step_ms.low
            own = target.repeat_half_ms / math.sqrt(2) if math.isfinite(target.repeat_half_ms) else 0.0
            one.measured_step_ms = target.step_ms
            one.off = one.step_ms.value / target.step_ms - 1
            one.inside = abs(apart) <= math.hypot(room, own)
            found.append(one)
    return found
