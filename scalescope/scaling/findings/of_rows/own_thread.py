"""The thread of a rank's own process that holds the interpreter's lock, named where the job saw it."""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.records.steps.busy_threads import BusyThread
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.figures import LOCK_WAITS, OWN_THREAD
from scalescope.scaling.finding.finding import EvidenceRow, Finding, ranks_of

#: A thread that uses less of a core holds the lock too seldom to be waited for in each step.
_MUCH = 0.2


def with_own_threads(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return the findings, those of waits for the interpreter's lock with the busiest thread that may hold it."""
    return [_with_thread(one, analysis.busy_threads) for one in findings]


def _with_thread(one: Finding, threads: Sequence[BusyThread]) -> Finding:
    names = {row.name.split(" ")[0] for row in one.evidence}
    own = [thread for thread in threads if thread.rank in ranks_of(one) and thread.cores >= _MUCH]
    if LOCK_WAITS not in names or OWN_THREAD in names or not own:
        return one
    busiest = max(own, key=lambda thread: thread.cores)
    row = EvidenceRow(kind="figure", name=f"{OWN_THREAD} {busiest.name}", value=busiest.cores)
    return replace(one, evidence=(*one.evidence, row))
