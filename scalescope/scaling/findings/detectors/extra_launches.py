"""Which ranks run what the others do not, step by step: the ground of own_work, more_work and alternating_load."""

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass

from scalescope.scaling.finding import EvidenceRow
from scalescope.scaling.findings.candidate import MOST_STEPS, Scene
from scalescope.scaling.rank.timeline import COPY
from scalescope.scaling.replay.ranks.reads import read_activities
from scalescope.scaling.replay.removal import What, extra_rows
from scalescope.scaling.trace.kernel_names import short_name

_MOSTLY = 0.5


@dataclass(frozen=True)
class Extra:
    """What one rank runs beyond the others: ms in each step, and the activities that make it up, longest first."""

    rank: int
    ms: list[float]
    evidence: tuple[EvidenceRow, ...]
    copied: float = 0.0  # share of its time that copies and fills take

    @property
    def is_copying(self) -> bool:
        """Whether it is copies rather than kernels: what helps against them is another thing."""
        return self.copied > _MOSTLY

    @property
    def mean_ms(self) -> float:
        return statistics.fmean(self.ms) if self.ms else 0.0

    def in_most_steps(self, least_ms: float) -> bool:
        """Whether it is there step after step, not now and then."""
        return sum(one >= least_ms for one in self.ms) >= MOST_STEPS * len(self.ms)


def extra_launches(scene: Scene, rank: int, what: What, *, reads: bool = False) -> Extra:
    """Return what a rank runs beyond the others' program, less what they run instead of it.

    What is there to be read goes with the reads, where those are a candidate themselves; with `reads` it stays.
    """
    side, graph = scene.side, scene.replayer.graph
    per_step: list[float] = []
    copied = 0.0
    time: dict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    reads_cost = not reads and any(one.code == "synchronising" and one.rank == rank for one in scene.host or ())
    read = read_activities(graph, rank) if reads_cost else set()
    for step in side.steps:
        own = side.launches[rank, step]
        spent = 0.0
        for row in extra_rows(graph, side, rank, step, what):
            if own.activity[row] in read:
                continue
            name = short_name(graph.activities[own.activity[row]].name)
            time[name] += float(own.work_ns[row]) / 1e6
            calls[name] += 1
            spent += float(own.work_ns[row]) / 1e6
            if graph.activities[own.activity[row]].kind == COPY:
                copied += float(own.work_ns[row]) / 1e6
        per_step.append(max(0.0, spent - (_instead_ms(scene, rank, step) if spent else 0.0)))
    steps, whole = max(1, len(side.steps)), sum(time.values())
    evidence = tuple(
        EvidenceRow(kind="activity", name=name, ms=ms / steps, calls=calls[name] / steps)
        for name, ms in sorted(time.items(), key=lambda item: -item[1])[:3]
    )
    return Extra(rank, per_step, evidence, copied / whole if whole else 0.0)


def _instead_ms(scene: Scene, rank: int, step: int) -> float:
    """Return what the others run in a step that this rank does not: it may have chosen other kernels for the same."""
    side = scene.side
    others = side.others(rank, step, "work_ns")
    passed = set(side.launches[rank, step].place.tolist())
    missing = [float(ns) for place, ns in enumerate(others.tolist()) if place not in passed and ns == ns]
    return sum(missing) / 1e6
