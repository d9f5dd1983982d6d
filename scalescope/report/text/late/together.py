"""Several late ranks, in words: whose a finding is, and what mending it brings where others are late as well."""

from scalescope.report.drawing.numbers import milliseconds, rank_list
from scalescope.report.text.codes.evidence import is_of_several
from scalescope.report.text.cures.words import cure_text
from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.finding import AlsoLate, Finding, ranks_of
from scalescope.scaling.finding.kinds import is_hiding_on_cores
from scalescope.scaling.finding.sizes import evened_out

#: Less than this share of what all of them cost is next to nothing.
_NEXT_TO_NOTHING = 0.1


def whose(finding: Finding) -> str:
    """Return `rank 1`, or `ranks 0 and 2`; "" where it is nobody's alone."""
    return rank_list(ranks_of(finding))


def with_the_others(finding: Finding) -> str:
    """Return whose a cost is that is had of several ranks together."""
    also = finding.also_late
    return rank_list(sorted({*ranks_of(finding), *(also.ranks if also is not None else ())}))


def cost_together(finding: Finding, also: AlsoLate) -> str:
    """Return what a finding and those that are late beside it cost together, known as well as the finding's own."""
    whole = milliseconds(also.together_ms)
    if finding.at_least:
        return f"at least {whole}"
    if not finding.ms or finding.low_ms is None or finding.high_ms is None:
        return whole
    low, high = (also.together_ms * ms / finding.ms for ms in (finding.low_ms, finding.high_ms))
    return f"{whole} ({milliseconds(low)} to {milliseconds(high)})"


def provided(finding: Finding) -> str:
    """Return, behind a cost, what else must be mended, or given, for it to be had; "" where nothing must."""
    if is_hiding_on_cores(finding):
        need = "need" if finding.remedy is not None and finding.remedy.lacks_cores else "may need"
        return f", as the threads that move the data {need} the cores that compute"
    also = finding.also_late
    if also is None or also.order == "first":
        return ""
    ranks = rank_list(also.ranks)
    if not also.is_told:
        return (
            f" if {ranks}, of whose lateness nothing tells the cause, {'are' if len(also.ranks) > 1 else 'is'} in time"
        )
    are = f"{ranks} {'are' if len(also.ranks) > 1 else 'is'} mended"
    return f" once {are}" if also.order == "after" else f" if {are}, too"


def evened(finding: Finding) -> str:
    """Return how much of what ranks with more to do cost comes back where the others take it over; "" where what is to
    be done spreads nothing.
    """
    brings = evened_out(finding)
    return "" if brings is None else f"evening out the ranks' load brings {milliseconds(brings.ms or 0.0)}"


def then_the_latest(finding: Finding) -> str:
    """Return, behind what the latest rank costs, which is the latest then; "" where no other is late."""
    also = finding.also_late
    if also is None or also.order != "first":
        return ""
    are = f"{rank_list(also.ranks)} {'are' if len(also.ranks) > 1 else 'is'} the latest"
    least = "at least " if finding.at_least else ""
    return f"; then {are}, and mending {_all(finding, also)} brings {least}{milliseconds(also.together_ms)}"


def by_itself(finding: Finding) -> str:
    """Return, behind what is to be done on several ranks, what it brings on one alone; "" where it is for one."""
    if finding.ranks and finding.one_ms is not None and finding.ms:
        return f"; on one of them alone it brings {_little(finding.one_ms, finding.ms)}"
    also = finding.also_late
    if also is not None and also.order == "together":
        return f"; mended by itself it brings {_little(also.alone_ms, also.together_ms)}"
    return ""


#: What is to be done, on several ranks.
_ON_SEVERAL: dict[Cure, str] = {
    "look_at_rank": "find what launches that on {ranks} alone",
    "look_at_host": "find what holds the hosts of {ranks} up",
    "find_wait": "find what the hosts of {ranks} wait for there, or why they sleep",
    "find_python": "find what the hosts of {ranks} compute there, and do it less often",
    "collect_less": "let Python collect its garbage less often on {ranks}",
    "look_at_device": "see what else runs on the devices of {ranks}, and their clocks",
}


def cure_of(finding: Finding) -> str:
    """Return what is to be done about a finding that has a remedy, and on which ranks where it is of several."""
    if finding.remedy is None:
        return ""
    if not finding.ranks:
        return cure_text(finding.remedy, is_of_several(finding))
    ranks = rank_list(finding.ranks)
    told = _ON_SEVERAL.get(finding.remedy.cure)
    return f"on {ranks}, {cure_text(finding.remedy)}" if told is None else told.format(ranks=ranks)


def _little(ms: float, of_ms: float) -> str:
    return "next to nothing" if ms < _NEXT_TO_NOTHING * of_ms else f"no more than {milliseconds(ms)}"


def _all(finding: Finding, also: AlsoLate) -> str:
    return "both" if len(ranks_of(finding)) + len(also.ranks) == 2 else "all of them"
