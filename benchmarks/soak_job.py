"""One job of a soak: it is started, something happens to it, and what it leaves is looked at. See `soak.py`.

As a program it is a worker of a soak: it takes jobs' numbers on its standard input, a line each, and answers with a
line of JSON each. With `--isolated` it is the first process of a namespace of its own (soak.py starts it so): it mounts
a /tmp and a /dev/shm that nobody else has, so that what lies there afterwards is its job's.
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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec

from scalescope.collectives.config import SweepConfig, register
from scalescope.collectives.plan import PlannedPoint, plan
from scalescope.launch.compose import compose_job, typed
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
MARK = "SCALESCOPE_SOAK"
_OF_TORCH = ("torchelastic_", "torchinductor_")  # logs of torchrun's, the compiler's empty folder
SHM = Path("/dev/shm")
COMMON = ("name=one", "launch.device=cpu", "launch.threads_per_rank=1", "launch.init_limit_s=60", "logger=none")
STEPS = 300
TRAIN = ("train", "model=gpt_tiny", "model.layers=1", "model.width=32", "model.heads=2", "model.context=32",
         "data=python_stdlib", "precision=fp32", "profiler=none", "warmup_steps=2", f"steps={STEPS}",
         "checkpoint_every=100", "launch.step_limit_s=4")  # fmt: skip
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


def mpirun() -> list[str]:
    """Return how MPI starts two ranks here; nothing where it does not."""
    program = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        return []
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    words = [program, "-n", "2"]
    if "Open MPI" in said or "OpenRTE" in said:
        words += ["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    ask = [*words, sys.executable, "-c", "from mpi4py import MPI; print(f'of{MPI.COMM_WORLD.Get_size()}')"]
    try:
        tried = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        return []
    return words if tried.stdout.count("of2") == 2 else []


def command(verb: tuple[str, ...], launcher: str, mpi: list[str], folder: Path) -> list[str]:
    """Return how a job is started."""
    words = ["-m", "scalescope", *verb, *COMMON, f"runs={folder}"]
    if launcher == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *words]
    if launcher == "mpirun":
        return [*mpi, sys.executable, *words]
    return [sys.executable, *words, "launch.ranks=2"]


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


class Soaker:
    """Runs jobs one after another, each drawn from a seed and its number."""

    def __init__(self, seed: int, limit_s: float, keep: Path, mpi: list[str], watches_shm: bool) -> None:
        self._seed, self._limit_s, self._keep, self._mpi = seed, limit_s, keep, mpi
        self._watches_shm = watches_shm  # others' jobs beside this one leave theirs there, too
        self._launchers = [name for name in LAUNCHERS if name != "mpirun" or mpi]
        self._root = Path(tempfile.mkdtemp(prefix="scalescope-soak-"))

    def run(self, number: int) -> Outcome:
        """Start a job, do something to it, and say what became of it; the folder of one that went wrong is kept."""
        dice = random.Random(self._seed * 1_000_003 + number)
        verb = dice.choice((TRAIN, SWEEP))
        outcome = Outcome(number, verb[0], dice.choice(self._launchers), dice.choice(list(FAULTS)),
                          dice.choice(("start", "first row", "first row")), round(dice.uniform(0, 6), 2))  # fmt: skip
        folder = self._root / f"{number}"
        (folder / "tmp").mkdir(parents=True)
        mark, before = f"{os.getpid()}-{number}", set(SHM.iterdir())
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environ = {**os.environ, MARK: mark, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": paths}
        argv = command(verb, outcome.launcher, self._mpi, folder / "runs")
        with (folder / "said.txt").open("w") as said:
            job = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environ)
        if outcome.after == "first row":
            _await_row(job, folder / "runs" / "one")
        _hurt(job, mark, outcome, dice)
        self._await_end(job, mark, outcome)
        outcome.wrong += _leftovers(folder / "tmp", before if self._watches_shm else set(SHM.iterdir()))
        _look_at_rows(RunFolder(folder / "runs" / "one"), outcome)
        interrupted = outcome.launcher == "mpirun" and outcome.fault.endswith("interrupted")  # SIGINT's number
        if outcome.exit_code == 2 and not interrupted:
            outcome.wrong.append("refused before it began")
        if outcome.wrong:
            shutil.copytree(folder, self._keep / f"{number}", dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        for path in set(SHM.iterdir()) - before if self._watches_shm else ():
            path.unlink(missing_ok=True)  # it is said; the next job begins anew
        return outcome

    def _await_end(self, job: "subprocess.Popen[bytes]", mark: str, outcome: Outcome) -> None:
        since = time.monotonic()
        full_s = self._limit_s + (120 if FAULTS[outcome.fault] is None else 0)
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

    def close(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)


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
            names = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")
            ranks = [pid for pid, environ in processes_of(mark).items()
                     if pid != job.pid and rank in map(environ.get, names)]  # fmt: skip
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
    new = left_in_shm(before)
    if new:
        yield f"left in /dev/shm: {', '.join(new)}"


def left_in_shm(before: set[Path]) -> list[str]:
    """Return what is new in /dev/shm and no live process has mapped: that may be somebody else's."""
    return sorted(path.name for path in set(SHM.iterdir()) - before if not _is_mapped(path))


def _is_mapped(path: Path) -> bool:
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


def isolate(place: Path, kept: Iterable[Path]) -> None:
    """Give this namespace a /tmp, built at an empty folder `place`, and a /dev/shm that nobody else has.

    What is kept of /tmp (the checkout, Python, the results, where they lie there) is seen as before.
    """
    here = Path.cwd()
    _mount("-t", "tmpfs", "tmpfs", str(place))
    for path in sorted(kept):  # a folder before what lies in it
        if path.is_relative_to("/tmp"):
            (place / path.relative_to("/tmp")).mkdir(parents=True, exist_ok=True)
            _mount("--bind", str(path), str(place / path.relative_to("/tmp")))
    _mount("--move", str(place), "/tmp")
    _mount("-t", "tmpfs", "tmpfs", str(SHM))
    os.chdir(here if here.is_dir() else "/")


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _bury() -> None:
    """Let orphans go that have ended: to the first process of a namespace they are left."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return


def main() -> None:
    """Run the jobs whose numbers come in."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=90.0)
    parser.add_argument("--keep", type=Path, required=True, help="where folders of jobs go that went wrong")
    parser.add_argument("--mpi", default="[]", help="how mpirun starts two ranks, a list in JSON")
    parser.add_argument("--isolated", type=Path, help="build a /tmp of its own at this empty folder")
    options = parser.parse_args()
    if options.isolated is not None:
        paths = [Path(path) for path in (*sys.path, sys.prefix, sys.base_prefix) if Path(path).is_dir()]
        isolate(options.isolated, {ROOT, options.keep, *(path.resolve() for path in paths)})
    mpi = msgspec.json.decode(options.mpi, type=list[str])
    soaker = Soaker(options.seed, options.limit, options.keep, mpi, watches_shm=options.isolated is not None)
    for line in iter(sys.stdin.readline, ""):
        sys.stdout.write(f"{msgspec.json.encode(soaker.run(int(line))).decode()}\n")
        sys.stdout.flush()
        if options.isolated is not None:
            _bury()
    soaker.close()


if __name__ == "__main__":
    main()
