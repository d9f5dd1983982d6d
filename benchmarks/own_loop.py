"""A loop of one's own under `profile_steps`, with one known cause a run: what that costs untraced, and what is said.

    torchrun --standalone --nproc-per-node 2 benchmarks/own_loop.py make OUT [--job unet] [--size large] [--only own]
    python benchmarks/own_loop.py check OUT

A recommendation model (embedding tables, an interaction, products) under DDP, the U-Net of own_unet.py, or the tagger
of own_tagger.py, whose causes are habits of its author and need one rank only; none of the jobs of `scalescope train`.
`small` is bound by its hosts on an H100, `large` by its devices. `make` first runs
stretches of each cause with it and without in turns, untraced; OUT/truth_JOB_SIZE.json has the difference of
neighbours, in ms a step. Then each cause's steps run once more under `profile_steps`, into OUT/runs/JOB_SIZE_CAUSE.
`check` analyses these, and prints the truth beside the first sentence.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

CAUSES = {
    "recommender": (
        "none", "sleep_one", "sleep_all", "data_all", "data_one", "bigger", "own", "item", "metric", "checkpoint",
        "validation", "accumulation", "norms", "pageable", "empty_cache",
    ),
    "unet": (
        "none", "rows", "own", "gather", "double", "checkpoint", "slow_workers", "collector", "sleep_one",
        "statistics", "recompute", "items", "metric", "average", "small_buckets", "preview",
    ),
    "tagger": (
        "none", "single", "update_by_hand", "average", "clip_by_hand", "norm_by_hand", "double", "full_precision",
        "unused", "decode", "confusion",
    ),
}  # fmt: skip
#: Untraced stretches a cause, of so many steps; of what comes every so often, of more.
_STRETCHES, _STEPS, _STEPS_OFTEN = 10, 10, 20
_PROFILED, _PROFILED_OFTEN = 50, 105
_EVERY = {"checkpoint": 5, "validation": 10}
#: What does not come in each step, of any job.
_OFTEN = {*_EVERY, "collector", "slow_workers"}
#: Causes of which a stretch begins late, as batches made before it are used up first; and after so many steps.
_MADE_AHEAD, _AHEAD = ("slow_workers",), 8
_MICRO_BATCHES = 4


def make(out: Path, name: str, size: str, causes: list[str], limit_s: float) -> None:
    """Measure and record, in each rank."""
    import torch
    import torch.distributed as dist

    begun = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(out)
    job = JOBS[name](size, causes)
    truth: dict[str, dict[str, Any]] = {}
    for cause in causes:
        if time.monotonic() - begun > limit_s / 2:
            break
        truth[cause] = _measured(job, cause)
        if dist.get_rank() == 0:
            print(f"{name} {size} {cause}: {truth[cause]['cost_ms']:.2f} ms a step", flush=True)
    if dist.get_rank() == 0:
        Path(f"truth_{name}_{size}.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    for cause in truth:
        _recorded(job, f"{name}_{size}", cause)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    dist.destroy_process_group()


def _measured(job: Any, cause: str) -> dict[str, Any]:
    job.begin(cause)
    for step in range(6):
        job.train(step, False)
    steps = _STEPS_OFTEN if cause in _OFTEN else _STEPS
    taken: dict[bool, list[float]] = {False: [], True: []}
    for stretch in range(_STRETCHES):
        disturbed = stretch % 4 in (1, 2)
        for _ in range(_AHEAD if cause in _MADE_AHEAD else 1):
            job.train(1, disturbed and cause != "none")
        _wait()
        since = time.perf_counter()
        for step in range(steps):
            job.train(step, disturbed and cause != "none")
        _wait()
        taken[disturbed].append((time.perf_counter() - since) * 1e3 / steps)
    differences = [with_it - without for with_it, without in zip(taken[True], taken[False], strict=True)]
    return {
        "without_ms": statistics.fmean(taken[False]),
        "cost_ms": statistics.fmean(differences),
        "low_ms": min(differences),
        "high_ms": max(differences),
    }


def _wait() -> None:
    """Let all that the ranks have launched be over."""
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    dist.barrier()


def _recorded(job: Any, label: str, cause: str) -> None:
    from scalescope import profile_steps

    job.begin(cause)
    batches = _MICRO_BATCHES if cause == "accumulation" else 1
    with profile_steps(label, name=f"{label}_{cause}", samples=job.batch * batches, analyze=False) as profile:
        for step in range(_PROFILED_OFTEN if cause in _OFTEN else _PROFILED):
            profile.step(job.train(step, cause != "none"))


def _device() -> Any:
    """Join the other ranks; return this one's device. Torch is imported here and below: `check` needs none of it."""
    import torch
    import torch.distributed as dist

    local, cuda = int(os.environ["LOCAL_RANK"]), torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(local)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(0)
    return torch.device("cuda", local) if cuda else torch.device("cpu")


