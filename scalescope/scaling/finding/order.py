"""In which order findings are told: what each weighs beside the others, and which of them leads. Pure functions."""

from collections.abc import Sequence

from scalescope.scaling.finding.codes import COMPUTED_BY_ALL, ON_THE_DEVICE, Code
from scalescope.scaling.finding.figures import (
    DOUBLE_PRECISION,
    FULL_PRECISION,
    HIDDEN,
    MAY_BE_OTHERS,
    MAY_WAIT,
    UNFUSED_OPTIMISER,
)
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding.kinds import (
    has_upper_end,
    is_all_of_it,
    is_certain,
    is_hiding_on_cores,
    is_interrupted_everywhere,
    is_lost_in_noise,
    is_no_fault,
    is_of_all_alike,
    is_of_its_machine,
    is_of_resting_workers,
    is_within_noise,
)

#: Evidence of what a rank's host stands still for, and the others' hosts at the same place.
_GAPS = ("gap_before ", "gap_in ")
#: Bounds of which nearly all can be had, or of which a setting brings what is sure of them.
_TAKEN_AWAY: tuple[Code, ...] = ("host_bound", "copies", "late_bucket")
#: What noise may have made, and costs less than this share of what it has not, is no word worth; and what is less than
#: this share of what noise may have made is not what to begin with.
_FAR_BELOW = 0.25
#: What all ranks' own code has devices do the long way: what hosts take to launch it is a part of all launching.
_LONG_WAY: tuple[Code, ...] = ("unfused_optimizer", "updates_by_hand", "unfused_normalisation", "unused_forward")
#: What costs this share of what is bounded, for sure, comes before the bound: sizes are known within a fifth or so, and
#: of a bound it is not known that any of it can be had.
_NEARLY = 0.75
#: What is there for sure and costs less than this share of the step is not what to begin with, either.
_TRIFLE = 0.02
#: Bounds that weigh less than this share of the step are not what it is about.
LITTLE = 0.03
#: … where hosts compute, of what they do between operators, and of what noise may have made.
_LITTLE_ON_CPUS = 0.08
#: So much of it behind each operator, µs, is what launching takes in any eager step: 6 to 13 in healthy jobs of three
#: scripts, of which it made 5% to 9%; and 4 to 5 in one whose many short operators made that 19% to 22%, of which
#: compiling brought nothing back. A step is about it where operators are shorter still: it made 28% and more of such.
_LAUNCHING_US, _LITTLE_OF_QUICK = 15.0, 0.25
#: … and up to so much on cores that others have, too: 19 and 24 in healthy jobs. It is listed there, and leads nothing.
_LAUNCHING_OF_BUSY_US, _LITTLE_OF_LAUNCHING = 25.0, 0.15
#: What all ranks have and is known for sure is no headline below this share of the step where hosts compute: batches of
#: the loop's own making cost 1.0% to 1.5% of healthy steps, whose medians differ by 4% from one run to the next.
_TRIFLE_ON_CPUS = 0.02
#: A fault that costs so much of the step comes before a bound on launching that is as little behind each operator as in
#: any eager step: what of such a bound can be had nobody knows, and of the fault all.
_WORTH_FIRST = 0.05
_AROUND_COMPUTE: tuple[Code, ...] = ("copies", "host_bound", "synchronising")
#: … nor those that weigh less than computing in a needless width, or an unfused optimizer, does, to this share of it.
_SOME, _TOO_WIDE = 0.1, (DOUBLE_PRECISION, FULL_PRECISION)


def worth_telling(findings: Sequence[Finding], *, on_cpus: bool = False) -> list[Finding]:
    """Return findings but for those that are lost in noise and, even so, far below the largest that is not.

    What costs little or nothing, as far as is known, is told all the same where it was seen: a rank's host that
    launches for a device and stands still in each step, for long. Who computes is interrupted anyway; and where all
    hosts are for sure, that one of them is more of it, which may be noise, is the same time once more.
    """
    everywhere = any(one.code == "host_starved" and not ranks_of(one) and _is_fault(one) for one in findings)
    findings = [one for one in findings if not (everywhere and one.code == "host_starved" and is_lost_in_noise(one))]
    largest = max((weight(one) for one in findings if not is_lost_in_noise(one)), default=0.0)
    least = _FAR_BELOW * largest
    return [
        one
        for one in findings
        if not is_lost_in_noise(one) or weight(one) >= least or (not on_cpus and _seen_to_stand_ms(one) >= least)
    ]


