"""An optimizer that runs operator after operator where one would do: on CPUs, of all ranks alike.

It is no fault of a rank, and fusing it changes no result but for rounding. What it gives back was measured, and varies
with the parameters' sizes: so does the interval.
"""

from collections.abc import Iterator

from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene, gained_ms
from scalescope.scaling.findings.computing.tally import of_last_rank_ms
from scalescope.scaling.rank.records.optimizers import single_operations
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal

#: Of what Adam, AdamW and Adagrad take, fused ones gave back so much in the middle, and nearly always between so much:
#: five sets of parameters from 200 of 64 x 64 to two of 60,000 x 64, by default and with foreach=True, alone and on all
#: cores at once (docs/method/findings.md).
GIVEN_BACK, GIVEN_BACK_LOW, GIVEN_BACK_HIGH = 0.77, 0.5, 0.93
#: From this share of the step on it is told, by itself.
_MUCH = 0.03
#: So many operators are named.
_NAMED = 3


def unfused_optimizer(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks' optimizers run one operator after another, for much of the step."""
    if not scene.replayer.on_cpu:
        return  # on devices it is a habit of the compute's
    records, numbers = scene.replayer.records, set(scene.replayer.graph.step_numbers)
    names: list[str] = []
    ns: dict[str, float] = {}
    of_step: dict[tuple[int, int], float] = {}
    calls = 0.0
    scale = max(1, len(scene.side.ranks) * len(numbers))
    for rank in scene.side.ranks:
        record, found = records[rank], single_operations(records[rank])
        own = [at for rows in found.values() for at in rows if record.step[at] in numbers]
        if not own:
            return  # a rank alone that has none is not fused otherwise than the others: they do other things
        names += [name for name in found if name not in names]
        for at in own:
            taken = record.end[at] - record.start[at]
            ns[record.name[at]] = ns.get(record.name[at], 0.0) + taken / scale
            of_step[record.step[at], rank] = of_step.get((record.step[at], rank), 0.0) + taken
        calls += len(own) / scale
    most = sorted(ns, key=lambda name: -ns[name])[:_NAMED]
    removals = (Removal("unfused", share=GIVEN_BACK),)
    if gained_ms(scene.replayer, Change(without=removals)) < _MUCH * scene.step_ms:
        return  # what is not told takes nothing from other causes either
    takes_ms = of_last_rank_ms(of_step, len(numbers))
    yield Candidate(
        code="unfused_optimizer",
        removals=removals,
        known_within=(GIVEN_BACK_LOW / GIVEN_BACK, GIVEN_BACK_HIGH / GIVEN_BACK),
        evidence=(
            *(EvidenceRow(kind="annotation", name=name, ms=takes_ms, calls=calls) for name in names[:1]),
            *(EvidenceRow(kind="operator", name=name, ms=ns[name] / 1e6) for name in most),
        ),
        remedy=Remedy(cure="fuse_optimizer"),
    )
