"""Which of a rank's operators work on larger inputs than the others' same ones: more to compute, and no slower core.

A model of several parts may have larger inputs in one of them alone, as larger images are beside captions that are as
long. Over all of what a rank multiplies that says little; operator by operator, shapes tell it.
"""

from dataclasses import dataclass

import numpy as np

from scalescope.scaling.finding.figures import INPUTS, LARGER_IN
from scalescope.scaling.finding.finding import EvidenceRow
from scalescope.scaling.findings.candidate import MOST_STEPS, Scene

#: Inputs are larger from this share on.
_LARGER = 0.035
#: Of what products take longer, so much is of those with larger inputs, which are so much of all products at least.
_OF_LONGER, _SHARE = 0.5, 0.1
#: So many operators are named.
_NAMED = 2


@dataclass(frozen=True)
class LargerInputs:
    """How many times the others' inputs a rank's products work on, weighed by what these take, and by operator."""

    times: float
    by_name: dict[str, float]  # of those that are larger, what takes longest beyond the others first

    @property
    def evidence(self) -> tuple[EvidenceRow, ...]:
        """Return how many times as much it is, and of the first few operators."""
        named = list(self.by_name.items())[:_NAMED]
        return (
            EvidenceRow(kind="figure", name=INPUTS, value=self.times),
            *(EvidenceRow(kind="figure", name=f"{LARGER_IN} {name}", value=times) for name, times in named),
        )


def larger_inputs(scene: Scene, rank: int) -> LargerInputs | None:
    """Return by how much a rank's operators work on larger inputs, step after step, where what they take longer is most
    of what its products do; None where shapes do not tell.
    """
    side, activities = scene.side, scene.replayer.graph.activities
    mine, theirs, times = np.empty(0), np.empty(0), np.empty(0)
    elements: dict[str, list[float]] = {}
    there = 0
    for step in side.steps:
        own = side.launches[rank, step]
        ratio = own.inputs / side.theirs(rank, step, "inputs")
        taken, others = own.work_ns, side.theirs(rank, step, "work_ns")
        known = ~np.isnan(ratio) & (others > 0)
        larger = known & (ratio >= 1 + _LARGER)
        there += bool(larger.any())
        mine, theirs, times = (
            np.concatenate((before, now[known])) for before, now in ((mine, taken), (theirs, others), (times, ratio))
        )
        for row in np.flatnonzero(larger).tolist():
            name = activities[own.activity[row]].name
            sums = elements.setdefault(name, [0.0, 0.0, 0.0])
            values = (float(own.inputs[row]), float(own.inputs[row] / ratio[row]), float(taken[row] - others[row]))
            elements[name] = [before + now for before, now in zip(sums, values, strict=True)]
    if not elements or there < MOST_STEPS * len(side.steps):
        return None
    larger = times >= 1 + _LARGER
    longer, beside = float((mine - theirs)[larger].sum()), float((mine - theirs)[~larger].sum())
    whole = float(theirs.sum())
    if longer < _OF_LONGER * (longer + max(0.0, beside)) or float(theirs[larger].sum()) < _SHARE * whole or longer <= 0:
        return None
    by_name = sorted(elements, key=lambda name: -elements[name][2])
    return LargerInputs(
        times=float((theirs * times).sum()) / whole,
        by_name={name: elements[name][0] / elements[name][1] for name in by_name},
    )
