"""Ways of recording a window, side by side: what each costs the steps in it, and those after it.

    python benchmarks/recording_ways.py OUT [--ranks N] [--rounds 6] [--markdown]

One call on GPUs (two are enough; without any, a smoke test over gloo). Every round records each way once, in an order
that turns from round to round, with untraced steps right before and after:

full         operators and what runs on the device: what jobs record today
shapes       with the shapes of operators' inputs
light        what runs on the device and the calls that launch it alone (ProfilerActivity.CUDA)
short        as many steps as full, but one at a time with untraced ones between them

and all of it once more in a process whose tracing library lets go of the device after each window (TEARDOWN_CUPTI=1).
For each batch (launch-bound and GPU-bound): by how much the traced steps are longer than the untraced ones right before
them, by how much the steps after them are, and by how much untraced stretches differ among themselves. A light window
can be joined to a full one only where both hold the same kernels in the same order, stream by stream: the share of them
that do is told, too. OUT/ways.jsonl keeps every step.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobs import figure, markdown

if TYPE_CHECKING:
    from causes.job import Job
    from causes.measuring import Team

HERE = Path(__file__).resolve().parent
PROCESSES = ("attached", "teardown")
ROWS = "ways.jsonl"
STEPS = 5  # of a window, and of the stretches beside it


@dataclass(frozen=True)
class Measured:
    """One way in one round on one rank; ms a step."""

    process: str  # attached | teardown
    batch: str
    way: str
    round: int
    rank: int
    before_ms: list[float]
    traced_ms: list[float]
    after_ms: list[float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, help="default: the GPUs, two of them without any")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--markdown", action="store_true", help="print the table of what OUT holds already")
    parser.add_argument("--worker", choices=PROCESSES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.out, options.worker, options.rounds)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.markdown:
        (options.out / ROWS).unlink(missing_ok=True)
        for process in PROCESSES:
            if code := start(options.out, process, options.rounds, options.ranks):
                return code
    rows = [Measured(**json.loads(line)) for line in (options.out / ROWS).read_text().splitlines()]
    header = ("process", "batch", "way", "untraced, ms", "traced / before", "after / before", "untraced differ by")
    print(markdown(header, list(table(rows))))
    for file in sorted(options.out.glob("join.*.json")):
        print(f"{file.stem}: {json.loads(file.read_text())}")
    return 0


def start(out: Path, process: str, rounds: int, ranks: int | None) -> int:
    """Run the ranks of one process' way of letting go; return torchrun's exit code."""
    environment = dict(os.environ) | ({"TEARDOWN_CUPTI": "1"} if process == "teardown" else {})
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    words = [str(Path(__file__).resolve()), str(out.resolve()), "--worker", process, "--rounds", str(rounds)]
    return subprocess.run([*torchrun, str(ranks or _gpus() or 2), *words], env=environment, check=False).returncode


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def table(rows: Sequence[Measured]) -> Iterator[list[str]]:
    """Yield a line a process, batch and way: medians over rounds and ranks."""
    for process, batch, way in dict.fromkeys((one.process, one.batch, one.way) for one in rows):
        own = [one for one in rows if (one.process, one.batch, one.way) == (process, batch, way)]
        before = [statistics.median(one.before_ms) for one in own]
        traced = [statistics.median(one.traced_ms) / ms - 1 for one, ms in zip(own, before, strict=True)]
        after = [statistics.median(one.after_ms) / ms - 1 for one, ms in zip(own, before, strict=True)]
        placebo = statistics.pstdev(before) / statistics.fmean(before)
        yield [process, batch, way, figure(statistics.median(before), 3), *(_share(one) for one in (traced, after)),
               f"± {1.96 * placebo:.1%}"]  # fmt: skip


def _share(shares: Sequence[float]) -> str:
    return f"{statistics.median(shares):+.1%} ({min(shares):+.1%} to {max(shares):+.1%})"


def work(out: Path, process: str, rounds: int) -> None:
    """Measure on this rank, of torchrun's, and let rank 0 write."""
    import torch
    import torch.distributed as dist
    from causes.cases import GPU_BOUND, LAUNCH_BOUND, JobKind
    from causes.injections import Tools
    from causes.job import Hooks, Job
    from causes.measuring import Team, choose_samples, stretch
    from causes.rank import PATIENCE

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=PATIENCE)
    team, job = Team(PATIENCE), Job(JobKind(), device)
    samples = choose_samples(job, team, Tools(job, out))
    for batch in (LAUNCH_BOUND, GPU_BOUND):
        job.prepare(samples[batch])
        stretch(job, team, Hooks(), steps=3)
        for number in range(rounds):
            order = WAYS[number % len(WAYS) :] + WAYS[: number % len(WAYS)]
            for way in order:
                before = stretch(job, team, Hooks(), steps=2 * STEPS)
                traced = record_way(job, team, way, out / "traces" if number == 0 and process == "attached" else None)
                after = stretch(job, team, Hooks(), steps=STEPS, lead=1)
                own = Measured(process, batch, way, number, team.rank, before, traced, after)
                _write(out, team.all(asdict(own)), team.rank)
        if process == "attached" and on_gpu and team.rank == 0:
            shares = joined(*(out / "traces" / f"{way}.rank0.json" for way in ("full", "light")))
            (out / f"join.{batch}.json").write_text(json.dumps(shares))
        team.barrier()
    dist.destroy_process_group()


