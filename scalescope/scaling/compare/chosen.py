"""Which of a change other kernels make, that a library may have chosen for the same operators.

cuDNN and MIOpen time several algorithms when a job begins and take the quickest. Some are about as quick, so that two
runs of one job launch other kernels, and a convolution is now a kernel of its own and now a matrix product. On H200s
ResNet-50's products differ between runs by 7 to 13%, its convolutions by 2 to 5%, and both together by 1%: in 128 pairs
of undisturbed runs what is gone and what came in its place are alike within 49% (the median pair on one GPU within 5%,
on two within 12%). Products that no convolution is among are chosen by rule: in 145 pairs of GPT's runs none was
another.
"""

from collections.abc import Mapping, Sequence

from scalescope.scaling.compare.measurement import Measurement, compute_of
from scalescope.scaling.trace.kernel_kinds import CONVOLUTION, MATMUL, kind_of

#: What kernels of one name take differs by less from run to run where as many are launched.
_AS_MANY = 0.1
#: What came differs by less from what is gone where a library chose it for being the quickest.
_AS_QUICK = 0.5


def change_by_choice(baseline: Measurement, other: Measurement, rate: float = 1.0) -> dict[str, float]:
    """Return by kind what other kernels make of its change, ms a step, where that may be a library's choice.

    `rate`: what OTHER's times are multiplied by.
    """
    sides = [_by_name(baseline), _by_name(other)]
    change = {CONVOLUTION: 0.0, MATMUL: 0.0}
    gone = came = 0.0
    for name in {**sides[0], **sides[1]}:
        before, after = sides[0].get(name, 0.0), rate * sides[1].get(name, 0.0)
        if (kind := kind_of(name)) in change and abs(after - before) > _AS_MANY * max(before, after):
            change[kind] += after - before
            gone, came = gone + max(0.0, before - after), came + max(0.0, after - before)
    chosen = change[CONVOLUTION] and abs(came - gone) <= _AS_QUICK * min(gone, came)
    return {kind: ms for kind, ms in change.items() if ms} if chosen else {}


def _by_name(side: Measurement) -> Mapping[str, float]:
    """Return what each kernel takes of a step, ms: the mean of the repeats, each told by its first window's names."""
    found: dict[str, float] = {}
    for one in side.repeats:
        compute = _mean([compute_of(vector) for window in one.windows for vector in window.ranks.values()])
        for name, share in one.identity.names.items():
            found[name] = found.get(name, 0.0) + share * compute / len(side.repeats)
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
