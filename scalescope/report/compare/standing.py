"""Where ranks' loops stand still for longer on one side of a comparison, in words."""

from collections.abc import Sequence

from scalescope.records.console import counted
from scalescope.records.statistics import digits_of
from scalescope.report.drawing.numbers import figure, listing, milliseconds
from scalescope.report.text.codes.host_places import BEFORE, placed
from scalescope.scaling.compare.answer import Comparison, GapChange
from scalescope.scaling.finding.finding import EvidenceRow

#: A loop that stands still for less than this share of what it does on the other side does not stand still there: any
#: loop does so for some microseconds, and how long is told beside it.
_NOTHING_BESIDE = 0.1
#: Ranks whose loops stand still for so much of what the first one's does are told with its figure.
_NEAR = 0.75
#: What is less of a step's sure change is no cause to name beside it.
NO_TRIFLE = 0.1
#: Two steps that are alike by chance are not known to the microsecond.
_MOST_DIGITS = 2
#: What comes behind a step's last operator.
_END = "the end of the step"


def stands_still(gaps: Sequence[GapChange], here: str, there: str) -> str:
    """Return on which side ranks' loops stand still, at which place, and for how long they do on the other."""
    most, others = gaps[0], len(gaps) - len(_alike(gaps))
    (less_ms, less), (more_ms, more) = sorted([(most.baseline_ms, here), (most.other_ms, there)])
    still = f"In {more} {_whose(gaps)} still for {milliseconds(more_ms)} of nearly every step {_place(most)}"
    elsewhere = f", and for longer or shorter at {counted(others, 'other place')}" if others else ""
    if less_ms >= _NOTHING_BESIDE * more_ms:
        return f"{still}, in {less} for {milliseconds(less_ms)}{elsewhere}"
    what = "they do not" if len(_alike(gaps)) > 1 else "it does not"
    return f"{still}, which {what} in {less} ({milliseconds(less_ms)}){elsewhere}"


def standing(answer: Comparison, here: str, there: str) -> str:
    """Return where ranks' loops stand still for longer, at the place that is most of it."""
    if not answer.gaps:
        return ""
    most = answer.gaps[0]
    more = "longer" if most.change_ms > 0 else "less long"
    low, high = sorted((abs(most.low_ms), abs(most.high_ms)))
    digits = min(_MOST_DIGITS, digits_of((high - low) / 2))
    others = len(answer.gaps) - len(_alike(answer.gaps))
    return (
        f"In nearly every step {_whose(answer.gaps)} still {figure(abs(most.change_ms), digits)} ms {more} "
        f"({figure(low, digits)} to {figure(high, digits)}) in {there} than in {here}, {_place(most)}"
        f"{f', and at {others} other places' if others else ''}"
    )


def is_no_trifle(gaps: Sequence[GapChange], answer: Comparison) -> bool:
    """Tell whether for how long loops stand still is worth a word beside a step's change that is beyond noise."""
    own = [one.change_ms for one in gaps if one.rank == gaps[0].rank]
    return abs(sum(own)) > NO_TRIFLE * abs(answer.change_ms or 0.0)


def _alike(gaps: Sequence[GapChange]) -> list[GapChange]:
    """Return those of the place that is most of it, one a rank: its figures are near those of the first."""
    first = gaps[0]
    own = [one for one in gaps if (one.before, one.place) == (first.before, first.place)]
    return [one for one in own if one.change_ms / first.change_ms >= _NEAR]


def _whose(gaps: Sequence[GapChange]) -> str:
    ranks = sorted({one.rank for one in _alike(gaps)})
    told = listing(list(map(str, ranks)))
    return f"rank {told}'s loop stands" if len(ranks) == 1 else f"the loops of ranks {told} stand"


def _place(gap: GapChange) -> str:
    """Return where a loop stands still, as an analysis says it."""
    before = gap.before if gap.before is not None else _END
    return placed(EvidenceRow(kind="operator", name=f"{BEFORE}{before}", place=gap.place))
