"""Data that move while nothing computes, where that is most of what a step loses and no other finding explains it.

What makes it shorter is another question, and the step tells some of the answer: where most of the time is that of
small collectives, of buffers that DDP broadcasts before each forward pass, or of numbers of eight bytes, narrower
gradients help little.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from scalescope.records.operations import REDUCE_ON_ALL
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import PARTS, Collective
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.finding.codes import COMPUTED_BY_ALL, Code, Cure
from scalescope.scaling.finding.figures import EXPOSED, SPARSE
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import is_hiding_on_cores, is_known, is_lost_in_noise
from scalescope.scaling.finding.order import LITTLE, own_ms, weight
from scalescope.scaling.finding.sizes import bound_of
from scalescope.scaling.findings.bounds.rounds import QUICK_NS
from scalescope.scaling.findings.candidate import may_wait_unseen, share_ms
from scalescope.scaling.findings.shares import bounded_steps
from scalescope.scaling.rank.records.backward_passes import DDP_FORWARD, accumulates
from scalescope.scaling.rank.records.record import RankRecord

#: What is less of the step is nothing to begin with: half of it, which counts of a bound, is as little as of any other.
#: A tenth lies in the midst of what steps of one clean job send.
_MUCH = 2 * LITTLE
#: Findings that cover so much of what is lost are something to begin with.
_COVERED = 1 / 3
#: What says something of how data move.
_OF_TRANSFERS: tuple[Code, ...] = (
    "small_buckets", "small_collectives", "late_bucket", "slow_transfer", "exposed_transfer"
)  # fmt: skip
_BROADCAST, _DOUBLE = "broadcast", "float64"
#: So many collectives a step without sizes may as well be small ones.
_MANY = 8
#: Small ones take as long as their rounds of messages do; of so few bytes in the median they are no gradients.
_SMALL_BYTES, _FIGURES_BYTES = 64 << 10, 64
#: What takes so much of the transfer's time is what it is about.
_MOST = 0.5


def bare_transfer(analysis: RunAnalysis, records: Mapping[int, RankRecord], found: Sequence[Finding]) -> list[Finding]:
    """Return a finding where most of what a step loses is transfer, and what was found covers little of that: a bound.

    On CPUs alone: on devices the replay of other buckets tells what can be had.
    """
    if analysis.activity != "cpu" or may_wait_unseen(analysis) or any(map(is_known, found)):
        return []  # threads that take turns on too few cores move data as slowly as they compute
    step_ms = step_as_run(analysis)[0].value
    parts = {part: share_ms(analysis, part) for part in PARTS}
    bare, lost = parts["exposed_transfer"], step_ms - parts["compute"]
    if (
        bare < _MUCH * step_ms
        or bare < _COVERED * lost
        or bare < max(ms for part, ms in parts.items() if part != "compute")
    ):
        return []
    # what would hide it on cores that compute needs is a bound of this very transfer
    told = [one for one in found if one.ms is not None and not (is_lost_in_noise(one) or is_hiding_on_cores(one))]
    if sum(weight(one) for one in told if one.code in _OF_TRANSFERS) >= _COVERED * bare:
        return []
    covered = sum(  # with what may go with a cause; what all ranks compute at length is none of what is lost
        weight(one) + (one.ms or 0.0) - own_ms(one) for one in told if one.code not in COMPUTED_BY_ALL
    )
    if covered >= _COVERED * lost:
        return []
    steps = {step.step for step in bounded_steps(analysis)}
    held = [one for one in analysis.collectives if one.step in steps]
    if not held:
        return []
    calls = len(held) / len(steps)
    sizes = [one.bytes for one in held if one.bytes is not None]
    rows = shown(held, len(steps), bare, step_ms)
    most = bare
    cure = Remedy(cure="send_less", accumulates=accumulates(records))
    if not sizes and calls >= _MANY and _are_quick(held) and not any(one.sparse for one in held):
        most = bare * (1 - 1 / calls)
        cure = Remedy(cure="record_sizes")
    elif (kind := _mostly(held, calls, records)) is not None:
        cure = Remedy(cure=kind[0])
        rows.append(EvidenceRow(kind="figure", name=kind[0], share=kind[1]))  # of the transfer's time
    if sizes:
        rows.append(EvidenceRow(kind="figure", name="median_bytes", value=statistics.median(sizes)))
    return [bound_of("exposed_transfer", most, step_ms, rows, cure)]


def shown(held: Sequence[Collective], steps: int, bare_ms: float, step_ms: float) -> list[EvidenceRow]:
    """Return the evidence of what so many steps' collectives leave bare, and of which collectives those are."""
    operation, _ = Counter(one.operation for one in held).most_common(1)[0]
    took = sum(one.transfer_us or 0.0 for one in held) / steps / 1e3
    rows = [
        EvidenceRow(kind="figure", name=EXPOSED, ms=bare_ms, share=bare_ms / step_ms),
        EvidenceRow(kind="activity", name=operation, calls=len(held) / steps, ms=took),
    ]
    if sparse := sum(one.sparse for one in held):
        rows.append(EvidenceRow(kind="figure", name=SPARSE, calls=sparse / steps))
    return rows


def _mostly(held: Sequence[Collective], calls: float, records: Mapping[int, RankRecord]) -> tuple[Cure, float] | None:
    """Return what helps against that which takes most of the transfer's time, and its share; None where nothing is."""
    whole = sum(one.transfer_us or 0.0 for one in held)
    small = [one.bytes for one in held if one.bytes is not None and one.bytes <= _SMALL_BYTES]
    of: dict[Cure, list[Collective]] = {
        "reduce_in_fp32": [one for one in held if one.dtype == _DOUBLE and one.operation in REDUCE_ON_ALL],
        "broadcast_less": [one for one in held if one.operation == _BROADCAST] if broadcasts_buffers(records) else [],
    }
    if calls >= _MANY and small:
        figures = statistics.median(small) <= _FIGURES_BYTES
        of["merge_collectives" if figures else "merge_tensors"] = [
            one for one in held if one.bytes is not None and one.bytes <= _SMALL_BYTES
        ]
    for cure, some in of.items():
        if (took := sum(one.transfer_us or 0.0 for one in some)) >= _MOST * whole > 0:
            return cure, took / whole
    return None


def broadcasts_buffers(records: Mapping[int, RankRecord]) -> bool:
    """Tell whether all broadcasts begin in DDP's forward passes, as those of its modules' buffers do."""
    found = []
    for record in records.values():
        forwards = [(begin, end) for begin, end, name in record.phases if name == DDP_FORWARD]
        sent = [one.start for one in record.collectives if one.operation == _BROADCAST]
        found.append(bool(sent) and all(any(begin <= at <= end for begin, end in forwards) for at in sent))
    return bool(found) and all(found)


def is_by_ddp(records: Mapping[int, RankRecord]) -> bool:
    """Tell whether DDP reduces the gradients, by its annotation of the forward pass."""
    return any(name == DDP_FORWARD for record in records.values() for _, _, name in record.phases)


def _are_quick(collectives: Sequence[Collective]) -> bool:
    """Tell whether collectives may be small by what each takes at its quickest: else it is data that takes so long."""
    by_step: dict[int | None, list[float]] = {}
    for one in collectives:
        by_step.setdefault(one.step, []).append(one.transfer_us or 0.0)
    if len({len(own) for own in by_step.values()}) > 1:
        return True  # what is the same one in other steps is not known
    quickest_us: list[float] = [min(one) for one in zip(*by_step.values(), strict=True)]
    return statistics.median(quickest_us) * 1e3 <= QUICK_NS
