"""One rank of a launch: rank.py OUT LAUNCH [--cases NAMES] [--until T] … known_causes.py starts it under torchrun.

In this order: bursts without a profiler; what limits each job; every case untraced; then, with profilers, bursts again
and every case's windows. A case that fails costs itself alone where all ranks come out of it, and else the launch,
which known_causes.py then starts once more without that case. What is there already is not made again.
"""

import argparse
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import torch.distributed as dist

from causes import bursts
from causes.cases import GPU_BOUND, RESIDENT, WORKER, Case, JobKind, launches
from causes.injections import INJECTIONS, Tools
from causes.job import Hooks, Job
from causes.measuring import Limits, Team, choose_samples, measure_limits, stretch
from causes.recording import record
from causes.truth import FILE, Cost, Stretches, Truth, cost, launching

AT_WORK, FAILED = "at_work", "failed.json"
UNTRACED_SHARE = 0.55  # of the time; the rest is for the windows
PATIENCE = timedelta(seconds=40)  # with a rank that does not come
Result = TypeVar("Result")


@dataclass(frozen=True)
class Untraced:
    """A case's steps before any profiler was used, and what was injected."""

    limits: Limits
    injected_ms: float
    undisturbed: Stretches
    disturbed: Stretches


class Bench:
    """The jobs of this rank and all that is measured on them."""

    def __init__(self, out: Path, launch: str, device: torch.device, ends: float) -> None:
        self.out, self.launch, self.device, self.ends = out, launch, device, ends
        self.began = time.time()
        self.team = Team(PATIENCE)
        self.jobs: dict[JobKind, Job] = {}
        self.samples: dict[str, dict[str, int]] = {}
        self.limits: dict[tuple[JobKind, str], Limits] = {}
        self.failed: dict[str, str] = self._failed_before()
        self.tools = Tools(self.job(JobKind()), out)

    def job(self, kind: JobKind) -> Job:
        """Return the job of a kind; they all stay, since making one takes long."""
        if kind not in self.jobs:
            self.jobs[kind] = Job(kind, self.device)
        return self.jobs[kind]

    def limits_of(self, kind: JobKind, batch: str) -> Limits:
        """Return what limits an undisturbed job of the launch."""
        if kind.model not in self.samples:
            plain = self.job(JobKind(model=kind.model))
            self.samples[kind.model] = choose_samples(plain, self.team, self.tools)
        if (kind, batch) not in self.limits:
            samples = self.samples[kind.model][batch]
            self.limits[kind, batch] = measure_limits(self.job(kind), self.team, self.tools, samples)
        return self.limits[kind, batch]

    def hooks(self, case: Case, injected_ms: float) -> Hooks:
        """Return what this rank runs with in the disturbed steps of a case."""
        mine = not case.ranks or self.team.rank in case.ranks
        if not case.injection or not mine:
            return Hooks()
        return INJECTIONS[case.injection](self.job(case.job), self.tools, injected_ms)

    def untraced(self, case: Case) -> Untraced:
        """Measure a case's steps, with the cause and without, in turns."""
        plain_kind = case.undisturbed or case.job
        limits = self.limits_of(plain_kind, case.batch)
        injected_ms = amount_ms(case, limits)
        self._prepare(case, limits.samples)
        plain, disturbed = self.job(plain_kind), self.job(case.job)
        stretch(disturbed, self.team, Hooks(), steps=2)  # its first steps order its buckets
        without, with_it = [], []
        for _ in range(case.pairs):
            without.append(stretch(plain, self.team, Hooks()))
            if case.disturbs:
                with_it.append(stretch(disturbed, self.team, self.hooks(case, injected_ms)))
        without.append(stretch(plain, self.team, Hooks()))
        self._release(case)
        everyone = self.team.all((without, with_it or without))
        return Untraced(limits, injected_ms, [one[0] for one in everyone], [one[1] for one in everyone])

    def window(self, case: Case, untraced: Untraced, folder: Path, first: bool) -> None:
        """Trace a window of a case and write its truth; around the first one, measure further stretches."""
        self._prepare(case, untraced.limits.samples)
        plain, disturbed = self.job(case.undisturbed or case.job), self.job(case.job)
        hooks = self.hooks(case, untraced.injected_ms)
        around = stretch(plain, self.team, Hooks()) if first and case.disturbs else []
        before = stretch(disturbed, self.team, hooks)
        traced = record(disturbed, self.team, hooks, folder, case.recording)
        after = stretch(disturbed, self.team, hooks, steps=6, lead=1) if first or case.recording.teardown else []
        self._release(case)
        everyone = self.team.all((around, before, traced, after))
        if self.team.rank:
            return
        truth = self._truth(case, untraced)
        (
            truth.step_ms_undisturbed_before_window,
            truth.step_ms_before_window,
            truth.step_ms_traced,
            truth.step_ms_after_window,
        ) = ([one[kind] for one in everyone if one[kind]] for kind in range(4))
        truth.write(folder)

    def rehearse(self) -> None:
        """Record once for nothing: the first profile of a process loads its libraries."""
        job = self.job(JobKind())
        record(job, self.team, Hooks(), None, Case("rehearsal", "nothing", GPU_BOUND).recording)

    def attempt(self, case: Case, work: Callable[[], Result]) -> Result | None:
        """Return what a case's work gives; None where a rank failed at it, which is then noted."""
        if self.team.rank == 0:
            (self.out / AT_WORK).write_text(case.name)
        result, error = None, None
        gc.collect()
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001  whatever it is, it must not lose the other cases
            error = f"{type(raised).__name__}: {raised}"
        errors = [one for one in self.team.all(error) if one]
        if self.team.rank == 0:
            (self.out / AT_WORK).unlink()
            if errors:
                self.note_failure(case.name, errors[0])
        if errors and self.device.type == "cuda":
            torch.cuda.empty_cache()
        return None if errors else result

    def note_failure(self, name: str, reason: str) -> None:
        """Keep why a case is not there."""
        self.failed[name] = reason[:2000]
        (self.out / FAILED).write_text(json.dumps(self.failed, indent=1) + "\n")
        print(f"# {self.launch}/{name} failed: {reason[:300]}", flush=True)

    def late(self, share: float = 1.0) -> bool:
        """Return whether this share of the time has passed, by rank 0's clock."""
        passed = time.time() - self.began > share * (self.ends - self.began)
        return bool(self.team.first(passed))

    def say(self, what: str) -> None:
        if self.team.rank == 0:
            print(f"# {time.time() - self.began:6.1f} s  {self.launch}: {what}", flush=True)

    def facts(self) -> dict[str, Any]:
        """Return what all this was measured on."""
        return {
            "launch": self.launch,
            "world_size": self.team.world_size,
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu",
            "host_cpu": _host_cpu(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if self.device.type == "cuda" else None,
            "nccl_settings": {name: value for name, value in os.environ.items() if name in ("NCCL_NVLS_ENABLE",)},
            "model": asdict(self.job(JobKind()).size),
            "cycles_a_ms": self.tools.cycles_a_ms,
            "limits": [
                {"job": asdict(kind), "batch": batch, **asdict(limits)} for (kind, batch), limits in self.limits.items()
            ],
        }

    def _prepare(self, case: Case, samples: int) -> None:
        for kind in {case.undisturbed or case.job, case.job}:
            self.job(kind).prepare(samples, case.loading, case.broadcast_root)

    def _release(self, case: Case) -> None:
        if case.loading == WORKER:
            self.job(case.job).prepare(self.job(case.job).samples, RESIDENT)

    def _truth(self, case: Case, untraced: Untraced) -> Truth:
        limits = untraced.limits
        found = Cost(0.0, 0.0, 0.0)
        if case.disturbs:
            found = cost(untraced.undisturbed, untraced.disturbed, case.varies)
        elif case.code == "host_bound":
            plain = untraced.undisturbed
            on_device: Stretches = [[[limits.device_ms] * len(one) for one in rank] for rank in plain]
            found = cost([*(rank + rank[:1] for rank in on_device)], plain, varies=False)
        ranks = case.blamed
        return Truth(
            case=case.name,
            launch=self.launch,
            code=case.code,
            codes=list(case.codes),
            rank=ranks[0] if ranks and len(ranks) == 1 else ranks,
            world_size=self.team.world_size,
            model=case.job.model,
            strategy=case.job.strategy,
            batch=case.batch,
            samples=limits.samples,
            loading=case.loading,
            varies=case.varies,
            recording=asdict(case.recording),
            amount=asdict(case.amount),
            injected_ms=round(untraced.injected_ms, 4),
            limits=asdict(limits),
            step_ms_untraced_undisturbed=untraced.undisturbed,
            step_ms_untraced=untraced.disturbed,
            cost_ms=round(found.ms, 4),
            cost_low_ms=round(found.low_ms, 4),
            cost_high_ms=round(found.high_ms, 4),
            others=launching(asdict(limits)) if case.code != "host_bound" else [],
        )

    def _failed_before(self) -> dict[str, str]:
        file = self.out / FAILED
        return json.loads(file.read_text()) if file.is_file() else {}


def amount_ms(case: Case, limits: Limits) -> float:
    """Return how much to inject, ms of a disturbed rank's own time."""
    amount = case.amount
    hidden = amount.of_slack * limits.slack_ms(amount.beyond, case.ranks)
    return hidden + amount.ms + amount.share * limits.step


def run(cases: list[Case], bench: Bench, burst: dict[str, dict[str, float]]) -> None:
    """Make what is not there yet of the cases."""
    out, missing = bench.out, []
    for case in bench.team.first([case for case in cases if case.name not in bench.failed]):
        if not all((bench.out / folder / FILE).is_file() for folder in case.folders()):
            missing.append(case)
    missing = bench.team.first(missing)
    measured: dict[str, Untraced] = {}
    for case in missing:
        if bench.late(UNTRACED_SHARE):
            bench.say("no time left for further untraced cases")
            break
        known = measured.get(case.truth_of)
        untraced = known or bench.attempt(case, lambda case=case: bench.untraced(case))  # type: ignore[misc]
        if untraced is not None:
            measured[case.name] = untraced
    bench.say(f"{len(measured)} cases measured untraced")
    _write(bench, out / "launch.json", bench.facts())
    bench.rehearse()
    burst |= bursts.with_and_without(bench.device)
    _write(bench, out / "bursts.json", {str(rank): one for rank, one in enumerate(bench.team.all(burst))})
    for case in missing:
        for number, folder in enumerate(case.folders()):
            there = bench.team.first((out / folder / FILE).is_file())
            if case.name not in measured or there or case.name in bench.team.first(bench.failed):
                continue
            if bench.late():
                bench.say("no time left for further windows")
                return

            def window(case: Case = case, folder: str = folder, number: int = number) -> bool:
                bench.window(case, measured[case.name], out / folder, first=number == 0)
                return True

            bench.attempt(case, window)
    bench.say("all windows recorded")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("launch")
    parser.add_argument("--cases", help="comma-separated; default: all of the launch")
    parser.add_argument("--cores", help="FIRST:COUNT, the cores of rank 0; those of rank 1 follow; default: any")
    parser.add_argument("--until", type=float, default=float("inf"), help="begin nothing after this Unix time")
    options = parser.parse_args()
    if options.cores:
        keep_to_own_cores(*(int(number) for number in options.cores.split(":")))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=PATIENCE)
    out = options.out / options.launch
    out.mkdir(parents=True, exist_ok=True)
    wanted = options.cases.split(",") if options.cases else None
    gpus = torch.cuda.device_count() if on_gpu else 0
    launch = next(one for gpus in {gpus, 4, 0} for wave in launches(gpus) for one in wave if one.name == options.launch)
    bench = Bench(out, options.launch, device, options.until)
    without = {"untraced": bursts.measure(device)}
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection on one rank would be a cause of its own
    run([case for case in launch.cases if wanted is None or case.name in wanted], bench, without)
    bench.tools.close()
    dist.barrier()
    dist.destroy_process_group()


def keep_to_own_cores(first: int, count: int) -> None:
    """Keep to every second core of this rank's share: what looks like two cores may be two threads of one."""
    begin = first + int(os.environ["LOCAL_RANK"]) * count
    own = set(range(begin, begin + count, 2)) & os.sched_getaffinity(0)
    if len(own) >= 4:
        os.sched_setaffinity(0, own)


def _write(bench: Bench, file: Path, what: object) -> None:
    if bench.team.rank == 0:
        file.write_text(json.dumps(what, indent=1) + "\n")


def _host_cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
