"""A slow, separately written account of where each nanosecond went, to hold the fast one against.

Plain Python over the raw JSON: every instant between two neighbouring event edges is looked at by itself, with a
counter of what is active. Nothing of scaling/ is used, neither for reading nor for matching.
"""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, cast

Json = dict[str, Any]

#: A function of Python computes nothing where it calls no operator for so long, ns.
STANDING_NS = 20_000

PARTS = ("compute", "transfer", "wait", "unsplit", "memory", "data", "launch", "queued")
SYMMETRIC = (
    "allreduce",
    "allgather",
    "reducescatter",
    "alltoall",
    "barrier",
    "_allgather_base",
    "_reduce_scatter_base",
)
FROM_ROOT = ("broadcast", "scatter")
TO_ROOT = ("reduce", "gather")


def load(path: Path) -> Json:
    """Return a trace's JSON with exact decimals."""
    raw = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    return cast(Json, json.loads(raw, parse_float=Decimal))


def ns(value: Decimal | float) -> int:
    return int(Decimal(value) * 1000)


def spans(trace: Json, *categories: str) -> list[Json]:
    base = trace.get("baseTimeNanoseconds", 0)
    found = []
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and event.get("cat") in categories:
            start = base + ns(event["ts"])
            found.append({**event, "start": start, "end": start + ns(event["dur"]), "args": event.get("args", {})})
    return found


def profiler_steps(trace: Json) -> list[tuple[int, int, int]]:
    """Return (number, start, end) of the ProfilerSteps."""
    found = []
    for event in spans(trace, "user_annotation"):
        if match := re.fullmatch(r"ProfilerStep#(\d+)", event["name"]):
            found.append((int(match[1]), event["start"], event["end"]))
    return sorted(found, key=lambda step: step[1])


def step_at(steps: list[tuple[int, int, int]], instant: int) -> int | None:
    """Return the number of the step an instant lies in; a step reaches to the next one's begin."""
    if not steps or instant > steps[-1][2]:
        return None
    number = None
    for step, start, _ in steps:
        if start <= instant:
            number = step
    return number


def is_communication(event: Json, recorded: set[int]) -> bool:
    return event["cat"] == "kernel" and (
        "nccl" in event["name"].lower()
        or "Collective name" in event["args"]
        or event["args"].get("External id") in recorded
    )


class DeviceRank:
    """One rank's device activity, launches and collectives."""

    def __init__(self, trace: Json) -> None:
        self.steps = profiler_steps(trace)
        calls: dict[int, Json] = {}
        for call in spans(trace, "cuda_runtime", "cuda_driver"):
            number = call["args"].get("correlation", 0)
            if number > 0 and (number not in calls or call["start"] < calls[number]["start"]):
                calls[number] = call
        self.activities = spans(trace, "kernel", "gpu_memcpy", "gpu_memset")
        records = {op["args"]["External id"]: op["args"] for op in spans(trace, "cpu_op")
                   if op["name"] == "record_param_comms" and op["args"].get("Collective name") != "wait"}  # fmt: skip
        first: dict[int, int] = {}  # when the first kernel of a launch starts: a graph has many
        for activity in self.activities:
            if activity["cat"] == "kernel":
                number = activity["args"].get("correlation")
                first[number] = min(activity["start"], first.get(number, activity["start"]))
        for activity in self.activities:
            number = activity["args"].get("correlation")
            launched = calls[number]["start"] if number in calls else None
            activity["launch"] = activity["enqueued"] = launched
            if launched is not None and activity["cat"] == "kernel" and "Launch" in calls[number]["name"]:
                activity["enqueued"] = max(launched, min(calls[number]["end"], first[number]))
            activity["step"] = None if launched is None else step_at(self.steps, launched)
            activity["communication"] = is_communication(activity, set(records))
            activity["record"] = records.get(activity["args"].get("External id"), {})
        self.loading = [
            (event["start"], event["end"])
            for event in spans(trace, "user_annotation", "cpu_op")
            if event["name"] == "scalescope:data" or re.match(r"enumerate\(DataLoader\)#.*\.__next__$", event["name"])
        ]
        self.collectives = sorted((a for a in self.activities if a["communication"]), key=lambda a: a["start"])

    def windows(self) -> list[tuple[int, int, int]]:
        """Return (step, start, end) of the device steps."""
        linked = [activity for activity in self.activities if activity["launch"] is not None]
        computing = [a for a in self.activities if a["cat"] == "kernel" and not a["communication"]]
        busy: dict[int, int] = defaultdict(int)
        for activity in computing:
            busy[activity["args"].get("stream")] += activity["end"] - activity["start"]
        busiest = sorted(stream for stream in busy if busy[stream] == max(busy.values()))[:1]
        main = [activity for activity in computing if activity["args"].get("stream") in busiest]
        first = {}
        for number, _, _ in self.steps:
            for eligible in (main, computing, linked):
                starts = [activity["start"] for activity in eligible if activity["step"] == number]
                if starts:
                    first[number] = min(starts)
                    break
        if not first:
            counted = linked or self.activities
            return [(0, min(a["start"] for a in counted), max(a["end"] for a in counted))]
        numbers = sorted(first)
        last = max(activity["end"] for activity in linked if activity["step"] is not None)
        ends = [first[number] for number in numbers[1:]] + [last]
        return [(number, first[number], end) for number, end in zip(numbers, ends, strict=True)]


