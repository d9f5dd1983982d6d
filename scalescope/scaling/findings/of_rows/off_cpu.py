"""Whether a host that does nothing that is recorded sleeps there, or computes, and whether one that loads waits for
files: by how long its loop was on a core.

No operator is recorded in either. The kernel counts how long a thread has a core, and how long it waits for one. What
is left of a step it is asleep: waiting for other ranks, which its trace tells, for batches, or at such a place. A host
of devices spins while it waits for these: there being on a core says nothing.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import HostTime
from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.figures import GARBAGE, IN_STEPS, MAY_LOAD
from scalescope.scaling.finding.finding import EvidenceRow, Finding, ranks_of
from scalescope.scaling.finding.kinds import is_now_and_then

#: Evidence that a host is off its core, or has it, where it does nothing that is recorded: for how long of its step;
#: and that it is off its core while it loads.
OFF_CPU, ON_CPU = "off_cpu_ms", "on_cpu_ms"
#: What a host is asleep for beside its waits is a stall's where it is as long, within this share of the stall; and it
#: computes there where it is asleep for no more than that share.
_ALIKE = 0.3
#: A host that computes while others have its core by turns has it for so much of the stall.
_MOST = 0.5
#: Cures of a host that does something, nobody knows what, in each step.
_OPEN: frozenset[Cure] = frozenset({"look_at_host", "less_python"})
#: … and of hosts that load in their own process.
_OWN_LOADING: frozenset[Cure] = frozenset({"load_ahead", "name_loading"})
_GAP = "gap_before "
#: Rows that hold all for which a host launches nothing, of ranks that no replay prices.
_ALL = ("launch", "idle_launch")


def with_off_cpu(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return the findings, those of hosts that stand still in each step with whether these sleep there or compute, and
    those of hosts that load with that they sleep, where they do.
    """
    hosts = {one.rank: one for one in analysis.step_times.hosts} if analysis.step_times is not None else {}
    if analysis.activity != "cpu" or not hosts:
        return list(findings)
    stalls = [one for one in findings if one.code == "host_stall"]
    findings = [_loading(one, stalls, hosts) if one.code == "data_loading" else one for one in findings]
    return [_told(one, stalls, hosts) if one.code == "host_stall" else one for one in findings]


def _loading(one: Finding, stalls: Sequence[Finding], hosts: dict[int, HostTime]) -> Finding:
    """Return what ranks load themselves with that they wait for files or a network, where they are asleep as long."""
    ranks = ranks_of(one) or tuple(hosts)
    if one.remedy is None or one.remedy.cure not in _OWN_LOADING or is_now_and_then(one):
        return one
    if any(row.name == OFF_CPU for row in one.evidence) or any(rank not in hosts for rank in ranks):
        return one
    own = [(hosts[rank], _stalled_ms(stalls, rank)) for rank in ranks]
    # who stands still as well may be asleep in either
    if all(
        host.asleep_ms - stalled_ms >= (1 - _ALIKE) * host.loading_ms > 0
        and host.asleep_ms <= (1 + _ALIKE) * host.loading_ms
        for host, stalled_ms in own
    ):
        off_ms = sum(host.asleep_ms for host, _ in own) / len(own)
        return replace(one, evidence=(*one.evidence, EvidenceRow(kind="figure", name=OFF_CPU, value=off_ms)))
    return one


