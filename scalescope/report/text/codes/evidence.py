"""A finding's evidence, row by row, for the sentences made of it."""

from scalescope.report.drawing.numbers import factor, listing, milliseconds, rank_list
from scalescope.scaling.finding.figures import (
    GOES_WITH_IT,
    IN_STEPS,
    LARGER_IN,
    LATE,
    LOADER_WORKERS,
    LONGER_BY,
    LONGER_IN,
    NOT_IN_STEPS,
    STEADY_STEPS,
    STEP_NUMBER,
    WAITED_THERE,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.finding.kinds import (
    is_of_one_step,
    is_of_profiled_steps,
    is_of_steady_steps,
    is_within_noise,
)

#: A cost that is larger than its cause by more than this share says why.
_BEYOND = 0.05
#: So many steps in a row are named one by one; more by their ends.
_A_ROW = 2
#: Less of what steps take longer than this share is not worth a word.
_HARDLY = 0.1


def row_of(finding: Finding, name: str) -> EvidenceRow | None:
    """Return a finding's row of a name."""
    return next((row for row in finding.evidence if row.name == name), None)


def first_of(finding: Finding, kind: str) -> EvidenceRow | None:
    """Return a finding's first row of a kind."""
    return next((row for row in finding.evidence if row.kind == kind), None)


def beyond(finding: Finding, how: str, otherwise: str) -> str:
    """Return the activity that a finding names, with its time and `how` it is beyond the others'."""
    row = first_of(finding, "activity")
    if row is None:
        return otherwise
    took = f", {milliseconds(row.ms)} a step" if row.ms is not None else ""
    return f"{row.name}{took}, {how}"


def beyond_its_cause_ms(finding: Finding) -> float:
    """Return by how much a cost is more than its cause takes, ms, where its interval does not say so; 0 where it does.

    A cost is an expectation with an interval. One that begins above its cause has what the others lose beside it.
    """
    named = next((row for row in finding.evidence if row.name not in (STEADY_STEPS, LATE) and row.ms is not None), None)
    if named is None or named.ms is None or finding.ms is None:
        return 0.0
    gaps = [row.ms for row in finding.evidence if row.name.startswith("gap_before ") and row.ms is not None]
    named_ms = sum(gaps) if named.name.startswith("gap_before ") else named.ms  # all of its places are named
    if finding.ms <= (1 + _BEYOND) * named_ms:
        return 0.0
    if row_of(finding, GOES_WITH_IT) is not None or finding.low_ms is None:
        return 0.0  # said, or not known
    if finding.low_ms <= named_ms or row_of(finding, LOADER_WORKERS) is not None:
        return 0.0  # the interval says so
    return finding.ms - named_ms


def is_on_cpu(finding: Finding) -> bool:
    return finding.remedy is not None and finding.remedy.on_cpu


def is_of_several(finding: Finding) -> bool:
    """Tell whether a finding is of several ranks alike: not of one, nor of a job that is one rank."""
    return finding.rank is None and not (finding.remedy is not None and finding.remedy.alone)


def host_does(finding: Finding, several: str, one: str) -> str:
    """Return whose host does something, and what it does: of several hosts, and of one."""
    if is_of_several(finding):
        return f"the hosts {several}"
    return f"{'the' if finding.rank is None else 'its'} host {one}"


def others(finding: Finding) -> str:
    """Return who does not do what a finding's rank does: the others, but for those that do less of it."""
    also = finding.also_late
    return f"the others, but for {rank_list(also.ranks)}," if also is not None and also.alike else "the others"


def computing(finding: Finding) -> str:
    """Return what computes: a device has kernels."""
    return "operators" if is_on_cpu(finding) else "kernels"


def longer(finding: Finding, otherwise: str) -> str:
    """Return `otherwise` with what the first row takes beyond the others."""
    row = finding.evidence[0] if finding.evidence else None
    return f"{otherwise}: +{milliseconds(row.ms)} a step" if row is not None and row.ms is not None else otherwise


def in_all_steps(finding: Finding) -> str:
    """Return what a cause of the profiled steps was sized by, where all steps tell."""
    late = row_of(finding, LATE)
    return f", and all {late.value:.0f} steps tell what it costs" if late is not None else ""


def in_some_steps(finding: Finding) -> tuple[str, str] | None:
    """Return in which profiled steps a cause is there, and by how much those are longer, in words."""
    row = row_of(finding, IN_STEPS)
    if row is None or row.ms is None or row.calls is None or row.value is None:
        return None
    if is_of_steady_steps(finding) and not is_of_profiled_steps(finding):
        return None
    if is_of_one_step(finding):
        return None  # beside which there are no others
    none = row_of(finding, NOT_IN_STEPS)
    which = f" ({numbers})" if (numbers := numbers_of(finding)) else ""
    beside = f", and in none of the job's {none.value:.0f} others," if none is not None and none.value else ""
    return f"in {row.calls:.0f} of {row.value:.0f} profiled steps{which}{beside}", milliseconds(row.ms)


def idle_words(finding: Finding, *, several: bool = False) -> str:
    """Return what one (`several`: do) does while nothing computes: of a host that computes itself no operator is known,
    and Python may be at work.
    """
    if is_on_cpu(finding):
        return "run no operator" if several else "runs no operator"
    return "keep nothing running" if several else "keeps nothing running"


#: What somebody does for longer in some steps, by the part of a step that is longer: one, and several.
_LONGER_AT = {
    "compute": ("computes", "compute"),
    "idle_data": ("loads data", "load data"),
}


def _longer_at(finding: Finding, part: str, *, several: bool) -> str:
    return _LONGER_AT[part][several] if part in _LONGER_AT else idle_words(finding, several=several)


def longer_parts(finding: Finding) -> dict[str, float]:
    """Return what of longer steps each part takes, ms, the largest first; nothing where one takes nearly all of it."""
    rows = [row for row in finding.evidence if row.name.startswith(f"{LONGER_BY} ") and row.ms is not None]
    return {row.name.removeprefix(LONGER_BY).strip(): row.ms or 0.0 for row in rows}


def longer_there_ms(finding: Finding) -> float:
    """Return what longer steps' largest part takes longer, ms: all of what these do, unless other parts take much."""
    row = row_of(finding, IN_STEPS)
    return next(iter(longer_parts(finding).values()), 0.0 if row is None else row.ms or 0.0)


def longer_there(finding: Finding) -> str:
    """Return the same in words."""
    return milliseconds(longer_there_ms(finding))


def longer_beside(finding: Finding, *, several: bool = False) -> str:
    """Return after a comma what else is longer in longer steps, beside the largest part; "" where nothing much is.

    `several`: whether what is said of that part has a plural before its verb.
    """
    told = [
        f"{_longer_at(finding, part, several=several)} for {milliseconds(ms)} longer"
        for part, ms in list(longer_parts(finding).items())[1:]
    ]
    return f", and {listing(told)}" if told else ""


def longer_in(finding: Finding) -> str:
    """Return after a comma the operator in which most of longer steps' compute lies; "" where no one has it."""
    row = next((row for row in finding.evidence if row.name.startswith(f"{LONGER_IN} ")), None)
    return "" if row is None else f", most of it in {row.name.removeprefix(LONGER_IN).strip()}"


def is_in_one_step(finding: Finding) -> bool:
    """Tell whether a cause is there in a single step."""
    row = row_of(finding, IN_STEPS)
    return row is not None and row.calls == 1


def numbers_of(finding: Finding) -> str:
    """Return the numbers of the steps that have a cause, a row of them by its ends; "" where they are not told."""
    at = [round(row.value) for row in finding.evidence if row.name == STEP_NUMBER and row.value is not None]
    if len(at) > _A_ROW and at[-1] - at[0] == len(at) - 1:
        return f"{at[0]} to {at[-1]}"
    return listing([str(step) for step in at])


def waited_there(finding: Finding) -> str:
    """Return what of longer steps their ranks waited for a core, after a comma; "" where nothing tells."""
    waited, row = row_of(finding, WAITED_THERE), row_of(finding, IN_STEPS)
    if waited is None or waited.ms is None or row is None or row.ms is None:
        return ""
    if waited.ms < _HARDLY * row.ms:
        return ", and waits for no core"
    return f", and waits {milliseconds(min(waited.ms, row.ms))} of that for a core, which others have"


def elements_of(finding: Finding) -> str:
    """Return how many times the elements operators work on: `1.56× the elements in aten::conv2d`; "" where that is not
    told.
    """
    rows = [row for row in finding.evidence if row.name.startswith(f"{LARGER_IN} ") and row.value is not None]
    alike: dict[str, list[str]] = {}
    for row in rows:
        alike.setdefault(factor(row.value or 0.0), []).append(row.name.removeprefix(LARGER_IN).strip())
    told = [f"{times} {'the elements ' * (at == 0)}in {listing(own)}" for at, (times, own) in enumerate(alike.items())]
    return listing(told)


def rare_steps_of(finding: Finding) -> EvidenceRow | None:
    """Return the row of long steps that are so few that nobody knows how often they come."""
    return long_steps_of(finding) if is_within_noise(finding) else None


def long_steps_of(finding: Finding) -> EvidenceRow | None:
    """Return the row of long steps where a finding is of the job's own steady ones."""
    of_rows = is_of_steady_steps(finding) and not is_of_profiled_steps(finding)
    row = row_of(finding, IN_STEPS) if of_rows else None
    return row if row is not None and row.calls is not None and row.value is not None else None
