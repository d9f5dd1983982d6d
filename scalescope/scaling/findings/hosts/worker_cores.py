"""Ranks that compute on the cores on which the worker processes of their loaders make batches.

No trace shows the workers: it shows that a loader waits for some, and hosts that stand still now here, now there, on
all ranks. What is short of cores makes batches late as well, now on this rank and now on that one.
"""

import statistics
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.evidence.interruptions import SHORTEST_NS
from scalescope.scaling.finding.figures import LOADER_WORKERS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.order import ranked
from scalescope.scaling.findings.candidate import Candidate, Scene, share_ms
from scalescope.scaling.findings.shares import bounded_means
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.replay.removal import Removal

#: Of what hosts are interrupted for in the mean, a typical step has so much at least.
_IN_MOST = 1 / 3
#: Where no replay tells what interruptions cost, fewer of the step may be anybody's.
_MUCH = 0.05
#: Of workers that take turns with the ranks, one is late and then another: a rank that waits so many times as long as
#: the others has a slow one.
_BY_TURNS = 3.0


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


def are_crowded(scene: Scene) -> bool:
    """Tell whether the ranks' threads that compute and a worker a rank, at least, are more than the cores they have.

    Where nothing tells how many these are, hosts that stand still now here and now there, all of them, do.
    """
    share = scene.cores
    if not scene.replayer.on_cpu or not loads_in_workers(scene.replayer.records):
        return False
    if share is None:
        return any(map(is_everywhere, scene.host or ()))
    return share.threads + share.ranks > share.cores


def as_one_of_workers(scene: Scene, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with what workers that share the ranks' cores do as one of them, where that is known.

    Hosts that wait for batches, and hosts that stand still for a core, now here and now there, are then one cause: the
    batches are too much work for the cores that are left. The waits are sure to be its; which of the turns that
    operators lose are the workers', and not those of other threads, no trace tells.
    """
    if not are_crowded(scene):
        return list(candidates)
    loading = [one for one in candidates if _is_of_workers(one) or _is_by_turns(scene, one)]
    everyone = next((one for one in loading if one.code == "data_loading" and one.rank is None), None)
    if everyone is None:
        return list(candidates)
    still = [
        row for one in loading if one.code == "host_starved" for row in one.evidence if row.name == "interruptions"
    ]
    share = scene.cores
    known = (("ranks", share.ranks), ("threads", share.threads), ("cores", share.cores)) if share is not None else ()
    figures = [EvidenceRow(kind="figure", name=name, value=float(value)) for name, value in known]
    together = replace(
        everyone,
        removals=(Removal("data"),),
        perhaps=(Removal("uneven", ns=SHORTEST_NS),),
        usual=None,
        evidence=(*everyone.evidence, *still, workers_row(scene.analysis), *figures),
        remedy=Remedy(cure="load_faster"),  # whether the workers compute, or wait, no trace tells
    )
    return [together if one is everyone else one for one in candidates if one is everyone or one not in loading]


def _is_of_workers(one: Candidate) -> bool:
    if one.rank is not None:
        return False
    return one.code == "data_loading" or (one.remedy is not None and one.remedy.cure == "cheaper_workers")


def _is_by_turns(scene: Scene, one: Candidate) -> bool:
    """Tell whether one rank waits for batches longer than the others by no more than taking turns makes of workers."""
    if one.code != "data_loading" or one.rank is None or one.seen is not None:
        return False
    loading = {step.rank: step.idle_data_ms for step in bounded_means(scene.analysis)}
    others = [ms for rank, ms in loading.items() if rank != one.rank]
    return bool(others) and loading.get(one.rank, 0.0) < _BY_TURNS * statistics.median(others)


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
