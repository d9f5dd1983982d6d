"""Makes the CPU traces in tests/data: a small job on gloo, profiled as our own jobs are.

torchrun --standalone --nproc-per-node 2 tests/cpu_trace_job.py ddp tests/data/cpu_ddp_n2
torchrun --standalone --nproc-per-node 2 tests/cpu_trace_job.py fsdp2 tests/data/cpu_fsdp2_n2
torchrun --standalone --nproc-per-node 2 tests/cpu_trace_job.py sparse tests/data/cpu_sparse_n2
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile, record_function, schedule

#: Rank 1 sleeps this long in every step before it computes: a known cause of waiting.
LATE_S = 0.01
#: Of a table whose gradients are sparse, of which a batch reads 256 rows at most: as dense ones they would be 122 MiB.
SPARSE_ROWS = 250_000


def main(strategy: str, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    blocks = [nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)) for _ in range(4)]
    rows = SPARSE_ROWS if strategy == "sparse" else 256
    table = nn.Embedding(rows, 128, sparse=strategy == "sparse")
    model: nn.Module = nn.Sequential(table, *blocks, nn.Linear(128, 256))
    if strategy == "ddp":
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    elif strategy == "sparse":  # torch's own buckets
        model = nn.parallel.DistributedDataParallel(model)
    else:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters()) if strategy == "sparse" else torch.optim.AdamW(model.parameters())
    batches = iter(torch.utils.data.DataLoader(torch.randint(0, 256, (64, 64)), batch_size=8))  # type: ignore[arg-type]

    def write(profiler: profile) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(folder / f"rank{rank}.3.pt.trace.json.gz"))

    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=2, active=3, repeat=1),
        on_trace_ready=write,
        record_shapes=True,
    ) as profiler:
        for _ in range(7):
            with record_function("scalescope:data"):
                batch = next(batches)
                time.sleep(0.002)
            if rank == 1:
                time.sleep(LATE_S)
            loss = nn.functional.cross_entropy(model(batch).view(-1, 256), batch.view(-1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
