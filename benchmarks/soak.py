"""Short jobs with a fault each, at a random moment: does every one end, and leave whole rows and nothing else?

    python benchmarks/soak.py --jobs 200 [--seed 0] [--minutes 60] [--out FILE.json]

Each job is a training run or a sweep of two CPU ranks, started by scalescope itself, by torchrun or by mpirun. Some
seconds after its start, or after its first row, a rank is killed, stopped, crashed or interrupted, its launcher is, or
nothing happens. Then the job has --limit seconds to end. What is looked at afterwards: its rows against what it planned
(none doubled, none torn, none missing where it says that it is done), processes that are left, and files that are left
in its own temporary folder (but for what torchrun and torch's compiler leave there) and in /dev/shm. Prints a table a
fault, and returns 1 where something did not hold.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
from jobs import markdown

from scalescope.collectives.config import SweepConfig, register
from scalescope.collectives.plan import PlannedPoint, plan
from scalescope.launch.compose import compose_job, typed
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
MARK = "SCALESCOPE_SOAK"
_OF_TORCH = ("torchelastic_", "torchinductor_")  # logs of torchrun's, the compiler's empty folder
SHM = Path("/dev/shm")
COMMON = ("name=one", "launch.device=cpu", "launch.threads_per_rank=1", "launch.init_limit_s=60", "logger=none")
STEPS = 60
TRAIN = ("train", "model=gpt_tiny", "model.layers=1", "model.width=32", "model.heads=2", "model.context=32",
         "data=python_stdlib", "precision=fp32", "profiler=none", "warmup_steps=2", f"steps={STEPS}",
         "checkpoint_every=20", "launch.step_limit_s=4")  # fmt: skip
SWEEP_AXES = ("operations=[all_reduce,all_gather]", "sizes=1KiB..1MiB x4", "budget_s=0.3", "hang_limit_s=4")
SWEEP = ("sweep", *SWEEP_AXES)

#: A fault → the signal, and whether a rank or the launcher gets it.
FAULTS: dict[str, tuple[signal.Signals, str] | None] = {
    "none": None,
    "rank killed": (signal.SIGKILL, "rank"),
    "rank stopped": (signal.SIGSTOP, "rank"),
    "rank crashes": (signal.SIGSEGV, "rank"),
    "rank aborts": (signal.SIGABRT, "rank"),
    "rank interrupted": (signal.SIGINT, "rank"),
    "rank terminated": (signal.SIGTERM, "rank"),
    "launcher killed": (signal.SIGKILL, "launcher"),
    "launcher interrupted": (signal.SIGINT, "launcher"),
    "launcher terminated": (signal.SIGTERM, "launcher"),
    "asked to save": (signal.SIGUSR1, "launcher"),
}
#: What torchrun and mpirun make of SIGUSR1 is theirs: they end, or pass it on.
LAUNCHERS = ("scalescope", "torchrun", "mpirun")


@dataclass
class Outcome:
    """What became of one job."""

    number: int
    verb: str
    launcher: str
    fault: str
    after: str  # what the seconds are counted from
    after_s: float
    exit_code: int | None = None
    ended_s: float = 0.0  # from the fault to the launcher's end
    gone_s: float = 0.0  # from the fault to the last process's end
    status: str = "no folder"
    rows: int = 0
    wrong: list[str] = field(default_factory=list)


def command(verb: tuple[str, ...], launcher: str, folder: Path) -> list[str]:
    """Return how a job is started."""
    words = [*verb, *COMMON, f"runs={folder}"]
    if launcher == "torchrun":
        return [str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2", "-m", "scalescope", *words]
    if launcher == "mpirun":
        return [str(BIN / "mpirun"), "-n", "2", sys.executable, "-m", "scalescope", *words]
    return [sys.executable, "-m", "scalescope", *words, "launch.ranks=2"]


def processes_of(mark: str) -> dict[int, dict[str, str]]:
    """Return the environments of the live processes of a job, by process."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environ = dict(entry.split("=", 1) for entry in _text(place / "environ").split("\0") if "=" in entry)
            if environ.get(MARK) == mark and _text(place / "stat").rpartition(")")[2].split()[0] != "Z":
                found[int(place.name)] = environ
        except OSError:
            continue
    return found


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")


