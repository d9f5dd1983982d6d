"""What the backward pass runs of the forward pass once more, so that activations need not be kept: of all ranks alike.

It is a trade of time for memory that the job was given, and no fault. A rank that alone does so has more work than the
others, and is told by that.
"""

from collections.abc import Iterator

from scalescope.scaling.finding.figures import RECOMPUTED
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import MOST_STEPS, Candidate, Scene, gained_ms
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.trace.kernel_kinds import kind_of

#: From this share of the step on it is told, by itself.
_MUCH = 0.03
#: Where devices wait for launches for such a share of the step, what else its host does for it counts: hooks for each
#: tensor that is saved, states of random numbers. Of 15 ms of a U-Net's steps that hosts bind 3.6 were told.
_LAUNCHES = 0.1
#: So many operators, or kinds of kernels, are named, if each takes this share of it.
_NAMED, _WORTH_NAMING = 3, 0.1


def recomputation(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks run parts of the forward pass again, for much of the step."""
    graph, on_cpu = scene.replayer.graph, scene.replayer.on_cpu
    numbers, ranks = set(graph.step_numbers), scene.side.ranks
    found: set[tuple[int, int]] = set()  # ranks and steps
    ms: dict[str, float] = {}
    calls: dict[str, float] = {}
    scale = max(1, len(ranks) * len(numbers))
    for at in graph.recomputed:
        node = graph.activities[at]
        if node.rank in ranks and node.step in numbers:
            found.add((node.rank, node.step))
            name = node.name if on_cpu else kind_of(node.name)
            ms[name] = ms.get(name, 0.0) + (node.traced_end - node.traced_start) / 1e6 / scale
            calls[name] = calls.get(name, 0.0) + 1 / scale
    if not ms or any(sum((rank, step) in found for step in numbers) < MOST_STEPS * len(numbers) for rank in ranks):
        return
    change = Change(without=(Removal("recomputed"),))
    if gained_ms(scene.replayer, change) < _MUCH * scene.step_ms:
        return
    whole = sum(ms.values())
    most = [name for name in sorted(ms, key=lambda name: -ms[name])[:_NAMED] if ms[name] >= _WORTH_NAMING * whole]
    yield Candidate(
        code="recomputation",
        change=change,  # in the step without causes, which are priced in the step that the job was given
        evidence=(
            EvidenceRow(kind="figure", name=RECOMPUTED, ms=whole, calls=sum(calls.values())),
            *(
                EvidenceRow(kind="operator" if on_cpu else "activity", name=name, ms=ms[name], calls=calls[name])
                for name in most
            ),
        ),
        at_least=not on_cpu and scene.share_ms("idle_launch") >= _LAUNCHES * scene.step_ms,
        remedy=Remedy(cure="recompute_less", overrides=scene.overrides("recompute=false")),
    )
