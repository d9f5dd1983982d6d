"""What causes that are operators cost at most, where all operators of CPUs are told as quicker than they were profiled.

Which of them fresh pages slowed, no trace says: those of a cause may be among the ones that were not.
"""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.finding.codes import ON_THE_DEVICE
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.prices.gain import Gain


def up_to_profiled_pace(scene: Scene, gains: Sequence[Gain]) -> list[Gain]:
    """Return gains whose operators may cost as much more as all of a step was slowed by in the mean."""
    as_run = scene.analysis.as_run
    slower = 0.0 if as_run is None or not as_run.step_ms else as_run.slowed_ms / as_run.step_ms
    return [
        replace(one, high_ms=one.ms + math.hypot(one.high_ms - one.ms, one.ms * slower))
        if slower > 0 and one.candidate.code in ON_THE_DEVICE and one.ms > 0
        else one
        for one in gains
    ]
