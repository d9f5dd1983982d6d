"""From a replayed run to its findings: detectors propose causes, the replay prices them, the costliest comes first."""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from scalescope.scaling.as_run.recording import has_operators
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.kinds import is_known, is_no_fault
from scalescope.scaling.finding.order import are_little_at_most, ranked
from scalescope.scaling.findings.bounds.bare_transfer import bare_transfer
from scalescope.scaling.findings.bounds.differing_load import with_differing_load
from scalescope.scaling.findings.bounds.hidden_exchanges import hidden_exchanges
from scalescope.scaling.findings.bounds.many_buckets import many_buckets
from scalescope.scaling.findings.bounds.needless_collectives import needless_collectives
from scalescope.scaling.findings.bounds.needless_exchanges import needless_exchanges, without_what_goes_with
from scalescope.scaling.findings.bounds.rounds import with_rounds
from scalescope.scaling.findings.bounds.unsplit_rounds import unsplit_rounds
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.computing.dearer_precision import dearer_precision
from scalescope.scaling.findings.computing.nothing import nothing
from scalescope.scaling.findings.computing.outside_passes import batch_preparation, metrics
from scalescope.scaling.findings.computing.recomputation import recomputation
from scalescope.scaling.findings.computing.shared_device import shared_device
from scalescope.scaling.findings.computing.unfused_normalisation import unfused_normalisation
from scalescope.scaling.findings.computing.unfused_optimizer import unfused_optimizer, updates_by_hand
from scalescope.scaling.findings.computing.unused_forward import unused_forward
from scalescope.scaling.findings.computing.wider_numbers import double_precision, full_precision
from scalescope.scaling.findings.containment import without_contained
from scalescope.scaling.findings.detectors.alternating_load import alternating_load
from scalescope.scaling.findings.detectors.contention import contention
from scalescope.scaling.findings.detectors.copies import copies
from scalescope.scaling.findings.detectors.data_loading import data_loading
from scalescope.scaling.findings.detectors.gradients import gradients
from scalescope.scaling.findings.detectors.host_bound import host_bound, host_bound_behind
from scalescope.scaling.findings.detectors.host_causes import host_causes
from scalescope.scaling.findings.detectors.host_late import host_gaps, host_late
from scalescope.scaling.findings.detectors.longer_loops import longer_loops
from scalescope.scaling.findings.detectors.more_work import more_work
from scalescope.scaling.findings.detectors.oversubscribed import oversubscribed, without_its_symptoms
from scalescope.scaling.findings.detectors.own_work import own_work
from scalescope.scaling.findings.detectors.slow_transfer import slow_transfer
from scalescope.scaling.findings.detectors.slower_compute import slower_compute
from scalescope.scaling.findings.detectors.small_collectives import small_collectives
from scalescope.scaling.findings.hosts.beside_own_work import with_ranks_beside
from scalescope.scaling.findings.hosts.debug_modes import debug_modes, without_their_symptoms
from scalescope.scaling.findings.hosts.element_reads import element_reads
from scalescope.scaling.findings.hosts.hiding_on_cores import bounded_by_cores
from scalescope.scaling.findings.hosts.shared_cores import with_shared_cores
from scalescope.scaling.findings.hosts.slow_operators import without_slow_operators
from scalescope.scaling.findings.hosts.worker_cores import as_one_of_workers
from scalescope.scaling.findings.in_range import hold, is_range
from scalescope.scaling.findings.late_root import late_root
from scalescope.scaling.findings.of_rows.not_late import may_be_ruled_out
from scalescope.scaling.findings.of_rows.own_workers import within_their_workers
from scalescope.scaling.findings.of_rows.timed_loading import within_timed_loading
from scalescope.scaling.findings.one_block import with_blocks
from scalescope.scaling.findings.prices.balanced_experts import bound_experts
from scalescope.scaling.findings.prices.late_together import alike_as_one
from scalescope.scaling.findings.prices.pricing import price
from scalescope.scaling.findings.profiler_cost import are_less_than_is_unknown, profiler_cost, without_trades
from scalescope.scaling.findings.unsteady import unsteady, unsteady_in_range

DETECTORS: tuple[Callable[[Scene], Iterator[Candidate]], ...] = (
    own_work,
    more_work,
    longer_loops,
    dearer_precision,
    slower_compute,
    shared_device,
    alternating_load,
    element_reads,
    unfused_optimizer,
    updates_by_hand,
    unfused_normalisation,
    double_precision,
    full_precision,
    batch_preparation,
    metrics,
    recomputation,
    unused_forward,
    host_bound,
    copies,
    gradients,
    many_buckets,
    hidden_exchanges,
    small_collectives,
    needless_collectives,
    unsplit_rounds,
    slow_transfer,
    contention,
    oversubscribed,
    debug_modes,
)

