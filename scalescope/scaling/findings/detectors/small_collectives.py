"""Many collectives of a few bytes each, where one would do: figures that ranks exchange one by one.

Each is a round of messages that takes as long however little it carries. So of those of one group all but one are lost,
where nothing hides them. Gradients and activations are larger, and cannot be put together at will: what waits for each
of them comes between.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator

from scalescope.records.operations import MOVE_NO_DATA, PAIRWISE, named
from scalescope.scaling.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.shares import mean_step_ms
from scalescope.scaling.replay.graph import Transfer

#: Losses, norms, counts, flags: so many bytes are figures, and no layer's gradients or activations.
_FIGURES_BYTES = 1 << 10
#: What each pair has for itself (the counts before an all-to-all) is needed where it is sent.
_NEEDED_THERE = MOVE_NO_DATA | PAIRWISE | named(lambda facts: facts.personalised)


def small_collectives(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where a step has several collectives of figures: what all but one of each group's take."""
    if scene.may_wait_unseen:
        return  # what such a collective takes may be waiting
    graph = scene.replayer.graph
    held = {graph.step_numbers[step]: list[Transfer]() for step in scene.side.steps}
    for one in graph.transfers:
        if one.step in held and one.bytes and one.bytes <= _FIGURES_BYTES and one.operation not in _NEEDED_THERE:
            held[one.step].append(one)
    if not held or min(map(len, held.values())) < 2:
        return
    lost = [_lost_ms(of_step) * _as_run(scene) for of_step in held.values()]
    small = [one for of_step in held.values() for one in of_step]
    operation, _ = Counter(one.operation for one in small).most_common(1)[0]
    yield Candidate(
        code="small_collectives",
        gain_ms=(statistics.fmean(lost), min(lost), max(lost)),
        evidence=(
            EvidenceRow(kind="figure", name="collectives", calls=len(small) / len(held)),
            EvidenceRow(kind="figure", name="median_bytes", value=statistics.median(one.bytes or 0 for one in small)),
            EvidenceRow(kind="activity", name=operation, ms=statistics.fmean(map(_exposed_ms, held.values()))),
        ),
        remedy=Remedy(cure="merge_collectives"),
    )


def _exposed_ms(transfers: list[Transfer]) -> float:
    return sum(one.traced_ns * (1 - one.hidden) for one in transfers) / 1e6


def _lost_ms(transfers: list[Transfer]) -> float:
    """Return what collectives take that compute does not hide, less what one of each group takes."""
    groups: dict[tuple[int, ...], list[Transfer]] = defaultdict(list)
    for one in transfers:
        groups[tuple(sorted(one.members))].append(one)
    return sum(_exposed_ms(own) * (1 - 1 / len(own)) for own in groups.values())


def _as_run(scene: Scene) -> float:
    """Return the share of what transfers take as profiled that they take as run; at most all of it."""
    profiled = mean_step_ms(scene.analysis, "exposed_transfer")
    return min(1.0, scene.share_ms("exposed_transfer") / profiled) if profiled else 0.0
