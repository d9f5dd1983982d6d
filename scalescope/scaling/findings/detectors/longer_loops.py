"""The same program with longer sequences: its loops over time go round more often, and its other operators are longer.

A recurrent layer is an operator whose backward pass is as many launches as its sequence is long. One rank's longer
sequences are then launches that the others do not make, and longer ones of those that all make: one cause, as shapes
tell where they were recorded, and otherwise that calls of several operators grow alike, the backward pass's among them.
What one rank does besides the others' program, as a check or a teacher's products, has no such backward pass.

Where devices compute, libraries choose each product's kernel by its size, which differs along packed sequences: so some
products stand in for others, and as many come besides. But a recurrent layer has kernels of its own between them, one a
round in the forward pass and one in the backward pass: those are counted.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from scalescope.scaling.finding.figures import INPUTS, ROUNDS
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import MOST_STEPS, WORTH_A_LOOK, Candidate, Scene
from scalescope.scaling.findings.computing.extra_launches import extra_launches
from scalescope.scaling.findings.computing.grids import times_the_blocks
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.ranks.extra import extra_rows
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, RECURRENT, kind_of
from scalescope.scaling.trace.kernel_names import short_name
from scalescope.scaling.verdicts.stragglers import times_all_inputs

#: What goes round in a loop is called so often by the others at least, and here so much oftener; of so many operators.
_CALLS, _MORE, _NAMES = 8, 4, 2
#: Of what is launched beyond the others' program, by time, so much is of operators whose calls grow alike: by a ratio
#: within this share of the typical one, as a layer beside the loop has calls of its own.
_ALIKE, _WITHIN = 0.9, 0.25
#: So much of it, by time, is of the backward pass.
_BACKWARD, _OF_BACKWARD = "Backward", 0.25
#: So much of what is called oftener shapes tell of the data.
_EXPLAINS = 0.5
#: Kernels of no loop that are launched oftener by so much of what loops are: it is another pass, not a longer one.
_ANOTHER_PASS = 0.5


class Rounds(msgspec.Struct, frozen=True):
    """How often one rank's loops go round: calls a step of what takes longest in them, here and on the others."""

    name: str
    calls: float
    others: float
    inputs: float | None  # how many times the others' data it computes on, where shapes tell

    @property
    def evidence(self) -> tuple[EvidenceRow, ...]:
        """Return how much more data it is, where that is known, and how often the loops go round."""
        rounds = EvidenceRow(kind="figure", name=ROUNDS, calls=self.calls, value=self.others)
        inputs = EvidenceRow(kind="figure", name=INPUTS, value=self.inputs)
        return (rounds,) if self.inputs is None else (inputs, rounds)


