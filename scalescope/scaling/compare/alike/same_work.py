"""Whether two runs do the same work, so that their steps may be laid side by side; if not, by what rate, or why not."""

from collections.abc import Sequence

import msgspec

from scalescope.records.console import counted
from scalescope.scaling.answer_rows import SamplesOfSteps
from scalescope.scaling.compare.alike.samples import least_samples, mean_samples, samples_of_steps
from scalescope.scaling.compare.answer import Amount, AmountChange, Reason
from scalescope.scaling.compare.measurement import Identity, Repeat

#: The share of compute time that is in kernels of the same names, or else of the same kinds. A GPT and a ResNet-50
#: have 0.02 and 0.55 of them in common; GPTs eager and compiled 0.69 and 0.9, on an H100 and an MI300X 0.0 and 0.9.
_SAME_NAMES = 0.15
_SAME_KINDS = 0.7
#: Of two scripts' runs of other names: the share of the compute that is in operators of the same names, as the mean of
#: both sides has it. A CNN with metrics in plain operators and without has 0.8, with other causes 0.95 to 1.0.
_MOSTLY = 0.6
#: … whose operators' inputs are as large, a sample, within this.
_SAME_INPUTS = 0.02
#: … and which a step calls as often, within this: a window may hold a part of one step more.
_SAME_CALLS = 0.1
#: Beyond this, a step sends or computes other amounts, which is said.
_SAME_AMOUNT = 0.005


class Comparability(msgspec.Struct, frozen=True, kw_only=True):
    """How two runs may be compared: `rate` is what OTHER's times are multiplied by; None: not at all."""

    rate: float | None
    reason: Reason | None = None
    notes: list[str] = []
    samples: SamplesOfSteps | None = None  # of both sides, where they are not as many

    @property
    def comparable(self) -> bool:
        return self.rate is not None


def same_work(baseline: Repeat, other: Repeat) -> Comparability:
    """Return how OTHER's steps compare with the baseline's, and what of the work differs."""
    here, there = baseline.identity, other.identity
    if (refused := another_job(here, there)) is not None:
        return refused
    if here.world_size != there.world_size and not (here.samples_by_rank and there.samples_by_rank):
        text = (
            f"one ran on {counted(here.world_size, 'rank')}, the other on {there.world_size}, and how much each does "
            f"is not told: how one job scales is told by scalescope analyze {other.name} --base {baseline.name}"
        )
        return _refused("another_world_size", text)
    names = other_names(here, there)
    notes = [*([named_otherwise(names)] if names is not None else []), *_notes(amounts(baseline, other))]
    if here.counts_batches != there.counts_batches:
        notes.append("only one of both was told how many samples a batch has: steps are compared, whatever is in them")
        return Comparability(rate=1.0, notes=notes)
    samples = samples_of_steps(here, there)
    if samples is not None and samples.rate is None:
        ranks: Reason = "another_split" if here.world_size == there.world_size else "another_world_size"
        return Comparability(rate=1.0, reason=ranks, notes=notes, samples=samples)
    if samples is not None and samples.rate is not None:
        before, after = max(samples.baseline), max(samples.other)
        whose = "a rank's step" if len(set(samples.baseline)) == 1 else "the step of the rank with most"
        text = f"{whose} takes {before} samples there and {after} here: compared a sample"
        return Comparability(rate=samples.rate, reason="another_batch", notes=[text, *notes], samples=samples)
    if here.world_size != there.world_size:
        text = f"{here.world_size} ranks there and {there.world_size} here, each with as many samples: compared a rank"
        return Comparability(rate=1.0, reason="another_world_size", notes=[text, *notes])
    return Comparability(rate=1.0, notes=notes)


def another_job(here: Identity, there: Identity) -> Comparability | None:
    """Return why two runs are of different jobs; None where nothing speaks for it."""
    if here.activity != there.activity:
        return _refused("another_activity", f"one ran on {_where(here)}, the other on {_where(there)}")
    if here.model is not None and there.model is not None:
        if here.model == there.model:
            return None  # kernels of a compiled step may have no name in common with those of the same step, eager
        if here.named_by_user and there.named_by_user:
            if _same_program(here, there):
                return None  # the name is the user's own word, for a run as well as for a job
            # by kernels alone no job is told from another of the same architecture: the user has to say that it is one
            text = (
                f"profile_steps was told {here.model!r} in one and {there.model!r} in the other: call both by one "
                "name, or compare the folders of their traces (RUN/traces), which have none"
            )
            return _refused("another_job", text)
        return _refused("another_job", f"one trains {here.model}, the other {there.model}")
    if not _like_kernels(here, there):
        return _refused("another_job", "their kernels have too little in common: nothing tells that they do the same")
    return None


def _refused(reason: Reason, text: str) -> Comparability:
    return Comparability(rate=None, reason=reason, notes=[text])


def _where(identity: Identity) -> str:
    return identity.device or ("CPU ranks" if identity.activity == "cpu" else "GPUs")


