"""What the colour of a card's edge says: by what a verdict is judged, and from which share on it has which colour."""

from collections.abc import Sequence

from scalescope.report.drawing.numbers import percent
from scalescope.report.page import Card, JudgedBy, Stretch
from scalescope.report.sentences import FAIR, FAIR_LINKS, GOOD, GOOD_LINKS, Level

#: By what a card is judged: its bounds, and what they are of. Of a step, what is left beside what can be saved.
_BOUNDS: dict[JudgedBy, tuple[float, float]] = {
    "efficiency": (GOOD, FAIR),
    "step": (GOOD, FAIR),
    "reference": (GOOD, FAIR),
    "links": (GOOD_LINKS, FAIR_LINKS),
}
#: From which share of a step on that is lost an edge has which colour, from well to not.
_SHARES: dict[Level, str] = {
    "good": f"up to {percent(1 - GOOD, 0)}",
    "fair": f"more than {percent(1 - GOOD, 0)}",
    "poor": f"more than {percent(1 - FAIR, 0)}",
}
_UNKNOWN_BESIDE = "not judged: the machine was unsteady, or what differs from the reference may be noise"
_UNKNOWN = "not judged: the machine was unsteady, or there is nothing to judge it by"


def with_colours(cards: Sequence[Card]) -> list[Stretch]:
    """Return what the edges of a page's cards mean: an entry a colour and what is judged, as they come; of cards that
    nothing is judged of, none. Where all are judged by what a step loses, the other colours' bounds stand beside: that
    an edge is red, beyond 30%, says little to who does not know what an amber one is.
    """
    told = {card.verdict.level: "; ".join(_meanings(card.verdict.level, cards)) for card in cards if card.judged_by}
    if {card.judged_by for card in cards if card.judged_by} in ({"step"}, {"reference"}) and told.keys() & _SHARES:
        told = {level: told.get(level, share) for level, share in _SHARES.items()} | told
    return [Stretch("", f"var(--{level})", meaning) for level, meaning in told.items()]


def _meanings(level: Level, cards: Sequence[Card]) -> list[str]:
    own = [card.judged_by for card in cards if card.verdict.level == level and card.judged_by is not None]
    return list(dict.fromkeys(meaning(level, judged_by) for judged_by in own))


def meaning(level: Level, judged_by: JudgedBy) -> str:
    """Return what a colour says, e.g. `70% to 90% scaling efficiency`."""
    if level == "unknown":
        return _UNKNOWN_BESIDE if judged_by == "reference" else _UNKNOWN
    good, fair = _BOUNDS[judged_by]
    if judged_by == "step":  # of which is told how much may be saved
        least, most = percent(1 - good, 0), percent(1 - fair, 0)
        known = "to the causes that are listed, or waiting and idle"
        return {
            "good": f"up to {least} of the step is lost, or nothing is wrong",
            "fair": f"more than {least} of the step is lost: {known}",
            "poor": f"more than {most} of the step is lost: {known} with hardly a cause known",
        }[level]
    if judged_by == "reference":
        least, most = percent(1 - good, 0), percent(1 - fair, 0)
        beside = "of the step is lost beside the reference"
        by = f"{beside}: the step is so much longer, or to causes that the reference has not"
        return {"good": f"up to {least} {beside}", "fair": f"more than {least} {by}", "poor": f"more than {most} {by}"}[
            level
        ]
    what = "scaling efficiency" if judged_by == "efficiency" else "of what the links allow"
    told = {"good": f"{percent(good, 0)} or more", "fair": f"{percent(fair, 0)} to {percent(good, 0)}",
            "poor": f"below {percent(fair, 0)}"}[level]  # fmt: skip
    wrong = ", or wrong results" if judged_by == "links" and level == "poor" else ""
    return f"{told} {what}{wrong}"
