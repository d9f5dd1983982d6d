"""What kind of finding one is, by its evidence and its interval: what is said of it, and where, depends on that."""

from collections.abc import Sequence

from scalescope.records.steps.core_waits import WAITS_FOR_CORES
from scalescope.scaling.finding.codes import COMPUTED_BY_ALL, HIDES_TRANSFER, TOO_MANY_THREADS
from scalescope.scaling.finding.figures import (
    AS_MANY,
    AT_LEAST,
    BESIDES,
    BUS,
    BY_TURNS,
    CONVERTING,
    CORES_BY_TURNS,
    CORES_WAITED_FOR,
    COUNTED_LOADS,
    EXPOSED,
    IN_STEPS,
    INPUTS,
    LATE,
    LOCK_WAITS,
    OTHER_KERNELS,
    PASSES,
    PRECISION,
    RECOMPUTED,
    STEADY_STEPS,
    WAITS_BESIDES,
    WORKERS_CORES,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding, ranks_of
from scalescope.scaling.finding.sizes import ZERO_MS

#: From so much of a core on a worker is told to use it: who computes all the while has two thirds of one beside two
#: threads on two cores, and less beside others.
BUSY_WORKER = 1 / 3
#: Who uses less of a core than this hardly computes.
HARDLY_WORKS = 0.1
#: Who uses so much of the cores that ranks wait for is who has them.
MOST_OF_WAITS = 0.5


def do_workers_rest(used: float, ranks: float, waited: float) -> bool:
    """Tell whether loaders' workers rest that use so much of a core, all together, beside ranks that wait for `waited`.

    Who uses a third of a core a rank is at work. So is who uses less, but at least half of what ranks wait for, and no
    trifle: two cores were all that two ranks and their workers had, and 0.65 of these was what the workers got.
    """
    if used >= BUSY_WORKER * ranks:
        return False
    much = waited >= WAITS_FOR_CORES * ranks  # less the ranks' own threads make each other wait
    return not (much and used >= max(HARDLY_WORKS * ranks, MOST_OF_WAITS * waited))


def has_upper_end(finding: Finding) -> bool:
    """Tell whether of a cost of which the least is told the most is known, too, and not for being all of the step: what
    needless exchanges can take is counted.
    """
    counted = finding.at_least and any(row.name == PASSES for row in finding.evidence)
    return counted and (finding.high_ms or 0.0) > (finding.ms or 0.0) > 0


def is_no_fault(finding: Finding) -> bool:
    """Tell whether a transfer is what the job sends, for all that its steps tell: no fault is found in it."""
    return finding.remedy is None or finding.remedy.cure in ("send_less", "record_sizes")


def is_of_all_alike(finding: Finding) -> bool:
    """Tell whether it is what the job is, all its ranks alike, and what would make it quicker is no fault of any."""
    return finding.code in COMPUTED_BY_ALL or is_all_of_it(finding)


def is_within_noise(finding: Finding) -> bool:
    """Tell whether a finding may cost nothing at all, by its interval: then it accuses nobody."""
    if finding.ms is None or finding.low_ms is None:
        return False
    return finding.low_ms < ZERO_MS and (finding.rank is not None or not finding.at_most)  # a bound says "at most"


def is_lost_in_noise(finding: Finding) -> bool:
    """Tell whether a finding is no more than steps differ by themselves: nothing that was seen to happen, and no cost.

    A host that stood still in some steps did so, and a rank with more to compute has it, whatever that costs.
    """
    return is_within_noise(finding) and not is_certain(finding) and not is_now_and_then(finding)


def is_known(finding: Finding) -> bool:
    """Tell whether a cause is known to be there of which its trace tells but what that costs at least."""
    if any(row.name == CORES_BY_TURNS for row in finding.evidence):
        return True
    return finding.remedy is not None and finding.remedy.cure in TOO_MANY_THREADS


def is_certain(finding: Finding) -> bool:
    """Tell whether the cause is there for sure, whatever it costs: what a rank is given is no matter of its machine."""
    return is_counted(finding.evidence)


def is_counted(evidence: Sequence[EvidenceRow]) -> bool:
    """Tell whether evidence says what a rank does in each step beyond the others, or otherwise, or what all do."""
    counted = (
        INPUTS,
        COUNTED_LOADS,
        BESIDES,
        WAITS_BESIDES,
        AT_LEAST,
        LOCK_WAITS,
        BUS,
        PASSES,
        OTHER_KERNELS,
        RECOMPUTED,
    )
    return any(row.name in counted for row in evidence) or tells_precision(evidence)


def tells_precision(evidence: Sequence[EvidenceRow]) -> bool:
    """Tell whether evidence says that a rank computes in a dearer precision than the others, and in which."""
    return any(row.name.startswith(f"{PRECISION} ") for row in evidence)


def dearer_precision_ms(evidence: Sequence[EvidenceRow]) -> float | None:
    """Return what a rank's dearer precision takes beyond the others, ms, with its conversions; None where none is."""
    row = next((one for one in evidence if one.name.startswith(f"{PRECISION} ")), None)
    if row is None or row.ms is None or row.others_ms is None:
        return None
    return row.ms - row.others_ms + sum(one.ms or 0.0 for one in evidence if one.name == CONVERTING)


def is_interrupted_everywhere(finding: Finding) -> bool:
    """Tell whether a finding is of all hosts, that stand still where somebody else has their cores."""
    cure = finding.remedy.cure if finding.remedy is not None else None
    return finding.code == "host_starved" and not ranks_of(finding) and cure == "free_cores"


def is_of_resting_workers(finding: Finding) -> bool:
    """Tell whether loading is of workers that all ranks have, and that rest: batches are ready, and to take them over
    costs what it does.
    """
    row = next((one for one in finding.evidence if one.name == WORKERS_CORES), None)
    ranks = next((one.value for one in finding.evidence if one.name == "ranks"), None)
    waited = next((one.value for one in finding.evidence if one.name == CORES_WAITED_FOR), None)
    if finding.code != "data_loading" or ranks_of(finding) or row is None or row.value is None or not ranks:
        return False
    return do_workers_rest(row.value, ranks, waited or 0.0)


def is_of_its_machine(finding: Finding) -> bool:
    """Tell whether a host lacks what others have, who are not told: nothing in its rank's program is to be mended."""
    return finding.code == "host_starved" and finding.remedy is not None and finding.remedy.cure == "free_cores"


def is_hiding_on_cores(finding: Finding) -> bool:
    """Tell whether it is a bound of hiding transfer behind compute on cores that both need: of ranks on CPUs."""
    return finding.at_most and finding.remedy is not None and finding.remedy.cure in HIDES_TRANSFER


def is_by_turns(evidence: Sequence[EvidenceRow]) -> bool:
    """Tell whether evidence says that another process has a rank's device, or its cores, by turns."""
    return any(row.name == BY_TURNS for row in evidence)


def is_now_and_then(finding: Finding) -> bool:
    """Tell whether a cause is there in some of the steps alone, by its evidence."""
    return any(row.name == IN_STEPS for row in finding.evidence)


def is_of_one_step(finding: Finding) -> bool:
    """Tell whether a cause is known of one step alone, of which nobody can tell what is usual."""
    return any(row.name == IN_STEPS and row.value == 1 for row in finding.evidence)


def is_once(finding: Finding, many: int = 5) -> bool:
    """Tell whether a cause is there in one of many steps: it may be the only such one in thousands."""
    return any(row.name == IN_STEPS and row.calls == 1 and (row.value or 0) >= many for row in finding.evidence)


def is_all_of_it(finding: Finding) -> bool:
    """Tell whether a finding is all the transfer that nothing hides, of which nothing tells that any is needless: what
    the job is, and no fault of it.
    """
    bare = next((row.ms for row in finding.evidence if row.name == EXPOSED), None)
    told = finding.remedy is None or finding.remedy.cure == "send_less"
    return finding.code == "exposed_transfer" and bare is not None and finding.ms == bare and told


def is_of_steady_steps(finding: Finding) -> bool:
    """Tell whether a cause is known by the job's own timing of its steady steps, whatever its traces hold."""
    return any(row.name == STEADY_STEPS for row in finding.evidence)


def is_of_profiled_steps(finding: Finding) -> bool:
    """Tell whether the steps that have a cause are some of the window's, of as many operators as its others, though all
    of the job's own steps may tell what that costs.
    """
    return is_now_and_then(finding) and any(row.name == AS_MANY for row in finding.evidence)


def is_late(finding: Finding) -> bool:
    """Tell whether what a rank costs is known by how late it is in all steps, by its evidence."""
    return any(row.name == LATE for row in finding.evidence)