def operation(collective: Json) -> str:
    reported = collective["args"].get("Collective name") or collective["record"].get("Collective name")
    if reported:
        return str(reported).lower()
    match = re.search(r"(AllReduce|AllGather|ReduceScatter|Broadcast|SendRecv|Reduce)", collective["name"])
    return match[1].lower() if match else ""


def group_of(collective: Json) -> str:
    reported = {**collective["record"], **collective["args"]}
    return f"{reported.get('Process Group Name')}|{reported.get('Process Group Ranks')}"


def ready_times(ranks: dict[int, DeviceRank], world_size: int) -> dict[int, list[int | None]]:
    """Return when each collective's data could be there, on each rank; None where that cannot be told.

    Made-up traces say the truth about their members. In the real ones all ranks stop after the same collective, so
    members are those that have the same number of collectives of their group after them.
    """
    # kernels from before the window tell no group: on a stream of one group they are of that group
    names: dict[int, list[object]] = {}
    for number, rank in ranks.items():
        on_stream = defaultdict(set)
        for one in rank.collectives:
            if "Process Group Name" in {**one["record"], **one["args"]}:
                on_stream[one["args"].get("stream")].add(group_of(one))
        names[number] = []
        seen: dict[str, int] = defaultdict(int)
        for one in reversed(rank.collectives):
            known = on_stream[one["args"].get("stream")]
            reported = "Process Group Name" in {**one["record"], **one["args"]}
            group = next(iter(known)) if not reported and len(known) == 1 else group_of(one)
            seen[group] += 1
            names[number].append(one["args"].get("truth", (group, seen[group])))
        names[number].reverse()
    members: dict[object, dict[int, Json]] = defaultdict(dict)
    for number, rank in ranks.items():
        for name, one in zip(names[number], rank.collectives, strict=True):
            members[name][number] = one
    return {
        number: [
            ready_time(one, members[name], world_size)
            for name, one in zip(names[number], rank.collectives, strict=True)
        ]
        for number, rank in ranks.items()
    }