def _seen_to_stand_ms(finding: Finding) -> float:
    one_rank = finding.code == "host_stall" and finding.rank is not None and not finding.ranks
    return stood_ms(finding) if one_rank else 0.0


def stood_ms(finding: Finding) -> float:
    """Return for how long a rank's host stands still beyond the others' in a profiled step, by the evidence, ms."""
    return sum(
        row.ms - row.others_ms
        for row in finding.evidence
        if row.name.startswith(_GAPS) and row.ms is not None and row.others_ms is not None
    )


def hidden_by_noise(findings: Sequence[Finding]) -> Finding | None:
    """Return what a rank may cost, or not, where what is sure is far below; None where it is not, or nothing is."""
    lost = [one for one in findings if one.rank is not None and is_lost_in_noise(one)]
    first = max(lost, key=weight, default=None)
    if first is None:
        return None
    sure = max((weight(one) for one in findings if not is_lost_in_noise(one)), default=0.0)
    return first if 0 < sure < _FAR_BELOW * weight(first) else None


def worth_leading(findings: Sequence[Finding]) -> Finding | None:
    """Return the costliest finding that noise has not made; None where all are far below one that noise may have made.

    What costs a hundredth of the step for sure is not what such a step is about. What is counted is there all the
    same, however large noise makes another: it leads unless it is no more than that hundredth or so.
    """
    told = [one for one in findings if one.ms is not None]
    least = _FAR_BELOW * max(map(weight, told), default=0.0)
    noise = max((weight(one) for one in told if is_lost_in_noise(one)), default=0.0)
    sure = [one for one in told if is_certain(one) or not is_within_noise(one)]
    sure = [one for one in sure if weight(one) > noise or not _is_usual_on_cpus(one)]
    return next((one for one in sure if weight(one) >= least or _is_counted_and_no_trifle(one)), None)


def _is_usual_on_cpus(one: Finding) -> bool:
    """Tell whether it is launching that any eager step of CPUs has, which is no answer to what noise leaves open."""
    if one.remedy is None or not one.remedy.on_cpu or not one.fraction or one.ms is None:
        return False
    return is_usual_launching(one, one.ms / one.fraction)


def _is_counted_and_no_trifle(finding: Finding) -> bool:
    return is_certain(finding) and (finding.fraction is None or finding.fraction >= _TRIFLE)


def own_ms(finding: Finding) -> float:
    """Return what a finding costs that has no other reason, ms."""
    others = next((row.ms for row in finding.evidence if row.name == MAY_BE_OTHERS), None)
    return max(0.0, (finding.ms or 0.0) - (others or 0.0)) if others else finding.ms or 0.0


def weight(finding: Finding, *, in_range: bool = False) -> float:
    """Return what a finding weighs beside others, ms: a bound is no expectation, so half of it counts.

    Launching can be taken away nearly whole, by replaying a recorded step (CUDA graphs), and so can copies, by pinned
    memory and a stream of their own; of a gradient that comes last, narrower ones take away what its interval begins
    with: what is sure of them counts in full, and half of the rest. `in_range`: of the step as run a range alone is
    known. Then the interval is wide for what recording costs, and not for what can be had: its middle counts in full.
    What of a cost may as well have other reasons counts for nothing. Of taking batches over that are ready nobody knows
    either how much can be had: no more workers take any of it away, and a loop that makes its batches itself pays for
    that. What a step is longer by at least counts in full, such as what is made of batches.
    """
    ms = own_ms(finding)
    if is_of_resting_workers(finding):
        return ms / 2
    if finding.at_most and any(row.name == MAY_WAIT for row in finding.evidence):
        return ms  # lost it is, to one of two causes
    if finding.at_most:
        sure = _expected_ms(finding) if in_range else max(0.0, finding.low_ms or 0.0)
        return (ms + (min(sure, ms) if finding.code in _TAKEN_AWAY else 0.0)) / 2
    return ms


def can_cost_ms(finding: Finding) -> float:
    """Return what a finding weighs by what it can cost, ms: of needless exchanges what is sure is the least of it."""
    return max(weight(finding), finding.high_ms or 0.0) if has_upper_end(finding) else weight(finding)


def _expected_ms(bound: Finding) -> float:
    """Return the middle of a bound's interval, ms; 0 where that reaches down to nothing."""
    low, high = bound.low_ms or 0.0, bound.high_ms or 0.0
    return (low + high) / 2 if low > 0 else 0.0


