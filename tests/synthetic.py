"""Made-up traces of several ranks with a known truth: which collective each kernel is a member of.

Times are drawn in ns and written as Kineto writes them (µs with three digits). The `truth` argument of a collective's
kernel is for the oracle; scaling/ does not know it.
"""

import random
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.trace_json import packed

Json = dict[str, Any]

BASE_NS = 1_790_857_026_000_000_000
#: Ends of one collective differ by less than this between ranks, and successive ones are further apart.
JITTER_NS = 2_000
GAP_NS = 150_000

OPERATIONS = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(x)",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)",
    "alltoall": "ncclDevKernel_SendRecv(x)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(x)",
    "reduce": "ncclDevKernel_Reduce_Sum_f32_RING_LL(x)",
}


@dataclass
class Job:
    """What is drawn: sizes, and a seed for all times."""

    world_size: int
    groups: list[tuple[int, ...]]
    steps: int
    collectives: int  # a group and step
    kernels: int  # a rank and step
    seed: int
    sequence: bool = False  # write Seq
    cut: dict[int, int] = field(default_factory=dict)  # by rank: collectives of each group lost at the window's begin
    drop: list[tuple[int, int]] = field(
        default_factory=list
    )  # (rank, n-th collective of its first group) lost amid others
    operations: tuple[str, ...] = ("allreduce",)


@dataclass
class Activity:
    name: str
    category: str
    start: int
    end: int
    stream: int
    launch: int
    thread: int
    args: Json
    record: Json | None = None


def make(job: Job) -> dict[int, Json]:
    """Return the traces' JSON by rank."""
    dice = random.Random(job.seed)
    step_ns = 4_000_000
    activities: dict[int, list[Activity]] = {rank: [] for rank in range(job.world_size)}
    for rank in range(job.world_size):
        clock = launched = 0  # a stream runs one thing after another, in the order of their launches
        for step in range(job.steps):
            begin = 1_000_000 + step * step_ns
            clock = max(clock, begin + dice.randrange(1, 50_000))
            for _ in range(job.kernels):
                clock += dice.choice((0, 1, 7_000, 300_000))
                length = dice.randrange(1, 400_000)
                kind = dice.choice(("kernel", "kernel", "kernel", "gpu_memcpy", "gpu_memset"))
                launch = launched = max(launched, min(clock, max(begin, clock - dice.randrange(0, 500_000))))
                name = f"kernel_{dice.randrange(4)}" if kind == "kernel" else "Memcpy DtoD"
                activities[rank].append(Activity(name, kind, clock, clock + length, 7, launch, 101, {}))
                clock += length
    truth = 0
    for at, group in enumerate(job.groups):
        clocks = dict.fromkeys(group, 0)
        lost = dict.fromkeys(group, 0)
        launched_last = dict.fromkeys(group, 0)
        for number in range(job.steps * job.collectives):
            truth += 1
            step = number // job.collectives
            begin = 1_000_000 + step * step_ns
            operation = dice.choice(job.operations)
            elements = dice.choice((1024, 4096, 1 << 20))
            root = dice.randrange(len(group))
            arrival = {}
            for rank in group:
                earliest = max(clocks[rank], begin) + GAP_NS
                arrival[rank] = earliest + dice.choice((0, dice.randrange(0, 300_000)))
            common = max(arrival.values()) + dice.randrange(20_000, 200_000)
            for rank in group:
                end = common + dice.randrange(0, JITTER_NS)
                clocks[rank] = end
                record = {
                    "Collective name": operation, "In msg nelems": elements, "Out msg nelems": elements, "dtype":
                    "Float", "Group size": len(group), "Process Group Name": f"g{at}", "Process Group Ranks":
                    str(list(group)), "Rank": root if operation in ("broadcast", "reduce") else group.index(rank),
                }  # fmt: skip
                if job.sequence:
                    record["Seq"] = number
                lost[rank] += 1
                if lost[rank] <= job.cut.get(rank, 0) or (at == 0 and (rank, number) in job.drop):
                    continue
                launch = min(arrival[rank], max(begin, arrival[rank] - dice.randrange(0, 100_000)))
                launch = launched_last[rank] = max(launched_last[rank], launch)
                kernel = {key: value for key, value in record.items() if key != "Rank"} | {"truth": truth}
                activities[rank].append(
                    Activity(OPERATIONS[operation], "kernel", arrival[rank], end, 20 + at, launch, 102, kernel, record)
                )
    return {rank: trace_of(rank, job, activities[rank], step_ns) for rank in range(job.world_size)}


def trace_of(rank: int, job: Job, activities: list[Activity], step_ns: int) -> Json:
    events: list[Json] = []

    def event(category: str, name: str, tid: int, start: int, end: int, args: Json, pid: int = 1000) -> None:
        events.append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid,
                       "ts": _us(start), "dur": _us(end - start), "args": args})  # fmt: skip

    for step in range(job.steps):
        begin = 1_000_000 + step * step_ns
        event("user_annotation", f"ProfilerStep#{step + 3}", 101, begin, begin + step_ns - 20_000, {})
    for number, activity in enumerate(activities, 1):
        external = 500_000 + number if activity.record is not None else 0
        if activity.record is not None:
            event("cpu_op", "record_param_comms", activity.thread, activity.launch - 5_000, activity.launch + 9_000,
                  activity.record | {"External id": external})  # fmt: skip
        name = "cudaLaunchKernel" if activity.category == "kernel" else "cudaMemcpyAsync"
        event("cuda_runtime", name, activity.thread, activity.launch, activity.launch + 4_000,
              {"correlation": number, "External id": external})  # fmt: skip
        event(activity.category, activity.name, activity.stream, activity.start, activity.end,
              activity.args | {"correlation": number, "External id": external, "device": rank,
                               "stream": activity.stream}, pid=rank)  # fmt: skip
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": rank, "name": "Made-up device"}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": job.world_size},
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": events,
    }


def _us(nanoseconds: int) -> Decimal:
    return Decimal(nanoseconds).scaleb(-3)


def write(traces: dict[int, Json], folder: Path) -> Path:
    """Write traces as rank<r>.json.gz; the numbers stay exact, being below 2^43 µs."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, trace in traces.items():
        (folder / f"rank{rank}.json.gz").write_bytes(packed(trace))
    return folder
