"""Steps of a window that came once, as the job's own steps tell: which, by how much, and what was done in them."""

from scalescope.records.console import counted
from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.report.text.codes.evidence import first_of, idle_words, longer_beside, numbers_of, row_of, waited_there
from scalescope.report.text.codes.hosts import stood_there
from scalescope.scaling.finding.figures import AS_MANY, HOST_SLOWED, IN_STEPS, LATE_RANK, NOT_IN_STEPS
from scalescope.scaling.finding.finding import Finding

#: What a rank does for longer in them, by what is longer.
_DOES = {
    "compute": "computes for longer in {it}",
    "idle_data": "loads data meanwhile",
    "idle_launch": "{idles} meanwhile",
}
#: What such steps leave open; and where recording may have made them as well.
_UNTOLD = {
    False: "which do not tell how often it comes",
    True: "while they were recorded: whether recording made it, or the job, they do not tell",
}


def is_known_once(finding: Finding) -> bool:
    """Tell whether a cause is there at one place of the window, and in none of the job's own steps, which are known."""
    row = row_of(finding, NOT_IN_STEPS)
    return row is not None and bool(row.value) and row_of(finding, IN_STEPS) is not None


def once_sentences(finding: Finding) -> str:
    """Return which steps came once, by how much they are longer and what was done in them; without a full stop."""
    row, others = row_of(finding, IN_STEPS), row_of(finding, NOT_IN_STEPS)
    if row is None or others is None or row.ms is None:
        return ""
    count, whole = round(row.calls or 0.0), round((row.value or 0.0) + (others.value or 0.0))
    which, numbers = counted(count, "step"), numbers_of(finding)
    if numbers:
        which = f"step {numbers}" if count == 1 else f"each of steps {numbers}"
    mean = f"{milliseconds(finding.ms or 0.0)} a step in the mean"
    if finding.fraction:
        step_ms = (finding.ms or 0.0) / finding.fraction
        mean += f", {percent(finding.fraction)} of the {milliseconds(step_ms)} mean step"
    return (
        f"{which} took {milliseconds(row.ms)} longer than the job's {whole - count} others: {mean}. {_doing(finding)}. "
        f"That came once in {whole} steps, {_UNTOLD[_is_compute(finding)]}"
    )


def _is_compute(finding: Finding) -> bool:
    """Tell whether operators take longer in them, on all ranks: recording, which the job's others lack, may do that."""
    longer_by = first_of(finding, "figure")
    alone = finding.rank is not None or row_of(finding, LATE_RANK) is not None
    return longer_by is not None and longer_by.name == "compute" and not alone


def _doing(finding: Finding) -> str:
    whose, longer_by = row_of(finding, LATE_RANK), first_of(finding, "figure")
    rank = finding.rank if whose is None or whose.value is None else round(whose.value)
    slowed = row_of(finding, HOST_SLOWED)
    if slowed is not None and slowed.value is not None:
        host = "Every host" if rank is None else f"Rank {rank}'s host"
        return f"{host} takes {slowed.value:.1f} times as long for everything{waited_there(finding)}"
    does = _DOES.get(longer_by.name if longer_by is not None else "", "takes longer")
    alone = (row.calls if (row := row_of(finding, IN_STEPS)) is not None else 0) == 1
    does = does.format(it="it" if alone else "them", idles=idle_words(finding))
    does += ", by as many operators" if row_of(finding, AS_MANY) is not None else ""
    own = longer_by is not None and longer_by.name == "idle_launch"
    who = ("Every rank" if rank is None else f"Rank {rank}") + ("'s host" if own else "")
    return f"{who} {does}{stood_there(finding)}{longer_beside(finding)}{waited_there(finding)}"


def one_step_of(finding: Finding) -> str:
    """Return by how much one step of many is longer, which is no cost of the others, in words."""
    row = next(row for row in finding.evidence if row.name == IN_STEPS)
    longer = f"{milliseconds(row.ms or 0.0)} longer{f' on rank {finding.rank}' if finding.rank is not None else ''}"
    return f"one step of {row.value:.0f} took {longer}, which tells nothing of the others"