def are_little_at_most(findings: Sequence[Finding], step_ms: float, *, on_cpus: bool = False) -> bool:
    """Tell whether all that was found are bounds that weigh little, or nothing was: what such a step is about is
    its compute, and a bound of a hundredth or two around that, of which nobody knows how much can be had, goes
    behind it. So does what hosts are in their loaders for as little, whose workers rest: as far as batches are
    ready that is taking them over, which any loop with workers has. What one rank has, or is counted, or ranks
    send, is there all the same. On CPUs what noise may have made, and is as little, is said behind it, too, and
    what all ranks have for sure of a hundredth or two.

    Where `nothing` is among them and tells a needless width, or an unfused optimizer, that is a bound, too, and what
    weighs less goes behind it.
    """
    rows = [row for one in findings if one.code == "nothing" for row in one.evidence]
    needless = [(row.ms or 0.0) / 2 if row.name in _TOO_WIDE else row.value or 0.0 for row in rows
                if row.name in (*_TOO_WIDE, UNFUSED_OPTIMISER)]  # fmt: skip
    little_ms = max(LITTLE * step_ms, min(max(needless, default=0.0), _SOME * step_ms))
    noise_ms = max(little_ms, _LITTLE_ON_CPUS * step_ms) if on_cpus else little_ms
    told = [one for one in findings if one.code != "nothing"]
    if on_cpus:
        told = [one for one in told if not (is_lost_in_noise(one) and (one.ms or 0.0) < noise_ms)]
        told = [one for one in told if not (_is_trifle(one, step_ms) or is_trifle_of_a_host(one, step_ms))]
    return all(_is_little(one, max(little_ms, _little_between_ms(one, step_ms) if on_cpus else 0.0)) for one in told)


def _little_between_ms(one: Finding, step_ms: float) -> float:
    """Return up to what weight, ms, a bound on hosts is no more than any eager step has between operators; else 0."""
    if one.code != "host_bound":
        return 0.0
    if _is_plain_launching(one, _LAUNCHING_US):
        return _LITTLE_OF_QUICK * step_ms
    return (_LITTLE_OF_LAUNCHING if _is_plain_launching(one, _LAUNCHING_OF_BUSY_US) else _LITTLE_ON_CPUS) * step_ms


def _is_plain_launching(one: Finding, most_us: float, less_ms: float = 0.0) -> bool:
    """Tell whether a bound on hosts is no more than this behind each operator, and nothing tells what else they do.

    `less_ms`: of the bound, this may be none of it.
    """
    launches = next((row.calls or 0.0 for row in one.evidence if row.name == "launches"), 0.0)
    plain = one.remedy is None or one.remedy.cure == "compile"
    return plain and 1e3 * ((one.ms or 0.0) - less_ms) <= most_us * launches


def _is_trifle(one: Finding, step_ms: float) -> bool:
    """Tell whether it is of all ranks and no headline: known to be so little, or a bound that is no more in full."""
    if one.rank is not None or one.ranks or is_certain(one) or weight(one) <= 0:
        return False
    return is_trifle_on_cpus(max(one.ms or 0.0, one.high_ms or 0.0) if one.at_most else weight(one), step_ms)


def is_trifle_of_a_host(one: Finding, step_ms: float) -> bool:
    """Tell whether one rank's host is late by so little that threads which take turns on its cores may make it so: a
    place among thousands of operators has it in each of a few steps by chance.
    """
    may_be_chance = one.code in ("host_stall", "host_starved", "slower_compute") and not is_certain(one)
    return may_be_chance and one.rank is not None and is_trifle_on_cpus(_costs_ms(one), step_ms)


def is_trifle_on_cpus(ms: float, step_ms: float) -> bool:
    """Tell whether what all ranks have for sure is no headline where hosts compute."""
    return ms < _TRIFLE_ON_CPUS * step_ms


def _is_little(one: Finding, little_ms: float) -> bool:
    around = one.code in _AROUND_COMPUTE or is_hiding_on_cores(one)
    bound = one.at_most and around and one.rank is None and not is_certain(one)
    return (bound or is_of_resting_workers(one)) and weight(one) < little_ms


