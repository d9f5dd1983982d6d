"""Traces of every rooted collective on gloo, and of those that take lists, with a rank that comes late to each.

torchrun --standalone --nproc-per-node 3 tests/gloo_root_job.py FOLDER
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

ROOT = 1
LATE_S = 0.05
ELEMENTS = 1000


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    slept_ms: dict[str, float] = {}

    def late(who: int, what: str) -> None:
        dist.barrier()
        if rank == who:
            began = time.perf_counter()
            time.sleep(LATE_S)
            slept_ms[what] = 1e3 * (time.perf_counter() - began)

    own = torch.full((ELEMENTS,), float(rank))
    parts = [torch.empty_like(own) for _ in range(world)]
    profiler = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
    with profiler, record_function("ProfilerStep#0"):
        late(ROOT, "broadcast")
        dist.broadcast(own, src=ROOT)
        late(ROOT, "scatter")
        dist.scatter(own, parts if rank == ROOT else None, src=ROOT)
        late(2, "reduce")
        dist.reduce(own, dst=ROOT)
        late(2, "gather")
        dist.gather(own, parts if rank == ROOT else None, dst=ROOT)
        late(ROOT, "all_gather")
        dist.all_gather(parts, own)
        late(0, "send_recv")
        if rank == 0:
            dist.send(own, 2)
        elif rank == 2:
            dist.recv(own, 0)
        dist.barrier()
        time.sleep(0.005)  # what runs on beyond the step is no part of it
    folder.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(folder / f"rank{rank}.json"))
    (folder / f"slept{rank}.txt").write_text(json.dumps(slept_ms))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
