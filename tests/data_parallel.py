"""A data-parallel job as it would be on devices: buckets reduced behind the backward pass, disturbed in a known way.

Every figure a test expects of it follows from the injected disturbance, not from scaling/.
"""

from dataclasses import dataclass, field
from pathlib import Path

from tests.synthetic import Activity, Job, trace_of, write

MS = 1_000_000
BUCKETS = 5
FORWARD, BUCKET, OPTIMIZER, TRANSFER, BROADCAST, FIGURE = 10 * MS, 3 * MS, MS, MS // 2, MS // 5, MS // 5
TABLE = 2 * MS
AHEAD = MS // 4  # the host's step, where it runs ahead
UNDISTURBED = FORWARD + BUCKETS * BUCKET + OPTIMIZER + TRANSFER


KERNELS = {"broadcast": "Broadcast", "allreduce": "AllReduce_Sum_f32", "all_gather": "AllGather"}


@dataclass
class Disturbance:
    """What is injected, by rank, in ns a step."""

    spin: dict[int, int] = field(default_factory=dict)  # a kernel of its own at the step's begin
    slower: dict[int, float] = field(default_factory=dict)  # every kernel takes so many times longer
    loading: dict[int, int] = field(default_factory=dict)  # the host loads data before it launches anything
    late_root: int = 0  # the root of a broadcast at the step's begin comes late by this
    beside: dict[int, int] = field(default_factory=dict)  # a kernel of its own beside the forward pass
    in_turns: int = 0  # a kernel of its own, on another rank in each step
    longer_in_turns: float = 1.0  # every kernel takes so many times longer, on another rank in each step
    uneven: tuple[int, ...] = ()  # a kernel on every rank, which takes the next of these each time
    figures: int = 0  # so many all-reduces of one number each, one by one, before the optimizer
    numbers: int = 1  # …, or of so many
    units: int = 0  # so many all-gathers of 16 KiB each before the forward pass, one by one
    away: dict[int, int] = field(default_factory=dict)  # the device stands still for so long before its backward pass
    one_piece: int = 0  # all gradients, so many, travel in one piece once the backward pass is over, in `TRANSFER`
    table: int = 0  # the last bucket holds so many elements, which take `TABLE`, and the others more of them
    taken: dict[int, int] = field(default_factory=dict)  # another process has it for so long, in the optimizer's kernel