#: What holds hosts up: by their own records, and where those are not at hand by what they take for the same launches.
FROM_RECORDS: tuple[Callable[[Scene], Iterator[Candidate]], ...] = (host_causes,)
FROM_LAUNCHES: tuple[Callable[[Scene], Iterator[Candidate]], ...] = (data_loading, host_late)
#: Of the device and its calls alone, without operators: records tell which calls wait, launches where a host is late.
FROM_CALLS: tuple[Callable[[Scene], Iterator[Candidate]], ...] = (host_causes, host_gaps)


def _on_hosts(scene: Scene) -> tuple[Callable[[Scene], Iterator[Candidate]], ...]:
    if scene.host is None:
        return FROM_LAUNCHES
    records = scene.replayer.records.values()
    return FROM_RECORDS if any(has_operators(one) for one in records) else FROM_CALLS


def _each_stall_once(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with one rank's gaps as one of them, where its records and its launches both tell of some.

    Records say how long they are in each step; launches, what follows.
    """
    gaps: dict[int, list[Candidate]] = {}
    for one in candidates:
        if one.code == "host_stall" and one.rank is not None and one.seen is None and not one.ranks:
            gaps.setdefault(one.rank, []).append(one)
    found = list(candidates)
    for own in gaps.values():
        if len(own) == 2 and all(removal.what == "gaps" for one in own for removal in one.removals):
            by_records, by_launches = own
            together = replace(by_records, removals=by_launches.removals, evidence=by_launches.evidence)
            found = [together if one is by_records else one for one in found if one is not by_launches]
    return found


def find(scene: Scene) -> list[Finding]:
    """Return the findings of a run that can be replayed, most costly first; never an empty list."""
    bound_experts(scene)
    candidates = _each_stall_once(
        [candidate for detect in (*DETECTORS, *_on_hosts(scene)) for candidate in detect(scene)]
    )
    candidates = with_ranks_beside(scene, as_one_of_workers(scene, candidates))
    candidates = without_slow_operators(scene, with_differing_load(scene, without_their_symptoms(candidates)))
    candidates = with_blocks(scene, candidates)
    candidates = without_contained(scene, without_its_symptoms(with_rounds(scene, candidates)))
    candidates = alike_as_one(scene, candidates)
    priced = price(scene, without_their_symptoms([*candidates, *host_bound_behind(scene, candidates)]))
    priced = bounded_by_cores(scene, priced)
    in_range = is_range(scene)
    found = ranked(hold(scene, candidates, priced), in_range=in_range)
    unknown = profiler_cost(scene, priced)
    if unknown:  # what is known all the same comes first, if it is more than a little that may be nothing
        found = ranked([*found, *unsteady_in_range(scene, found)], in_range=in_range)
        # of devices alone is recording's cost unknown so: nothing here is of hosts that compute (`on_cpus`)
        others = without_trades(found, unknown[0])
        little = are_little_at_most(others, scene.step_ms) or are_less_than_is_unknown(others, unknown[0])
        return [*unknown, *found] if little else [*found, *unknown]
    found = ranked([*found, *late_root(scene, found)], in_range=in_range)
    records = scene.replayer.records
    needless = needless_exchanges(scene.analysis, records)
    bare = [] if needless else bare_transfer(scene.analysis, records, found)
    found = ranked([*needless, *without_what_goes_with(needless, found, scene.cores)], in_range=in_range)
    found = with_shared_cores(scene, found) if all(map(is_no_fault, bare)) else found
    found = ranked([*found, *(bare if not any(map(is_known, found)) else ())], in_range=in_range)
    found = ranked([*found, *unsteady(scene, found)], in_range=in_range)
    told = [nothing(scene, found), *found]
    on_cpus = scene.analysis.activity == "cpu"
    # the job's own steps may yet tell that a rank is not late, or what loading costs; where they do not, `keep` takes
    # `nothing` away
    lasting = within_timed_loading(within_their_workers(told, scene.analysis), scene.analysis)
    lasting = [one for one in lasting if not (on_cpus and may_be_ruled_out(one))]
    return told if are_little_at_most(lasting, scene.step_ms, on_cpus=on_cpus) else found
