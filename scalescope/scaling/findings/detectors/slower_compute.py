"""The same kernels, longer on one rank than on the others.

What is longer tells why. A few launches that are longer by a stretch of a millisecond or so, and the rest as ever:
another process has the device by turns, unless they are the same few in each step. All kinds of kernels alike: the
device is slower, or shared all the time; but not where the kernels' grids are larger, too, as they are of larger
batches. What multiplies alike and what moves data hardly: its clocks are held down,
which the memory's are not. One kind alone: that kernel is. Other kernels for the same operators, and all the rest as
ever: a layer of another precision or layout. Devices of one type differ by a per cent or two without
anybody's doing, which is no finding.
"""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scalescope.records.statistics import is_beyond_chance
from scalescope.scaling.finding.codes import Code, Cure
from scalescope.scaling.finding.figures import AT_LEAST, BY_TURNS, INPUTS, TIMES_BESIDE
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.finding.kinds import is_counted, tells_precision
from scalescope.scaling.findings.candidate import BY_CHANCE, MOST_STEPS, Candidate, Scene
from scalescope.scaling.findings.computing.grids import times_the_blocks
from scalescope.scaling.findings.computing.larger_inputs import larger_inputs
from scalescope.scaling.findings.computing.other_kernels import other_kernels
from scalescope.scaling.findings.detectors.longer_loops import rounds_of
from scalescope.scaling.findings.detectors.more_work import multiplied_within
from scalescope.scaling.findings.detectors.own_work import computes_beside, looks_for_nan
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.ranks.extra import held_up_by
from scalescope.scaling.replay.ranks.side_by_side import Floats
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, OTHER, kind_of
from scalescope.scaling.verdicts.stragglers import explains, times_the_inputs

#: Devices alike differ by less than this.
_NATURAL = 0.035
#: A device that draws more power for what runs beside has its clocks lower by up to so much, and so kernels longer.
_BY_POWER = 0.25
#: A kernel counts as having a collective beside it from this share of its time on.
_OVERLAPPED = 0.05
#: One kind alone, of which there is less to average over, by less than this.
_ONE_KIND = 0.1
#: All kinds count as longer alike where those that are make up so much of the compute.
_ALL_KINDS = 0.6
#: Another process has the device for so long at least, ns, and its turns make up so much of what is longer.
_TURN_NS, _TURNS = 300_000, 0.5
#: So much of what is longer by stretches is so in the same launches of each step, where it is no other process.
_PUNCTUAL = 0.7
#: Stretches are one where they lie within this share of it, of launches of which one takes so many times as long.
_ONE_STRETCH, _UNLIKE = 0.15, 2.0
#: Multiplications are longer alike where their middle half is within this share of the typical one.
_ALIKE = 0.25
#: What moves data is longer by no more than this share of that, where clocks are.
_HARDLY = 0.4
#: From here on a rank rather has more to compute, such as a larger batch, than slower cores or clocks.
_MUCH = 1.3
#: Of what is longer on the mean, so much is in the shortest of the steps, too, where it is no chance.
_ALWAYS = 0.5
#: Where even the quickest of a rank's products, of this share of them, take so many times as long in each step, it has
#: more to compute or slower cores: no other process makes all of them longer. Shorter products are mostly launches, ns;
#: of fewer products or steps nothing is told.
_FOR_SURE, _QUICKEST = 1.5, 0.2
_LEAST_NS, _PRODUCTS, _LEAST_STEPS = 20_000, 3, 2
#: So much of what a rank's launches take longer is of those beside collectives, by more than the others are longer by,
#: where that is told beside these.
_BESIDE = 0.25
#: So much of the compute multiplies, and moves data, at least; and so many kernels are told apart.
_SHARE, _NAMES = 0.1, 3


def weighted_quantile(values: Floats, weights: Floats, quantile: float) -> float:
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    return float(values[order][int(np.searchsorted(passed, quantile * passed[-1]))])


