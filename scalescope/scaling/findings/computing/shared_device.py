"""A device that another process has by turns, where no other rank tells it: the same launches, longer now and then.

Launches are the same by name, grid and ordinal in the step. What is typical of one is its median over the steps. Of an
undisturbed job's launches none takes a third of a millisecond and half of itself longer than that (of 27 jobs on H200;
all of them together took 0.1% to 1.6% longer). A process that waits for its turn does so, and begins late although
nothing holds it up, in most steps, now here and now there, and all the rest is as ever. What recurs at its place, or
goes with a step that has more of everything, is the job's own.
"""

import statistics
from collections.abc import Iterator

import msgspec
import numpy as np

from scalescope.scaling.finding.figures import OWN_TURNS
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import MOST_STEPS, Candidate, Scene
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal

#: A turn of another process is so long at least, ns, and half of what the launch typically takes.
_TURN_NS, _AS_LONG = 300_000, 0.5
#: Steps and turns, and places at which these are, from which on they tell.
_LEAST_STEPS, _LEAST_TURNS, _LEAST_PLACES = 3, 4, 3
#: Turns make up so much of all that launches take beyond what is typical of them, …
_TURNS = 0.5
#: … and a place has them in no more of the steps than this, or it is the job that has them there.
_NOT_ALWAYS = 0.5
#: The typical launch takes in each step what it does in others, within this share: else it has more of everything.
_NATURAL = 0.035
#: Steps do the same where so many of their launches have the place, and the grid, that others have.
_SAME_WORK = 0.95
#: Within what share of themselves turns are known: what is short of one is not in them, nor whom they hold up besides.
_BELOW, _ABOVE = 0.15, 0.4

#: A kernel's name, its grid, and the how manieth of these it is in its step.
Place = tuple[str, int, int]


class TimedLaunch(msgspec.Struct, frozen=True):
    place: Place
    step: int
    work_ns: float
    away_ns: float  # between when nothing held it up any more and its begin, beyond a dispatch


class Turns(msgspec.Struct, frozen=True):
    """What launches take longer by turns, ns, over all steps: a row a turn, running or waiting to begin."""

    longer_ns: list[float]
    away_ns: list[float]
    steps: int

    @property
    def whole_ms(self) -> float:
        """All turns, ms a step."""
        return (sum(self.longer_ns) + sum(self.away_ns)) / self.steps / 1e6


def shared_device(scene: Scene) -> Iterator[Candidate]:
    """Yield the candidate of a lone rank whose device another process has by turns."""
    if len(scene.side.ranks) != 1 or scene.replayer.on_cpu:
        return
    turns = find_turns(_launches(scene), len(scene.side.steps))
    if turns is None or not scene.worth_a_look(turns.whole_ms):
        return
    told = scene.replayer.predict(Change(without=(Removal("uneven", ns=_TURN_NS),)), quick=True, near=True)
    # behind a host that is late anyway, not all of what kernels take longer is felt
    running = sum(turns.longer_ns) / turns.steps / 1e6
    felt = min(1.0, max(0.0, -(told.change_ms or 0.0)) / running) if running else 1.0
    ms = felt * turns.whole_ms
    count = len(turns.longer_ns) + len(turns.away_ns)
    yield Candidate(
        code="slower_compute",
        gain_ms=(ms, (1 - _BELOW) * ms, min((1 + _ABOVE) * ms, scene.step_ms)),
        evidence=(
            EvidenceRow(
                kind="figure",
                name=OWN_TURNS,
                ms=turns.whole_ms,
                calls=count / turns.steps,
                value=statistics.median([*turns.longer_ns, *turns.away_ns]) / 1e6,
            ),
        ),
        remedy=Remedy(cure="look_at_device"),
    )


def find_turns(launches: list[TimedLaunch], steps: int) -> Turns | None:
    """Return what launches take longer by turns; None where that is the job's own, or too little to tell."""
    by_place: dict[Place, list[TimedLaunch]] = {}
    for one in launches:
        by_place.setdefault(one.place, []).append(one)
    common = {place: own for place, own in by_place.items() if len(own) >= max(_LEAST_STEPS, MOST_STEPS * steps)}
    if steps < _LEAST_STEPS or sum(map(len, common.values())) < _SAME_WORK * len(launches):
        return None
    longer: list[float] = []
    away: list[float] = []
    places: set[Place] = set()
    rest: dict[int, list[tuple[float, float]]] = {}  # by step: how many times as long as typical, and that, ns
    hit: set[int] = set()
    beyond = 0.0
    for place, own in common.items():
        work, late = (np.array([getattr(one, name) for one in own]) for name in ("work_ns", "away_ns"))
        typical = float(np.median(work))
        more, later = np.maximum(work - typical, 0.0), np.maximum(late - float(np.median(late)), 0.0)
        beyond += float(more.sum())
        turned = more > max(_TURN_NS, _AS_LONG * typical)
        waited = later > _TURN_NS
        for one in own:
            rest.setdefault(one.step, []).append((one.work_ns / typical if typical else 1.0, typical))
        if (turned | waited).sum() > _NOT_ALWAYS * len(own):
            continue
        longer += more[turned].tolist()
        away += later[waited].tolist()
        places |= {place} if turned.any() else set()
        hit |= {own[at].step for at in np.flatnonzero(turned)}
    if len(longer) < _LEAST_TURNS or len(places) < _LEAST_PLACES or sum(longer) < _TURNS * beyond:
        return None
    if len(hit) < MOST_STEPS * steps or any(_middle(one) > 1 + _NATURAL for one in rest.values()):
        return None
    return Turns(longer, away, steps)


def _middle(ratios: list[tuple[float, float]]) -> float:
    """Return the median of ratios, each weighed by its time."""
    ordered = sorted(ratios)
    passed = np.cumsum([weight for _, weight in ordered])
    return ordered[int(np.searchsorted(passed, passed[-1] / 2))][0]


def _launches(scene: Scene) -> list[TimedLaunch]:
    graph, side = scene.replayer.traced, scene.side
    found = []
    for (_, step), own in side.launches.items():
        if step not in side.steps:
            continue
        ordinals: dict[tuple[str, int], int] = {}
        for at in own.activity:
            node = graph.activities[at]
            if node.kind == COMPUTE:
                key = node.name, node.blocks
                ordinals[key] = ordinals.get(key, -1) + 1
                work = float(node.traced_end - node.traced_start)
                found.append(TimedLaunch((*key, ordinals[key]), step, work, node.beyond_ns))
    return found