def ready_time(one: Json, members: dict[int, Json], world_size: int) -> int | None:
    start, end = cast(int, one["start"]), cast(int, one["end"])
    size = one["args"].get("Group size") or one["record"].get("Group size") or world_size
    if len(members) != size:
        return None
    name = operation(one)
    latest = max(int(member["start"]) for member in members.values())
    if name in SYMMETRIC:
        return min(max(latest, start), end)
    if name not in FROM_ROOT + TO_ROOT or "Rank" not in one["record"]:
        return None
    root = members[sorted(members)[one["record"]["Rank"]]]
    before_own_end = max(int(member["start"]) for member in members.values() if int(member["start"]) < end)
    if name == "broadcast":  # a ring passes through every member that was there in time
        return min(max(int(root["start"]), before_own_end, start), end)
    if name == "reduce":
        return min(max(latest, start), end) if one is root else min(max(before_own_end, start), end)
    if name in FROM_ROOT:
        return min(max(int(root["start"]), start), end)
    return min(max(latest, start), end) if one is root else start


def account(
    window: tuple[int, int], layers: list[tuple[str, int, int]], idle: Callable[[int, int, bool], list[tuple[str, int]]]
) -> dict[str, int]:
    """Share out one window: `layers` are (part, start, end); `idle` names what no layer covers, by pieces."""
    begin, finish = window
    edges = defaultdict(list)
    for part, start, end in layers:
        start, end = max(start, begin), min(end, finish)
        if start < end:
            edges[start].append((part, 1))
            edges[end].append((part, -1))
    edges[begin] += []
    edges[finish] += []
    active: dict[str, int] = defaultdict(int)
    shares = dict.fromkeys(PARTS, 0)
    times = sorted(edges)
    for time, following in zip(times, [*times[1:], None], strict=True):
        for part, change in edges[time]:
            active[part] += change
        if following is None:
            break
        now = next((part for part in ("compute", "transfer", "wait", "unsplit", "memory") if active[part]), None)
        if now is not None:
            shares[now] += following - time
            continue
        for part, length in idle(time, following, bool(active["data"])):
            shares[part] += length
    return shares


def device_partitions(traces: dict[int, Json], world_size: int) -> dict[int, dict[int, dict[str, int]]]:
    """Return, by rank and step, the parts in ns (and "window")."""
    ranks = {number: DeviceRank(trace) for number, trace in traces.items()}
    ready = ready_times(ranks, world_size)
    result: dict[int, dict[int, dict[str, int]]] = {}
    for number, rank in ranks.items():
        layers = [("data", start, end) for start, end in rank.loading]
        for activity in rank.activities:
            if not activity["communication"]:
                part = "compute" if activity["cat"] == "kernel" else "memory"
                layers.append((part, activity["start"], activity["end"]))
        for one, until in zip(rank.collectives, ready[number], strict=True):
            if until is None:
                layers.append(("unsplit", one["start"], one["end"]))
            else:
                layers.append(("wait", one["start"], until))
                layers.append(("transfer", until, one["end"]))
        starts = sorted((activity["start"], activity["enqueued"] if activity["enqueued"] is not None else -1)
                        for activity in rank.activities)  # fmt: skip

        def idle(start: int, end: int, loading: bool, starts: list[tuple[int, int]] = starts) -> list[tuple[str, int]]:
            if loading:
                return [("data", end - start)]
            following = next(((begin, launch) for begin, launch in starts if begin >= end), None)
            launch = following[1] if following is not None else -1
            late = min(max(launch, start), end)
            return [("launch", late - start), ("queued", end - late)]

        result[number] = {}
        for step, start, end in rank.windows():
            shares = account((start, end), layers, idle)
            result[number][step] = shares | {"window": end - start}
    return result


@cache
def account_of(folder: Path) -> dict[int, dict[int, dict[str, int]]]:
    """Return the device partitions of a folder of traces named rank<r>…, by rank and step."""
    traces = {int(path.name.removeprefix("rank").partition(".")[0]): load(path) for path in sorted(folder.iterdir())}
    return device_partitions(traces, next(iter(traces.values()))["distributedInfo"]["world_size"])


