"""Which ranks run what the others do not, step by step: the ground of own_work, more_work and alternating_load."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence, Set

import msgspec

from scalescope.scaling.finding.figures import BESIDES
from scalescope.scaling.finding.finding import EvidenceRow
from scalescope.scaling.findings.candidate import MOST_STEPS, WORTH_A_LOOK, Scene
from scalescope.scaling.rank.timeline import COPY
from scalescope.scaling.replay.ranks.extra import BEYOND, Beyond, extra_rows
from scalescope.scaling.replay.ranks.reads import read_activities
from scalescope.scaling.replay.ranks.side_by_side import CONVERTS_BACK
from scalescope.scaling.trace.kernel_names import short_name

_MOSTLY = 0.5
#: What the others run instead of less than this share of what a rank has beyond them is no reason for it.
_A_PART = 0.1
#: As many launches in every step: a log of 420 norms had ten more by chance in one of two steps.
_AS_MANY = 1.05
#: Of one step nobody can tell what is in every one.
_LEAST_STEPS = 2


class Extra(msgspec.Struct, frozen=True):
    """What one rank runs beyond the others: ms in each step, and the activities that make it up, longest first."""

    rank: int
    ms: list[float]
    evidence: tuple[EvidenceRow, ...]
    copied: float = 0.0  # share of its time that copies and fills take
    calls: list[int] = msgspec.field(default_factory=list)  # in each step
    known: int = 0  # of them, those of kernels that the others run elsewhere in their step
    instead: bool = False  # the others run something instead of a part of it
    converting: float = 0.0  # share of its time that conversions take, where the backward pass has some of them, too
    activities: tuple[int, ...] = ()  # all of it, in the graph
    of_program: float = 0.0  # the share of the others' step that is of these kernels

    @property
    def is_copying(self) -> bool:
        """Whether it is copies rather than kernels: what helps against them is another thing."""
        return self.copied > _MOSTLY

    @property
    def is_of_a_precision(self) -> bool:
        """Whether it is a part of the network that is converted to another precision: types of tensors are not told."""
        return self.converting > _MOSTLY

    @property
    def mean_ms(self) -> float:
        return statistics.fmean(self.ms) if self.ms else 0.0

    @property
    def counted(self) -> tuple[EvidenceRow, ...]:
        """Return how many launches it is in every step, where it is about as many in each and nothing runs instead: a
        fact, whatever the noise says of its cost.
        """
        count = float(min(self.calls, default=0))
        if not count or max(self.calls) > _AS_MANY * count or self.instead or len(self.calls) < _LEAST_STEPS:
            return ()
        return (EvidenceRow(kind="figure", name=BESIDES, calls=count, value=self.known / len(self.calls)),)

    @property
    def is_of_the_program(self) -> bool:
        """Whether it is more of what all ranks do, as another micro-batch is, rather than something else."""
        return self.of_program >= _MOSTLY

    def in_most_steps(self, least_ms: float) -> bool:
        """Whether it is there step after step, not now and then."""
        return sum(one >= least_ms for one in self.ms) >= MOST_STEPS * len(self.ms)


def besides(scene: Scene, rank: int) -> Extra | None:
    """Return what a rank does besides the others' program, step after step, by whatever kernels; None where nothing.

    The kernels may be the others', too: a teacher's products are as its student's. But they are few of the program's.
    """
    least = WORTH_A_LOOK * scene.step_ms
    own, more = (extra_launches(scene, rank, (what,)) for what in BEYOND)
    if more.in_most_steps(least) and more.counted and not more.is_of_the_program:
        return extra_launches(scene, rank, BEYOND)
    return own if own.in_most_steps(least) else None


def extra_launches(scene: Scene, rank: int, whats: Sequence[Beyond], *, reads: bool = False) -> Extra:
    """Return what a rank runs beyond the others' program, less what they run instead of it.

    What is there to be read goes with the reads, where those are a candidate themselves; with `reads` it stays.
    """
    side, graph = scene.side, scene.replayer.graph
    per_step: list[float] = []
    copied = converted = 0.0
    time: dict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    reads_cost = not reads and any(one.code == "synchronising" and one.rank == rank for one in scene.host or ())
    read = read_activities(graph, rank) if reads_cost else set()
    made: list[int] = []
    activities: list[int] = []
    known = 0
    names: set[str] = set()
    instead = False
    for step in side.steps:
        own = side.launches[rank, step]
        spent = 0.0
        made.append(0)
        for row in (row for what in whats for row in extra_rows(graph, side, rank, step, what)):
            if own.activity[row] in read:
                continue
            activities.append(int(own.activity[row]))
            names.add(graph.activities[own.activity[row]].name)
            made[-1] += 1
            known += graph.activities[own.activity[row]].name in side.names[step]
            name = short_name(graph.activities[own.activity[row]].name)
            time[name] += float(own.work_ns[row]) / 1e6
            calls[name] += 1
            spent += float(own.work_ns[row]) / 1e6
            converted += float(own.work_ns[row]) / 1e6 if own.converts[row] else 0.0
            if graph.activities[own.activity[row]].kind == COPY:
                copied += float(own.work_ns[row]) / 1e6
        missing = _instead_ms(scene, rank, step) if spent else 0.0
        instead = instead or missing > _A_PART * spent
        per_step.append(max(0.0, spent - missing))
    steps, whole = max(1, len(side.steps)), sum(time.values())
    evidence = tuple(
        EvidenceRow(kind="activity", name=name, ms=ms / steps, calls=calls[name] / steps)
        for name, ms in sorted(time.items(), key=lambda item: -item[1])[:3]
    )
    return Extra(
        rank=rank,
        ms=per_step,
        evidence=evidence,
        copied=copied / whole if whole else 0.0,
        calls=made,
        known=known,
        activities=tuple(activities),
        instead=instead,
        converting=converted / whole if whole and CONVERTS_BACK in names else 0.0,
        of_program=_share_of_program(scene, rank, names),
    )


def _share_of_program(scene: Scene, rank: int, names: Set[str]) -> float:
    """Return the share of the others' steps, by time, that is of some kernels."""
    side = scene.side
    chosen = whole = 0.0
    for step in side.steps:
        for name, ns in zip(side.programs[step], side.others(rank, step, "work_ns").tolist(), strict=True):
            if ns == ns:
                whole += ns
                chosen += ns if name in names else 0.0
    return chosen / whole if whole else 0.0


def _instead_ms(scene: Scene, rank: int, step: int) -> float:
    """Return what the others run in a step that this rank does not: it may have chosen other kernels for the same."""
    side = scene.side
    others = side.others(rank, step, "work_ns")
    passed = set(side.launches[rank, step].stands_in.tolist())
    missing = [float(ns) for place, ns in enumerate(others.tolist()) if place not in passed and ns == ns]
    return sum(missing) / 1e6
