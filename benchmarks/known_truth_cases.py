"""The cases of known_truth.py: what is injected into which rank's steps, and which runs it is compared with."""

from dataclasses import dataclass

DATA = "scalescope:data"  # the annotation around loading a batch
INJECTED = "scalescope:injected"  # the annotation around every other injected activity

DEVICE_DELAY, SLOW_COMPUTE, SLOW_DATA, LATE_ROOT = "device_delay", "slow_compute", "slow_data", "late_root"


@dataclass(frozen=True)
class Case:
    """One profiled stretch of the job."""

    name: str
    injection: str | None = None
    rank: int = 0  # whom it is injected into, modulo the world size; also the root of the broadcast
    second: int | None = None  # another rank that the same is injected into; then three ranks at least are needed
    synced: bool = False  # the host waits for the device at the end of each step, so it never runs ahead
    broadcast: bool = False  # each step holds a broadcast between forward and backward
    references: tuple[str, ...] = ()  # undisturbed runs of the same steps: the one before and the one after

    def rank_of(self, world_size: int) -> int:
        """Return the rank that the case disturbs."""
        return self.rank % world_size

    def ranks_of(self, world_size: int) -> tuple[int, ...]:
        """Return all ranks that the case disturbs."""
        return (self.rank_of(world_size), *(() if self.second is None else (self.second % world_size,)))

    def needs(self) -> int:
        """Return how many ranks there must be, so that one is left undisturbed."""
        return 1 if self.second is None else 3


CASES = (
    Case("undisturbed_1"),
    Case("device_delay", DEVICE_DELAY, rank=1, references=("undisturbed_1", "undisturbed_2")),
    Case("undisturbed_2"),
    Case("slow_compute", SLOW_COMPUTE, rank=2, references=("undisturbed_2", "undisturbed_3")),
    Case("undisturbed_3"),
    Case("two_late", DEVICE_DELAY, rank=0, second=2, references=("undisturbed_3", "undisturbed_4")),
    Case("undisturbed_4"),
    Case("synced_1", synced=True),
    Case("slow_data", SLOW_DATA, rank=3, synced=True, references=("synced_1", "synced_2")),
    Case("synced_2", synced=True),
    Case("broadcast_1", rank=2, broadcast=True),
    Case("late_root", LATE_ROOT, rank=2, broadcast=True, references=("broadcast_1", "broadcast_2")),
    Case("broadcast_2", rank=2, broadcast=True),
)


def chosen_cases(names: str | None) -> list[Case]:
    """Return the named cases (comma-separated), all without names. Raises ValueError for a name that is none."""
    if names is None:
        return list(CASES)
    wanted = names.split(",")
    unknown = [name for name in wanted if name not in {case.name for case in CASES}]
    if unknown:
        raise ValueError(
            f"--cases: no case is called {', '.join(unknown)}; there are {', '.join(c.name for c in CASES)}"
        )
    return [case for case in CASES if case.name in wanted]
