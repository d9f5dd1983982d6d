"""An optimizer that runs operator after operator where one would do: of all ranks alike.

It is one of torch's, or a loop of the user's own that updates parameters one at a time. It is no fault of a rank, and
fusing it changes no result but for rounding. What it gives back was measured, and varies with the parameters' sizes: so
does the interval.
"""

from collections.abc import Iterator
from typing import NamedTuple

from scalescope.scaling.finding.figures import NONE_WRITTEN, UPDATED_BY_HAND
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import MOST_STEPS, Candidate, Scene
from scalescope.scaling.findings.computing.tally import of_last_rank_ms, takes_much
from scalescope.scaling.rank.records.long_way import Update
from scalescope.scaling.rank.records.own_code.by_hand import updated_by_hand
from scalescope.scaling.rank.records.own_code.optimizers import single_operations
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal

#: Of what Adam, AdamW and Adagrad take, fused ones gave back so much in the middle, and nearly always between so much:
#: five sets of parameters from 200 of 64 x 64 to two of 60,000 x 64, by default and with foreach=True, alone and on all
#: cores at once (docs/method/findings.md).
GIVEN_BACK, GIVEN_BACK_LOW, GIVEN_BACK_HIGH = 0.77, 0.5, 0.93


class GivenBack(NamedTuple):
    """Which share comes back in the middle, and nearly always between which."""

    middle: float
    low: float
    high: float


_BY_TORCH = GivenBack(GIVEN_BACK, GIVEN_BACK_LOW, GIVEN_BACK_HIGH)
#: The same of loops by hand, of three models on two ranks at once: rules with roots, by fused ones, where each operator
#: makes a tensor and where they write in place; and others that make tensors, by those of torch that take all
#: parameters at once (benchmarks/by_hand.py).
ROOTS_ANEW, ROOTS_IN_PLACE = GivenBack(0.82, 0.7, 0.9), GivenBack(0.63, 0.42, 0.78)
RULES_ANEW = GivenBack(0.6, 0.42, 0.77)
#: The same on devices, of the kernels: of three models on an H200, the less the larger the parameters are, as each
#: kernel then takes longer than there is between two; and loops in place without roots, which give back there, too.
RULES_IN_PLACE = GivenBack(0.7, 0.15, 0.91)
ON_DEVICE = {
    _BY_TORCH: GivenBack(0.83, 0.65, 0.94), ROOTS_ANEW: GivenBack(0.92, 0.85, 0.97),
    ROOTS_IN_PLACE: GivenBack(0.83, 0.65, 0.94), RULES_ANEW: GivenBack(0.82, 0.54, 0.95),
    RULES_IN_PLACE: RULES_IN_PLACE,
}  # fmt: skip
#: And of what hosts take to launch them: one for hundreds of parameters is left of several for each.
OF_CALLS = 0.9
#: So many operators are named.
_NAMED = 3


class _Took:
    """What one kind of update takes of all ranks, and how often it calls an operator, on the mean rank and step."""

    def __init__(self, scale: int) -> None:
        self._scale = scale
        self.of_step: dict[tuple[int, int], float] = {}
        self.calls = 0.0

    def add(self, record: RankRecord, rank: int, at: int) -> float:
        """Take an activity; return what of a step it takes, ns."""
        taken = float(record.end[at] - record.start[at])
        self.of_step[record.step[at], rank] = self.of_step.get((record.step[at], rank), 0.0) + taken
        self.calls += 1 / self._scale
        return taken / self._scale


def unfused_optimizer(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks' optimizers run one operator after another, for much of the step."""
    on_cpu = scene.replayer.on_cpu
    records, numbers = scene.replayer.records, set(scene.replayer.graph.step_numbers)
    names: list[str] = []
    ns: dict[str, float] = {}
    shares: dict[GivenBack, float] = {}
    parameters, writes = 0, False
    scale = max(1, len(scene.side.ranks) * len(numbers))
    by_torch, by_hand = _Took(scale), _Took(scale)
    for rank in scene.side.ranks:
        record, found = records[rank], single_operations(records[rank])
        own = [at for rows in found.values() for at in rows if record.step[at] in numbers]
        loops = [one for one in updated_by_hand(record) if one.step in numbers]
        if not own and len({one.step for one in loops}) < MOST_STEPS * len(numbers):
            return  # a rank alone that has none is not fused otherwise than the others: they do other things
        names += [name for name in found if name not in names]
        rows = [(by_torch, _BY_TORCH, at) for at in own]
        rows += [(by_hand, given_back(one), at) for one in loops for at in one.activities]
        writes |= any(record.operator_of(at).endswith("_") for one in loops for at in one.activities)
        parameters = max(parameters, *(one.parameters for one in loops), 0)
        for took, share, at in rows:
            taken = took.add(record, rank, at)
            name, share = record.operator_of(at), share if on_cpu else ON_DEVICE[share]
            ns[name] = ns.get(name, 0.0) + taken
            shares[share] = shares.get(share, 0.0) + taken
    middle, low, high = (_mean(shares, at) for at in range(len(GivenBack._fields)))
    removals = (Removal("unfused", share=middle, of_calls=None if on_cpu else OF_CALLS),)
    if not middle or not takes_much(scene, Change(without=removals)):
        return
    most = sorted(ns, key=lambda name: -ns[name])[:_NAMED]
    torchs_ms, hands_ms = (of_last_rank_ms(one.of_step, len(numbers)) for one in (by_torch, by_hand))
    yield Candidate(
        code="unfused_optimizer",
        removals=removals,
        known_within=(low / middle, high / middle),
        evidence=(
            *(EvidenceRow(kind="annotation", name=name, ms=torchs_ms, calls=by_torch.calls) for name in names[:1]),
            *((EvidenceRow(kind="figure", name=UPDATED_BY_HAND, ms=hands_ms, calls=by_hand.calls,
                           value=float(parameters)),) if by_hand.calls else ()),
            *((EvidenceRow(kind="figure", name=NONE_WRITTEN),) if by_hand.calls and not writes else ()),
            *(EvidenceRow(kind="operator", name=name, ms=ns[name] / 1e6) for name in most),
        ),
        remedy=Remedy(cure="fuse_optimizer" if torchs_ms >= hands_ms else "update_at_once"),
    )  # fmt: skip


def given_back(update: Update) -> GivenBack:
    """Return what of a loop's operators comes back where one operator, or a few for all parameters, do what it does."""
    if update.roots:
        return ROOTS_ANEW if update.anew else ROOTS_IN_PLACE
    return RULES_ANEW if update.anew else RULES_IN_PLACE


def _mean(shares: dict[GivenBack, float], at: int) -> float:
    whole = sum(shares.values())
    return sum(share[at] * taken for share, taken in shares.items()) / whole if whole else 0.0
