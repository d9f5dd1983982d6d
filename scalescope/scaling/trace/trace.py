"""One rank's trace in memory: columns of integers, interned names, and a small table of what collectives carry."""

from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from scalescope.scaling.trace.header import Header
from scalescope.scaling.trace.intervals import Ints

Ids = npt.NDArray[np.int32]

KERNEL, MEMCPY, MEMSET = 0, 1, 2

#: What ran, as told by whose profile it is.
Framework = Literal["torch", "jax", "onnxruntime", "tensorflow"]


class CommunicationArgs(msgspec.Struct, frozen=True, kw_only=True):
    """What the profiler says about one collective on one rank. Counts are elements; None where the trace is silent."""

    operation: str | None = None  # canonical, see scalescope.scaling.trace.families
    in_elements: int | None = None
    out_elements: int | None = None
    both_counts: bool = False  # the counts are of what is sent and what is received, and no guess from shapes
    dtype: str | None = None  # as the trace spells it
    # the counts are of the dense shape, of which few rows may travel; None: nothing says so
    sparse: bool | None = None
    group: str | None = None
    group_ranks: str | None = None  # as the trace spells it; cut past 30 ranks
    group_description: str | None = None
    group_size: int | None = None
    sequence: int | None = None
    root: int | None = None  # in the group; of rooted collectives
    source: int | None = None
    destination: int | None = None


class GradientArgs(msgspec.Struct, frozen=True):
    """One parameter's gradient, as DDP puts it into its bucket."""

    elements: int
    element_bytes: int


class HostSpans(msgspec.Struct, frozen=True):
    """Operators, annotations or runtime calls of the host, in file order. Times in ns.

    `thread`, `correlation` and `external` are of 32 bits where all their numbers are: nothing is to be added to them.
    """

    start: Ints
    end: Ints
    thread: Ints
    name: Ids
    correlation: Ints  # of runtime calls; -1 otherwise
    external: Ints  # the id that a kernel's own external id refers to

    def __len__(self) -> int:
        return int(self.start.size)


class Stretches(msgspec.Struct, frozen=True):
    """Stretches of host time of which nothing but their times and threads counts, in file order. Times in ns."""

    start: Ints
    end: Ints
    thread: Ints

    def __len__(self) -> int:
        return int(self.start.size)


NO_STRETCHES = Stretches(*(np.empty(0, np.int64) for _ in range(3)))


class Lines(msgspec.Struct, frozen=True):
    """Calls of a script's own Python functions, and of those of libraries that are not torch's. Times in ns."""

    start: Ints
    end: Ints
    thread: Ints
    name: Ids  # `job.py(23): dashboard`

    def __len__(self) -> int:
        return int(self.start.size)


_NONE = np.empty(0, np.int64)
NO_LINES = Lines(_NONE, _NONE, _NONE, np.empty(0, np.int32))


class MultipliedAt(msgspec.Struct, frozen=True):
    """When operators began that multiply, ns, the elements of what in each grows with the batch, and its name, in file
    order.
    """

    start: Ints
    elements: Ints
    name: Ints


NONE_MULTIPLIED = MultipliedAt(*(np.empty(0, np.int64) for _ in range(3)))


class Precisions(msgspec.Struct, frozen=True):
    """What operators compute in, as far as shapes were recorded: their rows, and their dearest type's place."""

    row: Ints
    place: Ints  # in `scalescope.records.dtypes.PRECISIONS`, from 1 on


NO_PRECISIONS = Precisions(*(np.empty(0, np.int64) for _ in range(2)))


class Numbered(msgspec.Struct, frozen=True):
    """What autograd counts: a node's number, or the next one that is free where an operator that multiplies begins."""

    row: Ints  # of the operators
    number: Ints


NONE_NUMBERED = Numbered(*(np.empty(0, np.int64) for _ in range(2)))


class Activities(msgspec.Struct, frozen=True):
    """What ran on the device: kernels, copies and sets, in file order. Times in ns."""

    start: Ints
    end: Ints
    name: Ids
    kind: Ids  # KERNEL, MEMCPY or MEMSET
    stream: Ints
    device: Ints
    correlation: Ints
    external: Ints
    communication: Ids  # index into Trace.communications, -1 without metadata of its own
    blocks: Ints  # of a kernel's grid; 0 where the trace does not tell

    def __len__(self) -> int:
        return int(self.start.size)


class Trace(msgspec.Struct):
    """A trace file, read as far as it goes. Times are ns of the file's clock; `header.base_ns` makes them absolute."""

    path: Path
    header: Header
    names: list[str]
    activities: Activities
    runtime: HostSpans
    operators: HostSpans
    annotations: HostSpans
    communications: list[CommunicationArgs]
    #: index into `communications` of an operator or annotation, by its row there; only of those that have one
    operator_communication: dict[int, int] = msgspec.field(default_factory=dict)
    annotation_communication: dict[int, int] = msgspec.field(default_factory=dict)
    #: gradients that DDP's reducer moves, by the row of the operator; empty where shapes were not recorded
    gradients: dict[int, GradientArgs] = msgspec.field(default_factory=dict)
    #: calls of each operator that multiplies, and the elements of what in it grows with the batch, where shapes tell
    multiplied: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    multiplied_at: MultipliedAt = NONE_MULTIPLIED  # … and of each such call
    precisions: Precisions = NO_PRECISIONS  # of operators, where shapes were recorded
    numbered: Numbered = NONE_NUMBERED  # of those that record gradients, and of the backward pass's nodes
    threads: dict[int, str] = msgspec.field(default_factory=dict)
    frames: Stretches = NO_STRETCHES  # of Python, where stacks were recorded
    lines: Lines = NO_LINES  # of these, who calls what from a script
    overhead: Stretches = NO_STRETCHES  # of the profiler itself, as it says: buffers asked for, flushed, full
    queue_full: Stretches = NO_STRETCHES  # of these, a launch that waits for room in the device's queue
    events: int = 0  # events decoded, of every kind
    invalid_events: int = 0  # events that could not be mended
    mended_events: int = 0  # events that decoded only after mending
    #: events on a device's streams, of categories not known here
    unread: dict[str, int] = msgspec.field(default_factory=dict)
    damage: list[str] = msgspec.field(default_factory=list)  # why the file ends early, and other faults of the whole
    cut_off: bool = False  # the file ends early, so what ran later is not in it
    framework: Framework = "torch"