def longer_loops(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank whose loops go round more often than the others', step after step."""
    for rank in scene.side.ranks if len(scene.side.ranks) > 1 else ():
        if (rounds := rounds_of(scene, rank)) is None:
            continue
        extra = extra_launches(scene, rank, ("more",))
        more = Removal("more", rank)
        yield Candidate(
            code="more_work",
            rank=rank,
            removals=(more, Removal("slow", rank)),
            # without shapes, that other operators are longer may have another reason
            surely=() if rounds.inputs is not None else (more,),
            evidence=(*rounds.evidence, *_that_go_round(rounds, extra.evidence), *extra.counted),
            remedy=Remedy(cure="even_out_lengths"),
        )


def _that_go_round(rounds: Rounds, evidence: Sequence[EvidenceRow]) -> tuple[EvidenceRow, ...]:
    """Return what a rank runs beyond the others with what goes round first: products between may be longer."""
    own = next((row for row in evidence if row.name == rounds.name), None)
    first = EvidenceRow(kind="activity", name=rounds.name, calls=rounds.calls - rounds.others) if own is None else own
    return (first, *(row for row in evidence if row is not own))


def rounds_of(scene: Scene, rank: int) -> Rounds | None:
    """Return how often a rank's loops go round; None where what it launches beyond the others' program is not that."""
    if not scene.replayer.on_cpu:
        return _rounds_of_layers(scene, rank)
    extra = extra_launches(scene, rank, ("more",))
    if not extra.in_most_steps(WORTH_A_LOOK * scene.step_ms) or not extra.counted:
        return None
    times, took = _times_as_often(scene, rank), _more_ns(scene, rank)
    if len(times) < _NAMES:
        return None
    typical = statistics.median_low(times.values())
    alike = {name: took[name] for name, ratio in times.items() if abs(ratio - typical) <= _WITHIN * (typical - 1)}
    whole, backward = sum(took.values()), sum(ns for name, ns in alike.items() if _BACKWARD in name)
    if len(alike) < _NAMES or sum(alike.values()) < _ALIKE * whole or backward < _OF_BACKWARD * whole:
        return None
    inputs = None
    records = {one: scene.replayer.records[one] for one in scene.side.ranks}
    if len({len(one.steps) for one in records.values()}) == 1 and all(one.multiplied for one in records.values()):
        inputs = times_all_inputs({one: record.multiplied for one, record in records.items()}, rank)
        if inputs is None or inputs - 1 < _EXPLAINS * (typical - 1):
            return None  # what it is given is no more, or not so much
    longest = max(alike, key=lambda name: alike[name])
    mine, theirs = _calls(scene, rank)
    steps = len(scene.side.steps)
    return Rounds(short_name(longest), mine[longest] / steps, theirs[longest] / steps, inputs)


def _rounds_of_layers(scene: Scene, rank: int) -> Rounds | None:
    """Return how often a rank's recurrent layers go round on its device, by their own kernels, in most steps."""
    by_step = [_by_kind(scene, rank, step) for step in scene.side.steps]
    longer = [one for one in by_step if (ratio := _times_as_long(one)) is not None and ratio > 1]
    if not longer or len(longer) < MOST_STEPS * len(by_step):
        return None
    mine, theirs = (sum((one.layers[at] for one in longer), Counter[str]()) for at in (0, 1))
    most = max(sorted(mine), key=lambda name: mine[name])
    inputs = times_the_blocks(scene, rank)
    ratio = mine[most] / theirs[most]
    if inputs is not None and inputs - 1 < _EXPLAINS * (ratio - 1):
        inputs = None  # grids are of what no loop goes over
    return Rounds(short_name(most), mine[most] / len(longer), theirs[most] / len(longer), inputs)


class _Kernels(msgspec.Struct, frozen=True):
    """A rank's kernels in one step, and the middle one's of the others: by name those of recurrent layers, and how many
    there are of what neither these nor products are.
    """

    layers: tuple[Counter[str], Counter[str]]
    rest: tuple[float, float]


def _by_kind(scene: Scene, rank: int, step: int) -> _Kernels:
    side, activities = scene.side, scene.replayer.graph.activities
    layers: dict[int, Counter[str]] = {}
    rest: dict[int, float] = {}
    for one in side.ranks:
        names = Counter(
            activities[at].name for at in side.launches[one, step].activity if activities[at].kind == COMPUTE
        )
        layers[one] = Counter({name: calls for name, calls in names.items() if kind_of(name) == RECURRENT})
        rest[one] = float(sum(calls for name, calls in names.items() if kind_of(name) not in MULTIPLYING))
    others = [one for one in side.ranks if one != rank]
    known = sorted({name for own in layers.values() for name in own})
    middle = Counter({name: statistics.median_low(layers[one][name] for one in others) for name in known})
    return _Kernels((layers[rank], middle), (rest[rank], statistics.median_low(rest[one] for one in others)))


def _times_as_long(kernels: _Kernels) -> float | None:
    """Return how many times as often recurrent layers go round; None where their kernels do not say so alike."""
    mine, theirs = kernels.layers
    times = {name: mine[name] / calls for name, calls in theirs.items() if calls >= _CALLS}
    if len(times) < _NAMES or any(mine[name] - theirs[name] < _MORE for name in times):
        return None
    typical = statistics.median_low(times.values())
    alike = all(abs(one - typical) <= _WITHIN * (typical - 1) for one in times.values())
    rest, others = kernels.rest
    another_pass = rest - others > _ANOTHER_PASS * (typical - 1) * others
    return typical if alike and not another_pass else None


def _calls(scene: Scene, rank: int) -> tuple[Counter[str], Counter[str]]:
    """Return how often each operator is launched by a rank, and in the others' program, in all steps."""
    side, activities = scene.side, scene.replayer.graph.activities
    mine = Counter(activities[at].name for step in side.steps for at in side.launches[rank, step].activity)
    return mine, Counter(name for step in side.steps for name in side.programs[step])


def _times_as_often(scene: Scene, rank: int) -> dict[str, float]:
    """Return how many times as often a rank launches what goes round in loops."""
    mine, theirs = _calls(scene, rank)
    steps = len(scene.side.steps)
    return {
        name: mine[name] / calls
        for name, calls in sorted(theirs.items())
        if calls >= _CALLS * steps and mine[name] - calls >= _MORE * steps
    }


def _more_ns(scene: Scene, rank: int) -> dict[str, float]:
    """Return what each operator takes in the launches that a rank makes beyond the others' program, ns."""
    side, graph = scene.side, scene.replayer.graph
    took: dict[str, float] = defaultdict(float)
    for step in side.steps:
        own = side.launches[rank, step]
        for row in extra_rows(graph, side, rank, step, "more"):
            took[graph.activities[own.activity[row]].name] += float(own.work_ns[row])
    return took
