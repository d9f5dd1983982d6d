"""What a step's growth says of scaling: efficiency and its two factors, of studies and of plain traces alike.

Weak scaling (a rank has as much to do): T₁/Tₙ = (Ū₁/Ūₙ) × (PEₙ/PE₁), with T the step, Ū the mean rank's compute and PE
the parallel efficiency. Strong scaling (all have as much to do together): T₁/(n·Tₙ), with the compute of all ranks.
"""

from typing import Literal

from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.verdicts.waterfall import MeanStep

Scaling = Literal["weak", "strong"]


def compute_factor(scaling: Scaling, small: tuple[int, MeanStep], large: tuple[int, MeanStep]) -> float | None:
    """Return the small run's compute over the large one's: of the mean rank (weak scaling), or of all ranks (strong).

    Each as (world size, mean step).
    """
    compute = []
    for world_size, mean in (small, large):
        own = float(mean.parts[PARTS.index("compute")])
        compute.append(own if scaling == "weak" else own * world_size)
    return compute[0] / compute[1] if compute[1] else None


def scaling_of(small: tuple[int, MeanStep], large: tuple[int, MeanStep]) -> Scaling:
    """Return which scaling two runs are of, by whether the mean rank computes as long in both, or a share of it.

    For traces alone, which do not tell the batch. Each as (world size, mean step).
    """
    before, after = (float(mean.parts[PARTS.index("compute")]) for _, mean in (small, large))
    share = small[0] / large[0]
    return "strong" if before and after / before < share**0.5 else "weak"


def speedup_of(scaling: Scaling, small: tuple[int, float], large: tuple[int, float]) -> float:
    """Return how much more the large run does in the same time. Each as (world size, step in any unit of time)."""
    steps = small[1] / large[1]
    return steps * large[0] / small[0] if scaling == "weak" else steps
