"""How loading of all ranks stands to that of one rank which is told before it."""

from collections.abc import Sequence

from scalescope.report.text.late.together import whose
from scalescope.scaling.finding.finding import Finding


def of_one_rank(finding: Finding, findings: Sequence[Finding]) -> Finding | None:
    """Return the loading of some ranks beside which that of all is told; None where it stands alone."""
    if finding.code != "data_loading" or finding.rank is not None:
        return None
    return next((one for one in findings if one.code == "data_loading" and one.rank is not None), None)


def beside_one_rank(finding: Finding, findings: Sequence[Finding]) -> str:
    """Return, behind what all ranks' loading is called, whether it comes beside one rank's or is in part the same.

    What a rank loads for longer than the others is priced apart from what all of them load for. Where it is known by
    how late the rank is alone, nobody has told the two apart.
    """
    own = of_one_rank(finding, findings)
    if own is None:
        return ""
    longer = any(row.others_ms is not None for row in own.evidence)
    loads = "loads" if len(own.ranks) < 2 else "load"
    beside = f"beside what {whose(own)} {loads} longer" if longer else f"in part the same as {whose(own)}'s"
    return f" on all ranks, {beside}"