def _like_kernels(here: Identity, there: Identity) -> bool:
    """Tell whether traces may be of one job; where one side has none, nothing speaks against it."""
    if not here.names or not there.names:
        return True
    return in_common(here.names, there.names) >= _SAME_NAMES or in_common(here.kinds, there.kinds) >= _SAME_KINDS


def _same_program(here: Identity, there: Identity) -> bool:
    """Tell whether two scripts' steps are of one job whatever they are called: the same operators, on the same sizes.

    Sizes are those of what ranks exchange, which tell how many parameters there are; else of what operators multiply.
    """
    shared = sum((share + there.names[name]) / 2 for name, share in here.names.items() if name in there.names)
    return shared >= _MOSTLY and _same_sizes(here, there)


def _same_sizes(here: Identity, there: Identity) -> bool:
    sent = [sum(size for size in one.sent_bytes.values() if size) for one in (here, there)]
    if all(sent):
        return abs(sent[0] - sent[1]) <= _SAME_AMOUNT * max(sent)
    both = [name for name in here.inputs if name in there.inputs]
    samples = (least_samples(here), least_samples(there))  # whose inputs these are
    apart = [here.inputs[name] / samples[0] / (there.inputs[name] / samples[1]) - 1 for name in both]
    as_large = bool(both) and all(abs(one) <= _SAME_INPUTS for one in apart)
    calls = [(here.calls.get(name, 0.0), there.calls.get(name, 0.0)) for name in both]
    return as_large and all(abs(one - other) <= _SAME_CALLS * max(one, other) for one, other in calls)


def other_names(here: Identity, there: Identity) -> tuple[str, str] | None:
    """Return what two runs of one job were called, where that is not the same; None where it is, or nothing tells."""
    if here.model is None or there.model is None or here.model == there.model:
        return None
    return here.model, there.model


def named_otherwise(names: tuple[str, str]) -> str:
    """Return that two runs are of one job whatever they are called, by what `other_names` has of them; no full stop."""
    return f"named otherwise: {names[0]!r} there and {names[1]!r} here; by their operators and sizes the same job"


def in_common(here: dict[str, float], there: dict[str, float]) -> float:
    """Return the share of time that two sets of shares have in common, 0 to 1."""
    return sum(min(share, there.get(name, 0.0)) for name, share in here.items())


def amounts(baseline: Repeat, other: Repeat) -> list[AmountChange]:
    """Return what a rank's step does another amount of: counted, or known by its program, and so no noise."""
    here, there = baseline.identity, other.identity
    found = []
    samples = mean_samples(here), mean_samples(there)
    if samples[0] and samples[1] and not (here.counts_batches or there.counts_batches):
        found.append(AmountChange(amount="samples", operation=None, baseline=samples[0], other=samples[1]))
    if baseline.facts is not None and other.facts is not None:
        flops = baseline.facts.flops_per_sample, other.facts.flops_per_sample
        if min(flops) > 0:
            found.append(AmountChange(amount="flops_a_sample", operation=None, baseline=flops[0], other=flops[1]))
    if baseline.windows and other.windows and here.world_size == there.world_size:
        found += _of_collectives("collectives", here.collectives, there.collectives)
        found += _of_collectives("sent_bytes", here.sent_bytes, there.sent_bytes)
    unlike = [one for one in found if abs(one.other - one.baseline) > _SAME_AMOUNT * max(one.baseline, one.other)]
    # sizes that read alike are no other work to tell: what makes them differ is counted in calls
    return [one for one in unlike if one.amount != "sent_bytes" or size_of(one.other) != size_of(one.baseline)]


def _of_collectives(amount: Amount, here: dict[str, int | None], there: dict[str, int | None]) -> list[AmountChange]:
    """Return what is told on both sides; an operation that one side's steps have not comes to nothing there."""
    told = [(operation, here.get(operation, 0), there.get(operation, 0)) for operation in sorted({*here, *there})]
    return [
        AmountChange(amount=amount, operation=operation, baseline=before, other=after)
        for operation, before, after in told
        if before is not None and after is not None
    ]


def _notes(changed: Sequence[AmountChange]) -> list[str]:
    """Say what of the work differs, though the job is of one name."""
    notes = []
    for one in changed:
        if one.amount == "flops_a_sample":
            notes.append(f"{one.other / one.baseline - 1:+.1%} FLOPs a sample: {_by_flops(one.baseline, one.other)}")
        elif one.amount == "sent_bytes":
            notes.append(f"{one.operation}: {size_of(one.other)} a step where there {_were(one.baseline)}")
    return notes


def size_of(amount: float) -> str:
    """Return bytes in a unit in which they are not 0.0."""
    unit, scale = next(
        ((unit, scale) for unit, scale in (("MB", 1e6), ("kB", 1e3)) if amount >= scale / 10), ("B", 1.0)
    )
    return f"{amount / scale:.{0 if scale == 1 else 1}f} {unit}" if amount else "nothing"


def _were(amount: float) -> str:
    return f"were {size_of(amount)}" if amount else "was nothing"


def _by_flops(before: float, after: float) -> str:
    return f"a step as long would be {before / after - 1:+.1%} a FLOP"
