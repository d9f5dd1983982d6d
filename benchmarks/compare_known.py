"""Comparisons with a known answer: the same thing twice is the same, a known difference is found and sized.

    python benchmarks/compare_known.py make OUT [--repeats 3] [--changed 2] [--models gpt_small,resnet50]
                                            [--cases same,tf32] [--minutes 9] [--short] [KEY=VALUE …]
    python benchmarks/compare_known.py check OUT [--kept RESULTS]
    python benchmarks/compare_known.py check RESULTS/rows.jsonl.gz
    python benchmarks/compare_known.py pack OUT FOLDER [--mib 45]
    python benchmarks/compare_known.py causes FOLDER

`make` trains the jobs of comparisons/cases.py in turns: `same`, twice a turn, and each job that differs from it in one
known way, in so many of the turns (default: all), profiled in five windows after thirty steps without a profiler;
overrides hold for all of them. `--short`: one window after twenty smaller steps, for many runs. On a machine
without GPUs it trains tiny models on two CPU ranks, of which some sleep. A further call makes what is missing, also
after one that was ended.
`check` compares splits of the runs that did not differ, up to five a side (A/A: at most 10 of 100 may be called
different; runs, their traces alone, single windows; where runs are many, also pairs of which no two share a run, whose
sides lie in turns, or one after the other) and each case with `same` (A/B: the change found has to hold the difference
of the steps of runs that it does not see, or the length of a host's delay, within 10% or in its interval; a part that
the case names has to be among the first two that are told, or its words in the first sentence), and prints what users
read.
`--kept` writes rows.jsonl.gz (steps and windows of every run, of which `check` comes to the same intervals; kernels and
places are in traces alone, so that it judges no names), said.jsonl.gz (what was answered), tables and the lines. `pack`
makes archives of one window a run, as many as fit. `causes` compares windows of known_causes.py: undisturbed ones in
interleaved splits, and every case whose cost is settled.
Exits with 1 where something is wrong.
"""

import argparse
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from comparisons.cases import CASES
from comparisons.making import finished, make
from comparisons.scoring import Known, Twice, check, known_change, same_twice

from scalescope.records.errors import UserError
from scalescope.scaling.compare.measurement import Repeat
from scalescope.scaling.compare.read import read_repeat

_ARCHIVE_BYTES = 15 * 2**20


def main() -> int:
    names = dict.fromkeys(case.name for case in CASES)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("make", "check", "pack", "causes"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--changed", type=int, help="make: in how many of the turns a job that differs is trained")
    parser.add_argument("--models", default=None)
    parser.add_argument("--cases", default=None, help=f"make: of {', '.join(names)}")
    parser.add_argument("--minutes", type=float, default=9, help="make: begin nothing that would end later")
    parser.add_argument("--short", action="store_true", help="make: of each job fewer steps, smaller, and one window")
    parser.add_argument("--kept", type=Path, help="check: the folder for what is kept")
    parser.add_argument("--mib", type=float, default=45, help="pack: of all archives")
    parser.add_argument("overrides", nargs="*", help="make: of every job, as for scalescope train; pack: the folder")
    options = parser.parse_intermixed_args()
    if options.verb == "make":
        chosen = None if options.cases is None else options.cases.split(",")
        changed = options.repeats if options.changed is None else min(options.changed, options.repeats)
        return make(options.out, options.repeats, changed, options.models, chosen, options.overrides,
                    60 * options.minutes, short=options.short)  # fmt: skip
    if options.verb == "pack":
        return pack(options.out, Path(options.overrides[0]), options.mib * 2**20)
    right = True
    for one in check(options.out, options.kept) if options.verb == "check" else causes(options.out):
        print(f"{'' if one.right else '!! '}{one}", flush=True)
        right = right and one.right
    return int(not right)


def pack(out: Path, folder: Path, most_bytes: float) -> int:
    """Put each run's files with its first window's traces into archives, the first runs first, as many as fit."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = sorted((path for path in out.glob("*/*-*") if finished(path)), key=lambda path: (_number(path), path))
    packed: list[list[Path]] = [[]]
    spent = room = 0.0
    for run in runs:
        traces = sorted((run / "traces").glob("rank*.json.gz"), key=lambda path: (path.name.split(".")[1], path.name))
        first = [path for path in traces if path.name.split(".")[1] == traces[0].name.split(".")[1]]
        files = [*(path for path in run.iterdir() if path.is_file()), *first]
        size = sum(path.stat().st_size for path in files)
        if spent + size > most_bytes:
            continue
        if room + size > _ARCHIVE_BYTES:
            packed.append([])
            room = 0.0
        packed[-1] += files
        spent, room = spent + size, room + size
    for at, files in enumerate(packed):
        with tarfile.open(folder / f"runs{at}.tar", "w") as archive:
            for path in files:
                archive.add(path, path.relative_to(out))
    print(f"{spent / 2**20:.1f} MiB in {len(packed)} archives", flush=True)
    return 0


def _number(run: Path) -> int:
    number = int(run.name.rpartition("-")[2])
    return number // 2 if run.name.startswith("same-") else number


class _Truth(msgspec.Struct):
    """What is needed of a window's truth.json (causes/truth.py)."""

    code: str
    cost_ms: float
    cost_low_ms: float
    cost_high_ms: float
    codes: list[str] = []


def causes(out: Path) -> Iterator[Twice | Known]:
    """Yield what was said of the windows of known_causes.py below a folder."""
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
            for size in range(1, len(repeats) // 2 + 1) if name.startswith(("nothing", "host_bound")) else ():
                if (found := same_twice(f"{launch.name} {name}", repeats, size)) is not None:
                    yield found
        calm = windows.get("nothing", [])
        for name, truth in truths.items():
            # others compare with another job's undisturbed windows, or did not settle
            same_job = not name.startswith(("nothing", "host_bound", "conv", "fsdp2")) and "large" not in name
            settled = truth.cost_low_ms > 0.01 * 10 and truth.cost_high_ms - truth.cost_low_ms < 0.2 * truth.cost_ms
            if calm and same_job and settled:
                bounds = (truth.cost_low_ms, truth.cost_ms, truth.cost_high_ms)
                yield known_change(f"{launch.name} {name}", calm, windows[name], bounds)


if __name__ == "__main__":
    sys.exit(main())
