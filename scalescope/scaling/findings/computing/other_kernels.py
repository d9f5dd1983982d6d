"""Which rank runs other kernels for the same operators, that take longer: a layer in another precision or layout.

It is one cause, however many kernels it is in: what the rank runs there is no work of its own, and the device is as
quick as the others' in all that they have in common. That a rank has other kernels in each step is no chance. Those of
tensors of another size differ from step to step, or the rest of the compute differs, too.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from scalescope.records.dtypes import PRECISIONS
from scalescope.scaling.finding.figures import OTHER_KERNELS, PRECISION
from scalescope.scaling.finding.finding import EvidenceRow
from scalescope.scaling.findings.candidate import MOST_STEPS, WORTH_A_LOOK, Scene
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.ranks.side_by_side import Launches
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of
from scalescope.scaling.trace.kernel_names import precision_of_product, short_name

#: What the launches in common take longer is less than this share of them, and of what the others do.
_NATURAL, _REST = 0.035, 0.5
_MOST_NAMES = 3
#: Of what a side multiplies there, by time, so much is in one precision where that is told.
_IN_ONE = 0.5


def other_kernels(scene: Scene, rank: int) -> tuple[EvidenceRow, ...]:
    """Return what a rank's other kernels take, and the others' for the same, step after step; nothing where none do."""
    side, graph = scene.side, scene.replayer.graph
    mine: dict[str, float] = defaultdict(float)
    theirs: dict[str, float] = defaultdict(float)
    longer: list[float] = []
    products: list[Counter[str]] = []
    in_common = excess = 0.0
    for step in side.steps:
        own, others = side.launches[rank, step], side.theirs(rank, step, "work_ns")
        unlike, beside = side.is_unlike(rank, step), side.is_unlike(rank, step, or_beside=True)
        longer.append(0.0)
        products.append(Counter())
        for row, (took, other) in enumerate(zip(own.work_ns.tolist(), others.tolist(), strict=True)):
            node = graph.activities[own.activity[row]]
            if node.kind != COMPUTE or other != other:
                continue
            if not unlike[row]:
                in_common += other
                excess += 0.0 if beside[row] else took - other
                continue
            name = short_name(node.name)
            mine[name], theirs[name] = mine[name] + took / 1e6, theirs[name] + other / 1e6
            longer[-1] += (took - other) / 1e6
            products[-1][node.name] += kind_of(node.name) in MULTIPLYING
    everywhere = bool(products) and all(one == products[0] for one in products) and products[0].total() > 0
    often = sum(ms >= WORTH_A_LOOK * scene.step_ms for ms in longer) >= MOST_STEPS * len(longer)
    if not (everywhere and often) or excess >= min(_NATURAL * in_common, _REST * 1e6 * sum(longer)):
        return ()
    steps = len(side.steps)
    whole, others_whole = sum(mine.values()) / steps, sum(theirs.values()) / steps
    most = sorted(mine, key=lambda name: (kind_of(name) not in MULTIPLYING, theirs[name] - mine[name]))[:_MOST_NAMES]
    rows = (
        EvidenceRow(kind="activity", name=name, ms=mine[name] / steps, others_ms=theirs[name] / steps) for name in most
    )
    figure = EvidenceRow(kind="figure", name=OTHER_KERNELS, ms=whole, others_ms=others_whole)
    return (figure, *_precisions(scene, rank), *rows)


def _precisions(scene: Scene, rank: int) -> tuple[EvidenceRow, ...]:
    """Return in which precision a rank multiplies there, and in which the others do, where that one is cheaper."""
    side = scene.side
    mine, theirs = _Products(), _Products()
    for step in side.steps:
        own = side.launches[rank, step]
        rows = np.flatnonzero(side.is_unlike(rank, step)).tolist()
        places = {int(own.stands_in[row]) for row in rows}
        places |= {place for one in own.unlike for place in one.places}
        mine.add(scene, own, rows)
        for other in side.ranks:
            there = side.launches[other, step]
            if other != rank:
                theirs.add(scene, there, [row for row, at in enumerate(there.stands_in.tolist()) if at in places])
    own_precision, others_precision = mine.precision, theirs.precision
    if own_precision is None or others_precision is None:
        return ()
    if PRECISIONS.index(own_precision) <= PRECISIONS.index(others_precision):
        return ()
    return (EvidenceRow(kind="figure", name=f"{PRECISION} {own_precision} {others_precision}"),)


class _Products:
    """What products take, ns, by the precision that their names tell."""

    def __init__(self) -> None:
        self._ns: Counter[str | None] = Counter()

    def add(self, scene: Scene, launches: Launches, rows: Sequence[int]) -> None:
        for row in rows:
            name = scene.replayer.graph.activities[launches.activity[row]].name
            if kind_of(name) in MULTIPLYING:
                self._ns[precision_of_product(name)] += round(float(launches.work_ns[row]))

    @property
    def precision(self) -> str | None:
        """The one in which most of them compute; None where that is not told."""
        return next((one for one, ns in self._ns.most_common(1) if ns > _IN_ONE * self._ns.total()), None)
