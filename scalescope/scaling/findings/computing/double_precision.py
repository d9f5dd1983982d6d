"""What all ranks compute in double precision where hosts compute: numbers of NumPy's that reach a network, mostly.

It is no fault of a rank, and some of it may be meant; what float32 gives back of it was measured, and varies with what
is computed: so does the interval. What one rank alone computes so is told of that rank (dearer_precision).
"""

import statistics
from collections.abc import Iterator, Sequence

from scalescope.scaling.finding.figures import DOUBLE_PRECISION
from scalescope.scaling.finding.finding import Remedy
from scalescope.scaling.findings.candidate import MOST_STEPS, Candidate, Scene, gained_ms
from scalescope.scaling.findings.computing.tally import Tally
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.ranks.shortened import in_double
from scalescope.scaling.replay.removal import Removal

#: Of what cores compute in fp64, fp32 gave back so much in the middle, and between so much mostly: vectors hold twice
#: as many numbers, and half is moved; and of convolutions, which oneDNN does not have in fp64, by their shapes
#: (benchmarks/wider_numbers.py, docs/method/findings.md).
GIVEN_BACK, GIVEN_BACK_LOW, GIVEN_BACK_HIGH = 0.55, 0.45, 0.7
CONVOLVED, CONVOLVED_LOW, CONVOLVED_HIGH = 0.68, 0.4, 0.85
#: From this share of the step on it is told, by itself.
_MUCH = 0.03
#: Where a rank computes less than this share in it of what another does, or a step than its rank's others, it is not
#: what all do.
_ALIKE = 0.5


def double_precision(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks compute in double precision, for much of the step."""
    graph = scene.replayer.graph
    numbers, ranks = set(graph.step_numbers), scene.side.ranks
    if not scene.replayer.on_cpu or not graph.precisions:
        return
    own: dict[int, dict[int, float]] = {rank: dict.fromkeys(numbers, 0.0) for rank in ranks}
    tally = Tally(ranks, numbers)
    of_convolutions = of_others = 0.0
    for convolved in (True, False):
        for at in (at for rank in ranks for at in in_double(graph, rank, convolved=convolved)):
            node = graph.activities[at]
            if node.step not in numbers:
                continue
            took = tally.add(node.name, node)
            own[node.rank][node.step] += took
            of_convolutions, of_others = of_convolutions + took * convolved, of_others + took * (not convolved)
    if not _is_of_all(own):
        return
    removals = (Removal("double", share=GIVEN_BACK), Removal("double_convolutions", share=CONVOLVED))
    if gained_ms(scene.replayer, Change(without=removals)) < _MUCH * scene.step_ms:
        return  # what is not told takes nothing from other causes either
    low, ms, high = (less_ms(of_convolutions, of_others, shares) for shares in _SHARES)
    yield Candidate(
        code="double_precision",
        removals=removals,
        known_within=(low / ms, high / ms),
        evidence=tally.rows(DOUBLE_PRECISION, "operator"),
        remedy=Remedy(cure="narrower_numbers"),
    )


def less_ms(of_convolutions_ms: float, of_others_ms: float, shares: Sequence[float] = (CONVOLVED, GIVEN_BACK)) -> float:
    """Return what float32 gives back of convolutions and of all others that are in float64, ms."""
    return shares[0] * of_convolutions_ms + shares[1] * of_others_ms


_SHARES = ((CONVOLVED_LOW, GIVEN_BACK_LOW), (CONVOLVED, GIVEN_BACK), (CONVOLVED_HIGH, GIVEN_BACK_HIGH))


def _is_of_all(own: dict[int, dict[int, float]]) -> bool:
    """Tell whether all ranks compute about as much in double precision, in most of the steps."""
    typical = {rank: statistics.median(steps.values()) for rank, steps in own.items() if steps}
    if not typical or min(typical.values()) < _ALIKE * max(typical.values()):
        return False
    usual = [took >= _ALIKE * typical[rank] > 0 for rank, steps in own.items() for took in steps.values()]
    return sum(usual) >= MOST_STEPS * len(usual)
