"""What a run's causes cost the reference of `--against`: a cause that it has not is there whatever noise there is."""

from collections.abc import Sequence

import msgspec

from scalescope.scaling.finding import Code, Finding, is_lost_in_noise

#: A cause that costs a reference less than this share of what it costs the run is none there.
_NONE_BESIDE = 0.1


def is_sure(finding: Finding) -> bool:
    """Tell whether a cause costs something for certain, whatever noise there is."""
    return bool(finding.ms) and bool(finding.low_ms) and not finding.at_most and not is_lost_in_noise(finding)


def is_not_in_reference(finding: Finding) -> bool:
    """Tell whether a cause is there for sure, and not in the reference."""
    told = finding.reference_ms
    return told is not None and is_sure(finding) and told < _NONE_BESIDE * (finding.ms or 0.0)


def beside_reference(findings: Sequence[Finding], references: Sequence[Sequence[Finding]]) -> list[Finding]:
    """Return a run's findings with what the same causes cost the references, whichever has most of each."""

    def most(code: Code, rank: int | None) -> float:
        return max((one.ms or 0.0 for own in references for one in own if (one.code, one.rank) == (code, rank)),
                   default=0.0)  # fmt: skip

    return [msgspec.structs.replace(one, reference_ms=most(one.code, one.rank)) for one in findings]
