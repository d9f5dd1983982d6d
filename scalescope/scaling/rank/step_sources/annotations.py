"""Steps by an annotation of the user's own that recurs: `train_step`, `iteration 12`, a forward pass.

Of all that recurs, that which the fewest times holds most of the compute; see work.py for what makes it a step.
"""

import re

import numpy as np

from scalescope.scaling.rank.step_sources.steps import Steps, numbered
from scalescope.scaling.rank.step_sources.work import Work, makes_steps
from scalescope.scaling.trace.trace import Trace

#: Fewer times is no recurrence.
_LEAST = 3
#: An annotation that holds so much of the compute of its step is the whole step, its last one too.
_WHOLE = 0.95

_NUMBER = re.compile(r"[\s#_:.\[(=-]*\d+[\])]*$")
#: Annotations of libraries, and of a model's parts.
_NO_STEP = re.compile(
    r"(nccl|gloo|mpi|rccl|ucc|xccl):|FSDP::|Optimizer\.|enumerate\(|## |Torch-Compiled|TorchDynamo|CompiledFx|Inductor"
    r"|.*\(dynamo_timed\)|c10d::|autograd::|aten::|torch::|scalescope:|.*(?i:layer|block|attention|attn|mlp|norm\b)"
)


def by_annotations(trace: Trace, work: Work) -> Steps | None:
    """Return the steps that an annotation of the user's own makes; None where none does."""
    best: tuple[int, Steps] | None = None
    for rows, thread in _recurring(trace):
        start, end = trace.annotations.start[rows], trace.annotations.end[rows]
        if (start[1:] < end[:-1]).any():
            continue  # they lie in each other
        if not _hold_their_steps(work, start, end):
            start, end = start[:-1], start[1:]  # the last one's step goes on, nobody knows until when
        if start.size >= 2 and makes_steps(work, start, int(end[-1])) and (best is None or start.size < best[0]):
            best = start.size, numbered(start, end, thread, "annotation")
    return best[1] if best is not None else None


def _recurring(trace: Trace) -> list[tuple[np.ndarray, int]]:
    """Return the rows of annotations of one name, without a number at its end, and one thread, ascending in time."""
    spans = trace.annotations
    families: dict[tuple[str, int], list[int]] = {}
    for row, (name, thread) in enumerate(zip(spans.name.tolist(), spans.thread.tolist(), strict=True)):
        text = trace.names[name]
        if not _NO_STEP.match(text):
            families.setdefault((_NUMBER.sub("", text), thread), []).append(row)
    return [
        (np.array(sorted(rows, key=lambda row: int(spans.start[row])), np.int64), thread)
        for (_, thread), rows in families.items()
        if len(rows) >= _LEAST
    ]


def _hold_their_steps(work: Work, start: np.ndarray, end: np.ndarray) -> bool:
    """Tell whether hardly anything is launched between one annotation's end and the next one's begin."""
    step = np.searchsorted(start, work.launch, side="right") - 1
    bounded = (step >= 0) & (step < start.size - 1)
    inside = bounded & (work.launch <= end[np.maximum(step, 0)])
    return bool(work.ns[inside].sum() >= _WHOLE * max(1, int(work.ns[bounded].sum())))
