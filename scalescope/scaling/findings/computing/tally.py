"""What activities of all ranks take and how often they come, by name: the evidence of what all ranks compute alike."""

import statistics
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from scalescope.scaling.finding.finding import EvidenceRow
from scalescope.scaling.findings.candidate import MOST_STEPS, Scene, gained_ms
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.graph import Activity
from scalescope.scaling.trace.kernel_kinds import kind_of

#: From this share of the step on what all ranks compute is told, by itself; and on devices.
_MUCH, _MUCH_ON_DEVICE = 0.03, 0.05
#: So many names are told, if each takes this share of all of it.
_NAMED, _WORTH_NAMING = 3, 0.1
#: A rank that takes less than this share of what another does, or a step of what its rank's others do, is unlike them;
#: so are steps whose median is less than this share of their mean.
_ALIKE = 0.5


class Tally:
    """Activities of some ranks' steps, added up by name, a step of the mean rank; those of others are passed over."""

    def __init__(self, ranks: Collection[int], steps: Collection[int]) -> None:
        self._scale = max(1, len(ranks) * len(steps))
        self._ms: dict[str, float] = {}
        self._calls: dict[str, float] = {}
        self._own: dict[int, dict[int, float]] = {rank: dict.fromkeys(steps, 0.0) for rank in ranks}
        self._seen: set[tuple[int, int]] = set()  # ranks and steps

    def add(self, name: str, node: Activity) -> float:
        """Take an activity under a name; return what it takes, ms, or 0 of one that is passed over."""
        if node.step not in self._own.get(node.rank, {}):
            return 0.0
        took_ms = (node.traced_end - node.traced_start) / 1e6
        self._ms[name] = self._ms.get(name, 0.0) + took_ms / self._scale
        self._calls[name] = self._calls.get(name, 0.0) + 1 / self._scale
        self._own[node.rank][node.step] += took_ms
        self._seen.add((node.rank, node.step))
        return took_ms

    def is_of_all(self) -> bool:
        """Tell whether all ranks have any of it, in most of the steps."""
        return bool(self._seen) and all(
            sum((rank, step) in self._seen for step in steps) >= MOST_STEPS * len(steps)
            for rank, steps in self._own.items()
        )

    def is_alike(self) -> bool:
        """Tell whether all ranks have about as much of it, in most of the steps: a validation pass has it in a few.

        Nor is it alike where each step of all ranks has a little of it, and a few steps, or one rank's, have most.
        """
        typical = {rank: statistics.median(steps.values()) for rank, steps in self._own.items() if steps}
        if not typical or min(typical.values()) < _ALIKE * max(typical.values()):
            return False
        if statistics.fmean(typical.values()) < _ALIKE * sum(self._ms.values()):
            return False
        usual = [took >= _ALIKE * typical[rank] > 0 for rank, steps in self._own.items() for took in steps.values()]
        return sum(usual) >= MOST_STEPS * len(usual)

    def rows(self, figure: str, kind: Literal["activity", "operator"]) -> tuple[EvidenceRow, ...]:
        """Return all of it as a figure, and the names that take most of it."""
        whole = sum(self._ms.values())
        most = sorted(self._ms, key=lambda name: -self._ms[name])[:_NAMED]
        return (
            EvidenceRow(kind="figure", name=figure, ms=whole, calls=sum(self._calls.values())),
            *(
                EvidenceRow(kind=kind, name=name, ms=self._ms[name], calls=self._calls[name])
                for name in most
                if self._ms[name] >= _WORTH_NAMING * whole
            ),
        )


def of_last_rank_ms(taken_ns: Mapping[tuple[int, int], float], steps: int) -> float:
    """Return what ranks take of a step, ms of the mean one, by (step, rank) in ns: each step waits for its last rank,
    for each in turn where others take the cores of one, and then of the other.
    """
    longest: dict[int, float] = {}
    for (step, _), ns in taken_ns.items():
        longest[step] = max(longest.get(step, 0.0), ns)
    return sum(longest.values()) / max(1, steps) / 1e6


def tally_of(scene: Scene, activities: Iterable[int]) -> Tally:
    """Return a tally of activities of the scene's ranks, in its steps: operators by name, kernels by kind."""
    graph, on_cpu = scene.replayer.graph, scene.replayer.on_cpu
    tally = Tally(scene.side.ranks, set(graph.step_numbers))
    for node in (graph.activities[at] for at in activities):
        tally.add(node.name if on_cpu else kind_of(node.name), node)
    return tally


def takes_much(scene: Scene, change: Change, least: float | None = None) -> bool:
    """Tell whether a change of what all ranks compute is worth telling: what is not told takes nothing from others.

    `least`: from this share of the step on, where not from that of what all ranks compute.
    """
    much = least or (_MUCH if scene.replayer.on_cpu else _MUCH_ON_DEVICE)
    return gained_ms(scene.replayer, change) >= much * scene.step_ms
