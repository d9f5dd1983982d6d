"""Normalisation that is written out in single operators where one would do: of all ranks alike.

It is no fault of a rank, and the built-in one changes no result but for rounding. What that gives back was measured,
and varies with the shapes and with how it is written: so does the interval.
"""

from collections.abc import Iterator

from scalescope.scaling.finding.figures import NORMALISATIONS, NORMALISED
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import MOST_STEPS, Candidate, Scene
from scalescope.scaling.findings.computing.tally import of_last_rank_ms, takes_much
from scalescope.scaling.findings.hosts.own_lines import line_of_rows
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal

#: Of what a chain takes forwards and backwards, a built-in operator gave back so much in the middle, and always between
#: so much: seven ways to write GroupNorm, LayerNorm and BatchNorm, four shapes each, alone and on all cores at once
#: (benchmarks/written_out.py, docs/method/findings.md).
GIVEN_BACK, GIVEN_BACK_LOW, GIVEN_BACK_HIGH = 0.86, 0.75, 0.92
#: The same on devices, of the kernels, on an H200; and of what hosts take to launch them and to record their gradients:
#: half and less of all they do for both passes, of which these chains' own calls are not all.
ON_DEVICE, ON_DEVICE_LOW, ON_DEVICE_HIGH, OF_CALLS = 0.72, 0.55, 0.92, 0.65
#: So many operators are named.
_NAMED = 3


def unfused_normalisation(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks normalise one operator after another, for much of the step."""
    on_cpu = scene.replayer.on_cpu
    records, numbers = scene.replayer.records, set(scene.replayer.graph.step_numbers)
    ns: dict[str, float] = {}
    of_step: dict[tuple[int, int], float] = {}
    calls = chains = 0.0
    operators = 0
    forwards: list[tuple[int, int]] = []  # a backward pass is nobody's call
    scale = max(1, len(scene.side.ranks) * len(numbers))
    for rank in scene.side.ranks:
        record = records[rank]
        own = [one for one in record.long_way.chains if one.step in numbers]
        if len({one.step for one in own}) < MOST_STEPS * len(numbers):
            return  # a rank alone that has them has work of its own
        for one in own:
            taken = [record.end[at] - record.start[at] for at in one.activities]
            of_step[one.step, rank] = of_step.get((one.step, rank), 0.0) + sum(taken)
            calls += len(taken) / scale
            if one.operators:
                operators = max(operators, one.operators)
                forwards += ((rank, at) for at in one.activities)
                chains += 1 / scale
                for at, took in zip(one.activities, taken, strict=True):
                    name = record.operator_of(at)
                    ns[name] = ns.get(name, 0.0) + took / scale
    low, middle, high = (
        (GIVEN_BACK_LOW, GIVEN_BACK, GIVEN_BACK_HIGH) if on_cpu else (ON_DEVICE_LOW, ON_DEVICE, ON_DEVICE_HIGH)
    )
    removals = (Removal("normalising", share=middle, of_calls=None if on_cpu else OF_CALLS),)
    if not takes_much(scene, Change(without=removals)):
        return
    most = sorted(ns, key=lambda name: -ns[name])[:_NAMED]
    takes_ms = of_last_rank_ms(of_step, len(numbers))
    yield Candidate(
        code="unfused_normalisation",
        removals=removals,
        known_within=(low / middle, high / middle),
        evidence=(
            EvidenceRow(kind="figure", name=NORMALISED, ms=takes_ms, calls=calls),
            EvidenceRow(kind="figure", name=NORMALISATIONS, calls=chains, value=float(operators)),
            *(EvidenceRow(kind="operator", name=name, ms=ns[name] / 1e6) for name in most),
        ),
        remedy=Remedy(cure="built_in_normalisation", line=line_of_rows(scene, forwards)),
    )