def run_job(number: int, seed: int, limit_s: float, root: Path) -> Outcome:
    """Start a job, do something to it, and say what became of it."""
    dice = random.Random(seed * 1_000_003 + number)
    verb = dice.choice((TRAIN, SWEEP))
    outcome = Outcome(number, verb[0], dice.choice(LAUNCHERS), dice.choice(list(FAULTS)),
                      dice.choice(("start", "first row", "first row")), round(dice.uniform(0, 8), 1))  # fmt: skip
    folder = root / f"{number}"
    (folder / "tmp").mkdir(parents=True)
    mark, before = f"{os.getpid()}-{number}", set(SHM.iterdir())
    environ = {**os.environ, MARK: mark, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(ROOT)}
    with (folder / "said.txt").open("w") as said:
        job = subprocess.Popen(command(verb, outcome.launcher, folder / "runs"), stdout=said, stderr=said, env=environ)
    if outcome.after == "first row":
        _await_row(job, folder / "runs" / "one")
    _hurt(job, mark, outcome, dice)
    since = time.monotonic()
    full_s = limit_s + (120 if FAULTS[outcome.fault] is None else 0)
    try:
        outcome.exit_code = job.wait(full_s)
    except subprocess.TimeoutExpired:
        outcome.wrong.append(f"still running after {full_s:g} s")
    outcome.ended_s = round(time.monotonic() - since, 1)
    while (left := processes_of(mark)) and time.monotonic() - since < full_s + 5:
        time.sleep(0.1)
    outcome.gone_s = round(time.monotonic() - since, 1)
    if left:
        outcome.wrong.append(f"{len(left)} processes are left")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        job.wait()
    if outcome.exit_code == 2:
        outcome.wrong.append("refused before it began")
    outcome.wrong += _leftovers(folder / "tmp", before)
    _look_at_rows(RunFolder(folder / "runs" / "one"), outcome)
    if not outcome.wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _await_row(job: "subprocess.Popen[bytes]", folder: Path, limit_s: float = 180.0) -> None:
    """Return when a job has written a row, or has ended."""
    until = time.monotonic() + limit_s
    while job.poll() is None and time.monotonic() < until:
        if any(path.is_file() and path.stat().st_size for path in (folder / "steps.jsonl", folder / "sweep.jsonl")):
            return
        time.sleep(0.05)


def _hurt(job: "subprocess.Popen[bytes]", mark: str, outcome: Outcome, dice: random.Random) -> None:
    """Wait for the moment, and send the signal; a job that has ended by then has had no fault."""
    fault = FAULTS[outcome.fault]
    if fault is None:
        return
    try:
        job.wait(outcome.after_s)
    except subprocess.TimeoutExpired:
        number, whom = fault
        target = job.pid
        if whom == "rank":
            rank = dice.choice(("0", "1"))
            ranks = [pid for pid, environ in processes_of(mark).items()
                     if pid != job.pid and rank in (environ.get("RANK"), environ.get("PMI_RANK"))]  # fmt: skip
            target = min(ranks, default=job.pid)  # before there are ranks, there is the launcher
        try:
            os.kill(target, number)
        except ProcessLookupError:
            return
        if number == signal.SIGSTOP and target == job.pid:  # a stopped launcher is somebody's wish
            os.kill(target, signal.SIGCONT)


def _leftovers(own: Path, before: set[Path]) -> Iterator[str]:
    left = sorted(path.name for path in own.iterdir() if not path.name.startswith(_OF_TORCH))
    if left:
        yield f"left in its temporary folder: {', '.join(left)}"
    new = [path for path in set(SHM.iterdir()) - before if not _is_mapped(path)]
    if new:
        yield f"left in /dev/shm: {', '.join(sorted(path.name for path in new))}"


def _is_mapped(path: Path) -> bool:
    """Tell whether a live process has a file of /dev/shm: then it may be somebody else's."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if str(path) in _text(maps):
                return True
        except OSError:
            continue
    return False


def _look_at_rows(folder: RunFolder, outcome: Outcome) -> None:
    if not (folder.path / "run.json").is_file():
        return
    try:
        outcome.status = folder.read_info().status
        if outcome.verb == "train":
            steps = _steps(folder)
            found, planned = [*map(str, steps)], [*map(str, range(STEPS))]
            whole = found == planned[: len(found)]
        else:
            points = [PlannedPoint.of(row) for row in folder.read_sweep() if row.status == "measured"]
            found, planned = [*map(repr, points)], [*map(repr, _planned())]
            whole = len(found) == len(set(found)) and set(found) <= set(planned)
    except UserError as error:
        outcome.wrong.append(f"rows: {error}")
        return
    outcome.rows = len(found)
    if not whole:
        outcome.wrong.append("rows are doubled, or not of the plan")
    if outcome.status == "done" and len(found) != len(planned):
        outcome.wrong.append(f"done, with {len(found)} of {len(planned)} rows")
    if outcome.status == "done" and outcome.fault == "none" and outcome.exit_code != 0:
        outcome.wrong.append(f"undisturbed, and exit code {outcome.exit_code}")


def _steps(folder: RunFolder) -> list[int]:
    """Return the steps as the lines have them: the reader would hide a doubled one."""
    lines = folder.steps.read_bytes().splitlines(keepends=True) if folder.steps.is_file() else []
    return [msgspec.json.decode(line)["step"] for line in lines if line.endswith(b"\n")]


def _planned() -> list[PlannedPoint]:
    register()
    config = typed(compose_job("sweep", [*SWEEP_AXES, *COMMON, "launch.ranks=2"]), SweepConfig)
    return plan(config, ["here"] * 2, "cpu")


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


def main() -> int:
    """Run the jobs one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--limit", type=float, default=90.0, help="seconds from a fault to the job's end")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would ours
    until, outcomes = time.monotonic() + 60 * options.minutes, []
    root = Path(tempfile.mkdtemp(prefix="scalescope-soak-"))
    for number in range(options.jobs):
        if time.monotonic() > until:
            break
        outcomes.append(run_job(number, options.seed, options.limit, root))
        print(*asdict(outcomes[-1]).values(), flush=True)
        if options.out is not None:
            options.out.write_bytes(msgspec.json.format(msgspec.json.encode(outcomes)))
    print(table(outcomes))
    bad = [one for one in outcomes if one.wrong]
    for one in bad:
        print(f"{root / str(one.number)}: {'; '.join(one.wrong)}")
    if not bad:
        shutil.rmtree(root)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
