"""What is said of a change that other processes on the ranks' cores may have made."""

from collections.abc import Sequence

from scalescope.report.drawing.numbers import figure

#: Waiting for cores that is less of a step changes nothing.
WAITED = 0.02
#: … and what is less than so much of the change is told with the noise alone.
_MUCH_OF_IT = 0.25


#: What is said of a change where nothing tells it.
UNTOLD = " (or other processes had its cores meanwhile, which nothing tells)"
#: Sides wait for cores otherwise for a reason where one does so by this share of a step longer, and so many times as
#: long: runs of one job that nothing disturbed differed by up to 5% of it (34 runs of nine jobs on two cores).
_FAR_MORE, _TIMES = 0.15, 2.0
#: Why a rank waits for a core, as far as anything tells.
WHO_HAS_THEM = "which other processes or the job's own threads have"


def for_want_of_cores(change_ms: float, step_ms: float, waited_ms: Sequence[float | None], *, untold: bool) -> str:
    """Return how much of a step's change ranks waited for cores, where that is a good part of it, in brackets.

    `step_ms`: the mean of both sides; `waited_ms`: of a step there and here. `untold`: whether there are such hosts
    of which nothing tells it, so that all of the change may be of other processes.
    """
    if untold:
        return UNTOLD
    told = waits_more(change_ms, step_ms, waited_ms)
    return f" ({told})" if told else ""


def waits_more(
    change_ms: float, step_ms: float, waited_ms: Sequence[float | None], why: str = f", {WHO_HAS_THEM}"
) -> str:
    """Return the same, in words alone; `why`: what is known of those who have the cores, to stand behind it."""
    there, here = waited_ms
    if there is None or here is None:
        return ""
    more = here - there
    if more * change_ms <= 0 or abs(more) < max(_MUCH_OF_IT * abs(change_ms), WAITED * step_ms):
        return ""
    told = f"{figure(abs(more), 1)} ms {'more' if more > 0 else 'less'}"
    return f"ranks wait, in the mean, {told} of a step for a core{why}"


def is_the_cause(step_ms: float, waited_ms: Sequence[float | None]) -> bool:
    """Tell whether ranks wait for cores on one side by far longer than undisturbed runs of one job differ by."""
    known = sorted(ms for ms in waited_ms if ms is not None)
    return len(known) > 1 and known[1] - known[0] >= _FAR_MORE * step_ms and known[1] >= _TIMES * known[0]