def behind_what_is_known(findings: Sequence[Finding], step_ms: float, waited_ms: float = 0.0) -> list[Finding]:
    """Return findings of ranks on CPUs with a first bound of what their hosts do between operators behind the others
    that are no bounds and no noise, or that operators are seen to compute, and behind what the job sends, where that is
    more: so much Python runs in any eager step, and nobody knows how much of it can be had.

    `waited_ms`: for how long a rank waits for a core in a profiled step. A host that does so between operators seems to
    do other things there: what may be that is no more than launching in any eager step, either.
    """
    first = next(iter(findings), None)
    if first is not None and _is_quick_launching(first, waited_ms) and not is_usual_launching(first, step_ms):
        faults = [one for one in findings[1:] if _is_fault(one) and _costs_ms(one) >= _WORTH_FIRST * step_ms]
        return [*faults, *(one for one in findings if one not in faults)]
    if first is None or not is_usual_launching(first, step_ms):
        return list(findings)
    ahead = [
        one
        for one in findings[1:]
        if (
            one.code != "nothing"
            and (not one.at_most or one.code in COMPUTED_BY_ALL)
            and (one.low_ms or 0.0) > 0
            and not _is_trifle(one, step_ms)
        )
        or (one.code == "exposed_transfer" and is_no_fault(one) and (one.ms or 0.0) > (first.ms or 0.0))
    ]
    return [*ahead, *(one for one in findings if one not in ahead)]


