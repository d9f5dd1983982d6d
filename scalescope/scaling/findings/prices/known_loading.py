"""Loading that comes unevenly, in a step that is known: what that step is longer by than one without it.

Workers make one step in so many wait for a batch, and a window of a few steps has more or fewer of those than come to
it. What the step takes without them is even, and the replay tells it.
"""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.prices.gain import Gain


def as_the_known_step_has_it(scene: Scene, gains: Sequence[Gain]) -> list[Gain]:
    """Return the gains, that of late batches less what the replayed steps are longer by than the known one.

    Only where no cost of recording makes them as long: what is longer is then the batches', or the machine's, and so
    far the interval reaches.
    """
    as_run, known = scene.analysis.as_run, scene.replayer.known_ns
    if as_run is None or as_run.reason != "not_reached" or known is None or not scene.replayer.graph.paced:
        return list(gains)
    loading = [one for one in gains if one.candidate.code == "data_loading" and one.candidate.seen is None]
    longer_ms = scene.step_ms - known.value / 1e6
    if len(loading) != 1 or longer_ms <= 0 or known.high / 1e6 >= scene.step_ms or loading[0].ms <= longer_ms:
        return list(gains)
    (one,) = loading
    half_ms = (known.high - known.low) / 2e6
    ms, off_ms = one.ms - longer_ms, math.hypot(half_ms, scene.replayer.replay.error * scene.step_ms)
    told = replace(one, ms=ms, low_ms=max(0.0, min(one.low_ms, ms - off_ms)), high_ms=max(ms + off_ms, one.ms))
    return [told if other is one else other for other in gains]
