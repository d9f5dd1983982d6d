"""Comparisons with a known answer: the same thing twice is the same, a known difference is found and sized.

    python benchmarks/compare_known.py make OUT [--repeats 5] [--models gpt_small,resnet50] [--cases same,tf32]
                                            [--minutes 25] [KEY=VALUE …]
    python benchmarks/compare_known.py check OUT
    python benchmarks/compare_known.py causes FOLDER

`make` trains the jobs of CASES in turns, so that clocks and temperature meet all of them alike: `same`, and each job
that differs from it in one known way, profiled in five windows, and once more without a profiler; overrides hold for
all of them. On a machine without GPUs it trains tiny models on two CPU ranks, of which some sleep (late_ranks.py). A
further call makes what is missing.
`check` compares every repeat-by-repeat split of what did not differ (A/A: at most 10 of 100 may be called different)
and each case against `same` (A/B: the change found has to hold the difference of the runs without a profiler, of a
sleep its length, within 10% or in its interval; the part that the case names has to be among the first two that are
told), and prints what users read. `causes` does the
same with windows of known_causes.py: undisturbed ones in interleaved splits, and every case whose cost is settled.
Exits with 1 where too much is wrong.
"""

import argparse
import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from jobs import JobFailed, train

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.report.compare.sentences import headline, moved
from scalescope.scaling.compare.compare import compare
from scalescope.scaling.compare.difference import Difference, difference
from scalescope.scaling.compare.measurement import Measurement, Repeat
from scalescope.scaling.compare.read import read_repeat

MOST_CALLED_DIFFERENT = 0.1
NEAR = 0.1
MOST_PAIRS = 40  # of one size of split


@dataclass(frozen=True)
class Case:
    """One known difference: overrides or variables, and the parts one of which has to move first (none: any)."""

    name: str
    overrides: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    moves: tuple[str, ...] = ()
    least_gpus: int = 1
    models: tuple[str, ...] = ("gpt_small", "resnet50", "gpt_tiny")
    sleep_ms: float = 0.0  # of the ranks below in every step, which is then the truth
    sleepers: tuple[int, ...] = ()