WAYS = ("full", "shapes", "light", "short")


def record_way(job: "Job", team: "Team", way: str, folder: Path | None) -> list[float]:
    """Record STEPS steps in one way and return how long each took, ms. Of `folder`, the trace is kept there."""
    from causes.job import Hooks
    from causes.measuring import Marks
    from torch.profiler import ProfilerActivity, profile, schedule

    host = [ProfilerActivity.CPU] if way != "light" or not job.on_gpu else []
    activities = [*host, *([ProfilerActivity.CUDA] if job.on_gpu else [])]
    plan = {"wait": 3, "warmup": 1, "active": 1, "repeat": STEPS} if way == "short" else {
        "wait": 1, "warmup": 2, "active": STEPS, "repeat": 1}  # fmt: skip

    def export(finished: profile) -> None:
        if folder is not None and way != "short":
            folder.mkdir(parents=True, exist_ok=True)
            finished.export_chrome_trace(str(folder / f"{way}.rank{job.rank}.json"))

    length = plan["wait"] + plan["warmup"] + plan["active"]
    traced: list[float] = []
    with profile(activities=activities, schedule=schedule(**plan), on_trace_ready=export,
                 record_shapes=way == "shapes") as profiler:  # fmt: skip
        job.synchronize()
        team.barrier()
        for _ in range(plan["repeat"]):
            marks = Marks(job)
            for number in range(length):
                if number >= length - plan["active"]:
                    marks.mark()
                job.step(Hooks())
                if number == length - 1:
                    marks.mark()
                profiler.step()
            traced += marks.steps_ms()
    return traced


def joined(full: Path, light: Path) -> dict[str, float]:
    """Return by stream which share of a light window's kernels a full one has in the same order."""
    streams = [_kernels(path) for path in (full, light)]
    found = {}
    for stream in sorted(streams[0].keys() & streams[1].keys()):
        one, other = streams[0][stream], streams[1][stream]
        same = sum(left == right for left, right in zip(one, other, strict=False))
        found[str(stream)] = round(same / max(len(one), len(other)), 4)
    return found


def _kernels(path: Path) -> dict[int, list[str]]:
    events = json.loads(path.read_text())["traceEvents"]
    kernels = sorted((event for event in events if event.get("cat") == "kernel"), key=lambda event: float(event["ts"]))
    found: dict[int, list[str]] = {}
    for event in kernels:
        found.setdefault(int(event["args"]["stream"]), []).append(str(event["name"]))
    return found


def _write(out: Path, everyone: Sequence[object], rank: int) -> None:
    if rank == 0:
        with (out / ROWS).open("a") as file:
            file.writelines(json.dumps(one) + "\n" for one in everyone)


if __name__ == "__main__":
    sys.exit(main())
