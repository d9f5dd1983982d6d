"""What all ranks compute in double precision: numbers of NumPy's that reach a network, mostly.

It is no fault of a rank, and some of it may be meant; what float32 gives back of it was measured, and varies with what
is computed: so does the interval. What one rank alone computes so is told of that rank (dearer_precision).
"""

from collections.abc import Iterator, Sequence

from scalescope.scaling.finding.figures import DOUBLE_PRECISION
from scalescope.scaling.finding.finding import Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.computing.tally import Tally, takes_much
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.ranks.shortened import in_double
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.trace.kernel_kinds import CONVOLUTION, MATMUL, NORMALISATION, kind_of

#: Of what cores compute in fp64, fp32 gave back so much in the middle, and between so much mostly: vectors hold twice
#: as many numbers, and half is moved; and of convolutions, which oneDNN does not have in fp64, by their shapes
#: (benchmarks/wider_numbers.py, docs/method/findings.md).
GIVEN_BACK, GIVEN_BACK_LOW, GIVEN_BACK_HIGH = 0.55, 0.45, 0.7
CONVOLVED, CONVOLVED_LOW, CONVOLVED_HIGH = 0.68, 0.4, 0.85
#: The same on devices, by the kind of kernel: measured on an H200, which has no convolution in fp64 but a slow one, and
#: whose products in it take as long as plain fp32 ones do. What converts to float64 and back goes, all of it.
ON_DEVICE = {CONVOLUTION: (0.4, 0.85, 0.95), NORMALISATION: (0.55, 0.64, 0.7), MATMUL: (0.0, 0.0, 0.3)}
#: … and of a device whose peaks are not known, which may have a thirtieth of them in fp64.
PRODUCTS_ANYWHERE = (0.0, 0.5, 0.97)
ON_DEVICE_ELSE = (0.35, 0.4, 0.6)


def double_precision(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks compute in double precision, for much of the step."""
    graph = scene.replayer.graph
    ranks = scene.side.ranks
    if not scene.replayer.on_cpu:
        yield from _on_devices(scene)
        return
    if not graph.precisions:
        return
    tally = Tally(ranks, set(graph.step_numbers))
    of_convolutions = of_others = 0.0
    for convolved in (True, False):
        for at in (at for rank in ranks for at in in_double(graph, rank, convolved=convolved)):
            took = tally.add(graph.activities[at].name, graph.activities[at])
            of_convolutions, of_others = of_convolutions + took * convolved, of_others + took * (not convolved)
    if not tally.is_alike():
        return
    removals = (Removal("double", share=GIVEN_BACK), Removal("double_convolutions", share=CONVOLVED))
    if not takes_much(scene, Change(without=removals)):
        return
    low, ms, high = (less_ms(of_convolutions, of_others, shares) for shares in _SHARES)
    yield Candidate(
        code="double_precision",
        removals=removals,
        known_within=(low / ms, high / ms),
        evidence=tally.rows(DOUBLE_PRECISION, "operator"),
        remedy=Remedy(cure="narrower_numbers"),
    )


def _on_devices(scene: Scene) -> Iterator[Candidate]:
    graph = scene.replayer.graph
    tally = Tally(scene.side.ranks, set(graph.step_numbers))
    computing = back_low = back = back_high = 0.0
    for at in sorted(graph.double):
        kind = kind_of(graph.activities[at].name)
        took = tally.add(kind, graph.activities[at])
        shares = ON_DEVICE.get(kind, ON_DEVICE_ELSE)
        if kind == MATMUL and scene.peak is None:
            shares = PRODUCTS_ANYWHERE
        low, middle, high = (share * took for share in shares)
        computing, back_low, back, back_high = computing + took, back_low + low, back + middle, back_high + high
    converting = sum(
        tally.add(kind_of(graph.activities[at].name), graph.activities[at]) for at in sorted(graph.converting)
    )
    ms = back + converting
    if not tally.is_alike() or not ms:
        return
    removals = (Removal("double", share=back / computing if computing else 0.0),)
    if not takes_much(scene, Change(without=removals)):
        return
    yield Candidate(
        code="double_precision",
        removals=removals,
        known_within=((back_low + converting) / ms, (back_high + converting) / ms),
        evidence=tally.rows(DOUBLE_PRECISION, "activity"),
        remedy=Remedy(cure="narrower_numbers"),
    )


def less_ms(of_convolutions_ms: float, of_others_ms: float, shares: Sequence[float] = (CONVOLVED, GIVEN_BACK)) -> float:
    """Return what float32 gives back of convolutions and of all others that are in float64, ms."""
    return shares[0] * of_convolutions_ms + shares[1] * of_others_ms


_SHARES = ((CONVOLVED_LOW, GIVEN_BACK_LOW), (CONVOLVED, GIVEN_BACK), (CONVOLVED_HIGH, GIVEN_BACK_HIGH))
