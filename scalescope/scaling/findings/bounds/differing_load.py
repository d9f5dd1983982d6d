"""Batches that differ by rank and step: in one step a rank computes a multiple of what it does in another.

Other processes on a rank's cores, or its device, make some launches longer, here and there; the others take what they
always do. With more to compute even the quickest of a rank's products in that step are longer than elsewhere, all by
the same factor. What that costs is the largest load of each step less the mean of the ranks: as much would be done by
then if all had the same. Where shapes were recorded they count the loads.
"""

import statistics
from collections.abc import Mapping, Sequence, Set

import numpy as np
import numpy.typing as npt

from scalescope.records.statistics import half_of_mean, is_beyond_chance
from scalescope.scaling.finding.figures import COUNTED_LOADS, LATE_RANK, LOADS
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.finding.kinds import is_by_turns, is_counted
from scalescope.scaling.findings.bounds.counted_loads import counted_loads
from scalescope.scaling.findings.candidate import MOST_STEPS, WORTH_SAYING, Candidate, Scene
from scalescope.scaling.findings.detectors.slower_compute import in_common
from scalescope.scaling.replay.removal import What
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

#: So many times as long as anywhere else are the quickest of a rank's products in a step with more to compute.
_MORE, _QUICKEST = 1.5, 0.2
#: A step's ranks differ where one has so many times another's load; so it is in so many of the steps.
_DIFFER, _OFTEN = 1.3, 0.5
#: Shorter products are mostly launches; of fewer nothing is told.
_LEAST_NS, _PRODUCTS, _LEAST_STEPS = 20_000, 3, 3
#: What takes out that launches are longer: of one rank, or of ranks by turns, down to the least of them.
_LONGER: tuple[What, ...] = ("slow", "turns")


