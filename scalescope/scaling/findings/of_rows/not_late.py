"""A rank that computes longer in a window of CPUs, and is no later than the others in all of the job's steps.

On cores that others use, too, a window of a few steps is as it happened to be disturbed, and all of its steps may be so
alike. What slows a rank in each step makes it late in those that nobody recorded as well.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding.kinds import is_certain, is_late, is_of_steady_steps
from scalescope.scaling.finding.order import ranked


def without_ranks_in_time(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return the findings without slower compute of which all steps tell that it is not there, as large as it is said.

    What they neither tell nor rule out may cost nothing.
    """
    known = {one.rank: one for one in analysis.step_times.ranks} if analysis.step_times is not None else {}
    if analysis.activity != "cpu" or not known or analysis.pipelines:
        return list(findings)
    kept: list[Finding] = []
    for one in findings:
        rows = known.get(one.rank) if one.rank is not None else None
        if rows is None or one.ms is None or not may_be_ruled_out(one):
            kept.append(one)
            continue
        # behind a rank that is later for a cause of its own it may be slower all the same
        hidden_ms = max((other.ms or 0.0 for other in findings if _is_of_another(other, one.rank)), default=0.0)
        if rows.low_ms + hidden_ms > 0:
            kept.append(one)
        elif one.ms <= rows.high_ms + hidden_ms:
            kept.append(replace(one, low_ms=0.0))
    if kept == list(findings):
        return list(findings)
    first = [one for one in kept if one.code == "nothing"]
    priced = ranked([one for one in kept if one.ms is not None])
    return [*first, *priced, *(one for one in kept if one.ms is None and one.code != "nothing")]


def may_be_ruled_out(one: Finding) -> bool:
    """Tell whether a finding is one that steps beside the window may tell not to be there."""
    if one.code != "slower_compute" or one.rank is None or one.ranks:
        return False
    return not (is_certain(one) or is_late(one) or is_of_steady_steps(one))


def _is_of_another(one: Finding, rank: int | None) -> bool:
    return bool(ranks_of(one)) and rank not in ranks_of(one) and not one.at_most
