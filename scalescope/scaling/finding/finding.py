"""One finding, with what speaks for it and what mends it."""

from typing import Literal

import msgspec

from scalescope.records.rows import Origin
from scalescope.scaling.finding.codes import Code, Cure

#: How a finding's ranks stand to others that are late as well.
Order = Literal[
    "first",  # they are the latest: without their cause the step waits for the others
    "together",  # they are late by about as much: only mending all of them brings what they cost
    "after",  # the others are later: what the finding costs shows once those are mended
]


#: Where in a training loop something lies, by what comes before and after: as torch annotates it, or autograd's frames.
LoopPlace = Literal[
    "in_forward",
    "in_backward",
    "in_optimizer",
    "before_forward",  # and in the step of that forward pass
    "after_forward",  # before the backward pass
    "after_backward",  # before the optimizer's step
    "after_optimizer",  # before the step's end; of forward passes nothing is annotated
    "optimizer_to_forward",  # after the one, before the next step's other
    "backward_to_forward",
    "before_first",  # operator of the step
]


class EvidenceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that speaks for a finding: figures and names, a step, on the finding's rank where it has one."""

    kind: Literal["activity", "operator", "annotation", "figure"]
    name: str
    ms: float | None = None
    others_ms: float | None = None  # what the other ranks take for it, where that is compared
    calls: float | None = None
    share: float | None = None  # of the step, unless the name says of what
    value: float | None = None  # of a figure, in the unit that its name ends with
    place: LoopPlace | None = None  # of a gap: where in the loop it lies, where that is known
    line: str | None = None  # the function of the script that it lies in: `job.py(23): dashboard`; None: not known
    read: Literal["before", "after"] | None = None  # of a gap: `.item()` reads a value right before or after it


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """What makes the change."""

    cure: Cure
    overrides: tuple[str, ...] = ()  # of a job of ours; empty where no key does it, and for anybody else's loop
    size: float | None = None  # what the cure is given: MiB of a bucket, threads of a rank, ranks to even out
    on_cpu: bool = False  # the ranks compute on CPUs
    backend: str | None = None  # by which they talk, where that is known
    inference: bool = False  # the job trains nothing
    jax: bool = False  # the job is written in JAX
    compiled: bool = False  # its kernels are of torch.compile's making already
    accumulates: bool = False  # a step adds up gradients of several passes before it exchanges them
    line: str | None = None  # the function of the script that most of it lies in; where stacks tell one
    beside: str | None = None  # what that rank alone runs at the place most of all: it goes with the same edit
    alone: bool = False  # one rank is the whole job
    one_host: bool = False  # all its ranks are known to run on one host
    lacks_cores: bool = False  # it needs some, and the ranks compute on all: it brings what the cause costs at most
    origin: Origin | None = None  # who wrote the job's loop, where that is known


class AlsoLate(msgspec.Struct, frozen=True, kw_only=True):
    """Other ranks that are late beside a finding's: the step waits for the latest, so one hides what another costs."""

    ranks: tuple[int, ...]
    order: Order
    alone_ms: float  # what mending the finding by itself brings
    together_ms: float  # what mending it and these ranks' causes brings
    alike: bool = False  # these do the same as the finding's rank
    is_told: bool = True  # what these ranks do is a finding, too


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of lost time. `ms` is how much shorter the step as run would be without it.

    Of a cause that several ranks have, and not all, that is without it on all of `ranks`.
    """

    code: Code
    rank: int | None = None  # None: nobody's alone; of several ranks the first
    ranks: tuple[int, ...] = ()  # that have the same cause, where several do; empty for one rank, and for all
    one_ms: float | None = None  # of several ranks: what mending it on one of them alone brings, at best
    also_late: AlsoLate | None = None  # other ranks, late by other amounts or causes
    ms: float | None  # None where that cannot be told (profiler_cost), or nothing is lost (nothing)
    low_ms: float | None
    high_ms: float | None
    fraction: float | None = None  # ms of the step as run
    evidence: tuple[EvidenceRow, ...] = ()
    remedy: Remedy | None = None
    backed: Literal["replay", "measured", "bound", "none"]  # how ms is known
    at_most: bool = False  # ms is a bound, not an expectation
    at_least: bool = False  # ms is what is sure of it, and it may cost more
    reference_ms: float | None = None  # what it costs the reference of `--against`; None: that was not asked


class Reason(msgspec.Struct, frozen=True):
    """Why there is no answer: a code to decide by, and words to show."""

    code: Literal[
        "not_replayed",
        "stalled",
        "unfaithful",
        "unsplit",
        "lost",  # what the profiler lost may be what is asked for
        "several_devices",  # of one process
        "unknown_collectives",  # which pass for compute
        "other_steps",  # of some ranks than of others
    ]
    text: str


def ranks_of(finding: Finding) -> tuple[int, ...]:
    """Return the ranks that a finding names; none where it is nobody's alone."""
    return finding.ranks or (() if finding.rank is None else (finding.rank,))
