"""In which function of a script lies what a finding is of, where stacks were recorded: see `records/callers.py`."""

from collections import defaultdict
from collections.abc import Iterable

from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.rank.records.callers import Stack, line_of


def line_of_activities(scene: Scene, activities: Iterable[int]) -> str | None:
    """Return the function that calls most of some activities of the replay's graph, by what they take."""
    if not _has_stacks(scene):
        return None
    graph = scene.replayer.graph
    first = {rank: min(min(rows) for rows in streams if rows) for rank, streams in graph.order.items() if any(streams)}
    found = ((graph.activities[at].rank, at) for at in activities)
    return line_of_rows(scene, ((rank, at - first[rank]) for rank, at in found))


def line_of_rows(scene: Scene, rows: Iterable[tuple[int, int]]) -> str | None:
    """Return the function that calls most of some activities, by rank and place in its record, by what they take.

    Of ranks whose stacks were not recorded nothing is known, and nothing goes against what the others' say.
    """
    records = scene.replayer.records
    time: dict[Stack, float] = defaultdict(float)
    ranks = set()
    for rank, at in rows if _has_stacks(scene) else ():
        record = records[rank]
        if record.called:
            ranks.add(rank)
            time[record.code.stacks[record.called[at]]] += record.end[at] - record.start[at]
    host_ns = sum(time.values()) if scene.replayer.on_cpu else 0.0
    return line_of(time, [records[rank].code for rank in ranks], host_ns=host_ns)


def _has_stacks(scene: Scene) -> bool:
    return any(record.called for record in scene.replayer.records.values())
