"""A rank killed and one stopped in a collective, in training and in a sweep: how soon the job ends, and what it says.

    python benchmarks/faults_in_collectives.py [--ranks 4] [--device cuda] [--only "compiled training, SIGSTOP"]

One job after another, about twenty seconds each, and more where one has to compile first. Compiled training is tried by
itself, on GPUs: its kernels are launched with Python's lock held, and a launch waits where the device's queue is full.
Exits 1 where one did not end within the limit, with another exit code than 3, without naming the rank, or without the
rows that it had written.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ending import end_with_all_below

LIMIT_S = 20.0  # from the fault to the job's end
START_S = 240.0  # a machine that has compiled nothing yet
TRAIN = ("train", "steps=1000000", "warmup_steps=2", "profiler=none", "data=synthetic", "launch.step_limit_s=3")
SWEEP = (
    "sweep",
    "sizes=64KiB..1GiB x2",
    "budget_s=2",
    "min_iterations=100000",
    "max_iterations=1000000",
    "hang_limit_s=3",
)
MODELS = {"cuda": ("model=gpt_small", "model.batch_size=8"), "cpu": ("model=gpt_tiny", "precision=fp32")}


@dataclass(frozen=True)
class Case:
    """One fault in one job."""

    name: str
    argv: tuple[str, ...]
    rows: str  # the file that grows while it runs
    number: signal.Signals
    says: str


def cases(device: str) -> list[Case]:
    """Return what is tried."""
    train = (*TRAIN, *MODELS[device])
    jobs = [("training", (*train, "compile=false"), "steps.jsonl"), ("sweep", SWEEP, "sweep.jsonl")]
    if device == "cuda":
        jobs.append(("compiled training", (*train, "compile=true"), "steps.jsonl"))
    faults = ((signal.SIGKILL, "has died"), (signal.SIGSTOP, "is stopped"))
    return [Case(f"{name}, {number.name}", argv, rows, number, says)
            for name, argv, rows in jobs for number, says in faults]  # fmt: skip


def rank_process(launcher: int, rank: int) -> int:
    """Return the process id of one rank that a launcher has started."""
    for children in Path(f"/proc/{launcher}/task").glob("*/children"):
        for child in children.read_text().split():
            if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                return int(child)
    raise SystemExit(f"no process of rank {rank}")


def rows_in(path: Path) -> int:
    """Return the whole lines of a file that may not be there yet."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def tried(case: Case, ranks: int, device: str, runs: Path) -> bool:
    """Run one case, print how it ended, and return whether it ended as it should."""
    name = case.name.replace(", ", "-").replace(" ", "-")
    argv = [*case.argv, f"runs={runs}", f"name={name}", f"launch.ranks={ranks}", f"launch.device={device}"]
    job = subprocess.Popen([sys.executable, "-m", "scalescope", *argv, "logger=none"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    began, folder = time.monotonic(), runs / name
    while rows_in(folder / case.rows) < 2:
        if job.poll() is not None or time.monotonic() > began + START_S:
            end_with_all_below(job)  # a rank that lives holds the pipe that is read here
            print(f"FAIL {case.name}: never began\n{job.communicate()[1][-2000:]}", flush=True)
            return False
        time.sleep(0.05)
    time.sleep(0.5)
    victim = rank_process(job.pid, ranks - 1)
    before = rows_in(folder / case.rows)
    started = time.monotonic()
    os.kill(victim, case.number)
    try:
        said = job.communicate(timeout=3 * LIMIT_S)[1]
    except subprocess.TimeoutExpired:
        end_with_all_below(job)
        said = job.communicate()[1]
    elapsed_s = time.monotonic() - started
    message = next((line for line in said.splitlines() if case.says in line), said[-2000:])
    good = (
        job.returncode == 3
        and elapsed_s < LIMIT_S
        and f"rank {ranks - 1} (process {victim}" in message
        and rows_in(folder / case.rows) >= before
        and not Path(f"/proc/{victim}").exists()
    )
    verdict = "ok  " if good else "FAIL"
    print(f"{verdict} {case.name}: ended after {elapsed_s:.1f} s with exit code {job.returncode}, "
          f"{rows_in(folder / case.rows)} rows kept (the fault came after {started - began:.1f} s)")  # fmt: skip
    print(f"     {message}", flush=True)
    return good


def main() -> int:
    """Try every case, and show what the flight record of the first one says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--runs", type=Path, help="where the run folders go (a temporary folder)")
    options = parser.parse_args()
    runs = options.runs or Path(tempfile.mkdtemp(prefix="scalescope-faults-"))
    results = [
        tried(case, options.ranks, options.device, runs) for case in cases(options.device) if options.only in case.name
    ]
    stopped = runs / "training-SIGSTOP"
    analysed = subprocess.run([sys.executable, "-m", "scalescope", "analyze", str(stopped)],
                              capture_output=True, text=True, check=False)  # fmt: skip
    print("analyze, of the training that was stopped:")
    print(
        *(f"     {line}" for line in analysed.stdout.splitlines() if line.startswith(("Flight", "The run"))), sep="\n"
    )
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
