"""Known differences: each job differs from the undisturbed one, `same`, in one way."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

SAME = "same"


@dataclass(frozen=True)
class Case:
    """One known difference, and the parts of which one has to be told first, or words of the first sentence."""

    name: str
    overrides: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    moves: tuple[str, ...] = ()
    says: str = ""  # or what the first sentence has to hold, where the change is counted, or at one place
    least_gpus: int = 1
    models: tuple[str, ...] = ("gpt_small", "resnet50", "gpt_tiny")
    late_share: float = 0.0  # of the undisturbed step, by which the ranks below are late in every step
    late_ranks: tuple[int, ...] = ()


COMMUNICATION = ("exposed_transfer", "exposed_wait", "exposed_unsplit")
#: What a kernel that nobody else launches, or a host that sleeps, makes longer.
LATE_DEVICE = ("elementwise and reductions", "other", "exposed_wait")
LATE_HOST = ("idle_launch", "exposed_wait")
ON_GPUS = (
    Case(SAME),
    Case("tf32", ("precision=tf32",), moves=("matmul", "convolution", "attention", "elementwise and reductions")),
    Case("small_buckets", ("strategy.bucket_mib=5",), says="all_reduce calls a step", least_gpus=2),
    Case("one_channel", variables={"NCCL_MAX_NCHANNELS": "1"}, moves=COMMUNICATION, least_gpus=2),
    Case("one_more_layer", ("model.layers=13",), moves=("matmul", "attention", "elementwise and reductions"),
         says="times the FLOPs", models=("gpt_small",)),
    Case("device_late_1", moves=LATE_DEVICE, late_share=0.01, late_ranks=(1,), least_gpus=2),
    Case("device_late_3", moves=LATE_DEVICE, late_share=0.03, late_ranks=(1,), least_gpus=2),
)  # fmt: skip
ON_CPU = (
    Case(SAME),
    Case("one_more_layer", ("model.layers=5",), moves=("attention", "matmul"), models=("gpt_tiny",)),
    Case("wider", ("model.width=96",), says="times the FLOPs", models=("gpt_tiny",)),
    Case("larger_batch", ("model.batch_size=10",), says="another batch", models=("gpt_tiny",)),
    Case("small_buckets", ("strategy.bucket_mib=0.1",), says="all_reduce calls a step", models=("gpt_tiny",)),
    Case("late_rank", moves=LATE_HOST, says="still", late_share=0.1, late_ranks=(1,)),
    Case("late_rank_a_little", moves=LATE_HOST, says="still", late_share=0.03, late_ranks=(1,)),
    Case("all_late", moves=LATE_HOST, says="still", late_share=0.1, late_ranks=(0, 1)),
    Case("all_late_a_little", moves=LATE_HOST, says="still", late_share=0.03, late_ranks=(0, 1)),
)
#: Of one name the one for GPUs first, where it is of the model.
CASES = (*ON_GPUS, *ON_CPU)


def case_of(name: str, model: str) -> Case | None:
    """Return a case of a model; None where there is none of that name."""
    return next((case for case in CASES if case.name == name and model in case.models), None)


class Run(msgspec.Struct, frozen=True):
    """One job to be trained."""

    model: str
    case: Case
    number: int

    @property
    def name(self) -> str:
        return f"{self.case.name}-{self.number}"


def runs_in_turns(models: Sequence[str], cases: Sequence[Case], repeats: int, changed: int) -> Iterator[Run]:
    """Yield all jobs in the order in which they are trained, so that clocks and temperature meet all of them alike.

    The undisturbed one comes twice a turn, at its beginning and in its middle: all others are compared with it. They
    come in `changed` of the turns each, by turns.
    """
    for number in range(repeats):
        for model in models:
            own = [case for case in cases if model in case.models]
            undisturbed = [case for case in own if case.name == SAME]
            every = [case for case in own if case.name != SAME]
            others = [case for at, case in enumerate(every) if (number + at) * changed % repeats < changed]
            half = (len(others) + 1) // 2
            yield from (Run(model, case, 2 * number) for case in undisturbed)
            yield from (Run(model, case, number) for case in others[:half])
            yield from (Run(model, case, 2 * number + 1) for case in undisturbed)
            yield from (Run(model, case, number) for case in others[half:])