def run(
    folder: Path, disturbance: Disturbance, world_size: int = 4, steps: int = 6, broadcast: bool = False,
    ahead: bool = False
) -> Path:  # fmt: skip
    """Write the traces of such a job and return their folder.

    `ahead`: the hosts run ahead of the devices, as they do where nothing limits them, and load no data; else each
    launches a step when the device has done the one before.
    """
    free = dict.fromkeys(range(world_size), 2 * MS)  # when a rank's device has done the step before
    activities: dict[int, list[Activity]] = {rank: [] for rank in free}
    annotations: dict[int, list[tuple[str, int, int]]] = {rank: [] for rank in free}
    handed_over = dict.fromkeys(free, 0)  # when a host has launched the step before
    for step in range(steps):
        clock, launched = {}, {}
        for rank, start in free.items():
            if ahead:
                early = max(MS // 2 + step * AHEAD, handed_over[rank])
                annotations[rank].append((f"ProfilerStep#{step + 3}", early, 0))
                clock[rank], launched[rank] = start, early + 10_000
                continue
            annotations[rank].append((f"ProfilerStep#{step + 3}", start - MS // 2, 0))
            loaded = start + disturbance.loading.get(rank, 0)
            if loaded > start:
                annotations[rank].append(("scalescope:data", start - MS // 4, loaded))
            clock[rank] = loaded + (10_000 if loaded > start else 0)
            launched[rank] = loaded if loaded > start else start - MS // 8

        def compute(
            rank: int, name: str, length: int, launched: dict[int, int] = launched, clock: dict[int, int] = clock,
            step: int = step
        ) -> None:  # fmt: skip
            turn = disturbance.longer_in_turns if step % world_size == rank else 1.0
            length = round(length * disturbance.slower.get(rank, 1.0) * turn)
            one = Activity(name, "kernel", clock[rank], clock[rank] + length, 7, launched[rank], 101, {})
            activities[rank].append(one)
            launched[rank] += 5_000 if ahead else 0
            clock[rank] += length

        def reduce(
            operation: str, arrival: dict[int, int], length: int, elements: int, launched: dict[int, int] = launched
        ) -> dict[int, int]:
            root_only = operation == "broadcast"
            ready = arrival[0] if root_only else max(arrival.values())
            ends = {rank: max(ready, at) + length for rank, at in arrival.items()}
            for rank, at in arrival.items():
                reported = {"Collective name": operation, "In msg nelems": elements, "Out msg nelems": elements,
                        "dtype": "Float", "Group size": world_size, "Process Group Name": "0",
                        "Process Group Ranks": str(list(range(world_size)))}  # fmt: skip
                name = f"ncclDevKernel_{KERNELS[operation]}_RING_LL(x)"
                record = reported | {"Rank": 0 if root_only else rank}
                activities[rank].append(
                    Activity(name, "kernel", at, ends[rank], 20, launched[rank], 102, reported, record)
                )
                launched[rank] += 20_000 if ahead else 0
            return ends

        for rank in free:
            compute(rank, "setup_kernel", 1_000)
            if rank in disturbance.spin:
                compute(rank, "spin_kernel", disturbance.spin[rank])
            if disturbance.uneven:
                compute(rank, "spin_kernel", disturbance.uneven[(step * world_size + rank) % len(disturbance.uneven)])
            if disturbance.in_turns and step % world_size == rank:
                compute(rank, "spin_kernel", disturbance.in_turns)
        if broadcast:
            if disturbance.late_root:
                compute(0, "spin_kernel", disturbance.late_root)
            clock = reduce("broadcast", dict(clock), BROADCAST, 1 << 18)
        for _ in range(disturbance.units):
            clock = reduce("all_gather", clock, FIGURE, 1 << 12)
        for rank in free:
            if rank in disturbance.beside:
                own = (clock[rank], clock[rank] + disturbance.beside[rank])
                activities[rank].append(Activity("spin_kernel", "kernel", *own, 9, launched[rank], 101, {}))
            compute(rank, "forward_kernel", FORWARD, clock=clock)
        done = dict.fromkeys(free, 0)
        for bucket in range(BUCKETS):
            for rank in free:
                clock[rank] += disturbance.away.get(rank, 0) if bucket == 0 else 0
                compute(rank, f"backward_kernel_{bucket}", BUCKET, clock=clock)
            elements = disturbance.one_piece or 1 << 20 | bucket
            elements += 5 << 20 if disturbance.table else 0
            length = TRANSFER
            if disturbance.table and bucket == BUCKETS - 1:
                elements, length = disturbance.table, TABLE
            if not disturbance.one_piece or bucket == BUCKETS - 1:
                done = reduce("allreduce", {r: max(done[r], clock[r]) for r in free}, length, elements)
        for rank in free:
            clock[rank] = max(clock[rank], done[rank])
        for _ in range(disturbance.figures):
            clock = reduce("allreduce", clock, FIGURE, disturbance.numbers)
        for rank in free:
            compute(rank, "optimizer_kernel", OPTIMIZER + disturbance.taken.get(rank, 0), clock=clock)
            free[rank] = clock[rank]
            handed_over[rank] = launched[rank] + 10_000
    job = Job(world_size=world_size, groups=[], steps=0, collectives=0, kernels=0, seed=0)
    traces = {}
    for rank in free:
        trace = trace_of(rank, job, activities[rank], 0)
        begins = [start for name, start, _ in annotations[rank] if name.startswith("ProfilerStep")] + [free[rank]]
        for name, start, end in annotations[rank]:
            if name.startswith("ProfilerStep"):
                end = begins[begins.index(start) + 1] - 1_000
            trace["traceEvents"].append({"ph": "X", "cat": "user_annotation", "name": name, "pid": 1000, "tid": 101,
                                         "ts": start / 1e3, "dur": (end - start) / 1e3, "args": {}})  # fmt: skip
        traces[rank] = trace
    return write(traces, folder)
