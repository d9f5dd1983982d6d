"""Ranks that are late beside others of which nothing is told: what they cost is told without those.

Ranks that are late together cost what mending all of them brings. What the other rank does may be told of in another
way then, as of waits for cores, which all ranks have, or of a worker that is late: nobody could mend "rank 1, too".
"""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.finding.finding import Finding, ranks_of

#: What a rank brings by itself is told in place of what it brings with the others from this share of that on.
_WORTH_IT = 0.1


def without_untold(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings whose costs take no other rank to be mended than those that a finding is of.

    By itself a rank brings what the replay without its causes alone does; what is next to nothing then stays as it was.
    """
    named = {rank for one in findings for rank in ranks_of(one)}
    return [_by_itself(one) if _is_beside_untold(one, named) else one for one in findings]


def _is_beside_untold(one: Finding, named: set[int]) -> bool:
    return one.also_late is not None and not set(one.also_late.ranks) & named


def _by_itself(one: Finding) -> Finding:
    also = one.also_late
    if also is None or also.order == "first" or one.ms is None or also.alone_ms >= one.ms:
        return replace(one, also_late=None)  # the latest costs what it does, whatever is late behind it
    if one.ms <= 0 or also.alone_ms < _WORTH_IT * one.ms:
        return replace(one, also_late=replace(also, is_told=False))
    share = also.alone_ms / one.ms
    low, high, whole = (
        None if figure is None else share * figure for figure in (one.low_ms, one.high_ms, one.fraction)
    )
    return replace(one, ms=also.alone_ms, low_ms=low, high_ms=high, fraction=whole, also_late=None)
