"""What a candidate brings, as far as it is priced."""

import msgspec

from scalescope.scaling.findings.candidate import Candidate

#: A cause that brings so much of the step is a finding however much steps differ.
LARGE = 0.03


class Gain(msgspec.Struct, frozen=True):
    """What a candidate brings, ms a step."""

    candidate: Candidate
    ms: float
    low_ms: float
    high_ms: float
    beside_ms: float = 0.0  # of it, what is not in the replayed steps: a cause of some steps is in others as well
