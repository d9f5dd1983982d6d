"""The jobs of all cases, trained in turns.

A rank is forked from a process that has torch loaded, is alone in its process and makes its own context on the device
(tests/worlds.py): what a launcher, imports and a report take of a minute is left out, and nothing that is compared.
One job gives everything: its steady steps, which come before anything was recorded, then its windows, one after
another. What is finished is kept, so that a further call makes what is missing.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from comparisons.cases import ON_CPU, ON_GPUS, SAME, Case, Run, runs_in_turns
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from tests.worlds import World

HERE = Path(__file__).resolve().parent.parent
#: Ten steps of warm-up, thirty without a profiler, then five windows: two steps for the profiler, three recorded.
_JOB = ("logger=none", "steps=65", "warmup_steps=10", "profiler.warmup=2", "profiler.active=3", "profiler.repeat=5")
#: Beside other processes more steps are needed.
_JOB_ON_CPU = ("steps=105", "launch.device=cpu", "launch.threads_per_rank=1", "model.layers=4", "model.width=64",
               "model.context=64")  # fmt: skip
_JOB_ON_GPUS = ("compile=false",)
#: Batches of which the device, and not the host, decides how long a step is, also while it is recorded.
_BATCHES = {"gpt_small": ("model.batch_size=24",), "resnet50": ("model.batch_size=256",)}
#: Many short jobs instead: twenty steps without a profiler and one window, of which the device still decides how long a
#: step is.
_SHORT_JOB = ("steps=35", "profiler.repeat=1")
_SHORT_BATCHES = {"gpt_small": ("model.batch_size=16",), "resnet50": ("model.batch_size=192",)}
_PATIENCE_S = 150.0


class _Starter:
    """Starts a job's ranks: forked, or where the first job cannot be (a library that has begun threads, or a context
    on the device) all of them by torchrun, which takes longer and is the same.
    """

    def __init__(self) -> None:
        self.forks: bool | None = None  # None: not tried yet

    def run(self, ranks: int, job: Sequence[str], folder: Path) -> tuple[str, int]:
        """Return what the ranks said, and their first exit code that is not 0."""
        if self.forks is not False:
            said, code = _forked(ranks, job)
            if code == 0 or self.forks:
                self.forks = True
                return said, code
            print(f"ranks are started by torchrun, since they could not be forked: {said.strip()[-300:]}", flush=True)
            self.forks = False
            shutil.rmtree(folder, ignore_errors=True)
        return _launched(ranks, job)


def make(
    out: Path,
    repeats: int,
    changed: int,
    models: str | None,
    names: Sequence[str] | None,
    overrides: Sequence[str],
    limit_s: float,
    *,
    short: bool = False,
) -> int:
    """Train all cases in turns. Returns 1 where one failed. Begins nothing that would end after the limit."""
    until, count, failed = time.monotonic() + limit_s, gpus(), 0
    ranks = max(1, min(count, 4)) if count else 2
    known = ON_GPUS if count else ON_CPU
    chosen = (models or ("gpt_small,resnet50" if count else "gpt_tiny")).split(",")
    cases = [case for case in known if case.least_gpus <= max(count, 1) and (names is None or case.name in names)]
    longest: dict[str, float] = {}
    starter = _Starter()
    for run in runs_in_turns(chosen, cases, repeats, changed):
        folder = out / run.model / run.name
        if finished(folder):
            continue
        if time.monotonic() + longest.get(run.model, 0.0) > until:
            print(f"no time is left for {run.model} {run.name}", flush=True)
            break
        shutil.rmtree(folder, ignore_errors=True)
        device = _JOB_ON_GPUS if count else _JOB_ON_CPU
        # what a case sets comes last, and stands
        words = [f"model={run.model}", f"launch.ranks={ranks}", *_JOB, *device, *_BATCHES.get(run.model, ()),
                 *((*_SHORT_JOB, *_SHORT_BATCHES.get(run.model, ())) if short else ()), *overrides,
                 *run.case.overrides]  # fmt: skip
        began = time.monotonic()
        error = _train(starter, out / run.model, run, words, ranks, on_device=count > 0)
        took = time.monotonic() - began
        longest[run.model] = max(longest.get(run.model, 0.0), took)
        failed += error is not None
        print(f"{run.model} {run.name}: {took:.1f} s{f', failed: {error}' if error else ''}", flush=True)
    return int(failed > 0)


def gpus() -> int:
    import torch

    return torch.cuda.device_count()


def finished(folder: Path) -> bool:
    """Tell whether a job has come to its end."""
    try:
        return RunFolder.open(folder).read_info().status == "done"
    except UserError:
        return False


def _train(starter: _Starter, out: Path, run: Run, words: Sequence[str], ranks: int, *, on_device: bool) -> str | None:
    """Train one job; return why it failed."""
    late: Mapping[str, str] = {}
    program = ["scalescope"]
    if run.case.late_ranks:
        step_ms = undisturbed_step_ms(out)
        if step_ms is None:
            return f"how long a step of {SAME!r} is must be known before"
        late = _lateness(run.case, step_ms, out / run.name, on_device=on_device)
        program = [str(HERE / "late_ranks.py")]
    job = [*program, "train", *words, f"runs={out}", f"name={run.name}"]
    with _environment({**run.case.variables, **late, "OMP_NUM_THREADS": "1"}):
        said, code = starter.run(ranks, job, out / run.name)
    if code == 0 and finished(out / run.name):
        return None
    lines = [line for line in said.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("scalescope: ")), (lines or [f"code {code}"])[-1])


def undisturbed_step_ms(out: Path) -> float | None:
    """Return the median step of the first undisturbed job; None where there is none yet."""
    folder = out / f"{SAME}-0"
    return steady_step_ms(folder) if finished(folder) else None


def steady_step_ms(folder: Path) -> float:
    """Return a run's step, without what its ranks waited for cores where that is told: other processes' doing."""
    rows = [row for row in RunFolder(folder).read_steps() if row.phase == "steady"]
    return median(row.length_ms - max(row.run_delay_ms, default=0.0) for row in rows)


def _lateness(case: Case, step_ms: float, folder: Path, *, on_device: bool) -> dict[str, str]:
    return {
        "LATE_MS": f"{case.late_share * step_ms:.4f}",
        "LATE_RANKS": ",".join(map(str, case.late_ranks)),
        "LATE_ON": "device" if on_device else "host",
        "LATE_TOLD": str(folder),
    }


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _forked(ranks: int, job: Sequence[str]) -> tuple[str, int]:
    try:
        out, err = (world := World(ranks, job)).communicate(_PATIENCE_S)
    except (OSError, ValueError) as error:  # a time-out is an OSError
        return f"{type(error).__name__}: {error}", 1
    return out + err, world.returncode


def _launched(ranks: int, job: Sequence[str]) -> tuple[str, int]:
    program = ["-m", *job] if not job[0].endswith(".py") else list(job)
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", *program]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(HERE.parent), os.environ.get("PYTHONPATH", "")))}
    try:
        done = subprocess.run(launcher, env=environment, capture_output=True, text=True, check=False,
                              timeout=_PATIENCE_S)  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"ended after {_PATIENCE_S:.0f} s", 1
    return done.stdout + done.stderr, done.returncode
