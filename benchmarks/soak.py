"""Short jobs with a fault each, at a random moment: does every one end, and leave whole rows and nothing else?

    python benchmarks/soak.py OUT [--jobs 200] [--workers 8] [--minutes 60] [--seed 0]

Each job is a training run or a sweep of two CPU ranks, started by scalescope itself, by torchrun or by mpirun. Some
seconds after its start, or after its first row, a rank is killed, stopped, crashed or interrupted, its launcher is, or
nothing happens. Then the job has --limit seconds to end. What is looked at afterwards: its rows against what it planned
(none doubled, none torn, none missing where it says that it is done), processes that are left, and files that are left
in its own temporary folder (but for what torchrun and torch's compiler leave there) and in /dev/shm.

Workers run jobs beside each other, each in a mount and process namespace of its own with its own /tmp and /dev/shm
(needs root). Where namespaces are not allowed, jobs share both, and /dev/shm is looked at when all have ended.
OUT/jobs.jsonl gets a line a job, OUT/summary.json and OUT/summary.md what they come to, OUT/wrong/N all that a job left
where something did not hold. Returns 1 then. At the end of --minutes no further job begins.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from jobs import markdown
from soak_job import FAULTS, SHM, Outcome, left_in_shm, mpirun

HERE = Path(__file__).resolve().parent
NAMESPACE = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")


class Summary(msgspec.Struct):
    """What a soak came to."""

    jobs: int
    did_not_hold: int
    workers: int
    isolated: bool
    seed: int
    elapsed_s: float
    launchers: dict[str, int]
    verbs: dict[str, int]
    slowest_end_s: dict[str, float]  # from the fault to the last process's end, by launcher
    wrong: dict[str, list[str]]  # by the job's number
    left_in_shm: list[str]  # after all, where jobs had no /dev/shm of their own


class Soak:
    """Jobs, dealt out to workers, and what became of them."""

    def __init__(self, options: argparse.Namespace, mpi: list[str], places: Path | None) -> None:
        self._options, self._mpi, self._places = options, mpi, places
        self._until = time.monotonic() + 60 * options.minutes
        self._numbers = iter(range(options.first, options.first + options.jobs))
        self._lock = threading.Lock()
        self.outcomes: list[Outcome] = []

    def run(self) -> None:
        with ThreadPoolExecutor(self._options.workers) as pool:
            for done in [pool.submit(self._work, worker) for worker in range(self._options.workers)]:
                done.result()

    def _work(self, worker: int) -> None:
        """Be the other end of a worker, until there is no job left."""
        options = self._options
        argv = [sys.executable, str(HERE / "soak_job.py"), f"--seed={options.seed}", f"--limit={options.limit:g}",
                f"--keep={options.out / 'wrong'}", f"--mpi={msgspec.json.encode(self._mpi).decode()}"]  # fmt: skip
        if self._places is not None:
            place = self._places / str(worker)
            place.mkdir()
            argv = [*NAMESPACE, *argv, f"--isolated={place}"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            for number in self._next():
                process.stdin.write(f"{number}\n")
                process.stdin.flush()
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError(f"worker {worker} ended in job {number}")
                self._note(line)
            process.stdin.close()

    def _next(self) -> Iterator[int]:
        while time.monotonic() < self._until:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                return
            yield number

    def _note(self, line: str) -> None:
        outcome = msgspec.json.decode(line, type=Outcome)
        with self._lock, (self._options.out / "jobs.jsonl").open("a", encoding="utf-8") as file:
            self.outcomes.append(outcome)
            file.write(line)
            print(line, end="", flush=True)


def summary(soak: Soak, options: argparse.Namespace, isolated: bool, elapsed_s: float, left: list[str]) -> Summary:
    """Return what the jobs came to."""
    of = soak.outcomes
    slowest: dict[str, float] = {}
    for one in of:
        slowest[one.launcher] = max(one.gone_s, slowest.get(one.launcher, 0.0))
    return Summary(
        len(of), sum(bool(one.wrong) for one in of), options.workers, isolated, options.seed, round(elapsed_s, 1),
        dict(Counter(one.launcher for one in of)), dict(Counter(one.verb for one in of)), slowest,
        {str(one.number): one.wrong for one in of if one.wrong}, left,
    )  # fmt: skip


def table(outcomes: list[Outcome]) -> str:
    """Return a line a fault: how many, what they ended with, and the slowest end."""
    rows = []
    for fault in FAULTS:
        of = [one for one in outcomes if one.fault == fault]
        if of:
            codes = Counter(str(one.exit_code) for one in of)
            rows.append([fault, str(len(of)), ", ".join(f"{code}: {count}" for code, count in sorted(codes.items())),
                         f"{max(one.gone_s for one in of):.1f}", str(sum(bool(one.wrong) for one in of))])  # fmt: skip
    return markdown(["fault", "jobs", "exit codes", "slowest end (s)", "did not hold"], rows)


def can_isolate() -> bool:
    """Return whether this user may make namespaces, and mount in them."""
    try:
        tried = subprocess.run(
            [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", str(SHM)], capture_output=True, check=False
        )
    except OSError:
        return False
    return tried.returncode == 0


def main() -> int:
    """Run the jobs, and say what they came to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first job's number: the same draw, further on")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--limit", type=float, default=90.0, help="seconds from a fault to the job's end")
    options = parser.parse_args()
    options.out = options.out.resolve()
    (options.out / "wrong").mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would ours
    isolated, mpi, began = can_isolate(), mpirun(), time.monotonic()
    if not isolated:
        print("no namespaces here: jobs share /tmp and /dev/shm", file=sys.stderr)
    if not mpi:
        print("no mpirun here that goes with this Python's mpi4py: jobs of the other launchers alone", file=sys.stderr)
    places, before = Path(tempfile.mkdtemp(prefix="scalescope-soak-places-")), set(SHM.iterdir())
    soak = Soak(options, mpi, places if isolated else None)
    try:
        soak.run()
    finally:
        shutil.rmtree(places, ignore_errors=True)
        left = [] if isolated else left_in_shm(before)
        came_to = summary(soak, options, isolated, time.monotonic() - began, left)
        (options.out / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(came_to)))
        (options.out / "summary.md").write_text(f"{table(soak.outcomes)}\n", encoding="utf-8")
        print(table(soak.outcomes))
        for number, wrong in came_to.wrong.items():
            print(f"{options.out / 'wrong' / number}: {'; '.join(wrong)}")
        if left:
            print(f"left in /dev/shm: {', '.join(left)}")
    return int(bool(came_to.wrong or left))


if __name__ == "__main__":
    sys.exit(main())
