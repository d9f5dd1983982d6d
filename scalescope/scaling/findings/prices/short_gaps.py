"""What many short gaps of one host cost at most: as long as they are.

They are taken out as what a launch is late by from half of their length on, compared with the other ranks: of a host
that launches a little later than the others nearly everywhere, that is all it is late by, wherever. But without gaps
no step is shorter by more than these are long: no path through it has them more than once.
"""

from msgspec.structs import replace

from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.replay.removal import GAP_NS


def as_long_as_they_are(gain: Gain) -> Gain:
    """Return what a cause brings, of one that is gaps shorter than any single one's that is a stall no more than they
    take in the mean step, or in the longest at most.
    """
    one = gain.candidate
    short = any(removal.what == "gaps" and 0 < removal.ns < GAP_NS for removal in one.removals)
    if not short or one.rank is None or not one.in_each_ms:
        return gain
    each = [max(0.0, ms) for ms in one.in_each_ms]
    most = sum(each) / len(each)
    return replace(gain, ms=min(gain.ms, most), low_ms=min(gain.low_ms, most), high_ms=min(gain.high_ms, max(each)))