def cpu_partitions(traces: dict[int, Json]) -> dict[int, dict[int, dict[str, int]]]:
    """The same for CPU traces: one host thread each, collectives on gloo's run-loop threads."""
    collectives = {
        number: sorted(
            (e for e in spans(trace, "user_annotation") if e["name"].startswith("gloo:")), key=lambda e: e["start"]
        )
        for number, trace in traces.items()
    }  # fmt: skip
    order: dict[int, dict[str, list[Json]]] = {}
    for number, own in collectives.items():
        order[number] = defaultdict(list)
        for one in own:
            order[number][one["name"] + str(one["args"].get("Input Dims"))].append(one)
    result = {}
    for number, trace in traces.items():
        steps = profiler_steps(trace)
        thread = next(e["tid"] for e in spans(trace, "user_annotation") if e["name"].startswith("ProfilerStep"))
        layers: list[tuple[str, int, int]] = []
        for kind, own in order[number].items():
            for at, one in enumerate(own):
                peers = [order[other][kind] for other in traces]
                assert len({len(peer) for peer in peers}) == 1, "the oracle knows no window cuts on CPUs"
                until = max(peer[at]["start"] for peer in peers)
                until = min(max(until, one["start"]), one["end"])
                layers += [("wait", one["start"], until), ("transfer", until, one["end"])]
        loading = [(e["start"], e["end"]) for e in spans(trace, "user_annotation")
                   if e["name"] == "scalescope:data" or e["name"].startswith("enumerate(DataLoader)")]  # fmt: skip
        handover: list[tuple[int, int]] = []
        work: list[tuple[int, int]] = []
        # of Python, which compute by the operators that they call, but where they stand as long in both passes
        functions: dict[str, list[tuple[int, int]]] = {}
        names = {op["name"] for op in spans(trace, "cpu_op")}
        of_python = {name for name in names if name.isidentifier() and name.endswith("Backward")}
        of_python |= {name for name in names if f"{name}Backward" in of_python}
        for op in spans(trace, "cpu_op"):
            if op["tid"] != thread or op["name"].startswith("autograd::engine::evaluate_function"):
                continue
            if op["name"] == "RegisterPostBackwardFunctionBackward":
                continue
            if op["name"] in of_python:
                functions.setdefault(op["name"], []).append((op["start"], op["end"]))
                continue
            (handover if op["name"].startswith(("c10d::", "_c10d")) else work).append((op["start"], op["end"]))
        bare = {name: sum(end - start for start, end in carve(own, work + handover)) for name, own in functions.items()}
        for name in [name for name in functions if f"{name}Backward" in of_python]:
            both = sorted((bare[name], bare.get(f"{name}Backward", 0)))
            if both[0] >= both[1] / 10 > 0:
                work += functions.pop(name) + functions.pop(f"{name}Backward")
        inside = carve([one for own in functions.values() for one in own], work + handover)
        work += [(start, end) for start, end in inside if end - start < STANDING_NS]
        layers += [("compute", start, end) for start, end in carve(work, loading + handover)]
        layers += [("data", start, end) for start, end in loading]
        bounds = [start for _, start, _ in steps] + [steps[-1][2]]

        def idle(start: int, end: int, loading_now: bool) -> list[tuple[str, int]]:
            return [("data" if loading_now else "launch", end - start)]

        result[number] = {
            steps[at][0]: account((bounds[at], bounds[at + 1]), layers, idle) | {"window": bounds[at + 1] - bounds[at]}
            for at in range(len(steps))
        }
    return result


def carve(work: list[tuple[int, int]], without: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pieces of `work` outside of every span of `without`, by cutting one span after the other."""
    # outermost only, else the cutting takes minutes
    outer, reach = [], -1
    for start, end in sorted(work, key=lambda span: (span[0], -span[1])):
        if end > reach:
            outer.append((start, end))
            reach = end
    pieces = outer
    for left, right in without:
        cut = []
        for start, end in pieces:
            if right <= start or end <= left:
                cut.append((start, end))
                continue
            if start < left:
                cut.append((start, left))
            if right < end:
                cut.append((right, end))
        pieces = cut
    return pieces
