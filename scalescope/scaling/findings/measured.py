"""Findings of a run that nobody replays: who the others wait for, step by step, and what that rank does meanwhile.

What it costs is the exposed wait that is measured, which is a part of what the others lose: their compute is slower
while collectives wait, and that is seen only against another run, or in a replay.
"""

import statistics
from collections.abc import Sequence

from scalescope.records.statistics import half_of_mean, is_beyond_chance
from scalescope.scaling.finding import INPUTS, Code, Cure, EvidenceRow, Finding, Remedy
from scalescope.scaling.verdicts.stragglers import DOING, Late

_CURES: dict[Code, Cure] = {
    "own_work": "look_at_rank",
    "more_work": "even_out",
    "slower_compute": "look_at_device",
    "data_loading": "load_ahead",
    "copies": "copy_ahead",
    "host_stall": "look_at_host",
    "unsteady": "measure_again",
}


def measured_findings(late: Sequence[Late], step_ms: float, *, ranks: int = 1, on_cpu: bool = False) -> list[Finding]:
    """Return a finding for each late rank, in their order; `on_cpu`: the ranks compute on cores that others may use."""
    return [
        _finding(one, step_ms, surely=not on_cpu or is_beyond_chance(one.beyond_ms, ranks * len(DOING))) for one in late
    ]


def _finding(late: Late, step_ms: float, *, surely: bool) -> Finding:
    half = half_of_mean(late.lost_ms)
    middle = statistics.fmean(late.lost_ms)
    own = EvidenceRow(kind="activity" if late.kernel else "figure", name=late.kernel or late.part, ms=late.excess_ms)
    waited = EvidenceRow(kind="figure", name="exposed_wait_of_others", ms=middle, share=middle / step_ms)
    inputs = () if late.inputs is None else (EvidenceRow(kind="figure", name=INPUTS, value=late.inputs),)
    return Finding(
        code=late.code,
        rank=late.rank,
        ms=middle,
        low_ms=max(0.0, middle - half) if surely else 0.0,
        high_ms=max(middle, min(middle + half, step_ms)),
        fraction=middle / step_ms,
        evidence=(*inputs, own, waited) if late.excess_ms > 0 else (waited,),
        remedy=Remedy(cure=_CURES[late.code]),
        backed="measured",
    )