def behind_what_is_launched(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings of ranks with devices with a first bound on launching behind what their own code has them launch
    the long way, where that costs a quarter of it: it is a part of the launching that is known, and can be had.

    None goes before a fault that costs more.
    """
    first = next(iter(findings), None)
    if first is None or first.code != "host_bound" or not first.at_most or first.rank is not None:
        return list(findings)
    least = _FAR_BELOW * weight(first)
    faults = [weight(one) for one in findings[1:] if _is_fault(one) and one.code not in _LONG_WAY]
    least = max(least, *faults, 0.0)
    ahead = [
        one for one in findings[1:] if one.code in _LONG_WAY and (one.low_ms or 0.0) > 0 and (one.ms or 0) >= least
    ]
    return [*ahead, *(one for one in findings if one not in ahead)]


def behind_sure_gains(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with what workers, or threads, would mend that find no core behind causes, told later, that cost
    nearly as much for sure, or as much where all ranks compute that alike: these come back, and of that nothing may.
    """
    told = list(findings)
    for one in findings:
        if one.remedy is None or not one.remedy.lacks_cores:
            continue
        at = told.index(one)
        ahead = [cause for cause in told[at + 1 :] if _comes_back_beside(cause, weight(one))]
        told = [*told[:at], *ahead, one, *(rest for rest in told[at + 1 :] if rest not in ahead)]
    return told


def _comes_back_beside(one: Finding, ms: float) -> bool:
    """Tell whether a cause costs something for sure that mending it by itself brings back, and nearly so much."""
    if not _is_fault(one) or (one.low_ms or 0.0) <= 0 or is_of_its_machine(one):
        return False
    if one.remedy is None or one.remedy.lacks_cores or (one.also_late is not None and one.also_late.order != "first"):
        return False
    return weight(one) >= (1.0 if one.code in COMPUTED_BY_ALL else _NEARLY) * ms


def _is_quick_launching(one: Finding, waited_ms: float) -> bool:
    """Tell whether it is a bound of what hosts do between operators, and no more behind each than in any eager step but
    for waits for cores, however large a share of its step short operators make that.
    """
    bound = one.code == "host_bound" and one.at_most and one.rank is None
    return bound and _is_plain_launching(one, _LAUNCHING_US, waited_ms)


def _is_fault(one: Finding) -> bool:
    """Tell whether it is there for sure, and no bound of what could be had, nor what the job is."""
    if one.code in ("nothing", "unsteady") or one.at_most or is_no_fault(one):
        return False
    return is_certain(one) or (one.low_ms or 0.0) > 0


def _costs_ms(one: Finding) -> float:
    return max(one.ms or 0.0, one.high_ms or 0.0) if one.at_least else one.ms or 0.0


def is_usual_launching(one: Finding, step_ms: float) -> bool:
    """Tell whether it is a bound of what hosts do between operators, and no more than in any eager step on CPUs."""
    return one.code == "host_bound" and _is_little(one, _little_between_ms(one, step_ms))


def is_no_news(one: Finding, step_ms: float) -> bool:
    """Tell whether it is a bound of what hosts do between operators, and no more than an eager step of a quiet machine
    has, which is not even listed beside a cause that is sure. What short operators make more of the step is listed.
    """
    share = _LITTLE_OF_LAUNCHING if _is_plain_launching(one, _LAUNCHING_US) else _LITTLE_ON_CPUS
    return one.code == "host_bound" and _is_little(one, share * step_ms)


def without_little_launching(findings: Sequence[Finding], step_ms: float) -> list[Finding]:
    """Return findings of ranks on CPUs without a bound of what hosts do between operators that is as little as any
    eager step has, where what comes first is another cause that is sure: beside that it is no news.
    """
    first = next(iter(findings), None)
    if first is None or first.code == "nothing" or first.at_most or (first.low_ms or 0.0) <= 0:
        return list(findings)
    return [one for at, one in enumerate(findings) if at == 0 or not is_no_news(one, step_ms)]


def ranked(findings: Sequence[Finding], *, in_range: bool = False) -> list[Finding]:
    """Return the findings, most costly first; what the job is (`is_of_all_alike`) behind faults that are sure.

    Of all that travels, none is needless as far as is known; a rank that stands still is to be mended, if it costs
    less. A fault that is far below it goes behind it all the same, and so does what all ranks do alike, which is no
    one's fault, if it costs less than nearly as much; nor is it a rank's fault that others have its cores. What all
    compute that costs at least so much goes behind no fault of a rank that costs far less, either. A bound goes
    behind a fault that costs nearly as much: of the one nobody knows how much can be had, the other can be mended.
    `in_range`: see `weight`.
    """
    sure = [one for one in findings if not one.at_most and ((one.low_ms or 0.0) > 0 or is_certain(one))]

    def key(one: Finding) -> tuple[float, bool, float]:
        own = weight(one, in_range=in_range)
        if is_interrupted_everywhere(one):
            before = [weight(fault) for fault in sure if can_cost_ms(fault) > max(own, weight(fault))]
            return -min([own, *before]), bool(before), -own
        if not (one.at_most or is_of_all_alike(one)):
            return -own, False, -own
        computed_for_sure = one.at_least and one.code in COMPUTED_BY_ALL
        of_all, of_rank = _NEARLY, _FAR_BELOW if is_of_all_alike(one) and not computed_for_sure else _NEARLY
        before = [
            weight(fault)
            for fault in sure
            if fault is not one
            and not (one.code in COMPUTED_BY_ALL and _is_no_fault_either(fault))
            and can_cost_ms(fault) >= (of_all if fault.rank is None or is_of_its_machine(fault) else of_rank) * own
        ]
        return -min([own, *before]), True, -own

    return sorted(findings, key=key)


def reordered(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of which some cost otherwise than they did, most costly first, behind what says that none is
    the step's fault: whether that holds is known once all costs are.
    """
    first = [one for one in findings if one.code == "nothing"]
    return [*first, *ranked([one for one in findings if one.code != "nothing"])]


def _is_no_fault_either(one: Finding) -> bool:
    """Tell whether it is what all ranks do alike as well, where nobody is to blame: the costlier one comes first."""
    return one.code in COMPUTED_BY_ALL or is_of_resting_workers(one)


def hiding(findings: Sequence[Finding]) -> Finding | None:
    """Return what the devices do behind which the first finding hides; None where it is felt as it is."""
    if not findings or all(row.name != HIDDEN for row in findings[0].evidence):
        return None
    return next((one for one in findings[1:] if one.code in ON_THE_DEVICE), None)


def as_costly(findings: Sequence[Finding]) -> Finding | None:
    """Return the second finding where it may as well be the first: each one's cost lies in the other's interval.

    Where hosts compute, what they do between operators is none beside a cause that is no bound: any eager step has it.
    Nor is taking batches over that workers have ready: any loop with workers has that.
    """
    first = next(iter(findings), None)
    known = first is not None and not first.at_most
    second = next((one for one in findings[1:] if not (known and _is_launching_of_hosts(one))), None)
    if first is None or second is None:
        return None
    if is_within_noise(first) or is_within_noise(second) or (first.low_ms or 0.0) <= 0:
        return None  # that it may cost nothing says more
    alike = _may_cost(first, second.ms) and _may_cost(second, first.ms)
    no_cause = is_all_of_it(second) or is_of_resting_workers(second)
    return second if alike and not no_cause else None


def _is_launching_of_hosts(one: Finding) -> bool:
    return one.code == "host_bound" and one.at_most and one.remedy is not None and one.remedy.on_cpu


def _may_cost(finding: Finding, ms: float | None) -> bool:
    if ms is None or finding.low_ms is None or finding.high_ms is None:
        return False
    return finding.low_ms <= ms <= finding.high_ms