def _unet(size: str, causes: list[str]) -> Any:
    from own_unet import Unet

    return Unet(size, _device(), causes)


def _tagger(size: str, causes: list[str]) -> Any:
    from own_tagger import TaggerJob

    return TaggerJob(size, _device(), causes)


def _recommender(size: str, _: list[str]) -> Any:
    device = _device()
    local, cuda = device.index, device.type == "cuda"
    import torch
    import torch.distributed as dist
    from torch import Tensor, nn
    from torch.nn.functional import binary_cross_entropy_with_logits
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, Dataset

    batch, rows, width, dim = {
        ("small", True): (2048, 40_000, 1024, 64), ("large", True): (16_384, 40_000, 4096, 64),
        ("small", False): (256, 4000, 256, 32), ("large", False): (512, 12_000, 512, 32),
    }[size, cuda]  # fmt: skip
    stall_s, load_s = (0.005, 0.006) if cuda else (0.03, 0.03)
    tables = 8

    class Clicks(Dataset[int]):
        def __len__(self) -> int:
            return 100_000

        def __getitem__(self, index: int) -> int:
            return index

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(rows, dim, mode="sum") for _ in range(tables))
            self.bottom = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, dim))
            inner = [layer for _ in range(2) for layer in (nn.Linear(width, width), nn.ReLU())]
            first = nn.Linear((tables + 1) ** 2 + dim, width)
            self.top = nn.Sequential(first, nn.ReLU(), *inner, nn.Linear(width, 1))

        def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
            bottom = self.bottom(dense)
            stacked = torch.stack([bottom, *(table(ids[:, at]) for at, table in enumerate(self.tables))], 1)
            dots = torch.bmm(stacked, stacked.transpose(1, 2)).flatten(1)
            out: Tensor = self.top(torch.cat([bottom, dots], 1)).squeeze(1)
            return out

    class Job:
        def __init__(self) -> None:
            self.batch, self.rank = batch, dist.get_rank()
            self.plain = Recommender().to(device)
            self.model = DistributedDataParallel(self.plain, device_ids=[local] if cuda else None)
            self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=0.01)
            self.extra = torch.randn(2048, 2048, device=device)
            ids, dense = self._made(0)
            self.resident = ids.to(device), dense.to(device), (torch.rand(batch, device=device) > 0.5).float()
            self.cause, self.slow_s = "none", 0.0
            self.batches: Iterator[tuple[Tensor, Tensor]] = iter(())

        def begin(self, cause: str) -> None:
            self.cause, self.slow_s = cause, 0.0
            self.batches = iter(DataLoader(Clicks(), batch_size=1, collate_fn=self._collate, pin_memory=cuda))

        def train(self, step: int, disturbed: bool) -> Tensor:
            self.optimizer.zero_grad()
            count = _MICRO_BATCHES if self.cause == "accumulation" else 1
            for at in range(count):
                exchanged = at == count - 1 or (disturbed and self.cause == "accumulation")
                with nullcontext() if exchanged else self.model.no_sync():
                    ids, dense, labels = self._fetch(disturbed)
                    if disturbed and self.cause == "bigger" and self.rank == 0:
                        ids, dense, labels = torch.cat([ids] * 2), torch.cat([dense] * 2), torch.cat([labels] * 2)
                    out = self.model(ids, dense)
                    loss = binary_cross_entropy_with_logits(out, labels) / count
                    loss.backward()
            if disturbed:
                self._before_the_optimizer()
            self.optimizer.step()
            if disturbed:
                self._after_the_optimizer(step, out.detach())
            return loss.detach()

        def _before_the_optimizer(self) -> None:
            if self.cause == "sleep_all" or (self.cause == "sleep_one" and self.rank == 1):
                time.sleep(stall_s)
            if self.cause == "norms":
                for parameter in self.model.parameters():
                    if parameter.grad is not None:
                        parameter.grad.norm().item()
            if self.cause == "own" and self.rank == 1:
                for _ in range(20 if cuda else 2):
                    torch.mm(self.extra, self.extra)

        def _after_the_optimizer(self, step: int, out: Tensor) -> None:
            if self.cause == "item":
                for value in out[:64]:
                    value.item()
            if self.cause == "metric":
                scores = out.float().cpu().tolist()
                sorted(range(len(scores)), key=scores.__getitem__)
            if self.cause == "checkpoint" and self.rank == 0 and step % _EVERY["checkpoint"] == 0:
                torch.save(self.model.state_dict(), "weights.pt")
            if self.cause == "validation" and step % _EVERY["validation"] == 9:
                with torch.no_grad():
                    for _ in range(20):
                        self.plain(*self.resident[:2])
            if self.cause == "pageable":
                torch.empty(batch * 512).to(device)
                self.extra.cpu()
            if self.cause == "empty_cache" and cuda:
                torch.cuda.empty_cache()

        def _fetch(self, disturbed: bool) -> tuple[Tensor, Tensor, Tensor]:
            if not self.cause.startswith("data"):
                return self.resident
            self.slow_s = load_s if disturbed and (self.cause == "data_all" or self.rank == 1) else 0.0
            ids, dense = next(self.batches)
            return ids.to(device, non_blocking=True), dense.to(device, non_blocking=True), self.resident[2]

        def _collate(self, items: list[int]) -> tuple[Tensor, Tensor]:
            if self.slow_s:
                time.sleep(self.slow_s)
            return self._made(items[0])

        def _made(self, seed: int) -> tuple[Tensor, Tensor]:
            chance = torch.Generator().manual_seed(seed)
            ids = torch.randint(0, rows, (batch, tables, 8), generator=chance, dtype=torch.int32)
            return ids, torch.randn(batch, 16, generator=chance)

    return Job()


