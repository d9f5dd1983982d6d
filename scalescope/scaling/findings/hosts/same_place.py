"""Whether what a rank runs beyond the others, and where its host stands still, are one thing: one edit removes both.

Who saves a prediction runs an operator or two, and then waits for the file. The ranks' common program says where that
is: between the same two of its launches, whatever lies there is at one place of the script, and an edit there takes out
all of it. So does an edit of one function, wherever that is called, unless it is one that the common program is
called in as well, as the loop itself is. Two functions, where stacks tell of two, are two edits.
"""

from collections.abc import Container, Sequence
from itertools import accumulate

from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.replay.ranks.extra import Beyond, extra_rows, steps_of
from scalescope.scaling.replay.removal import host_excess

#: So much of each lies where the other one is, where they are at one place.
_MOST = 0.5


def is_one_place(scene: Scene, rank: int, block: Candidate, whats: Sequence[Beyond], stall: Candidate) -> bool:
    """Tell whether a rank's launches of these kinds and its host's stall are at one place, or of one function."""
    lines = [one.remedy.line if one.remedy is not None else None for one in (block, stall)]
    if None not in lines and lines[0] != lines[1]:
        return False
    if _are_beside(scene, rank, whats, stall):
        return True
    return lines[0] is not None and lines[0] == lines[1] and not _calls_the_program(scene, rank, lines[0])


def host_at_ns(scene: Scene, rank: int, whats: Sequence[Beyond]) -> list[float]:
    """Return what a rank's host takes in each step in and right around launches of these kinds, beside them, ns: for
    them, and for the next launch in common beyond what the others take.
    """
    side, graph = scene.side, scene.replayer.graph
    found = []
    for step in side.steps:
        own = side.launches[rank, step]
        rows = {row for what in whats for row in extra_rows(graph, side, rank, step, what)}
        behind = {row + 1 for row in rows} - rows
        later = sum(ns for row, ns in host_excess(side, rank, step, gaps_only=True) if row in behind)
        found.append(float(own.host_ns[sorted(rows)].sum()) + later if rows else 0.0)
    return found


def _are_beside(scene: Scene, rank: int, whats: Sequence[Beyond], stall: Candidate) -> bool:
    """Tell whether most of a stall lies between the launches in common between which most of the others are."""
    side, graph = scene.side, scene.replayer.graph
    gap_ns = next((removal.ns for removal in stall.removals if removal.what == "gaps"), 0)
    blocks: dict[int, float] = {}
    gaps: dict[int, float] = {}
    common = 0  # launches in common before: what has as many lies between the same two of them
    for step in steps_of(side):
        own = side.launches[rank, step]
        before = list(accumulate((own.stands_in >= 0).tolist(), initial=common))  # each row's, and the next step's
        for row in {row for what in whats for row in extra_rows(graph, side, rank, step, what)}:
            blocks[before[row]] = blocks.get(before[row], 0.0) + float(own.work_ns[row])
        for row, ns in host_excess(side, rank, step, gaps_only=True, gap_ns=gap_ns):
            gaps[before[row]] = gaps.get(before[row], 0.0) + ns
        common = before[-1]
    return _mostly_in(gaps, blocks) and _mostly_in(blocks, gaps)


def _mostly_in(some: dict[int, float], there: Container[int]) -> bool:
    whole = sum(some.values())
    return whole > 0 and sum(ns for place, ns in some.items() if place in there) >= _MOST * whole


def _calls_the_program(scene: Scene, rank: int, line: str) -> bool:
    """Tell whether a function of the script calls launches that all ranks have, as the loop's own does."""
    graph, record = scene.replayer.graph, scene.replayer.records[rank]
    if not record.called:
        return True
    first = min(min(rows) for rows in graph.order[rank] if rows)
    for step in scene.side.steps:
        own = scene.side.launches[rank, step]
        for at, place in zip(own.activity, own.stands_in.tolist(), strict=True):
            stack = record.code.stacks[record.called[at - first]]
            if place >= 0 and stack and stack[-1] == line:
                return True
    return False