COMMUNICATION = ("exposed_transfer", "exposed_wait", "exposed_unsplit")
CASES = (
    Case("same"),
    Case("tf32", ("precision=tf32",), moves=("matmul", "convolution", "elementwise and reductions")),
    Case("small_buckets", ("strategy.bucket_mib=5",), least_gpus=2),
    Case("one_channel", (), (("NCCL_MAX_NCHANNELS", "1"),), moves=COMMUNICATION, least_gpus=2),
    Case("one_more_layer", ("model.layers=13",), moves=("matmul",), models=("gpt_small",)),
)
ON_CPU = (
    Case("same"),
    Case("one_more_layer", ("model.layers=5",), moves=("attention", "matmul"), models=("gpt_tiny",)),
    Case("wider", ("model.width=96",), models=("gpt_tiny",)),
    Case("larger_batch", ("model.batch_size=10",), models=("gpt_tiny",)),
    Case("small_buckets", ("strategy.bucket_mib=0.1",), models=("gpt_tiny",)),
    Case("late_rank", moves=("idle_launch",), sleep_ms=2.5, sleepers=(1,)),
    Case("late_rank_a_little", moves=("idle_launch",), sleep_ms=0.8, sleepers=(1,)),
    Case("all_late", moves=("idle_launch",), sleep_ms=2.5, sleepers=(0, 1)),
    Case("all_late_a_little", moves=("idle_launch",), sleep_ms=0.8, sleepers=(0, 1)),
)
#: Of a step of 25 ms, so that the sleeps above are 10% and 3% of it.
_ON_CPU = ("launch.device=cpu", "launch.threads_per_rank=1", "model.layers=4", "model.width=64", "model.context=64")
_PROFILED = ("steps=150", "profiler.wait=20", "profiler.active=5", "profiler.repeat=5")
_PLAIN = ("steps=70", "profiler=none")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("make", "check", "causes"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--models", default=None)
    parser.add_argument("--cases", default=None, help=f"make: of {', '.join(case.name for case in CASES)}")
    parser.add_argument("--minutes", type=float, default=25, help="make: begin nothing later")
    parser.add_argument("overrides", nargs="*", help="make: of every job, as for scalescope train")
    options = parser.parse_intermixed_args()
    if options.verb == "make":
        chosen = None if options.cases is None else options.cases.split(",")
        return make(options.out, options.repeats, options.models, chosen, options.overrides, 60 * options.minutes)
    right = True
    for line, good in check(options.out) if options.verb == "check" else causes(options.out):
        print(line, flush=True)
        right = right and good
    return int(not right)


def gpus() -> int:
    import torch

    return torch.cuda.device_count()


def make(
    out: Path, repeats: int, models: str | None, names: Sequence[str] | None, overrides: Sequence[str], limit_s: float
) -> int:
    """Train all cases in turns. Returns 1 where one failed."""
    until, count, failed = time.monotonic() + limit_s, gpus(), 0
    ranks = max(1, min(count, 4)) if count else 2
    known = CASES if count else ON_CPU
    cases = [case for case in known if case.least_gpus <= max(count, 1) and (names is None or case.name in names)]
    chosen = (models or ("gpt_small,resnet50" if count else "gpt_tiny")).split(",")
    device = () if count else _ON_CPU
    for number, model, case, profiled in itertools.product(range(repeats), chosen, cases, (True, False)):
        name = f"{case.name}-{'profiled' if profiled else 'plain'}-{number}"
        folder = out / model / name
        if model not in case.models or (folder / "run.json").is_file() or time.monotonic() > until:
            continue
        steps = _PROFILED if profiled else _PLAIN
        os.environ.update(dict(case.variables))
        try:
            # what a case sets comes last, and stands
            job = (f"model={model}", f"launch.ranks={ranks}", *device, *steps)
            words = [*job, *overrides, *case.overrides]
            if case.sleepers:
                train_late(out / model, name, words, ranks, case)
            else:
                train(out / model, name, words)
            print(f"{model} {name}", flush=True)
        except JobFailed as error:
            failed += 1
            print(f"{model} {name} failed: {error}", flush=True)
        for variable, _ in case.variables:
            os.environ.pop(variable, None)
    return int(failed > 0)


def train_late(out: Path, name: str, overrides: Sequence[str], ranks: int, case: Case) -> None:
    """Train with ranks that sleep. Raises JobFailed with the reason where it does not get to its end."""
    script = Path(__file__).resolve().with_name("late_ranks.py")
    sleep = {"SLEEP_MS": f"{case.sleep_ms}", "SLEEP_RANKS": ",".join(map(str, case.sleepers)), "OMP_NUM_THREADS": "1"}
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", str(script)]
    words = ["train", "logger=none", *overrides, f"runs={out}", f"name={name}"]
    done = subprocess.run([*launcher, *words], env=os.environ | sleep, capture_output=True, text=True, check=False)
    if done.returncode:
        raise JobFailed(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}")


def check(out: Path) -> Iterator[tuple[str, bool]]:
    """Yield a line each: what was compared, what came out, and whether it is right."""
    cases = {case.name: case for case in (*CASES, *(() if gpus() else ON_CPU))}
    for model in sorted(path for path in out.iterdir() if path.is_dir()):
        runs: dict[str, list[Repeat]] = {}
        plain: dict[str, list[float]] = {}
        for path in sorted(model.iterdir()):
            name, kind, _ = path.name.rsplit("-", 2)
            if kind == "profiled":
                runs.setdefault(name, []).append(read_repeat(path, 1))
            else:
                plain.setdefault(name, []).append(_step_ms(path))
        yield from same_twice(f"{model.name} same", runs.get("same", []))
        for name, repeats in runs.items():
            if name != "same" and name in plain and "same" in plain:
                case = cases.get(name, Case(name))
                rate = _samples(runs["same"]) / _samples(repeats)
                truth = case.sleep_ms or rate * median(plain[name]) - median(plain["same"])
                yield known_change(f"{model.name} {name}", runs["same"], repeats, truth, case.moves)


def _samples(repeats: Sequence[Repeat]) -> int:
    return repeats[0].identity.samples or 1


def _step_ms(path: Path) -> float:
    """Return a run's step, without what its ranks waited for cores where that is told: other processes' doing."""
    rows = [row for row in RunFolder(path).read_steps() if row.phase == "steady"]
    return median(row.length_ms - max(row.run_delay_ms, default=0.0) for row in rows)


class _Truth(msgspec.Struct):
    """What is needed of a window's truth.json (causes/truth.py)."""

    code: str
    cost_ms: float
    cost_low_ms: float
    cost_high_ms: float
    codes: list[str] = []


def causes(out: Path) -> Iterator[tuple[str, bool]]:
    """Yield a line each for the windows of known_causes.py below a folder."""
    for launch in sorted({path.parent.parent for path in out.rglob("truth.json")}):
        windows: dict[str, list[Repeat]] = {}
        truths: dict[str, _Truth] = {}
        for path in sorted(launch.glob("*/truth.json")):
            name = path.parent.name.partition(".")[0]
            if name.endswith(("_cuda_only", "_stack", "_shapes")):
                continue  # recorded otherwise than the undisturbed ones
            try:
                windows.setdefault(name, []).append(read_repeat(path.parent, 1))
            except UserError as error:
                print(f"{path.parent}: {error}", file=sys.stderr)
                continue
            truths[name] = msgspec.json.decode(path.read_bytes(), type=_Truth)
        for name, repeats in windows.items():
            if name.startswith(("nothing", "host_bound")) and len(repeats) > 1:
                yield from same_twice(f"{launch.name} {name}", repeats)
        calm = windows.get("nothing", [])
        for name, truth in truths.items():
            # others compare with another job's undisturbed windows, or did not settle
            same_job = not name.startswith(("nothing", "host_bound", "conv", "fsdp2")) and "large" not in name
            settled = truth.cost_low_ms > 0.01 * 10 and truth.cost_high_ms - truth.cost_low_ms < 0.2 * truth.cost_ms
            if calm and same_job and settled:
                known = (truth.cost_low_ms, truth.cost_high_ms)
                yield known_change(f"{launch.name} {name}", calm, windows[name], truth.cost_ms, known=known)


def same_twice(what: str, repeats: Sequence[Repeat]) -> Iterator[tuple[str, bool]]:
    """Yield how many interleaved splits of undisturbed repeats are called different, by their size."""
    for size in range(1, len(repeats) // 2 + 1):
        splits = list(_splits(len(repeats), size))
        random.Random(size).shuffle(splits)
        found = [_compared([repeats[at] for at in one], [repeats[at] for at in other])
                 for one, other in splits[:MOST_PAIRS]]  # fmt: skip
        wrong = sum(not one.low_ms <= 0 <= one.high_ms for one in found)
        parts = sum(any(not part.within_noise for part in one.parts) for one in found)
        half = median((one.high_ms - one.low_ms) / 2 / one.baseline_ms for one in found)
        line = (f"A/A {what}, {size} a side: {wrong} of {len(found)} called different, a part in {parts}; "
                f"intervals ± {100 * half:.2f}%")  # fmt: skip
        yield line, wrong <= max(1, MOST_CALLED_DIFFERENT * len(found))


def _splits(count: int, size: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for one in itertools.combinations(range(count), size):
        for other in itertools.combinations([at for at in range(count) if at not in one], size):
            if one < other:
                yield one, other


def _compared(baseline: Sequence[Repeat], other: Sequence[Repeat]) -> Difference:
    here, there = (Measurement(name="a side", repeats=list(side)) for side in (baseline, other))
    found = difference(here, there)
    assert found is not None
    return found


def known_change(
    what: str,
    baseline: Sequence[Repeat],
    other: Sequence[Repeat],
    truth_ms: float,
    moves: Sequence[str] = (),
    known: tuple[float, float] | None = None,
) -> tuple[str, bool]:
    """Return what was found of a known change, and whether it is right; `known`: the interval of the truth itself."""
    here, there = (Measurement(name=name, repeats=list(side)) for name, side in (("same", baseline), ("other", other)))
    found = compare([here], [there])
    change, low_ms, high_ms = found.change_ms, found.low_ms, found.high_ms
    if change is None or low_ms is None or high_ms is None:
        return f"A/B {what}: {headline(found)}", False
    low, high = known or (truth_ms, truth_ms)
    inside = (low_ms <= high and low <= high_ms) or abs(change - truth_ms) <= NEAR * abs(truth_ms)
    told = moved(found)
    # what cannot be told from noise as a whole need not be named
    named = not moves or any(part.name in moves for part in told[:2]) or (found.verdict == "same" and not told)
    line = (f"A/B {what}: {change:+.2f} ({low_ms:+.2f} to {high_ms:+.2f}) ms, true {truth_ms:+.2f}"
            f"{'' if inside else '; WRONG SIZE'}{'' if named else '; NOT NAMED'}: {headline(found)}")  # fmt: skip
    return line, inside and named


if __name__ == "__main__":
    sys.exit(main())
