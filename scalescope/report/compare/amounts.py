"""Amounts of work of which a step does more or less on one side of a comparison, in words: counted, and so no noise."""

from collections.abc import Sequence

from scalescope.report.compare.parts import MOST_NAMED, calls, moved, part_name, told_change
from scalescope.report.drawing.numbers import figure
from scalescope.report.text.samples import other_shares
from scalescope.scaling.compare.alike.same_work import size_of
from scalescope.scaling.compare.answer import Amount, AmountChange, Comparison, CountedWork, PartChange

#: Amounts of work are named in this order, and no more of them.
_ORDER: tuple[Amount, ...] = ("samples", "flops_a_sample", "collectives", "sent_bytes")
_MOST_AMOUNTS = 2
#: What a step does so many times as much of on one side is said before that it takes another time.
FAR_APART = 2.0
_WORK: tuple[Amount, ...] = ("flops_a_sample", "sent_bytes")
#: What exchanging more, or oftener, changes.
_EXCHANGED = ("exposed_transfer", "exposed_wait")


def unlike(answer: Comparison, here: str, there: str) -> str:
    """Return what a step does another amount of."""
    told = sorted(answer.amounts, key=lambda one: _ORDER.index(one.amount))
    if answer.samples is not None and answer.samples.rate is None:  # of which a mean rank's would say too little
        return f"The ranks of {there} take other shares of a step's samples: {other_shares(answer.samples)}"
    if not told:
        return ""
    if answer.verdict != "same" and does_other_work(answer):  # which is said before
        return f"The work that differs: {', '.join(amount_words(one) for one in _far_apart(answer)[:_MOST_AMOUNTS])}"
    what = f"{there} has another number of collectives than {here}"
    if "samples" in {one.amount for one in told}:
        what = f"The steps of {there} are of another batch than those of {here}"
    elif _is_other_work(told):
        if answer.verdict == "same" and _with_more_calls(answer):
            return ""  # told in one sentence with them
        what = f"{there} does not do the same work as {here}"
    return f"{what}: {', '.join(amount_words(one) for one in told[:_MOST_AMOUNTS])}"


def more_kernels(answer: Comparison, here: str, there: str) -> str:
    """Return which kernels run more or less often; with other work that is counted as well, what costs more first."""
    sure = _with_more_calls(answer)
    told = [", ".join(f"{part_name(one)} {calls(work)} ({told_change(one, ' ms')})" for one, work in sure[:MOST_NAMED])]
    amounts = sorted(answer.amounts, key=lambda one: _ORDER.index(one.amount))
    by_rank = answer.samples is not None and answer.samples.rate is None  # of which the mean rank's say too little
    if sure and answer.verdict == "same" and _is_other_work(amounts) and not by_rank:
        exchanged = sum(one.change_ms for one in answer.parts if one.name in _EXCHANGED)
        first = abs(exchanged) > abs(sum(one.told_ms or 0.0 for one, _ in sure))
        told.insert(0 if first else 1, ", ".join(map(amount_words, amounts[:_MOST_AMOUNTS])))
    return f"{there} does not do the same work as {here}: {'; '.join(told)}" if sure else ""


def amount_words(one: AmountChange) -> str:
    """Return an amount on both sides, in words."""
    if one.amount == "samples":
        return f"{_whole(one.other)} samples a rank's step for {_whole(one.baseline)}"
    if one.amount == "flops_a_sample":
        return f"{figure(one.other / one.baseline, 2)} times the FLOPs a sample"
    if one.amount == "collectives":
        return f"{one.other:,.0f} {one.operation} calls a step for {one.baseline:,.0f}"
    return f"{one.operation} of {size_of(one.other)} a step for {size_of(one.baseline)}"


def exchanges(answer: Comparison) -> AmountChange | None:
    """Return the operation of which a side has far more calls, and sends far more; None where other work differs."""
    sent = _far_apart(answer)
    if not sent or any(one.amount != "sent_bytes" for one in sent):
        return None
    most = max(sent, key=lambda one: abs(one.other - one.baseline)).operation
    calls = next((one for one in answer.amounts if (one.amount, one.operation) == ("collectives", most)), None)
    far = calls is not None and max(calls.baseline, calls.other) >= FAR_APART * min(calls.baseline, calls.other)
    return calls if far else None


def does_other_work(answer: Comparison) -> bool:
    """Tell whether two steps that are laid side by side do other work altogether, of batches that are alike."""
    return bool(_far_apart(answer)) and "samples" not in {one.amount for one in answer.amounts}


def _is_other_work(amounts: Sequence[AmountChange]) -> bool:
    """Tell whether a step does other work by its amounts, on batches that are alike."""
    told = {one.amount for one in amounts}
    return "samples" not in told and bool(told & {"flops_a_sample", "sent_bytes"})


def _whole(samples: float) -> str:
    """Return a number of samples, which is no whole one where it is a mean of ranks that differ."""
    return f"{samples:,.0f}" if samples == round(samples) else f"{samples:,.1f}"


def _with_more_calls(answer: Comparison) -> list[tuple[PartChange, CountedWork]]:
    """Return the parts of which something is sure that run more or fewer kernels, most changed first."""
    return [(one, one.work) for one in moved(answer) if one.work is not None and one.work.change_ms is not None]


def _far_apart(answer: Comparison) -> list[AmountChange]:
    """Return the work of which one side does twice as much or more, or all."""
    return [
        one
        for one in sorted(answer.amounts, key=lambda one: _ORDER.index(one.amount))
        if one.amount in _WORK and max(one.baseline, one.other) >= FAR_APART * min(one.baseline, one.other)
    ]