@dataclass(frozen=True)
class InCommon:
    """A rank's launches that the others run too and that have no collective beside them, in all steps. Times in ns."""

    name: list[str]
    kind: list[str]
    mine: Floats
    theirs: Floats
    steps: int
    place: Sequence[int] = ()  # in the step's program
    step: Sequence[int] = ()

    @property
    def longer(self) -> Floats:
        """By how much each launch takes longer here, ns."""
        return np.asarray(self.mine - self.theirs)

    @property
    def longer_by_step(self) -> tuple[float, ...]:
        """By how much all launches of a step take longer here, ms; below 0 where the others' do."""
        found: dict[int, float] = {}
        for step, ns in zip(self.step, self.longer.tolist(), strict=True):
            found[step] = found.get(step, 0.0) + ns / 1e6
        return tuple(found.values())

    @property
    def typical_ratio_by_step(self) -> tuple[float, ...]:
        """How many times as long the launch in the middle of each step is.

        Each that is more than a launch counts once: what holds up a few of them, and takes them long, on whichever
        rank, does not move it.
        """
        steps, ratio = np.array(self.step), self.mine / self.theirs
        long = np.minimum(self.mine, self.theirs) >= _LEAST_NS
        found = []
        for step in sorted(set(self.step)):
            chosen = steps == step
            counted = chosen & long if (chosen & long).sum() >= _PRODUCTS else chosen
            found.append(float(np.median(ratio[counted])))
        return tuple(found)

    @property
    def typically_longer_by_step(self) -> tuple[float, ...]:
        """By how much a step's launches take longer here, ms, if all of them did as the one in the middle does."""
        steps = np.array(self.step)
        theirs = [float(self.theirs[steps == step].sum()) / 1e6 for step in sorted(set(self.step))]
        return tuple((ratio - 1) * ms for ratio, ms in zip(self.typical_ratio_by_step, theirs, strict=True))

    def of(self, kinds: Sequence[str]) -> "np.ndarray":
        """Return which launches are of some kinds."""
        return np.isin(np.array(self.kind), kinds)

    def ratio(self, chosen: "np.ndarray", quantile: float = 0.5) -> float:
        """Return how many times as long the chosen launches are: a quantile, each launch weighed by its time."""
        if not chosen.any():
            return 1.0
        return weighted_quantile(self.mine[chosen] / self.theirs[chosen], self.theirs[chosen], quantile)

    @property
    def typical_ratio(self) -> float:
        """How many times as long the typical launch is in the typical step.

        Of each launch the median over the steps, here and there, and each weighed by where it is the shorter: one that
        was held up for longer than all others take, on whichever rank, is not what launches are like.
        """
        found: dict[tuple[str, int], tuple[list[float], list[float]]] = {}
        for key, *times in zip(
            zip(self.name, self.place, strict=True), self.mine.tolist(), self.theirs.tolist(), strict=True
        ):
            for own, one in zip(found.setdefault(key, ([], [])), times, strict=True):
                own.append(one)
        mine, theirs = (np.array([statistics.median_low(one[at]) for one in found.values()]) for at in (0, 1))
        return weighted_quantile(mine / theirs, np.minimum(mine, theirs), 0.5)


