"""The cases of parallel_truth.py: who does how much in a step, and who exchanges what with whom. Torch-free."""

from dataclasses import dataclass
from typing import Literal

#: The begin of the name of everything that stands for work, as traces have it: on a CPU the operator of an autograd
#: function that sleeps, on a GPU the kernel of torch.cuda._sleep.
WORK = ("Work", "at::cuda::(anonymous namespace)::spin_kernel", "spin_kernel")


@dataclass(frozen=True)
class Pipeline:
    """`microbatches` pass through a stage a rank; backward takes twice as long as forward."""

    schedule: Literal["gpipe", "1f1b", "interleaved"]
    microbatches: int
    slow_stage: int | None = None  # whose work takes 1.5 times as long

    @property
    def stages_a_rank(self) -> int:
        return 2 if self.schedule == "interleaved" else 1

    def own_bubble(self, ranks: int) -> float:
        """Return the schedule's own bubble, (p − 1)/(v·m + p − 1) for v stages a rank."""
        return (ranks - 1) / (self.stages_a_rank * self.microbatches + ranks - 1)


@dataclass(frozen=True)
class Tensor:
    """Layers whose halves each end in an all-reduce over `degree` ranks, forward and backward; gradients between."""

    degree: int
    layers: int = 4

    def calls(self, role: str) -> int:
        """Return how many all-reduces of a role a step has: two a layer forward and backward; one of gradients."""
        return 4 * self.layers if role == "tp" else self.layers


@dataclass(frozen=True)
class Experts:
    """Tokens go to experts and back; `shares` of all tokens go to each rank's, and take it so long."""

    shares: tuple[float, ...]

    @property
    def imbalance(self) -> float:
        return max(self.shares) * len(self.shares)


@dataclass(frozen=True)
class Case:
    """One profiled stretch of steps on so many ranks."""

    name: str
    ranks: int
    of: Pipeline | Tensor | Experts


CASES = (
    Case("gpipe", 2, Pipeline("gpipe", 4)),
    Case("gpipe_slow", 2, Pipeline("gpipe", 4, slow_stage=1)),
    Case("1f1b", 2, Pipeline("1f1b", 8)),
    Case("1f1b_slow", 2, Pipeline("1f1b", 8, slow_stage=0)),
    Case("interleaved", 2, Pipeline("interleaved", 4)),
    Case("tp", 2, Tensor(2)),
    Case("ep", 2, Experts((0.75, 0.25))),
    Case("ep_even", 2, Experts((0.5, 0.5))),
    Case("gpipe_4", 4, Pipeline("gpipe", 8)),
    Case("1f1b_4", 4, Pipeline("1f1b", 8)),
    Case("1f1b_4_slow", 4, Pipeline("1f1b", 8, slow_stage=2)),
    Case("interleaved_4", 4, Pipeline("interleaved", 8)),
    Case("dp_tp", 4, Tensor(2)),
)


def chosen_cases(names: str | None) -> list[Case]:
    """Return the named cases (comma-separated), all without names. Raises ValueError for a name that is none."""
    wanted = names.split(",") if names else [case.name for case in CASES]
    unknown = [name for name in wanted if name not in {case.name for case in CASES}]
    if unknown:
        raise ValueError(
            f"--cases: no case is called {', '.join(unknown)}; there are {', '.join(c.name for c in CASES)}"
        )
    return [case for case in CASES if case.name in wanted]