def _told(one: Finding, stalls: Sequence[Finding], hosts: dict[int, HostTime]) -> Finding:
    names = {row.name for row in one.evidence}
    if one.remedy is None or one.remedy.cure not in _OPEN or is_now_and_then(one):
        return one
    if names & {OFF_CPU, ON_CPU, MAY_LOAD, GARBAGE}:
        return one
    ranks = ranks_of(one) or tuple(hosts)
    if any(rank not in hosts for rank in ranks):
        return one
    whole = {rank: _stalled_ms(stalls, rank) for rank in hosts}
    if all(_sleeps(rank, hosts, whole) for rank in ranks):
        off_ms = sum(hosts[rank].asleep_ms for rank in ranks) / len(ranks)
        row = EvidenceRow(kind="figure", name=OFF_CPU, value=off_ms)
        return replace(one, evidence=(*one.evidence, row), remedy=replace(one.remedy, cure="find_wait"))
    if all(_computes(rank, hosts, whole) for rank in ranks):
        on_ms = sum(hosts[rank].on_cpu_ms for rank in ranks) / len(ranks)
        row = EvidenceRow(kind="figure", name=ON_CPU, value=on_ms)
        cure: Cure = "find_python" if one.remedy.cure == "look_at_host" else one.remedy.cure
        return replace(one, evidence=(*one.evidence, row), remedy=replace(one.remedy, cure=cure))
    return one


def _stalled_ms(stalls: Sequence[Finding], rank: int) -> float:
    """Return for how long a rank's host stands still in a step, at all places that are told: they share one account.

    What the others do where one of them is named for it is theirs.
    """
    ms = 0.0
    for one in stalls:
        own = not ranks_of(one) or rank in ranks_of(one)
        whole = [row for row in one.evidence if row.name in _ALL]
        rows = whole or [row for row in one.evidence if row.name.startswith(_GAP)]
        gaps = [row.ms if own else row.others_ms for row in rows]
        some = next((row for row in one.evidence if row.name == IN_STEPS), None)
        # of some steps alone: in the median one it is there, or not
        there = some is None or 2 * (some.calls or 0.0) > (some.value or 0.0)
        ms += sum(each or 0.0 for each in gaps) if there else 0.0
    return ms


def _sleeps(rank: int, hosts: dict[int, HostTime], stalled: dict[int, float]) -> bool:
    """Tell whether a rank's host is asleep for as long as it stands still: by itself, or beside what the others are.

    Where it loads, too, it may be asleep there or not.
    """
    own, ms = hosts[rank], stalled[rank]
    most, least = own.asleep_ms, own.asleep_ms - own.loading_ms
    if ms <= 0 or least < (1 - _ALIKE) * ms:
        return False
    if most <= (1 + _ALIKE) * ms:
        return True
    # all operators wait for threads of their own now and then, on other ranks as well
    others = [one for one in hosts if one != rank]
    beyond_ms = [ms - stalled[one] for one in others]
    asleep_ms = [own.asleep_ms - own.loading_ms - hosts[one].asleep_ms + hosts[one].loading_ms for one in others]
    return bool(others) and all(
        stall > 0 and abs(asleep - stall) <= _ALIKE * stall for stall, asleep in zip(beyond_ms, asleep_ms, strict=True)
    )


def _computes(rank: int, hosts: dict[int, HostTime], stalled: dict[int, float]) -> bool:
    """Tell whether a rank's host has a core as long as it stands still: it is hardly asleep beside its waits."""
    own, ms = hosts[rank], stalled[rank]
    if ms <= 0 or abs(own.asleep_ms) > _ALIKE * ms or abs(own.asleep_ms - own.loading_ms) > _ALIKE * ms:
        return False
    # a stall while data are on their way is told as communication: waits for those would have its sleep
    if own.exposed_ms > _ALIKE * ms and ms > (1 + _ALIKE) * own.idle_ms:
        return False
    # who sleeps for a moment, again and again, waits for a core each time: who computes has it most of the time, too
    longer_ms = [own.on_cpu_ms - hosts[one].on_cpu_ms for one in hosts if one != rank]
    beyond_ms = [ms - stalled[one] for one in hosts if one != rank]
    has_it = bool(longer_ms) and all(
        stall > 0 and longer >= _MOST * stall for longer, stall in zip(longer_ms, beyond_ms, strict=True)
    )
    return own.run_delay_ms <= _ALIKE * ms or has_it
