"""Loops of Python that fill a tensor element by element: `mask[i, j] = value`, where hosts compute.

Each assignment gets at an element by an operator or two, and writes it by another. Hundreds of nothing else are no
log's doing, nor a check's: those compute, or read.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from msgspec.structs import replace

from scalescope.scaling.finding.figures import FILLED
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.hosts.own_lines import line_of_activities
from scalescope.scaling.rank.records.element_reads import INDEXING

#: Operators that write an element, or a few, and those that make a tensor of Python's number to be written.
_WRITING = frozenset({"aten::copy_", "aten::fill_", "aten::index_put_", "aten::masked_fill_"})
_LIFTING = frozenset({"aten::lift_fresh", "aten::scalar_tensor", "aten::tensor"})
#: So many operators a step, of which nearly all are such and so many write, are a loop over elements.
_LONG, _NEARLY_ALL, _WRITE = 200, 0.9, 1 / 6
_NAMED = 3
#: In the others' program so many in a row are such a loop, too; fewer are a crop, or a copy here and there.
_ALSO = 20


def fills_elements(calls: Mapping[str, float]) -> bool:
    """Tell whether so many calls of operators a step, by name, fill tensors element by element."""
    whole = sum(calls.values())
    written = sum(count for name, count in calls.items() if name in _WRITING)
    rest = sum(count for name, count in calls.items() if name in INDEXING or name in _LIFTING)
    return whole >= _LONG and written + rest >= _NEARLY_ALL * whole and written >= _WRITE * whole


def as_filling(scene: Scene, one: Candidate, launched: Sequence[int], ms: float) -> Candidate:
    """Return what a rank launches beyond the others as a loop that fills tensors, if it is one: work of its own,
    whichever of its operators the others run as well, but for where they have such a loop, too: there it is more of it.

    `launched`: all of it, in the graph, which takes `ms` a step.
    """
    steps = max(1, len(scene.side.steps))
    activities = scene.replayer.graph.activities
    calls = {name: times / steps for name, times in Counter(activities[at].name for at in launched).items()}
    if not fills_elements(calls):
        return one
    most = sorted(calls, key=lambda name: -calls[name])[:_NAMED]
    line = line_of_activities(scene, launched)
    return replace(
        one,
        code="more_work" if _fill_too(scene, most) else "own_work",
        evidence=(
            EvidenceRow(kind="figure", name=FILLED, ms=ms, calls=sum(calls.values())),
            *(EvidenceRow(kind="operator", name=name, calls=calls[name]) for name in most),
            *one.evidence,
        ),
        remedy=Remedy(cure="fill_at_once", line=line),
    )


def _fill_too(scene: Scene, most: Sequence[str]) -> bool:
    """Tell whether the ranks' common program has a loop that fills tensors by the very operators, in any step."""
    filling = _WRITING | _LIFTING | INDEXING
    for program in (scene.side.programs[step] for step in scene.side.steps):
        for fills, names in groupby(program, key=filling.__contains__):
            calls = Counter(names) if fills else Counter[str]()
            written = sum(calls[name] for name in _WRITING)
            if calls.total() >= _ALSO and set(most) <= set(calls) and written >= _WRITE * calls.total():
                return True
    return False
