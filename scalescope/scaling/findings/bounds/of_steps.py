"""What steps tell by themselves beside, or in place of, what a replay prices."""

from collections.abc import Mapping, Sequence

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.order import ranked
from scalescope.scaling.findings.bounds.bare_transfer import bare_transfer
from scalescope.scaling.findings.bounds.needless_exchanges import needless_exchanges
from scalescope.scaling.findings.bounds.rank_apart import with_ranks_apart
from scalescope.scaling.findings.candidate import may_wait_unseen
from scalescope.scaling.findings.hosts.debug_modes import unpriced_modes
from scalescope.scaling.findings.hosts.worker_cores import with_worker_cores
from scalescope.scaling.rank.records.record import RankRecord

#: Where traces lack what ran, or what stands side by side is not the same, the parts of a step are not what ranks did:
#: one whose collectives are lost seems to do nothing while the others wait for it.
_NOT_WHAT_RANKS_DID = ("lost", "other_steps", "unknown_collectives", "several_devices")


def with_bounds(
    analysis: RunAnalysis, records: Mapping[int, RankRecord], host: Sequence[HostCause] = ()
) -> list[Finding] | None:
    """Return a run's findings with what its steps tell where no replay prices them, or does not know what ranks wait
    for; None where one does, or steps tell nothing either.
    """
    unpriced = analysis.unpriced
    if analysis.quality.lossy_ranks or (unpriced is not None and unpriced.code in _NOT_WHAT_RANKS_DID):
        return None
    if unpriced is None and not may_wait_unseen(analysis):
        return None
    told = with_ranks_apart(analysis, analysis.findings)
    if unpriced is None:
        return told
    modes = unpriced_modes(host, step_as_run(analysis)[0].value, on_cpu=analysis.activity == "cpu")
    told = with_worker_cores(analysis, records, host, ranked([*told, *modes]))
    bare = needless_exchanges(analysis, records) or bare_transfer(analysis, records, told)
    return ranked([*told, *bare])