def slower_compute(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank whose compute, launch by launch, takes longer than the others' in every step."""
    for rank in scene.side.ranks if len(scene.side.ranks) > 1 else ():
        if looks_for_nan(scene, rank) or rounds_of(scene, rank) is not None:
            continue  # which makes its operators longer: that is told as its own work, or as more of it
        common = in_common(scene, rank)
        theirs = float(common.theirs.sum())
        excess = float(common.longer.sum())
        if not theirs or excess <= 0 or not scene.worth_a_look(excess / common.steps / 1e6):
            continue
        more = by_inputs(scene, rank, 1 + excess / theirs)
        if more is not None:
            yield _candidate(scene, rank, more, common)
        others = other_kernels(scene, rank) if more is None else ()
        if others:
            yield Candidate(
                code="slower_compute",
                rank=rank,
                removals=(Removal("unlike", rank),),
                evidence=others,
                remedy=Remedy(cure="same_precision" if tells_precision(others) else "same_kernels"),
            )
        if more is not None or others or excess < _NATURAL * theirs or not _in_most_steps(common):
            continue
        # cores that compute for a rank are not what a device is: more to compute looks as lower clocks would
        clocks = None if scene.replayer.on_cpu else by_clocks(common)
        told = by_turns(common)
        if told is not None and scene.replayer.on_cpu and (told[2][0].calls or 0.0) < 1:
            continue  # now and then: on cores that others may use, that is nobody's cause
        if told is None and not (scene.replayer.on_cpu and is_by_chance(common)):
            told = clocks or everywhere(common) or _of_kinds(common)
        if told is not None and told[0] == "slower_compute" and excess < _BY_POWER * theirs:
            told = told if not computes_beside(scene, rank) else None  # which is why
        if told is not None:
            code, cure, evidence = told
            if code == "slower_compute":
                beside = in_common(scene, rank, beside_collectives=True)
                evidence = (*evidence, *times_beside_collectives(evidence, common, beside))
            yield _candidate(scene, rank, (code, cure, (*evidence, *for_sure(common))), common)


def _candidate(scene: Scene, rank: int, told: "Reason", common: InCommon) -> Candidate:
    code, cure, evidence = told
    beyond_ms, typically_ms = common.longer_by_step, common.typically_longer_by_step
    if is_beyond_chance(typically_ms, len(scene.side.ranks) * len(BY_CHANCE)):
        beyond_ms = typically_ms  # the sum of a step is of a few launches that others on the cores held up
    return Candidate(
        code=code,
        rank=rank,
        removals=(Removal("slow", rank),),
        # that a rank is given more is no chance, whatever its machine does besides
        beyond_ms=() if is_counted(evidence) else beyond_ms,
        longer_by=float(common.longer.sum() / common.theirs.sum()),
        evidence=evidence,
        remedy=Remedy(cure=cure),
    )


def _in_most_steps(common: InCommon) -> bool:
    """Tell whether a rank's launches take longer step after step, not in some steps only while another rank's do.

    All of them together, or the one in the middle: others on the cores hold up a few, now here and now there.
    """
    return any(
        sum(one > 0 for one in longer) >= MOST_STEPS * len(longer)
        for longer in (common.longer_by_step, common.typically_longer_by_step)
    )


def in_common(scene: Scene, rank: int, *, beside_collectives: bool = False) -> InCommon:
    """Return a rank's launches in common; those alone that collectives run beside, where they are asked for.

    Those that collectives run beside are left out: how much longer they take for it differs from kernel to kernel. So
    are those beside which the rank runs on another stream what the others do not: that is why they are longer. So are
    those that compute in a dearer precision than the others do.
    """
    side, graph = scene.side, scene.replayer.graph
    names: list[str] = []
    mine: list[float] = []
    theirs: list[float] = []
    places: list[int] = []
    at_step: list[int] = []
    held_up = held_up_by(graph, side, rank)
    for step in side.steps:
        own = side.launches[rank, step]
        others = side.theirs(rank, step, "work_ns")
        for row in np.flatnonzero((own.stands_in >= 0) & ~side.is_dearer(rank, step)).tolist():
            if own.activity[row] in held_up:
                continue
            node = graph.activities[own.activity[row]]
            other = float(others[row])
            beside = node.overlap_ns > _OVERLAPPED * (node.traced_end - node.traced_start)
            if node.kind == COMPUTE and other > 0 and beside == beside_collectives:
                names.append(node.name)
                mine.append(float(own.work_ns[row]))
                theirs.append(other)
                places.append(int(own.stands_in[row]))
                at_step.append(step)
    kinds = [kind_of(name) for name in names]
    return InCommon(names, kinds, np.array(mine), np.array(theirs), max(1, len(side.steps)), places, at_step)


def is_by_chance(common: InCommon) -> bool:
    """Tell whether launches are longer in some steps and not in others: at its shortest hardly any of them is.

    A rank that has more to compute, or slower cores, has them so in each step. Its share of cores that others use, too,
    differs from step to step.
    """
    shortest: dict[tuple[str, int], list[float]] = {}
    for key, mine, theirs in zip(
        zip(common.name, common.place, strict=True), common.mine.tolist(), common.theirs.tolist(), strict=True
    ):
        known = shortest.setdefault(key, [mine, theirs])
        shortest[key] = [min(known[0], mine), min(known[1], theirs)]
    mine, theirs = (sum(one[at] for one in shortest.values()) for at in (0, 1))
    always, mean = mine / theirs - 1, float(common.mine.sum() / common.theirs.sum()) - 1
    return always < max(_NATURAL, _ALWAYS * mean)


def for_sure(common: InCommon) -> Iterator[EvidenceRow]:
    """Yield how many times as long even a rank's quickest products take, where chance cannot make all of them so."""
    products = common.of(MULTIPLYING) & (common.theirs >= _LEAST_NS)
    steps = np.array(common.step)
    of_step = [products & (steps == step) for step in sorted(set(common.step))]
    if len(of_step) < _LEAST_STEPS or min(int(one.sum()) for one in of_step) < _PRODUCTS:
        return
    least = min(float(np.quantile(common.mine[one] / common.theirs[one], _QUICKEST)) for one in of_step)
    if least >= _FOR_SURE:
        yield EvidenceRow(kind="figure", name=AT_LEAST, value=least)


def times_beside_collectives(
    evidence: Sequence[EvidenceRow], common: InCommon, beside: InCommon
) -> Iterator[EvidenceRow]:
    """Yield how many times as long launches beside collectives take, where that is much of what the rank costs.

    All that is longer is taken out of the step: by those alone that nothing runs beside it would look like less.
    """
    times = next((row.value for row in evidence if row.name == "times_as_long"), None)
    if times is None:
        return
    mine, theirs = (float(ns.sum()) for ns in (beside.mine, beside.theirs))
    longer = mine - theirs + float(common.longer.sum())
    if theirs and mine - times * theirs >= _BESIDE * longer:
        ms, others_ms = (ns / common.steps / 1e6 for ns in (mine, theirs))
        yield EvidenceRow(kind="figure", name=TIMES_BESIDE, ms=ms, others_ms=others_ms, value=mine / theirs)


#: The code, what to do, and the evidence.
Reason = tuple[Code, Cure, tuple[EvidenceRow, ...]]


def by_inputs(scene: Scene, rank: int, times_as_long: float) -> Reason | None:
    """Return the finding of a rank with more to compute, by the shapes of what it multiplies, or as its script told.

    None where that is not told, or too little to make its compute so many times as long.
    """
    ratio = times_the_inputs({one: scene.replayer.records[one].multiplied for one in scene.side.ranks}, rank)
    within = None if ratio is not None and explains(ratio, times_as_long) else multiplied_within(scene, rank)
    if within is not None and explains(within[0], times_as_long):
        return "more_work", "even_out", (EvidenceRow(kind="figure", name=INPUTS, value=within[0]), within[1])
    if ratio is None or not explains(ratio, times_as_long):
        larger = larger_inputs(scene, rank)
        if larger is not None and explains(larger.times, times_as_long):
            return "more_work", "even_out", larger.evidence
    if ratio is None:
        ratio = _times_the_samples(scene, rank)
    if ratio is None:
        ratio = times_the_blocks(scene, rank)
    if ratio is None or not explains(ratio, times_as_long):
        return None
    return "more_work", "even_out", (EvidenceRow(kind="figure", name=INPUTS, value=ratio),)


def _times_the_samples(scene: Scene, rank: int) -> float | None:
    """Return how many times the others' samples a script said that a rank has; None where it did not."""
    told = scene.facts.samples_by_rank if scene.facts is not None else ()
    if len(told) <= max(scene.side.ranks):
        return None
    return told[rank] / statistics.median_high([told[one] for one in scene.side.ranks if one != rank])


def by_turns(common: InCommon) -> Reason | None:
    """Return the finding of another process that has the device by turns: some launches are longer by a stretch.

    The rest are not: neither by their time, nor where each counts once, so that what was disturbed on the others,
    and takes them long, does not outweigh all that takes them as long as ever.
    """
    turns = common.longer > np.maximum(_TURN_NS, common.theirs / 2)
    whole = float(np.maximum(common.longer, 0).sum())
    taken = float(common.longer[turns].sum())
    if taken < _TURNS * whole or common.ratio(np.ones(turns.size, bool)) > 1 + _NATURAL:
        return None
    if (_recur(common, turns) and not _are_slices(common, turns)) or common.typical_ratio > 1 + _NATURAL:
        return None
    row = EvidenceRow(
        kind="figure",
        name=BY_TURNS,
        ms=taken / common.steps / 1e6,
        calls=float(turns.sum()) / common.steps,
        value=float(np.median(common.longer[turns])) / 1e6,
    )
    return "slower_compute", "look_at_device", (row, *_rows(common, sorted(set(common.kind))))


def _recur(common: InCommon, turns: "np.ndarray") -> bool:
    """Tell whether it is the same launches that are longer, step after step: no other process comes that punctually.

    A rank whose batches are larger has longer products and an optimizer as ever. Of one launch alone nothing is told.
    """
    times = Counter(key for key, one in zip(zip(common.name, common.place, strict=True), turns, strict=True) if one)
    if common.steps < 2 or len(times) < 2:
        return False
    again = np.array([times[key] >= common.steps for key in zip(common.name, common.place, strict=True)])
    return float(common.longer[turns & again].sum()) >= _PUNCTUAL * float(common.longer[turns].sum())


def _are_slices(common: InCommon, turns: "np.ndarray") -> bool:
    """Tell whether launches are longer by one stretch, however long they are: a device deals out time in such slices.

    Where steps come at the pace of another process's turns, these hold up the same launches in each. What a rank has
    more to compute makes its launches longer by a share of what they take.
    """
    longer, theirs = common.longer[turns], common.theirs[turns]
    names = {name for name, one in zip(common.name, turns.tolist(), strict=True) if one}
    if len(names) < _NAMES or float(theirs.max()) < _UNLIKE * float(theirs.min()):
        return False
    return float(np.ptp(longer)) <= _ONE_STRETCH * float(np.median(longer))


def by_clocks(common: InCommon) -> Reason | None:
    """Return the finding of clocks that are held down: what multiplies is longer alike, and what moves data hardly."""
    multiplies = common.of(MULTIPLYING)
    moves = ~multiplies & ~common.of((OTHER,))
    whole = float(common.theirs.sum())
    for chosen in (multiplies, moves):
        names = {name for name, one in zip(common.name, chosen.tolist(), strict=True) if one}
        if float(common.theirs[chosen].sum()) < _SHARE * whole or len(names) < _NAMES:
            return None
    low, middle, high = (common.ratio(multiplies, quantile) - 1 for quantile in (0.25, 0.5, 0.75))
    moving = common.ratio(moves) - 1
    if middle < _NATURAL or high - low > 2 * _ALIKE * middle or moving > _HARDLY * middle:
        return None
    rows = (
        EvidenceRow(kind="figure", name="times_as_long", value=1 + middle),
        EvidenceRow(kind="figure", name="what_moves_data_times_as_long", value=1 + moving),
    )
    return "throttled", "cool_device", (*rows, *_rows(common, MULTIPLYING))


def everywhere(common: InCommon) -> Reason | None:
    """Return the finding of a device on which kernels of all kinds are longer."""
    totals = _totals(common)
    longer = [kind for kind, (mine, theirs) in totals.items() if mine > (1 + _NATURAL) * theirs]
    ratio = statistics.median(mine / theirs for mine, theirs in totals.values())
    if sum(totals[kind][1] for kind in longer) < _ALL_KINDS * float(common.theirs.sum()) or ratio < 1 + _NATURAL:
        return None
    row = EvidenceRow(kind="figure", name="times_as_long", value=ratio)
    return "slower_compute", "look_at_device", (row, *_rows(common, longer))


def _of_kinds(common: InCommon) -> Reason | None:
    longer = [kind for kind, (mine, theirs) in _totals(common).items() if mine > (1 + _ONE_KIND) * theirs]
    if sum(float(common.longer[common.of([kind])].sum()) for kind in longer) < _NATURAL * float(common.theirs.sum()):
        return None
    ratio = sum(_totals(common)[kind][0] for kind in longer) / sum(_totals(common)[kind][1] for kind in longer)
    load = ratio >= _MUCH and any(kind in MULTIPLYING for kind in longer)
    return "slower_compute", "even_out" if load else "look_at_rank", _rows(common, longer)


def _totals(common: InCommon) -> dict[str, tuple[float, float]]:
    """Return what each kind takes here and on the others, ns."""
    return {
        kind: (float(common.mine[chosen].sum()), float(common.theirs[chosen].sum()))
        for kind in sorted(set(common.kind))
        for chosen in (common.of([kind]),)
    }


def _rows(common: InCommon, kinds: Sequence[str]) -> tuple[EvidenceRow, ...]:
    """Return the kinds that are longer by most, ms a step."""
    totals = {kind: times for kind, times in _totals(common).items() if kind in kinds}
    most = sorted(totals, key=lambda kind: totals[kind][1] - totals[kind][0])[:3]
    scale = common.steps * 1e6
    return tuple(
        EvidenceRow(kind="activity", name=kind, ms=totals[kind][0] / scale, others_ms=totals[kind][1] / scale)
        for kind in most
    )
