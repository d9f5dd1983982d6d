"""An optimizer that runs operator after operator where one would do, and loops of the user's own over parameters.

Of all ranks alike: neither is a fault of a rank, and fusing it changes no result but for rounding. What it gives back
was measured, and varies with the parameters' sizes: so does the interval.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from scalescope.scaling.finding.codes import Code, Cure
from scalescope.scaling.finding.figures import CLIPPED_BY_HAND, NONE_WRITTEN, UPDATED_BY_HAND
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import MOST_STEPS, Candidate, Scene
from scalescope.scaling.findings.computing.tally import of_last_rank_ms, takes_much
from scalescope.scaling.findings.hosts.own_lines import line_of_rows
from scalescope.scaling.rank.records.long_way import Update
from scalescope.scaling.rank.records.own_code.by_hand import updated_by_hand
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal, What

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
#: And of clipping by squares that are summed up, by torch's own: 7% to 25% of five sets of gradients on one core, more
#: where ranks share memory with others.
CLIPPED = GivenBack(0.25, 0.07, 0.5)
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
#: A loop by hand is told from this share of the step on: its author wrote it, and nothing else looks like it. What an
#: optimizer of torch's runs is the default of many a job, and told where it is as much as other things of all ranks.
_WRITTEN = 0.01
#: So many operators are named.
_NAMED = 3


class _Took:
    """What updates take of all ranks, by operator and by what of it comes back, on the mean rank and step."""

    def __init__(self, scene: Scene) -> None:
        self.numbers = set(scene.replayer.graph.step_numbers)
        self.on_cpu = scene.replayer.on_cpu
        self.calls = 0.0
        self._scale = max(1, len(scene.side.ranks) * len(self.numbers))
        self._of_step: dict[tuple[int, int], float] = {}
        self._ns: dict[str, float] = {}
        self._shares: dict[GivenBack, float] = {}

    def add(self, record: RankRecord, rank: int, at: int, share: GivenBack) -> None:
        """Take an activity."""
        taken = float(record.end[at] - record.start[at])
        self._of_step[record.step[at], rank] = self._of_step.get((record.step[at], rank), 0.0) + taken
        self.calls += 1 / self._scale
        name, share = record.operator_of(at), share if self.on_cpu else ON_DEVICE[share]
        self._ns[name] = self._ns.get(name, 0.0) + taken / self._scale
        self._shares[share] = self._shares.get(share, 0.0) + taken / self._scale

    @property
    def ms(self) -> float:
        """What of a step the last rank takes."""
        return of_last_rank_ms(self._of_step, len(self.numbers))

    def given_back(self) -> GivenBack:
        """Return which share of all of it comes back; nothing where there is nothing."""
        whole = sum(self._shares.values())
        low, middle, high = (
            sum(share[at] * taken for share, taken in self._shares.items()) / whole if whole else 0.0
            for at in (GivenBack._fields.index(name) for name in ("low", "middle", "high"))
        )
        return GivenBack(middle, low, high)

    def writes(self) -> bool:
        """Tell whether any of it writes in place."""
        return any(name.endswith("_") for name in self._ns)

    def most(self) -> Iterator[EvidenceRow]:
        """Yield the operators that take most of it."""
        for name in sorted(self._ns, key=lambda name: -self._ns[name])[:_NAMED]:
            yield EvidenceRow(kind="operator", name=name, ms=self._ns[name] / 1e6)


def unfused_optimizer(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks' optimizers run one operator after another, for much of the step."""
    names: list[str] = []
    took = _Took(scene)
    for rank in scene.side.ranks:
        record, found = scene.replayer.records[rank], scene.replayer.records[rank].long_way.single
        own = [at for rows in found.values() for at in rows if record.step[at] in took.numbers]
        if not own:
            return  # a rank alone that has none is not fused otherwise than the others: they do other things
        names += [name for name in found if name not in names]
        for at in own:
            took.add(record, rank, at, _BY_TORCH)
    if names:
        row = EvidenceRow(kind="annotation", name=names[0], ms=took.ms, calls=took.calls)
        yield from _candidate(scene, "unfused_optimizer", took, "unfused", [row], Remedy(cure="fuse_optimizer"))


def updates_by_hand(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks go through their parameters one at a time, for much of the step."""
    took = _Took(scene)
    parameters, clips = 0, True
    by_hand: list[tuple[int, int]] = []
    for rank in scene.side.ranks:
        record = scene.replayer.records[rank]
        loops = [one for one in updated_by_hand(record) if one.step in took.numbers]
        if len({one.step for one in loops}) < MOST_STEPS * len(took.numbers):
            return
        parameters = max(parameters, *(one.parameters for one in loops), 0)
        clips = clips and all(one.clips for one in loops)
        for share, at in ((given_back(one), at) for one in loops for at in one.activities):
            took.add(record, rank, at, share)
            by_hand.append((rank, at))
    row = EvidenceRow(
        kind="figure", name=UPDATED_BY_HAND, ms=took.ms, calls=took.calls, value=float(parameters)
    )  # fmt: skip
    rows = [row] if took.writes() else [row, EvidenceRow(kind="figure", name=NONE_WRITTEN)]
    rows += [EvidenceRow(kind="figure", name=CLIPPED_BY_HAND)] if clips else []
    cure: Cure = "clip_at_once" if clips else "update_at_once"
    remedy = Remedy(cure=cure, line=line_of_rows(scene, by_hand))
    yield from _candidate(scene, "updates_by_hand", took, "by_hand", rows, remedy, _WRITTEN)


def _candidate(
    scene: Scene,
    code: Code,
    took: _Took,
    what: What,
    rows: Iterable[EvidenceRow],
    remedy: Remedy,
    least: float | None = None,
) -> Iterator[Candidate]:
    back = took.given_back()
    removals = (Removal(what, share=back.middle, of_calls=None if took.on_cpu else OF_CALLS),)
    if not back.middle or not takes_much(scene, Change(without=removals), least):
        return
    yield Candidate(
        code=code,
        removals=removals,
        known_within=(back.low / back.middle, back.high / back.middle),
        evidence=(*rows, *took.most()),
        remedy=remedy,
    )


def given_back(update: Update) -> GivenBack:
    """Return what of a loop's operators comes back where one operator, or a few for all parameters, do what it does."""
    if update.clips:
        return CLIPPED
    if update.roots:
        return ROOTS_ANEW if update.anew else ROOTS_IN_PLACE
    return RULES_ANEW if update.anew else RULES_IN_PLACE
