"""Ranks that compute on the cores on which the worker processes of their loaders make batches.

No trace shows the workers: it shows that a loader waits for some, and hosts that stand still now here, now there, on
all ranks. What is short of cores makes batches late as well, now on this rank and now on that one.
"""

import statistics
from collections.abc import Mapping, Sequence

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.finding import LOADER_WORKERS, EvidenceRow, Finding, Remedy
from scalescope.scaling.finding_order import ranked
from scalescope.scaling.findings.candidate import share_ms
from scalescope.scaling.rank.records.record import RankRecord

#: Of what hosts are interrupted for in the mean, a typical step has so much at least.
_IN_MOST = 1 / 3
#: Where no replay tells what interruptions cost, fewer of the step may be anybody's.
_MUCH = 0.05


def loads_in_workers(records: Mapping[int, RankRecord]) -> bool:
    """Tell whether the loaders of all ranks, which compute on CPUs, have worker processes."""
    return bool(records) and all(one.activity == "cpu" and one.from_workers.starts.size for one in records.values())


def is_everywhere(cause: HostCause) -> bool:
    """Tell whether a cause is of all hosts, which stand still now here, now there, and do so in most steps.

    Workers that are started anew with each epoch take the cores in its first steps alone.
    """
    if cause.code != "host_starved" or cause.rank is not None or cause.evidence[0].kind != "interruptions":
        return False
    return statistics.median(cause.ns) >= _IN_MOST * cause.typical_ns > 0


def workers_row(analysis: RunAnalysis) -> EvidenceRow:
    """Return the evidence that the loaders have workers: what ranks wait for their batches meanwhile."""
    return EvidenceRow(kind="figure", name=LOADER_WORKERS, ms=share_ms(analysis, "idle_data"))


def with_worker_cores(
    analysis: RunAnalysis, records: Mapping[int, RankRecord], host: Sequence[HostCause], found: Sequence[Finding]
) -> list[Finding]:
    """Return the findings of a run that no replay prices with that of cores which workers share; as they are without.

    At least what the rank takes that is interrupted least, and what ranks wait for batches: that goes with it.
    """
    cause = next(filter(is_everywhere, host), None)
    step_ms = step_as_run(analysis)[0].value
    if cause is None or not step_ms or not loads_in_workers(records):
        return list(found)
    row, loading = cause.evidence[0], workers_row(analysis)
    ms = min(cause.typical_ns / 1e6 + (loading.ms or 0.0), step_ms)  # a step as run is shorter than the recorded one
    if cause.typical_ns / 1e6 < _MUCH * step_ms:
        return list(found)
    starved = Finding(
        code="host_starved",
        ms=ms,
        low_ms=ms,
        high_ms=step_ms,
        fraction=ms / step_ms,
        evidence=(EvidenceRow(kind="figure", name="interruptions", ms=row.ns / 1e6, calls=row.count), loading),
        remedy=Remedy(cure="cheaper_workers"),
        backed="measured",
        at_least=True,
    )
    return ranked([starved, *(one for one in found if one.code != "data_loading")])
