"""What one side of a comparison is: repeats of one job, each with its steps, its profiled windows and surroundings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from scalescope.records.rows import RunInfo, TrainFacts
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.answer_steps import LongSteps, RecurringSteps
from scalescope.scaling.costs.points import Launch
from scalescope.scaling.trace.kernel_kinds import KINDS
from scalescope.scaling.trace.sources import Source

#: The parts of a step, compute by kernel kind.
KEYS = (*KINDS, *PARTS[1:])
_COMPUTE = len(KINDS)
#: What is exposed of the communication; where who waits for whom is not known, it is all in the last.
EXPOSED = ("exposed_transfer", "exposed_wait", "exposed_unsplit")
UNSPLIT = EXPOSED[-1]

Vector = tuple[float, ...]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """One profiled window of a run. Times are ms a step."""

    ranks: dict[int, Vector]  # by rank, its mean step by KEYS
    steps: dict[int, list[Vector]]  # by rank, each step as profiled, by PARTS
    basis: Literal["as_run", "profiled"]
    traces: dict[int, Source]
    only: tuple[int, int] | None = None  # the steps that all ranks hold, by number; None: they hold the same
    calls: dict[int, tuple[int | None, ...]] = {}  # by rank, of each of KINDS the kernels of a step; None: steps differ
    #: By rank, of each of KINDS how many kernels a step has at least, and how many at most.
    call_bounds: dict[int, tuple[tuple[int, int], ...]] = {}
    has_placed: bool = False  # of some of these kernels the place tells the kind, and not the name

    @property
    def step_ms(self) -> float:
        """Return the mean rank's step."""
        return sum(sum(parts) for parts in self.ranks.values()) / len(self.ranks)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What tells whether two runs do the same work."""

    world_size: int
    activity: Literal["gpu", "cpu"]
    device: str | None
    model: str | None = None
    named_by_user: bool = False  # the model's name is what a script's user called the run
    samples_by_rank: tuple[int, ...] = ()  # of a step; empty: nobody told
    counts_batches: bool = False  # a rank's whole batch counts as one, since nobody told its samples
    kinds: dict[str, float] = {}  # of the compute, each kernel kind's share
    names: dict[str, float] = {}  # of the compute, each kernel name's share
    inputs: dict[str, float] = {}  # by operator that multiplies, the elements of its input, of the rank with the least
    calls: dict[str, float] = {}  # … and how often a step calls it, which tells how deep a network is
    #: By operation, how many collectives a step has, and the bytes of them all; None: steps differ, or nothing tells.
    collectives: dict[str, int | None] = {}
    sent_bytes: dict[str, int | None] = {}


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the job: a run folder, or a folder of traces."""

    name: str
    path: Path
    identity: Identity
    windows: list[Window] = []
    steady_ms: list[float] = []  # the length of each steady step, in order
    #: Of each of them, and of those that recur, by number: its length, and that without what the rank that waited most
    #: waited for its core (None: nothing tells). Empty of traces alone.
    every_ms: dict[int, tuple[float, float | None]] = {}
    #: By how much their median may be off, as a standard deviation, where they are one number that traces tell; ms.
    steady_off_ms: float = 0.0
    steady_steps: dict[int, tuple[float, ...]] = {}  # of all steady steps, by number, each rank's `loop_ms`
    recurring: RecurringSteps | None = None  # of those, as `analyze` finds them
    rare: LongSteps | None = None  # … that are far longer, at too few places to tell how often they come
    #: Of a steady and of a recorded step, how long the rank that waited most was ready to run while others had its
    #: core, ms: by so much it may be shorter, or longer, in the next run. None: nothing tells, or a device decides.
    run_delay_ms: float | None = None
    recorded_run_delay_ms: float | None = None
    worker_cores: float | None = None  # that ranks' child processes used, on CPUs; None: not told, or there are none
    late_ms: dict[int, list[float]] = {}  # on CPUs, by rank, how long after all others it is ready in each steady step
    free_ms: list[float] = []  # the steady steps without what that rank waited; empty: nothing tells
    info: RunInfo | None = None
    facts: TrainFacts | None = None
    config: str = ""
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    memory_bytes: int | None = None
    joules_per_sample: float | None = None
    bus_gb_s: dict[int, float] = {}  # by bytes, the median busbw of the collectives in the traces
    notes: list[str] = []

    @property
    def series(self) -> tuple[str, ...]:
        """Return what tells this job from another of the same study: its facts, ranks and batch."""
        if self.facts is None:
            return ("traces",)
        facts = self.facts
        told = (facts.model, facts.strategy, facts.precision, facts.compiled, facts.flops_per_sample)
        shares = sorted(facts.samples_by_rank) or facts.samples_per_rank_step
        return tuple(str(one) for one in (*told, self.identity.world_size, shares))


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One side, or one job of it: either repeats of a run, or launches of a sweep."""

    name: str
    repeats: list[Repeat] = []
    launches: list[Launch] = []
    infos: list[RunInfo] = []  # of the launches

    @property
    def first(self) -> Repeat:
        return self.repeats[0]

    @property
    def cores_untold(self) -> bool:
        """Tell whether it is of CPU ranks, and nothing tells of one run at least whether others had their cores."""
        known = all(one.run_delay_ms is not None or one.recorded_run_delay_ms is not None for one in self.repeats)
        return not known and self.first.identity.activity == "cpu"

    @property
    def windows(self) -> list[Window]:
        return [window for repeat in self.repeats for window in repeat.windows]


def as_keys(parts: Sequence[float], kinds: Sequence[float]) -> Vector:
    """Return a step's PARTS by KEYS: its compute shared out as `kinds`, which add up to 1, say."""
    return (*(parts[0] * share for share in kinds), *parts[1:])


def compute_of(vector: Sequence[float]) -> float:
    """Return the compute of a step by KEYS."""
    return sum(vector[:_COMPUTE])


def ranks_in_all(windows: Sequence[Window]) -> list[int]:
    """Return the ranks that every window has."""
    held: list[Mapping[int, Vector]] = [window.ranks for window in windows]
    return sorted(set.intersection(*(set(one) for one in held))) if held else []
