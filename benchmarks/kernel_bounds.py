"""What each kernel of a step is bound by, as hardware counters tell.

    python benchmarks/kernel_bounds.py table OUT [--beside RESULTS]
    python benchmarks/kernel_bounds.py measure OUT [--minutes 4] [--models gpt_small,resnet50] [--ncu ncu]
        [--parts counters,traces] [KEY=VALUE …]

`measure` (one NVIDIA GPU on which ncu may read counters) reads the ceilings, a copy's bytes a second and a large
product's use of the matrix units, and then of a step of each model with two blocks of each kind (more launch the same
kernels, and ncu takes a tenth of a second for each), after its warm-up, every kernel's bytes, time and matrix units;
and records a trace of the whole job, which says which operator launched which kernel. OUT holds ncu's
answers (ceilings.memory.csv.gz, MODEL.memory.csv.gz, MODEL.cores.csv.gz; one file `all` where one pass over a kernel
reads all), each trace's calls (MODEL.calls.json.gz), the logs, and the runs with the traces. Every part is bounded, so
that what could be had comes back. Exits with 1 where something is missing.
`table` joins them to comparisons of the same job on an H100 and an H200 (RESULTS/h100_beside_h200_*.json.gz) and prints
what each kernel is bound by, and whether the ratio of its times is the one that this leads to expect, as Markdown.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec
from bounds.counters import CORES, MEMORY, command, known, passes
from bounds.joined import COMPARISONS, SUMMARY, joined, rows_of, summary_of
from bounds.world import ALONE
from ending import end_with_all_below

from scalescope.records.errors import UserError
from scalescope.scaling.compare.kernels.operators import read_calls

HERE = Path(__file__).resolve().parent
_PROFILED = str(HERE / "bounds" / "profiled.py")
_JOB = ("compile=false", "logger=none")
#: The same job's trace: a window after its warm-up.
_TRACED = ("steps=22", "warmup_steps=6", "profiler.warmup=2", "profiler.active=4", "profiler.repeat=1")
_CEILINGS_S, _START_S = 60.0, 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("measure", "table"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--models", default="gpt_small,resnet50")
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--parts", default="counters,traces", help="measure: of these")
    parser.add_argument("overrides", nargs="*", help="of every job, as for scalescope train")
    parser.add_argument("--beside", type=Path, default=COMPARISONS, help="table: the folder of the comparisons")
    options = parser.parse_intermixed_args()
    if options.verb == "table":
        kernels = joined(options.out, options.beside)
        print(f"{SUMMARY}\n\n{summary_of(kernels).markdown()}\n\n{rows_of(kernels, 0.1).markdown()}")
        return int(not kernels)
    return measure(options.out.resolve(), options.ncu, options.models.split(","), options.overrides,
                   options.parts.split(","), time.monotonic() + 60 * options.minutes)  # fmt: skip


def measure(
    out: Path, ncu: str, models: Sequence[str], overrides: Sequence[str], parts: Sequence[str], until: float
) -> int:
    """Measure all of it, the most wanted first; return 1 where something is missing."""
    out.mkdir(parents=True, exist_ok=True)
    groups = list(_groups(out, ncu, until).items()) if "counters" in parts else []
    found = [bool(groups) or "counters" not in parts]
    found += [_counted(out, ncu, model, overrides, *group, until) for group in groups[:1] for model in models]
    if "traces" in parts:
        found += [_traced(out, model, overrides, until) for model in models]
    found += [_counted(out, ncu, model, overrides, *group, until) for group in groups[1:] for model in models]
    return int(not all(found))


def _groups(out: Path, ncu: str, until: float) -> Mapping[str, Sequence[str]]:
    """Return which counters are read together: all, where that takes one pass, else in two runs of one pass each."""
    every = list(dict.fromkeys(known(ncu, (*MEMORY, *CORES))))
    program = [sys.executable, _PROFILED, "ceilings"]
    took = _run(out, "ceilings.all", command(ncu, every, out / "ceilings.all.csv", program), _CEILINGS_S, until)
    if took == 1:
        return {"all": every}
    groups = {}
    for name, wanted in (("memory", MEMORY), ("cores", CORES)):
        metrics = [one for one in wanted if one in every]
        log = out / f"ceilings.{name}.csv"
        if took > 1 or _run(out, log.stem, command(ncu, metrics, log, program), _CEILINGS_S, until):
            groups[name] = metrics
    return groups


def _counted(
    out: Path, ncu: str, model: str, overrides: Sequence[str], name: str, metrics: Sequence[str], until: float
) -> bool:
    left = until - time.monotonic()
    limit_s = 0.5 * (left - _START_S) if name != "cores" else left - _START_S
    if limit_s < 15:
        print(f"{model} {name}: no time is left", flush=True)
        return False
    job = [f"model={model}", *_JOB, *overrides, f"runs={out / 'under_ncu'}", f"name={model}.{name}"]
    program = [sys.executable, _PROFILED, "step", f"{limit_s:.0f}", *job]
    log = out / f"{model}.{name}.csv"
    return _run(out, log.stem, command(ncu, metrics, log, program), limit_s + _START_S, until) > 0


def _traced(out: Path, model: str, overrides: Sequence[str], until: float) -> bool:
    shutil.rmtree(out / "runs" / model, ignore_errors=True)
    words = [sys.executable, "-m", "scalescope", "train", f"model={model}", *_JOB, *_TRACED, *overrides,
             f"runs={out / 'runs'}", f"name={model}"]  # fmt: skip
    _run(out, f"{model}.trace", words, 90, until)
    traces = sorted((out / "runs" / model / "traces").glob("rank0*"))
    if not traces:
        return False
    try:
        calls = read_calls(traces[0])
    except UserError as error:
        print(f"{model}: {error}", flush=True)
        return False
    (out / f"{model}.calls.json.gz").write_bytes(gzip.compress(msgspec.json.encode(calls)))
    return bool(calls.calls)


def _run(out: Path, name: str, words: Sequence[str], limit_s: float, until: float) -> int:
    """Run a command for so long at most; return how many passes ncu took over a kernel, 0 where it profiled none."""
    began = time.monotonic()
    environment = {**os.environ, **ALONE, "OMP_NUM_THREADS": "8", "PYTHONPATH": os.pathsep.join(
        filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))}  # fmt: skip
    with (out / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=out)
        try:
            code: int | str = process.wait(timeout=max(1.0, min(limit_s, until + 20 - began)))
        except subprocess.TimeoutExpired:
            end_with_all_below(process)
            code = "ended, since it took too long"
        except BaseException:
            end_with_all_below(process)
            raise
    answer = out / f"{name}.csv"
    said = answer.read_text(encoding="utf-8", errors="replace") if answer.exists() else ""
    took = passes(said)
    if said:
        (out / f"{name}.csv.gz").write_bytes(gzip.compress(said.encode()))
        answer.unlink()
    print(f"{name}: exit code {code}, {time.monotonic() - began:.0f} s, {took} passes, "
          f"{sum(line.startswith(chr(34)) for line in said.splitlines())} rows", flush=True)  # fmt: skip
    return took


if __name__ == "__main__":
    sys.exit(main())