def with_differing_load(scene: Scene, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with that of loads that differ, in place of ranks whose launches are longer for it."""
    told = {one.rank for one in candidates if one.code == "more_work" and is_counted(one.evidence)}
    longer = {one.rank for one in candidates if one.code == "slower_compute" and not is_by_turns(one.evidence)}
    found = _differing_load(scene, told, longer)
    if found is None:
        return list(candidates)
    return [*(one for one in candidates if not any(removal.what in _LONGER for removal in one.removals)), found]


def _differing_load(scene: Scene, told: Set[int | None], longer: Set[int | None]) -> Candidate | None:
    """Return the candidate; `told`: the ranks of which shapes tell that they have more; `longer`: those of which all
    launches, or all of a kind, are longer.
    """
    ranks, steps = list(scene.side.ranks), list(scene.side.steps)
    if len(ranks) < 2:
        return None
    numbers = scene.replayer.graph.step_numbers
    counted = counted_loads(scene.replayer.records, ranks, [numbers[step] for step in steps])
    # a window's last step, which no next one bounds, tells what it multiplies all the same
    every = counted_loads(scene.replayer.records, ranks, numbers)
    if every is not None and not every.differing.any():
        return None  # what some take longer for is no load
    routed = bool(scene.analysis.experts)  # what a router gives experts is told as theirs
    if counted is not None and every is not None and every.take_turns and not routed:
        most = dict(zip(ranks, every.most, strict=True))
        taken = _by_themselves(scene, ranks, [numbers[step] for step in steps])
        return _candidate(scene, counted.lost_ms(taken), every.elements, most, COUNTED_LOADS)
    if len(steps) < _LEAST_STEPS:
        return None
    products, whole = _times(scene, ranks, steps)
    if products.shape[-1] < _PRODUCTS:
        return None
    least = products.min(axis=(0, 1))
    quickest = np.quantile(products / least, _QUICKEST, axis=-1)  # by rank and step
    typical = np.median(products / least, axis=-1)
    if (quickest >= _MORE).mean() < 1 / len(ranks) / 2:
        return None
    top, bottom = typical.max(axis=0), typical.min(axis=0)
    differing = top >= _DIFFER * bottom
    if differing.mean() < _OFTEN:
        return None
    longest = [float((typical.argmax(axis=0) == at)[differing].sum()) for at in range(len(ranks))]
    own = longest.index(max(longest))
    if max(longest) >= MOST_STEPS * differing.sum() and (
        ranks[own] in told
        or any(_is_own(times, own) for times in (quickest, typical))
        or (ranks[own] in longer and _is_beyond_chance(scene, ranks[own]))
    ):
        return None  # one rank has more in each step: that is its own
    lost = ((whole.max(axis=0) - whole.mean(axis=0)) / 1e6).tolist()
    cost = statistics.fmean(lost), half_of_mean(lost)
    most_often = {rank: round(count) for rank, count in zip(ranks, longest, strict=True)}
    return _candidate(scene, cost, typical, most_often, LOADS)


def _candidate(
    scene: Scene, cost: tuple[float, float] | None, loads: npt.NDArray[np.float64], most: Mapping[int, int], name: str
) -> Candidate | None:
    """Return the candidate of what loads that differ cost, ms with half of its interval, where that is worth a word.

    `loads`: by rank and step; `most`: in how many of the steps each rank has the most; `name`: of the evidence.
    """
    if cost is None or cost[0] < WORTH_SAYING * scene.step_ms:
        return None
    ms, half = cost
    late = [
        EvidenceRow(kind="figure", name=LATE_RANK, value=rank, share=count / loads.shape[1])
        for rank, count in most.items()
        if count
    ]
    return Candidate(
        code="alternating_load",
        gain_ms=(ms, max(0.0, ms - half), ms + half),
        evidence=(EvidenceRow(kind="figure", name=name, value=float(loads.max() / loads.min())), *late),
        remedy=Remedy(cure="even_out"),
    )


def _by_themselves(scene: Scene, ranks: Sequence[int], numbers: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return how long each rank is busy in each step with what no other rank holds up, ns of the step as run.

    More to compute is more launches, too, of a loop over time: what all have in common would leave these out.
    """
    own = {(one.rank, one.step): one.by_itself_ms for one in scene.analysis.steps}
    taken = np.array([[own.get((rank, number), 0.0) for number in numbers] for rank in ranks])
    window = max((one.window_ms / max(1, one.steps) for one in scene.analysis.ranks), default=0.0)
    return np.asarray(1e6 * taken * (min(1.0, scene.step_ms / window) if window else 1.0))


def _is_own(times: npt.NDArray[np.float64], at: int) -> bool:
    """Tell whether a rank's load is the same in all steps, by how many times as long its products take in each.

    So is each other rank's, or it is less in any step than this one's: a process on its cores makes most of a step's
    products longer at times, and that is no load of that rank's.
    """
    least, most = times.min(axis=1), times.max(axis=1)
    steady = most < _DIFFER * least
    less = _DIFFER * most <= least[at]
    return bool(steady[at] and (steady | less).all())


def _is_beyond_chance(scene: Scene, rank: int) -> bool:
    """Tell whether a rank's typical launch is longer than the others' by more than what its steps differ by: loads that
    come at random, and other processes on its cores, make now this one's longer and now that one's.
    """
    return is_beyond_chance(in_common(scene, rank).typically_longer_by_step, len(scene.side.ranks))


def _times(
    scene: Scene, ranks: Sequence[int], steps: Sequence[int]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return what each product takes that all ranks run in all steps, and all that they do, by rank and step, ns."""
    graph = scene.replayer.graph
    taken: dict[tuple[int, str], dict[tuple[int, int], float]] = {}
    for at, rank in enumerate(ranks):
        for place_of_step, step in enumerate(steps):
            own = scene.side.launches[rank, step]
            for row, place in enumerate(own.place.tolist()):
                name = graph.activities[own.activity[row]].name
                if place >= 0:
                    taken.setdefault((place, name), {})[at, place_of_step] = float(own.work_ns[row])
    shape = (len(ranks), len(steps))
    whole = np.zeros(shape)
    products = []
    for (_, name), times in taken.items():
        if len(times) < len(ranks) * len(steps):
            continue
        of_one = np.zeros(shape)
        for cell, ns in times.items():
            of_one[cell] = ns
        whole += of_one
        if kind_of(name) in MULTIPLYING and np.median(of_one) >= _LEAST_NS and of_one.min() > 0:
            products.append(of_one)
    return (np.stack(products, axis=-1) if products else np.empty((*shape, 0))), whole
