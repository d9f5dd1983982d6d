"""Slow replays that share nothing with the product's but the graph: no heap, no events that are planned ahead.

`settle` recomputes every begin and end from the definitions until nothing changes any more (without contention);
`tick` lets time pass in small steps and moves everything that runs by its speed (with contention); `walk` goes from
each instant to the next at which anything begins or ends, and looks at everything again there.
"""

from itertools import pairwise

from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE
from scalescope.scaling.replay.graph import Graph


def settle(graph: Graph) -> tuple[dict[int, float], dict[int, float]]:
    """Return begins and ends, ns, of a graph without contention."""
    assert graph.contention.inflation == 0 and graph.contention.transfer_rate == 1
    living = sorted(graph.living(), key=lambda at: graph.activities[at].traced_start)
    before = {right: left for streams in graph.order.values() for stream in streams
              for left, right in pairwise(stream)}  # fmt: skip
    begin = dict.fromkeys(living, 0.0)
    end = dict.fromkeys(living, 0.0)
    while True:
        launched: dict[int, float] = {}
        for rank in graph.ranks:
            clock = graph.begins[rank]
            for call in graph.calls[rank]:
                called = clock + call.think_ns
                if call.launches >= 0:
                    launched[call.launches] = called + graph.latency[rank] + graph.activities[call.launches].late_ns
                clock = called + call.duration_ns
                if call.awaits >= 0:
                    clock = max(called, (begin if call.room else end)[call.awaits] + call.until_ns)
        changed = False
        for at in living:
            node = graph.activities[at]
            moments = [node.not_before, *(end[other] for other in graph.after.get(at, ()))]
            moments += [end[before[at]]] if at in before else []
            moments += [launched[at]] if at in launched else []
            starts = max(moments) + node.dispatch_ns
            if node.kind == COMMUNICATION and node.collective >= 0:
                transfer = graph.transfers[node.collective]
                stops = max(max(begin[one] for one in transfer.members.values() if one != at), starts)
                stops += transfer.work_ns + node.skew_ns
            else:
                stops = starts + graph.work_ns[at]
            changed = changed or abs(starts - begin[at]) > 0.01 or abs(stops - end[at]) > 0.01
            begin[at], end[at] = starts, stops
        if not changed:
            return begin, end


def tick(graph: Graph, step_ns: float) -> dict[int, float]:
    """Return the ends, ns, of a graph whose activities are all launched at 0, in steps of time."""
    order = {right: left for streams in graph.order.values() for stream in streams
             for left, right in pairwise(stream)}  # fmt: skip
    left = {at: graph.work_ns[at] for at in graph.living()}
    moved = {index: one.work_ns for index, one in enumerate(graph.transfers)}
    running: set[int] = set()
    end: dict[int, float] = {}
    now = 0.0
    while len(end) < len(left):
        for at in left:
            needs = [*graph.after.get(at, ()), *([order[at]] if at in order else [])]
            if at not in running and at not in end and all(other in end for other in needs):
                running.add(at)
        computing = {graph.activities[at].rank for at in running if graph.activities[at].kind == COMPUTE}
        talking = {graph.activities[at].rank for at in running if graph.activities[at].kind == COMMUNICATION}
        now += step_ns
        for index, one in enumerate(graph.transfers):
            if all(at in running for at in one.members.values()):
                busy = sum(rank in computing for rank in one.members) / len(one.members)
                moved[index] -= step_ns * (1 - (1 - graph.contention.transfer_rate) * busy)
        for at in sorted(running):
            node = graph.activities[at]
            if node.kind == COMPUTE:
                slow = 1 + graph.contention.inflation if node.rank in talking else 1.0
                left[at] -= step_ns / slow
                over = left[at] <= 0
            else:
                over = moved[node.collective] <= 0
            if over:
                running.discard(at)
                end[at] = now
    return end


def walk(graph: Graph) -> tuple[dict[int, float], dict[int, float]]:
    """Return begins and ends, ns, of a whole graph, hosts and contention included."""
    nodes, living = graph.activities, graph.living()
    before = {right: left for streams in graph.order.values() for stream in streams
              for left, right in pairwise(stream)}  # fmt: skip
    unlaunched = {call.launches for calls in graph.calls.values() for call in calls if call.launches >= 0}
    launched: dict[int, float] = {}
    left = {at: graph.work_ns[at] for at in living}
    moves = [one.work_ns for one in graph.transfers]
    through: dict[int, float] = {}  # when each member ends whose transfer is over
    begin: dict[int, float] = {}
    end: dict[int, float] = {}
    place, clock = dict.fromkeys(graph.ranks, 0), dict(graph.begins)
    called: set[tuple[int, int]] = set()
    now = 0.0
    while len(end) < len(living):
        for rank in graph.ranks:
            while place[rank] < len(graph.calls[rank]):
                call = graph.calls[rank][place[rank]]
                made = clock[rank] + call.think_ns
                if call.launches >= 0 and (rank, place[rank]) not in called:
                    called.add((rank, place[rank]))
                    launched[call.launches] = made + graph.latency[rank] + nodes[call.launches].late_ns
                    unlaunched.discard(call.launches)
                if call.awaits >= 0:
                    happened = (begin if call.room else end).get(call.awaits)
                    if happened is None:
                        break
                    clock[rank] = max(made, happened + call.until_ns)
                else:
                    clock[rank] = made + call.duration_ns
                place[rank] += 1
        running = [at for at in begin if at not in end]
        computing = {nodes[at].rank for at in running if nodes[at].kind == COMPUTE}
        talking = {nodes[at].rank for at in running if nodes[at].kind == COMMUNICATION}
        moving = [index for index, one in enumerate(graph.transfers)
                  if all(at in begin for at in one.members.values())
                  and not any(at in through for at in one.members.values())]  # fmt: skip
        loss = 1 - graph.contention.transfer_rate
        speed = {at: 1 / (1 + graph.contention.inflation) if nodes[at].rank in talking else 1.0 for at in running
                 if nodes[at].kind == COMPUTE}  # fmt: skip
        rate = {
            index: 1 - loss * sum(rank in computing for rank in members) / len(members)
            for index in moving
            for members in [graph.transfers[index].members]
        }
        starts: dict[int, float] = {}
        for at in living:
            needs = [*graph.after.get(at, ()), *([before[at]] if at in before else [])]
            if at not in begin and at not in unlaunched and all(other in end for other in needs):
                moments = [nodes[at].not_before, launched.get(at, 0.0), *(end[other] for other in needs)]
                starts[at] = max(moments) + nodes[at].dispatch_ns
        stops = {at: now + left[at] / speed[at] for at in speed}
        stops |= {at: through[at] for at in running if at in through}
        stops |= {at: begin[at] + graph.work_ns[at] for at in running
                  if nodes[at].kind != COMPUTE and nodes[at].collective < 0}  # fmt: skip
        over = {index: now + moves[index] / rate[index] for index in moving}
        then = min([*starts.values(), *stops.values(), *over.values()])
        for at in speed:
            left[at] -= (then - now) * speed[at]
        for index in moving:
            moves[index] -= (then - now) * rate[index]
        for index, instant in over.items():
            if instant <= then:
                through |= {at: then + nodes[at].skew_ns for at in graph.transfers[index].members.values()}
        end |= {at: then for at, instant in stops.items() if instant <= then}
        begin |= {at: then for at, instant in starts.items() if instant <= then}
        now = then
    return begin, end
