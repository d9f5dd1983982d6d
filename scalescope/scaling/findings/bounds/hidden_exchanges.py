"""Gradients that DDP exchanges in each of several backward passes of a step, on devices, where compute hides them.

What is hidden is not free: kernels beside it are slower. So the replay tells what a step takes in which the last pass
alone exchanges: without the others' transfers, bare and hidden, and what waits for them. What copies gradients into
their buckets and scales them may go as well, as far as names tell which kernels those are.
"""

import statistics
from collections.abc import Iterator, Sequence

from scalescope.records.operations import REDUCE_ON_ALL
from scalescope.scaling.finding.figures import PASSES, SLOWER_BESIDE
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.bounds.bare_transfer import shown
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.rank.records.backward_passes import Passes, exchanged_in_each
from scalescope.scaling.replay.removal import Removal


def hidden_exchanges(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where devices exchange gradients in several backward passes of each step."""
    if scene.replayer.on_cpu or scene.may_wait_unseen:
        return
    passes = exchanged_in_each(scene.replayer.records)
    graph = scene.replayer.graph
    if passes is None:
        return
    rows = [_of_step(scene, number, passes) for number in graph.step_numbers]
    if not all(rows):
        return
    needless = tuple(row for own in rows for row in own[:-1])
    steps = {graph.step_numbers[step] for step in scene.side.steps}
    held = [one for one in scene.analysis.collectives if one.step in steps]
    if not held:
        return
    exchanges = Removal("exchanges", transfers=needless)
    evidence = [
        *shown(held, len(steps), scene.share_ms("exposed_transfer"), scene.step_ms),
        EvidenceRow(kind="figure", name=PASSES, calls=passes.number),
        EvidenceRow(kind="figure", name=SLOWER_BESIDE, ms=scene.slower_beside_ms * (1 - 1 / passes.number)),
    ]
    if sizes := [one for one in passes.sizes if one is not None]:
        evidence.append(EvidenceRow(kind="figure", name="median_bytes", value=statistics.median(sizes)))
    yield Candidate(
        code="exposed_transfer",
        removals=(exchanges, Removal("bucket_copies", transfers=needless)),
        surely=(exchanges,),
        evidence=tuple(evidence),
        remedy=Remedy(cure="exchange_once"),
    )


def _of_step(scene: Scene, number: int, passes: Passes) -> Sequence[tuple[int, ...]]:
    """Return a step's transfers, pass by pass; none where they are not what its host exchanges in each of them.

    Others may come before and behind: a loss, a norm.
    """
    graph = scene.replayer.graph
    own = [
        at for at, one in enumerate(graph.transfers)
        if one.step == number and one.operation in REDUCE_ON_ALL and set(one.members) == set(graph.ranks)
    ]  # fmt: skip
    own.sort(
        key=lambda at: min(graph.activities[member].traced_start for member in graph.transfers[at].members.values())
    )
    sizes, each = tuple(graph.transfers[at].bytes for at in own), len(passes.sizes)
    whole = passes.sizes * passes.number
    first = next((at for at in range(len(own)) if sizes[at : at + len(whole)] == whole), -1)
    if first < 0:
        return ()
    return [tuple(own[at : at + each]) for at in range(first, first + len(whole), each)]
