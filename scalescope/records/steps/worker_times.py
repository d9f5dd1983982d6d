"""What the child processes of a script's ranks compute, such as their loaders' workers: in recording.json."""

import msgspec

#: Of a core, from which on a child that is no worker is kept.
LEAST_CORES = 0.05


class WorkerTime(msgspec.Struct, frozen=True, kw_only=True):
    """The loaders' workers of one rank, together."""

    rank: int
    processes: int  # the most that were seen at once
    waiting: float | None = None  # cores that they were ready to run on as well, and others had; None: not told
    cores: float  # that they used in the mean of all stretches of steps behind the first that no profiler records


class ChildTime(msgspec.Struct, frozen=True, kw_only=True):
    """The child processes of one rank that run one command and are no workers, together."""

    rank: int
    name: str  # the command's, without its arguments
    cores: float  # as workers' are
