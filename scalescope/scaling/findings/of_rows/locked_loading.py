"""Loading of a rank whose host waits for the interpreter's lock, while its loader's workers rest.

To take a batch over from a worker a host calls the system again and again, and waits for the lock behind each call: it
is in its loader for long, with batches that were ready.
"""

from collections.abc import Sequence

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.figures import LOCK_WAITS
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding.kinds import do_workers_rest
from scalescope.scaling.finding.order import weight


def without_locked_loading(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return the findings without a rank's loading that costs no more than its waits for the lock, with idle workers.

    Workers that wait for files use no core either: what they hold up beyond the lock stays.
    """
    waits = analysis.step_times.core_waits if analysis.step_times is not None else None
    waited = waits.cores_a_rank if waits is not None else 0.0
    resting = {
        one.rank
        for one in analysis.worker_times
        if one.processes and do_workers_rest(one.cores + (one.waiting or 0.0), 1, waited)
    }
    locked = [one for one in findings if any(row.name == LOCK_WAITS for row in one.evidence)]
    return [
        one
        for one in findings
        if one.code != "data_loading"
        or one.rank not in resting
        or not any(one.rank in ranks_of(lock) and weight(one) <= weight(lock) for lock in locked)
    ]
