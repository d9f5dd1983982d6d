"""A figure that somebody gives for a device, who gives it, and what it is worth."""

from typing import Literal

import msgspec

from scalescope.records.scorecard.row import Conditions

SourceKind = Literal["data_sheet", "measured", "claim"]

#: impossible: above what physics allows, or not held by the memory. implausible: above 1.1 × the best published, or
#: more than a tenth off a formula's result. plausible: none of the others. far_below: less than half of the best
#: published, or of a formula's result.
#: self_contradictory: figures of one source exclude each other. not_comparable: counted otherwise than what stands
#: beside it (sparse against dense, fp8 against fp16, another batch).
ClaimVerdict = Literal[
    "impossible", "implausible", "plausible", "far_below", "self_contradictory", "not_comparable"
]  # fmt: skip


class ClaimSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who says so. `link` is an address, or a page of this project; None where it is not on record."""

    title: str
    kind: SourceKind
    link: str | None = None


class Claim(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One figure. `quantity` names an entry of `quantities.QUANTITIES`, which has its unit."""

    id: str
    source: str  # the id of a ClaimSource
    quantity: str
    value: float
    device: str | None = None  # as its driver or its data sheet spells it
    up_to: float | None = None  # of a range: its other end
    conditions: Conditions = Conditions()
    beside: str | None = None  # the claim that it is set against where it stands
    of: str | None = None  # of a ratio: the claim that is so much …
    over: str | None = None  # … of this one
    note: str | None = None

    @property
    def highest(self) -> float:
        return self.value if self.up_to is None else self.up_to


class JudgedClaim(msgspec.Struct, frozen=True):
    """A claim with its verdict and one line of arithmetic. `verdict` is None where there is nothing to hold it against.

    `limit` and `best` are in `unit_held`, in which figures are held against each other: GB/s of a bus where the claim
    tells milliseconds.
    """

    id: str
    device: str | None
    quantity: str
    value: float
    up_to: float | None
    unit: str
    conditions: Conditions
    limit: float | None
    limit_assumes: str | None
    best: float | None  # published
    best_source: str | None
    unit_held: str
    verdict: ClaimVerdict | None
    arithmetic: str
    source: str
    source_kind: SourceKind
    link: str | None