JOBS: dict[str, Callable[[str, list[str]], Any]] = {"recommender": _recommender, "unet": _unet, "tagger": _tagger}


def check(out: Path, say: Callable[[str], None] = print) -> int:
    """Print the truth of each run beside the first sentence that is said of it."""
    for file in sorted(out.glob("truth_*.json")):
        label = file.stem.removeprefix("truth_")
        for cause, truth in json.loads(file.read_text(encoding="utf-8")).items():
            folder = out / "runs" / f"{label}_{cause}"
            done = subprocess.run([sys.executable, "-m", "scalescope", "analyze", str(folder)],
                                  capture_output=True, text=True, encoding="utf-8", check=False)  # fmt: skip
            told = next(filter(None, done.stdout.splitlines()), done.stderr.strip())
            cost = f"{truth['cost_ms']:.2f} ({truth['low_ms']:.2f} to {truth['high_ms']:.2f})"
            say(f"{label}\t{cause}\t{truth['without_ms']:.2f}\t{cost}\t{told}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("make", "check"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--job", choices=tuple(CAUSES), default="recommender")
    parser.add_argument("--size", choices=("small", "large"), default="small")
    parser.add_argument(
        "--only",
        help=f"make: of the job's: {'; '.join(f'{job} ' + ','.join(causes) for job, causes in CAUSES.items())}",
    )
    parser.add_argument("--minutes", type=float, default=4, help="make: measure no further cause after half of them")
    given = parser.parse_args()
    if given.verb == "check":
        return check(given.out)
    known = CAUSES[given.job]
    causes = given.only.split(",") if given.only else list(known)
    if unknown := set(causes) - set(known):
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    make(given.out, given.job, given.size, causes, 60 * given.minutes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
